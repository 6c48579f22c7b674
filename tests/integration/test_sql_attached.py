"""SQL and datasets in a process that is attached to the owner: the same statements have the same answers, errors and system tables."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import examples
from tests.integration.owners import OwnerProcess
from tests.property.sql_statements import Statements
from tests.property.test_sql_conformance import answers
from tests.sql_tables import Twin, create, fill, told
from tidewheel.cluster.attached import AttachedEngine
from tidewheel.cluster.attached_result import AttachedResult
from tidewheel.cluster.client import attach
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.cluster.sessions import EXPIRES
from tidewheel.derive.bounds import declared
from tidewheel.engine.operations import CreateDerived
from tidewheel.engine.protocol import Engine
from tidewheel.engine.refresher import refresh
from tidewheel.errors import NotFoundError
from tidewheel.model.delivery import SliceId
from tidewheel.model.derived import RECOMPUTE, SPARK_SQL, Definition, Mode
from tidewheel.model.query import Query
from tidewheel.model.schema import make_spec
from tidewheel.settings import Settings
from tidewheel.sql.dataset import TableDataset
from tidewheel.sql.direct_result import DirectResult
from tidewheel.sql.run_statement import ask
from tidewheel.sql.system import TABLES
from tidewheel.testing.duck_compute import DuckCompute
from tidewheel.testing.probe import Probe, engine_of, listener_of, sessions_of


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    root = (tmp_path_factory.mktemp("attached") / "wh").resolve()
    with OwnerProcess() as owner:
        owner.open(root, leaf_rows=32)
        with tw.open(root) as wh:
            assert not engine_of(wh).owns
            create(wh)
            twin = Twin(wh)
            fill(twin, 5, 1200)
            twin.fill_duckdb()
            yield twin
        owner.close(root)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The warehouse stays open from one test to the next."""
    yield


def test_what_runs_in_a_process_apart_reads_the_owners_rows(twin: Twin) -> None:
    """A function that is not known to be harmless: the statement is run by a third process."""
    wh = twin.wh
    name = wh.tables()[0]
    rows = wh.sql(f'SELECT count(*) AS n FROM "{name}"').to_pylist()[0]["n"]
    assert wh.sql(f'SELECT len(list(1)) AS n FROM "{name}"').to_pylist() == [{"n": rows}]
    with pytest.raises(tw.LimitError, match="memory"):
        wh.sql("SELECT len(flatten(list_transform(range(20000), lambda x: range(20000))))", max_bytes=100 << 20).to_arrow()
    with pytest.raises(tw.LimitError):
        wh.table(name).query(where="len(flatten(list_transform(range(20000), lambda x: range(20000)))) > 1", max_bytes=100 << 20).to_arrow()


def test_statements_have_the_answers_of_duckdb(twin: Twin) -> None:
    statements = Statements(21)
    for _ in range(examples(100)):
        statement = statements.one()
        ours, theirs = answers(twin, statement)
        if isinstance(theirs, str):
            assert isinstance(ours, tw.QueryError), statement
        else:
            assert ours == theirs, statement


def test_a_result_shows_the_rows_of_its_moment(twin: Twin) -> None:
    table = twin.wh.table("flows")
    rows = table.rows
    result = twin.wh.sql("SELECT count(*) AS n FROM flows")
    table.insert([{"src": "10.9.9.9", "ms": 1767225600000, "bytes": 1}])
    table.flush()
    assert result.to_pylist() == [{"n": rows}] and twin.wh.sql("SELECT count(*) AS n FROM flows").to_pylist() == [{"n": rows + 1}]
    assert result.to_pylist() == [{"n": rows}]
    assert table.dataset().count_rows() == rows + 1


