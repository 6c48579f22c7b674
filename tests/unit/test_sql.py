"""wh.sql: its limits, its versions, and what is known about an answer."""

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
from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import examples
from tests.hand_clock import HandClock
from tests.sql_tables import DAY, TAXI, taxi_rows, with_taxi
from tidewheel.sql.direct_result import DirectResult


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with with_taxi(tmp_path / "wh") as wh:
        yield wh


# ---- limits -------------------------------------------------------------------------------------------------

FOREVER = "WITH RECURSIVE x AS (SELECT 1::BIGINT AS a UNION ALL SELECT (a * 3 + 1) % 1000003 FROM x) SELECT max(a) FROM x"


def test_time_is_limited(wh: tw.Warehouse) -> None:
    began = time.monotonic()
    with pytest.raises(tw.LimitError, match=r"longer than its timeout of 0\.2 s"):
        wh.sql(FOREVER, timeout=0.2).to_arrow()
    assert time.monotonic() - began < 5
    with pytest.raises(tw.QueryError, match="timeout is a number of seconds"):
        wh.sql("SELECT 1", timeout="soon")  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["", "WHERE list_sum(range(range % 3)) IS DISTINCT FROM -1"], ids=["here", "apart"])
def test_the_time_of_the_caller_does_not_count(wh: tw.Warehouse, clock: HandClock, where: str) -> None:
    seen = 0
    for batch in wh.sql(f"SELECT * FROM range(300000) {where}", timeout=60):
        clock.advance(100)
        seen += batch.num_rows
    assert clock.seconds > 200 and seen == 300000


