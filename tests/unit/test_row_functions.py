"""Expressions in `where=` and `aggregate=`: functions of rows only, the same at every reading; long lists mean what DuckDB means."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import check_nothing_left
from tidewheel.duck import expressions
from tidewheel.duck.bounded import AGGREGATES, SCALARS
from tidewheel.duck.row_functions import MOMENTS
from tidewheel.read.value_lists import without_lists
from tidewheel.testing.probe import warehouse_of

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("n", pa.int16()), ("s", pa.string()), ("v", pa.float64())])
ROWS = 3000


def rows() -> pa.Table:
    i = np.arange(ROWS)
    n = pa.array([None if j % 7 == 0 else j % 50 for j in range(ROWS)], pa.int16())
    s = pa.array([None if j % 11 == 0 else f"it's {j % 300}" for j in range(ROWS)])
    return pa.table([i, pa.array(i, pa.timestamp("us")), n, s, i / 2], schema=SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tw.Table]:
    with tw.open(tmp_path_factory.mktemp("functions")) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(rows())
        yield table
    check_nothing_left()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The warehouse stays open from one test to the next."""
    yield


def test_every_function_of_duckdb_is_known() -> None:
    """What it calls volatile, or the same within one query only, is refused or is the time; what is aggregated is no function of a row."""
    listed = duckdb.sql("SELECT lower(function_name), function_type, stability FROM duckdb_functions()").fetchall()
    kinds = expressions._functions
    assert len({name for name, *_ in listed}) > 1000
    for name, type_, stability in listed:
        kind = kinds.kind(name)
        if type_ == "scalar" and stability == "VOLATILE":
            assert kind in ("changing", "process") or name == "error", name
        elif type_ == "scalar" and stability == "CONSISTENT_WITHIN_QUERY":
            assert kind in ("moment", "process"), name
        elif type_ == "aggregate":
            assert kind in ("aggregate", "row") and (kind == "aggregate" or name in SCALARS or _has_scalar(name, listed)), name
        elif type_ == "window":
            assert kind in ("window", "row"), name
        elif type_ in ("scalar", "macro"):
            assert kind in ("row", "aggregate", "process", "moment", "changing"), name
    assert kinds.kind("pg_sleep") == kinds.kind("ago") == kinds.kind("getenv") == "process"
    assert kinds.kind("geomean") == kinds.kind("json_group_array") == "aggregate"
    assert kinds.kind("list_sum") == kinds.kind("split_part") == "row"


def _has_scalar(name: str, listed: list[tuple[str, str, str]]) -> bool:
    return any(one[0] == name and one[1] == "scalar" for one in listed)


def test_what_runs_in_this_process_is_what_duckdb_has() -> None:
    """A name that DuckDB does not have would be one that was mistyped."""
    listed = {name for (name,) in duckdb.sql("SELECT DISTINCT lower(function_name) FROM duckdb_functions()").fetchall()}
    syntax = {"unnest", "count_star", "!"}
    assert (SCALARS | AGGREGATES) - listed <= syntax
    assert MOMENTS - listed <= {"current_timestamp", "current_time", "localtime", "localtimestamp"}


REFUSED = {
    "row_number() over () <= 10": "window",
    "sum(k) over (order by ts) < 5": "window",
    "lag(k) over () = 3": "window",
    "max(k) > 3": "aggregates",
    "count(*) > 3": "aggregates",
    "string_agg(s) = 'x'": "aggregates",
    "k in (select 1)": "sub-query",
    "exists (select 1)": "sub-query",
    "k = any([1, 2])": "sub-query",
    "random() < 0.5": "every reading",
    "uuid() is not null": "every reading",
    "gen_random_uuid() is not null": "every reading",
    "uuidv7() is not null": "every reading",
    "current_setting('memory_limit') = 'x'": "about the process",
    "sleep_ms(1) is null": "about the process",
    "pg_sleep(1) is null": "about the process",
    "write_log('x') is null": "about the process",
    "getenv('HOME') = 'x'": "about the process",
    "setseed(0.5) is null": "about the process",
    "nextval('s') = 1": "about the process",
    "txid_current() > 0": "about the process",
    "current_user = 'x'": "about the process",
    "user = 'x'": "about the process",
    "ago(interval 1 hour) > ts": "about the process",
    "system.main.repeat('x', 3) = 'x'": "without a schema",
    "age(ts) > interval 1 day": "current_date",
    "(read_text('/etc/hostname')).content = 'x'": "about the process",
}


@pytest.mark.parametrize("where", REFUSED)
def test_it_is_refused(table: tw.Table, where: str) -> None:
    with pytest.raises(tw.QueryError, match=REFUSED[where]):
        table.query(where=where)