@pytest.mark.parametrize(
    "where",
    ["id BETWEEN 3 AND 40", "id < 9 OR id > 40", "id > 5 AND note = 'a'", "id = -7", "ts > '2026-01-01 12:00' AND id IN (3, 5, 8, 13)"],
)
def test_totals_are_made_by_the_owner(twin: Twin, where: str) -> None:
    totals = "count(*), count(note) AS notes, sum(big), min(day) AS d, max(ts) AS last, avg(tiny), min(note)"
    statement = f"SELECT {totals} FROM trips WHERE {where}"
    result = twin.wh.sql(statement)
    assert isinstance(result, DirectResult)
    theirs = twin.duck.sql(statement).to_arrow_table()
    assert result.to_arrow().equals(theirs) and result.to_arrow().equals(theirs)
    with pytest.raises(tw.QueryError, match="too large for a BIGINT"):
        twin.wh.sql("SELECT sum(big)::BIGINT FROM trips").to_arrow()
    with pytest.raises(tw.LimitError, match="timeout"):
        twin.wh.sql(statement, timeout=0).to_arrow()


def test_what_it_prunes_and_explains(twin: Twin) -> None:
    result = twin.wh.sql("SELECT note FROM trips WHERE id = 3")
    result.to_arrow()
    whole = twin.wh.sql("SELECT note FROM trips")
    whole.to_arrow()
    assert 0 < result.stats.leaves_read < whole.stats.leaves_read
    said = twin.wh.sql("EXPLAIN SELECT note FROM trips WHERE id = 3").to_pylist()
    assert "key codes  3 .. 3" in said[0]["explain_value"] and "chunk" in said[0]["explain_value"]


def test_errors_and_limits(twin: Twin) -> None:
    with pytest.raises(tw.QueryError, match=r"there is no table 'trps'. Did you mean 'trips'\?"):
        twin.wh.sql("SELECT * FROM trps")
    with pytest.raises(tw.LimitError, match="timeout"):
        twin.wh.sql("SELECT sum(a.id + b.id + c.id + d.id) FROM trips a, trips b, trips c, trips d", timeout=0.3).to_arrow()
    result = twin.wh.sql("SELECT sum(a.id + b.id + c.id + d.id) FROM trips a, trips b, trips c, trips d")
    threading.Timer(0.3, result.cancel).start()
    began = time.monotonic()
    with pytest.raises(tw.CancelledError):
        result.to_arrow()
    assert time.monotonic() - began < 10


def test_system_tables(twin: Twin) -> None:
    wh = twin.wh
    assert [row["name"] for row in wh.sql("SHOW TABLES").to_pylist()] == ["flows", "nothing", "spots", "trips", "words"]
    assert wh.sql("SELECT sum(rows) AS n FROM system.chunks WHERE table_name = 'trips'").to_pylist()[0]["n"] > 0
    assert {row["table_name"] for row in wh.sql("SELECT DISTINCT table_name FROM system.servers").to_pylist()} > {"trips", "spots"}


def test_statements_that_change_something(twin: Twin) -> None:
    wh = twin.wh
    wh.sql("CREATE TABLE made (id BIGINT, ts TIMESTAMP, note VARCHAR) WITH (time = 'ts', key = 'id')")
    assert wh.sql("INSERT INTO made SELECT id, ts, note FROM trips").to_pylist() == [{"rows": len(twin.rows["trips"])}]
    assert wh.sql("INSERT INTO made (id, ts) VALUES (?, '2026-01-01')", [5]).to_pylist() == [{"rows": 1}]
    with pytest.raises(tw.BadRowsError, match="column 'id': 1 row doesn't fit int64"):
        wh.sql("INSERT INTO made (id, ts) VALUES (1.5, '2026-01-01')")
    same = "SELECT count(*) AS n, sum(id) AS s, count(note) AS notes FROM"
    made, trips = (wh.sql(f"{same} {name}").to_pylist()[0] for name in ("made", "trips"))
    assert made == {"n": trips["n"] + 1, "s": trips["s"] + 5, "notes": trips["notes"]}
    assert wh.sql("DROP TABLE made").to_pylist() == [{"dropped": "made"}] and "made" not in wh.tables()


