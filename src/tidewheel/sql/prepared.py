"""The condition of a direct statement, prepared once: a form into which each execution puts its own constants and parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidewheel.duck.nodes import arguments, cast_to, comparisons_of
from tidewheel.model import conditions as where
from tidewheel.model.dataclass import dataclass
from tidewheel.model.ip_addresses import address_ends
from tidewheel.model.plain_values import array_of, scalar_of
from tidewheel.model.schema import ColumnKey, Ip, TableSpec
from tidewheel.read.boxes import MOST_BOXES, NOTHING, Box, Boxes, Interval
from tidewheel.sql import constants
from tidewheel.sql.constants import NotDirectError, compared_as, is_plain_text, is_wide, reading
from tidewheel.sql.parameters import Parameters, value_of
from tidewheel.sql.totals import column_of


@dataclass(frozen=True, slots=True)
class Given:
    """What is filled into a statement each time it is asked."""

    constants: Sequence[str]
    """Texts for the places that are known by a number."""
    parameters: Parameters


_SEARCHES = {"starts_with": "begin", "prefix": "begin", "^@": "begin", "ends_with": "end", "suffix": "end", "contains": "inside"}
"""Functions of a text and another, and where the other is in it."""

_LIKE = {"~~": False, "!~~": True}
"""LIKE and NOT LIKE, as trees call them."""

Form = Callable[[Given], Any]
"""A condition, or a value in it, that waits for what is given."""


def name_of(node: Any, alias: str) -> str:
    """Of a column, as it is written."""
    if (name := column_of(node, alias)) is None:
        raise NotDirectError("an expression stands where a column could")
    return name


def type_of_column(column: str, spec: TableSpec) -> pa.DataType:
    """Of a column that is written as the table has it, in upper and lower case too."""
    if sum(name.lower() == column.lower() for name in spec.schema.names) != 1 or column not in spec.schema.names:
        raise NotDirectError(f"{column} is not written as the table has it")
    return spec.schema.field(column).type


class Reader:
    """Reads the condition of one statement."""

    def __init__(self, alias: str, spec: TableSpec, places: Mapping[str, int]) -> None:
        self._alias = alias
        self._spec = spec
        self._places = places
        self._ends: list[tuple[str, str, Form]] = []
        self._listed: list[tuple[str, Sequence[Form]]] = []
        self._is_box = True
        self.used: set[str] = set()
        """Parameters, by name or number."""

    @property
    def box(self) -> Callable[[Given], Boxes | None] | None:
        """If what was read is nothing but ends of key and time joined by AND, where both are whole numbers or the key is a text, and one
        list of texts at most: how to find the boxes that say the same, unless they are many. Most conditions are like that, and it is
        the shorter way to what `Finder` finds."""
        ends, listed = self._ends, self._listed
        if not self._is_box or len(listed) > 1:
            return None
        return (lambda given: _boxes(*listed[0], _box(ends, given), given)) if listed else (lambda given: _box(ends, given))

    def condition(self, node: Any, depth: int) -> Form:
        if depth > 50:
            raise NotDirectError("its condition is deep")
        match node:
            case {"type": "CONJUNCTION_AND" | "CONJUNCTION_OR" as kind, "children": [_, *_] as children}:
                self._is_box = self._is_box and kind == "CONJUNCTION_AND"
                forms = [self.condition(child, depth + 1) for child in children]
                return _joined(where.Both if kind == "CONJUNCTION_AND" else where.Either, forms)
            case _ if compared := comparisons_of(node):
                if len(compared) > 1:
                    self._check_alike(compared[0][0], [value for _, _, value in compared])
                return _joined(where.Both, [self._comparison(*one) for one in compared])
        was_box, self._is_box = self._is_box, False
        match node:
            case {"type": "OPERATOR_NOT", "children": [child]}:
                return _negated(self.condition(child, depth + 1))
            case {"type": "OPERATOR_IS_NULL", "children": [child]}:
                return _always(where.IsNull(self._column(child)[0]))
            case {"type": "OPERATOR_IS_NOT_NULL", "children": [child]}:
                return _always(where.Negation(where.IsNull(self._column(child)[0])))
            case {"type": "COMPARE_IN", "children": [child, *values]} if values:
                self._check_alike(child, values)
                return self._one_of(child, values, was_box)
            case {"class": "COMPARISON", "type": "COMPARE_NOT_DISTINCT_FROM", "left": left, "right": right}:
                return self._certain(left, right)
            case {"class": "COMPARISON", "type": "COMPARE_DISTINCT_FROM", "left": left, "right": right}:
                return _negated(self._certain(left, right))
            case {"class": "FUNCTION", "function_name": name} if name.lower() in ("ip_in", "ip_between"):
                return self._addressed(name.lower(), arguments(node))
            case {"class": "FUNCTION", "function_name": name} if is_search(node):
                return self._searched(name.lower(), arguments(node))
        return self._truth(node)

    def _truth(self, node: Any) -> Form:
        """A column of booleans that stands alone."""
        try:
            column, type_ = self._column(node)
        except NotDirectError:
            raise NotDirectError(f"its condition has {said(node)} in it") from None
        if not pa.types.is_boolean(type_):
            raise NotDirectError(f"its condition has {said(node)} in it")
        return _always(where.Comparison(column, where.EQUAL, scalar_of(True, pa.bool_())))

    def _certain(self, child: Any, value: Any) -> Form:
        """IS NOT DISTINCT FROM a constant, IS TRUE and IS FALSE: false where the column is null."""
        if cast_to(child) == "BOOLEAN" and pa.types.is_boolean(self._column(child["child"])[1]):
            child = child["child"]
        column = self._column(child)[0]
        compared = self._comparison(child, where.EQUAL, value)
        return lambda given: where.Both(where.Negation(where.IsNull(column)), compared(given))

    def _check_alike(self, child: Any, values: list[Any]) -> None:
        """One DOUBLE beside a FLOAT makes DOUBLEs of all constants."""
        if not pa.types.is_float32(self._column(child)[1]):
            return
        kinds = {True if one.get("class") == "PARAMETER" else is_wide(one) for one in values}
        if {True, False} <= kinds:
            raise NotDirectError("a column of type float is compared with constants of several kinds")

    def _comparison(self, child: Any, op: str, value: Any) -> Form:
        column, type_ = self._column(child)
        compared, form = compared_as(type_), self._value(value, type_)
        key = self._spec.key
        if isinstance(key, Ip) and column == key.column and op not in (where.EQUAL, where.UNEQUAL):
            raise NotDirectError("the order of texts is not that of addresses")
        bounded = column == self._spec.time.column or isinstance(key, ColumnKey) and column == key.column
        whole = pa.types.is_integer(type_) or pa.types.is_timestamp(type_) and type_.unit == "us"
        closed = op in (where.EQUAL, where.AT_LEAST, where.AT_MOST)
        if pa.types.is_boolean(type_) and op not in (where.EQUAL, where.UNEQUAL):
            raise NotDirectError("its condition says which of two truths is greater")
        self._is_box = self._is_box and bounded and op != where.UNEQUAL and (whole or closed and pa.types.is_string(type_))
        self._ends.append((column, op, form))
        return lambda given: where.Comparison(column, op, scalar_of(form(given), compared))

    def _one_of(self, child: Any, values: list[Any], is_box: bool) -> Form:
        column, type_ = self._column(child)
        compared, forms = compared_as(type_), [self._value(value, type_) for value in values]
        self._is_box = is_box and isinstance(self._spec.key, ColumnKey) and column == self._spec.key.column and pa.types.is_string(type_)
        self._listed.append((column, forms))
        return lambda given: where.OneOf(column, array_of([form(given) for form in forms], compared))

    def _addressed(self, name: str, given: list[Any]) -> Form:
        """That the key is an address of a network, or between two."""
        if len(given) != (2 if name == "ip_in" else 3) or not isinstance(self._spec.key, Ip):
            raise NotDirectError("its condition compares something else than a column with a constant")
        column, type_ = self._column(given[0])
        if column != self._spec.key.column:
            raise NotDirectError("its condition compares something else than a column with a constant")
        forms = [self._value(one, type_) for one in given[1:]]
        return lambda given: _range(column, [form(given) for form in forms])

    def _searched(self, name: str, given: list[Any]) -> Form:
        """That a text begins with another, ends with it or contains it, or that it is like a pattern that says no more than this."""
        column, type_ = self._column(given[0])
        if len(given) != 2 or not is_plain_text(type_):
            raise NotDirectError("its condition searches in something else than a column of texts")
        form = self._value(given[1], type_)
        if name in _LIKE:
            like: Form = lambda given: _like(column, form(given))  # noqa: E731
            return _negated(like) if _LIKE[name] else like
        return lambda given: where.HasText(column, _SEARCHES[name], form(given))

    def _column(self, node: Any) -> tuple[str, pa.DataType]:
        if node.get("class") != "COLUMN_REF":
            raise NotDirectError("its condition compares something else than a column with a constant")
        name = name_of(node, self._alias)
        return name, type_of_column(name, self._spec)

    def _value(self, node: Any, type_: pa.DataType) -> Form:
        """A constant of a column's own kind."""
        cast = ""
        if node.get("class") == "CAST" and not node.get("try_cast"):
            cast, node = node["type_expr"].get("type_name", "").upper(), node["child"]
            if cast not in ("TIMESTAMP", "DATE", "TIME") or node.get("class") != "CONSTANT":
                raise NotDirectError("its condition compares something else than a column with a constant")
        if node.get("class") == "PARAMETER" and not cast:
            name = node["identifier"]
            self.used.add(name)
            return lambda given: constants.given(_parameter(name, given.parameters), type_)
        literal = node.get("literal") if node.get("class") == "CONSTANT" else None
        if not isinstance(literal, dict):
            raise NotDirectError("its condition compares something else than a column with a constant")
        text = literal.get("text", "")
        read = reading(literal.get("kind", ""), type_, cast)
        if (place := self._places.get(text)) is None:
            return _always(read(text))
        if text.startswith("-"):
            return lambda given: read("-" + given.constants[place])
        return lambda given: read(given.constants[place])


