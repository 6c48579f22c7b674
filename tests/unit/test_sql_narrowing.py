"""The questions of a real-time product use the index: the last five minutes, a prefix, a few keys of another table, a small side of a join.

Each statement is asked at a fixed moment, of a warehouse and of DuckDB with the same rows; it may look at so many rows and leaves.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import check_nothing_left
from tests.sql_tables import told
from tidewheel.duck import statement_time
from tidewheel.duck.parser import tree_of
from tidewheel.sql.small import is_certain

NOW = dt.datetime(2026, 3, 2, 12, 30, 15, 123456, tzinfo=dt.UTC)
HOURS, KEYS, EACH = 24, 500, 1000
START = dt.datetime(2026, 3, 1, 13)
WHOLE = HOURS * EACH
LOGS = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("v", pa.float64()), ("id", pa.int64())])
IDS = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.float64()), ("current_date", pa.date32())])
COARSE = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("ms")), ("v", pa.float64())])
DAYS = pa.schema([("id", pa.int64()), ("d", pa.date32()), ("v", pa.float64())])
SMALL = pa.schema([("id", pa.int64()), ("since", pa.timestamp("us")), ("name", pa.string()), ("zone", pa.string())])


def _hour(h: int) -> tuple[np.ndarray, np.ndarray]:
    i = np.arange(EACH)
    start = (np.datetime64(START) + np.timedelta64(h, "h")).astype("datetime64[us]").astype(np.int64)
    return i, start + i * (3_600_000_000 // EACH)


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path_factory.mktemp("narrowing") / "wh", settings=tw.Settings(leaf_rows=32)) as wh:
        logs, ids = wh.create_table("logs", LOGS, time="ts", key="k"), wh.create_table("ids", IDS, time="ts", key="id")
        coarse = wh.create_table("coarse", COARSE, time="ts", key="id")
        days = wh.create_table("days", DAYS, time="d", key="id", partition="1 day")
        for h in range(HOURS):
            i, ts = _hour(h)
            micros = pa.array(ts, pa.timestamp("us"))
            logs.insert(pa.table([[f"dev-{n % KEYS:04}" for n in i], micros, i / 2, i % KEYS], schema=LOGS))
            day = pa.array([None if n % 3 else dt.date(2026, 3, 1) for n in i], pa.date32())
            ids.insert(pa.table([i % KEYS, pa.array(ts, IDS.field("ts").type), i / 2, day], schema=IDS))
            coarse.insert(pa.table([i % KEYS, micros.cast(pa.timestamp("ms"), safe=False), i / 2], schema=COARSE))
            date = pa.array([dt.date(2026, 2, 7) + dt.timedelta(days=h)] * EACH, pa.date32())
            days.insert(pa.table([i % KEYS, date, i / 2], schema=DAYS))
            if h < HOURS - 1:  # each hour a chunk, the last one in memory
                for table in (logs, ids, coarse, days):
                    table.flush()
        small = wh.create_table("small", SMALL, time="since", key="id")
        at = NOW.replace(tzinfo=None)
        small.insert(
            [
                {"id": 7 + 100 * n, "since": at - dt.timedelta(hours=n), "name": f"dev-{7 + 100 * n:04}", "zone": "ns"[n % 2]}
                for n in range(4)
            ]
        )
        yield wh


@pytest.fixture(scope="module")
def duck(wh: tw.Warehouse) -> Iterator[Any]:
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        for name in wh.tables():
            duck.register("given", wh.table(name).query().to_arrow())
            duck.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            duck.unregister("given")
        yield duck


@pytest.fixture(autouse=True)
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_time, "moment", lambda: NOW)


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    yield
    check_nothing_left()


_MOMENT = "'2026-03-02 12:30:15.123456'"
_TOLD = {
    "now()": f"TIMESTAMPTZ {_MOMENT[:-1]}+00'", "transaction_timestamp()": f"TIMESTAMPTZ {_MOMENT[:-1]}+00'",
    "current_timestamp": f"TIMESTAMPTZ {_MOMENT[:-1]}+00'", "localtimestamp": f"TIMESTAMP {_MOMENT}",
    "today()": "DATE '2026-03-02'", "current_date": "DATE '2026-03-02'",
}  # fmt: skip


def at_the_moment(statement: str) -> str:
    """The statement with the moment written into it, for who has a clock of their own."""
    for word, said in _TOLD.items():
        statement = re.sub(rf"(?<![\w.\"]){re.escape(word)}(?![\w\"])", f"({said})", statement)
    return statement


HOUR = 2 * EACH
"""Rows of two chunks: an interval of an hour touches at most so many."""
KEY = HOURS * 3 * 32
"""Rows of the leaves in which a key lies, in all chunks."""
INTERVAL = "INTERVAL '5 minutes'"

STATEMENTS: list[tuple[str, int]] = [
    # statement, most rows in the leaves that are read
    # -- around now
    (f"SELECT v FROM logs WHERE ts > now() - {INTERVAL}", HOUR),
    (f"SELECT count(*) FROM logs WHERE ts > now() - {INTERVAL}", HOUR),
    (f"SELECT v FROM logs WHERE now() - {INTERVAL} < ts", HOUR),
    ("SELECT v FROM logs WHERE ts > now()::TIMESTAMP - INTERVAL 5 MINUTE", HOUR),
    ("SELECT v FROM logs WHERE ts >= current_timestamp - INTERVAL 1 HOUR", HOUR),
    ("SELECT v FROM logs WHERE ts >= localtimestamp - INTERVAL '1 hour'", HOUR),
    ("SELECT v FROM logs WHERE ts >= transaction_timestamp() - INTERVAL '1 hour'", HOUR),
    ("SELECT v FROM logs WHERE ts >= now() AT TIME ZONE 'UTC' - INTERVAL 30 MINUTES", HOUR),
    ("SELECT v FROM logs WHERE ts BETWEEN date_trunc('hour', now()) AND now()", HOUR),
    ("SELECT v FROM logs WHERE ts BETWEEN now() - INTERVAL 10 MINUTE AND now() - INTERVAL 5 MINUTE", HOUR),
    ("SELECT v FROM logs WHERE NOT (ts < now() - INTERVAL 5 MINUTE)", HOUR),
    ("SELECT v FROM logs WHERE NOT (ts < now() - INTERVAL 5 MINUTE OR ts >= now())", HOUR),
    ("SELECT v FROM logs WHERE ts > now() - INTERVAL 1 MINUTE OR ts < now() - INTERVAL '23 hours'", 2 * HOUR),
    ("SELECT v FROM logs WHERE ts > now() - INTERVAL 5 MINUTE AND k = 'dev-0007'", 96),
    ("SELECT v FROM logs WHERE ts > now() - INTERVAL 5 MINUTE AND v > 3", HOUR),
    ("SELECT v FROM logs WHERE ts > to_timestamp(epoch(now()) - 300)", HOUR),
    ("SELECT v FROM logs WHERE epoch_ms(ts) > epoch_ms(now()) - 300000", HOUR),
    ("SELECT v FROM logs WHERE epoch(ts) > epoch(now()) - 300", HOUR),
    ("SELECT v FROM logs WHERE extract(epoch FROM ts) > epoch(now()) - 300", HOUR),
    ("SELECT v FROM logs WHERE epoch_us(ts) >= epoch_us(now()) - 300000000", HOUR),
    ("SELECT v FROM logs WHERE now() - ts < INTERVAL '5 minutes'", HOUR),
    ("SELECT v FROM logs WHERE age(now(), ts) < INTERVAL '5 minutes'", HOUR),
    ("SELECT v FROM logs WHERE ts + INTERVAL 5 MINUTE > now()", HOUR),
    ("SELECT v FROM logs WHERE ts >= current_date + INTERVAL 12 HOUR", HOUR),
    ("SELECT v FROM logs WHERE ts >= today() + INTERVAL 12 HOUR", HOUR),
    # -- parts of times
    ("SELECT v FROM logs WHERE CAST(ts AS DATE) = current_date AND ts < current_date + INTERVAL 1 HOUR", HOUR),
    ("SELECT v FROM logs WHERE ts::date BETWEEN today() - 1 AND today() - 1 AND ts < TIMESTAMP '2026-03-01 14:00'", HOUR),
    ("SELECT v FROM logs WHERE ts::date < current_date AND ts < TIMESTAMP '2026-03-01 14:00'", HOUR),
    ("SELECT count(*) FROM logs WHERE ts::DATE > DATE '2026-03-02'", 0),
    ("SELECT count(*) FROM logs WHERE date_trunc('day', ts) > date_trunc('day', now())", 0),
    ("SELECT v FROM logs WHERE date_trunc('hour', ts) = date_trunc('hour', now())", HOUR),
    ("SELECT v FROM logs WHERE date_trunc('hour', ts) >= date_trunc('hour', now())", HOUR),
    ("SELECT v FROM logs WHERE date_trunc('minute', ts) < '2026-03-01 13:30'", HOUR),
    ("SELECT v FROM logs WHERE time_bucket(INTERVAL '1 hour', ts) = time_bucket(INTERVAL '1 hour', localtimestamp)", 2 * HOUR),
    ("SELECT count(*) FROM logs WHERE year(ts) < 2025", 0),
    # -- texts
    ("SELECT v FROM logs WHERE k LIKE 'dev-001%'", KEY),
    ("SELECT count(*) FROM logs WHERE k LIKE 'dev-001%'", KEY),
    ("SELECT v FROM logs WHERE k LIKE 'dev-001_'", KEY),
    ("SELECT v FROM logs WHERE k LIKE 'dev-001%1'", KEY),
    ("SELECT v FROM logs WHERE k LIKE 'dev-0011'", KEY),
    ("SELECT v FROM logs WHERE k LIKE 'dev-00$11%' ESCAPE '$'", 2 * KEY),
    ("SELECT v FROM logs WHERE k GLOB 'dev-001*'", KEY),
    ("SELECT v FROM logs WHERE starts_with(k, 'dev-001')", KEY),
    ("SELECT v FROM logs WHERE k ^@ 'dev-001'", KEY),
    ("SELECT v FROM logs WHERE prefix(k, 'dev-001')", KEY),
    ("SELECT v FROM logs WHERE substr(k, 1, 7) = 'dev-001'", KEY),
    ("SELECT v FROM logs WHERE substring(k, 1, 7) = 'dev-001'", KEY),
    ("SELECT v FROM logs WHERE left(k, 7) = 'dev-001'", KEY),
    ("SELECT v FROM logs WHERE left(k, 8) = 'dev-001'", KEY),
    ("SELECT v FROM logs WHERE k = 'dev-' || '0011'", KEY),
    ("SELECT v FROM logs WHERE k = lower('DEV-0011')", KEY),
    ("SELECT v FROM logs WHERE k LIKE 'dev-001%' OR k LIKE 'dev-003_'", 2 * KEY),
    ("SELECT v FROM logs WHERE k LIKE 'dev-001%' AND ts > now() - INTERVAL '5 minutes'", 96),
    # -- lists and other queries
    ("SELECT v FROM logs WHERE k = ANY(['dev-0011', 'dev-0012'])", 2 * KEY),
    ("SELECT v FROM logs WHERE k IN (SELECT unnest(['dev-0011', 'dev-0012']))", 2 * KEY),
    ("SELECT v FROM logs WHERE id < 20 AND k IN (SELECT name FROM small)", 4 * KEY),
    ("SELECT v FROM ids WHERE id IN (SELECT id FROM small WHERE zone = 'n')", 2 * KEY),
    ("SELECT v FROM ids WHERE id IN (SELECT id FROM small WHERE zone = 'x')", 0),
    ("WITH few AS (SELECT id FROM small WHERE zone = 'n') SELECT v FROM ids WHERE id IN (FROM few)", 2 * KEY),
    ("SELECT v FROM ids WHERE EXISTS (SELECT 1 FROM small s WHERE s.id = ids.id AND s.zone = 'n')", 2 * KEY),
    ("SELECT v FROM ids WHERE id IN (SELECT DISTINCT id FROM ids WHERE ts > now() - INTERVAL 10 SECOND AND id < 3)", KEY + HOUR),
    ("SELECT v FROM logs WHERE ts > (SELECT max(ts) FROM logs) - INTERVAL '5 minutes'", HOUR),
    ("SELECT v FROM logs WHERE ts > (SELECT max(ts) - INTERVAL '5 minutes' FROM logs)", HOUR),
    ("SELECT v FROM logs WHERE ts >= (SELECT ts FROM logs ORDER BY ts DESC LIMIT 1)", WHOLE + HOUR),
    ("SELECT v FROM logs WHERE ts = (SELECT max(ts) FROM logs)", HOUR),
    ("SELECT v FROM logs WHERE ts >= (SELECT max(since) FROM small WHERE zone = 'n')", HOUR),
    ("SELECT v FROM logs WHERE ts > (SELECT max(ts) FROM logs WHERE k = 'dev-0011') - INTERVAL '5 minutes'", KEY + HOUR),
    # -- joins
    ("SELECT v FROM ids JOIN small USING (id)", 4 * KEY),
    ("SELECT v FROM ids JOIN small ON ids.id = small.id WHERE small.zone = 'n'", 2 * KEY),
    ("SELECT v FROM ids, small s WHERE s.id = ids.id AND s.zone = 'n'", 2 * KEY),
    ("SELECT v FROM logs JOIN (VALUES ('dev-0011'), ('dev-0300')) x(k) USING (k)", 2 * KEY),
    ("SELECT v FROM logs JOIN (VALUES ('dev-0011'), ('dev-0300')) x(k) ON logs.k = x.k WHERE ts > now() - INTERVAL 1 HOUR", HOUR),
    ("WITH x AS (SELECT 'dev-0011' AS k) SELECT v FROM logs JOIN x USING (k)", KEY),
    ("WITH x(k) AS (SELECT name FROM small) SELECT v FROM logs JOIN x ON x.k = logs.k", 4 * KEY),
    ("SELECT s.name, v FROM small s LEFT JOIN ids ON ids.id = s.id", 4 * KEY),
    ("SELECT s.name, v FROM small s LEFT JOIN ids ON ids.id = s.id AND ids.ts > now() - INTERVAL 1 HOUR WHERE s.zone = 'n'", HOUR),
    ("SELECT v FROM logs l JOIN small s ON l.ts BETWEEN s.since - INTERVAL 1 MINUTE AND s.since AND s.id = 7", HOUR),
    ("SELECT v FROM logs l JOIN small s ON l.ts BETWEEN s.since - INTERVAL 1 MINUTE AND s.since WHERE s.id = 7", HOUR),
    (
        "SELECT a.v FROM logs a JOIN logs b ON a.k = b.k AND b.ts > now() - INTERVAL 1 MINUTE WHERE a.ts > now() - INTERVAL 1 MINUTE",
        3 * HOUR,
    ),
    # -- inside of other things
    ("WITH r AS (SELECT * FROM logs) SELECT count(*) FROM r WHERE ts > now() - INTERVAL '5 minutes'", HOUR),
    ("WITH r AS (SELECT k, ts AS x FROM logs WHERE ts > now() - INTERVAL '1 hour') SELECT k, max(x) FROM r GROUP BY k", HOUR),
    ("SELECT count(*) FROM (SELECT k, ts AS at FROM logs) q WHERE q.at > now() - INTERVAL '5 minutes'", HOUR),
    ("SELECT k, avg(v) FROM logs WHERE ts > now() - INTERVAL '5 minutes' GROUP BY k ORDER BY k LIMIT 3", HOUR),
    (
        "SELECT count(*) AS n FROM logs WHERE ts > now() - INTERVAL 5 MINUTE UNION ALL SELECT 1 FROM logs WHERE k LIKE 'dev-0011%'",
        HOUR + KEY,
    ),
    ("SELECT count(*) FROM (SELECT l.ts, s.id FROM logs l JOIN small s ON l.k = s.name) WHERE ts > now() - INTERVAL 5 MINUTE", HOUR),
    (
        "SELECT v FROM logs WHERE id IN (SELECT id FROM ids WHERE ts > now() - INTERVAL 5 MINUTE) AND ts > now() - INTERVAL 5 MINUTE",
        3 * HOUR,
    ),
    ("SELECT now() - max(ts) AS lag, current_date AS day FROM logs WHERE ts > now() - INTERVAL 1 MINUTE", HOUR),
    # -- other types
    ("SELECT v FROM ids WHERE ts > now() - INTERVAL '5 minutes'", HOUR),
    ("SELECT v FROM ids WHERE ts >= TIMESTAMP '2026-03-02 12:00'", HOUR),
    ("SELECT v FROM ids WHERE date_trunc('hour', ts) = date_trunc('hour', now())", HOUR),
    ("SELECT v FROM coarse WHERE ts > now() - INTERVAL '5 minutes'", HOUR),
    ("SELECT v FROM coarse WHERE ts BETWEEN date_trunc('hour', now()) AND now()", HOUR),
    ("SELECT v FROM days WHERE d >= current_date - 1", 2 * EACH),
    ("SELECT v FROM days WHERE d > now() - INTERVAL 2 DAY", 2 * EACH),
    ("SELECT v FROM days WHERE d = today()", EACH),
]


def test_there_are_enough_statements() -> None:
    assert len(STATEMENTS) >= 20


def looked_at(result: Any) -> int:
    """The most rows that can lie in the leaves that were read."""
    return int(result.stats.leaves_read) * 32


@pytest.mark.parametrize("statement, most", STATEMENTS, ids=[statement for statement, _ in STATEMENTS])
def test_little_is_read(wh: tw.Warehouse, duck: Any, statement: str, most: int) -> None:
    result = wh.sql(statement)
    rows = result.to_arrow()
    expected = duck.sql(at_the_moment(statement)).to_arrow_table()
    assert told(rows)[len(rows.schema) :] == told(expected)[len(expected.schema) :]
    assert rows.schema.types == expected.schema.types
    assert rows.schema.names == duck.sql(statement).columns
    assert looked_at(result) <= most + 64


FINE = pa.schema([("k", pa.string()), ("ts", pa.timestamp("ns"))])


@pytest.fixture(scope="module")
def fine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tw.Warehouse, Any]]:
    """Times with moments between two microseconds, and DuckDB's copy."""
    edge = int(dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp()) * 10**9
    times = [edge + step for step in (-(10**15), -86_400 * 10**9, -1000, -999, -1, 0, 1, 999, 1000, 86_400 * 10**9, 10**15)]
    rows = pa.table([[f"k{i % 3}" for i in range(len(times))], pa.array(times, pa.timestamp("ns"))], schema=FINE)
    with tw.open(tmp_path_factory.mktemp("fine") / "wh") as wh, duckdb.connect() as duck:
        wh.create_table("t", FINE, time="ts", key="k").insert(rows)
        wh.create_table("small", FINE, time="ts", key="k").insert(rows.slice(4, 1))
        duck.execute("SET TimeZone = 'UTC'")
        duck.register("t", rows)
        duck.register("small", rows.slice(4, 1))
        yield wh, duck


