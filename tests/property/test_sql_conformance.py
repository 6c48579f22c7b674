"""wh.sql has the answers that DuckDB has on the same rows: statements at random, tables half in memory, half in chunks, some rows late."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tidewheel as tw
from tests.conftest import SOAK, check_nothing_left
from tests.property.sql_statements import Statements
from tests.sql_tables import Twin, make, told

COUNT = 20_000 if SOAK else 2_000
SEEDS = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    twin = make(tmp_path_factory.mktemp("sql") / "wh", seed=7)
    yield twin
    twin.wh.close()


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Looked at once: the warehouse stays open from one test to the next."""
    yield
    check_nothing_left()


def answers(twin: Twin, statement: str) -> tuple[Any, Any]:
    """Ours and DuckDB's; both may refuse, but only together."""
    import duckdb

    try:
        theirs: Any = told(twin.duck.sql(statement).to_arrow_table())
    except duckdb.Error as e:
        theirs = type(e).__name__
    try:
        ours: Any = told(twin.wh.sql(statement).to_arrow())
    except tw.QueryError as e:
        ours = e
    return ours, theirs


@pytest.mark.parametrize("seed", SEEDS)
def test_statements_have_the_answers_of_duckdb(twin: Twin, seed: int) -> None:
    """One seed in the main thread, where each step of a statement gets a thread of its own: slower, and right either way."""
    if seed == SEEDS[0]:
        check(twin, seed)
    else:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(check, twin, seed).result()


def check(twin: Twin, seed: int) -> None:
    statements = Statements(seed)
    refused = 0
    for _ in range(COUNT // len(SEEDS)):
        statement = statements.one()
        ours, theirs = answers(twin, statement)
        if isinstance(theirs, str):
            refused += 1
            assert isinstance(ours, tw.QueryError), f"{statement}\nDuckDB: {theirs}\nours: {ours!r}"
        else:
            assert ours == theirs, statement
    assert refused < COUNT // len(SEEDS) // 20


def test_they_have_them_while_inserts_go_on(tmp_path: Path) -> None:
    """Rows that come meanwhile are marked, and every statement leaves them out."""
    twin = make(tmp_path / "wh", seed=11, n=400)
    busy = threading.Event()
    table = twin.wh.table("trips")
    more = twin.rows["trips"].slice(0, 20)
    marked = more.set_column(0, "id", [[1_000_000 + i for i in range(20)]])

    def insert() -> None:
        while not busy.wait(0.002):
            table.insert(marked)
            if table.state().fresh_rows > 5000:
                table.flush()

    thread = threading.Thread(target=insert)
    thread.start()
    try:
        statements = Statements(99)
        done = 0
        while done < 60:
            statement = statements.plain()
            if " FROM trips" not in statement or "LIMIT" in statement:
                continue
            done += 1
            head, _, tail = statement.partition(" FROM trips")
            theirs = told(twin.duck.sql(statement).to_arrow_table())
            clause = tail.removeprefix(" WHERE ")
            ours = told(twin.wh.sql(f"{head} FROM trips WHERE id < 1000000" + (f" AND ({clause})" if clause else "")).to_arrow())
            assert ours == theirs, statement
    finally:
        busy.set()
        thread.join()
        twin.wh.close()
