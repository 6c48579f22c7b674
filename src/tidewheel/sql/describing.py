"""DESCRIBE of a table, which says that keys, times and other columns are never null: DuckDB does not hear of it from a scan."""

from __future__ import annotations

from collections.abc import Mapping

from tidewheel.duck.nodes import Node, quoted
from tidewheel.engine.protocol import PinnedTable


def described(node: Node, tables: Mapping[str, PinnedTable]) -> str | None:
    """The text of a statement that tells it, if a query is DESCRIBE of a table."""
    match node:
        case {
            "from_table": {"type": "SHOW_REF", "show_type": "DESCRIBE", "query": {"from_table": {"type": "BASE_TABLE"} as source} as query}
        }:
            name, (item, *others) = source["table_name"], query["select_list"]
            if others or item.get("class") != "STAR" or query.get("where_clause") or source.get("schema_name"):
                return None
            table = next((one for known, one in tables.items() if known.lower() == name.lower()), None)
            return None if table is None else _text(name, table)
    return None


def _text(name: str, table: PinnedTable) -> str:
    spec = table.spec
    never = [field.name for field in spec.schema if not field.nullable or field.name in (*spec.key.columns, spec.time.column)]
    names = ", ".join("'" + one.replace("'", "''") + "'" for one in never)
    null = f"""CASE WHEN column_name IN ({names}) THEN 'NO' ELSE "null" END AS "null\""""
    return f"SELECT * REPLACE ({null}) FROM (DESCRIBE {quoted(name)})"
