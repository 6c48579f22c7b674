"""Statements that need nothing of DuckDB but its parser: SELECT columns (or totals) FROM one table WHERE plain comparisons LIMIT n.

Most selective statements are of this kind, and planning them in DuckDB takes longer than reading their rows. Only what is certain to mean
the same is taken: comparisons of a column with a constant of its own kind, of types that DuckDB hands out as they are. All else, and all
that is wrong, goes the long way.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from tidewheel.model.schema import TableSpec
from tidewheel.model.times import nanoseconds
from tidewheel.read.totals.asked import Total, type_of
from tidewheel.read.totals.sums import Totals
from tidewheel.sql import predicates as where
from tidewheel.sql.bounds import Finder
from tidewheel.sql.boxes import Bounds
from tidewheel.sql.parameters import Parameters, value_of
from tidewheel.sql.totals import column_of, totals_of

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?")
_WHOLE = re.compile(r"-?\d{1,19}")
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,8})?")
NO_PLACES: Mapping[str, int] = MappingProxyType({})
_OTHER_PARTS = ("group_expressions", "group_sets", "having", "sample", "qualify")


class _NotDirectError(Exception):
    """This statement goes the long way."""


@dataclass(frozen=True, slots=True)
class Direct:
    """A statement of this kind, as its tree shows it."""

    alias: str
    columns: tuple[tuple[str, str], ...]
    """Column and name; none: all columns."""
    totals: tuple[tuple[Total, str], ...]
    """Total and name, if these are what is asked for."""
    limit: int | None
    where: Any


@dataclass(frozen=True, slots=True)
class Asked:
    """What to read of a table."""

    columns: tuple[str, ...]
    schema: pa.Schema
    condition: where.Condition | None
    bounds: Bounds
    """Of the condition."""
    totals: Totals | None
    """What the rows are to come to, if it is not the rows themselves that are asked for. Then `columns` are those that it takes."""
    limit: int | None
    width: float
    """Bytes of a row; 0 if they are not all of one width."""


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
        items = node.get("select_list") or []
        totals = totals_of(items, alias)
        columns = () if totals else _selected(items, alias)
    except _NotDirectError:
        return None
    return Direct(alias, columns, totals, limit, node.get("where_clause"))


def _limit(modifiers: list[Any]) -> int | None:
    match modifiers:
        case []:
            return None
        case [{"type": "LIMIT_MODIFIER", "limit_type": "ROW_COUNT", "offset": None, "limit": {"class": "CONSTANT", "literal": literal}}]:
            if literal.get("kind") == "INTEGER" and _WHOLE.fullmatch(literal["text"]) and int(literal["text"]) >= 0:
                return int(literal["text"])
    raise _NotDirectError


def _selected(items: list[Any], alias: str) -> tuple[tuple[str, str], ...]:
    match items:
        case [{"class": "STAR", "relation_name": "", "columns": False, "expr": None} as star]:
            if any(star.get(part) for part in ("exclude_list", "replace_list", "qualified_exclude_list", "rename_list", "alias")):
                raise _NotDirectError
            return ()
    columns = tuple((_name(item, alias), item["alias"] or item["column_names"][-1]) for item in items if item.get("class") == "COLUMN_REF")
    names = [name.lower() for _, name in columns]
    if len(columns) != len(items) or not columns or len(set(names)) < len(names):
        raise _NotDirectError
    return columns


def _name(node: Any, alias: str) -> str:
    if (name := column_of(node, alias)) is None:
        raise _NotDirectError
    return name


# ---- with the table -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Given:
    """What is filled into a statement each time it is asked."""

    constants: Sequence[str]
    """Texts for the places that are known by a number."""
    parameters: Parameters


_Form = Callable[[Given], Any]
"""A condition, or a value in it, that waits for what is given."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement of this kind over its table, looked at once and asked often."""

    columns: tuple[str, ...]
    schema: pa.Schema
    totals: Totals | None
    limit: int | None
    form: _Form | None
    parameters: int
    """How many it takes."""
    finder: Finder
    width: float

    def asked(self, given: Given) -> Asked | None:
        """What is read then; None if it goes the long way."""
        if self.parameters != len(given.parameters or ()):  # one too many or too few is for DuckDB to say
            return None
        try:
            condition = None if self.form is None else self.form(given)
        except _NotDirectError:
            return None
        bounds = self.finder.bounds_of(condition)
        return Asked(self.columns, self.schema, condition, bounds, self.totals, self.limit, self.width)