def test_several_tables_are_read_at_one_moment(twin: Twin) -> None:
    """Two threads insert as fast as they can, each batch into the first table and then into the second; one of them also flushes."""
    wh = twin.wh
    first, second = (
        wh.create_table(name, twin.rows["flows"].schema, time=tw.epoch("ms", "ms"), key="bytes") for name in ("first", "second")
    )
    over = threading.Event()

    def insert(number: int) -> None:
        n = 0
        while not over.is_set():
            n += 1
            batch = [{"src": f"w{number}", "ms": number * 10**9 + n, "bytes": n}]
            for table in (first, second):
                table.insert(batch)
            if number == 1 and n % 50 == 0:
                first.flush()

    threads = [threading.Thread(target=insert, args=[number]) for number in range(2)]
    for thread in threads:
        thread.start()
    statement = """
        SELECT (SELECT count(*) FROM first) AS a, (SELECT count(*) FROM second) AS b, count(*) AS both
        FROM second JOIN first USING (src, bytes)"""
    try:
        seen = []
        for _ in range(40):
            result = wh.sql(statement)
            a, b, both = result.to_pylist()[0].values()
            assert b == both, "what is in the second table was in the first before"
            assert 0 <= a - b <= 2, "of each thread, one row at most is on its way"
            assert result.to_pylist() == [{"a": a, "b": b, "both": both}]
            seen.append(a)
    finally:
        over.set()
        for thread in threads:
            thread.join()
        wh.drop_table("first")
        wh.drop_table("second")
    assert seen == sorted(seen) and seen[-1] > seen[0]


# ---- beside the owner, in one process ------------------------------------------------------------------------


def asked(engine: Engine, statement: str) -> list[dict[str, Any]]:
    return ask(engine, statement, None, perf_counter()).to_pylist()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[OwnedEngine, AttachedEngine]]:
    owner = OwnedEngine(tmp_path.resolve() / "wh", Settings(leaf_rows=64, indexing_servers=2))
    assert listener_of(owner).wait(60)
    client = attach(owner.root)
    try:
        yield owner, client
    finally:
        client.close()
        owner.close()


SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.float64())])


def some(first: int, n: int) -> pa.RecordBatch:
    i = range(first, first + n)
    return pa.record_batch([pa.array(i, pa.int64()), pa.array(i, pa.timestamp("us")), pa.array([k / 2 for k in i])], schema=SCHEMA)


def test_system_tables_are_those_of_the_owner(both: tuple[OwnedEngine, AttachedEngine]) -> None:
    owner, client = both
    for name, key in (("taxi", "id"), ("spots", tw.zorder("id", "v", bounds=(0, 0, 9, 9)))):
        table = Probe(owner.create(make_spec(name, SCHEMA, time="ts", key=key), "error"))
        table.insert(some(0, 5000))
        for batch in range(2):
            part = SliceId("kafka", "run", batch, 0, 0)
            table.stage(part, [some(10_000 * batch, 50)], SCHEMA)
            table.commit_batch("kafka", "run", batch, [part])
            if not batch:
                table.flush()
        table.insert([{"id": None, "ts": 1, "v": 0.0}], "p", "reject")
    bounds = (("spots", declared("0").to_json()),)
    definition = Definition(SPARK_SQL, "SELECT id, ts, v FROM spots WHERE v > 1", "", (Mode(RECOMPUTE, "always right"),))
    owner.do(CreateDerived(make_spec("fast", SCHEMA, time="ts", key="id"), definition, bounds, "error"))
    duck = DuckCompute()
    refresh(owner, duck)
    duck.close()
    for name in TABLES:
        if name != "queries":
            mine, theirs = asked(owner, f"SELECT * FROM system.{name}"), asked(client, f"SELECT * FROM system.{name}")
            assert mine == theirs and (mine or name == "recovery"), name
    assert asked(client, "SELECT last_batch, rows, flushed FROM system.streams WHERE table_name = 'taxi'") == [
        {"last_batch": 1, "rows": 50, "flushed": False}
    ]


