"""Spark's filters as a question to a table: an interval of time, an interval or box of keys, and SQL text for the rest.

Intervals prune regions and leaves, the text decides row by row. Whatever is used here loses no row that Spark would keep; a filter that
is `exact` lets none through either, and Spark need not look again. The text is evaluated by DuckDB, so only types whose comparison is
known to be the same there are put into it: in both, null is neither true nor false, NaN equals itself and is the greatest number, and
text is compared byte by byte. All else is left to Spark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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

from tidewheel.errors import QueryError
from tidewheel.model.arrow_types import is_text, value_type
from tidewheel.model.coders import key_coder
from tidewheel.model.query import Query
from tidewheel.model.schema import ColumnKey, Ip, TableSpec, ZOrder
from tidewheel.model.times import nanoseconds
from tidewheel.spark.literals import NoLiteral, literals

MOST_VALUES = 1000
"""Of an IN list: a longer one only gives an interval."""

MOST_POINTS = 64
"""Keys of an IN list that are looked up one by one."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a scan needs of its table. Plain values: it travels to the tasks. Intervals are closed, None is open."""

    time: tuple[int | None, int | None] = (None, None)
    key: tuple[Any, Any] | None = None
    points: tuple[Any, ...] | None = None
    """The only keys there can be, all inside `key`."""
    box: tuple[Any, ...] | None = None
    where: str | None = None
    nothing: bool = False
    """No row can match."""

    def query(self, columns: Sequence[str], **more: Any) -> Query:
        time = None if self.time == (None, None) else self.time
        return Query(key=self.key, box=self.box, time=time, where=self.where, columns=list(columns), **more)


def ask(spec: TableSpec, filters: Sequence[Filter]) -> tuple[Ask, list[Filter]]:
    """The question that Spark's filters are, and the filters that Spark must still apply itself."""
    question = _Question(spec)
    left = [one for one in filters if not question.take(one)]
    return question.asked(), left


