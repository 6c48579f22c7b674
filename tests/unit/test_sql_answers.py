"""wh.sql: what it answers and what it refuses, and how it says so. Tests that only ask share a warehouse."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import check_nothing_left
from tests.sql_tables import DAY, TAXI, refused, taxi_rows, with_taxi
from tidewheel.sql.direct_result import DirectResult
from tidewheel.sql.sql_result import SqlResult


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Looked at once: the warehouse stays open from one test to the next."""
    yield
    check_nothing_left()


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tw.Warehouse]:
    with with_taxi(tmp_path_factory.mktemp("answers") / "wh") as wh:
        yield wh


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tw.Warehouse]:
    """For tests that change it."""
    with with_taxi(tmp_path / "wh") as wh:
        yield wh


# ---- answers ------------------------------------------------------------------------------------------------


def test_it_is_a_result_like_any_other(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT id, count(*) AS n FROM taxi GROUP BY id ORDER BY id")
    assert isinstance(result, tw.Result)
    assert result.schema.names == ["id", "n"]
    assert len(result) == 10
    assert result.to_pylist()[3] == {"id": 3, "n": 200}
    assert sum(batch.num_rows for batch in result) == 10
    assert result.to_pandas().n.sum() == 2000 and result.to_polars().shape == (10, 2)
    assert pa.table(result).num_rows == 10
    assert "id  n" in repr(result) and "10 rows" in repr(result)
    assert result.stats.rows_returned == 10 and result.stats.regions_read == 2 and result.stats.milliseconds > 0


def test_a_result_that_was_only_shown(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT * FROM taxi ORDER BY ts LIMIT 20")
    assert repr(result).count("\n") == 11 and result.stats.rows_returned == 0
    assert result.schema.names == TAXI.names
    assert len(result.to_arrow()) == 20


def test_parameters(wh: tw.Warehouse) -> None:
    assert wh.sql("SELECT count(*) AS n FROM taxi WHERE id = ? AND ts < ?", [3, DAY + dt.timedelta(seconds=100)]).to_pylist() == [{"n": 10}]
    assert wh.sql("SELECT $a + $b AS c, $a AS a", {"a": 1, "b": 2}).to_pylist() == [{"c": 3, "a": 1}]
    assert wh.sql("SELECT $a AS a", {"$a": np.int64(7)}).to_pylist() == [{"a": 7}]
    given = [None, True, 1.5, "x", b"y", Decimal("1.50"), dt.date(2026, 1, 1), DAY, [1, 2], {"k": 1}]
    answer = wh.sql(f"SELECT {', '.join(f'?::{t} AS c{i}' for i, t in enumerate(TYPES))}", given).to_pylist()[0]
    assert list(answer.values()) == given


TYPES = ["INT", "BOOL", "DOUBLE", "VARCHAR", "BLOB", "DECIMAL(9,2)", "DATE", "TIMESTAMP", "INT[]", "STRUCT(k INT)"]


@pytest.mark.parametrize(
    "statement, given, said",
    [
        ("SELECT ?", None, "Values were not provided for the following parameters: 1"),
        ("SELECT ?", [1, 2], "parameter"),
        ("SELECT $a", {"b": 1}, "parameters: a"),
        ("SELECT ?", "abc", "parameters are a list for \\? or a mapping for \\$name, not 'abc'"),
        ("SELECT ?", 5, "parameters are a list"),
        ("SELECT $a", {1: 2}, "have texts as names"),
        ("SELECT ?", [object()], "Unable to transform python value"),
    ],
)
def test_wrong_parameters(wh: tw.Warehouse, statement: str, given: Any, said: str) -> None:
    with pytest.raises(tw.QueryError, match=said):
        wh.sql(statement, given).to_arrow()


def test_names_are_found_whatever_their_case(own: tw.Warehouse) -> None:
    assert len(own.sql("SELECT ID FROM Taxi WHERE S = 's1'")) == len(own.sql('SELECT id FROM main.taxi AS "T" WHERE "T".s = \'s1\''))
    own.create_table("TAXI", TAXI, time="ts", key="id")
    assert len(own.sql("SELECT * FROM TAXI")) == 0 and len(own.sql("SELECT * FROM taxi")) == 2000
    with pytest.raises(tw.QueryError, match="differ only in case"):
        own.sql("SELECT * FROM tAxI")


def test_a_common_table_expression_may_have_the_name_of_a_table(wh: tw.Warehouse) -> None:
    assert wh.sql("WITH taxi AS (SELECT 1 AS x) SELECT * FROM taxi").to_pylist() == [{"x": 1}]
    assert wh.sql("WITH taxi AS (SELECT id FROM main.taxi WHERE id = 1) SELECT count(*) AS n FROM taxi").to_pylist() == [{"n": 200}]


def test_a_table_of_the_same_name_but_another_schema(own: tw.Warehouse) -> None:
    """Sessions remember tables: a table that was dropped and made anew is another one."""
    assert own.sql("SELECT * FROM taxi LIMIT 1").schema.names == TAXI.names
    own.drop_table("taxi")
    with pytest.raises(tw.QueryError, match="there is no table 'taxi'"):
        own.sql("SELECT * FROM taxi")
    other = pa.schema([("key", pa.string()), ("ts", pa.timestamp("ns")), ("x", pa.int8())])
    own.create_table("taxi", other, time="ts", key="key").insert([{"key": "a", "ts": DAY, "x": 1}])
    assert own.sql("SELECT * FROM taxi WHERE key = 'a' AND ts > '2025-01-01'").to_arrow().column("x").to_pylist() == [1]


def test_two_warehouses_do_not_see_each_other(wh: tw.Warehouse, tmp_path: Path) -> None:
    with tw.open(tmp_path / "other") as other:
        other.create_table("mine", TAXI, time="ts", key="id").insert(taxi_rows(0, 3))
        assert len(other.sql("SELECT * FROM mine")) == 3
        with pytest.raises(tw.QueryError, match="there is no table 'mine'"):
            wh.sql("SELECT * FROM mine")
        other.create_table("taxi", TAXI, time="ts", key="id").insert(taxi_rows(0, 5))
        assert len(other.sql("SELECT * FROM taxi")) == 5 and len(wh.sql("SELECT * FROM taxi")) == 2000


def test_times_are_utc_whatever_the_machine_says(tmp_path: Path) -> None:
    code = f"""
import pyarrow as pa, tidewheel as tw
with tw.open({str(tmp_path / "wh")!r}) as wh:
    t = wh.create_table("t", pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))]), time="ts", key="id")
    t.insert(pa.table([[1], pa.array([0], pa.timestamp("us", tz="UTC"))], schema=t.schema))
    print(wh.sql("SELECT hour(ts) AS h, ts::VARCHAR AS s FROM t").to_pylist(), len(t.query(where="hour(ts) = 0")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"TZ": "America/New_York"})
    assert done.stdout.strip() == "[{'h': 0, 's': '1970-01-01 00:00:00+00'}] 1", done.stderr


TYPED: list[tuple[pa.DataType, Any]] = [
    (pa.float16(), 1.5), (pa.float32(), 1.5), (pa.decimal128(38, 5), Decimal("1.50000")), (pa.list_(pa.int32()), [1, None]),
    (pa.large_list(pa.int32()), [1]), (pa.list_(pa.int32(), 2), [1, 2]), (pa.list_view(pa.int32()), [1]),
    (pa.struct([("a", pa.int32())]), {"a": 1}), (pa.map_(pa.string(), pa.int32()), [("a", 1)]), (pa.time32("s"), dt.time(1, 2, 3)),
    (pa.time64("ns"), dt.time(1, 2, 3)), (pa.date32(), dt.date(2026, 1, 1)), (pa.date64(), dt.date(2026, 1, 1)), (pa.binary(3), b"abc"),
    (pa.large_string(), "x"), (pa.large_binary(), b"x"), (pa.string_view(), "x"), (pa.binary_view(), b"x"), (pa.timestamp("s"), DAY),
    (pa.timestamp("us", tz="Europe/Berlin"), DAY.replace(tzinfo=dt.UTC)), (pa.uint64(), 2**64 - 1), (pa.bool_(), True),
    (pa.dictionary(pa.int8(), pa.large_string()), "x"), (pa.decimal32(5, 2), Decimal("1.50")), (pa.null(), None),
]  # fmt: skip


@pytest.mark.parametrize("type_, value", TYPED, ids=lambda v: str(v)[:40])
def test_columns_of_every_type(wh: tw.Warehouse, type_: pa.DataType, value: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("c", type_)])
    times = pa.array([1, 2], pa.timestamp("us"))
    wh.create_table("t", schema, time="ts", key="id").insert(pa.table([[1, 2], times, pa.array([value, None], type_)], schema=schema))
    try:
        assert wh.sql("SELECT c FROM t WHERE id = 1").to_pylist() == [{"c": value}]
        assert wh.sql("SELECT count(*) AS n FROM t WHERE c IS NULL").to_pylist() == [{"n": 1 if value is not None else 2}]
        assert wh.sql("SELECT id, c FROM t ORDER BY id").to_pylist()[1] == {"id": 2, "c": None}
        if not pa.types.is_nested(type_) and value is not None:
            assert wh.sql("SELECT a.id FROM t a JOIN t b ON a.c = b.c").to_pylist() == [{"id": 1}]
    finally:
        wh.drop_table("t")


def test_decimals_that_duckdb_does_not_have_are_text(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("c", pa.decimal256(50, 2))])
    with tw.open(tmp_path / "wh") as wh:
        value = Decimal(10) ** 40
        wh.create_table("t", schema, time="ts", key="id").insert([{"id": 1, "ts": DAY, "c": value}])
        assert Decimal(wh.sql("SELECT c FROM t").to_pylist()[0]["c"]) == value


DIRECT = [
    "SELECT * FROM taxi WHERE id = 3 AND ts < '2026-01-01 00:10:00'", "SELECT id, v AS speed FROM taxi t WHERE t.id IN (3, 5) LIMIT 7",
    "SELECT count(*) FROM taxi WHERE id BETWEEN 3 AND 5", "SELECT count(*) AS n FROM taxi",
    "SELECT v FROM taxi WHERE NOT (s = 's1' OR v >= 2.5)",
    "SELECT v FROM taxi WHERE s IS NULL AND 100 > v", "SELECT * FROM taxi LIMIT 0", "SELECT count(*) FROM taxi LIMIT 0",
    "SELECT v FROM taxi WHERE ts = TIMESTAMP '2026-01-01 00:00:05' OR ts > DATE '2026-01-02'", "SELECT max(v) FROM taxi",
    "SELECT count(*), count(s), min(s) AS first, sum(t.id)::BIGINT, avg(v) FROM taxi t WHERE id <> 4", "SELECT sum(v) FROM taxi LIMIT 0",
    "SELECT max(ts), min(id) FROM taxi WHERE id IN (1, 3) AND v > 2 LIMIT 8", "SELECT v FROM taxi ORDER BY v",
    "SELECT DISTINCT id FROM taxi",
    "SELECT count(DISTINCT v) FROM taxi", "SELECT sum(v), id FROM taxi GROUP BY id", "SELECT sum(v), sum(v) FROM taxi",
    "SELECT mean(v) FROM taxi", "SELECT sum(v) FROM taxi HAVING sum(v) > 1",
    "SELECT sum(v) FROM taxi ORDER BY 1", "SELECT v FROM taxi ORDER BY v DESC, id LIMIT 3 OFFSET 1",
]  # fmt: skip
NOT_DIRECT = [
    "SELECT v FROM taxi WHERE id < 1.5", "SELECT ID FROM taxi", "SELECT v, v FROM taxi", "SELECT v + 1 FROM taxi",
    "SELECT DISTINCT ON (id) id, v FROM taxi", "SELECT v FROM taxi WHERE id = '3'", "SELECT v FROM taxi WHERE s = NULL",
    "SELECT v FROM taxi WHERE ts > '2026'",
    "SELECT v FROM taxi WHERE id > 99999999999999999999", "SELECT v FROM taxi LIMIT 3 + 1", "SELECT max(ts) FROM taxi",
    "SELECT max(v) FILTER (v < 3) FROM taxi", "SELECT sum(v) + 1 FROM taxi",
    "SELECT sum(V) FROM taxi",
    "SELECT sum(v), id FROM taxi GROUP BY ROLLUP (id)", "SELECT sum(v) FROM taxi HAVING v > 1", "SELECT sum(v)::INTEGER FROM taxi",
    "SELECT sum(v) OVER () FROM taxi", "SELECT max(v, 2) FROM taxi",
    "SELECT sum(v) FROM taxi GROUP BY ()", "SELECT sum(v ORDER BY v) FROM taxi",
    "SELECT avg(ts) FROM taxi",
    "SELECT v FROM taxi, taxi b",
    "SELECT * EXCLUDE (v) FROM taxi", "SELECT v FROM taxi USING SAMPLE 10", "SELECT v FROM taxi WHERE v > 'nan'", "SELECT 1 FROM taxi",
]  # fmt: skip


@pytest.mark.parametrize("statement", DIRECT)
def test_the_short_way_is_the_long_way(wh: tw.Warehouse, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain statements do not go through DuckDB, and nobody can tell."""
    short = wh.sql(statement)
    assert isinstance(short, DirectResult)
    monkeypatch.setattr("tidewheel.sql.direct.Prepared.asked", refused)
    long = wh.sql(statement)
    assert isinstance(long, SqlResult) and short.schema == long.schema
    if "LIMIT 7" in statement:
        assert len(short) == len(long) == 7
    else:
        assert sorted(map(repr, short.to_pylist())) == sorted(map(repr, long.to_pylist()))
    assert short.plan.table == "taxi" and short.to_arrow().equals(short.to_arrow()) and repr(short)


@pytest.mark.parametrize("statement", NOT_DIRECT)
def test_what_takes_the_long_way(wh: tw.Warehouse, statement: str) -> None:
    with suppress(tw.QueryError):
        assert not isinstance(wh.sql(statement), DirectResult)


def test_the_short_way_has_limits_too(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT * FROM taxi WHERE id = ?", [3], max_rows=10)
    assert isinstance(result, DirectResult)
    with pytest.raises(tw.LimitError, match="more than 10 rows"):
        result.to_arrow()
    with pytest.raises(tw.LimitError, match="timeout"):
        wh.sql("SELECT * FROM taxi", timeout=0).to_arrow()
    result = wh.sql("SELECT * FROM taxi")
    result.cancel()
    with pytest.raises(tw.CancelledError):
        result.to_arrow()
    with pytest.raises(tw.QueryError, match="Parameter"):
        wh.sql("SELECT * FROM taxi", [1])


# ---- what is wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement, said",
    [
        (
            "SELECT * FROM taxy",
            "there is no table 'taxy'. Did you mean 'taxi'? Tables: taxi\n\nLINE 1: SELECT * FROM taxy\n                      ^^^^",
        ),
        ("SELECT\n  idd\nFROM taxi", 'column "idd" not found in FROM clause!\nCandidate bindings: "id"\n\nLINE 2:   idd\n          ^^^'),
        ("SELECT id FORM taxi", 'syntax error at or near "taxi"'),
        ("SELECT 'ä', x.y FROM taxi x", "LINE 1: SELECT 'ä', x.y FROM taxi x\n                    ^^^"),
        ("SELECT * FROM a.taxi", "there is no schema 'a'"),
        ("SELECT nofunction(id) FROM taxi", "Function with name nofunction does not exist"),
        ("SELECT id + s FROM taxi", "LINE 1: SELECT id + s FROM taxi\n                  ^"),
        ("SELECT * FROM system.chunk", "there is no table system.chunk. Did you mean 'chunks'?"),
        ("INSERT INTO taxi VALUES (1)", "the rows have 1 column, and 4 columns are to be filled: id, ts, v, s"),
        ("SELECT 1; SELECT 2", "one statement at a time: there are 2 here"),
        (5, "a statement is SQL text like"),
        ("  ", "a statement is SQL text like"),
    ],
)
def test_errors_say_where_and_what_was_meant(wh: tw.Warehouse, statement: Any, said: str) -> None:
    with pytest.raises(tw.QueryError) as error:
        wh.sql(statement)
    assert said in str(error.value), str(error.value)


def test_an_error_while_rows_are_read(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT CASE WHEN v = 700.5 THEN error('no such speed') ELSE id END FROM taxi")
    for _ in range(2):
        with pytest.raises(tw.QueryError, match="no such speed"):
            result.to_arrow()
    assert len(wh.sql("SELECT * FROM taxi")) == 2000


def test_a_closed_warehouse(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "wh")
    wh.close()
    with pytest.raises(tw.TidewheelError, match="was closed"):
        wh.sql("SELECT 1")
