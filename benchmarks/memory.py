"""How much memory a minute of full-speed inserts with queries beside it takes, and whether anything is left behind.

`run` starts a child process (this module as a program), so that nothing else counts. RssAnon is measured, not RSS: mapped chunks are
the page cache's memory.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import data
from benchmarks.peers import Ask, Tidewheel
from benchmarks.reader import read
from benchmarks.report import Bar, Options, Report

SECONDS = 60
BATCH = 10_000
POOL = 500_000
LIMIT_MB = 300.0
KEEP_FREE = 10 << 30
"""Bytes that must stay free on the disk: the child stops early otherwise, and says so."""


def run(options: Options, report: Report) -> None:
    report.title("memory")
    if not options.wants("tidewheel"):
        report.note("left out: only Tidewheel is measured here")
        return
    seconds = 10 if options.quick else SECONDS
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-memory-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "benchmarks.memory", folder, str(seconds)]
        child = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent)
    if child.returncode:
        raise RuntimeError(f"the measured process failed:\n{child.stderr}")
    found = json.loads(child.stdout.splitlines()[-1])
    early = " (stopped early: disk nearly full)" if found["disk_full"] else ""
    speed = found["rows"] / found["seconds"] / 1e6
    report.note(
        f"Child process, {found['seconds']:.0f} s{early} of 10 K batches at full speed, 2 indexing servers, 16 MB chunks, one querying "
        f"thread: {speed:.1f} M rows/s, {found['queries']:,} queries. "
        "RssAnon every 0.25 s; the baseline is taken after open, one insert and one query, and includes the producer's rows."
    )
    growth = found["peak_mb"] - found["baseline_mb"]
    rows = [[name, f"{found[f'{name}_mb']:.0f} MB"] for name in ("baseline", "peak", "after")]
    rows += [[f"{what}, before → after", f"{found['before'][what]} → {found['left'][what]}"] for what in ("fds", "threads")]
    grown = {kind: found["left"]["files"][kind] - found["before"]["files"].get(kind, 0) for kind in found["left"]["files"]}
    grown = {kind: more for kind, more in grown.items() if more > 0}
    rows.append(["files that are new, by kind", ", ".join(f"{more} × {kind}" for kind, more in grown.items()) or "none"])
    report.table("memory", ["", ""], rows)
    bars = [
        Bar("peak above baseline", growth, LIMIT_MB, "<=", " MB"),
        Bar("open files left behind", float(found["left"]["fds"] - found["before"]["fds"]), 0, "<="),
        Bar("threads left behind", float(found["left"]["threads"] - found["before"]["threads"]), 0, "<="),
        Bar("kinds of files that grow in number (chunks are one)", float(len(grown)), 1, "<="),
    ]
    report.finish("memory", found, bars)


def child(folder: str, seconds: float) -> dict[str, object]:
    """Inserts, queries and samples; returns what was seen."""
    pool = data.generate(POOL)
    low, high = (int(value) for value in np.quantile(pool.z, (0.5, 0.51)))
    system = Tidewheel({"indexing_servers": 2, "durability": "process"})
    system.open(Path(folder))
    state = {"rows": 0, "queries": 0}
    _insert(system, pool, state)
    read(system.query(Ask((low, high), None)))
    gc.collect()
    baseline, before = _anonymous(), _census(folder)
    samples: list[float] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(0.25):
            samples.append(_anonymous())

    def ask() -> None:
        try:
            while not stop.wait(0.005):
                newest = data.BASE + state["rows"] * (1_000_000 // data.RATE)
                read(system.query(Ask((low, high), (newest - 60_000_000, newest))))
                state["queries"] += 1
        except BaseException as failure:  # raised by the main thread below
            failures.append(failure)

    helpers = [threading.Thread(target=sample), threading.Thread(target=ask)]
    for helper in helpers:
        helper.start()
    start = time.perf_counter()
    disk_full = False
    while not failures and not disk_full and time.perf_counter() - start < seconds:
        for _ in range(50):
            _insert(system, pool, state)
        disk_full = shutil.disk_usage(folder).free < KEEP_FREE
    took = time.perf_counter() - start
    stop.set()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[0]
    system.flush()
    gc.collect()
    time.sleep(1.0)
    peak = max([*samples, _anonymous()])
    left, after = _census(folder), _anonymous()
    rows = system.table.rows
    system.close()
    if rows != state["rows"]:
        raise AssertionError(f"the table has {rows:,} rows, {state['rows']:,} were inserted")
    figures = {"baseline_mb": baseline, "peak_mb": peak, "after_mb": after, "before": before, "left": left, "samples_mb": samples}
    return figures | {"seconds": took, "disk_full": disk_full, **state}


def _insert(system: Tidewheel, pool: data.Rows, state: dict[str, int]) -> None:
    """The next batch: pool rows as they are, with new times."""
    part = slice(state["rows"] % POOL, state["rows"] % POOL + BATCH)
    rows = data.Rows(pool.z[part], data.stamps(state["rows"], BATCH), pool.taxi[part], pool.lon[part], pool.lat[part], "")
    batch: pa.RecordBatch = rows.batch()
    system.insert(batch)
    state["rows"] += BATCH


def _anonymous() -> float:
    """RssAnon of this process in MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


def _census(folder: str) -> dict[str, object]:
    """Open files, threads, and files under the folder counted by their ending."""
    files = Counter(Path(name).suffix or name for _, _, names in os.walk(folder) for name in names)
    return {"fds": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")), "files": dict(files)}


if __name__ == "__main__":
    print(json.dumps(child(sys.argv[1], float(sys.argv[2]))))
