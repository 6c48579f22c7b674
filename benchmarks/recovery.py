"""How long a warehouse takes to open after its owner was killed with a gigabyte in its log."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import data
from benchmarks.report import Bar, Options, Report

TABLES = 2
"""A tree holds up to 512 MB; two tables have a gigabyte in memory and in the log, and nothing in chunks."""
BYTES = 1 << 30
FASTEST = 3e6
"""Rows a second that recovery must at least bring back."""

_INGEST = """
import os, sys
import tidewheel as tw
from benchmarks import data
root, folder, tables, rows = sys.argv[1], sys.argv[2] or None, int(sys.argv[3]), int(sys.argv[4])
wh = tw.open(root, settings=tw.Settings(chunk_bytes=512 << 20, flush_after=1e6))
batch = data.load(folder, min(rows, data.TDRIVE_ROWS)).batch()
for number in range(tables):
    table = wh.create_table(f"taxi{number}", data.SCHEMA, time="ts", key="z")
    for part in data.batches(batch, 10_000):
        table.insert(part)
os._exit(9)  # as kill -9 would: nothing is flushed or closed
"""


def run(options: Options, report: Report) -> None:
    report.title("recovery")
    if not options.wants("tidewheel"):
        report.note("left out: only Tidewheel is measured here")
        return
    rows = (BYTES // 8 if options.quick else BYTES) // TABLES // data.ROW_BYTES
    visible, flushed, found, size = [], [], 0, 0
    for _ in range(options.repetitions or (1 if options.quick else 5)):
        with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-recovery-", ignore_cleanup_errors=True) as folder:
            root = str(Path(folder) / "wh")
            command = [sys.executable, "-c", _INGEST, root, options.data or "", str(TABLES), str(rows)]
            done = subprocess.run(command, cwd=Path(__file__).parent.parent)
            if done.returncode != 9:
                raise RuntimeError(f"the ingesting process ended with {done.returncode}")
            seconds, after, found, size = _open(root)
            visible.append(seconds)
            flushed.append(after)
    rate, whole = found / sorted(visible)[len(visible) // 2], found / sorted(flushed)[len(flushed) // 2]
    report.note(f"{size / 1e9:.2f} GB of log, {found:,} rows in {TABLES} tables, 10,000 a record, page cache warm; {len(visible)} runs.")
    report.table(
        "recovery, medians",
        ["until", "seconds", "million rows/s"],
        [
            ["the warehouse is open and every row can be queried", f"{sorted(visible)[len(visible) // 2]:.2f}", f"{rate / 1e6:.1f}"],
            ["every row is in a chunk and the log is gone", f"{sorted(flushed)[len(flushed) // 2]:.2f}", f"{whole / 1e6:.1f}"],
        ],
    )
    bars = [Bar("recovery to the end, million rows a second", whole / 1e6, FASTEST / 1e6, ">=")]
    report.finish("recovery", {"rows": found, "log_bytes": size, "open_seconds": visible, "flushed_seconds": flushed}, bars)


def _open(root: str) -> tuple[float, float, int, int]:
    """(seconds until open, until all is in chunks, rows, bytes of log)."""
    import tidewheel as tw

    began = time.perf_counter()
    with tw.open(root) as wh:
        opened = time.perf_counter() - began
        tables = [wh.table(name) for name in wh.tables()]
        rows, size = wh.recovery.rows, sum(table.log_bytes for table in wh.recovery.tables)
        while any(table.state().sealed for table in tables):
            time.sleep(0.01)
        flushed = time.perf_counter() - began
        if sum(table.rows for table in tables) != rows:
            raise AssertionError("rows were lost")
    return opened, flushed, rows, size
