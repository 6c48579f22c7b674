"""Groups that are a part of a statement, joined or filtered: DuckDB's answer, over groups that are ours."""

from __future__ import annotations

import datetime as dt
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import check_nothing_left
from tidewheel.cluster.client import attach
from tidewheel.sql import answer
from tidewheel.sql.run_statement import ask

DAY = dt.datetime(2026, 1, 1)
ROWS = [{"k": n % 23, "ts": DAY + dt.timedelta(minutes=n), "i": n % 11 - 5, "q": n % 17 / 4, "c": f"c{n % 5}"} for n in range(700)]
NAMES = [{"k": n, "ts": DAY, "name": f"n{n % 4}"} for n in range(30)]


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Looked at once: the warehouse stays open from one test to the next."""
    yield
    check_nothing_left()


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "_WORTH", 0)


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tw.Warehouse, Any, Any]]:
    root = tmp_path_factory.mktemp("within") / "wh"
    with tw.open(root, settings=tw.Settings(leaf_rows=64)) as wh, duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        for name, given in (("t", ROWS), ("names", NAMES)):
            rows = pa.Table.from_pylist(given)
            table = wh.create_table(name, rows.schema, time="ts", key="k")
            table.insert(rows.slice(0, len(rows) // 2))
            table.flush()
            table.insert(rows.slice(len(rows) // 2))
            duck.register("held", rows)
            duck.execute(f"CREATE TABLE {name} AS SELECT * FROM held")
        other = attach(root)
        yield wh, other, duck
        other.close()


def compare(beside: tuple[tw.Warehouse, Any, Any], text: str, values: Any = None) -> tuple[Any, list[dict[str, str]]]:
    wh, other, duck = beside
    theirs = duck.sql(text, params=values).to_arrow_table()
    result = wh.sql(text, values)
    for ours in (result.to_arrow(), result.to_arrow(), ask(other, text, values, 0.0).to_arrow()):
        assert ours.schema.names == theirs.schema.names and ours.schema.types == theirs.schema.types
        assert sorted(map(repr, ours.to_pylist())) == sorted(map(repr, theirs.to_pylist()))
    return result, wh.sql(f"EXPLAIN {text}", values).to_pylist()


G = "SELECT k, count(*) AS n, sum(i) AS s FROM t GROUP BY k"


@pytest.mark.parametrize(
    ("text", "values", "groups"),
    [
        (f"SELECT * FROM ({G}) WHERE n > 30", None, 1),
        (f"SELECT g.k, n, name FROM ({G}) g JOIN names USING (k) WHERE n > 30", None, 1),
        (f"WITH g AS ({G}) SELECT name, sum(n) FROM g JOIN names ON g.k = names.k GROUP BY name", None, 1),
        (f"WITH g AS ({G}) SELECT s, n / 2 FROM g ORDER BY n DESC, k LIMIT 5", None, 1),
        (f"SELECT a.k, a.n, b.m FROM ({G}) a LEFT JOIN (SELECT k, max(q) AS m FROM t WHERE i > 4 GROUP BY k) b ON a.k = b.k", None, 2),
        (f"SELECT avg(n), max(s) FROM ({G} HAVING count(*) > 30)", None, 1),
        ("SELECT h, n FROM (SELECT date_trunc('hour', ts) AS h, count(*) AS n FROM t GROUP BY h) WHERE n <> 60", None, 1),
        ("SELECT * FROM (SELECT k, avg(q) / 2 AS r, rank() OVER (ORDER BY count(*), k) AS p FROM t GROUP BY k) WHERE p < 5", None, 1),
        (f"SELECT * FROM ({G} ORDER BY n DESC, k LIMIT 10) g WHERE k < 5", None, 1),
        ("SELECT * FROM (SELECT k, count(*) AS n FROM t WHERE i > ? GROUP BY k) WHERE n > ?", [0, 12], 1),
        ("SELECT * FROM (SELECT k, count(*) AS n FROM t WHERE i > $a GROUP BY k HAVING count(*) > $b) WHERE n <> $a", {"a": 1, "b": 9}, 1),
        ("SELECT * FROM (SELECT k, count(*) AS n FROM t WHERE ts > now() - INTERVAL '100 years' GROUP BY k) WHERE n > 30", None, 1),
        ("SELECT * FROM (SELECT count(*) AS n, max(q) AS m FROM t WHERE i > 3), names", None, 1),
        # what is said of the keys is said of the rows
        (f"SELECT * FROM ({G}) g WHERE g.k = 7", None, 1),
        (f"SELECT g.n, name FROM ({G}) g JOIN names ON g.k = names.k WHERE g.k IN (3, 4) AND g.n > 3", None, 1),
        ("SELECT * FROM (SELECT k AS x, count(*) AS n FROM t GROUP BY k) WHERE x BETWEEN 3 AND 5", None, 1),
        # or else DuckDB is to do it
        (f"SELECT * FROM ({G}) g LEFT JOIN names ON g.k = names.k WHERE g.k = 7", None, 0),
        (f"SELECT * FROM ({G}) g WHERE g.k + 1 = 7", None, 0),
        (f"SELECT k, n FROM ({G}) g JOIN names USING (k) WHERE k = 7", None, 0),
        (f"WITH g AS ({G}) SELECT a.n FROM g a, g b WHERE a.n = b.s", None, 0),
        ("SELECT * FROM (SELECT k, median(q) AS m FROM t GROUP BY k) WHERE m > 1", None, 0),
        ("SELECT * FROM (SELECT k, q FROM t) WHERE q > 4", None, 0),
        ("WITH t AS (SELECT 1 AS k) SELECT * FROM (SELECT k, count(*) AS n FROM t GROUP BY k) WHERE n > 0", None, 0),
        ("WITH g(a, b) AS (SELECT k, count(*) FROM t GROUP BY k) SELECT a FROM g WHERE b > 30", None, 0),
        ("SELECT a FROM (SELECT k, count(*) FROM t GROUP BY k) AS g(a, b) WHERE b > 30", None, 0),
        ("SELECT names.k, n FROM names, (SELECT count(*) AS n FROM t WHERE t.k = names.k)", None, 0),
    ],
)
def test_groups_within(beside: tuple[tw.Warehouse, Any, Any], text: str, values: Any, groups: int) -> None:
    result, plans = compare(beside, text, values)
    told = "  answered   by DuckDB, over these groups: they are a part of the statement"
    ours = [plan for plan in plans if told in plan["explain_value"]]
    assert len(ours) == groups and plans[-1]["explain_key"] == "duckdb"
    assert all("  grouped    by us: " in plan["explain_value"] or "  totals     " in plan["explain_value"] for plan in ours)
    assert sum("t" in scan.spec.name for scan in result.before) >= groups
    costs = beside[0].sql(f"EXPLAIN ANALYZE {text}", values).to_pylist()
    assert len([one for one in costs if told in one["explain_value"]]) == groups


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM (SELECT count(*) AS x, k AS x FROM t GROUP BY k) g WHERE x > 26",
        "SELECT * FROM (SELECT k, i AS k, count(*) FROM t GROUP BY ALL) g WHERE g.k > 4",
        "SELECT * FROM (SELECT i AS K, k, count(*) FROM t GROUP BY ALL) g WHERE g.k > 3",
        "WITH g AS (SELECT i AS x, k AS x, count(*) FROM t GROUP BY ALL) SELECT * FROM g WHERE x = 3",
        "SELECT g.x, name FROM (SELECT i AS x, k AS x, count(*) FROM t GROUP BY ALL) g JOIN names ON g.x = names.k WHERE g.x = 3",
        'SELECT * FROM (SELECT count(*), k AS "count_star()" FROM t GROUP BY k) g WHERE "count_star()" > 26',
        'SELECT * FROM (SELECT k AS "k_1", i AS k, i AS k, count(*) FROM t GROUP BY ALL) g WHERE k_1 = 3',
        'SELECT * FROM (SELECT i AS k, i AS k, k AS "k_1", count(*) FROM t GROUP BY ALL) g WHERE k_1 = 3',
        'SELECT * FROM (SELECT sum(i) AS "k:1", sum(i) AS x, k AS "x_1", max(q) AS x FROM t GROUP BY k) g WHERE x_1 = 3',
    ],
)
def test_columns_of_one_name(beside: tuple[tw.Warehouse, Any, Any], text: str) -> None:
    compare(beside, text)


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        (f"SELECT g.n, b.name FROM ({G}) g JOIN names b ON g.k = b.k WHERE b.k = 5", 0),
        (f"SELECT g.n, b.name FROM ({G}) g JOIN names b ON b.k = g.k AND b.k = 5", 0),
        (f"SELECT g.n, b.name FROM ({G}) g JOIN names b USING (k) WHERE b.k = 5", 0),
        (f"SELECT g.n, b.name FROM ({G}) g NATURAL JOIN names b WHERE b.name = 'n1'", 0),
        (f"SELECT g.n, b.name FROM names b LEFT JOIN ({G}) g ON g.k = b.k WHERE b.k = 5", 0),
        (f"SELECT g.n, b.name FROM names b, ({G}) g WHERE g.k = b.k AND b.k = 5", 0),
        (f"SELECT a.n, b.s FROM ({G}) a JOIN ({G}) b ON a.k = b.k WHERE b.k = 5", 1),
        (f"SELECT g.n, b.name FROM ({G}) g JOIN names b ON g.k = b.k WHERE g.n > 30", 1),
        (f"SELECT g.n, b.name FROM ({G}) g JOIN names b ON g.k = b.k", 1),
    ],
)
def test_conditions_that_reach_the_keys_through_a_join(beside: tuple[tw.Warehouse, Any, Any], text: str, groups: int) -> None:
    compare(beside, text)
    assert sum(scan.spec.name == "t" for scan in beside[0].sql(text).before) == groups


def test_no_more_is_read_than_duckdb_would(beside: tuple[tw.Warehouse, Any, Any]) -> None:
    wh = beside[0]
    one, all_ = wh.sql(f"SELECT * FROM ({G}) g WHERE g.k = 7"), wh.sql(f"SELECT * FROM ({G}) g WHERE g.n > 7")
    one.to_arrow(), all_.to_arrow()
    assert one.stats.leaves_read < all_.stats.leaves_read


def test_groups_of_few_rows_are_left_to_duckdb(beside: tuple[tw.Warehouse, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for worth, groups in ((700, 1), (701, 0)):
        monkeypatch.setattr(answer, "_WORTH", worth)
        assert len(beside[0].sql(f"SELECT * FROM ({G}) WHERE n > 30").before) == groups
    monkeypatch.setattr(answer, "_WORTH", 600)
    assert not beside[0].sql(f"SELECT * FROM ({G}) g WHERE g.k = 7").before


@pytest.mark.parametrize("values", [[], [1, 2], None])
def test_the_wrong_number_of_parameters_is_told(beside: tuple[tw.Warehouse, Any, Any], values: Any) -> None:
    with pytest.raises(tw.QueryError, match=r"(?i)parameter"):
        beside[0].sql("SELECT * FROM (SELECT k, count(*) AS n FROM t WHERE i > ? GROUP BY k) WHERE n > 3", values).to_arrow()


@pytest.mark.parametrize("text", [f"SELECT * FROM ({G}) WHERE n > 3", "SELECT k, avg(q) / 2 FROM t GROUP BY k"])
def test_a_result_that_nobody_reads_is_let_go_of(beside: tuple[tw.Warehouse, Any, Any], text: str) -> None:
    result = beside[0].sql(text)
    seen = weakref.ref(result)
    del result
    gc.collect()
    assert seen() is None


def test_limits_and_cancelling(beside: tuple[tw.Warehouse, Any, Any]) -> None:
    wh, text = beside[0], f"SELECT * FROM ({G}) WHERE n > 3"
    with pytest.raises(tw.LimitError, match="more than 5 rows"):
        wh.sql(text, max_rows=5).to_arrow()
    with pytest.raises(tw.LimitError, match="timeout"):
        wh.sql(text, timeout=0).to_arrow()
    result = wh.sql(text)
    result.cancel()
    with pytest.raises(tw.CancelledError):
        result.to_arrow()
