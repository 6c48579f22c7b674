"""SQL and datasets in a process that is attached to the owner: the same statements have the same answers, errors and system tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import tidewheel as tw
from tests.integration.owners import OwnerProcess
from tests.property.sql_statements import Statements
from tests.property.test_sql_conformance import answers
from tests.sql_tables import Twin, create, fill
from tidewheel.cluster.attached import AttachedEngine


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    root = (tmp_path_factory.mktemp("attached") / "wh").resolve()
    with OwnerProcess() as owner:
        owner.open(root, leaf_rows=32)
        with tw.open(root) as wh:
            assert isinstance(wh._engine, AttachedEngine)
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


def test_statements_have_the_answers_of_duckdb(twin: Twin) -> None:
    statements = Statements(21)
    for _ in range(250):
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
    for name in ("tables", "columns", "chunks", "partitions", "metrics", "queries", "rejects", "settings", "recovery"):
        wh.sql(f"SELECT * FROM system.{name}").to_arrow()


def test_several_tables_are_read_at_one_moment(twin: Twin) -> None:
    wh = twin.wh
    first, second = (
        wh.create_table(name, twin.rows["flows"].schema, time=tw.epoch("ms", "ms"), key="bytes") for name in ("first", "second")
    )
    over = threading.Event()

    def insert() -> None:
        n = 0
        while not over.wait(0.01):
            n += 1
            for table in (first, second):
                table.insert([{"src": "a", "ms": n, "bytes": n}])

    thread = threading.Thread(target=insert)
    thread.start()
    try:
        for _ in range(30):
            a, b = wh.sql("SELECT (SELECT count(*) FROM first) AS a, (SELECT count(*) FROM second) AS b").to_pylist()[0].values()
            assert 0 <= a - b <= 1
    finally:
        over.set()
        thread.join()
        wh.drop_table("first")
        wh.drop_table("second")