def test_acknowledged_rows_are_seen_while_a_load_is_under_way(both: tuple[OwnedEngine, AttachedEngine]) -> None:
    owner, _ = both
    table = Probe(owner.create(make_spec("taxi", SCHEMA, time="ts", key="id"), "error"))
    other = Probe(owner.create(make_spec("other", SCHEMA, time="ts", key="id"), "error"))
    table.insert(some(0, 10))
    with table.publisher.reserve():
        table.insert(some(10, 5))
        other.insert(some(0, 1))
        for engine in both:
            assert asked(engine, "SELECT count(*) AS n FROM taxi") == [{"n": 15}]
            assert asked(engine, "SELECT count(*) AS n, count(DISTINCT taxi.id) AS d FROM taxi, other") == [{"n": 15, "d": 15}]
            assert engine.table("taxi").pinned().query(Query(key=(12, 13))).to_pylist() == some(12, 2).to_pylist()


def test_what_is_pinned_is_let_go_of(both: tuple[OwnedEngine, AttachedEngine]) -> None:
    owner, client = both
    table = Probe(owner.create(make_spec("taxi", SCHEMA, time="ts", key="id"), "error"))
    table.insert(some(0, 20_000))
    sessions = sessions_of(owner)
    result = ask(client, "SELECT sum(v) AS s FROM taxi WHERE id < 15000", None, perf_counter())
    dataset = TableDataset(table.spec, client.table("taxi").pinned)
    assert sessions.results > 0
    before = result.to_pylist()
    for number in range(50):
        asked(client, f"SELECT v FROM taxi WHERE id = {number}")
    assert sessions.results < 10, "the versions of a statement go with the next one"
    table.replace([], (None, None))
    assert result.to_pylist() == before and dataset.count_rows() == 0
    client.close()
    assert result.to_pylist() == before, "a result can be read after the warehouse was closed"
    del result
    give_up = time.monotonic() + 10
    while sessions.results and time.monotonic() < give_up:
        gc.collect()
        time.sleep(0.01)
    assert sessions.results == 0