@pytest.mark.parametrize(
    "condition",
    [
        "ts < TIMESTAMP '2024-01-01' + INTERVAL '0 second'", "ts < (SELECT max(ts) FROM small)", "ts <= (SELECT max(ts) FROM small)",
        "ts::TIMESTAMP = TIMESTAMP '2024-01-01'", "TIMESTAMP '2024-01-02' - ts = INTERVAL '1 day'",
        "ts + INTERVAL '1 day' > TIMESTAMP '2024-01-02'", "year(ts) < 2023.5", "date_part('year', ts) < 2023.5", "epoch_ns(ts) > 1.5",
        "ts < 'infinity'::TIMESTAMP",
        "EXISTS (SELECT 1 FROM (SELECT * EXCLUDE (ts) FROM small) u WHERE k = u.k)",
    ],
)  # fmt: skip
def test_nothing_is_left_out(fine: tuple[tw.Warehouse, Any], condition: str) -> None:
    wh, duck = fine
    statement = f"SELECT k, epoch_ns(ts) AS n FROM t WHERE {condition} ORDER BY n"
    assert wh.sql(statement).to_arrow().to_pylist() == duck.sql(statement).to_arrow_table().to_pylist()


def test_explain_tells_it(wh: tw.Warehouse) -> None:
    told = wh.sql(f"EXPLAIN SELECT v FROM logs WHERE ts > now() - {INTERVAL}").to_pylist()
    assert told[0]["explain_key"] == "tidewheel: logs" and "time       2026-03-02 12:25:15.123457" in told[0]["explain_value"]
    told = wh.sql("EXPLAIN ANALYZE SELECT v FROM logs JOIN small ON k = name WHERE zone = 'n'").to_pylist()
    assert any("tidewheel: logs" in one["explain_key"] for one in told)


