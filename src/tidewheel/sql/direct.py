"""Statements that need nothing of DuckDB but its parser: SELECT columns (or count(*)) FROM one table WHERE plain comparisons LIMIT n.

Most selective statements are of this kind, and planning them in DuckDB takes longer than reading their rows. Only what is certain to mean
the same is taken: comparisons of a column with a constant of its own kind, of types that DuckDB hands out as they are. All else, and all
that is wrong, goes the long way.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidewheel.model.schema import TableSpec
from tidewheel.model.times import nanoseconds
from tidewheel.sql import predicates as where
from tidewheel.sql.parameters import Parameters, value_of

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?")
_WHOLE = re.compile(r"-?\d{1,19}")
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,8})?")
_OTHER_PARTS = ("group_expressions", "group_sets", "having", "sample", "qualify")


class _NotDirectError(Exception):
    """This statement goes the long way."""


@dataclass(frozen=True, slots=True)
class Direct:
    """A statement of this kind, as its tree shows it."""

    alias: str
    columns: tuple[tuple[str, str], ...]
    """Column and name; none: all columns."""
    count: str
    """The name of count(*), if it is that what is asked for."""
    limit: int | None
    where: Any


@dataclass(frozen=True, slots=True)
class Asked:
    """What to read of a table."""

    columns: tuple[str, ...]
    schema: pa.Schema
    condition: where.Condition | None
    count: bool
    limit: int | None


def direct_of(tree: Any) -> Direct | None:
    """Whether a statement is of this kind, seen by its tree alone."""
    node = tree.get("node", {})
    source = node.get("from_table") or {}
    if node.get("type") != "SELECT_NODE" or any(node.get(part) for part in _OTHER_PARTS) or (node.get("cte_map") or {}).get("map"):
        return None
    if node.get("aggregate_handling") != "STANDARD_HANDLING" or source.get("type") != "BASE_TABLE" or source.get("schema_name"):
        return None
    if any(source.get(part) for part in ("catalog_name", "sample", "column_name_alias", "at_clause")):
        return None
    try:
        limit = _limit(node.get("modifiers") or [])
        alias = (source.get("alias") or source["table_name"]).lower()
        count, columns = _selected(node.get("select_list") or [], alias)
    except _NotDirectError:
        return None
    return Direct(alias, columns, count, limit, node.get("where_clause"))


def _limit(modifiers: list[Any]) -> int | None:
    match modifiers:
        case []:
            return None
        case [{"type": "LIMIT_MODIFIER", "limit_type": "ROW_COUNT", "offset": None, "limit": {"class": "CONSTANT", "literal": literal}}]:
            if literal.get("kind") == "INTEGER" and _WHOLE.fullmatch(literal["text"]) and int(literal["text"]) >= 0:
                return int(literal["text"])
    raise _NotDirectError


def _selected(items: list[Any], alias: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    match items:
        case [{"class": "STAR", "relation_name": "", "columns": False, "expr": None} as star]:
            if any(star.get(part) for part in ("exclude_list", "replace_list", "qualified_exclude_list", "rename_list", "alias")):
                raise _NotDirectError
            return "", ()
        case [{"class": "FUNCTION", "function_name": "count_star", "arguments": [], "filter": None, "distinct": False} as count]:
            if count.get("schema") or count.get("catalog"):
                raise _NotDirectError
            return count["alias"] or "count_star()", ()
    columns = tuple((_name(item, alias), item["alias"] or item["column_names"][-1]) for item in items if item.get("class") == "COLUMN_REF")
    names = [name.lower() for _, name in columns]
    if len(columns) != len(items) or not columns or len(set(names)) < len(names):
        raise _NotDirectError
    return "", columns


def _name(node: Any, alias: str) -> str:
    *before, name = node["column_names"]
    if before and [part.lower() for part in before] != [alias]:
        raise _NotDirectError
    return str(name)


# ---- with the table and the parameters ------------------------------------------------------------------------


def asked_of(direct: Direct, spec: TableSpec, parameters: Parameters) -> Asked | None:
    """What such a statement reads of its table; None if it goes the long way."""
    try:
        used: set[str] = set()
        condition = None if direct.where is None else _Reader(direct.alias, spec, parameters, used).condition(direct.where, 0)
        if len(used) != len(parameters or ()):  # one too many or too few is for DuckDB to say
            return None
        if direct.count:
            return Asked((), pa.schema([pa.field(direct.count, pa.int64())]), condition, True, direct.limit)
        pairs = direct.columns or tuple((name, name) for name in spec.schema.names)
        fields = [pa.field(name, _handed_out(_type(column, spec))) for column, name in pairs]
        return Asked(tuple(column for column, _ in pairs), pa.schema(fields), condition, False, direct.limit)
    except _NotDirectError:
        return None


def _type(column: str, spec: TableSpec) -> pa.DataType:
    """Of a column that is written as the table has it, in upper and lower case too."""
    if sum(name.lower() == column.lower() for name in spec.schema.names) != 1 or column not in spec.schema.names:
        raise _NotDirectError
    return spec.schema.field(column).type


def _handed_out(type_: pa.DataType) -> pa.DataType:
    t = pa.types
    same = t.is_integer(type_) or t.is_float32(type_) or t.is_float64(type_) or t.is_boolean(type_) or t.is_date32(type_)
    same = same or t.is_string(type_) or t.is_binary(type_) or t.is_decimal128(type_)
    if not same and not (t.is_timestamp(type_) and (type_.tz is None or type_.tz == "UTC" and type_.unit == "us")):
        raise _NotDirectError
    return type_


class _Reader:
    """Reads the condition of one statement."""

    def __init__(self, alias: str, spec: TableSpec, parameters: Parameters, used: set[str]) -> None:
        self._alias = alias
        self._spec = spec
        self._parameters = parameters
        self._used = used

    def condition(self, node: Any, depth: int) -> where.Condition:
        if depth > 50:
            raise _NotDirectError
        match node:
            case {"type": "CONJUNCTION_AND" | "CONJUNCTION_OR" as kind, "children": [first, *rest]}:
                made = self.condition(first, depth + 1)
                for child in rest:
                    made = (where.Both if kind == "CONJUNCTION_AND" else where.Either)(made, self.condition(child, depth + 1))
                return made
            case {"type": "OPERATOR_NOT", "children": [child]}:
                return where.Negation(self.condition(child, depth + 1))
            case {"type": "OPERATOR_IS_NULL", "children": [child]}:
                return where.IsNull(self._column(child)[0])
            case {"type": "OPERATOR_IS_NOT_NULL", "children": [child]}:
                return where.Negation(where.IsNull(self._column(child)[0]))
            case {"type": "COMPARE_IN", "children": [child, *values]} if values:
                column, type_ = self._column(child)
                return where.OneOf(column, pa.array([self._value(value, type_) for value in values], _compared_as(type_)))
            case {"type": "COMPARE_BETWEEN", "input": child, "lower": lower, "upper": upper}:
                return where.Both(self._comparison(child, where.AT_LEAST, lower), self._comparison(child, where.AT_MOST, upper))
            case {"class": "COMPARISON", "type": kind, "left": left, "right": right} if kind in where.OF_TREE:
                if left.get("class") != "COLUMN_REF":
                    return self._comparison(right, where.MIRRORED[where.OF_TREE[kind]], left)
                return self._comparison(left, where.OF_TREE[kind], right)
        raise _NotDirectError

    def _comparison(self, child: Any, op: str, value: Any) -> where.Condition:
        column, type_ = self._column(child)
        return where.Comparison(column, op, pa.scalar(self._value(value, type_), _compared_as(type_)))

    def _column(self, node: Any) -> tuple[str, pa.DataType]:
        if node.get("class") != "COLUMN_REF":
            raise _NotDirectError
        name = _name(node, self._alias)
        return name, _type(name, self._spec)

    def _value(self, node: Any, type_: pa.DataType) -> Any:
        """A constant of a column's own kind."""
        cast = ""
        if node.get("class") == "CAST" and not node.get("try_cast"):
            cast, node = node["type_expr"].get("type_name", "").upper(), node["child"]
            if cast not in ("TIMESTAMP", "DATE") or node.get("class") != "CONSTANT":
                raise _NotDirectError
        if node.get("class") == "PARAMETER" and not cast:
            return _given(self._parameter(node["identifier"]), type_)
        literal = node.get("literal") if node.get("class") == "CONSTANT" else None
        if not isinstance(literal, dict):
            raise _NotDirectError
        return _written(literal.get("kind", ""), literal.get("text", ""), type_, cast)

    def _parameter(self, name: str) -> Any:
        self._used.add(name)
        try:
            return value_of(name, self._parameters)
        except LookupError:
            raise _NotDirectError from None


