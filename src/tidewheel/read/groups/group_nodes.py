"""Keys and aggregates, seen by the nodes of the trees that DuckDB makes of expressions, and their text and type again."""

from __future__ import annotations

import re

import pyarrow as pa

from tidewheel.duck.nodes import Node, arguments, cast_to, string_of
from tidewheel.model.schema import TableSpec
from tidewheel.read.groups.aggregates import (
    BY_ANOTHER,
    DISTINCT,
    FIRST,
    LAST,
    NAMES,
    Aggregate,
    type_of_aggregate,
    written_aggregate,
)
from tidewheel.read.groups.keys import (
    MICROSECONDS,
    MONTHS,
    PARTS,
    TYPES,
    UNITS,
    Arithmetic,
    Bucketed,
    Converted,
    Floored,
    Key,
    KeyStep,
    TimePart,
    Truncated,
    type_of_key,
    written_key,
)
from tidewheel.read.totals.parse import CASTS, COUNT, ROWS

_OWN_TRUNCATED = {other: unit for unit, others in UNITS.items() for other in (unit, *others)}
_OWN_PARTS = {other: part for part, others in PARTS.items() for other in (part, *others)}
_CALLED_PARTS = {
    "year": "year", "month": "month", "day": "day", "hour": "hour", "minute": "minute", "second": "second", "quarter": "quarter",
    "week": "week", "weekofyear": "week", "millisecond": "millisecond", "microsecond": "microsecond", "dayofmonth": "day",
    "dayofweek": "dow", "weekday": "dow", "isodow": "isodow", "dayofyear": "doy", "isoyear": "isoyear", "yearweek": "yearweek",
}  # fmt: skip
"""Functions that are a part of a time."""

_INTERVAL = re.compile(r"\s*(\d{1,18})\s*([a-zA-Z]+)\s*")
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{0,15})?")
_PLAIN_PARTS = ("schema", "catalog", "filter", "distinct", "export_state")


def key_of(node: Node, spec: TableSpec, alias: str) -> Key | None:
    """The key that a node is, over a table with this alias; None if it is something else, or not certain to mean the same."""
    key = _key(node, spec, alias.lower(), 0)
    return key if key is not None and type_of_key(key, spec.schema) is not None else None


def aggregate_of(node: Node, spec: TableSpec, alias: str) -> Aggregate | None:
    """The aggregate that a node is; None if it is something else, or not certain to mean the same."""
    cast = ""
    if node.get("class") == "CAST":
        cast, node = cast_to(node), node["child"]
        if cast not in CASTS:
            return None
    aggregate = _aggregate(node, spec, alias.lower(), cast)
    return aggregate if aggregate is not None and type_of_aggregate(aggregate, spec.schema) is not None else None


def written(value: Key | Aggregate) -> str:
    """The text of a key or an aggregate, which means it again."""
    return written_key(value) if isinstance(value, Key) else written_aggregate(value)


def type_of(value: Key | Aggregate, schema: pa.Schema) -> pa.DataType | None:
    """The type that DuckDB gives to it; None if it is left to DuckDB."""
    return type_of_key(value, schema) if isinstance(value, Key) else type_of_aggregate(value, schema)


# ---- keys -----------------------------------------------------------------------------------------------------

_DEEPEST = 16


def _key(node: Node, spec: TableSpec, alias: str, depth: int) -> Key | None:
    if depth > _DEEPEST:
        return None
    if node.get("class") == "COLUMN_REF":
        column = _column(node, spec, alias)
        return None if column is None else Key(column)
    child, step = _step(node)
    if child is None or step is None:
        return None
    below = _key(child, spec, alias, depth + 1)
    return None if below is None else Key(below.column, (*below.steps, step))