def test_what_is_read_before_counts(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT v FROM ids WHERE id IN (SELECT id FROM small WHERE zone = 'n')")
    rows = len(result.to_arrow())
    assert rows == 2 * 2 * HOURS and result.stats.regions_read == 2 * HOURS + 2  # of small: once before, and once by DuckDB


def test_parameters(wh: tw.Warehouse, duck: Any) -> None:
    zone = dt.timezone(dt.timedelta(hours=5))
    for statement, given in (
        ("SELECT v FROM logs WHERE ts > ?", [(NOW - dt.timedelta(minutes=5)).astimezone(zone)]),
        ("SELECT v FROM logs WHERE ts > $at - INTERVAL 5 MINUTE", {"at": NOW.astimezone(zone)}),
        ("SELECT v FROM logs WHERE ts > ? - INTERVAL 5 MINUTE AND ts < ?", [NOW, dt.datetime(2026, 3, 2, 12, 29)]),
        ("SELECT v, ? AS x FROM logs WHERE ts > CAST(? AS TIMESTAMP)", ["a", "2026-03-02 12:00:00"]),
        ("SELECT v FROM logs WHERE k LIKE ? AND ts > now()::TIMESTAMP - INTERVAL 5 MINUTE", ["dev-00%"]),
        ("SELECT v FROM logs WHERE starts_with(k, $p) AND ts > $at", {"p": "dev-001", "at": NOW - dt.timedelta(minutes=5)}),
    ):
        result = wh.sql(statement, given)
        expected = duck.execute(at_the_moment(statement), given).fetchall()
        assert sorted(map(repr, expected)) == sorted(repr(tuple(row.values())) for row in result.to_pylist()), statement
        assert looked_at(result) <= HOUR + 64, statement
    for statement, given in (
        ("SELECT v FROM logs WHERE k = ANY(?)", [["dev-0011", "dev-0012"]]),
        ("SELECT v FROM ids WHERE id IN (SELECT id FROM small WHERE zone = ?)", ["n"]),
        ("SELECT v FROM ids JOIN small USING (id) WHERE v > $v AND zone = $zone", {"v": 0, "zone": "n"}),
    ):
        result = wh.sql(statement, given)
        assert len(result.to_arrow()) == len(duck.execute(statement, given).fetchall()) and looked_at(result) <= 2 * KEY + 64, statement


def test_a_statement_has_one_moment(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    result = wh.sql("SELECT now() AS a, now()::TIMESTAMP AS b, current_date AS c, count(*) AS n FROM logs WHERE ts < now() GROUP BY ALL")
    assert result.to_pylist() == result.to_pylist()
    (row,) = result.to_pylist()
    assert row["a"].replace(tzinfo=None) == row["b"] and abs(row["a"] - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=10)
    (later,) = wh.sql("SELECT now() AS a").to_pylist()
    assert later["a"] > row["a"]


def test_what_is_wrong_is_said_of_what_was_written(wh: tw.Warehouse) -> None:
    with pytest.raises(tw.QueryError, match=r"LINE 1: SELECT nosuch FROM logs WHERE ts > now\(\) - INTERVAL '5 minutes'"):
        wh.sql("SELECT nosuch FROM logs WHERE ts > now() - INTERVAL '5 minutes'")


@pytest.mark.parametrize(
    "query, certain",
    [
        ("SELECT id FROM small", True),
        ("SELECT DISTINCT id FROM small WHERE zone = 'n' ORDER BY name", True),
        ("SELECT max(since) FROM small", True),
        ("SELECT since FROM small ORDER BY since DESC LIMIT 1", True),
        ("SELECT id FROM small ORDER BY since DESC LIMIT 1", False),
        ("SELECT id FROM small LIMIT 2", False),
        ("SELECT id FROM small USING SAMPLE 2", False),
        ("SELECT id FROM small WHERE random() < 0.5", False),
        ("SELECT arg_max(id, zone) FROM small", False),
        ("SELECT DISTINCT ON (zone) id FROM small", False),
        ("SELECT id FROM small QUALIFY row_number() OVER (PARTITION BY zone) = 1", False),
        ("SELECT a.id FROM small a, small b", False),
        ("SELECT id FROM small UNION SELECT 3", True),
        ("SELECT id FROM small UNION ALL SELECT id FROM small LIMIT 1", False),
        ("(SELECT id FROM small ORDER BY id LIMIT 1) UNION ALL SELECT 3", True),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 9) SELECT n FROM r", False),
    ],
)
def test_only_what_is_certain_is_read_before(query: str, certain: bool) -> None:
    tree = tree_of(query)
    assert isinstance(tree, dict) and is_certain(tree["node"]) == certain


def test_several_rows_are_no_scalar_even_if_they_are_alike(wh: tw.Warehouse, duck: Any) -> None:
    one = "SELECT count(*) AS n FROM logs WHERE k = (SELECT left(name, 4) || '0007' FROM small WHERE id = 7)"
    assert told(wh.sql(one).to_arrow()) == told(duck.sql(one).to_arrow_table())
    with pytest.raises(tw.QueryError, match="More than one row"):
        wh.sql("SELECT v FROM logs WHERE k = (SELECT left(name, 4) || '0007' FROM small)").to_arrow()


def test_what_is_wrong_with_rows_read_before_is_said_of_the_statement(wh: tw.Warehouse) -> None:
    with pytest.raises(tw.QueryError, match="LINE 1: SELECT v FROM logs"):
        wh.sql("SELECT v FROM logs WHERE k IN (SELECT name::INT::VARCHAR FROM small)").to_arrow()


def test_times_that_a_column_cannot_have_bound_nothing(tmp_path: Path) -> None:
    """A column of nanoseconds ends in 2262: DuckDB cannot cast the constant, and would say so."""
    with tw.open(tmp_path / "wh") as wh:
        fine = wh.create_table("fine", pa.schema([("id", pa.int64()), ("stamp", pa.timestamp("ns"))]), time="stamp", key="id")
        fine.insert([{"id": n, "stamp": dt.datetime(2026, 3, 1)} for n in range(9)])
        for where in ("stamp::DATE < DATE '2526-01-01'", "epoch(stamp) < 17552600000"):
            assert wh.sql(f"SELECT count(*) AS n FROM fine WHERE {where}").to_arrow()["n"].to_pylist() == [9]
            assert fine.query(where=where).to_arrow().num_rows == 9


@pytest.mark.parametrize("more", ["", " AND length(repeat('x', id + 1)) < 9"])  # the second one in a process apart
def test_times_that_python_has_no_date_for_in_their_zone(tmp_path: Path, more: str) -> None:
    last = dt.datetime(9999, 12, 31, 23, 30, tzinfo=dt.UTC)
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("z", pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "Europe/Berlin"))]), time="ts", key="id")
        table.insert(pa.table([[1, 2], pa.array([last, NOW], table.schema.field("ts").type)], schema=table.schema))
        for where in (f"ts IN (TIMESTAMPTZ '{last}', TIMESTAMPTZ '2026-01-01 00:00:00+00')", f"ts >= TIMESTAMPTZ '{last}'"):
            assert wh.sql(f"SELECT id FROM z WHERE {where}{more}").to_arrow()["id"].to_pylist() == [1]


