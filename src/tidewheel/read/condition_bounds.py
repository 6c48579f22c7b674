"""From a condition on rows to the boxes of key and time that hold every row it keeps, and to the queries that read them.

Values are compared as Python's: whole numbers stand for themselves, times for their codes, text compares as its UTF-8 bytes do.
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidewheel.errors import QueryError
from tidewheel.model import conditions as where
from tidewheel.model.arrow_types import is_text, value_type
from tidewheel.model.coders import key_coder
from tidewheel.model.ip_addresses import address_of, address_text
from tidewheel.model.loading import pc
from tidewheel.model.query import Query, pair
from tidewheel.model.schema import Ip, TableSpec, ZOrder
from tidewheel.model.times import DATE_UNITS, TimeAxis
from tidewheel.read.boxes import EVERYTHING, UNKNOWN, Box, Boxes, apart, both, either

_MOST_VALUES = 1000
"""Values of a list that are looked at one by one; of a longer one only the ends count."""

_LARGE = 1 << 53
"""From here on a float does not stand for one whole number alone, and who compares the two may round."""


def bounds_of(condition: where.Condition | None, spec: TableSpec) -> Boxes:
    """The boxes of a condition, which may read any column of the table."""
    return EVERYTHING if condition is None else Finder(spec).bounds_of(condition)


def queries_of(bounds: Boxes, spec: TableSpec, **more: Any) -> list[Query]:
    """One query for each box."""
    return [query_of(spec, box, **more) for box in bounds.boxes]


def query_of(spec: TableSpec, box: Box, **more: Any) -> Query:
    """The query of one box."""
    time = box.get(spec.time.column)
    columns = spec.key.columns
    if isinstance(spec.key, ZOrder):
        ends = [box.get(column, (None, None)) for column in columns]
        corners = tuple(lo for lo, _ in ends) + tuple(hi for _, hi in ends)
        return Query(box=None if all(c is None for c in corners) else corners, time=time, **more)
    key = box.get(columns[0])
    if isinstance(spec.key, Ip) and key is not None:
        key = _address_texts(key)
    return Query(key=key, time=time, **more)


def narrowed(query: Query, spec: TableSpec, box: Box) -> Query:
    """A query with the bounds of a box where it has none, or wider ones. What is wrong with its own is said where they are looked at."""
    changes: dict[str, Any] = {}
    if (time := box.get(spec.time.column)) is not None:
        try:
            first, last = _common(query.time, time, spec)
        except QueryError:
            return query
        changes["time"] = first, last
    if query.key is None and query.box is None:
        columns = spec.key.columns
        if isinstance(spec.key, ZOrder):
            ends = [box.get(column, (None, None)) for column in columns]
            corners = tuple(lo for lo, _ in ends) + tuple(hi for _, hi in ends)
            if any(corner is not None for corner in corners):
                changes["box"] = corners
        elif columns[0] in box:
            changes["key"] = _address_texts(box[columns[0]]) if isinstance(spec.key, Ip) else box[columns[0]]
    return replace(query, **changes) if changes else query


def points_of(boxes: tuple[Box, ...], spec: TableSpec) -> list[Any] | None:
    """The keys of boxes, if there are several and each is of one key."""
    if len(boxes) < 2 or len(spec.key.columns) > 1:
        return None
    ends = [box.get(spec.key.columns[0], (None, None)) for box in boxes]
    if any(lo is None or lo != hi for lo, hi in ends):
        return None
    return [address_text(lo) if isinstance(spec.key, Ip) else lo for lo, _ in ends]


def _common(asked: Any, found: tuple[Any, Any], spec: TableSpec) -> tuple[Any, Any]:
    """The interval that two intervals of time have in common."""
    if asked is None:
        return found
    lo, hi = spec.time.interval(*pair(asked, "time"))
    return lo if found[0] is None else max(lo, found[0]), hi if found[1] is None else min(hi, found[1])


def _address_texts(ends: tuple[Any, Any]) -> tuple[str | None, str | None]:
    """Addresses of a box as bounds of a key."""
    lo, hi = ends
    return None if lo is None else address_text(lo), None if hi is None else address_text(hi)


# ---- one column -----------------------------------------------------------------------------------------------


class Finder:
    """Finds the boxes of conditions on one table. Nothing in it changes."""

    def __init__(self, spec: TableSpec) -> None:
        self._spec = spec
        self._never_null = {*spec.key.columns, spec.time.column}
        self._address = spec.key.column if isinstance(spec.key, Ip) else None
        self._types = {name: value_type(spec.schema.field(name).type) for name in self._never_null}
        self._axes = {name: spec.time if name == spec.time.column else axis_of(name, type_) for name, type_ in self._types.items()}
        whole = (pa.types.is_integer, pa.types.is_boolean)
        self._whole = {name for name, type_ in self._types.items() if self._axes[name] is not None or any(is_(type_) for is_ in whole)}
        self._key = None if isinstance(spec.key, (ZOrder, Ip)) else spec.key.column
        self._coder = None if self._key is None or self._key in self._whole else key_coder(spec)  # every whole number can be a bound

    def bounds_of(self, condition: where.Condition | None) -> Boxes:
        """The boxes of a condition, which may read any column of the table."""
        return self.divided(condition)[0]

    def divided(self, condition: where.Condition | None) -> tuple[Boxes, where.Condition | None]:
        """The boxes of a condition, and what of it the rows in them must still be asked; None if that is nothing."""
        bounds, rest = EVERYTHING, list[where.Condition]()
        for one in where.conjuncts(condition):
            found = self.find(one, False)
            bounds = both(bounds, found)
            if not found.exact or len(found.boxes) > 1:  # boxes may be joined, but never to more than a single one that holds them all
                rest.append(one)
        boxes, even = apart(bounds.boxes)
        possible = [self._possible(box) for box in boxes]
        if any(after is not before for after, before in zip(possible, boxes, strict=True)):
            return Boxes(tuple(apart(possible)[0]), False), condition
        exact = bounds.exact and even
        return Boxes(tuple(boxes), exact), None if exact else where.all_of(rest)

    def is_key_list(self, bounds: Boxes) -> bool:
        """Whether the boxes are several keys of one interval of time: one query for a list of keys has the same rows."""
        boxes = bounds.boxes
        times = {box.get(self._spec.time.column) for box in boxes}
        return len(times) == 1 and points_of(boxes, self._spec) is not None and all(box.keys() <= self._never_null for box in boxes)

    def _possible(self, box: Box) -> Box:
        """Without bounds that the key cannot have, such as text that no column of bytes can hold: they say nothing about where rows are."""
        if self._coder is None or self._key is None or self._key not in box:
            return box
        try:
            self._coder.intervals(*box[self._key])
        except QueryError:
            return {column: interval for column, interval in box.items() if column != self._key}
        return box

    def find(self, condition: where.Condition, negated: bool) -> Boxes:
        match condition:
            case where.Negation(of):
                return self.find(of, not negated)
            case where.Both(left, right) | where.Either(left, right):
                a, b = self.find(left, negated), self.find(right, negated)
                return both(a, b) if isinstance(condition, where.Both) != negated else either(a, b)
            case where.IsNull(column) if column in self._never_null:
                return EVERYTHING if negated else Boxes((), True)
            case where.Comparison(column, op, value) if column in self._never_null:
                return self._compared(column, where.INVERSE[op] if negated else op, value)
            case where.OneOf(column, values) if column in self._never_null and not negated:
                return self._one_of(column, values)
            case where.AddressRange(column, first, last) if column == self._address and not negated:
                return Boxes(({column: (address_of(first), address_of(last))},), True)
            case where.HasText(column, "begin", text) if column in self._types and is_text(self._types[column]) and not negated:
                return self._begins(column, text)
        return UNKNOWN

    def _one_of(self, column: str, values: pa.Array) -> Boxes:
        type_ = self._types[column]
        alike = not pa.types.is_floating(type_)  # who looks for one of several floats may tell -0.0 from 0.0, or round them first
        if not alike and values.type != type_:
            values = values.cast(type_, safe=False)
        if len(values) > _MOST_VALUES:
            return self._between_ends(column, values)
        found = [self._compared(column, where.EQUAL, value) for value in values]
        boxes = [box for one in found for box in one.boxes]
        if any(not box for box in boxes):
            return UNKNOWN
        joined, even = apart(boxes)
        return Boxes(tuple(joined), alike and even and all(one.exact for one in found))

    def _begins(self, column: str, text: str) -> Boxes:
        if column == self._address or not text:  # the order of addresses is not that of their texts
            return UNKNOWN
        return Boxes(({column: (text, where.after(text))},), False)

    def _between_ends(self, column: str, values: pa.Array) -> Boxes:
        """The bounds of a long list of values, by its ends alone."""
        t = pa.types
        if column == self._address or not (t.is_integer(values.type) or t.is_timestamp(values.type) or t.is_string(values.type)):
            return UNKNOWN
        ends = pc.min_max(values)
        whole = both(self._compared(column, where.AT_LEAST, ends["min"]), self._compared(column, where.AT_MOST, ends["max"]))
        return Boxes(whole.boxes, False)

    def _compared(self, column: str, op: str, value: pa.Scalar) -> Boxes:
        type_ = self._types[column]
        if column == self._address:
            address = address_of(value.as_py())  # equal texts are equal addresses; for the rest, order of text is not that of addresses
            return Boxes(({column: (address, address)},), False) if op == where.EQUAL and address is not None else UNKNOWN
        if column in self._whole:
            axis = self._axes[column]
            ends = _time_ends(value, axis) if axis is not None and not pa.types.is_integer(type_) else _whole_ends(value)
            return UNKNOWN if ends is None else _whole(column, op, *ends)
        try:
            bound = _bound(value, type_)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            bound = None
        return UNKNOWN if bound is None else _dense(column, op, bound)


def axis_of(column: str, type_: pa.DataType) -> TimeAxis | None:
    if pa.types.is_timestamp(type_):
        return TimeAxis(column, type_.unit)
    return TimeAxis(column, DATE_UNITS[type_]) if type_ in DATE_UNITS else None


def _time_ends(value: pa.Scalar, axis: TimeAxis) -> tuple[int, int] | None:
    """The first code that is not before a moment, and the last that is not after it."""
    own = axis_of("", value.type)
    if own is None:
        return None
    nanos = value.value * own.nanos
    return -(-nanos // axis.nanos), nanos // axis.nanos


def _whole_ends(value: pa.Scalar) -> tuple[int, int] | None:
    """The first whole number that is not below a number, and the last that is not above it."""
    number: Any = value.as_py()
    if isinstance(number, int):
        return int(number), int(number)
    if isinstance(number, (float, Decimal)) and math.isfinite(number) and -_LARGE < number < _LARGE:
        return math.ceil(number), math.floor(number)
    return None


def _whole(column: str, op: str, first: int, last: int) -> Boxes:
    """An interval of numbers that have neighbours: every one can be closed."""
    match op:
        case "=":
            return Boxes(({column: (first, last)},) if first <= last else (), True)
        case ">=":
            return Boxes(({column: (first, None)},), True)
        case ">":
            return Boxes(({column: (last + 1, None)},), True)
        case "<=":
            return Boxes(({column: (None, last)},), True)
        case "<":
            return Boxes(({column: (None, first - 1)},), True)
    return Boxes(({column: (None, first - 1)}, {column: (last + 1, None)}), True)


def _bound(value: pa.Scalar, type_: pa.DataType) -> Any:
    """A value as a bound of a column, or None if it cannot be one."""
    t = pa.types
    said: Any = value.as_py()
    if t.is_floating(type_):
        if isinstance(said, bool) or not isinstance(said, (int, float)) or isinstance(said, int) and abs(said) >= _LARGE:
            return None
        return None if math.isnan(said) else float(said) + 0.0
    if is_text(type_):
        return said if isinstance(said, str) else None
    if t.is_binary(type_) or t.is_large_binary(type_) or t.is_binary_view(type_) or t.is_fixed_size_binary(type_):
        return said if isinstance(said, bytes) else None
    if t.is_decimal(type_):
        return Decimal(said) if isinstance(said, (int, Decimal)) and not isinstance(said, bool) else None
    return None


def _dense(column: str, op: str, bound: Any) -> Boxes:
    """An interval of values without neighbours: an open end is closed, and lets one value too much in."""
    above, below = bound, bound
    if isinstance(bound, float) and op in (where.MORE, where.LESS):
        above, below = math.nextafter(bound, math.inf), math.nextafter(bound, -math.inf)
    exact = op in (where.EQUAL, where.AT_LEAST, where.AT_MOST) or isinstance(bound, float) and math.isfinite(bound) and op != where.UNEQUAL
    lo = bound if op in (where.EQUAL, where.AT_LEAST) else above if op == where.MORE else None
    hi = bound if op in (where.EQUAL, where.AT_MOST) else below if op == where.LESS else None
    return Boxes(({} if op == where.UNEQUAL else {column: (lo, hi)},), exact)