def asked_of(direct: Direct, spec: TableSpec, parameters: Parameters) -> Asked | None:
    """What such a statement reads of its table; None if it goes the long way."""
    prepared = prepared_of(direct, spec)
    return None if prepared is None else prepared.asked(Given((), parameters))


def prepared_of(direct: Direct, spec: TableSpec, places: Mapping[str, int] = NO_PLACES) -> Prepared | None:
    """Such a statement over its table; None if it goes the long way. `places`: literals that are stand-ins for constants of a number."""
    try:
        reader = _Reader(direct.alias, spec, places)
        form = None if direct.where is None else reader.condition(direct.where, 0)
        totals = _totals(direct, spec) if direct.totals else None
        if totals is not None:
            columns, schema = tuple(totals.reads), totals.schema
        else:
            pairs = direct.columns or tuple((name, name) for name in spec.schema.names)
            columns = tuple(column for column, _ in pairs)
            schema = pa.schema([pa.field(name, _handed_out(_type(column, spec))) for column, name in pairs])
    except _NotDirectError:
        return None
    widths = [_width(type_) for type_ in schema.types]
    width = sum(widths) if all(widths) else 0.0
    return Prepared(columns, schema, totals, direct.limit, form, len(reader.used), Finder(spec), width)


def _totals(direct: Direct, spec: TableSpec) -> Totals:
    for total, _ in direct.totals:
        if total.column:
            _type(total.column, spec)
        if type_of(total, spec.schema) is None:
            raise _NotDirectError
    return Totals({name: total for total, name in direct.totals}, spec.schema)


def _width(type_: pa.DataType) -> float:
    """Bytes of a value; 0 if they are not all of one width."""
    try:
        return float(type_.bit_width / 8)
    except ValueError:
        return 0.0


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

    def __init__(self, alias: str, spec: TableSpec, places: Mapping[str, int]) -> None:
        self._alias = alias
        self._spec = spec
        self._places = places
        self.used: set[str] = set()
        """Parameters, by name or number."""

    def condition(self, node: Any, depth: int) -> _Form:
        if depth > 50:
            raise _NotDirectError
        match node:
            case {"type": "CONJUNCTION_AND" | "CONJUNCTION_OR" as kind, "children": [first, *rest]}:
                made = self.condition(first, depth + 1)
                for child in rest:
                    made = _joined(where.Both if kind == "CONJUNCTION_AND" else where.Either, made, self.condition(child, depth + 1))
                return made
            case {"type": "OPERATOR_NOT", "children": [child]}:
                return _negated(self.condition(child, depth + 1))
            case {"type": "OPERATOR_IS_NULL", "children": [child]}:
                return _always(where.IsNull(self._column(child)[0]))
            case {"type": "OPERATOR_IS_NOT_NULL", "children": [child]}:
                return _always(where.Negation(where.IsNull(self._column(child)[0])))
            case {"type": "COMPARE_IN", "children": [child, *values]} if values:
                return self._one_of(child, values)
            case {"type": "COMPARE_BETWEEN", "input": child, "lower": lower, "upper": upper}:
                return _joined(where.Both, self._comparison(child, where.AT_LEAST, lower), self._comparison(child, where.AT_MOST, upper))
            case {"class": "COMPARISON", "type": kind, "left": left, "right": right} if kind in where.OF_TREE:
                if left.get("class") != "COLUMN_REF":
                    return self._comparison(right, where.MIRRORED[where.OF_TREE[kind]], left)
                return self._comparison(left, where.OF_TREE[kind], right)
        raise _NotDirectError

    def _comparison(self, child: Any, op: str, value: Any) -> _Form:
        column, type_ = self._column(child)
        compared, form = _compared_as(type_), self._value(value, type_)
        return lambda given: where.Comparison(column, op, pa.scalar(form(given), compared))

    def _one_of(self, child: Any, values: list[Any]) -> _Form:
        column, type_ = self._column(child)
        compared, forms = _compared_as(type_), [self._value(value, type_) for value in values]
        return lambda given: where.OneOf(column, pa.array([form(given) for form in forms], compared))

    def _column(self, node: Any) -> tuple[str, pa.DataType]:
        if node.get("class") != "COLUMN_REF":
            raise _NotDirectError
        name = _name(node, self._alias)
        return name, _type(name, self._spec)

    def _value(self, node: Any, type_: pa.DataType) -> _Form:
        """A constant of a column's own kind."""
        cast = ""
        if node.get("class") == "CAST" and not node.get("try_cast"):
            cast, node = node["type_expr"].get("type_name", "").upper(), node["child"]
            if cast not in ("TIMESTAMP", "DATE") or node.get("class") != "CONSTANT":
                raise _NotDirectError
        if node.get("class") == "PARAMETER" and not cast:
            name = node["identifier"]
            self.used.add(name)
            return lambda given: _given(_parameter(name, given.parameters), type_)
        literal = node.get("literal") if node.get("class") == "CONSTANT" else None
        if not isinstance(literal, dict):
            raise _NotDirectError
        text = literal.get("text", "")
        read = _reading(literal.get("kind", ""), type_, cast)
        if (place := self._places.get(text)) is None:
            return _always(read(text))
        if text.startswith("-"):
            return lambda given: read("-" + given.constants[place])
        return lambda given: read(given.constants[place])