def test_versions_are_held_while_one_of_their_results_is_read(
    both: tuple[OwnedEngine, AttachedEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, client = both
    Probe(owner.create(make_spec("taxi", SCHEMA, time="ts", key="id"), "error")).insert(some(0, 20_000))
    sessions = sessions_of(owner)
    now = time.monotonic()
    for held in sessions._sessions.values():
        monkeypatch.setattr(held, "clock", SimpleNamespace(monotonic=lambda: now))
    (table,) = client.versions(["taxi"])
    result = table.query(Query())
    for _ in range(4):
        now += 0.4 * EXPIRES
        assert sum(batch.num_rows for batch in result) == 20_000
        for session in list(sessions._sessions):
            sessions.expire(session)
    assert len(table.query(Query(key=(0, 9)))) == 10
    now += 1.1 * EXPIRES
    for session in list(sessions._sessions):
        sessions.expire(session)
    with pytest.raises(NotFoundError, match="not held any more"):
        table.query(Query())


def test_tables_that_are_not_there(both: tuple[OwnedEngine, AttachedEngine]) -> None:
    owner, _ = both
    owner.create(make_spec("taxi", SCHEMA, time="ts", key="id"), "error")
    for engine in both:
        with pytest.raises(NotFoundError, match="there is no table 'x'"):
            engine.versions(["taxi", "x"])
        assert asked(engine, "WITH x AS (SELECT 1 AS a) SELECT a FROM x") == [{"a": 1}]
        assert asked(engine, "WITH taxi AS (SELECT id FROM main.Taxi) SELECT count(*) AS n FROM taxi, TAXI AS t") == [{"n": 0}]


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("SELECT id FROM taxi WHERE v >= 2499", 2),
        ("SELECT id FROM taxi WHERE v >= 2499 AND id < 4999", 1),
        ("SELECT id FROM taxi WHERE v IN (3, 4.5, 7777) OR v IS NULL", 2),
        ("SELECT count(*) FROM taxi WHERE v < 5", 1),
        ("SELECT sum(id) FROM taxi WHERE v < 100", 1),
        ("SELECT sum(id) FROM taxi WHERE NOT v < 2495", 1),
        ("SELECT avg(v), max(ts) AS last, count(*) FROM taxi WHERE v BETWEEN 3 AND 2000 OR id = 7", 1),
        ("SELECT min(v), sum(id) FROM taxi WHERE (id < 10 OR id > 4900) AND v <> 3", 2),  # one for each interval of keys
        ("SELECT sum(id) FROM taxi WHERE v > 100000", 1),
        ("SELECT sum(id) FROM taxi WHERE v > 5 LIMIT 0", 0),
        ("SELECT max(a.id) FROM taxi a JOIN taxi b USING (id) WHERE a.v < 1 AND b.v < 2", 6),
        ("SELECT len(list(id)) FROM taxi WHERE v < 3", 6),  # in a process apart
        ("SELECT id FROM taxi WHERE " + " OR ".join(f"v = {n} AND id < {n + 4}" for n in range(400)), 4),
        ("SELECT id FROM taxi WHERE " + "NOT (v > 3 OR " * 24 + "v = 1" + ")" * 24, 1),
    ],
)
def test_rows_that_do_not_satisfy_a_condition_do_not_cross(
    both: tuple[OwnedEngine, AttachedEngine], monkeypatch: pytest.MonkeyPatch, statement: str, rows: int
) -> None:
    """More are read than come with an answer, in a tree and in chunks."""
    owner, client = both
    table = Probe(owner.create(make_spec("taxi", SCHEMA, time="ts", key="id"), "error"))
    table.insert(some(0, 4000))
    table.flush()
    table.insert(some(4000, 1000))
    crossed = 0
    read = AttachedResult._batches

    def counted(result: AttachedResult, *how: Any) -> Iterator[pa.RecordBatch]:
        nonlocal crossed
        for batch in read(result, *how):
            crossed += batch.num_rows
            yield batch

    monkeypatch.setattr(AttachedResult, "_batches", counted)
    assert asked(client, statement) == asked(owner, statement)
    assert crossed == rows


def test_the_last_minutes_and_small_sides_use_the_index(twin: Twin) -> None:
    """As in the owner: see tests/unit/test_sql_narrowing.py."""
    table = twin.wh.table("trips")
    newest = table.query(columns=["ts"], order_by="ts desc", limit=1).to_pylist()[0]["ts"]
    whole = twin.wh.sql("SELECT id FROM trips")
    whole.to_arrow()
    few = whole.stats.leaves_read / 4
    for where, most in (
        (
            "ts > (SELECT max(ts) FROM trips) - INTERVAL '5 minutes'",
            whole.stats.leaves_read + few,
        ),  # the owner makes the total, in one pass
        (f"ts > TIMESTAMPTZ '{newest}+00' - INTERVAL '5 minutes'", few),
        (f"date_trunc('minute', ts) = date_trunc('minute', TIMESTAMP '{newest}')", few),
        ("ts > now()", few),
    ):
        result = twin.wh.sql(f"SELECT id, ts FROM trips WHERE {where}")
        ours, theirs = result.to_arrow(), twin.duck.sql(f"SELECT id, ts FROM trips WHERE {where}").to_arrow_table()
        assert told(ours) == told(theirs), where
        assert result.stats.leaves_read <= most, where
    found = table.query(where=f"ts > TIMESTAMPTZ '{newest}+00' - INTERVAL '5 minutes'", columns=["id"])
    assert len(found.to_arrow()) >= 1 and found.stats.leaves_read <= few
