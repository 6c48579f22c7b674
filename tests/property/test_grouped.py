"""Filters, groups, orders and last rows have the answers that DuckDB has over the same rows: in process, and for who attaches.

Statements are made at random (a fixed seed, and one of each run, which is printed), over tables with columns of every type that lie half
in chunks, half in memory, some rows late, some replaced. What DuckDB refuses is refused here, too, and nothing else is. A statement that
fails is printed with the numbers it was made of: `statement(shape, constants)` makes it again.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import SOAK, Voice, check_nothing_left
from tests.integration.owners import OwnerProcess
from tests.property.grouped_answers import difference, rows, told
from tests.property.grouped_plain import statement
from tests.property.grouped_queries import question
from tests.property.grouped_statements import Statement
from tests.property.grouped_tables import SETTINGS, TABLES, fill, oracle
from tidewheel.sql import answer

SHAPES = 3000 if SOAK else 30
"""Shapes of statements for each seed and each way to a warehouse. Each is asked with several constants."""
TIMES = 2
FIXED = 15
FRESH = int(os.environ.get("TIDEWHEEL_SEED", time.time_ns() % 10**6))
"""Another one for each run; a run can be given that of an earlier one."""


@dataclass
class Beside:
    """One warehouse that this process owns, one that another process owns, and DuckDB: all with the same rows."""

    owned: tw.Warehouse
    attached: tw.Warehouse
    duck: duckdb.DuckDBPyConnection

    def warehouse(self, way: str) -> tw.Warehouse:
        return self.owned if way == "owned" else self.attached


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    root = tmp_path_factory.mktemp("grouped")
    with OwnerProcess() as owner, pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer, "_WORTH", 0)  # groups within a statement, too
        owner.open(root / "attached", **SETTINGS)
        with tw.open(root / "owned", settings=tw.Settings(**SETTINGS)) as owned, tw.open(root / "attached") as attached:
            kept = {one.name: fill([owned, attached], one, seed) for seed, one in enumerate(TABLES)}
            with oracle(kept) as duck:
                yield Beside(owned, attached, duck)


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Looked at once: the warehouses stay open from one test to the next."""
    yield
    check_nothing_left()


Ask = Callable[[], pa.Table]


class Wrong(AssertionError):
    pass


def compare(duck: duckdb.DuckDBPyConnection, asked: Statement, ask: Ask, said: str) -> bool:
    """Whether there is an answer; both may refuse, but only together."""
    theirs: Any
    try:
        theirs = duck.sql(asked.whole or asked.text, params=asked.parameters).to_arrow_table()
    except duckdb.Error as e:
        theirs = e
    try:
        ours: Any = ask()
    except tw.QueryError as e:
        ours = e
    except Exception as e:
        raise Wrong(f"{said}\nended with {type(e).__name__}: {e}") from e
    if isinstance(theirs, duckdb.Error):
        if asked.limit == 0 and isinstance(ours, pa.Table) and not len(ours):
            return False  # of no rows, nothing need be computed that could fail: DuckDB mostly sees that, too
        if not isinstance(ours, tw.QueryError):
            raise Wrong(f"{said}\nDuckDB: {theirs}\nours: {ours}")
        return False
    if isinstance(ours, tw.QueryError):
        raise Wrong(f"{said}\nDuckDB: {theirs.num_rows} rows\nours: {ours}") from ours
    wrong = difference(asked, ours, theirs)
    if wrong is not None:
        raise Wrong(f"{said}\n{wrong}")
    return True


@pytest.mark.parametrize("way", ["owned", "attached"])
@pytest.mark.parametrize("kind", ["fixed", "fresh"])
def test_statements_have_the_answers_of_duckdb(beside: Beside, voice: Voice, kind: str, way: str) -> None:
    wh, seed = beside.warehouse(way), FIXED if kind == "fixed" else FRESH
    answered = Counter[bool]()
    for number in range(SHAPES):
        shape = seed * 1_000_000 + number + (500_000 if way == "attached" else 0)
        for constants in range(TIMES):
            asked = statement(shape, constants)
            said = f"statement({shape}, {constants})  {way}\n{asked}"

            def ask(asked: Statement = asked) -> pa.Table:
                result = wh.sql(asked.text, asked.parameters)
                answer = result.to_arrow()
                assert len(result) == answer.num_rows
                return answer

            answered[compare(beside.duck, asked, ask, said)] += 1
    voice.at_the_end(f"seed {seed}: {answered[True]} statements answered, {answered[False]} refused by both")
    assert answered[True] > 9 * answered[False]


