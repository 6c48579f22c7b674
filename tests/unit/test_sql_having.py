"""HAVING, and what else a statement does with groups that are ours: DuckDB's answer, and who made it."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import check_nothing_left
from tidewheel.cluster.client import attach
from tidewheel.sql import answer, rest_of_groups, statement_cache
from tidewheel.sql.direct_result import DirectResult
from tidewheel.sql.run_statement import ask

DAY = dt.datetime(2026, 1, 1)
SCHEMA = pa.schema(
    [
        ("k", pa.int64()), ("ts", pa.timestamp("us")), ("i", pa.int32()), ("q", pa.float64()), ("f", pa.float32()), ("c", pa.string()),
        ("ok", pa.bool_()), ("d", pa.decimal128(10, 2)),
    ]
)  # fmt: skip
ROWS = [
    {
        "k": n % 23, "ts": DAY + dt.timedelta(minutes=n), "i": None if n % 7 == 0 else n % 11 - 5,
        "q": None if n % 13 == 0 else math.nan if n % 101 == 0 else n % 17 / 4, "f": n % 5 / 10,
        "c": None if n % 23 == 4 else ("", "ulm", "bonn", "köln")[n % 23 % 4], "ok": None if n % 5 == 0 else n % 3 == 0,
        "d": Decimal(n % 9) / 4,
    }
    for n in range(1, 700)
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Looked at once: the warehouse stays open from one test to the next."""
    yield
    check_nothing_left()


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tw.Warehouse, Any, Any]]:
    """Half in chunks, half in memory; the engine of a process that is attached; and DuckDB with the same rows."""
    root = tmp_path_factory.mktemp("having") / "wh"
    with tw.open(root, settings=tw.Settings(leaf_rows=64)) as wh, duckdb.connect() as duck:
        rows = pa.Table.from_pylist(ROWS, SCHEMA)
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(rows.slice(0, 350))
        table.flush()
        table.insert(rows.slice(350))
        duck.execute("SET TimeZone = 'UTC'")
        duck.register("held", rows)
        duck.execute("CREATE TABLE t AS SELECT * FROM held")
        other = attach(root)
        yield wh, other, duck
        other.close()


