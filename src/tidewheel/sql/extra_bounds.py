"""Bounds that are plain to see in a statement, but that DuckDB does not always hand to a scan: of times that are not in microseconds, of
times beside a function that may fail, and of columns of whole numbers that are compared with fractions.

They only prune, and are a little wider than what they say; DuckDB applies the condition itself. They are taken from conditions that
every row of a table must satisfy: those of a WHERE over this table alone, or joined with nothing but inner joins.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidewheel.duck.nodes import arguments, comparisons_of
from tidewheel.model import conditions as where
from tidewheel.model.dataclass import dataclass
from tidewheel.model.ip_addresses import address_ends
from tidewheel.model.plain_values import scalar_of
from tidewheel.model.schema import Ip, TableSpec
from tidewheel.model.times import INT64_MAX, TimeAxis, nanoseconds
from tidewheel.sql.parameters import Parameters, value_of

_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.(\d{1,9}))?)?)?")
_LARGE = 1 << 53


@dataclass(frozen=True, slots=True)
class Hint:
    """A comparison of a column of a table with a constant."""

    table: str
    column: str
    op: str
    value: str
    """A literal's text, or the name of a parameter."""
    is_parameter: bool


def hints_of(nodes: Iterable[dict[str, Any]]) -> Iterator[Hint]:
    """All that can be seen in the nodes of a statement's tree."""
    for node in nodes:
        if node.get("type") == "SELECT_NODE" and node.get("where_clause"):
            tables = _tables(node.get("from_table") or {})
            if tables is not None:
                yield from _in(node["where_clause"], tables)


def _tables(source: dict[str, Any]) -> dict[str, str] | None:
    """The tables of a FROM by the names they have in it; None if not every row of theirs must satisfy its WHERE."""
    if source.get("type") == "BASE_TABLE" and not source.get("sample") and not source.get("column_name_alias"):
        name = source["table_name"]
        return {(source.get("alias") or name).lower(): name}
    if source.get("type") == "JOIN" and source.get("join_type") == "INNER" and source.get("ref_type") in ("REGULAR", "CROSS"):
        left, right = _tables(source["left"]), _tables(source["right"])
        return None if left is None or right is None else {**left, **right}
    return None


def _in(condition: dict[str, Any], tables: dict[str, str]) -> Iterator[Hint]:
    match condition:
        case {"type": "CONJUNCTION_AND", "children": children}:
            for child in children:
                yield from _in(child, tables)
        case {"class": "FUNCTION", "function_name": name} if name.lower() in _ADDRESSED:
            column, *ends = arguments(condition)
            for op, end in zip(_ADDRESSED[name.lower()], ends, strict=False):
                yield from _compared(column, op, end, tables)
        case _:
            for column, op, value in comparisons_of(condition):
                yield from _compared(column, op, value, tables)


_ADDRESSED = {"ip_in": ("in network",), "ip_between": ("from address", "to address")}
"""What functions of addresses say of their first argument."""


def _compared(column: dict[str, Any], op: str, value: dict[str, Any], tables: dict[str, str]) -> Iterator[Hint]:
    if column.get("class") != "COLUMN_REF":
        return
    *before, name = column["column_names"]
    table = tables.get(before[0].lower()) if len(before) == 1 else next(iter(tables.values())) if not before and len(tables) == 1 else None
    if table is None:
        return
    if value.get("class") == "CAST":
        cast, value = value["type_expr"].get("type_name", "").upper(), value["child"]
        if cast not in ("TIMESTAMP", "TIMESTAMP_NS") and not (cast == "DATE" and _is_date(value)):
            return
    if value.get("class") == "PARAMETER":
        yield Hint(table, name, op, value["identifier"], True)
    elif value.get("class") == "CONSTANT" and value.get("literal", {}).get("kind") in ("STRING", "NUMERIC"):
        yield Hint(table, name, op, value["literal"]["text"], False)


def _is_date(value: dict[str, Any]) -> bool:
    """Whether a constant is a date as it stands: of a time, a cast to DATE leaves the day."""
    return value.get("class") == "CONSTANT" and len(str(value.get("literal", {}).get("text", ""))) == len("2026-01-31")


def narrowed(hints: Iterable[Hint], spec: TableSpec, parameters: Parameters) -> where.Condition | None:
    """What hints say about the rows of a table, in conditions that are not offered otherwise."""
    made = [condition for hint in hints for condition in _condition(hint, spec, parameters)]
    return where.all_of(made)


def _condition(hint: Hint, spec: TableSpec, parameters: Parameters) -> list[where.Condition]:
    alike = [field for field in spec.schema if field.name.lower() == hint.column.lower()]
    if len(alike) != 1 or alike[0].name not in (*spec.key.columns, spec.time.column):
        return []
    field = alike[0]
    try:
        value = value_of(hint.value, parameters) if hint.is_parameter else hint.value
    except LookupError:
        return []
    if hint.op in ("in network", "from address", "to address"):
        return _addressed(field.name, hint.op, value) if isinstance(spec.key, Ip) and isinstance(value, str) else []
    if pa.types.is_timestamp(field.type):
        found = _nanoseconds(value)
        unit = max(1000, TimeAxis(field.name, field.type.unit).nanos)
        return [] if found is None else list(_wider(field.name, hint.op, found, unit, pa.timestamp("ns", field.type.tz)))
    if pa.types.is_integer(field.type):
        number = _broken(value)
        return [] if number is None else list(_wider(field.name, hint.op, int(number), 2, pa.int64()))
    return []


def _addressed(column: str, op: str, value: str) -> list[where.Condition]:
    if (ends := address_ends([value] if op == "in network" else [value, value])) is None:
        return []
    return [where.AddressRange(column, None if op == "to address" else ends[0], None if op == "from address" else ends[1])]


def _wider(column: str, op: str, value: int, by: int, type_: pa.DataType) -> Iterator[where.Condition]:
    if abs(value) + by > INT64_MAX:
        return
    if op in (where.EQUAL, where.MORE, where.AT_LEAST):
        yield where.Comparison(column, where.AT_LEAST, scalar_of(value - by, type_))
    if op in (where.EQUAL, where.LESS, where.AT_MOST):
        yield where.Comparison(column, where.AT_MOST, scalar_of(value + by, type_))


def _nanoseconds(value: Any) -> int | None:
    if isinstance(value, str):
        found = _TIME.fullmatch(value)
        if found is None:
            return None
        fraction = found[1] or ""
        whole = value[: -len(fraction) - 1] if fraction else value
        try:
            seconds = nanoseconds(dt.datetime.fromisoformat(whole))
        except ValueError:
            return None
        return None if seconds is None else seconds + int(fraction.ljust(9, "0"))
    return nanoseconds(value) if isinstance(value, dt.date) else None


def _broken(value: Any) -> float | Decimal | None:
    """A number that is not whole, or not written so. The others are offered by DuckDB itself."""
    if isinstance(value, str):
        try:
            value = Decimal(value) if not value.lstrip("-").isdecimal() else None
        except ArithmeticError:
            return None
    if isinstance(value, (float, Decimal)) and math.isfinite(value) and -_LARGE < value < _LARGE:
        return value
    return None
