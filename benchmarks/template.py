"""How long a template update of a full tree takes (Eq. 3), and whether inserts and queries go on meanwhile."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.peers import Tidewheel
from benchmarks.report import Bar, Options, Report
from tidewheel.testing.probe import Probe

CHUNK_BYTES = 16 << 20
LIMIT_MS = 10.0


def run(options: Options, report: Report) -> None:
    report.title("template")
    if not options.wants("tidewheel"):
        report.note("left out: only Tidewheel is measured here")
        return
    runs = options.repetitions or (5 if options.quick else 15)
    per_tree = CHUNK_BYTES // data.ROW_BYTES
    rows = data.load(options.data, per_tree)
    system = Tidewheel({"chunk_bytes": 2 * CHUNK_BYTES})  # so that a full tree stays a tree
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="bench-template-", ignore_cleanup_errors=True) as folder:
        try:
            system.open(Path(folder))
            for part in data.batches(rows.batch(), 10_000):
                system.insert(part)
            alone = [_update(system) for _ in range(runs)]
            busy, inserts, queries = _with_traffic(system, rows, runs)
        finally:
            system.close()
    report.note(
        f"{rows.origin}: a tree of {len(rows):,} rows in batches of 10,000, {runs} updates: leaf counts, exact even division, new nodes."
    )
    shown = [
        ["nothing else going on", f"{statistics.median(alone) * 1e3:.1f}", f"{max(alone) * 1e3:.1f}", "", ""],
        [
            "inserts and queries meanwhile",
            f"{statistics.median(busy) * 1e3:.1f}",
            f"{max(busy) * 1e3:.1f}",
            *(f"{max(x) * 1e3:.1f}" for x in (inserts, queries)),
        ],
    ]
    report.table("template update, ms", ["", "median", "max", "slowest insert", "slowest query"], shown)
    figures = {
        "data": rows.origin,
        "rows": len(rows),
        "updates": runs,
        "median_ms": statistics.median(alone) * 1e3,
        "median_busy_ms": statistics.median(busy) * 1e3,
        "inserts_meanwhile": len(inserts),
        "queries_meanwhile": len(queries),
        "slowest_insert_ms": max(inserts) * 1e3,
        "slowest_query_ms": max(queries) * 1e3,
    }
    report.finish("template", figures, [Bar("template update of a full tree", statistics.median(alone) * 1e3, LIMIT_MS, "<", " ms")])


def _update(system: Tidewheel) -> float:
    """What the engine does when the skew of a live tree says that it pays, without asking whether it does."""
    from tidewheel.index.template import Template, divide, skew
    from tidewheel.index.tree import all_codes, counts_per_leaf

    publisher: Any = Probe(system.table).publisher
    server = publisher.servers[0]
    start = time.perf_counter()
    view, template = server.live.view(), server.template
    skew(counts_per_leaf(view, template), template.bounds)
    better = Template(divide(all_codes(view, template.coder), template.leaves), template.coder)
    with publisher.lock:
        server.use(better)
    return time.perf_counter() - start


def _with_traffic(system: Tidewheel, rows: data.Rows, runs: int) -> tuple[list[float], list[float], list[float]]:
    """Updates while one thread inserts small batches and another one asks narrow questions; how long each of those took."""
    stop = threading.Event()
    batches = list(data.batches(rows.batch(), 1_000))
    keys = np.sort(rows.z)
    inserts: list[float] = []
    queries: list[float] = []

    def insert() -> None:
        for i in range(10**9):
            if stop.is_set():
                return
            start = time.perf_counter()
            system.insert(batches[i % len(batches)])
            inserts.append(time.perf_counter() - start)
            time.sleep(0.005)

    def query() -> None:
        random = np.random.default_rng(1)
        while not stop.is_set():
            first = int(random.integers(0, len(keys) - 1000))
            start = time.perf_counter()
            system.table.query(key=(int(keys[first]), int(keys[first + 999]))).to_arrow()
            queries.append(time.perf_counter() - start)

    threads = [threading.Thread(target=insert), threading.Thread(target=query)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    busy = []
    for _ in range(runs):
        busy.append(_update(system))
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    return busy, inserts, queries
