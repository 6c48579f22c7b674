"""SQL expressions over our batches, evaluated by DuckDB. Scalar expressions only: no sub-query, no file, no other table.

DuckDB is imported on first use. One in-memory database per process serves as evaluator; it holds no data.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any

import pyarrow as pa

from tidewheel.env.memory import machine_memory
from tidewheel.errors import LimitError, QueryError
from tidewheel.model.schema import nearest
from tidewheel.read import apart
from tidewheel.read.apart import Apart, WrongError
from tidewheel.read.bounded import arguments, is_bounded, walk
from tidewheel.read.limits import NEVER, Watch, shown
from tidewheel.read.row_functions import MOMENTS, OTHER_WORDS, RowFunctions
from tidewheel.read.value_lists import without_lists

MEMORY = 1 << 30
"""What all grouping of this process together may take before it spills to a temporary folder."""

_LEAST = 64 << 20
"""What DuckDB needs to work at all."""

_LONGEST = 1 << 20
"""Characters of an expression."""

LONG = 1 << 16
"""Characters of a statement or an expression that is parsed in this process; longer ones are in a process apart."""

ROWS = "·rows"
"""The name of the rows in a statement that is evaluated: one that no column has, or `t.x` would be the table's x and not a column's."""

_BEFORE = "SELECT ("
"""What stands before an expression where it is parsed."""

_FEW = 4096
"""Up to so many rows an expression is evaluated here; more are watched, which costs a thread and a quarter of a millisecond."""

_QUICK = 0.02
"""Seconds that nobody minds waiting for: an expression that has shown to take less is not watched any more."""

_lock = threading.Lock()
_numbers = itertools.count()
_database: Any = None


def _connect(memory: int) -> Any:
    """A database that holds no data, reads no file, and cannot be talked out of that."""
    import duckdb

    database = duckdb.connect(":memory:")
    folder = os.path.join(tempfile.gettempdir(), f"tidewheel-{os.getpid()}-{next(_numbers)}")
    for setting in (
        "GLOBAL TimeZone = 'UTC'",  # or only this connection has it, and its cursors the machine's
        f"memory_limit = '{memory // 1024}KiB'",
        f"temp_directory = '{folder}'",
        "python_enable_replacements = false",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        database.execute(f"SET {setting}")
    return database


def _cursor() -> Any:
    """A connection of its own to the evaluator: cursors of one database may run in several threads."""
    global _database
    with _lock:
        if _database is None:
            _database = _connect(MEMORY)  # assigned when it is locked: an interrupt must not leave an open one behind
        return _database.cursor()


def _asked(text: str, given: list[Any]) -> list[tuple[Any, ...]]:
    cursor = _cursor()
    try:
        return cursor.execute(text, given).fetchall()  # type: ignore[no-any-return]
    finally:
        cursor.close()


_functions = RowFunctions(_asked)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression that was looked at."""

    text: str
    columns: tuple[str, ...]
    """Those that it reads, in the order of the table's."""
    bounded: bool
    """Whether it may be evaluated in this process (`read/bounded.py`)."""
    moments: tuple[tuple[int, int], ...]
    """Where it asks for the time: first byte and the one behind."""

    def calls(self) -> list[str]:
        """What asks for the time."""
        data = self.text.encode()
        return [data[start:end].decode() for start, end in self.moments]


def at_one_moment(expressions: Sequence[Expression]) -> list[str]:
    """Their texts, with the time as it is now wherever they ask for it."""
    calls = list(dict.fromkeys(call for one in expressions for call in one.calls()))
    if not calls:
        return [one.text for one in expressions]
    told = _asked("SELECT " + ", ".join(f"CAST({call} AS VARCHAR), typeof({call})" for call in calls), [])[0]
    values = {call: f"CAST('{told[2 * n]}' AS {told[2 * n + 1]})".encode() for n, call in enumerate(calls)}
    texts = []
    for one in expressions:
        data = one.text.encode()
        for (start, end), call in reversed(list(zip(one.moments, one.calls(), strict=True))):
            data = data[:start] + values[call] + data[end:]
        texts.append(data.decode())
    return texts


