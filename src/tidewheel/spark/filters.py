"""Spark's filters as a question to a table: conditions, and the bounds of key and time that follow from them.

Boxes prune regions and leaves, conditions decide row by row. No row that Spark would keep is lost; of a filter that is taken no other row
gets through, and Spark need not look again. Only types whose comparison is known to be the same are taken: null is neither true nor
false, NaN equals itself and is the greatest number, text is compared byte by byte. All else is left to Spark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tidewheel.model import conditions as where
from tidewheel.model.arrow_types import is_text, value_type
from tidewheel.model.query import Query
from tidewheel.model.schema import ColumnKey, TableSpec
from tidewheel.model.times import nanoseconds
from tidewheel.read.boxes import EVERYTHING, Boxes, apart, around, both
from tidewheel.read.condition_bounds import Finder, query_of
from tidewheel.spark.options import TablePart

MOST_VALUES = 1000
"""Of an IN list: a longer one only gives an interval."""

_COMPARISONS: dict[type[Filter], str] = {
    GreaterThan: where.MORE, GreaterThanOrEqual: where.AT_LEAST, LessThan: where.LESS, LessThanOrEqual: where.AT_MOST,
}  # fmt: skip
_PLACES: dict[type[Filter], str] = {StringStartsWith: "begin", StringEndsWith: "end", StringContains: "inside"}
_DAY = 86_400_000


@dataclass(frozen=True, slots=True)
class Ask:
    """What a scan needs of its table. Plain values: it travels to the tasks. Intervals are closed, None is open."""

    time: tuple[int | None, int | None] = (None, None)
    key: tuple[Any, Any] | None = None
    keys: tuple[tuple[Any, Any], ...] | None = None
    """Intervals of the only keys there can be, all inside `key`."""
    box: tuple[Any, ...] | None = None
    condition: where.Condition | None = None
    nothing: bool = False
    """No row can match."""
    part: TablePart | None = None
    """Only these rows of the table; None: all that it has now."""

    def query(self, columns: Sequence[str]) -> Query:
        """One for everything; `queries` are sharper."""
        lo, hi = self.time
        after = upto = None
        if self.part is not None:
            after, upto = self.part.after, self.part.upto
            lo, hi = _overlap(self.time, (self.part.times[0][0], self.part.times[-1][1])) if self.part.times else (1, 0)
        time = None if (lo, hi) == (None, None) else (lo, hi)
        return Query(key=self.key, box=self.box, time=time, condition=self.condition, columns=list(columns), after=after, upto=upto)

    def times(self) -> list[tuple[int | None, int | None]]:
        """The intervals of time that rows can lie in."""
        if self.part is None:
            return [self.time]
        found = (_overlap(self.time, one) for one in self.part.times)
        return [(lo, hi) for lo, hi in found if lo <= hi]


def _overlap(wanted: tuple[int | None, int | None], there: tuple[int, int]) -> tuple[int, int]:
    lo, hi = wanted
    return there[0] if lo is None else max(lo, there[0]), there[1] if hi is None else min(hi, there[1])


def ask(spec: TableSpec, filters: Sequence[Filter]) -> tuple[Ask, list[Filter]]:
    """The question that Spark's filters are, and the filters that Spark must still apply itself."""
    finder = Finder(spec)
    bounds, deciding, left = EVERYTHING, list[where.Condition](), list[Filter]()
    for one in filters:
        said = _Said(spec, one)
        condition = said.condition()
        if condition is None:
            left.append(one)
            continue
        found = finder.bounds_of(condition)
        bounds = both(bounds, found)
        if found.exact and len(found.boxes) < 2:  # nothing but a box, and it stays inside of that whatever others say
            continue
        if not said.decides:
            left.append(one)
        else:
            deciding.append(condition)
    return _asked(spec, bounds, where.all_of(deciding)), left


def _asked(spec: TableSpec, bounds: Boxes, condition: where.Condition | None) -> Ask:
    if not bounds.boxes:
        return Ask(nothing=True)
    query = query_of(spec, around(bounds.boxes))
    keys: tuple[tuple[Any, Any], ...] | None = None
    if query.key is not None and isinstance(spec.key, ColumnKey):
        column = spec.key.column
        lines = apart([{column: box[column]} for box in bounds.boxes])[0]
        keys = tuple(line[column] for line in lines) if len(lines) > 1 else None
    return Ask(query.time or (None, None), query.key, keys, None if query.box is None else tuple(query.box), condition)


