"""The tables of docs/choosing.md: what key and partition do to the same questions over the same rows.

    python -m benchmarks.choosing --data DIR [--rows N]

Times are those of the processor, not of the clock: medians of `RUNS` readings of a result whose chunks are in the system's cache.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidewheel as tw
from benchmarks.data import BOUNDS, TDRIVE_ROWS, Rows, batches, load

RUNS = 15
BATCH = 10_000
SCHEMA = pa.schema([("taxi", pa.int32()), ("ts", pa.timestamp("us")), ("lon", pa.float64()), ("lat", pa.float64())])
KEYS: dict[str, Any] = {"taxi": "taxi", "z-order": tw.zorder("lon", "lat", bounds=BOUNDS), "ts": "ts"}
PARTITIONS = ("15 minutes", "1 hour", "1 day")

Question = Callable[[str], dict[str, Any]]
"""What to ask of a table with this key."""


def questions(rows: Rows) -> Iterator[tuple[str, Question]]:
    """Of a taxi and a place that have about the median number of rows, and a busy hour in the middle."""
    ids, counts = np.unique(rows.taxi, return_counts=True)
    one = int(ids[np.argsort(counts)[len(ids) // 2]])
    at = int(rows.ts[len(rows) // 2])
    hour, ten = (at, at + 3_600_000_000), (at, at + 600_000_000)
    box = (116.42, 39.90, 116.43, 39.91)

    def taxi(key: str) -> dict[str, Any]:
        return {"key": one} if key == "taxi" else {"ranges": {"taxi": (one, one)}}

    def place(key: str) -> dict[str, Any]:
        return {"box": box} if key == "z-order" else {"ranges": {"lon": (box[0], box[2]), "lat": (box[1], box[3])}}

    yield "one taxi, one hour", lambda key: {**taxi(key), "time": hour}
    yield "one taxi, always", taxi
    yield "a square kilometre, one hour", lambda key: {**place(key), "time": hour}
    yield "a square kilometre, always", place
    yield "all rows of ten minutes", lambda key: {"time": ten}
    yield "count and mean of one hour", lambda key: {"time": hour, "aggregate": {"n": "count(*)", "v": "avg(lat)"}}


def filled(wh: tw.Warehouse, name: str, rows: pa.RecordBatch, **how: Any) -> tuple[tw.Table, float]:
    """A table of all rows in chunks, and the processor's seconds that it took."""
    table = wh.create_table(name, SCHEMA, time="ts", **how)
    began = time.process_time()
    for batch in batches(rows, BATCH):
        table.insert(batch)
    table.flush()
    return table, time.process_time() - began


def asked(table: tw.Table, question: dict[str, Any]) -> tuple[int, int, float]:
    """Rows, rows looked at, and milliseconds."""
    found, spent = 0, []
    for _ in range(RUNS):
        began = time.process_time()
        result = table.query(**question)
        found = result.to_arrow().num_rows
        spent.append((time.process_time() - began) * 1e3)
    return found, result.stats.rows_scanned, statistics.median(spent)


def line(*cells: object) -> None:
    print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", help="the folder with the data sets; rows are made up without")
    arguments.add_argument("--rows", type=int, default=TDRIVE_ROWS)
    options = arguments.parse_args()
    rows = load(options.data, options.rows)
    ts = pa.Array.from_buffers(pa.timestamp("us"), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows.ts))])
    all_rows = pa.record_batch([pa.array(rows.taxi), ts, pa.array(rows.lon), pa.array(rows.lat)], schema=SCHEMA)
    print(f"{rows.origin}; batches of {BATCH:,}; processor time, median of {RUNS}\n")
    with tempfile.TemporaryDirectory() as folder, tw.open(folder) as wh:
        by_key(wh, rows, all_rows)
        by_partition(wh, rows, all_rows)
        disk(Path(folder), wh["by_0"], len(rows))


def by_key(wh: tw.Warehouse, rows: Rows, all_rows: pa.RecordBatch) -> None:
    tables, spent = {}, []
    for i, (name, key) in enumerate(KEYS.items()):
        tables[name], seconds = filled(wh, f"by_{i}", all_rows, key=key)
        spent.append(f"{seconds:.1f} s, {tables[name].state().chunks} chunks")
    line("question", "rows", *(f"key: {name}" for name in KEYS))
    line("---", "---:", *("---:" for _ in KEYS))
    line("to insert them all", f"{len(rows):,}", *spent)
    for said, question in questions(rows):
        answers = [asked(table, question(name)) for name, table in tables.items()]
        assert len({found for found, _, _ in answers}) == 1, (said, answers)
        line(said, f"{answers[0][0]:,}", *(f"{ms:,.2f} ms, {looked:,}" for _, looked, ms in answers))
    print()


def by_partition(wh: tw.Warehouse, rows: Rows, all_rows: pa.RecordBatch) -> None:
    tables = {}
    for i, width in enumerate(PARTITIONS):
        tables[width] = wh["by_0"] if width == "1 hour" else filled(wh, f"part_{i}", all_rows, key="taxi", partition=width)[0]
    line("question", *(f"partition: {width}" for width in PARTITIONS))
    line("---", *("---:" for _ in PARTITIONS))
    seconds = (rows.ts - rows.ts.min()) // 1_000_000
    sizes = [np.bincount(seconds // wide) for wide in (900, 3_600, 86_400)]
    line("partitions; rows of a middling one", *(f"{np.count_nonzero(n):,}; {int(np.median(n[n > 0])):,}" for n in sizes))
    line("chunks", *(table.state().chunks for table in tables.values()))
    for said, question in questions(rows):
        line(said, *(f"{asked(table, question('taxi'))[2]:,.2f} ms" for table in tables.values()))
    print()


def disk(folder: Path, table: tw.Table, rows: int) -> None:
    path = folder / "rows.parquet"
    table.query().to_parquet(path)
    line("on disk", "bytes a row")
    line("---", "---:")
    line("the values themselves", f"{sum(field.type.bit_width for field in SCHEMA) / 8:.0f}")
    line("chunks", f"{table.state().disk_bytes / rows:.1f}")
    line("Parquet with zstd, in the order of the chunks", f"{path.stat().st_size / rows:.1f}")


if __name__ == "__main__":
    main()
