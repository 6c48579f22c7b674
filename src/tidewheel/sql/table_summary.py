"""Statements that only ask for the size and the ends of a whole table: SELECT count(*), min(ts), max(ts) FROM taxi.

The index knows both for every chunk. So each chunk is stood for by two rows, its least and its greatest, and the count is put into the
statement as a number; only rows that are in no chunk yet, or in one of which some were replaced, are read. DuckDB does the rest, so names
and types are those of any answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.model.dataclass import dataclass
from tidewheel.model.pieces import KMAX, KMIN, ROWS, TMAX, TMIN
from tidewheel.model.query import Query
from tidewheel.model.schema import TableSpec
from tidewheel.read.result import Result

if TYPE_CHECKING:
    from tidewheel.index.version import Version

NAME = "·summary"
"""What the rows that stand for a table are called in a statement. No table can be called so."""


_FEW = 4
"""Chunks with rows that were replaced, which are read whole: of more, DuckDB makes less work."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A statement that can be answered so. Places are first byte and number of bytes in its text."""

    columns: tuple[str, ...]
    """What it takes the least and greatest of, as it was written."""
    counts: tuple[tuple[int, int, bool], ...]
    """Where it says count(*), and whether that has no name yet."""
    table: tuple[int, int]
    alias: str


def summary_of(tree: Any) -> Summary | None:
    """Whether a statement asks for nothing else, seen by its tree."""
    node = tree.get("node", {})
    source = node.get("from_table") or {}
    others = ("where_clause", "group_expressions", "group_sets", "having", "sample", "qualify", "modifiers")
    if node.get("type") != "SELECT_NODE" or any(node.get(part) for part in others) or (node.get("cte_map") or {}).get("map"):
        return None
    if source.get("type") != "BASE_TABLE" or source.get("schema_name") or source.get("column_name_alias") or source.get("sample"):
        return None
    if node.get("aggregate_handling") != "STANDARD_HANDLING" or source.get("at_clause"):
        return None
    columns: dict[str, None] = {}
    counts = []
    for item in node.get("select_list", ()):
        if item.get("class") != "FUNCTION" or any(item.get(part) for part in ("filter", "distinct", "schema", "catalog", "export_state")):
            return None
        if (item.get("order_bys") or {}).get("orders"):
            return None
        name, arguments = item["function_name"].lower(), [one.get("expression", one) for one in item.get("arguments", ())]
        if name == "count_star" and not arguments:
            counts.append((item["query_location"], item["query_location_length"], not item["alias"]))
        elif name in ("min", "max") and len(arguments) == 1 and arguments[0].get("class") == "COLUMN_REF":
            columns[arguments[0]["column_names"][-1]] = None
        else:
            return None
    place = source["query_location"], source["query_location_length"]
    return Summary(tuple(columns), tuple(counts), place, source.get("alias") or source["table_name"]) if columns else None


def rewritten(text: str, summary: Summary, rows: int) -> str | None:
    """The statement over the rows that stand for its table. None if it is written in a way that is not understood here."""
    data = text.encode()
    alias = '"' + summary.alias.replace('"', '""') + '"'
    changes = [(*summary.table, f'"{NAME}" AS {alias}')]
    for at, length, unnamed in summary.counts:
        if not re.match(rb"(?i)count\s*\(\s*\*?\s*\)\Z", data[at : at + length]):
            return None
        changes.append((at, length, f"CAST({rows} AS BIGINT)" + (' AS "count_star()"' if unnamed else "")))
    for at, length, word in sorted(changes, reverse=True):
        data = data[:at] + word.encode() + data[at + length :]
    return data.decode()


def standing_for(
    version: Version, spec: TableSpec, names: tuple[str, ...], ask: Callable[[Version, Query], Result]
) -> tuple[pa.Table, int] | None:
    """Rows with the least and greatest values of some columns, and how many rows the table has; None if chunks do not know that."""
    from tidewheel.read.describe import (
        values_of_codes,  # here: a process that only parses needs none of its kernels, which take long to load
    )
    from tidewheel.read.pinned import split

    columns = [_column(name, spec) for name in names]
    if None in columns:
        return None
    whole, rest = split(version)
    if rest.chunks.count > _FEW:
        return None
    regions = whole.matrix[: whole.count]
    fields = [spec.schema.field(column) for column in dict.fromkeys(columns)]
    ends = []
    for field in fields:
        lo, hi = (TMIN, TMAX) if field.name == spec.time.column else (KMIN, KMAX)
        codes = pa.array(regions[:, [lo, hi]].reshape(-1), pa.int64())
        ends.append(values_of_codes(codes, field.type))
    schema = pa.schema(fields)
    fresh = ask(rest, Query(columns=schema.names, max_rows=float("inf"))).to_arrow()
    rows = int(regions[:, ROWS].sum()) + fresh.num_rows
    return pa.concat_tables([pa.table(ends, schema=schema), pa.table(fresh.columns, schema=schema)]), rows


def _column(name: str, spec: TableSpec) -> str | None:
    """The column whose codes are its values, by its name in whatever case."""
    from tidewheel.read.describe import column_of_codes

    alike = [field.name for field in spec.schema if field.name.lower() == name.lower()]
    return str(alike[0]) if len(alike) == 1 and column_of_codes(spec, alike[0]) else None