@pytest.mark.parametrize("way", ["owned", "attached"])
@pytest.mark.parametrize("kind", ["fixed", "fresh"])
def test_queries_have_the_answers_of_duckdb(beside: Beside, voice: Voice, kind: str, way: str) -> None:
    wh, seed = beside.warehouse(way), FIXED if kind == "fixed" else FRESH
    answered = Counter[bool]()
    for number in range(SHAPES // 2):
        shape = seed * 1_000_000 + number + (500_000 if way == "attached" else 0)
        one = question(shape, number % 3)
        said = f"question({shape}, {number % 3})  {way}\n{one}"

        def ask(table: str = one.table, asked: dict[str, Any] = one.asked) -> pa.Table:
            return wh.table(table).query(**asked).to_arrow()

        answered[compare(beside.duck, one.statement, ask, said)] += 1
    voice.at_the_end(f"seed {seed}: {answered[True]} queries answered, {answered[False]} refused by both")
    assert answered[True] > 9 * answered[False]


def test_ties_of_the_last_time_are_one_of_them(beside: Beside) -> None:
    """Several rows with the greatest time: DuckDB has whichever it sees first, and here any of them is right."""
    for way in ("owned", "attached"):
        for what, ends in (("arg_max", "max"), ("arg_min", "min")):
            for where in ("", " WHERE sure < 25"):
                said = f"SELECT k, {what}(n, ts) AS n FROM {{}}{where} GROUP BY k"
                for name in ("zoned", "reals", "exact", "days"):
                    known = f"FROM {name}{where or ' WHERE true'} AND n IS NOT NULL"
                    held = f"SELECT k, n {known} AND (k, ts) IN (SELECT (k, {ends}(ts)) {known} GROUP BY k)"
                    right = rows(beside.duck.sql(held).to_arrow_table())
                    ours = rows(beside.warehouse(way).sql(said.format(name)).to_arrow())
                    assert {row for row in ours if row[1] is not None} <= set(right), said.format(name)
                    groups = beside.duck.sql(f"SELECT k, count(n) > 0 FROM {name}{where} GROUP BY k").fetchall()
                    assert len(ours) == len(groups) and sum(row[1] is not None for row in ours) == sum(some for _, some in groups)


# ---- many rows, many groups ---------------------------------------------------------------------------------

MANY = 1_200_000
"""Rows: enough for two threads, partitions by hash and tables that grow."""
LARGE = (
    "SELECT k, count(*) AS n, sum(v) AS s, min(q) AS a, max(q) AS b FROM large GROUP BY k",
    "SELECT id, count(*) AS n, sum(v) AS s, avg(q) AS a FROM large GROUP BY id",
    "SELECT id, k % {0} AS m, count(*) AS n FROM large WHERE v <> {0} GROUP BY 1, 2",
    "SELECT w, count(*) AS n, sum(q) AS s FROM large GROUP BY w",
    "SELECT w, k % 7 AS m, max(v) AS x FROM large WHERE q > {0} GROUP BY ALL",
    "SELECT date_trunc('minute', ts) AS t, count(*) AS n, sum(v) AS s, count(w) AS c FROM large WHERE k < 9000 GROUP BY 1",
    "SELECT date_trunc('hour', ts) AS t, id % 1000 AS i, count(*) AS n FROM large WHERE k BETWEEN {0} AND 7000 GROUP BY 1, 2",
    "SELECT count(DISTINCT id) AS i, count(DISTINCT w) AS w, count(DISTINCT q) AS q FROM large WHERE v > {0}",
    "SELECT k, count(DISTINCT id) AS i FROM large GROUP BY k HAVING count(*) > 120",
    "SELECT DISTINCT id, v FROM large WHERE w LIKE '{0}%'",
    "SELECT count(*) AS n, sum(v) AS s, sum(q) AS q FROM large WHERE v BETWEEN {0} AND 600 AND q <> 3 AND w IS NOT NULL",
    "SELECT id, sum(v) AS s FROM large GROUP BY id ORDER BY s DESC, id LIMIT {0}",
    "SELECT k, id, v, ts FROM large WHERE v > {0} ORDER BY v DESC, id, ts LIMIT 50",
    "SELECT k, arg_max(v, ts) AS v, arg_max(q, ts) AS q, max(ts) AS ts FROM large GROUP BY k",
    "SELECT k, ts, v FROM large WHERE v < {0} QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) = 1",
    "SELECT v, bool_or(q > 0) AS o, bool_and(q > -{0}) AS a, min(w) AS f, max(w) AS l FROM large GROUP BY v",
    "SELECT q, count(*) AS n FROM large GROUP BY q",
    "SELECT id // {0} AS i, floor(q) AS f, count(*) AS n FROM large GROUP BY ALL",
)


def large_rows(first: int, n: int) -> pa.Table:
    rng = np.random.default_rng(first)
    at = np.arange(first, first + n) * 1_000_003  # each its own
    words = pa.array([f"{prefix}{i:x}" for i in range(12_500) for prefix in ("1", "12", "common/", "")])
    values = rng.integers(0, 1000, n).astype(np.int32)
    return pa.table(
        {
            "k": rng.integers(0, 10_000, n), "ts": pa.array(at + 1_767_225_600_000_000, pa.timestamp("us")),
            "id": rng.integers(0, 300_000, n) * 1_000_003 - 10**11, "w": words.take(pa.array(rng.integers(0, 50_000, n))),
            "v": pa.array(values, mask=values == 13), "q": rng.integers(-4000, 4000, n) / 4,
        }
    )  # fmt: skip


def test_many_groups_of_many_rows(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compared by DuckDB itself: as many rows of each kind in both."""
    rng = random.Random(FRESH)
    with tw.open(tmp_path_factory.mktemp("large") / "wh") as wh, duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        kept = []
        for part in range(6):
            rows = large_rows(part * MANY // 6, MANY // 6)
            table = wh.create_table("large", rows.schema, time="ts", key="k", if_exists="open")
            table.insert(rows)
            if part == 3:
                table.flush()
            kept.append(rows)
        given = pa.concat_tables(kept)
        duck.execute("CREATE TABLE large AS SELECT * FROM given")
        assert table.rows == given.num_rows
        for text in LARGE if SOAK else rng.sample(LARGE, 6):
            for _ in range(3 if SOAK else 1):
                said = text.format(rng.randrange(2, 40))
                theirs, ours = duck.sql(said).to_arrow_table(), wh.sql(said).to_arrow()
                assert told(ours.schema) == told(theirs.schema), said
                assert ours.num_rows == theirs.num_rows, f"{said}  (seed {FRESH})"
                surplus = duck.sql("SELECT * FROM ours EXCEPT ALL SELECT * FROM theirs").to_arrow_table()
                assert surplus.num_rows == 0, f"{said}  (seed {FRESH})\n{surplus.slice(0, 5).to_pylist()}"
                if " LIMIT " in said:
                    assert ours.equals(theirs), said
