"""Constants of a statement that are more than a literal: now() - INTERVAL '5 minutes', (SELECT max(ts) FROM taxi), $from::TIMESTAMP.

Their values are what DuckDB makes of them; the shortest and most frequent ones are made here.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tidewheel.duck import nodes, statement_time
from tidewheel.duck.nodes import Node, arguments, cast_to, walk
from tidewheel.duck.parser import value_of_constant
from tidewheel.model.plain_values import scalar_of
from tidewheel.sql.parameters import Parameters, value_of

SAFE = frozenset(
    {
        *statement_time.FUNCTIONS, "+", "-", "*", "/", "//", "%", "||", "abs", "ceil", "ceiling", "concat", "date_add", "date_part",
        "date_trunc", "datepart", "datetrunc", "day", "epoch", "epoch_ms", "epoch_ns", "epoch_us", "floor", "greatest", "hour",
        "last_day", "least", "left", "list_value", "lower", "make_date", "make_timestamp", "make_timestamp_ms",
        "make_timestamp_ns", "make_timestamptz", "minute", "month", "round", "strptime", "substr", "substring", "time_bucket",
        "timezone", "to_days", "to_hours", "to_microseconds", "to_milliseconds", "to_minutes", "to_months", "to_seconds",
        "to_timestamp", "to_weeks", "to_years", "trim", "trunc", "upper", "year",
    }
)  # fmt: skip
"""Functions that tell the same whenever they are asked, take no time to speak of and make nothing large."""

_DEEPEST = 30
_GROUPED = ("group_expressions", "group_sets", "having", "sample", "qualify", "modifiers")

Scalar = Callable[[Node], pa.Scalar | None]
"""The value of a query of one row and one column, if it is to be had now."""

_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])")
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
_SPAN = re.compile(r"(?i)\s*(\d{1,9})\s+(second|minute|hour|day|week)s?\s*")


class ConstantFolder:
    """Finds the values of constants in one statement, at one moment."""

    def __init__(self, parameters: Parameters, at: dt.datetime, scalar: Scalar, is_column: Callable[[str], bool]) -> None:
        """`is_column`: whether a name could be that of a column, and so is no word for the time."""
        self._parameters = parameters
        self._at = at
        self._scalar = scalar
        self._is_column = is_column

    def value(self, node: Node) -> pa.Scalar | None:
        """What a constant is; None if it is none, or null, or an error (which is DuckDB's to say)."""
        if (quick := self._quick(node)) is not None:
            return quick
        plain = self._plain(node, 0)
        return None if plain is None else self._evaluated(plain)

    def _quick(self, node: Node) -> pa.Scalar | None:
        """Literals, parameters and moments around now."""
        match node:
            case {"class": "CONSTANT", "literal": {"kind": kind, "text": text}}:
                return _literal(kind, text)
            case {"class": "PARAMETER", "identifier": name}:
                return self._parameter(name)
            case {"class": "CAST", "child": {"class": "CONSTANT", "literal": {"kind": "STRING", "text": text}}}:
                plain = cast_to(node) == "TIMESTAMP" and _DATE.fullmatch(text)
                return scalar_of(dt.datetime.fromisoformat(text), pa.timestamp("us")) if plain else None
            case {"class": "FUNCTION", "function_name": "now", "arguments": []}:
                return scalar_of(self._at, pa.timestamp("us", "UTC"))
            case {"class": "COLUMN_REF", "column_names": ["current_timestamp"]} if not self._is_column("current_timestamp"):
                return scalar_of(self._at, pa.timestamp("us", "UTC"))
            case {"class": "CAST", "child": {"class": "FUNCTION" | "COLUMN_REF"} as child} if cast_to(node) == "TIMESTAMP":
                return None if (of := self._quick(child)) is None else of.cast(pa.timestamp("us"))
            case {"class": "FUNCTION", "function_name": "+" | "-" as sign, "arguments": [_, _]}:
                left, right = arguments(node)
                at, span = self._quick(left), _span(right)
                if at is not None and span is not None and pa.types.is_timestamp(at.type):
                    moved = at.value + (span if sign == "+" else -span)
                    return scalar_of(moved, at.type) if abs(moved) < 1 << 62 else None
        return None

    def _parameter(self, name: str) -> pa.Scalar | None:
        try:
            value = value_of(name, self._parameters)
        except LookupError:
            return None
        if isinstance(value, dt.datetime):
            return scalar_of(value, pa.timestamp("us", "UTC" if value.tzinfo else None))
        return pa.scalar(value) if type(value) in (str, int, float) and (type(value) is not int or abs(value) < 1 << 63) else None

    def _plain(self, node: Node, depth: int) -> Node | None:
        """A constant with values in place of its queries; None if it is no constant."""
        if depth > _DEEPEST:
            return None
        match node:
            case {"class": "CONSTANT"} | {"class": "PARAMETER"}:
                return node
            case {"class": "CAST", "child": child}:
                inner = self._plain(child, depth + 1)
                return None if inner is None else node if inner is child else node | {"child": inner}
            case {"class": "COLUMN_REF", "column_names": [name]}:
                return node if name.lower() in statement_time.WORDS and not self._is_column(name) else None
            case {"class": "FUNCTION", "function_name": name} if name.lower() in SAFE and not is_special(node):
                given = [self._plain(one, depth + 1) for one in arguments(node)]
                if any(one is None for one in given):
                    return None
                return node | {"arguments": [{"name": "", "expression": one} for one in given]}
            case {"class": "SUBQUERY", "subquery_type": "SCALAR", "subquery": {"node": query}}:
                item = self._with_totals(query)
                if item is not None:
                    return self._plain(item, depth + 1)
                found = self._scalar(query)
                return None if found is None else literal(found)
        return None

    def _with_totals(self, query: Node) -> Node | None:
        """Of (SELECT max(ts) - INTERVAL … FROM taxi): what it selects, with values for its totals, because the index may know them. None if
        it selects a total itself, or something else."""
        items = query.get("select_list") or [{}]
        if (
            len(items) != 1
            or any(query.get(part) for part in _GROUPED)
            or _is_total(items[0])
            or items[0].get("class") not in ("FUNCTION", "CAST")
        ):
            return None
        return self._filled(items[0], query) if any(_is_total(node) for node in walk(items[0])) else None

    def _filled(self, node: Node, query: Node) -> Node | None:
        if _is_total(node):
            found = self._scalar(query | {"select_list": [node | {"alias": ""}]})
            return None if found is None else literal(found)
        if node.get("class") == "CAST":
            inner = self._filled(node["child"], query)
            return None if inner is None else node | {"child": inner}
        if node.get("class") != "FUNCTION":
            return node
        given = [self._filled(one, query) for one in arguments(node)]
        return None if None in given else node | {"arguments": [{"name": "", "expression": one} for one in given]}

    def _evaluated(self, node: Node) -> pa.Scalar | None:
        names = {one["identifier"] for one in walk(node) if one.get("class") == "PARAMETER"}
        try:
            given = {name: value_of(name, self._parameters) for name in names}
        except LookupError:
            return None
        return value_of_constant(node, given, self._at)


def _literal(kind: str, text: str) -> pa.Scalar | None:
    if kind == "STRING":
        return scalar_of(text, pa.string())
    if kind == "INTEGER" and text.lstrip("-").isdecimal() and len(text) < 19:
        return scalar_of(int(text), pa.int64())
    return None


def _is_total(node: Node) -> bool:
    return (
        node.get("class") == "FUNCTION" and node["function_name"].lower() in ("min", "max", "count", "count_star") and not is_special(node)
    )


def is_special(node: Node) -> bool:
    """Whether more is asked of a function than its value."""
    more = ("filter", "distinct", "schema", "catalog", "export_state")
    return any(node.get(part) for part in more) or bool((node.get("order_bys") or {}).get("orders"))


def _span(node: Node) -> int | None:
    """The microseconds of INTERVAL '5 minutes' and of INTERVAL 5 MINUTE; None if that is not plain."""
    match node:
        case {"class": "CAST", "child": {"class": "CONSTANT", "literal": {"kind": "STRING", "text": text}}} if cast_to(node) == "INTERVAL":
            found = _SPAN.fullmatch(text)
            return int(found[1]) * _UNITS[found[2].lower()] * 1_000_000 if found else None
        case {"class": "FUNCTION", "function_name": name} if name.startswith("to_") and name[3:-1] in _UNITS:
            (number,) = arguments(node) or [{}]
            while number.get("class") in ("CAST", "FUNCTION"):
                if number["class"] == "FUNCTION" and number["function_name"] != "trunc":
                    return None
                number = number["child"] if number["class"] == "CAST" else arguments(number)[0]
            said = number.get("literal") or {}
            if said.get("kind") == "INTEGER" and said["text"].isdecimal() and len(said["text"]) < 10:
                return int(said["text"]) * _UNITS[name[3:-1]] * 1_000_000
    return None


def literal(value: pa.Scalar) -> Node | None:
    """A constant for a value, of its own type; None if there is no plain one."""
    t, type_ = pa.types, value.type
    if not value.is_valid:
        return None
    try:
        if t.is_integer(type_):
            return nodes.cast(nodes.constant(str(value.as_py()), "INTEGER"), "UBIGINT" if t.is_uint64(type_) else "BIGINT")
        if t.is_string(type_) or t.is_large_string(type_):
            return None if "\0" in value.as_py() else nodes.constant(value.as_py(), "STRING")
        if t.is_date32(type_):
            return nodes.cast(nodes.constant(value.as_py().isoformat(), "STRING"), "DATE")
        if t.is_timestamp(type_) and type_.unit == "us":
            moment: Any = value.as_py()
            text = moment.astimezone(dt.UTC).replace(tzinfo=None) if type_.tz else moment
            return nodes.cast(nodes.constant(f"{text}" + ("+00" if type_.tz else ""), "STRING"), "TIMESTAMPTZ" if type_.tz else "TIMESTAMP")
    except (ValueError, OverflowError):  # a time that Python has no date for
        pass
    return None
