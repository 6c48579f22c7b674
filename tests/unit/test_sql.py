"""wh.sql: what it answers, what it refuses and how it says so, its limits, its versions, and what is known about an answer."""

from __future__ import annotations

import datetime as dt
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.sql.direct_result import DirectResult
from tidewheel.sql.result import SqlResult

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.float64()), ("s", pa.string())])
DAY = dt.datetime(2026, 1, 1)


def rows(first: int, n: int) -> pa.Table:
    i = np.arange(first, first + n)
    times = np.datetime64(DAY).astype("datetime64[us]").astype(np.int64) + i * 10**6
    return pa.table([i % 10, pa.array(times, pa.timestamp("us")), i / 2, [None if k % 3 == 0 else f"s{k % 4}" for k in i]], schema=SCHEMA)


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh") as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id")
        taxi.insert(rows(0, 1000))
        taxi.flush()
        taxi.insert(rows(1000, 1000))
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
    assert result.schema.names == SCHEMA.names
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


def test_names_are_found_whatever_their_case(wh: tw.Warehouse) -> None:
    assert len(wh.sql("SELECT ID FROM Taxi WHERE S = 's1'")) == len(wh.sql('SELECT id FROM main.taxi AS "T" WHERE "T".s = \'s1\''))
    wh.create_table("TAXI", SCHEMA, time="ts", key="id")
    assert len(wh.sql("SELECT * FROM TAXI")) == 0 and len(wh.sql("SELECT * FROM taxi")) == 2000
    with pytest.raises(tw.QueryError, match="differ only in case"):
        wh.sql("SELECT * FROM tAxI")


def test_a_common_table_expression_may_have_the_name_of_a_table(wh: tw.Warehouse) -> None:
    assert wh.sql("WITH taxi AS (SELECT 1 AS x) SELECT * FROM taxi").to_pylist() == [{"x": 1}]
    assert wh.sql("WITH taxi AS (SELECT id FROM main.taxi WHERE id = 1) SELECT count(*) AS n FROM taxi").to_pylist() == [{"n": 200}]


def test_a_table_of_the_same_name_but_another_schema(wh: tw.Warehouse) -> None:
    """Sessions remember tables: a table that was dropped and made anew is another one."""
    assert wh.sql("SELECT * FROM taxi LIMIT 1").schema.names == SCHEMA.names
    wh.drop_table("taxi")
    with pytest.raises(tw.QueryError, match="there is no table 'taxi'"):
        wh.sql("SELECT * FROM taxi")
    other = pa.schema([("key", pa.string()), ("ts", pa.timestamp("ns")), ("x", pa.int8())])
    wh.create_table("taxi", other, time="ts", key="key").insert([{"key": "a", "ts": DAY, "x": 1}])
    assert wh.sql("SELECT * FROM taxi WHERE key = 'a' AND ts > '2025-01-01'").to_arrow().column("x").to_pylist() == [1]


def test_two_warehouses_do_not_see_each_other(wh: tw.Warehouse, tmp_path: Path) -> None:
    with tw.open(tmp_path / "other") as other:
        other.create_table("mine", SCHEMA, time="ts", key="id").insert(rows(0, 3))
        assert len(other.sql("SELECT * FROM mine")) == 3
        with pytest.raises(tw.QueryError, match="there is no table 'mine'"):
            wh.sql("SELECT * FROM mine")
        other.create_table("taxi", SCHEMA, time="ts", key="id").insert(rows(0, 5))
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
def test_columns_of_every_type(tmp_path: Path, type_: pa.DataType, value: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("c", type_)])
    with tw.open(tmp_path / "wh") as wh:
        times = pa.array([1, 2], pa.timestamp("us"))
        wh.create_table("t", schema, time="ts", key="id").insert(pa.table([[1, 2], times, pa.array([value, None], type_)], schema=schema))
        assert wh.sql("SELECT c FROM t WHERE id = 1").to_pylist() == [{"c": value}]
        assert wh.sql("SELECT count(*) AS n FROM t WHERE c IS NULL").to_pylist() == [{"n": 1 if value is not None else 2}]
        assert wh.sql("SELECT id, c FROM t ORDER BY id").to_pylist()[1] == {"id": 2, "c": None}
        if not pa.types.is_nested(type_) and value is not None:
            assert wh.sql("SELECT a.id FROM t a JOIN t b ON a.c = b.c").to_pylist() == [{"id": 1}]


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
    "SELECT v FROM taxi WHERE ts = TIMESTAMP '2026-01-01 00:00:05' OR ts > DATE '2026-01-02'",
]  # fmt: skip
NOT_DIRECT = [
    "SELECT v FROM taxi WHERE id < 1.5", "SELECT ID FROM taxi", "SELECT v, v FROM taxi", "SELECT v + 1 FROM taxi",
    "SELECT v FROM taxi ORDER BY v",
    "SELECT DISTINCT id FROM taxi", "SELECT v FROM taxi WHERE id = '3'", "SELECT v FROM taxi WHERE s = NULL",
    "SELECT v FROM taxi WHERE ts > '2026'",
    "SELECT v FROM taxi WHERE id > 99999999999999999999", "SELECT v FROM taxi LIMIT 3 OFFSET 1", "SELECT max(v) FROM taxi",
    "SELECT v FROM taxi, taxi b",
    "SELECT * EXCLUDE (v) FROM taxi", "SELECT v FROM taxi USING SAMPLE 10", "SELECT v FROM taxi WHERE v > 'nan'", "SELECT 1 FROM taxi",
]  # fmt: skip