def shown(table: pa.Table) -> list[str]:
    return [repr(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def compare(beside: tuple[tw.Warehouse, Any, Any], text: str, values: Any = None) -> tuple[Any, str]:
    """The result, here, of a statement that has DuckDB's answer, here and attached; and what EXPLAIN says of it."""
    wh, other, duck = beside
    theirs = duck.sql(text, params=values).to_arrow_table()
    result = wh.sql(text, values)
    for ours in (result.to_arrow(), ask(other, text, values, 0.0).to_arrow()):
        assert ours.schema.names == theirs.schema.names and ours.schema.types == theirs.schema.types
        assert (shown(ours) if " ORDER BY " in text else sorted(shown(ours))) == (
            shown(theirs) if " ORDER BY " in text else sorted(shown(theirs))
        )
    told = wh.sql(f"EXPLAIN {text}", values).to_pylist()[0]["explain_value"]
    return result, told


OURS = [
    "count(*) > 30", "30 < count(*)", "count(*) BETWEEN 10 AND 30", "NOT count(*) > 30", "count(*) IN (30, 31)", "n > 30",
    "n > 30 OR q1 < 2", "count(*) > 3 AND (min(i) IS NULL OR max(i) = 5)", "sum(i) > 2", "sum(i) = -3", "sum(i)::BIGINT < 0",
    "avg(q) > 2", "avg(q) >= 1.875", "max(q) > 3.9", "max(q) <= 4", "min(ts) < '2026-01-01 00:10'",
    "max(ts) >= TIMESTAMP '2026-01-01 11:35'", "bool_or(ok)", "NOT bool_and(ok)", "bool_or(ok) IS NOT TRUE", "c <> ''",
    "c <> '' AND count(*) > 30", "c IS NULL OR sum(i) > 0", "k < 5", "k IN (1, 2) OR count(*) > 30",
    "k BETWEEN 3 AND 9 AND c LIKE 'b%'", "max(f) > 0.3", "min(f) = 0.1", "count(DISTINCT i) <> 9", "stddev(q) > 1", "sum(q) IS NULL",
    "sum(q) IS DISTINCT FROM 40", "30 = n AND q1 IS NOT NULL",
]  # fmt: skip


@pytest.mark.parametrize("having", OURS)
@pytest.mark.parametrize("end", ["", " ORDER BY q1 DESC NULLS FIRST, k LIMIT 4 OFFSET 1", " ORDER BY sum(i), k DESC"])
def test_having_without_duckdb(beside: tuple[tw.Warehouse, Any, Any], having: str, end: str) -> None:
    what = "SELECT k, c, count(*) AS n, avg(q) AS q1 FROM t WHERE ts > '2026-01-01 00:03' GROUP BY k, c"
    result, told = compare(beside, f"{what} HAVING {having}{end}")
    assert isinstance(result, DirectResult) and told.endswith("  answered   without DuckDB, which only parsed the statement")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("SELECT k, count(*) AS n FROM t GROUP BY k HAVING count(*) > ?", [30]),
        ("SELECT k, count(*) AS n FROM t WHERE i > ? GROUP BY k HAVING avg(q) > ? AND k <> ?", [0, 1.5, 7]),
        ("SELECT c, sum(i) AS s FROM t WHERE k < $most GROUP BY c HAVING sum(i) < $most OR c = $c", {"most": 9, "c": "ulm"}),
        ("SELECT max(q) AS m FROM t HAVING count(*) > 3", None),
        ("SELECT max(q) AS m, count(*) FROM t WHERE k = 99 HAVING count(*) = 0", None),
        ("SELECT k FROM t GROUP BY k HAVING min(c) IS NULL", None),
        (
            "SELECT date_trunc('hour', ts) AS h, count(*) FROM t GROUP BY h HAVING h >= '2026-01-01 03:00' AND count(*) = 60 ORDER BY h",
            None,
        ),
        ("SELECT k % 5 AS m, count(*) AS n FROM t GROUP BY ALL HAVING n > 150 ORDER BY m", None),
        ("SELECT k AS m, count(*) AS n FROM t GROUP BY ALL HAVING m = 3 OR n > 30 ORDER BY m", None),
    ],
)
def test_having_with_parameters_and_of_other_kinds(beside: tuple[tw.Warehouse, Any, Any], text: str, values: Any) -> None:
    result, told = compare(beside, text, values)
    if "min(c)" not in text:  # of texts, DuckDB finds the ends
        assert isinstance(result, DirectResult) and "by DuckDB" not in told


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, avg(q) / 10 AS x FROM t GROUP BY k HAVING count(*) > 30 AND k < 20 ORDER BY k",
        "SELECT k, avg(q) / 10 AS x, count(*) AS n FROM t GROUP BY k HAVING n > 30 ORDER BY k LIMIT 3 OFFSET 2",
        "SELECT k, count(*) FROM t GROUP BY k HAVING avg(q) / 2 > 1 ORDER BY k",
        "SELECT k, sqrt(avg(i * 2) + 100) FROM t GROUP BY k ORDER BY k",
        "SELECT k, sum(q) / nullif(count(q), 0) FROM t GROUP BY k ORDER BY k",
        "SELECT c, ln(count(*)), exp(min(i)), pow(max(i), 2), sign(sum(i)), isnan(max(q)) FROM t GROUP BY c ORDER BY c",
        "SELECT c, concat_ws('-', c, count(*)), strftime(max(ts), '%Y-%m'), count(*) % 7, max(c) FROM t GROUP BY c ORDER BY c",
        "SELECT k, rank() OVER (ORDER BY count(*) DESC, k) AS r FROM t GROUP BY k HAVING count(*) > 30 ORDER BY k",
        "SELECT max(q) / 2 AS h FROM t HAVING count(*) > 3",
    ],
)
def test_what_duckdb_makes_of_groups_that_are_ours(beside: tuple[tw.Warehouse, Any, Any], text: str) -> None:
    result, told = compare(beside, text)
    if "max(c)" not in text:
        assert not isinstance(result, DirectResult) and "  answered   by DuckDB, over these groups: " in told
        assert len(result.before) == 1, "the groups were ours"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT k, median(q) FROM t GROUP BY k HAVING count(*) > 3", "it has median(…) beside its groups, which is not made here"),
        ("SELECT k, i FROM t GROUP BY k, i HAVING sum(d) > 3", "it has sum(…) beside its groups, which is not made here"),
        ("SELECT k, max(k) FROM t WHERE lower(c) = 'ulm' GROUP BY k HAVING max(k) / 2 > 3", "its condition"),
        (
            "SELECT k % 5 AS m, count(*) AS n FROM t GROUP BY ALL HAVING m = 3 OR n > 150",
            "its HAVING says what else GROUP BY ALL groups by",
        ),
        ("SELECT c, count(*) / 2 AS n FROM t GROUP BY ALL HAVING k = 3 OR n > 150", "its HAVING says what else GROUP BY ALL groups by"),
        ("SELECT k, count(*) FROM t GROUP BY k HAVING count(*) > (SELECT 3)", "it has a parameter or a query beside its WHERE"),
    ],
)
def test_explain_says_why_the_groups_are_duckdbs(beside: tuple[tw.Warehouse, Any, Any], text: str, why: str) -> None:
    result, told = compare(beside, text)
    assert not isinstance(result, DirectResult) and not result.before
    assert why in told.rpartition("answered   by DuckDB, from the rows of this scan: ")[2]


