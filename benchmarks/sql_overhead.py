"""What SQL costs: selective statements through wh.sql beside the same questions to table.query, over 35 chunks and a live tree."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.peers import Tidewheel
from benchmarks.report import Bar, Options, Report
from benchmarks.small import many_chunks, ranges

WARM_UP, QUERIES = 50, 400
OVER_MS = 3.0
SUMS = "count(*) AS n, avg(lon) AS lon, max(taxi) AS taxi"
AGGREGATE = {"n": "count(*)", "lon": "avg(lon)", "taxi": "max(taxi)"}

Way = Callable[[int, int], pa.Table]


def run(options: Options, report: Report) -> None:
    report.title("sql_overhead")
    if not options.wants("tidewheel"):
        report.note("left out: only Tidewheel is measured here")
        return
    with many_chunks(options, "bench-sql-") as (system, rows, chunk_bytes):
        chunks = system.table.state().chunks
        asked = ranges(rows.z, WARM_UP + (100 if options.quick else options.repetitions or QUERIES))
        took = {"the main thread": _measured(system, asked), "another thread": _elsewhere(lambda: _measured(system, asked))}
    report.note(
        f"{rows.origin}; {chunks} chunks of {chunk_bytes >> 20} MB and a live tree; key ranges of 8–12 rows, each asked in every way, "
        f"one after the other; {WARM_UP} uncounted, then {len(asked) - WARM_UP}; the number of rows is checked. Rows and "
        "totals are read directly: DuckDB only parses the statements."
    )
    figures: dict[str, object] = {"data": rows.origin, "chunks": chunks, "queries": len(asked) - WARM_UP}
    bars = []
    for where, ways in took.items():
        medians = {name: statistics.median(values) for name, values in ways.items()}
        lines = []
        for name, values in ways.items():
            base = medians[name.split(",")[0] + ", table.query"]
            lines.append([name, f"{medians[name]:.2f}", f"{np.percentile(values, 99):.2f}", f"{medians[name] - base:+.2f}"])
            if name.split(", ")[1] != "table.query" and where == "the main thread":
                bars.append(Bar(f"{name} − table.query", medians[name] - base, OVER_MS, "<=", " ms"))
        report.table(f"milliseconds, asked in {where}", ["", "median", "p99", "more than table.query"], lines)
        figures[where] = {name: {"median_ms": medians[name], "p99_ms": float(np.percentile(v, 99))} for name, v in ways.items()}
    report.finish("sql_overhead", figures, bars)


def ways(system: Tidewheel) -> dict[str, Way]:
    """Each way to ask for the rows of a key range, or for what is known of them."""
    table, wh = system.table, system.warehouse
    made: dict[str, Way] = {
        "rows, table.query": lambda low, high: table.query(key=(low, high)).to_arrow(),
        "rows, wh.sql with parameters": lambda low, high: wh.sql("SELECT * FROM taxi WHERE z BETWEEN ? AND ?", [low, high]).to_arrow(),
        "rows, wh.sql with new literals": lambda low, high: wh.sql(f"SELECT * FROM taxi WHERE z BETWEEN {low} AND {high}").to_arrow(),
        "aggregates, table.query": lambda low, high: table.query(key=(low, high), aggregate=AGGREGATE).to_arrow(),
        "aggregates, wh.sql with parameters": lambda low, high: wh.sql(
            f"SELECT {SUMS} FROM taxi WHERE z BETWEEN ? AND ?", [low, high]
        ).to_arrow(),
        "aggregates, wh.sql with new literals": lambda low, high: wh.sql(
            f"SELECT {SUMS} FROM taxi WHERE z BETWEEN {low} AND {high}"
        ).to_arrow(),
    }
    return made


def _measured(system: Tidewheel, asked: list[tuple[int, int, int]]) -> dict[str, list[float]]:
    """Milliseconds of each way and question. The order of the ways changes from one question to the next."""
    known = list(ways(system).items())
    took: dict[str, list[float]] = {name: [] for name, _ in known}
    for number, (low, high, wanted) in enumerate(asked):
        first = number % len(known)
        for name, way in known[first:] + known[:first]:
            start = time.perf_counter()
            answer = way(low, high)
            spent = (time.perf_counter() - start) * 1e3
            found = answer.num_rows if name.startswith("rows") else answer.column("n")[0].as_py()
            if found != wanted:
                raise AssertionError(f"{name}: {found} rows with a key of {low}…{high}, right is {wanted}")
            if number >= WARM_UP:
                took[name].append(spent)
    return took


def _elsewhere(work: Callable[[], Any]) -> Any:
    """What the work comes to in a thread that is not the main one: as a server asks."""
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(work()))
    thread.start()
    thread.join()
    if not made:
        raise RuntimeError("the measuring thread failed; what it said is above")
    return made[0]