def is_search(node: Any) -> bool:
    """Whether it looks for a text in another."""
    name = node.get("function_name") or ""
    return name.lower() in _SEARCHES or name in _LIKE


def said(node: Any) -> str:
    """What a node is, as people say it."""
    name = node.get("function_name")
    return f"{name}(…)" if name else str(node.get("class") or "something else").replace("_", " ").lower()


def _box(ends: list[tuple[str, str, Form]], given: Given) -> Boxes:
    box: dict[str, Interval] = {}
    for column, op, form in ends:
        value = form(given)
        lo, hi = box.get(column, (None, None))
        if op in (where.EQUAL, where.AT_LEAST, where.MORE):
            least = value + 1 if op == where.MORE else value
            lo = least if lo is None or least > lo else lo
        if op in (where.EQUAL, where.AT_MOST, where.LESS):
            most = value - 1 if op == where.LESS else value
            hi = most if hi is None or most < hi else hi
        if lo is not None and hi is not None and lo > hi:
            return NOTHING
        box[column] = lo, hi
    return Boxes((box,), True)


def _boxes(column: str, forms: Sequence[Form], around: Boxes, given: Given) -> Boxes | None:
    """Those parts of a box that have one of some texts; None if these are many."""
    texts = sorted({form(given) for form in forms})
    if len(texts) > MOST_BOXES:
        return None
    found: list[Box] = []
    for box in around.boxes:
        lo, hi = box.get(column, (None, None))
        found += [{**box, column: (text, text)} for text in texts if (lo is None or lo <= text) and (hi is None or text <= hi)]
    return Boxes(tuple(found), True)


