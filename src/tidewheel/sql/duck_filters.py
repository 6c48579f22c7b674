"""The filters that DuckDB offers to a scan, as conditions: those whose comparisons we make exactly as DuckDB does.

What is not taken here stays with DuckDB, which then applies it itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidewheel.duck.internals import Binary, Col, FilterNode, In, Lit, Postfix, Unary, exact_value
from tidewheel.model import conditions as where
from tidewheel.model.plain_values import array_of, scalar_of

_INTEGERS = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(), "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(), "UBIGINT": pa.uint64(),
}  # fmt: skip

_NAIVE = {"TIMESTAMP_S": "s", "TIMESTAMP_MS": "ms", "TIMESTAMP": "us"}

_DEEPEST = 200
"""Conditions within conditions; deeper ones stay with DuckDB."""


class _NotOursError(Exception):
    """This filter stays with DuckDB."""


def condition_of(node: FilterNode, schema: pa.Schema) -> where.Condition | None:
    """What a filter says, or None if it is DuckDB's to apply."""
    try:
        return _condition(node, schema, 0)
    except _NotOursError:
        return None


def _condition(node: FilterNode, schema: pa.Schema, depth: int) -> where.Condition:
    if depth > _DEEPEST:
        raise _NotOursError
    match node:
        case Binary(op="AND", left=left, right=right):
            return where.Both(_condition(left, schema, depth + 1), _condition(right, schema, depth + 1))
        case Binary(op="OR", left=left, right=right):
            return where.Either(_condition(left, schema, depth + 1), _condition(right, schema, depth + 1))
        case Unary(op="NOT", operand=of):
            return where.Negation(_condition(of, schema, depth + 1))
        case Postfix(op="IS NULL", operand=Col(parts=(column,))):
            return where.IsNull(_known(column, schema))
        case Postfix(op="IS NOT NULL", operand=Col(parts=(column,))):
            return where.Negation(where.IsNull(_known(column, schema)))
        case Binary(op=op, left=Col(parts=(column,)), right=Lit() as value) if op in where.INVERSE:
            return where.Comparison(column, op, _scalar(value, column, schema))
        case In(operand=Col(parts=(column,)), values=values) if values:
            return where.OneOf(column, _array(values, column, schema))
    raise _NotOursError


def _known(column: str, schema: pa.Schema) -> str:
    """A column whose nulls are plainly nulls."""
    index = schema.get_field_index(column)
    if index < 0 or pa.types.is_union(schema.types[index]) or pa.types.is_run_end_encoded(schema.types[index]):
        raise _NotOursError
    return column


def _scalar(node: FilterNode, column: str, schema: pa.Schema) -> pa.Scalar:
    """A constant, if Arrow compares it with the column's values as DuckDB does."""
    if not isinstance(node, Lit) or not exact_value(node):
        raise _NotOursError
    kind = schema.field(_known(column, schema)).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    own = _arrow_type(node.type, kind)
    if own is None:
        raise _NotOursError
    value: Any = node.value
    try:
        return scalar_of(value, own)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        raise _NotOursError from None


def _array(nodes: Sequence[FilterNode], column: str, schema: pa.Schema) -> pa.Array:
    """Constants of one list, which may be long: they have one type, so that is looked at once."""
    first = _scalar(nodes[0], column, schema)
    if not pa.types.is_integer(first.type) or any(not isinstance(node, Lit) or type(node.value) is not int for node in nodes):
        return pa.array([_scalar(node, column, schema) for node in nodes], first.type)  # not by Python's: it has no year 10,000
    return array_of([node.value for node in nodes if isinstance(node, Lit)], first.type)


def _arrow_type(said: str, kind: pa.DataType) -> pa.DataType | None:
    """The type of a constant that DuckDB compares with a column of this type, where both compare alike."""
    t = pa.types
    if said in _INTEGERS:
        return kind if _INTEGERS[said] == kind else None
    if said in _NAIVE:  # nanoseconds have a type of their own, which is never offered
        return pa.timestamp(_NAIVE[said]) if t.is_timestamp(kind) and kind.tz is None and kind.unit == _NAIVE[said] else None
    match said:
        case "BOOLEAN":
            return kind if t.is_boolean(kind) else None
        case "DOUBLE":
            return kind if t.is_float64(kind) else None
        case "FLOAT":
            return kind if t.is_float32(kind) else None
        case "VARCHAR":
            return kind if t.is_string(kind) or t.is_large_string(kind) else None
        case "BLOB":
            return kind if t.is_binary(kind) or t.is_large_binary(kind) else None
        case "DATE":
            return kind if t.is_date32(kind) else None
        case "TIMESTAMP WITH TIME ZONE":  # DuckDB has microseconds only: it cuts finer ones off, and may overflow with coarser ones
            return kind if t.is_timestamp(kind) and kind.tz is not None and kind.unit == "us" else None
    return kind if said.startswith("DECIMAL") and t.is_decimal128(kind) else None
