"""What it costs to be attached: small queries and inserts of a process that is not the owner, beside the owner's own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.report import Bar, Options, Report
from benchmarks.small import many_chunks, ranges

TURNS, WARM_UP, QUERIES, INSERTS = 10, 2, 100, 50
"""Turns that owner and attached process take, the first of them uncounted, and what they do in each."""
BATCH = 1_000
OVER_MS = 1.0


def run(options: Options, report: Report) -> None:
    report.title("attach")
    if not options.wants("tidewheel"):
        report.note("left out: only Tidewheel is measured here")
        return
    took: dict[str, list[float]] = {f"{who} {what}": [] for what in ("query", "insert", "rows") for who in ("embedded", "attached")}
    with many_chunks(options, "bench-attach-", durability="process") as (system, rows, chunk_bytes):
        chunks = system.table.state().chunks
        other = system.warehouse.create_table("other", data.SCHEMA, time="ts", key="z")
        with _Child(str(system.root)) as child:
            for turn, asked in enumerate(_turns(ranges(rows.z, (TURNS + WARM_UP) * QUERIES))):
                mine = _queries(system.table, asked)
                theirs = child.does({"queries": asked})
                first = turn * INSERTS * 2
                mine_in = _inserts(other, first)
                theirs_in = child.does({"inserts": first + INSERTS})
                mine_bare = _bare(other)
                theirs_bare = child.does({})
                if turn >= WARM_UP:
                    took["embedded rows"] += mine_bare
                    took["attached rows"] += theirs_bare
                    took["embedded query"] += mine
                    took["attached query"] += theirs
                    took["embedded insert"] += mine_in
                    took["attached insert"] += theirs_in
        inserted, wanted = other.rows, (TURNS + WARM_UP) * INSERTS * 2 * BATCH
        if inserted != wanted:
            raise AssertionError(f"{inserted:,} rows in the table after inserts of {wanted:,}")
    report.note(
        f"{rows.origin}; {chunks} chunks of {chunk_bytes >> 20} MB and a live tree; two processes take turns of {QUERIES} queries "
        f"(table.query(key=…).to_arrow(), 8–12 rows, each count checked) and {INSERTS} inserts of {BATCH:,} rows, durability "
        f'"process", and ask for table.rows; {WARM_UP} uncounted turns, then {TURNS}.'
    )
    medians = {name: statistics.median(values) for name, values in took.items()}
    lines = []
    for what in ("query", "insert", "rows"):
        mine, theirs = f"embedded {what}", f"attached {what}"
        for name in (mine, theirs):
            lines.append([name, f"{medians[name]:.0f}", f"{np.percentile(took[name], 99):.0f}"])
        lines.append(["… more", f"{medians[theirs] - medians[mine]:.0f}", ""])
    report.table("microseconds", ["", "median", "p99"], lines)
    over = (medians["attached query"] - medians["embedded query"]) / 1000
    figures = {
        "data": rows.origin,
        "chunks": chunks,
        "median_us": medians,
        "p99_us": {n: float(np.percentile(v, 99)) for n, v in took.items()},
    }
    report.finish("attach", figures, [Bar("small query, attached − embedded", over, OVER_MS, "<=", " ms")])


def _turns(asked: list[tuple[int, int, int]]) -> list[list[tuple[int, int, int]]]:
    return [asked[start : start + QUERIES] for start in range(0, len(asked), QUERIES)]


def _queries(table: Any, asked: list[tuple[int, int, int]]) -> list[float]:
    """Microseconds of each query: key range and the rows that are right."""
    took = []
    for low, high, wanted in asked:
        start = time.perf_counter()
        found = table.query(key=(low, high)).to_arrow()
        took.append((time.perf_counter() - start) * 1e6)
        if found.num_rows != wanted:
            raise AssertionError(f"{found.num_rows} rows with a key of {low}…{high}, right is {wanted}")
    return took


def _inserts(table: Any, first: int) -> list[float]:
    """Microseconds of each insert."""
    batch = data.generate(BATCH)
    took = []
    for n in range(first, first + INSERTS):
        rows = batch.restamped(n * BATCH).batch()
        start = time.perf_counter()
        table.insert(rows)
        took.append((time.perf_counter() - start) * 1e6)
    return took


def _bare(table: Any) -> list[float]:
    """Microseconds of the least that can be asked: what a way to the owner and back takes."""
    took = []
    for _ in range(QUERIES):
        start = time.perf_counter()
        _ = table.rows
        took.append((time.perf_counter() - start) * 1e6)
    return took


class _Child:
    """A process that attaches and does what it is told, one JSON line after the other."""

    def __init__(self, root: str) -> None:
        command = [sys.executable, "-m", "benchmarks.attach", root]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent
        )

    def does(self, work: dict[str, object]) -> list[float]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(work) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the attached process failed; what it said is above")
        took: list[float] = json.loads(line)
        return took

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def _serve(root: str) -> None:
    import tidewheel as tw

    with tw.open(root) as warehouse:
        taxi, other = warehouse.table("taxi"), warehouse.table("other")
        for line in sys.stdin:
            work = json.loads(line)
            match work:
                case {"queries": asked}:
                    took = _queries(taxi, asked)
                case {"inserts": first}:
                    took = _inserts(other, first)
                case _:
                    took = _bare(other)
            print(json.dumps(took), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
