"""What `benchmarks/beside.py` has each tree do, in a process of its own. Prints microseconds of processor time as JSON.

python beside_work.py calls|texts|sink [DATA]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidewheel as tw

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("lon", pa.float64()), ("lat", pa.float64()), ("speed", pa.float32())])
ROWS = 2_000_000
FRESH = 200_000
"""Rows in memory while queries are asked."""
QUERIES = 400
ROUNDS = 5
"""Rounds of a kind of query; the least of them counts, because what else runs on the machine only adds."""
CELLS = ((0.01, 0.02), (0.05, 0.1), (0.1, 1.0))
"""Shares of all keys and of all time that larger queries ask for."""

ATTACHED = """
import sys, time, tidewheel as tw
wh = tw.open(sys.argv[1]); table = wh.table("t")
for i in range(50): table.query(key=(i, i), time=(0, 10**15)).to_arrow()
spent = []
for _ in range(int(sys.argv[3])):
    began = time.process_time()
    for i in range(int(sys.argv[2])): table.query(key=(i, i), time=(0, 10**15)).to_arrow()
    spent.append(time.process_time() - began)
print(min(spent))
wh.close()
"""


def rows() -> pa.Table:
    rng = np.random.default_rng(1)
    ids = rng.integers(0, ROWS // 10, ROWS)
    times = pa.array(np.arange(ROWS) * 1000, pa.int64()).cast(pa.timestamp("us"))
    return pa.table(
        [pa.array(ids), times, *(pa.array(rng.random(ROWS)) for _ in "ab"), pa.array(rng.random(ROWS, np.float32))], schema=SCHEMA
    )


def spent(work: Callable[[], Any]) -> float:
    """Seconds of processor time of all threads."""
    began = time.process_time()
    work()
    return time.process_time() - began


def insert(folder: Path, data: pa.Table, size: int, count: int) -> float:
    """Microseconds a batch, flush included."""
    batches = data.slice(0, size * count).combine_chunks().to_batches(max_chunksize=size)
    with tw.open(folder) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        table.insert(batches[0])

        def work() -> None:
            for batch in batches[1:]:
                table.insert(batch)
            table.flush()

        return 1e6 * spent(work) / (len(batches) - 1)


def texts() -> dict[str, float]:
    """Inserts of ten thousand rows with a text as key, flush included: microseconds a batch."""
    from benchmarks.text_keys import NAMES, generated

    found = {}
    with tempfile.TemporaryDirectory(prefix="beside-work-") as place:
        for kind in ("sorted", *NAMES):  # the first one once more: what is loaded by the first flush is nobody's time
            data = generated(kind, 25_000 if kind == "1 KB prefix" else 500_000, 5_000).drop_columns(["i"]).combine_chunks()
            with tempfile.TemporaryDirectory(dir=place) as root, tw.open(root) as wh:
                table = wh.create_table("t", data.schema, time="ts", key="k", partition="100 days")
                batches = data.to_batches(max_chunksize=10_000)

                def work(table: tw.Table = table, batches: list[pa.RecordBatch] = batches) -> None:
                    for batch in batches:
                        table.insert(batch)
                    table.flush()

                found[f"text keys, {kind}"] = 1e6 * spent(work) / len(batches)
    return found


def calls() -> dict[str, float]:
    """Inserts, flush included, and queries: microseconds a call."""
    data = rows()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="beside-work-") as place:
        for size, count in ((1_000, 400), (10_000, 100), (100_000, 15)):
            found[f"insert of {size:,} rows"] = insert(Path(place) / str(size), data, size, count)
        with tw.open(Path(place) / "queries") as wh:
            table = wh.create_table("t", SCHEMA, time="ts", key="id")
            for batch in data.slice(0, ROWS - FRESH).to_batches(max_chunksize=10_000):
                table.insert(batch)
            table.flush()  # so that nothing is written while queries are asked
            for batch in data.slice(ROWS - FRESH).to_batches(max_chunksize=10_000):
                table.insert(batch)
            everywhere = (0, 10**15)

            def each(ask: Callable[[int], Any], queries: int = QUERIES) -> float:
                for i in range(50):
                    ask(i)
                return 1e6 * min(spent(lambda: [ask(i) for i in range(queries)]) for _ in range(ROUNDS)) / queries

            text = "SELECT id, ts, lon, lat, speed FROM t WHERE id = {} AND ts BETWEEN '1970-01-01' AND '1999-01-01'"
            found["query of ten rows"] = each(lambda i: table.query(key=(i, i), time=everywhere).to_arrow())
            found["the same in SQL, new literals"] = each(lambda i: wh.sql(text.format(i)).to_arrow())
            found["count(*) with another column"] = each(
                lambda i: wh.sql(f"SELECT count(*) FROM t WHERE id BETWEEN {i} AND {i + 5} AND speed > 0.5").to_arrow(), QUERIES // 10
            )
            for keys, times in CELLS:
                key, end = (0, int(keys * ROWS / 10)), int(times * ROWS * 1000)
                found[f"query of {keys:.0%} × {times:.0%}"] = 1e6 * min(
                    spent(lambda key=key, end=end: table.query(key=key, time=(0, end)).to_arrow()) for _ in range(150)
                )
            began = time.process_time()
            done = subprocess.run(
                [sys.executable, "-c", ATTACHED, str(Path(place) / "queries"), str(QUERIES), str(ROUNDS)], capture_output=True, text=True
            )
            owner = time.process_time() - began
            found["query of ten rows, attached: client"] = 1e6 * float(done.stdout) / QUERIES
            found["query of ten rows, attached: owner"] = 1e6 * owner / (QUERIES * ROUNDS + 50)
    return found


def main() -> None:
    what, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    match what:
        case "calls":
            found = calls()
        case "texts":
            found = texts()
        case "sink":
            from benchmarks import beside_sink

            found = beside_sink.measured(folder)
        case _:
            raise SystemExit(f"unknown work {what!r}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