def _joined(how: type[where.Both] | type[where.Either], forms: Sequence[Form]) -> Form:
    if len(forms) == 1:
        return forms[0]
    return lambda given: where.joined(how, [form(given) for form in forms])


def _like(column: str, pattern: str) -> where.Condition:
    """A pattern has no character in DuckDB that makes plain ones of the others, unless the statement says so."""
    text, begins, ends = pattern.strip("%"), not pattern.startswith("%"), not pattern.endswith("%")
    if "%" in text or "_" in text:
        raise NotDirectError("its pattern says more than what a text begins with, ends with or contains")
    if begins and ends:
        return where.Comparison(column, where.EQUAL, scalar_of(text, pa.string()))
    return where.HasText(column, "begin" if begins else "end" if ends else "inside", text)


def _negated(form: Form) -> Form:
    return lambda given: where.Negation(form(given))


def _range(column: str, ends: list[str]) -> where.AddressRange:
    if (found := address_ends(ends)) is None:
        raise NotDirectError("an address is wrong, which DuckDB is to say")
    return where.AddressRange(column, *found)


def _always(made: Any) -> Form:
    return lambda _: made


def _parameter(name: str, parameters: Parameters) -> Any:
    try:
        return value_of(name, parameters)
    except LookupError:
        raise NotDirectError("a parameter is missing") from None