@pytest.mark.parametrize("statement", DIRECT)
def test_the_short_way_is_the_long_way(wh: tw.Warehouse, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain statements do not go through DuckDB, and nobody can tell."""
    short = wh.sql(statement)
    assert isinstance(short, DirectResult)
    monkeypatch.setattr("tidewheel.sql.ask.asked_of", lambda *_: None)
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
        ("INSERT INTO taxi VALUES (1)", "insert rows with table.insert"),
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


# ---- limits -------------------------------------------------------------------------------------------------

FOREVER = "WITH RECURSIVE x AS (SELECT 1::BIGINT AS a UNION ALL SELECT (a * 3 + 1) % 1000003 FROM x) SELECT max(a) FROM x"


def test_time_is_limited(wh: tw.Warehouse) -> None:
    began = time.monotonic()
    with pytest.raises(tw.LimitError, match=r"longer than its timeout of 0\.2 s"):
        wh.sql(FOREVER, timeout=0.2).to_arrow()
    assert time.monotonic() - began < 5
    with pytest.raises(tw.QueryError, match="timeout is a number of seconds"):
        wh.sql("SELECT 1", timeout="soon")  # type: ignore[arg-type]


def test_the_time_of_the_caller_does_not_count(wh: tw.Warehouse) -> None:
    seen = 0
    for batch in wh.sql("SELECT * FROM range(300000)", timeout=1.0):
        time.sleep(0.3)
        seen += batch.num_rows
    assert seen == 300000


def test_settings_limit_statements_too(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh", settings=tw.Settings(query_seconds=0.2, query_rows=5)) as wh:
        wh.create_table("taxi", SCHEMA, time="ts", key="id").insert(rows(0, 1000))
        assert wh.sql("SELECT count(*) AS n FROM taxi").to_pylist() == [{"n": 1000}]  # what is scanned is not what is returned
        with pytest.raises(tw.LimitError, match="more than 5 rows"):
            wh.sql("SELECT * FROM taxi").to_arrow()
        assert len(wh.sql("SELECT * FROM taxi", max_rows=1000)) == 1000
        with pytest.raises(tw.LimitError, match="timeout"):
            wh.sql(FOREVER).to_arrow()


def test_no_limits_at_all(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh", settings=tw.Settings(query_bytes=None)) as wh:
        assert wh.sql("SELECT sum(i) AS n FROM range(100000) t(i)").to_pylist() == [{"n": 4999950000}]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("statement", [FOREVER, "SELECT count(*) FROM taxi a, taxi b, taxi c, taxi d WHERE a.id + b.id + c.id + d.id < 0"])
def test_ctrl_c_ends_a_statement(wh: tw.Warehouse, statement: str) -> None:
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        wh.sql(statement).to_arrow()
    assert time.monotonic() - began < 5
    assert wh.sql("SELECT count(*) AS n FROM taxi").to_pylist() == [{"n": 2000}]


def test_cancel(wh: tw.Warehouse) -> None:
    result = wh.sql(FOREVER)
    threading.Timer(0.2, result.cancel).start()
    began = time.monotonic()
    with pytest.raises(tw.CancelledError):
        result.to_arrow()
    assert time.monotonic() - began < 5
    with pytest.raises(tw.CancelledError):
        result.to_arrow()
    assert wh.sql("SELECT count(*) AS n FROM taxi").to_pylist() == [{"n": 2000}]


def test_cancel_by_number(wh: tw.Warehouse) -> None:
    def cancel() -> None:
        while True:
            running = wh.sql("SELECT id FROM system.queries WHERE state = 'running' AND statement = ?", [FOREVER]).to_pylist()
            if running:
                assert wh.cancel(running[0]["id"])
                return
            time.sleep(0.02)

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(tw.CancelledError):
        wh.sql(FOREVER).to_arrow()
    thread.join()
    last = wh.sql("SELECT * FROM system.queries WHERE state = 'cancelled'").to_pylist()[-1]
    assert last["statement"] == FOREVER and "cancelled" in last["error"] and not wh.cancel(last["id"])
    with pytest.raises(tw.NotFoundError):
        wh.cancel(10**9)


def test_a_reader_that_stops_early_leaves_nothing(wh: tw.Warehouse) -> None:
    from tidewheel.sql.database import _databases

    for _ in range(5):
        for _ in wh.sql("SELECT * FROM taxi"):
            break
        next(iter(wh.sql("SELECT * FROM taxi")))
        wh.sql("SELECT * FROM taxi")
    gc.collect()
    assert all(len(idle) <= 4 for database in _databases.values() for idle in database._idle.values())
    assert len(wh.sql("SELECT * FROM taxi")) == 2000


def test_what_is_not_read_is_let_go_of(wh: tw.Warehouse) -> None:
    gc.collect()
    gc.disable()
    try:
        for use in (lambda r: None, lambda r: r.schema, repr, lambda r: next(iter(r)), lambda r: r.to_arrow(), lambda r: r.cancel()):
            result = wh.sql("SELECT * FROM taxi")
            gone = weakref.ref(result)
            use(result)
            del result
            assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("use", ["r", "r.schema", "r.reader()", "next(iter(r))", "r.to_arrow()"])
def test_a_process_ends_in_silence(tmp_path: Path, use: str) -> None:
    """DuckDB complains loudly about connections that are left when a process ends."""
    code = f"""
import tidewheel as tw
wh = tw.open({str(tmp_path / "wh")!r})
r = wh.sql("SELECT * FROM range(10)")
kept = {use}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


# ---- versions -----------------------------------------------------------------------------------------------


def test_a_result_shows_the_rows_of_its_moment(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT count(*) AS n FROM taxi")
    wh.table("taxi").insert(rows(2000, 500))
    wh.table("taxi").flush()
    assert result.to_pylist() == [{"n": 2000}] and wh.sql("SELECT count(*) AS n FROM taxi").to_pylist() == [{"n": 2500}]
    assert result.to_pylist() == [{"n": 2000}]
    assert isinstance(result, DirectResult) and result.generations == {"taxi": result.generation}


def test_all_tables_are_read_at_one_moment(wh: tw.Warehouse) -> None:
    """Whoever inserts into one table and then into the other is never seen the other way round, nor far behind."""
    first, second = (wh.create_table(name, SCHEMA, time="ts", key="id") for name in ("first", "second"))
    over = threading.Event()

    def insert() -> None:
        n = 0
        while not over.is_set():
            first.insert(rows(n, 1))
            second.insert(rows(n, 1))
            n += 1

    thread = threading.Thread(target=insert)
    thread.start()
    try:
        for _ in range(100):
            a, b = wh.sql("SELECT (SELECT count(*) FROM first) AS a, (SELECT count(*) FROM second) AS b").to_pylist()[0].values()
            assert 0 <= a - b <= 1
            b, a = wh.sql("SELECT (SELECT count(*) FROM second) AS b, (SELECT count(*) FROM first) AS a").to_pylist()[0].values()
            assert 0 <= a - b <= 1
    finally:
        over.set()
        thread.join()


def test_many_threads(wh: tw.Warehouse) -> None:
    failed: list[BaseException] = []

    def ask(key: int) -> None:
        try:
            for _ in range(15):
                assert wh.sql("SELECT count(*) AS n, min(id) AS i FROM taxi WHERE id = ?", [key]).to_pylist() == [{"n": 200, "i": key}]
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=ask, args=(key,)) for key in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


# ---- what is known about it ---------------------------------------------------------------------------------


def test_explain(wh: tw.Warehouse) -> None:
    said = wh.sql("EXPLAIN SELECT count(*) FROM taxi WHERE id BETWEEN 3 AND 4 AND v > ?", [5]).to_pylist()
    assert [row["explain_key"] for row in said] == ["tidewheel: taxi", "duckdb"]
    ours, theirs = (row["explain_value"] for row in said)
    assert "table taxi, generation 2" in ours and "key codes  3 .. 4" in ours and "regions    2 read of 2" in ours
    assert "chunk" in ours and "live tree" in ours and "Aggregate" in theirs
    both = wh.sql("explain analyze select a.v from taxi a join taxi b using (id) where a.id = 3 and b.id = 3").to_pylist()
    assert [row["explain_key"] for row in both] == ["tidewheel: taxi", "tidewheel: taxi", "duckdb"]
    assert all("returned   200 rows" in row["explain_value"] for row in both[:2])
    with pytest.raises(tw.QueryError, match="there is no table 'taxy'"):
        wh.sql("EXPLAIN SELECT * FROM taxy")


def test_plans(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT v FROM taxi WHERE id IN (3, 7)")
    result.to_arrow()
    assert result.plan.key_intervals == ((3, 3), (7, 7)) and len(result.plan.subqueries) == 4
    assert result.explain().count("table taxi") == 2


def test_the_ends_of_a_table_come_from_the_index(wh: tw.Warehouse) -> None:
    taxi = wh.table("taxi")
    statement = "SELECT count(*), min(ts), Max(taxi.TS) AS last, max(id), count(*) AS n FROM taxi"
    slow = statement + " WHERE v IS NOT NULL"

    def check(read: bool) -> None:
        result = wh.sql(statement)
        assert result.to_pylist() == wh.sql(slow).to_pylist()
        assert (result.stats.regions_read > 0) == read and result.generation == taxi.state().generation

    check(False)
    taxi.insert(pa.table([[-7], pa.array([5], pa.timestamp("us")), [1.0], ["x"]], schema=SCHEMA))
    check(False)
    taxi.replace(SCHEMA.empty_table(), time=(DAY, DAY + dt.timedelta(seconds=1500)))  # what is hidden is still in its chunk
    check(True)
    wh.create_table("nothing", SCHEMA, time="ts", key="id")
    assert wh.sql("SELECT count(*) AS n, max(ts) AS t FROM nothing").to_pylist() == [{"n": 0, "t": None}]
    assert wh.sql("SELECT max(v) AS v FROM taxi").stats.regions_read == 0  # not read yet
    with pytest.raises(tw.QueryError, match="Parameter"):
        wh.sql("SELECT max(ts) FROM taxi", [1]).to_arrow()


@pytest.mark.parametrize(
    "type_", [pa.int8(), pa.uint32(), pa.int64(), pa.date32(), pa.timestamp("ns"), pa.uint64(), pa.float64(), pa.string()]
)
def test_the_ends_of_keys_of_many_types(tmp_path: Path, type_: pa.DataType) -> None:
    schema = pa.schema([("k", type_), ("d", pa.date32())])
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", schema, time="d", key="k", partition="1 day")
        for part in ([3, 100], [1, 7], [50]):
            table.insert(
                pa.table(
                    [
                        pa.array(part, pa.int64() if type_ == pa.timestamp("ns") else pa.int32()).cast(type_),
                        pa.array(part, pa.int32()).cast(pa.date32()),
                    ],
                    schema=schema,
                )
            )
            if part[0] == 3:
                table.flush()
        fast = wh.sql("SELECT min(k) AS a, max(k) AS b, min(d) AS c, max(d) AS e, count(*) AS n FROM t").to_arrow()
        slow = wh.sql("SELECT min(k) AS a, max(k) AS b, min(d) AS c, max(d) AS e, count(*) AS n FROM t WHERE true OR k IS NULL").to_arrow()
        assert fast.equals(slow) and fast.column("n").to_pylist() == [5]


def test_describe_and_show(wh: tw.Warehouse) -> None:
    assert wh.sql("SHOW TABLES").to_pylist() == [{"name": "taxi"}]
    described = {row["column_name"]: row["column_type"] for row in wh.sql("DESCRIBE taxi").to_pylist()}
    assert described == {"id": "BIGINT", "ts": "TIMESTAMP", "v": "DOUBLE", "s": "VARCHAR"}
    assert len(wh.sql("DESCRIBE SELECT id FROM taxi")) == 1
    summary = {row["column_name"]: row["count"] for row in wh.sql("SUMMARIZE taxi").to_pylist()}
    assert summary["id"] == 2000


def test_importing_and_querying_load_nothing_of_it(tmp_path: Path) -> None:
    code = f"""
import sys, tidewheel as tw
with tw.open({str(tmp_path / "wh")!r}) as wh: wh.tables()
print([m for m in sys.modules if m.startswith(("tidewheel.sql", "duckdb", "pyarrow.dataset"))])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
