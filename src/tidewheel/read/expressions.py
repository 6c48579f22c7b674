"""SQL expressions over our batches, evaluated by DuckDB. Scalar expressions only: no sub-query, no file, no other table.

DuckDB is imported on first use. One in-memory database per process serves as evaluator; it holds no data.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa

from tidewheel.errors import LimitError, QueryError
from tidewheel.model.schema import nearest

MEMORY = "1GB"
"""What all grouping of this process together may take before it spills to a temporary folder."""

_lock = threading.Lock()
_database: Any = None


def _cursor() -> Any:
    """A connection of its own to the evaluator: cursors of one database may run in several threads."""
    global _database
    with _lock:
        if _database is None:
            import duckdb

            _database = duckdb.connect(":memory:")
            for setting in (
                "TimeZone = 'UTC'",
                f"memory_limit = '{MEMORY}'",
                f"temp_directory = '{os.path.join(tempfile.gettempdir(), f'tidewheel-{os.getpid()}')}'",
                "python_enable_replacements = false",
                "autoinstall_known_extensions = false",
                "autoload_known_extensions = false",
                "enable_external_access = false",
                "lock_configuration = true",
            ):
                _database.execute(f"SET {setting}")
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

    def __init__(self, expression: str, schema: pa.Schema, any_column: str) -> None:
        self.columns = referenced(expression, tuple(schema.names))
        self._sql = f"SELECT CAST(({expression}\n) AS BOOLEAN) AS keep FROM t"
        self._names = self.columns or (any_column,)  # an expression without columns still needs to know how many rows there are
        self.columns = self._names
        nothing = pa.Table.from_batches([], pa.schema([schema.field(n) for n in self._names]))
        if len(self.mask(nothing, schema.names)):
            raise QueryError(f"where: {expression!r} aggregates; it must say of every row by itself whether to keep it")

    def mask(self, rows: pa.RecordBatch | pa.Table, names: list[str] | None = None) -> pa.Array:
        """Which rows to keep. Only the columns it reads go through DuckDB, so no other value changes its type."""
        table = pa.table([rows.column(n) for n in self._names], list(self._names))
        kept = run(self._sql, table, names or list(rows.schema.names)).column(0)
        return kept.combine_chunks() if isinstance(kept, pa.ChunkedArray) else kept


def run(sql: str, rows: Any, names: list[str]) -> pa.Table:
    """Evaluate a statement over `t`; errors come out as QueryError with the nearest column name."""
    import duckdb

    cursor = _cursor()
    try:
        cursor.register("t", rows)
        return cursor.sql(sql).to_arrow_table()
    except duckdb.OutOfMemoryException as e:
        raise LimitError(f"the query needs more than {MEMORY} to group its rows; narrow it, or group by fewer columns: {e}") from None
    except duckdb.Error as e:
        raise QueryError(_explain(str(e), names)) from None
    finally:
        cursor.close()


def _explain(message: str, names: list[str]) -> str:
    first = message.split("\n")[0]
    first = first.split(" Error: ", 1)[-1]
    quoted = first.split('"')
    hint = nearest(quoted[1], names) if "not found" in first and len(quoted) > 2 else ""
    return f"{first}{hint}" if hint or "not found" not in first else f"{first} Columns: {', '.join(names)}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