@pytest.mark.parametrize(
    "aggregate", ["sum(k) over ()", "max(random())", "(select 1)", "max(getenv('HOME'))", "count(*) + current_setting('threads')::INT"]
)
def test_it_is_refused_as_an_aggregate(table: tw.Table, aggregate: str) -> None:
    with pytest.raises(tw.QueryError):
        table.query(aggregate={"x": aggregate})


def test_a_field_of_a_column_is_meant_whatever_its_column_is_called(tmp_path: Path) -> None:
    inner = pa.struct([("ts", pa.timestamp("us")), ("k", pa.int64())])
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("t", inner)]), time="ts", key="k")
        old, new = dt.datetime(2026, 1, 1), dt.datetime(2026, 3, 1)
        table.insert([{"k": n, "ts": new, "t": {"ts": old, "k": 100 + n}} for n in range(3)])
        for where, found in (("t.k = 101", [1]), ("t.ts < TIMESTAMP '2026-02-01'", [0, 1, 2]), ("k = 2 AND T.k > 2", [2])):
            assert table.query(where=where, order_by="k").to_arrow()["k"].to_pylist() == found, where
        assert table.query(aggregate={"most": "max(t.k)"}).to_arrow()["most"].to_pylist() == [102]


def test_the_clock_is_read_once(table: tw.Table) -> None:
    """Also for several calls, and for every reading of a result."""
    words = ["now()", "current_timestamp", "today()", "current_date", "localtimestamp", "get_current_timestamp()", "current_time"]
    for word in words:
        assert len(table.query(where=f"{word} = {word} AND k < 5")) == 5, word
    result = table.query(aggregate={"x": "max(now())", "y": "min(current_timestamp)", "é": "min(now( ))"})
    first = result.to_pylist()
    assert result.to_pylist() == first
    assert first[0]["x"] == first[0]["y"] == first[0]["é"]
    assert len(table.query(where="ts < now() - INTERVAL 5 minutes")) == ROWS


def test_groups_and_totals_since_a_moment_are_ours(tmp_path: Path) -> None:
    """A time that is compared with now() is one that is compared with a constant; what else is said may still be for DuckDB."""
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    ages = [dt.timedelta(minutes=minutes) for minutes in (5, 30, 30, 90, 3000)]
    rows = [{"k": n % 2, "ts": now - age, "n": n, "s": "a", "v": n / 2} for n, age in enumerate(ages)]
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(rows)
        since = "ts > now() - INTERVAL '1 hour'"
        for where, left, by in (
            (since, [0, 1, 2], "by us"),
            ("now() - INTERVAL 1 HOUR < ts AND v > 0", [1, 2], "by us"),
            (f"{since} AND k = 0", [0, 2], "by us"),
            ("ts BETWEEN now() - INTERVAL '2 hours' AND now() - INTERVAL '1 hour'", [3], "by us"),
            ("ts >= current_date - 1 AND n < 3", [0, 1, 2], "by us"),
            (f"NOT ({since})", [3, 4], "by us"),
            (f"{since} AND sin(v) < 2", [0, 1, 2], "by DuckDB, over the rows as they are read"),
            (f"{since} OR v = 2", [0, 1, 2, 4], "by us"),
        ):
            groups = table.query(where=where, aggregate={"n": "sum(n)"}, group_by=["k"])
            totals = table.query(where=where, aggregate={"n": "sum(n)"})
            for found in (groups, totals):
                assert sum(row["n"] for row in found.to_pylist()) == sum(left), where
                assert found.how["grouped"] == by, where  # type: ignore[attr-defined]
            assert sorted(table.query(where=where).to_arrow()["n"].to_pylist()) == left, where


def test_columns_come_before_words(tmp_path: object) -> None:
    with tw.open(str(tmp_path)) as wh:
        schema = pa.schema([("user", pa.string()), ("current_date", pa.timestamp("us"))])
        table = wh.create_table("t", schema, time="current_date", key="user")
        table.insert([{"user": "a", "current_date": 1}, {"user": "b", "current_date": 2}])
        assert table.query(where="user = 'a' AND current_date < TIMESTAMP '2000-01-01'").to_pylist()[0]["user"] == "a"


# ---- lists of values ------------------------------------------------------------------------------------------