@dataclass
class _Question:
    spec: TableSpec
    lo: dict[str, Any] = field(default_factory=dict)
    """Closed lower ends by column; of the time column in its codes."""
    hi: dict[str, Any] = field(default_factory=dict)
    points: tuple[Any, ...] | None = None
    texts: list[str] = field(default_factory=list)
    nothing: bool = False

    def __post_init__(self) -> None:
        spec = self.spec
        self.key = spec.key.columns if not isinstance(spec.key, Ip) else ()
        folded = [name.lower() for name in spec.schema.names]
        self.textual = len(set(folded)) == len(folded)
        """SQL ignores the case of names: where that makes two columns one, nothing can be said in it."""

    # ---- one filter -------------------------------------------------------------------------------------

    def take(self, one: Filter) -> bool:
        """Use a filter as far as possible; True if nothing is left of it for Spark."""
        column = _column(one)
        if column is None or self.spec.schema.get_field_index(column) < 0:
            return False
        if column in (*self.spec.key.columns, self.spec.time.column) and self._is_about_nulls(one):
            return True
        if self._is_exact_interval(one, column):
            return True
        text = self._text(one, column) if self.textual else None
        self._prune(one, column)
        if text is None:
            return False
        self.texts.append(text)
        return True

    def _is_about_nulls(self, one: Filter) -> bool:
        """Keys and times always have a value."""
        match one:
            case IsNotNull() | Not(IsNull()):
                return True
            case IsNull() | Not(IsNotNull()) | EqualNullSafe(_, None):
                self.nothing = True
                return True
        return False

    def _is_exact_interval(self, one: Filter, column: str) -> bool:
        """Whether a filter is nothing but an interval of the time, or of a whole-number key."""
        if column == self.spec.time.column:
            ends = _time_ends(one, self.spec)
        elif column in self.key and isinstance(self.spec.key, ColumnKey):
            ends = _whole_ends(one, self.spec.schema.field(column).type)
        else:
            return False
        if ends is None:
            return False
        self._narrow(column, *ends)
        return True

    def _prune(self, one: Filter, column: str) -> None:
        """An interval that holds every row of a filter, for columns of the key."""
        type_ = value_type(self.spec.schema.field(column).type)
        if isinstance(self.spec.key, Ip):
            if column == self.spec.key.column and isinstance(one, (EqualTo, EqualNullSafe)):  # all else is about the text, not the address
                self._narrow(column, one.value, one.value)
            return
        if column not in self.key or getattr(type_, "unit", "") == "ns":  # a microsecond of Spark's is a thousand keys
            return
        match one:
            case EqualTo(_, value) | EqualNullSafe(_, value) if _is_bound(value):
                self._narrow(column, value, value)
            case GreaterThan(_, value) | GreaterThanOrEqual(_, value) if _is_bound(value):
                self._narrow(column, value, None)
            case LessThan(_, value) | LessThanOrEqual(_, value) if _is_bound(value):
                self._narrow(column, None, value)
            case In(_, values):
                known = [v for v in values if v is not None]
                if not known:
                    self.nothing = True
                elif all(_is_bound(v) and type(v) is type(known[0]) for v in known):
                    self._narrow(column, min(known), max(known))
                    if isinstance(self.spec.key, ColumnKey) and len(set(known)) <= MOST_POINTS:
                        self._meet(known)
            case StringStartsWith(_, value) if value and is_text(type_):
                self._narrow(column, value, _after(value))

    def _meet(self, points: Sequence[Any]) -> None:
        both = set(points) if self.points is None else set(points) & set(self.points)
        self.points = tuple(sorted(both))

    def _narrow(self, column: str, lo: Any, hi: Any) -> None:
        if lo is not None:
            self.lo[column] = max(self.lo[column], lo) if column in self.lo else lo
        if hi is not None:
            self.hi[column] = min(self.hi[column], hi) if column in self.hi else hi
        if column in self.lo and column in self.hi and self.lo[column] > self.hi[column]:
            self.nothing = True

    # ---- as text ----------------------------------------------------------------------------------------

    def _text(self, one: Filter, column: str) -> str | None:
        name = '"' + column.replace('"', '""') + '"'
        literal = literals(self.spec.schema.field(column).type)
        if literal is None:
            return None
        try:
            match one:
                case IsNull():
                    return f"{name} IS NULL"
                case IsNotNull():
                    return f"{name} IS NOT NULL"
                case EqualTo(_, value):
                    return f"{name} = {literal(value)}"
                case EqualNullSafe(_, None):
                    return f"{name} IS NULL"
                case EqualNullSafe(_, value):
                    return f"{name} IS NOT DISTINCT FROM {literal(value)}"
                case GreaterThan(_, value):
                    return f"{name} > {literal(value)}"
                case GreaterThanOrEqual(_, value):
                    return f"{name} >= {literal(value)}"
                case LessThan(_, value):
                    return f"{name} < {literal(value)}"
                case LessThanOrEqual(_, value):
                    return f"{name} <= {literal(value)}"
                case In(_, values) if 0 < len(values) <= MOST_VALUES:
                    return f"{name} IN ({', '.join('NULL' if v is None else literal(v) for v in values)})"
                case StringStartsWith(_, value):
                    return f"starts_with({name}, {literal(value)})"
                case StringEndsWith(_, value):
                    return f"ends_with({name}, {literal(value)})"
                case StringContains(_, value):
                    return f"contains({name}, {literal(value)})"
                case Not(child):
                    inner = self._text(child, column)
                    return None if inner is None else f"NOT ({inner})"
        except NoLiteral:
            return None
        return None

    # ---- all together -----------------------------------------------------------------------------------

    def asked(self) -> Ask:
        spec = self.spec
        where = " AND ".join(f"({text})" for text in self.texts) or None
        time = (self.lo.get(spec.time.column), self.hi.get(spec.time.column))
        if self.nothing:
            return Ask(nothing=True)
        columns = spec.key.columns
        if isinstance(spec.key, ZOrder):
            ends = tuple(side.get(c) for side in (self.lo, self.hi) for c in columns)
            return Ask(time, box=None if all(end is None for end in ends) else ends, where=where)
        key = None if columns[0] == spec.time.column else (self.lo.get(columns[0]), self.hi.get(columns[0]))
        if columns[0] == spec.time.column and time != (None, None):
            key = time  # one column is both: its codes are its numbers
        if key in (None, (None, None)):
            return Ask(time, where=where)
        assert key is not None
        points = self.points
        if points is not None:
            points = tuple(p for p in points if (key[0] is None or p >= key[0]) and (key[1] is None or p <= key[1]))
            if not points:
                return Ask(nothing=True)
        try:
            key_coder(spec).intervals(*key)  # a bound that the key cannot have says nothing here; the text or Spark decides
        except QueryError:
            return Ask(time, where=where)
        return Ask(time, key, points, where=where)