# ---- the where of a query -------------------------------------------------------------------------------------

WHERES = [
    # condition, most rows
    ("ts > now() - INTERVAL '5 minutes'", HOUR),
    ("ts > now() - INTERVAL '5 minutes' AND v > 3", HOUR),
    ("ts BETWEEN date_trunc('hour', now()) AND now()", HOUR),
    ("k LIKE 'dev-001%'", KEY),
    ("starts_with(k, 'dev-001') AND ts > now() - INTERVAL 1 HOUR", HOUR),
    ("k = 'dev-0007'", KEY),
    ("k IN ('dev-0007', 'dev-0009') AND ts >= '2026-03-02 12:00'", 160),
    ("k = 'dev-0007' OR k = 'dev-0008'", KEY),
    ("v < 10", WHOLE),
    ("current_date > DATE '2026-03-01' AND date_trunc('hour', ts) = date_trunc('hour', now())", HOUR),
    ("ts::DATE > current_date", 0),
    ("NOT (k >= 'dev-0002')", KEY),
]


@pytest.mark.parametrize("where, most", WHERES, ids=[where for where, _ in WHERES])
def test_the_where_of_a_query(wh: tw.Warehouse, duck: Any, where: str, most: int) -> None:
    expected = duck.sql(f"SELECT v FROM logs WHERE {at_the_moment(where)}").to_arrow_table()
    for more, condition in (
        ({}, "true"),
        ({"time": ("2026-03-02 11:00", "2026-03-02 12:26")}, "ts BETWEEN '2026-03-02 11:00' AND '2026-03-02 12:26'"),
    ):
        result = wh.table("logs").query(where=where, columns=["v"], **more)
        expected = duck.sql(f"SELECT v FROM logs WHERE ({at_the_moment(where)}) AND {condition}").to_arrow_table()
        assert told(result.to_arrow()) == told(expected) and looked_at(result) <= most + 64
    assert wh.table("logs").query(where=where, aggregate={"n": "count(*)"}, key=("dev-0003", "dev-0100")).to_pylist() == [
        {
            "n": duck.sql(f"SELECT count(*) FROM logs WHERE ({at_the_moment(where)}) AND k BETWEEN 'dev-0003' AND 'dev-0100'").fetchall()[
                0
            ][0]
        }
    ]


@pytest.mark.parametrize("where", ["nosuch > now()", "ts >", "ts > (SELECT max(ts) FROM logs)", "max(ts) > now()"])
def test_a_wrong_where_is_still_wrong(wh: tw.Warehouse, where: str) -> None:
    with pytest.raises(tw.QueryError):
        wh.table("logs").query(where=where).to_arrow()
