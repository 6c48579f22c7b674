"""wh.sql has the answers that DuckDB has on the same rows: statements at random, tables half in memory, half in chunks, some rows late."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tidewheel as tw
from tests.conftest import SOAK, check_nothing_left
from tests.property.sql_statements import Statements
from tests.sql_tables import Twin, make, told

COUNT = 20_000 if SOAK else 600
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
    """One in ten in the main thread, where each step of a statement gets a thread of its own: slower, and right either way."""
    statements = Statements(seed)
    refused = 0
    with ThreadPoolExecutor(1) as pool:
        for number in range(COUNT // len(SEEDS)):
            statement = statements.one()
            ours, theirs = answers(twin, statement) if number % 10 == 0 else pool.submit(answers, twin, statement).result()
            if isinstance(theirs, str):
                refused += 1
                assert isinstance(ours, tw.QueryError), f"{statement}\nDuckDB: {theirs}\nours: {ours!r}"
            else:
                assert ours == theirs, statement
    assert refused < COUNT // len(SEEDS) // 20
