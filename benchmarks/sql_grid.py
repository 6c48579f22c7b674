"""The query grid asked in SQL: wh.sql beside DuckDB's own tables, while 50,000 rows a second arrive; every returned value is read.

Two statements for each cell: one for the rows, and one for totals of them. wh.sql reads both itself (DuckDB only parses them); how many
were, is told. Each has new literals every time, and the same text for all systems.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass, field, replace

import pyarrow as pa

from benchmarks import grid
from benchmarks.peers import COLUMNS, Ask, DuckDB, System, Tidewheel
from benchmarks.report import Bar, Options, Report

GEOMETRIC_MEAN = 4.0
EPOCH = dt.datetime(1970, 1, 1)
TOTALS = "count(*) AS n, sum(taxi)::BIGINT AS taxi, max(ts) AS last, avg(lon) AS lon, avg(lat) AS lat"


def statement(ask: Ask) -> str:
    assert ask.key is not None and ask.time is not None
    what = TOTALS if ask.totals else COLUMNS
    since, until = (
        f"TIMESTAMP '{dt.datetime.fromtimestamp(0, dt.UTC).replace(tzinfo=None) + dt.timedelta(microseconds=t)}'" for t in ask.time
    )
    return f"SELECT {what} FROM taxi WHERE z BETWEEN {ask.key[0]} AND {ask.key[1]} AND ts BETWEEN {since} AND {until}"


@dataclass
class SqlTidewheel(Tidewheel):
    ways: Counter[str] = field(default_factory=Counter)
    """How many statements were answered by each kind of result: a DirectResult is read by us, an SqlResult run by DuckDB."""

    def query(self, ask: Ask) -> pa.Table:
        result = self.warehouse.sql(statement(ask))
        self.ways[type(result).__name__] += 1
        return result.to_arrow()


@dataclass
class SqlDuckDB(DuckDB):
    def query(self, ask: Ask) -> pa.Table:
        return self.connection.sql(statement(ask)).to_arrow_table()


def run(options: Options, report: Report) -> None:
    report.title("sql_grid")
    stream, rounds = grid.stream_of(options)
    report.note(grid.said_of(stream, options, rounds) + " The same statements with new literals for all systems.")
    rows = grid.questions(stream, rounds * grid.PER_ROUND)
    totals = [replace(question, totals=True) for question in rows]
    systems: list[System] = [one for one in (SqlTidewheel(), SqlDuckDB(), SqlDuckDB(as_it_came=True)) if options.wants(one.name.split()[0])]
    figures: dict[str, object] = {"data": stream.history.origin, "rounds": rounds, "queries_per_cell": rounds * grid.PER_ROUND}
    means: dict[str, float | None] = {}
    with grid.loaded(systems, stream, options, report) as measured:
        for what, questions in (("rows", rows), ("aggregates", totals)):
            grid.measure(measured, stream, questions, rounds)
            shown = grid.show(report, measured, f"{what}; milliseconds: median (p99)")
            figures[what] = shown.figures
            means[what] = shown.mean
            for one in measured:
                one.forget()
                if isinstance(one.system, SqlTidewheel):
                    report.note(f"{what}: " + ", ".join(f"{count} statements a {kind}" for kind, count in one.system.ways.items()))
                    shown.figures["ways"] = dict(one.system.ways)
                    one.system.ways.clear()
    bars = [Bar(f"sql_grid, {what}: geometric mean ÷ better DuckDB", mean, GEOMETRIC_MEAN, ">=", "×") for what, mean in means.items()]
    report.finish("sql_grid", figures, bars)
