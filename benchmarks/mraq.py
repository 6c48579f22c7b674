"""MRAQ's six queries (Table III of its paper): counts and sums over a time range, alone and by a dimension of many values.

Bounds of time are at random and meet no border of anything. The first three are asked with a filter on another column, too. The paper says
in which order groups are to come only by their count: here the largest come first, and equal ones by the dimension, so that there is one
answer. Its figure is rows a second and core that a count scans: 330,000.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa

from benchmarks.report import Options, Report
from benchmarks.side_by_side import THREADS, Asked, Cell, Constants, Given, Kind, bars, loaded, measure, show

ROWS = 20_000_000
QUICK = 1_000_000
SPAN = 7 * 86_400
START = dt.datetime(2014, 1, 1)
PAPER = 330_000
"""Rows a second and core, of its first query."""
DIMENSIONS = {"publisher": 50, "advertiser": 10_000, "visitor": 1_000_000, "page": 10_000_000}
FILTERED, GROUPED = 2.0, 1.2
SHARE = 0.6
"""Of the time that a query covers, anywhere in it: the paper's cover all, and then no bound would be unaligned."""


def given(options: Options) -> Given:
    count, random = min(ROWS, options.rows or (QUICK if options.quick else ROWS)), np.random.default_rng(2014)
    first = int((START - dt.datetime(1970, 1, 1)).total_seconds()) * 1_000_000
    ts = np.sort(random.integers(0, SPAN * 1_000_000, count)) + first
    columns = {name: random.integers(0, different, count).astype(np.int32) for name, different in DIMENSIONS.items()}
    columns |= {
        "ts": pa.array(ts, pa.timestamp("us")), "clicks": random.poisson(3, count).astype(np.int32),
        "shows": random.integers(1, 1_000, count).astype(np.int64), "revenue": random.integers(0, 40_000, count) / 4,
        "cost": random.integers(0, 8_000, count) / 8,
    }  # fmt: skip
    return Given("ads", pa.table(columns), f"generated rows, {count:,} rows", "ts", "advertiser", ("advertiser, ts",), "(advertiser, ts)")


SUMS = ("", "sum(clicks) AS m1", "sum(clicks) AS m1, sum(shows) AS m2, sum(revenue) AS m3, sum(cost) AS m4")


def kinds() -> list[Kind]:
    def during(rng: Constants) -> str:
        since = rng.uniform(0, (1 - SHARE) * SPAN)
        lo, hi = (f"{START + dt.timedelta(microseconds=int(at * 1e6)):%Y-%m-%d %H:%M:%S.%f}" for at in (since, since + SHARE * SPAN))
        return f"ts >= TIMESTAMP '{lo}' AND ts < TIMESTAMP '{hi}'"

    def total(number: int, filtered: bool) -> Kind:
        what = ", ".join(part for part in ("count(*) AS n", SUMS[number]) if part)

        def make(rng: Constants) -> Asked:
            more = f" AND publisher = {rng.integers(0, DIMENSIONS['publisher'])}" if filtered else ""
            return Asked(f"SELECT {what} FROM ads WHERE {during(rng)}{more}")

        return Kind(f"{number + 1}{', filtered by another column' if filtered else ''}", FILTERED, make)

    def grouped(number: int, dimension: str) -> Kind:
        what = ", ".join(part for part in (dimension, "count(*) AS cnt", SUMS[number]) if part)

        def make(rng: Constants) -> Asked:
            text = f"SELECT {what} FROM ads WHERE {during(rng)} GROUP BY {dimension} ORDER BY cnt DESC, {dimension} LIMIT 100"
            return Asked(text)

        return Kind(f"{number + 4} by {DIMENSIONS[dimension]:,}", GROUPED, make, True)

    return [
        *(total(number, filtered) for filtered in (False, True) for number in range(3)),
        *(grouped(number, dimension) for dimension in ("visitor", "page") for number in range(3)),
    ]


def run(options: Options, report: Report) -> None:
    report.title("mraq")
    rounds = options.repetitions or (3 if options.quick else 7)
    rows = given(options)
    with loaded(rows, options, report) as systems:
        cells = measure(systems, kinds(), rows.name, rounds, report)
    rates = show_rates(report, cells, rows.rows.num_rows)
    figures = show(report, "MRAQ's queries", cells) | {"data": rows.origin, "rounds": rounds, "rows_per_second_and_core": rates}
    report.finish("mraq", figures, bars(cells, "MRAQ"))


def show_rates(report: Report, cells: list[Cell], count: int) -> dict[str, dict[str, float]]:
    """Rows of the time that was asked for, a second and core, beside the paper's. Rows are spread evenly over all of it."""
    rows_asked = count * SHARE
    rates = {cell.kind.name: {name: rows_asked / cell.median(name) / THREADS for name in cell.seconds} for cell in cells}
    names = list(next(iter(rates.values())))
    lines = [[kind, *(f"{rate[name] / 1e6:.1f}" for name in names)] for kind, rate in rates.items()]
    report.table(f"million rows a second and core (the paper's first query: {PAPER / 1e6:.2f})", ["query", *names], lines)
    return rates
