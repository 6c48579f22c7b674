"""A query of about ten rows over 35 chunks and a live tree: what a point question costs, in process."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.peers import Tidewheel
from benchmarks.report import Bar, Options, Report

CHUNKS = 35
CHUNK_BYTES = 16 << 20
WARM_UP, QUERIES = 100, 1_000
LIMIT_US = 150.0


def run(options: Options, report: Report) -> None:
    report.title("small")
    if not options.wants("tidewheel"):
        report.note("left out: only Tidewheel is measured here")
        return
    with many_chunks(options, "bench-small-") as (system, rows, chunk_bytes):
        chunks = system.table.state().chunks
        asked = ranges(rows.z, WARM_UP + QUERIES)
        microseconds = []
        for low, high, wanted in asked:
            start = time.perf_counter()
            table = system.table.query(key=(low, high)).to_arrow()
            microseconds.append((time.perf_counter() - start) * 1e6)
            if table.num_rows != wanted:
                raise AssertionError(f"{table.num_rows} rows with a key of {low}…{high}, right is {wanted}")
        stats = str(system.table.query(key=asked[0][:2]).stats)
    timed = microseconds[WARM_UP:]
    returned = statistics.mean(wanted for _, _, wanted in asked[WARM_UP:])
    median, slow = statistics.median(timed), float(np.percentile(timed, 99))
    report.note(
        f"{rows.origin}; {chunks} chunks of {chunk_bytes >> 20} MB and a live tree; "
        f"{WARM_UP} uncounted queries, then {QUERIES}; each count is checked."
    )
    report.note(f"One of them: {stats}")
    call = f"table.query(key=…).to_arrow(), all of the time, {returned:.1f} rows on average"
    report.table("small queries, µs", ["", "median", "p99"], [[call, f"{median:.0f}", f"{slow:.0f}"]])
    figures = {
        "data": rows.origin,
        "chunk_bytes": chunk_bytes,
        "chunks": chunks,
        "queries": QUERIES,
        "median_us": median,
        "p99_us": slow,
        "rows": returned,
        "stats": stats,
    }
    report.finish("small", figures, [Bar(f"ten rows of {chunks} chunks and a tree", median, LIMIT_US, "<", " µs")])


@contextmanager
def many_chunks(options: Options, prefix: str, **settings: Any) -> Iterator[tuple[Tidewheel, data.Rows, int]]:
    """A table of 35 chunks and a live tree, the rows in it, and the bytes of a chunk."""
    chunk_bytes = 1 << 20 if options.quick else CHUNK_BYTES
    per_chunk = chunk_bytes // data.ROW_BYTES
    rows = stream(options, per_chunk * CHUNKS + per_chunk // 2)
    system = Tidewheel({"chunk_bytes": chunk_bytes, **settings})
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix=prefix, ignore_cleanup_errors=True) as folder:
        try:
            system.open(Path(folder))
            for part in data.batches(rows.batch(), 10_000):
                system.insert(part)
            while system.table.state().sealed:
                time.sleep(0.05)
            yield system, rows, chunk_bytes
        finally:
            system.close()


def stream(options: Options, rows: int) -> data.Rows:
    """As many rows as asked for, at 50 K a second: T-Drive is a little too short for 35 chunks, so its first taxis drive once more."""
    known = data.load(options.data, min(rows, data.TDRIVE_ROWS))
    again = rows - len(known)
    if again <= 0:
        return known.restamped()
    longer = (np.concatenate([column, column[:again]]) for column in (known.z, known.ts, known.taxi, known.lon, known.lat))
    return data.Rows(*longer, f"{known.origin}, then its first {again:,} again").restamped()


def ranges(z: np.ndarray, count: int) -> list[tuple[int, int, int]]:
    """Key ranges, with the rows in each, that hold 8–12 rows: places where no taxi is parked."""
    keys = np.sort(z)
    random = np.random.default_rng(10)
    found: list[tuple[int, int, int]] = []
    while len(found) < count:
        first = int(random.integers(0, len(keys) - 10))
        low, high = int(keys[first]), int(keys[first + 9])
        rows = int(np.searchsorted(keys, high, "right") - np.searchsorted(keys, low, "left"))
        if 8 <= rows <= 12:
            found.append((low, high, rows))
    return found
