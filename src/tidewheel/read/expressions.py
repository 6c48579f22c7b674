"""SQL expressions over our batches, evaluated by DuckDB. Scalar expressions only: no sub-query, no file, no other table.

DuckDB is imported on first use. One in-memory database per process serves as evaluator; it holds no data.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from functools import lru_cache
from time import perf_counter
from typing import Any

import pyarrow as pa

from tidewheel.errors import LimitError, QueryError
from tidewheel.model.schema import nearest
from tidewheel.read.limits import NEVER, Watch, shown

MEMORY = 1 << 30
"""What all grouping of this process together may take before it spills to a temporary folder."""

_LEAST = 64 << 20
"""What DuckDB needs to work at all."""

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


@lru_cache(maxsize=512)
def referenced(expression: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns an expression reads, in the order of `names`. Raises QueryError if it is not one scalar expression."""
    if not isinstance(expression, str) or not expression.strip():
        raise QueryError(f'an expression is SQL text like "speed > 30", not {expression!r}')
    import duckdb

    cursor = _cursor()
    try:
        text = cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [f"SELECT ({expression}\n) FROM t"]).fetchone()[0]
    except duckdb.Error as e:
        raise QueryError(f"cannot read the expression {expression!r}: {e}") from None
    finally:
        cursor.close()
    tree = json.loads(text)
    if tree.get("error"):
        raise QueryError(f"cannot read the expression {expression!r}: {tree.get('error_message')}")
    nodes = [s["node"] for s in tree["statements"]]
    if len(nodes) != 1 or nodes[0].get("type") != "SELECT_NODE" or len(nodes[0]["select_list"]) != 1:
        raise QueryError(f"{expression!r} is more than one expression")
    if any(nodes[0].get(part) for part in ("where_clause", "having", "group_expressions", "modifiers", "sample", "qualify")):
        raise QueryError(f"{expression!r} is more than one expression")
    used: set[str] = set()
    for node in _walk(nodes[0]["select_list"][0]):
        if node.get("class") == "SUBQUERY":
            raise QueryError(f"{expression!r} holds a sub-query; only scalar expressions over the table's columns are allowed here")
        if node.get("class") == "STAR":
            used.update(names)
        if node.get("class") == "COLUMN_REF":
            for part in node["column_names"][:2]:
                alike = [n for n in names if n.lower() == part.lower()]
                if len(alike) > 1:
                    raise QueryError(
                        f"columns {' and '.join(alike)} differ only in case, which SQL ignores; use a Python function for where"
                    )
                used.update(alike)
    return tuple(n for n in names if n in used)


def _walk(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _walk(value)
    elif isinstance(node, list):
        for value in node:
            yield from _walk(value)


class Filter:
    """A where-expression over batches that have the columns it reads."""

    def __init__(self, expression: str, schema: pa.Schema, any_column: str, watch: Watch) -> None:
        self.columns = referenced(expression, tuple(schema.names))
        self._sql = f"SELECT CAST(({expression}\n) AS BOOLEAN) AS keep FROM t"
        self._names = self.columns or (any_column,)  # an expression without columns still needs to know how many rows there are
        self.columns = self._names
        self._row_seconds = NEVER
        """What a row took when this was last seen."""
        nothing = pa.Table.from_batches([], pa.schema([schema.field(n) for n in self._names]))
        if len(self.mask(nothing, watch, schema.names)):
            raise QueryError(f"where: {expression!r} aggregates; it must say of every row by itself whether to keep it")

    def mask(self, rows: pa.RecordBatch | pa.Table, watch: Watch, names: list[str] | None = None) -> pa.Array:
        """Which rows to keep. Only the columns it reads go through DuckDB, so no other value changes its type."""
        table = pa.table([rows.column(n) for n in self._names], list(self._names))
        few = table.num_rows <= _FEW
        watched = table.num_rows * self._row_seconds > _QUICK if not few else watch.limits.seconds != NEVER
        began = perf_counter()
        kept = run(self._sql, table, names or list(rows.schema.names), watch, watched).column(0)
        if not few:
            self._row_seconds = (perf_counter() - began) / table.num_rows
        return kept.combine_chunks() if isinstance(kept, pa.ChunkedArray) else kept


def run(sql: str, rows: pa.Table | pa.RecordBatchReader, names: list[str], watch: Watch, watched: bool = True) -> pa.Table:
    """Evaluate a statement over `t`; errors come out as QueryError with the nearest column name.

    A stream of rows is grouped, so it may take what its query may; a table is a batch that is in memory already. If it is not
    `watched`, neither the clock nor Ctrl-C ends it.
    """
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
        raise QueryError(_explain(str(e), names)) from None
    except RuntimeError as e:
        if str(e) == "Query interrupted":  # what DuckDB makes of a Ctrl-C that it notices itself
            raise KeyboardInterrupt from None
        raise


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
            self._cursor.register("t", rows)
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


def _explain(message: str, names: list[str]) -> str:
    first = message.split("\n")[0]
    first = first.split(" Error: ", 1)[-1]
    quoted = first.split('"')
    hint = nearest(quoted[1], names) if "not found" in first and len(quoted) > 2 else ""
    return f"{first}{hint}" if hint or "not found" not in first else f"{first} Columns: {', '.join(names)}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