class _Said:
    """What a filter says of one column."""

    def __init__(self, spec: TableSpec, one: Filter) -> None:
        self._filter = one
        attribute: Any = getattr(one.child if isinstance(one, Not) else one, "attribute", ())
        self._column: str = attribute[0] if len(attribute) == 1 and attribute[0] in spec.schema.names else ""
        self._type = value_type(spec.schema.field(self._column).type) if self._column else pa.null()
        self._is_time = self._column == spec.time.column
        self._is_bounded = self._is_time or self._column in spec.key.columns
        self.decides = not (pa.types.is_timestamp(self._type) and self._type.unit in ("s", "ms"))
        """Its condition can be asked of rows. Otherwise it only has bounds: Spark's times are finer, and Arrow may not compare the two."""

    def condition(self) -> where.Condition | None:
        """None: it is not known to be the same here."""
        if not self._column:
            return None
        if not isinstance(self._filter, Not):
            return self._positive(self._filter)
        child = self._filter.child
        if isinstance(child, In) and None in child.value:  # no value is known to differ from null
            return where.OneOf(self._column, pa.array([], self._type))
        found = self._positive(child)
        return None if found is None else where.Negation(found)

    def _positive(self, one: Filter) -> where.Condition | None:
        column = self._column
        match one:
            case IsNull() | EqualNullSafe(_, None) if self._has_plain_nulls():
                return where.IsNull(column)
            case IsNotNull() if self._has_plain_nulls():
                return where.Negation(where.IsNull(column))
            case EqualTo(_, value):
                return self._equal(value)
            case EqualNullSafe(_, value):
                equal = self._equal(value)
                return None if equal is None else where.Both(where.Negation(where.IsNull(column)), equal)
            case GreaterThan(_, value) | GreaterThanOrEqual(_, value) | LessThan(_, value) | LessThanOrEqual(_, value):
                op = _COMPARISONS[type(one)]
                ends = self._ends(value)
                return None if ends is None else where.Comparison(column, op, ends[op in (where.MORE, where.AT_MOST)])
            case In(_, values):
                return self._one_of([value for value in values if value is not None])
            case StringStartsWith(_, value) | StringEndsWith(_, value) | StringContains(_, value) if self._ends(value):
                return where.HasText(column, _PLACES[type(one)], value)
        return None

    def _has_plain_nulls(self) -> bool:
        return self._is_bounded or not (pa.types.is_nested(self._type) or isinstance(self._type, pa.BaseExtensionType))

    def _equal(self, value: Any) -> where.Condition | None:
        ends = self._ends(value)
        if ends is None:
            return None
        first, last = ends
        if first is last:
            return where.Comparison(self._column, where.EQUAL, first)
        return where.Both(where.Comparison(self._column, where.AT_LEAST, first), where.Comparison(self._column, where.AT_MOST, last))

    def _one_of(self, values: Sequence[Any]) -> where.Condition | None:
        ends = [self._ends(value) for value in values]
        known = [end[0] for end in ends if end is not None and end[0] is end[1]]
        if len(known) < len(values):
            return None
        if len(known) > MOST_VALUES:
            self.decides = False
        return where.OneOf(self._column, pa.array(known, known[0].type if known else self._type))

    # ---- values ---------------------------------------------------------------------------------------------

    def _ends(self, value: Any) -> tuple[pa.Scalar, pa.Scalar] | None:
        """The first and the last value of the column that Spark takes for equal to one of its own; None if that is not known."""
        type_ = self._type
        if self._is_time and isinstance(value, dt.date) and (type_ == pa.date64() or getattr(type_, "unit", "") == "ns"):
            # Spark has whole days only, and whole microseconds
            first = nanoseconds(value)
            assert first is not None
            first, grain = (first // 10**6, _DAY) if type_ == pa.date64() else (first, 1000)
            return pa.scalar(first, type_), pa.scalar(first + grain - 1, type_)
        said = self._own(value)
        if said is None:
            return None
        try:
            scalar = pa.scalar(*said)
        except (pa.ArrowException, ValueError, OverflowError, TypeError):
            return None
        return scalar, scalar

    def _own(self, value: Any) -> tuple[Any, pa.DataType] | None:
        """A value and the type that it has here, if a column of the type compares with it as in Spark."""
        t, type_ = pa.types, self._type
        fits = False
        if t.is_integer(type_) or self._is_time and getattr(type_, "unit", "") == "ns":
            value = int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else value
            fits = isinstance(value, int) and not isinstance(value, bool)
        elif t.is_floating(type_):
            fits, type_ = isinstance(value, float), pa.float64()
        elif is_text(type_):
            fits = isinstance(value, str)
        elif t.is_binary(type_) or t.is_large_binary(type_):
            fits = isinstance(value, (bytes, bytearray))
        elif t.is_boolean(type_):
            fits = isinstance(value, bool)
        elif t.is_date32(type_):
            fits = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
        elif t.is_decimal128(type_):
            fits = isinstance(value, Decimal) and value.is_finite() and 0 <= type_.scale <= type_.precision
        elif t.is_timestamp(type_) and type_.unit != "ns" and (type_.unit == "us" or self._is_bounded):
            fits = isinstance(value, dt.datetime) and (value.tzinfo is None) == (type_.tz is None)
            type_ = pa.timestamp("us", type_.tz)
        return (value, type_) if fits else None
