"""What an analyst types: filters on any column, groups, last rows, top lists; beside DuckDB as rows came, DuckDB sorted, and chDB.

Each kind of statement is asked several times with new constants, systems interleaved, two threads for each; answers are compared. What
is told of a cell is the best of all others divided by ours.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import analyst_tables, data
from benchmarks.analyst_tables import CARDINALITIES
from benchmarks.report import Options, Report
from benchmarks.side_by_side import Asked, Cell, Constants, Given, Kind, bars, loaded, measure, show

GEOMETRIC_MEAN = 2.5
EPOCH = dt.datetime(1970, 1, 1)
Tables = Sequence[tuple[Callable[[Options], Given], Callable[[Given], list[Kind]]]]


class Draw:
    """Constants for a table: parts of its time, its keys, its places."""

    def __init__(self, given: Given) -> None:
        self.rows = given.rows
        self.time = given.rows[given.time]
        self.moments = self.time.cast(pa.timestamp("us")).cast(pa.int64())
        """In the order of the rows, which is that of time."""

    def moment(self, at: float) -> dt.datetime:
        """Before which so much of the rows came: a log may have weeks without any."""
        return EPOCH + dt.timedelta(microseconds=self.moments[int(at * (len(self.moments) - 1))].as_py())

    def part(self, rng: Constants, share: float, column: str = "ts") -> str:
        """An interval of the time that has so much of the rows, anywhere in it."""
        at = rng.uniform(0, 1 - share)
        since, until = self.moment(at), self.moment(at + share)
        if pa.types.is_date(self.time.type):
            return f"{column} BETWEEN DATE '{since.date()}' AND DATE '{until.date()}'"
        return f"{column} BETWEEN TIMESTAMP '{since:%Y-%m-%d %H:%M:%S.%f}' AND TIMESTAMP '{until:%Y-%m-%d %H:%M:%S.%f}'"

    def until(self, rng: Constants, column: str = "ts") -> str:
        return f"{column} < TIMESTAMP '{self.moment(rng.uniform(0.6, 1.0)):%Y-%m-%d %H:%M:%S.%f}'"

    def values(self, rng: Constants, column: str, count: int = 1) -> list[object]:
        """Those of rows at random: frequent ones are frequent."""
        taken = self.rows[column].take(pa.array(rng.integers(0, self.rows.num_rows, count)))
        return list(taken.to_pylist())

    def value(self, rng: Constants, column: str) -> object:
        return self.values(rng, column)[0]

    def keys(self, rng: Constants, column: str, share: float) -> str:
        """An interval of a column that has so many of its rows."""
        if not hasattr(self, "_sorted"):
            self._sorted: dict[str, pa.Array] = {}
        if column not in self._sorted:
            some = self.rows[column].take(pa.array(np.arange(0, self.rows.num_rows, max(1, self.rows.num_rows // 100_000))))
            self._sorted[column] = some.take(pc.sort_indices(some))
        known = self._sorted[column]
        first = int(rng.integers(0, max(1, int(len(known) * (1 - share)))))
        lo, hi = known[first].as_py(), known[min(len(known) - 1, first + int(share * len(known)))].as_py()
        return f"{column} BETWEEN {lo!r} AND {hi!r}"

    def box(self, rng: Constants, side: float) -> str:
        """Around a row, where there are many."""
        at = int(rng.integers(0, self.rows.num_rows))
        lon, lat = (float(self.rows[name][at].as_py()) for name in ("lon", "lat"))
        if not (data.BOUNDS[0] < lon < data.BOUNDS[2] and data.BOUNDS[1] < lat < data.BOUNDS[3]):
            lon, lat = 116.4, 39.9
        return f"lon BETWEEN {lon - side:.5f} AND {lon + side:.5f} AND lat BETWEEN {lat - side:.5f} AND {lat + side:.5f}"


def listed(values: Sequence[object]) -> str:
    return ", ".join(repr(value) for value in dict.fromkeys(values))


def text(value: object) -> str:
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''") + "'"


def _taxi(given: Given) -> list[Kind]:
    draw = Draw(given)

    def kind(name: str, bar: float | None, make: Callable[[Constants], str], ordered: bool = False) -> Kind:
        return Kind(name, bar, lambda rng: Asked(make(rng)), ordered)

    def last_on(rng: Constants) -> Asked:
        said = f"taxi, ts, lon, lat FROM taxi WHERE {draw.keys(rng, 'taxi', 0.3)} ORDER BY taxi, ts DESC"
        return Asked(f"SELECT DISTINCT ON (taxi) {said}", f"SELECT {said} LIMIT 1 BY taxi")

    def first_rank(rng: Constants) -> Asked:
        said = f"SELECT taxi, ts, lon FROM taxi WHERE {draw.until(rng)}"
        ours = f"{said} QUALIFY row_number() OVER (PARTITION BY taxi ORDER BY ts DESC) = 1"
        return Asked(ours, f"{said} ORDER BY taxi, ts DESC LIMIT 1 BY taxi")

    return [
        kind(
            "filter on a number: keys, time and lon >", 2.0,
            lambda r: f"SELECT count(*) AS n, avg(lat) AS a"
            f" FROM taxi WHERE {draw.keys(r, 'taxi', 0.1)} AND {draw.part(r, 0.3)} AND lon > {r.uniform(116.2, 116.5):.4f}",
        ),
        kind(
            "two ranges, neither key nor time", 2.0,
            lambda r: f"SELECT count(*) AS n, min(lat) AS a, max(lon) AS b, avg(lon) AS c FROM taxi WHERE {draw.box(r, 0.05)}",
        ),
        kind(
            "groups over the key", 4.0,
            lambda r: f"SELECT taxi, count(*) AS n, max(ts) AS last, avg(lat) AS a"
            f" FROM taxi WHERE {draw.keys(r, 'taxi', 0.8)} GROUP BY taxi",
        ),
        kind(
            "HAVING over groups of the key", None,
            lambda r: f"SELECT taxi, count(*) AS n"
            f" FROM taxi WHERE {draw.part(r, 0.3)} GROUP BY taxi HAVING count(*) > {r.integers(200, 900)}",
        ),
        kind(
            "date_trunc('minute') of a part of the time", 4.0,
            lambda r: f"SELECT date_trunc('minute', ts) AS t, count(*) AS n, avg(lon) AS a FROM taxi WHERE {draw.part(r, 0.2)} GROUP BY 1",
        ),
        kind(
            "date_trunc('hour') of all", 4.0,
            lambda r: f"SELECT date_trunc('hour', ts) AS t, count(*) AS n, max(lat) AS a FROM taxi WHERE {draw.until(r)} GROUP BY 1",
        ),
        kind(
            "date_trunc('hour') of one taxi", 4.0,
            lambda r: f"SELECT date_trunc('hour', ts) AS t, count(*) AS n, avg(lon) AS a"
            f" FROM taxi WHERE taxi = {draw.value(r, 'taxi')} GROUP BY 1",
        ),
        kind(
            "last row per key: arg_max", 3.0,
            lambda r: f"SELECT taxi, arg_max(lon, ts) AS x, arg_max(lat, ts) AS y, max(ts) AS last"
            f" FROM taxi WHERE {draw.until(r)} GROUP BY taxi",
        ),
        Kind("last row per key: DISTINCT ON", 3.0, last_on, True),
        Kind("last row per key: row_number() = 1", 3.0, first_rank),
        kind(
            "one key's last row", 1.5,
            lambda r: f"SELECT ts, lon, lat FROM taxi WHERE taxi = {draw.value(r, 'taxi')} ORDER BY ts DESC LIMIT 1", True,
        ),
        kind(
            "top 10 of another column", 1.5,
            lambda r: f"SELECT taxi, ts, lat FROM taxi WHERE {draw.part(r, 0.3)} ORDER BY lat DESC, taxi, ts LIMIT 10", True,
        ),
        kind(
            "newest 10 of a filter", 1.5,
            lambda r: f"SELECT ts, taxi, lon"
            f" FROM taxi WHERE lon > {r.uniform(116.2, 116.5):.4f} AND {draw.until(r)} ORDER BY ts DESC, taxi LIMIT 10", True,
        ),
        kind(
            "first 10 keys of a filter", 1.5,
            lambda r: f"SELECT taxi, ts, lat FROM taxi WHERE lat > {r.uniform(39.8, 40.0):.4f} ORDER BY taxi, ts LIMIT 10", True,
        ),
    ]  # fmt: skip


def _spots(given: Given) -> list[Kind]:
    draw = Draw(given)

    def kind(name: str, bar: float | None, make: Callable[[Constants], str], ordered: bool = False) -> Kind:
        return Kind(name, bar, lambda rng: Asked(make(rng)), ordered)

    return [
        kind(
            "IN of numbers", 2.0,
            lambda r: f"SELECT count(*) AS n, avg(lon) AS a"
            f" FROM spots WHERE taxi IN ({listed(draw.values(r, 'taxi', 8))}) AND {draw.part(r, 0.5)}",
        ),
        kind(
            "number equals", 2.0,
            lambda r: f"SELECT count(*) AS n, min(lat) AS a FROM spots WHERE taxi = {draw.value(r, 'taxi')}",
        ),
        kind(
            "10 K groups of a part of the time", 3.0,
            lambda r: f"SELECT taxi, count(*) AS n, avg(lon) AS a FROM spots WHERE {draw.part(r, 0.3)} GROUP BY taxi",
        ),
        kind(
            "10 K groups, top 10", 3.0,
            lambda r: f"SELECT taxi, count(*) AS n"
            f" FROM spots WHERE lat > {r.uniform(39.6, 39.9):.4f} GROUP BY taxi ORDER BY n DESC, taxi LIMIT 10", True,
        ),
        kind(
            "10 K groups of two ranges", 3.0,
            lambda r: f"SELECT taxi, count(*) AS n, max(ts) AS last FROM spots WHERE {draw.box(r, 0.1)} GROUP BY taxi",
        ),
        kind("box totals", 6.0, lambda r: f"SELECT count(*) AS n, avg(lon) AS a, avg(lat) AS b FROM spots WHERE {draw.box(r, 0.02)}"),
        kind(
            "box and time totals", 6.0,
            lambda r: f"SELECT count(*) AS n, min(lon) AS a, max(lat) AS b FROM spots WHERE {draw.box(r, 0.05)} AND {draw.part(r, 0.1)}",
        ),
        kind(
            "squares of a place", None,
            lambda r: f"SELECT floor(lon * 100) AS x, floor(lat * 100) AS y, count(*) AS n"
            f" FROM spots WHERE {draw.box(r, 0.2)} GROUP BY 1, 2",
        ),
    ]  # fmt: skip


def _weather(given: Given) -> list[Kind]:
    draw = Draw(given)

    def kind(name: str, bar: float | None, make: Callable[[Constants], str], ordered: bool = False) -> Kind:
        return Kind(name, bar, lambda rng: Asked(make(rng)), ordered)

    def element(rng: Constants) -> str:
        return text(draw.value(rng, "element"))

    return [
        kind(
            "text equals", 1.5,
            lambda r: f"SELECT count(*) AS n, avg(value) AS a, min(value) AS b"
            f" FROM weather WHERE element = {element(r)} AND {draw.part(r, 0.5, 'date')}",
        ),
        kind(
            "text IN, and a number", 1.5,
            lambda r: f"SELECT count(*) AS n, max(value) AS a"
            f" FROM weather WHERE element IN ({element(r)}, {element(r)}) AND value > {r.integers(50, 200)}",
        ),
        kind(
            "groups by text", 1.5,
            lambda r: f"SELECT element, count(*) AS n, avg(value) AS a FROM weather WHERE {draw.part(r, 0.5, 'date')} GROUP BY element",
        ),
        kind(
            "groups by text and year", 1.5,
            lambda r: f"SELECT element, date_trunc('year', date) AS y, max(value) AS a"
            f" FROM weather WHERE {draw.part(r, 0.7, 'date')} GROUP BY 1, 2",
        ),
        kind(
            "groups by two texts", 1.5,
            lambda r: f"SELECT station, element, count(*) AS n, min(value) AS a"
            f" FROM weather WHERE {draw.part(r, 0.3, 'date')} GROUP BY 1, 2",
        ),
        kind(
            "months of one element", 4.0,
            lambda r: f"SELECT date_trunc('month', date) AS m, avg(value) AS a FROM weather WHERE element = {element(r)} GROUP BY 1",
        ),
        kind(
            "days of one station", None,
            lambda r: f"SELECT date, count(*) AS n, max(value) AS a"
            f" FROM weather WHERE station = {text(draw.value(r, 'station'))} GROUP BY date",
        ),
        kind(
            "count(DISTINCT text) by date", None,
            lambda r: f"SELECT date, count(DISTINCT station) AS n"
            f" FROM weather WHERE element = {element(r)} AND {draw.part(r, 0.2, 'date')} GROUP BY date",
        ),
        kind(
            "first 20 of an element by key and time", 1.5,
            lambda r: f"SELECT station, date, value"
            f" FROM weather WHERE element = {element(r)} AND {draw.part(r, 0.5, 'date')} ORDER BY station, date LIMIT 20", True,
        ),
    ]  # fmt: skip


STARTS = ("CMD: ", "Command found: ", "login attempt ", "connection lost", "NEW KEYS", "starting service ", "Received ", "got channel ")


def _log(given: Given) -> list[Kind]:
    draw = Draw(given)

    def kind(name: str, bar: float | None, make: Callable[[Constants], str], ordered: bool = False) -> Kind:
        return Kind(name, bar, lambda rng: Asked(make(rng)), ordered)

    def message(rng: Constants) -> str:
        while "\\" in (found := str(draw.value(rng, "message"))):  # which ClickHouse reads in another way
            pass
        return "'" + found.replace("'", "''") + "'"

    return [
        kind(
            "long text equals", 1.5,
            lambda r: f"SELECT count(*) AS n, max(ts) AS last FROM log WHERE message = {message(r)} AND {draw.part(r, 0.8)}",
        ),
        kind(
            "text begins with", 1.5,
            lambda r: f"SELECT count(*) AS n, min(ts) AS since FROM log WHERE message LIKE '{r.choice(STARTS)}%' AND {draw.part(r, 0.6)}",
        ),
        kind(
            "top 10 messages", 1.5,
            lambda r: f"SELECT message, count(*) AS n"
            f" FROM log WHERE {draw.part(r, 0.5)} GROUP BY message ORDER BY n DESC, message LIMIT 10", True,
        ),
        kind("count(DISTINCT key)", None, lambda r: f"SELECT count(DISTINCT src) AS n FROM log WHERE {draw.part(r, 0.5)}"),
        kind(
            "HAVING over groups of a text key", None,
            lambda r: f"SELECT src, count(*) AS n, max(ts) AS last FROM log GROUP BY src HAVING count(*) > {r.integers(100, 1000)}",
        ),
        kind(
            "hours of a message", 4.0,
            lambda r: f"SELECT date_trunc('hour', ts) AS t, count(*) AS n FROM log WHERE message LIKE '{r.choice(STARTS)}%' GROUP BY 1",
        ),
        kind("last message of each source", 3.0, lambda r: f"SELECT src, max(ts) AS last FROM log WHERE {draw.until(r)} GROUP BY src"),
    ]  # fmt: skip


_BARS = {"c10": 1.2, "c1k": 3.0, "c100k": 1.2, "c1m": 1.2, "c10m": 1.0}


def _many(given: Given) -> list[Kind]:
    def kind(column: str) -> Kind:
        def make(rng: Constants) -> Asked:
            said = f"SELECT {column}, count(*) AS n, sum(v) AS s FROM many WHERE v <> {rng.integers(0, 1000)} GROUP BY {column}"
            return Asked(f"{said} ORDER BY n DESC, {column} LIMIT 100")

        return Kind(f"{CARDINALITIES[column]:,} groups, top 100", _BARS[column], make, True)

    return [kind(column) for column in CARDINALITIES]


TABLES: Tables = (
    (analyst_tables.by_taxi, _taxi), (analyst_tables.by_place, _spots), (analyst_tables.weather, _weather), (analyst_tables.log, _log),
    (analyst_tables.many, _many),
)  # fmt: skip


def run(options: Options, report: Report) -> None:
    report.title("analyst")
    rounds = options.repetitions or (3 if options.quick else 7)
    report.note(f"{rounds} rounds after one that does not count; new constants in each, the same for all systems, which take turns.")
    cells: list[Cell] = []
    origins = {}
    for table, kinds in TABLES:
        given = table(options)
        origins[given.name] = f"{given.origin}; {given.rows.num_rows:,} rows"
        with loaded(given, options, report) as systems:
            cells += measure(systems, kinds(given), given.name, rounds, report)
    figures = show(report, "analyst", cells) | {"data": origins, "rounds": rounds}
    report.finish("analyst", figures, bars(cells, "analyst", GEOMETRIC_MEAN))
