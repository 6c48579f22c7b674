"""Statements while inserts go on: each has the answer that DuckDB has over the rows of exactly the versions that it shows.

Every row carries the number of its batch. A batch goes into four tables, one after the other; some come late, and tables are flushed
meanwhile. What a statement says of its generations tells which batches it may know: all up to one, in each of its tables, and no moment at
which a later table knew more than an earlier one.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidewheel as tw
from tests import sql_tables
from tests.conftest import examples
from tests.property.sql_statements import Statements
from tests.sql_tables import told

BATCHES, EACH = 240, 12
ASKED = examples(100)
MADE = {"trips": sql_tables.trips, "spots": sql_tables.spots, "words": sql_tables.words, "flows": sql_tables.flows}
"""How rows of each table are made, in the order in which a batch goes into them."""

ENDS = [
    "SELECT count(*), min(ts), max(ts), min(id), max(id) FROM trips", "SELECT count(*) FROM words", "SELECT max(batch) FROM flows",
    "SELECT batch, count(*) FROM spots GROUP BY 1", "SELECT * FROM trips WHERE id = 7",
    "SELECT id, batch FROM trips WHERE batch > 100 AND id BETWEEN 3 AND 20",
    "SELECT t.batch, count(*) FROM trips t JOIN flows f USING (batch) GROUP BY ALL",
    "SELECT (SELECT max(batch) FROM flows), (SELECT max(batch) FROM trips), (SELECT max(batch) FROM words), (SELECT max(batch) FROM spots)",
]  # fmt: skip
"""Asked besides those at random: of the index alone, the plain ones, and of several tables."""


@dataclass
class Live:
    """Tables that grow. `seen` has the generation at which each batch became visible, by table."""

    wh: tw.Warehouse
    batches: list[dict[str, pa.Table]]
    over: threading.Event = field(default_factory=threading.Event)
    seen: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in MADE})

    def grow(self) -> None:
        for number, batch in enumerate(self.batches):
            for name, rows in batch.items():
                self.seen[name].append(self.wh.table(name).insert(rows).generation)
            if number % 17 == 0:
                self.wh.table(list(MADE)[number % 4]).flush()
            if self.over.wait(0.01):
                return

    def known(self, name: str, generation: int) -> int:
        """How many batches a table had at a generation."""
        return sum(one <= generation for one in self.seen[name])


@dataclass(frozen=True)
class Answer:
    statement: str
    generations: dict[str, int]
    rows: list[str] | None
    """None if it was refused."""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    rng = random.Random(21)
    batches = []
    for number in range(BATCHES):
        hour = number // 2 if number % 5 else number // 20  # one of five is late
        batches.append({name: numbered(make(rng, EACH, hour), number) for name, make in MADE.items()})
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=32, batch_rows=200, zero_copy_rows=64)) as wh:
        sql_tables.create(wh, more=[pa.field("batch", pa.int64())])
        yield Live(wh, batches)


def numbered(rows: pa.Table, batch: int) -> pa.Table:
    return rows.append_column("batch", pa.array([batch] * len(rows), pa.int64()))


def statements(seed: int, count: int) -> Iterator[str]:
    """Every third says itself how far it sees; every tenth is one of those that are not at random."""
    made = Statements(seed)
    for number in range(count):
        if number % 10 == 0:
            yield ENDS[number // 10 % len(ENDS)]
        elif number % 3 == 0:
            yield f"SELECT *, (SELECT max(batch) FROM trips) AS upto FROM ({made.one()}) q"
        else:
            yield made.one()


def ask(live: Live, seed: int, count: int) -> list[Answer]:
    answers = []
    for statement in statements(seed, count):
        try:
            result: Any = live.wh.sql(statement)
            answers.append(Answer(statement, result.generations, told(result.to_arrow())))
        except tw.QueryError:
            answers.append(Answer(statement, {}, None))
    return answers


def test_each_statement_sees_whole_batches_up_to_one(live: Live) -> None:
    writer = threading.Thread(target=live.grow)
    writer.start()
    try:
        with ThreadPoolExecutor(2) as pool:
            answers = [answer for part in pool.map(ask, [live, live], [1, 2], [ASKED // 2] * 2) for answer in part]
    finally:
        live.over.set()
        writer.join()
    with duckdb.connect() as duck:
        fill(duck, live.batches)
        for answer in answers:
            check(duck, live, answer)
    moments = {tuple(sorted(answer.generations.items())) for answer in answers}
    assert len(moments) > ASKED // 4, "the tables did not grow while they were asked"


def fill(duck: duckdb.DuckDBPyConnection, batches: list[dict[str, pa.Table]]) -> None:
    """All batches, in tables of DuckDB's; `check` shows as many as a statement knew."""
    duck.execute("SET TimeZone = 'UTC'")
    duck.execute("SET threads = 1")
    for name in MADE:
        duck.register("given", pa.concat_tables([batch[name] for batch in batches]))
        duck.execute(f"CREATE TABLE all_{name} AS SELECT * FROM given")
        duck.unregister("given")
    duck.execute("CREATE TABLE nothing AS SELECT * FROM all_trips LIMIT 0")


def check(duck: duckdb.DuckDBPyConnection, live: Live, answer: Answer) -> None:
    known = {name: live.known(name, generation) for name, generation in answer.generations.items() if name in MADE}
    order = [known[name] for name in MADE if name in known]
    assert order == sorted(order, reverse=True), f"{answer.statement}: a later table knows more: {known}"
    assert not order or order[0] - order[-1] <= 1, f"{answer.statement}: not of one moment: {known}"
    for name in MADE:
        duck.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM all_{name} WHERE batch < {known.get(name, BATCHES)}")
    try:
        theirs: list[str] | None = told(duck.sql(answer.statement).to_arrow_table())
    except duckdb.Error:
        theirs = None
    assert answer.rows == theirs, f"{answer.statement} at {known}"