# ---- what time it is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("SELECT k, count(*) AS n FROM t WHERE ts > now() - INTERVAL '100 years' GROUP BY k HAVING count(*) > 30", "without DuckDB"),
        ("SELECT k, avg(q) / 10 AS x FROM t WHERE ts > now() - INTERVAL '100 years' GROUP BY k", "by DuckDB, over these groups"),
        ("SELECT k, now() > max(ts) AS gone FROM t WHERE i > 0 GROUP BY k", "by DuckDB, over these groups"),
        ("SELECT k, count(*) AS n FROM t GROUP BY k HAVING max(ts) > current_date - INTERVAL '100 years'", "by DuckDB, over these groups"),
    ],
)
def test_groups_of_statements_that_ask_the_time(beside: tuple[tw.Warehouse, Any, Any], text: str, ours: str) -> None:
    result, told = compare(beside, text)
    assert ours in told
    assert isinstance(result, DirectResult) or "over these groups" in ours and result.before


def test_nothing_is_read_before_rows_are_asked_for(beside: tuple[tw.Warehouse, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it is known only once its conditions are sharpened, and has no row."""
    monkeypatch.setattr(DirectResult, "_raw", lambda *_: pytest.fail("it was read"))
    text = "SELECT k, count(*) AS n FROM t WHERE ts > now() + INTERVAL '1 hour' GROUP BY k"
    assert isinstance(beside[0].sql(text), DirectResult)


def test_explain_says_that_duckdb_filters(beside: tuple[tw.Warehouse, Any, Any]) -> None:
    wh = beside[0]
    told = wh.sql("EXPLAIN SELECT k FROM t WHERE lower(c) = 'ulm'").to_pylist()[0]["explain_value"]
    assert "  filtered   by the index, and by DuckDB where its plan has a Filter\n" in told
    assert "  filtered   by the index alone\n" in wh.sql("EXPLAIN SELECT k + 1 FROM t").to_pylist()[0]["explain_value"]


# ---- prepared once --------------------------------------------------------------------------------------------


def test_new_numbers_are_not_parsed(beside: tuple[tw.Warehouse, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wh, _, duck = beside
    text = (
        "SELECT c, count(*) AS n FROM t WHERE k > {} GROUP BY c HAVING count(*) > {} AND avg(q) < {} AND c <> '{}' ORDER BY n, c LIMIT {}"
    )
    wh.sql(text.format(1, 2, 3.5, "x", 4)).to_arrow()
    monkeypatch.setattr(statement_cache, "parse", lambda _: pytest.fail("it was parsed"))
    monkeypatch.setattr(statement_cache, "tree_of", lambda _: pytest.fail("it was parsed"))
    for values in ((3, 20, 2.5, "ulm", 2), (0, 31, 9.25, "bonn", 9)):
        result = wh.sql(text.format(*values))
        assert isinstance(result, DirectResult) and result.fetchall() == duck.sql(text.format(*values)).fetchall()


def test_the_rest_is_taken_apart_once(beside: tuple[tw.Warehouse, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wh, _, duck = beside
    text = "SELECT c, avg(q) / 8 AS x FROM t GROUP BY c HAVING count(*) > {} ORDER BY x, c LIMIT {} OFFSET {}"
    wh.sql(text.format(1, 2, 0)).to_arrow()
    monkeypatch.setattr(rest_of_groups, "_taken_apart", lambda *_: pytest.fail("it was taken apart again"))
    for values in ((3, 4, 1), (100, 1, 0), (140, 9, 0)):
        result = wh.sql(text.format(*values))
        assert len(result.before) == 1
        assert repr(result.fetchall()) == repr(duck.sql(text.format(*values)).fetchall())


def test_what_having_says_of_keys_bounds_what_is_read(beside: tuple[tw.Warehouse, Any, Any]) -> None:
    wh = beside[0]
    few, all_ = (wh.sql(f"SELECT k, count(*) AS n FROM t GROUP BY k HAVING count(*) > 3{more}") for more in (" AND k = 7", ""))
    few.to_arrow(), all_.to_arrow()
    assert few.stats.leaves_read < all_.stats.leaves_read and few.to_pylist() == [{"k": 7, "n": 31}]


def test_an_address_is_not_compared_as_a_text(tmp_path: Any) -> None:
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("flows", pa.schema([("src", pa.string()), ("ts", pa.timestamp("us"))]), time="ts", key=tw.ip("src"))
        table.insert([{"src": f"{n}.0.0.1", "ts": DAY} for n in (9, 10, 10, 11)])
        for having in ("src > '10.0.0.0'", "count(*) > 5 OR src > '10.0.0.0'", "count(*) / 2 > 5 OR src > '10.0.0.0'"):
            with pytest.raises(tw.QueryError, match="ip_between"):
                wh.sql(f"SELECT src, count(*) FROM flows GROUP BY src HAVING {having}").to_arrow()
        found = wh.sql("SELECT src, count(*) FROM flows GROUP BY src HAVING ip_in(src, '10.0.0.0/8') OR count(*) > 5").fetchall()
        assert found == [("10.0.0.1", 2)]


# ---- names and depth ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k AS z, i AS k, count(*) AS n FROM t GROUP BY ALL HAVING k > 2",
        "SELECT k, i AS z, count(*) AS i FROM t GROUP BY ALL HAVING i > 2",
        "SELECT k + 1 AS k, k AS z, count(*) AS n FROM t GROUP BY ALL HAVING k > 20",
        "SELECT ok AS k, k AS ok, count(*) AS n FROM t GROUP BY ALL HAVING ok",
        "SELECT max(q) / 2 AS x, c AS k, k AS c FROM t GROUP BY ALL HAVING k = 'ulm'",
        "SELECT * FROM (SELECT k AS z, i AS k, count(*) AS n FROM t GROUP BY ALL HAVING k > 2)",
        "SELECT K AS k, count(*) AS n FROM t GROUP BY ALL HAVING k = 3",
        "SELECT k AS z, sum(i) AS k, avg(q) / 2 AS n FROM t GROUP BY t.k HAVING count(*) > 3 ORDER BY k, z",
        "SELECT k + 1 AS k, max(i) AS x, i FROM t GROUP BY ALL HAVING k + 1 IN (2, 4)",
        "SELECT count(*) / 9 AS x, ok, k % 3 AS X FROM t GROUP BY ALL HAVING x BETWEEN 1 AND 3",
        # without ALL, mostly the column
        "SELECT k + 1 AS y, i AS K, count(*) AS n FROM t GROUP BY y, i HAVING k + 1 IN (2, 4)",
        "SELECT k AS z, i AS k, count(*) AS n FROM t GROUP BY k, i HAVING k > 2",
        "SELECT k + 1 AS k, count(*) AS n FROM t GROUP BY t.k HAVING k > 20",
    ],
)
@pytest.mark.parametrize("end", ["", " AND count(*) > 1"])
def test_names_of_columns_that_are_names_of_the_answer(
    beside: tuple[tw.Warehouse, Any, Any], monkeypatch: pytest.MonkeyPatch, text: str, end: str
) -> None:
    monkeypatch.setattr(answer, "_WORTH", 0)
    having, order, by = text.removesuffix(")").partition(" ORDER BY ")
    compare(beside, f"{having}{end}{order}{by}{')' * text.endswith(')')}")


def test_order_by_expressions_of_what_all_groups_by(beside: tuple[tw.Warehouse, Any, Any]) -> None:
    text = "SELECT k, max(i) / 2 AS n FROM t GROUP BY ALL ORDER BY k % 3"
    with pytest.raises(duckdb.Error, match="GROUP BY"):
        beside[2].sql(text)
    with pytest.raises(tw.QueryError, match="GROUP BY"):
        beside[0].sql(text).to_arrow()
    compare(beside, text.removesuffix(" % 3"))


def test_texts_that_look_like_places_are_told_apart(beside: tuple[tw.Warehouse, Any, Any]) -> None:
    for place in ("query_location'': 1", "query_location'': 2", "query_location_length'': 2"):
        compare(beside, f"SELECT k, concat(max(i), '''{place}') AS x FROM t GROUP BY k")


def test_no_alias_stands_in_an_aggregate(beside: tuple[tw.Warehouse, Any, Any]) -> None:
    text = "SELECT k AS x, count(*) AS n FROM t GROUP BY k HAVING max({}) > 3{}"
    compare(beside, text.format("k", ""))
    for more in ("", " AND x > 3", " AND count(*) / 2 > 1"):
        with pytest.raises(duckdb.Error, match="x"):
            beside[2].sql(text.format("x", more))
        with pytest.raises(tw.QueryError, match="x"):
            beside[0].sql(text.format("x", more)).to_arrow()


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT k FROM t GROUP BY k HAVING count(*) + {'+'.join(['1'] * 300)} > 0",
        f"SELECT k, count(*) + {'+'.join(['1'] * 300)} FROM t GROUP BY k",
        f"SELECT k FROM t GROUP BY k HAVING {'NOT (' * 300}count(*) > 30{')' * 300}",
        f"SELECT * FROM (SELECT k, count(*) AS n FROM t GROUP BY k) g WHERE g.n + {'+'.join(['1'] * 300)} > 0",
        f"SELECT * FROM (SELECT k, count(*) AS n FROM t GROUP BY k) g WHERE {'NOT (' * 300}g.k > 3{')' * 300}",
    ],
)
def test_what_is_too_deep_is_left_to_duckdb(beside: tuple[tw.Warehouse, Any, Any], monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(answer, "_WORTH", 0)
    compare(beside, text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, count(*) AS n FROM t GROUP BY 1 HAVING k = 5",
        "SELECT k AS key, count(*) AS n FROM t GROUP BY k HAVING key = 5",
        "SELECT k AS key, count(*) AS n FROM t GROUP BY key HAVING key = 5 AND count(*) > 3",
        "SELECT k AS key, count(*) AS n FROM t GROUP BY 1 HAVING k = 5",
        "SELECT k AS k, count(*) AS n FROM t GROUP BY k HAVING k = 5",
        "SELECT k AS key, count(*) AS n FROM t GROUP BY ALL HAVING key = 5",
        "SELECT k AS key, count(*) / 2 AS n FROM t GROUP BY 1 HAVING key = 5",
        "SELECT * FROM (SELECT k, count(*) AS n FROM t GROUP BY 1) g WHERE g.k = 5",
        "SELECT * FROM (SELECT k AS k, count(*) AS n FROM t GROUP BY k) g WHERE g.k = 5",
        "SELECT * FROM (SELECT k AS key, count(*) AS n FROM t GROUP BY key) g WHERE key = 5",
    ],
)
def test_keys_by_number_or_alias_bound_what_is_read(
    beside: tuple[tw.Warehouse, Any, Any], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(answer, "_WORTH", 0)
    compare(beside, text)
    result, all_ = beside[0].sql(text), beside[0].sql("SELECT k, count(*) AS n FROM t GROUP BY k HAVING count(*) > 3")
    result.to_arrow(), all_.to_arrow()
    assert result.stats.leaves_read < all_.stats.leaves_read