def referenced(expression: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that an aggregate reads, in the order of `names`. Raises QueryError if it is not one expression over a table's rows."""
    return looked_at(expression, names, True).columns


@lru_cache(maxsize=512)
def looked_at(expression: str, names: tuple[str, ...], aggregates: bool) -> Expression:
    """Raises QueryError if it is not one expression over the rows of a table, or is no function of them. With `aggregates`, it may
    be about all of them together."""
    if not isinstance(expression, str) or not expression.strip():
        raise QueryError(f'an expression is SQL text like "speed > 30", not {expression!r}')
    if len(expression) > _LONGEST:
        raise QueryError(f"the expression has {len(expression):,} characters; at most {_LONGEST:,} are taken")
    node = _tree(expression)
    nodes = list(walk(node))
    used: set[str] = set()
    moments: list[tuple[int, int]] = []
    for one in nodes:
        kind = one.get("class")
        if kind == "SUBQUERY":
            raise _refused(expression, "holds a sub-query", aggregates)
        if kind == "WINDOW":
            raise _refused(expression, f"has a window, {one['function_name']}(…) OVER, which is about other rows too", aggregates)
        if kind == "FUNCTION" and _is_moment(one, expression, aggregates):
            moments.append(_span(one))
        if kind == "STAR":
            used.update(names)
        if kind == "COLUMN_REF":
            found = _columns(one["column_names"], names)
            used.update(found)
            word = one["column_names"][0].lower()
            if not found and len(one["column_names"]) == 1 and word in MOMENTS:
                moments.append(_span(one))
            if not found and len(one["column_names"]) == 1 and word in OTHER_WORDS:
                raise QueryError(f"{word} is not allowed here: it is about the process, not about rows")
    return Expression(expression, tuple(n for n in names if n in used), is_bounded(nodes, expression), tuple(sorted(moments)))


def looked_at_within(expression: str, names: tuple[str, ...], aggregates: bool, watch: Watch) -> Expression:
    """The same within the limits of a query: to look at a long one takes its time."""
    if not isinstance(expression, str) or not LONG < len(expression) <= _LONGEST:
        return looked_at(expression, names, aggregates)
    with _working({"kind": "look", "text": expression, "names": names, "aggregates": aggregates}, (), watch) as work:
        found: Expression = pickle.loads(work.until((apart.DONE,), watch.check)[1])
    return found


def _tree(expression: str) -> dict[str, Any]:
    import duckdb

    try:
        tree = json.loads(_asked("SELECT json_serialize_sql(?::VARCHAR)", [f'{_BEFORE}{expression}\n) FROM "{ROWS}"'])[0][0])
    except duckdb.Error as e:
        raise QueryError(f"cannot read the expression {_short(expression)}: {e}") from None
    except RecursionError:
        raise QueryError("the expression has too many levels of brackets or operators within each other") from None
    if tree.get("error"):
        raise QueryError(f"cannot read the expression {_short(expression)}: {tree.get('error_message')}")
    nodes = [s["node"] for s in tree["statements"]]
    if len(nodes) != 1 or nodes[0].get("type") != "SELECT_NODE" or len(nodes[0]["select_list"]) != 1:
        raise QueryError(f"{_short(expression)} is more than one expression")
    if any(nodes[0].get(part) for part in ("where_clause", "having", "group_expressions", "modifiers", "sample", "qualify")):
        raise QueryError(f"{_short(expression)} is more than one expression")
    return nodes[0]["select_list"][0]  # type: ignore[no-any-return]


def _is_moment(node: dict[str, Any], expression: str, aggregates: bool) -> bool:
    """Whether a call asks for the time. Raises QueryError if it must not be made."""
    name = node["function_name"].lower()
    if (node.get("schema") or node.get("catalog")) and not node.get("is_operator"):
        raise QueryError(f"write {name}(…) without a schema before it")
    kind = _functions.kind(name)
    if kind == "process":
        raise QueryError(f"{name}(…) is not allowed here: it is about the process, not about rows")
    if kind == "changing":
        raise _refused(expression, f"calls {name}(…), which gives something else at every reading", aggregates)
    if kind == "window":
        raise _refused(expression, f"calls {name}(…), which is about other rows too", aggregates)
    if kind == "aggregate" and not aggregates:
        raise _refused(expression, f"aggregates with {name}(…); it must say of every row by itself whether to keep it", aggregates)
    if name == "age" and len(arguments(node)) == 1:
        raise QueryError("age(…) of one time counts from today: write age(current_date, …)")
    return kind == "moment"


def _refused(expression: str, why: str, aggregates: bool) -> QueryError:
    role = "aggregate" if aggregates else "where"
    return QueryError(f'{role}: {_short(expression)} {why}. Ask it with wh.sql("SELECT … FROM …")')


def _short(expression: str) -> str:
    return repr(expression if len(expression) <= 200 else expression[:200] + "…")


def _span(node: dict[str, Any]) -> tuple[int, int]:
    start = node["query_location"] - len(_BEFORE)
    return start, start + node["query_location_length"]


def _columns(parts: list[str], names: tuple[str, ...]) -> list[str]:
    used = []
    for part in parts[:2]:
        alike = [n for n in names if n.lower() == part.lower()]
        if len(alike) > 1:
            raise QueryError(f"columns {' and '.join(alike)} differ only in case, which SQL ignores; use a Python function for where")
        used += alike
    return used


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
        """What a row took when this was last seen."""
        nothing = pa.Table.from_batches([], pa.schema([schema.field(n) for n in self.columns]))
        self.mask(nothing, watch, schema.names)

    def mask(self, rows: pa.RecordBatch | pa.Table, watch: Watch, names: list[str] | None = None) -> pa.Array:
        """Which rows to keep. Only the columns it reads go through DuckDB, so no other value changes its type."""
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
    import duckdb

    stream = isinstance(rows, pa.RecordBatchReader)
    memory = max(_LEAST, int(min(MEMORY, watch.limits.bytes))) if stream else MEMORY
    statement = _Statement(sql, memory)
    try:
        return watch.apart(lambda: statement.run(rows, watch), statement.interrupt) if watched else statement.run(rows, watch)
    except duckdb.OutOfMemoryException as e:
        hint = "group by fewer columns, narrow the query, or raise max_bytes="
        raise LimitError(f"the query needs more than {shown(memory)} of memory to group its rows; {hint}: {e}") from None
    except duckdb.Error as e:
        raise QueryError(_explain(str(e), names, sql)) from None
    except RuntimeError as e:
        if str(e) == "Query interrupted":  # what DuckDB makes of a Ctrl-C that it notices itself
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
        raise QueryError(_explain(e.wrong.message, names, sql)) from None
    return pa.Table.from_batches(found, schema)


@contextmanager
def _working(job: dict[str, Any], rows: Iterable[pa.RecordBatch], watch: Watch) -> Iterator[Apart]:
    """A process apart at work on an expression. Raises WrongError with what DuckDB says of it."""
    memory = max(_LEAST, int(min(watch.limits.bytes, machine_memory())))
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


class _Statement:
    """One statement that is run once, in a connection of its own. Another thread may interrupt it at any time."""

    def __init__(self, sql: str, memory: int) -> None:
        self._sql = sql
        self._own = None if memory == MEMORY else _connect(memory)
        self._cursor = _cursor() if self._own is None else self._own.cursor()
        self._closing = threading.Lock()
        self._closed = False

    def run(self, rows: pa.Table | pa.RecordBatchReader, watch: Watch) -> pa.Table:
        try:
            self._cursor.register(ROWS, rows)
            answer = self._cursor.sql(self._sql).to_arrow_reader()
            batches = []
            for batch in answer:
                watch.take(batch.nbytes)
                batches.append(batch)
            return pa.Table.from_batches(batches, answer.schema)
        finally:
            with self._closing:
                self._closed = True
            self._cursor.close()
            if self._own is not None:
                self._own.close()

    def interrupt(self) -> None:
        with self._closing:
            if not self._closed:
                self._cursor.interrupt()


def _explain(message: str, names: list[str], sql: str) -> str:
    first = message.split("\n")[0]
    first = first.split(" Error: ", 1)[-1]
    quoted = first.split('"')
    missing = quoted[1] if "not found" in first and len(quoted) > 2 else ""
    hint = nearest(missing, names) if missing else ""
    if missing and not hint and f'"{missing}"' in sql:
        hint = f" A text is written in single quotes: '{missing}'."
    return f"{first}{hint}" if hint or "not found" not in first else f"{first} Columns: {', '.join(names)}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
