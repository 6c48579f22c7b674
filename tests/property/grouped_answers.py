"""Whether an answer is the right one, as far as its statement says which rows in which order, and how exactly, that is."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa

from tests.property.grouped_statements import Statement

Row = tuple[Any, ...]


def difference(statement: Statement, ours: pa.Table, theirs: pa.Table) -> str | None:
    """None: it is right. `theirs` is DuckDB's answer to the statement, or to the whole of it if it may choose among rows."""
    if told(ours.schema) != told(theirs.schema):
        return f"columns {told(ours.schema)}, right are {told(theirs.schema)}"
    mine, right = rows(ours), rows(theirs)
    expected = right if statement.whole is None else right[statement.offset :][: statement.limit]
    if len(mine) != len(expected):
        return f"{len(mine)} rows, right are {len(expected)}{shown(mine, expected)}"
    if statement.order is not None and not statement.total:
        for i, (a, b) in enumerate(zip(mine, expected, strict=True)):
            if any(a[c] != b[c] for c in statement.order):
                return f"row {i} is {a}, in its place should be one like {b}"
    if statement.whole is not None:
        surplus = Counter(map(repr, mine)) - Counter(map(repr, right))
        return f"rows that are not there: {list(surplus)[:3]}" if surplus else None
    if statement.order is None or not statement.total:
        inexact = frozenset(statement.loose) | statement.looser
        mine, right = (sorted(some, key=lambda row: sortable(row, inexact)) for some in (mine, right))
    for i, (a, b) in enumerate(zip(mine, right, strict=True)):
        if not alike(a, b, statement):
            return f"row {i} is {a}, right is {b}{shown(mine, right)}"
    return None


def told(schema: pa.Schema) -> list[str]:
    return [f"{field.name} {field.type}" for field in schema]


def rows(table: pa.Table) -> list[Row]:
    """As Python has them, or what is quicker to make and as different. NaN equals itself, and -0.0 is 0.0."""
    return list(zip(*map(_values, table.columns), strict=True)) if table.num_columns else [()] * table.num_rows


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_floating(kind):
        return ["nan" if value != value else None if value is None else value + 0.0 for value in column.to_pylist()]
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind) or pa.types.is_time64(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_nested(kind):
        return [None if value is None else repr(value) for value in column.to_pylist()]
    return column.to_pylist()


def sortable(row: Row, inexact: frozenset[int]) -> tuple[str, str]:
    """Exact values first: what differs in the last digits only is sorted among the same."""
    return repr([v for c, v in enumerate(row) if c not in inexact]), repr([f"{v:.9e}" if isinstance(v, float) else v for v in row])


def alike(one: Row, other: Row, statement: Statement) -> bool:
    return all(
        a == b
        or (c in statement.loose and near(a, b, 1e-12, 1e-12 * statement.loose[c]))
        or (c in statement.looser and near(a, b, 1e-9, 1e-6))
        for c, (a, b) in enumerate(zip(one, other, strict=True))
    )


def near(one: Any, other: Any, relative: float, absolute: float) -> bool:
    return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=relative, abs_tol=absolute)


def shown(mine: list[Row], right: list[Row]) -> str:
    """Some of the rows that only one of them has."""
    ours, theirs = Counter(map(repr, mine)), Counter(map(repr, right))
    return f"\nours alone: {list(ours - theirs)[:4]}\nDuckDB's alone: {list(theirs - ours)[:4]}"
