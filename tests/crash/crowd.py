"""One of many processes that insert into one warehouse and query it: whoever is the owner, and whoever takes over from it.

    python -m tests.crash.crowd ROOT NUMBER JOURNAL STOP SEED

It inserts packages of random sizes and writes each one's name into its journal once it is acknowledged. A package whose fate is unknown
because the owner died is inserted again. In between it asks for its own rows: all that it knows of must be there, once.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa

import tidewheel as tw

SCHEMA = pa.schema([("who", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("package", pa.int64()), ("i", pa.int64()), ("of", pa.int64())])


def package(who: int, number: int) -> pa.RecordBatch:
    """The same rows for the same number, always."""
    size = random.Random(f"{who} {number}").choice([1, 1, 3, 40, 400])
    columns = [[who] * size, [number * 1_000_000 + i for i in range(size)], [number] * size, list(range(size)), [size] * size]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def wrong(rows: pa.Table, acknowledged: dict[int, int]) -> str:
    """What is wrong with one process's rows, if anything: each package is whole and there once, and those acknowledged are there."""
    seen = Counter(zip(rows["package"].to_pylist(), rows["i"].to_pylist(), strict=True))
    twice = [key for key, n in seen.items() if n > 1]
    if twice:
        return f"rows twice: {twice[:5]}"
    sizes = Counter(number for number, _ in seen)
    for number, of in set(zip(rows["package"].to_pylist(), rows["of"].to_pylist(), strict=True)):
        if sizes[number] != of:
            return f"package {number} has {sizes[number]} of {of} rows"
    missing = [number for number in acknowledged if number not in sizes]
    return f"packages lost: {missing[:5]}" if missing else ""


def read_journal(path: Path) -> dict[int, int]:
    """(number, rows) of the packages that were acknowledged; a line that was being written when its process died counts as none."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return {int(a): int(b) for a, b in (line.split() for line in lines)}


def begin(root: Path) -> tuple[tw.Warehouse, tw.Table]:
    """The owner may be busy with its start, or die meanwhile."""
    wh: tw.Warehouse | None = None
    while True:
        try:
            wh = wh or tw.open(root)
            return wh, wh.create_table("t", SCHEMA, time="ts", key="who", if_exists="open")
        except tw.TidewheelError as e:
            if not e.retryable:
                raise
            time.sleep(0.01)


def run(root: Path, who: int, journal: Path, stop: Path, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged = read_journal(journal)
    number = max(acknowledged, default=-1) + 1
    wh, table = begin(root)
    with journal.open("a") as out:
        while not stop.exists():
            try:
                if rng.random() < 0.7:
                    batch = package(who, number)
                    table.insert(batch, package=f"{who}/{number}")
                    acknowledged[number] = batch.num_rows
                    out.write(f"{number} {batch.num_rows}\n")
                    out.flush()
                    number += 1
                else:
                    first = rng.randrange(number + 1)
                    known = {n: rows for n, rows in acknowledged.items() if n >= first}
                    found = table.query(key=who, time=(first * 1_000_000, None)).to_arrow()
                    if bad := wrong(found, known):
                        raise SystemExit(f"process {who}: {bad}")
            except tw.TidewheelError as e:
                if not e.retryable:
                    raise
                time.sleep(0.01)
    wh.close()


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