def _joined(how: type[where.Both] | type[where.Either], left: _Form, right: _Form) -> _Form:
    return lambda given: how(left(given), right(given))


def _negated(form: _Form) -> _Form:
    return lambda given: where.Negation(form(given))


def _always(made: Any) -> _Form:
    return lambda _: made


def _parameter(name: str, parameters: Parameters) -> Any:
    try:
        return value_of(name, parameters)
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


def _reading(kind: str, type_: pa.DataType, cast: str) -> Callable[[str], Any]:
    """How the text of a literal becomes a value of the column's type."""
    t = pa.types
    number = kind in ("INTEGER", "NUMERIC") and not cast
    if number and t.is_integer(type_):
        least, greatest = _ends(type_)
        return lambda text: _whole(text, least, greatest)
    if number and t.is_float64(type_):
        return _float
    if t.is_string(type_) and kind == "STRING" and not cast:
        return str
    if kind == "STRING" and (t.is_timestamp(type_) or t.is_date32(type_) and cast != "TIMESTAMP"):
        if t.is_date32(type_):
            return lambda text: _moment(text, _DATE).date()
        pattern = _DATE if cast == "DATE" else _TIME
        return lambda text: _microseconds(_moment(text, pattern))
    raise _NotDirectError


def _whole(text: str, least: int, greatest: int) -> int:
    """What is outside of a column's type is compared in a wider one: that is DuckDB's to do."""
    if not _WHOLE.fullmatch(text) or not least <= (value := int(text)) <= greatest:
        raise _NotDirectError
    return value


def _float(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise _NotDirectError
    return float(text)


def _moment(text: str, pattern: re.Pattern[str]) -> dt.datetime:
    if not pattern.fullmatch(text):
        raise _NotDirectError
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise _NotDirectError from None


def _microseconds(moment: dt.datetime) -> int:
    found = nanoseconds(moment)
    assert found is not None
    return found // 1000


def _given(value: Any, type_: pa.DataType) -> Any:
    """The value of a parameter."""
    t = pa.types
    if t.is_integer(type_) and type(value) is int:
        least, greatest = _ends(type_)
        if least <= value <= greatest:
            return value
    if t.is_float64(type_) and (type(value) is float and math.isfinite(value) or type(value) is int and abs(value) < 1 << 53):
        return float(value)
    if t.is_string(type_) and type(value) is str and "\0" not in value:
        return value
    if t.is_date32(type_) and type(value) is dt.date:
        return value
    if t.is_timestamp(type_) and type(value) is dt.datetime and (value.tzinfo is None or type_.tz is not None):
        return _microseconds(value)
    raise _NotDirectError


def _ends(type_: pa.DataType) -> tuple[int, int]:
    """The least and the greatest number of a type."""
    bits = type_.bit_width
    return (0, (1 << bits) - 1) if pa.types.is_unsigned_integer(type_) else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
