"""The expressions of a query, looked at and evaluated within its limits: here, or in a process apart where DuckDB may not keep to them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import pyarrow as pa

from tidewheel.duck.connect import LEAST, working_memory
from tidewheel.duck.error_text import said_of_an_expression
from tidewheel.duck.evaluator import MEMORY, ROWS, RowStatement
from tidewheel.duck.expressions import LONGEST, Expression, at_one_moment, looked_at
from tidewheel.duck.failures import DuckError, is_ctrl_c, is_out_of_memory
from tidewheel.duck.parser import LONG
from tidewheel.errors import LimitError, QueryError
from tidewheel.read import apart
from tidewheel.read.apart import Apart, WrongError
from tidewheel.read.limits import NEVER, Watch, shown
from tidewheel.read.value_lists import without_lists

_FEW = 4096
"""Up to so many rows an expression is evaluated here; more are watched, which costs a thread and a quarter of a millisecond."""

_QUICK = 0.02
"""Seconds that nobody minds waiting for: an expression that has shown to take less is not watched any more."""


def looked_at_within(expression: str, names: tuple[str, ...], aggregates: bool, watch: Watch) -> Expression:
    """A parsed expression of a query. To look at a long one takes its time, which is the query's."""
    if not isinstance(expression, str) or not LONG < len(expression) <= LONGEST:
        return looked_at(expression, names, aggregates)
    with _working({"kind": "look", "text": expression, "names": names, "aggregates": aggregates}, (), watch) as work:
        found: Expression = pickle.loads(work.until((apart.DONE,), watch.check)[1])
    return found


class Filter:
    """A where-expression over batches that have the columns it reads."""

    def __init__(self, expression: str, schema: pa.Schema, any_column: str, watch: Watch) -> None:
        text, self._lists = without_lists(expression, schema) if isinstance(expression, str) else (expression, ())
        listed = tuple(one.name for one in self._lists)
        found = looked_at_within(text, (*schema.names, *listed), False, watch)
        self._sql = f'SELECT CAST(({at_one_moment([found])[0]}\n) AS BOOLEAN) AS keep FROM "{ROWS}"'
        self._bounded = found.bounded
        self._names = tuple(n for n in found.columns if n not in listed)
        if not self._names and not listed:
            self._names = (any_column,)  # an expression without columns still needs to know how many rows there are
        self.columns = tuple(dict.fromkeys((*self._names, *(one.column for one in self._lists))))
        self._row_seconds = NEVER
        """Seconds that a row took when this was last seen."""
        nothing = pa.Table.from_batches([], pa.schema([schema.field(n) for n in self.columns]))
        self.mask(nothing, watch, schema.names)

    def mask(self, rows: pa.RecordBatch | pa.Table, watch: Watch, names: list[str] | None = None) -> pa.Array:
        """A mask of the rows to keep. Only the columns it reads go through DuckDB, so no other value changes its type."""
        own = {n: rows.column(n) for n in self._names} | {one.name: one.mask(rows) for one in self._lists}
        table = pa.table(list(own.values()), list(own))
        few = table.num_rows <= _FEW
        watched = table.num_rows * self._row_seconds > _QUICK if not few else watch.limits.seconds != NEVER
        began = perf_counter()
        kept = run(self._sql, table, names or list(rows.schema.names), watch, watched, self._bounded).column(0)
        if not few:
            self._row_seconds = (perf_counter() - began) / table.num_rows
        return kept.combine_chunks() if isinstance(kept, pa.ChunkedArray) else kept


def run(
    sql: str, rows: pa.Table | pa.RecordBatchReader, names: list[str], watch: Watch, watched: bool = True, bounded: bool = True
) -> pa.Table:
    """Evaluate a statement over `ROWS`; errors come out as QueryError with the nearest column name.

    A stream of rows is grouped, so it may take what its query may; a table is a batch that is in memory already. If it is not
    `watched`, neither the clock nor Ctrl-C ends it. If it is not `bounded`, a process apart does it.
    """
    if not bounded:
        return _run_apart(sql, rows, names, watch)
    stream = isinstance(rows, pa.RecordBatchReader)
    memory = max(LEAST, int(min(MEMORY, watch.limits.bytes))) if stream else MEMORY
    statement = RowStatement(sql, memory)
    try:
        return watch.apart(lambda: statement.run(rows, watch.take), statement.interrupt) if watched else statement.run(rows, watch.take)
    except DuckError as e:
        if is_out_of_memory(e):
            hint = "group by fewer columns, narrow the query, or raise max_bytes="
            raise LimitError(f"the query needs more than {shown(memory)} of memory to group its rows; {hint}: {e}") from None
        raise QueryError(said_of_an_expression(str(e), names, sql)) from None
    except RuntimeError as e:
        if is_ctrl_c(e):
            raise KeyboardInterrupt from None
        raise


def _run_apart(sql: str, rows: pa.Table | pa.RecordBatchReader, names: list[str], watch: Watch) -> pa.Table:
    found: list[pa.RecordBatch] = []
    batches = rows.to_batches() if isinstance(rows, pa.Table) else rows
    try:
        with _working({"kind": "evaluate", "text": sql, "schema": rows.schema}, batches, watch) as work:
            schema = pa.ipc.read_schema(work.until((apart.SCHEMA,), watch.check)[1])
            while (word := work.until((apart.ROWS, apart.DONE), watch.check))[0] == apart.ROWS:
                found.append(apart.unpacked(word[1]))
                watch.take(found[-1].nbytes)
    except WrongError as e:
        raise QueryError(said_of_an_expression(e.wrong.message, names, sql)) from None
    return pa.Table.from_batches(found, schema)


@contextmanager
def _working(job: dict[str, Any], rows: Iterable[pa.RecordBatch], watch: Watch) -> Iterator[Apart]:
    """A process apart at work on an expression. Raises WrongError with what DuckDB says of it."""
    memory = working_memory(watch.limits.bytes)
    batches = iter(rows)
    with watch.starting():
        work = Apart(job, lambda _: batches, memory, watch.check)
    try:
        yield work
    except WrongError as e:
        if e.wrong.kind == "memory":
            raise apart.too_large(memory) from None
        if e.wrong.kind == "query":
            raise
        raise QueryError(e.wrong.message) from None
    finally:
        work.close()