def _compared_as(type_: pa.DataType) -> pa.DataType:
    t = pa.types
    whole = t.is_signed_integer(type_) or t.is_unsigned_integer(type_) and type_.bit_width < 64
    if whole or t.is_float64(type_) or t.is_string(type_) or t.is_date32(type_):
        return type_
    if t.is_timestamp(type_) and type_.unit == "us" and type_.tz in (None, "UTC"):
        return type_
    raise _NotDirectError


def _written(kind: str, text: str, type_: pa.DataType, cast: str) -> Any:
    """The value of a literal."""
    t = pa.types
    if t.is_integer(type_) and kind in ("INTEGER", "NUMERIC") and not cast and _WHOLE.fullmatch(text):
        return _fits(int(text), type_)
    if t.is_float64(type_) and kind in ("INTEGER", "NUMERIC") and not cast and _NUMBER.fullmatch(text):
        return float(text)
    if t.is_string(type_) and kind == "STRING" and not cast:
        return text
    pattern = _DATE if cast == "DATE" or t.is_date32(type_) else _TIME
    if kind == "STRING" and (t.is_timestamp(type_) or t.is_date32(type_) and cast != "TIMESTAMP") and pattern.fullmatch(text):
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            raise _NotDirectError from None
        return _given(moment.date() if t.is_date32(type_) else moment, type_)
    raise _NotDirectError


def _given(value: Any, type_: pa.DataType) -> Any:
    """The value of a parameter."""
    t = pa.types
    if t.is_integer(type_) and type(value) is int:
        return _fits(value, type_)
    if t.is_float64(type_) and (type(value) is float and math.isfinite(value) or type(value) is int and abs(value) < 1 << 53):
        return float(value)
    if t.is_string(type_) and type(value) is str and "\0" not in value:
        return value
    if t.is_date32(type_) and type(value) is dt.date:
        return value
    if t.is_timestamp(type_) and type(value) is dt.datetime and (value.tzinfo is None or type_.tz is not None):
        found = nanoseconds(value)
        assert found is not None
        return found // 1000
    raise _NotDirectError


def _fits(value: int, type_: pa.DataType) -> int:
    """What is outside of a column's type is compared in a wider one: that is DuckDB's to do."""
    bits = type_.bit_width
    least, greatest = (0, (1 << bits) - 1) if pa.types.is_unsigned_integer(type_) else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if not least <= value <= greatest:
        raise _NotDirectError
    return value