def lists(seed: int) -> list[str]:
    rng = random.Random(seed)

    def numbers(n: int) -> str:
        return ", ".join(str(rng.randrange(-100, 4000)) for _ in range(n))

    def texts(n: int) -> str:
        return ",".join("'it''s " + str(rng.randrange(400)) + "'" for _ in range(n))

    def ors(column: str, n: int) -> str:
        return " OR ".join(f"{column} = {rng.randrange(100)}" for _ in range(n))

    return [
        f"k IN ({numbers(500)})",
        f"K NOT IN ({numbers(500)})",
        f'"n" IN ({numbers(500)})',
        f"n NOT IN ({numbers(200)}, 99999999)",
        f"NOT n IN ({numbers(200)})",
        f"s IN ({texts(200)})",
        f"s NOT IN ({texts(150)}) OR n IN ({numbers(150)})",
        f"(n IN ({numbers(150)})) IS NULL",
        f"v IN ({numbers(200)})",
        f"k IN ({texts(200)}) IS NULL".replace("'it''s ", "'"),
        f"k + n IN ({numbers(200)})",
        f"k BETWEEN 3 AND 9 AND n IN ({numbers(200)})",
        f"CASE WHEN n IN ({numbers(200)}) THEN k > 5 ELSE s IN ({texts(150)}) END",
        f"k IN ({numbers(200)}, 99999999999999999999)",
        ors("n", 1000),
        f"{ors('n', 200)} AND k < 1000",
        f"k < 1000 AND ({ors('n', 200)})",
        f"k < 1000 AND {ors('n', 200)}",
        f"{ors('n', 200)} OR s = 'k IN (1, 2)'",
        f"n IN ({numbers(200)}) -- a comment",
        f"s = '{'x, ' * 300}' OR k IN ({numbers(200)})",
    ]


def test_a_list_means_what_duckdb_means(table: tw.Table) -> None:
    t = rows()
    for where in lists(7):
        expected = duckdb.sql(f"SELECT k FROM t WHERE {where}\n ORDER BY k").to_arrow_table()
        found = table.query(where=where, columns=["k"], order_by="k").to_arrow()
        assert found["k"].to_pylist() == expected["k"].to_pylist(), where[:80]
    assert t.num_rows == ROWS


def test_long_lists_are_taken_out_of_the_text() -> None:
    taken = [len(without_lists(where, SCHEMA)[1]) for where in lists(7)]
    assert taken == [1, 1, 1, 1, 1, 1, 2, 1, 0, 0, 0, 0, 2, 0, 1, 0, 1, 0, 1, 0, 1]


def test_what_is_quoted_is_no_list() -> None:
    numbers = ", ".join(map(str, range(200)))
    chain = " OR ".join(f"n = {one}" for one in range(200))
    for where in (f"s = 'a AND n IN ({numbers}) AND b'", f"s = 'a OR {chain} OR b'", f'"a AND n IN ({numbers}) AND b" = 1'):
        assert without_lists(where, SCHEMA) == (where, ()), where[:20]


def test_many_values_are_no_burden(table: tw.Table) -> None:
    for where in (
        "k IN (" + ", ".join(str(2 * n) for n in range(120_000)) + ")",
        " OR ".join(f"k = {2 * n}" for n in range(10_000)),
        " OR ".join(f"k = {2 * n}" for n in range(1000)) + " OR v < 0",
        " OR ".join(f"(k = {2 * n} AND v >= 0)" for n in range(1000)),
    ):
        assert len(table.query(where=where, timeout=60)) == min(ROWS // 2, where.count("k = ") or ROWS)


def test_too_long_and_too_deep(table: tw.Table) -> None:
    with pytest.raises(tw.QueryError, match="at most 1,048,576"):
        table.query(where="k = 1 " + " " * (1 << 20))
    for where in ("(" * 5000 + "k" + ")" * 5000 + " = 1", "NOT " * 5000 + "k = 1", "+".join(["k"] * 5000) + " = 1"):
        with pytest.raises(tw.QueryError):
            table.query(where=where).to_arrow()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, k AS x FROM t WHERE k < 3",
        "SELECT k, K AS x, k AS y FROM t WHERE k = 3",
        "SELECT k, k FROM t WHERE k = 3",
        "SELECT k AS a, k AS a FROM t WHERE k = 3",
        "SELECT k AS n, n AS k FROM t WHERE k = 3",
        "SELECT s, n, s AS t, n AS m FROM t LIMIT 2",
        "SELECT *, k FROM t WHERE k = 3",
        "SELECT *, * FROM t WHERE k = 3",
        "SELECT t.k, t.k AS x FROM t WHERE k = 3",
        "SELECT max(k), max(k) AS x, max(k) FROM t",
    ],
)
def test_one_column_under_several_names(table: tw.Table, text: str) -> None:
    found = warehouse_of(table).sql(text).to_arrow()
    with duckdb.connect() as connection:
        connection.register("t", rows())
        expected = connection.sql(text).to_arrow_reader().read_all()
    assert found.schema.names == expected.schema.names and found.schema.types == expected.schema.types
    assert [column.to_pylist() for column in found.columns] == [column.to_pylist() for column in expected.columns]