def test_settings_limit_statements_too(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh", settings=tw.Settings(query_seconds=0.2, query_rows=5)) as wh:
        wh.create_table("taxi", TAXI, time="ts", key="id").insert(taxi_rows(0, 1000))
        counted = wh.sql("SELECT count(*) AS n FROM taxi", timeout=60)
        assert counted.to_pylist() == [{"n": 1000}]  # what is scanned is not what is returned
        with pytest.raises(tw.LimitError, match="more than 5 rows"):
            wh.sql("SELECT * FROM taxi", timeout=60).to_arrow()
        assert len(wh.sql("SELECT * FROM taxi", max_rows=1000, timeout=60)) == 1000
        with pytest.raises(tw.LimitError, match="timeout"):
            wh.sql(FOREVER).to_arrow()


def test_no_limits_at_all(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh", settings=tw.Settings(query_bytes=None)) as wh:
        assert wh.sql("SELECT sum(i) AS n FROM range(100000) t(i)").to_pylist() == [{"n": 4999950000}]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("statement", [FOREVER, "SELECT count(*) FROM taxi a, taxi b, taxi c, taxi d WHERE a.id + b.id + c.id + d.id < 0"])
def test_ctrl_c_ends_a_statement(wh: tw.Warehouse, statement: str) -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
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
    assert all(len(idle) <= 4 for database in _databases.items for idle in database._idle.values())
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


def test_a_process_ends_in_silence(tmp_path: Path) -> None:
    """DuckDB complains loudly about connections that are left when a process ends. Forked, so that all is imported only once."""
    code = f"""
import os, sys, tidewheel as tw, tidewheel.sql.run_statement, tidewheel.engine.local_engine
for number, use in enumerate(("r", "r.schema", "r.reader()", "next(iter(r))", "r.to_arrow()")):
    child = os.fork()
    if not child:
        wh = tw.open({str(tmp_path)!r} + f"/wh{{number}}")
        r = wh.sql("SELECT * FROM range(10)")
        kept = eval(use)
        break
    if os.waitpid(child, 0)[1]:
        sys.exit(f"a process that keeps {{use}} fails")
else:
    print("all ended")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("all ended\n", "")


# ---- versions -----------------------------------------------------------------------------------------------


def test_a_result_shows_the_rows_of_its_moment(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT count(*) AS n FROM taxi")
    wh.table("taxi").insert(taxi_rows(2000, 500))
    wh.table("taxi").flush()
    assert result.to_pylist() == [{"n": 2000}] and wh.sql("SELECT count(*) AS n FROM taxi").to_pylist() == [{"n": 2500}]
    assert result.to_pylist() == [{"n": 2000}]
    assert isinstance(result, DirectResult) and result.generations == {"taxi": result.generation}


def test_all_tables_are_read_at_one_moment(wh: tw.Warehouse) -> None:
    """Whoever inserts into one table and then into the other is never seen the other way round, nor far behind."""
    first, second = (wh.create_table(name, TAXI, time="ts", key="id") for name in ("first", "second"))
    over = threading.Event()

    def insert() -> None:
        n = 0
        while not over.is_set():
            first.insert(taxi_rows(n, 1))
            second.insert(taxi_rows(n, 1))
            n += 1

    thread = threading.Thread(target=insert)
    thread.start()
    try:
        for _ in range(examples(40)):
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
    said = wh.sql("EXPLAIN SELECT count(*) FROM taxi WHERE id BETWEEN 3 AND 4 AND v > ? HAVING median(v) > 0", [5]).to_pylist()
    assert [row["explain_key"] for row in said] == ["tidewheel: taxi", "duckdb"]
    ours, theirs = (row["explain_value"] for row in said)
    assert "table taxi, generation 2" in ours and "key codes  3 .. 4" in ours and "regions    2 read of 2" in ours
    assert "chunk" in ours and "live tree" in ours and "Aggregate" in theirs
    assert ours.endswith("answered   by DuckDB, from the rows of this scan: it has median(…) beside its groups, which is not made here")
    both = wh.sql("explain analyze select a.v from taxi a join taxi b using (id) where a.id = 3 and b.id = 3").to_pylist()
    assert [row["explain_key"] for row in both] == ["tidewheel: taxi", "tidewheel: taxi", "duckdb"]
    assert all("returned   200 rows" in row["explain_value"] for row in both[:2])
    with pytest.raises(tw.QueryError, match="there is no table 'taxy'"):
        wh.sql("EXPLAIN SELECT * FROM taxy")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT v FROM taxi WHERE id = 3", "  filtered   by the index alone: every row within the bounds"),
        ("SELECT count(*) FROM taxi WHERE id = 3 AND v > 5", "  filtered   by us, where the rows lie\n  totals     count_star(): by us"),
        ("SELECT id, v FROM taxi ORDER BY v DESC, 1 LIMIT 3 OFFSET 2", '  ordered    by us: "v" desc, "id", the first 5 rows alone'),
        ("SELECT id % 3 AS m, max(v) FROM taxi GROUP BY m", '  grouped    by us: by ("id" % 3); max("v")'),
        (
            "SELECT id, count(*) FROM taxi GROUP BY id ORDER BY 2 DESC LIMIT 1",
            "  grouped    by us: by id; count(*)\n  ordered    by us: count(*) desc, the first 1 rows alone",
        ),
        ("SELECT DISTINCT ON (id) id, v FROM taxi ORDER BY id, ts DESC", "  last rows  of each key: by us, from the newest leaves on"),
    ],
)
def test_explain_of_what_needs_no_duckdb(wh: tw.Warehouse, statement: str, told: str) -> None:
    (plan,) = wh.sql(f"EXPLAIN {statement}").to_pylist()
    assert plan["explain_key"] == "tidewheel: taxi" and told in plan["explain_value"]
    assert plan["explain_value"].endswith("  answered   without DuckDB, which only parsed the statement")
    (cost,) = wh.sql(f"EXPLAIN ANALYZE {statement}").to_pylist()
    assert f"returned   {len(wh.sql(statement))} rows" in cost["explain_value"] and told in cost["explain_value"]


def test_explain_of_what_duckdb_makes_of_groups(wh: tw.Warehouse) -> None:
    statement = "SELECT id, avg(v) / 10 AS x FROM taxi WHERE v > 5 GROUP BY id HAVING count(*) > 3"
    (plan,) = wh.sql(f"EXPLAIN {statement}").to_pylist()
    assert "  filtered   by us, where the rows lie\n  grouped    by us: by id; avg(" in plan["explain_value"]
    assert plan["explain_value"].endswith(
        "  answered   by DuckDB, over these groups: it has an expression of aggregates, or an unknown one"
    )


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("SELECT v + 1 FROM taxi", "it selects expressions"),
        ("SELECT b.v FROM taxi JOIN taxi b USING (id)", "something else than one table"),
        ("SELECT v FROM taxi WHERE v + 1 > 5", "its condition compares something else than a column with a constant"),
        ("SELECT v FROM taxi WHERE abs(v) = 1 OR lower('a') = 'a'", "its condition"),
        ("SELECT id, median(v) FROM taxi GROUP BY id", "it has median(…) beside its groups, which is not made here"),
        ("SELECT id, v FROM taxi QUALIFY rank() OVER (ORDER BY v) = 1", "it has QUALIFY"),
        ("SELECT v, sum(v) OVER () FROM taxi", "it selects expressions"),
    ],
)  # fmt: skip
def test_explain_says_why_duckdb_answers(wh: tw.Warehouse, statement: str, why: str) -> None:
    *ours, duck = wh.sql(f"EXPLAIN {statement}").to_pylist()
    assert duck["explain_key"] == "duckdb" and ours
    assert all(why in plan["explain_value"].rpartition("answered   by DuckDB")[2] for plan in ours)


def test_plans(wh: tw.Warehouse) -> None:
    result = wh.sql("SELECT v FROM taxi WHERE id IN (3, 7)")
    result.to_arrow()
    assert result.plan.key_intervals == ((3, 3), (7, 7)) and len(result.plan.subqueries) == 4
    assert result.explain().count("table taxi") == 2


def test_the_ends_of_a_table_come_from_the_index(wh: tw.Warehouse) -> None:
    taxi = wh.table("taxi")
    statement = "SELECT count(*), min(ts), Max(taxi.TS) AS last, max(id), count(*) AS n FROM taxi"
    slow = statement + " WHERE v IS NOT NULL"

    def check() -> None:
        result = wh.sql(statement)
        assert result.to_pylist() == wh.sql(slow).to_pylist()
        assert result.stats.regions_read == 0 and result.generation == taxi.state().generation

    check()
    taxi.insert(pa.table([[-7], pa.array([5], pa.timestamp("us")), [1.0], ["x"]], schema=TAXI))
    check()
    taxi.replace(TAXI.empty_table(), time=(DAY, DAY + dt.timedelta(seconds=1500)))  # what is hidden is still in its chunk
    check()
    wh.create_table("nothing", TAXI, time="ts", key="id")
    assert wh.sql("SELECT count(*) AS n, max(ts) AS t FROM nothing").to_pylist() == [{"n": 0, "t": None}]
    assert wh.sql("SELECT median(v) AS v FROM taxi").stats.regions_read == 0  # not read yet
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