def _column(one: Filter) -> str | None:
    attribute: Any = getattr(one.child if isinstance(one, Not) else one, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _is_bound(value: Any) -> bool:
    return value is not None and value == value


def _after(prefix: str) -> str | None:
    """A text that comes after all that begin with this one, and before nearly all else."""
    for i in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[i]) + 1
        if code <= 0x10FFFF:
            return prefix[:i] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
    return None


# ---- whole numbers and times: closed intervals are exact ------------------------------------------------------

Ends = tuple[int | None, int | None]


def _whole_ends(one: Filter, type_: pa.DataType) -> Ends | None:
    type_ = value_type(type_)
    if not pa.types.is_integer(type_):
        return None
    return _ends(one, lambda value: _both(value) if isinstance(value, int) and not isinstance(value, bool) else None)


def _time_ends(one: Filter, spec: TableSpec) -> Ends | None:
    """The interval of the time column's codes that a filter is. A value of Spark's is a whole microsecond, or a whole day."""
    type_, axis = spec.schema.field(spec.time.column).type, spec.time

    def codes(value: Any) -> tuple[int, int] | None:
        if isinstance(value, int) and not isinstance(value, bool):
            plain = pa.types.is_integer(type_) or getattr(type_, "unit", "") == "ns"
            return _both(value) if plain else None
        if not isinstance(value, dt.date) or pa.types.is_integer(type_):
            return None
        first = nanoseconds(value)
        assert first is not None
        grain = 1000 if isinstance(value, dt.datetime) else 86_400 * 10**9
        # the first code that is not before it, and the last one that is not after it
        return -(-first // axis.nanos), (first + grain - 1) // axis.nanos

    return _ends(one, codes)


def _both(value: int) -> tuple[int, int]:
    return value, value


def _ends(one: Filter, codes: Callable[[Any], tuple[int, int] | None]) -> Ends | None:
    """`codes` tells the first and last code that count as equal to a value; none do if the first is the greater."""
    match one:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return codes(value)
        case GreaterThanOrEqual(_, value) if (found := codes(value)) is not None:
            return found[0], None
        case GreaterThan(_, value) if (found := codes(value)) is not None:
            return found[1] + 1, None
        case LessThanOrEqual(_, value) if (found := codes(value)) is not None:
            return None, found[1]
        case LessThan(_, value) if (found := codes(value)) is not None:
            return None, found[0] - 1
        case Not(GreaterThan(c, value)):
            return _ends(LessThanOrEqual(c, value), codes)
        case Not(GreaterThanOrEqual(c, value)):
            return _ends(LessThan(c, value), codes)
        case Not(LessThan(c, value)):
            return _ends(GreaterThanOrEqual(c, value), codes)
        case Not(LessThanOrEqual(c, value)):
            return _ends(GreaterThan(c, value), codes)
    return None