def _column(node: Node, spec: TableSpec, alias: str) -> str | None:
    *before, name = node["column_names"]
    if before and [part.lower() for part in before] != [alias]:
        return None
    # a column that is called like its table is meant before the whole row is: without one, there is no such column
    alike = [column for column in spec.schema.names if column.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def _step(node: Node) -> tuple[Node | None, KeyStep | None]:
    """What a node makes, and of what."""
    if node.get("class") == "CAST":
        to, type_ = cast_to(node), node["type_expr"]
        known = to in TYPES and not any(type_.get(part) for part in ("schema", "catalog", "children"))
        return node["child"], Converted(to) if known else None
    if not _is_plain_call(node):
        return None, None
    name, given = node["function_name"].lower(), arguments(node)
    match name, given:
        case (("date_trunc" | "datetrunc"), [unit, child]):
            known_unit = _OWN_TRUNCATED.get((string_of(unit) or "").lower())
            return child, Truncated(known_unit) if known_unit else None
        case (("date_part" | "datepart"), [part, child]):
            return child, _time_part(string_of(part) or "")
        case "time_bucket", [width, child]:
            return child, _bucketed(width)
        case "floor", [child]:
            return child, Floored()
        case _, [child] if name in _CALLED_PARTS:
            return child, TimePart(_CALLED_PARTS[name])
        case (("+" | "*"), [left, right]):
            return (left, _arithmetic(name, right)) if right.get("class") == "CONSTANT" else (right, _arithmetic(name, left))
        case (("-" | "//" | "%" | "/"), [left, right]):
            return left, _arithmetic(name, right)
    return None, None


def _is_plain_call(node: Node) -> bool:
    if node.get("class") != "FUNCTION" or any(node.get(part) for part in _PLAIN_PARTS):
        return False
    return not (node.get("order_bys") or {}).get("orders") and all(not one.get("name") for one in node.get("arguments") or ())


def _time_part(text: str) -> TimePart | None:
    name = _OWN_PARTS.get(text.lower())
    return TimePart(name) if name else None


def _bucketed(node: Node) -> Bucketed | None:
    """INTERVAL '5 minutes', INTERVAL 5 MINUTE, to_minutes(5)."""
    if cast_to(node) == "INTERVAL":
        found = _INTERVAL.fullmatch(string_of(node["child"]) or "")
        return None if found is None else _width(int(found[1]), found[2].lower())
    if not _is_plain_call(node) or not node["function_name"].lower().startswith("to_"):
        return None
    (number, *more) = arguments(node) or [{}]
    while number.get("class") == "CAST" or number.get("function_name") == "trunc":
        number = number["child"] if number["class"] == "CAST" else arguments(number)[0]
    found_number = _integer(number)
    return None if more or found_number is None else _width(found_number, node["function_name"].lower()[3:])


def _width(number: int, unit: str) -> Bucketed | None:
    name = _OWN_TRUNCATED.get(unit) if unit not in ("dayofmonth", "weekofyear") else None
    if name is None or number < 1:
        return None
    months, microseconds = number * MONTHS.get(name, 0), number * MICROSECONDS.get(name, 0)
    return Bucketed(months, microseconds) if months <= 12_000 and microseconds <= 1000 * 366 * MICROSECONDS["day"] else None


def _arithmetic(sign: str, node: Node) -> Arithmetic | None:
    text = _constant(node)
    if text is None:
        return None
    return Arithmetic(sign, float(text) if "." in text else int(text), text)


def _constant(node: Node) -> str | None:
    literal = node.get("literal") or {}
    if node.get("class") != "CONSTANT" or literal.get("kind") not in ("INTEGER", "NUMERIC"):
        return None
    text = str(literal.get("text", ""))
    return text if _NUMBER.fullmatch(text) and sum(c.isdigit() for c in text) <= 15 else None


def _integer(node: Node) -> int | None:
    text = _constant(node)
    return None if text is None or "." in text else int(text)


# ---- aggregates -----------------------------------------------------------------------------------------------


def _aggregate(node: Node, spec: TableSpec, alias: str, cast: str) -> Aggregate | None:
    if node.get("class") != "FUNCTION" or node.get("is_operator") or any(one.get("name") for one in node.get("arguments") or ()):
        return None
    if any(node.get(part) for part in _PLAIN_PARTS if part != "distinct"):
        return None
    name, given, orders = node["function_name"].lower(), arguments(node), (node.get("order_bys") or {}).get("orders") or []
    if name == "count_star":
        return Aggregate(ROWS, cast=cast) if not given and not orders and not node.get("distinct") else None
    what = NAMES.get(name)
    if what is None or not given or (of := _key(given[0], spec, alias, 0)) is None:
        return None
    if node.get("distinct"):
        return Aggregate(DISTINCT, of, cast=cast) if what == COUNT and len(given) == 1 and not orders else None
    if what in BY_ANOTHER:
        return _by_another(what, of, given, orders, spec, alias, cast)
    return Aggregate(what, of, cast=cast) if len(given) == 1 and not orders else None


def _by_another(what: str, of: Key, given: list[Node], orders: list[Node], spec: TableSpec, alias: str, cast: str) -> Aggregate | None:
    if what not in (FIRST, LAST):
        by = _key(given[1], spec, alias, 0) if len(given) == 2 and not orders else None
        return None if by is None or by.steps else Aggregate(what, of, by.column, cast)
    if len(given) != 1 or len(orders) != 1:  # without an order it is any row
        return None
    (order,) = orders
    by = _key(order["expression"], spec, alias, 0)
    if by is None or by.steps or by.column != spec.time.column:  # other columns have nulls, which are last or first
        return None
    if order.get("type") in ("ORDER_DEFAULT", "ASCENDING", "ORDER_ASC"):
        return Aggregate(what, of, by.column, cast)
    return None
