"""Where in time the rows of a comparison lie: of date_trunc('hour', ts) = …, now() - ts < INTERVAL … and the like, for the column itself.

An interval is closed, in microseconds, and None is open. Every row that satisfies the comparison lies in it; often others do too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from tidewheel.duck.nodes import Node, arguments, cast_to
from tidewheel.model import conditions as where

Span = tuple[int | None, int | None]
Value = Callable[[Node], pa.Scalar | None]
"""What a constant is."""

SECOND = 1_000_000
DAY = 86_400 * SECOND
_LONG = {
    "microsecond": 1, "millisecond": 1000, "second": SECOND, "minute": 60 * SECOND, "hour": 3600 * SECOND, "day": DAY, "week": 7 * DAY,
    "month": 31 * DAY, "quarter": 92 * DAY, "year": 366 * DAY, "decade": 3653 * DAY, "century": 36525 * DAY,
}  # fmt: skip
"""The most that a part of a time can have."""

_EPOCHS: dict[str, int | Fraction] = {"epoch": SECOND, "epoch_ms": 1000, "epoch_us": 1, "epoch_ns": Fraction(1, 1000)}
_MOST = 1 << 62
_TIMES = ("TIMESTAMP", "DATETIME", "TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE")


def micros(value: pa.Scalar) -> int | None:
    """A moment; None if it is none, or finer than a microsecond."""
    t = pa.types
    if t.is_date32(value.type):
        return int(value.value) * DAY
    if not t.is_timestamp(value.type):
        return None
    nanos = int(value.value) * {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[value.type.unit]
    return nanos // 1000 if nanos % 1000 == 0 and abs(nanos) < 1000 * _MOST else None


def compared(subject: Node, op: str, value: pa.Scalar, value_of: Value) -> tuple[Node, Span] | None:
    """The column in an expression that is compared with a value, and where its own values lie then."""
    moment = micros(value)
    if moment is not None:
        return _moments(subject, _ends(op, moment), value_of, 0)
    if pa.types.is_duration(value.type) or value.type == pa.month_day_nano_interval():
        return _distance(subject, op, _length(value), value_of)
    if pa.types.is_timestamp(value.type):  # infinity, or one that Python has no date for
        return None
    number: Any = value.as_py()
    if isinstance(number, (int, float, Decimal)) and not isinstance(number, bool) and math.isfinite(number):
        return _numbers(subject, op, number, value_of)
    return None


def _ends(op: str, at: int) -> Span:
    match op:
        case where.EQUAL:
            return at, at
        case where.MORE:
            return at + 1, None
        case where.AT_LEAST:
            return at, None
        case where.LESS:
            return None, at - 1
        case where.AT_MOST:
            return None, at
    return None, None


def _shifted(span: Span, lo: int, hi: int) -> Span:
    return None if span[0] is None else span[0] + lo, None if span[1] is None else span[1] + hi


def _moments(subject: Node, span: Span, value_of: Value, depth: int) -> tuple[Node, Span] | None:
    """Of an expression that is a moment."""
    if depth > 8:
        return None
    match subject:
        case {"class": "COLUMN_REF"}:
            return subject, span
        case {"class": "CAST", "child": child} if cast_to(subject) in _TIMES:
            return _moments(child, span, value_of, depth + 1)
        case {"class": "CAST", "child": child} if cast_to(subject) == "DATE":
            return _moments(child, _floored(span, DAY), value_of, depth + 1)
        case {"class": "FUNCTION", "function_name": "date"} if len(given := arguments(subject)) == 1:
            return _moments(given[0], _floored(span, DAY), value_of, depth + 1)
        case {"class": "FUNCTION", "function_name": "timezone"} if (
            len(given := arguments(subject)) == 2 and _text(given[0], value_of) == "UTC"
        ):
            return _moments(given[1], span, value_of, depth + 1)
        case {"class": "FUNCTION", "function_name": "date_trunc" | "datetrunc"} if len(given := arguments(subject)) == 2:
            part = (_text(given[0], value_of) or "").lower()
            long = _LONG.get(part) or _LONG.get(part.removesuffix("s"))
            return None if long is None else _moments(given[1], _floored(span, long), value_of, depth + 1)
        case {"class": "FUNCTION", "function_name": "time_bucket"} if len(given := arguments(subject)) == 2:
            long = _interval(given[0], value_of)
            return None if not long else _moments(given[1], _floored(span, long), value_of, depth + 1)
        case {"class": "FUNCTION", "function_name": "+" | "-" as sign} if len(given := arguments(subject)) == 2:
            by, of = _interval(given[1], value_of), given[0]
            if by is None and sign == "+":
                by, of = _interval(given[0], value_of), given[1]
            if by is not None:
                by = by if sign == "-" else -by
                return _moments(of, _shifted(span, by, by), value_of, depth + 1)
    return None


def _floored(span: Span, long: int) -> Span:
    """Of what is rounded down to steps. A lower end holds as it is, and above the upper one lies at most one step. Of steps that are all
    alike it is known where they begin: there the ends are."""
    lo, hi = span
    alike = long in (SECOND, 60 * SECOND, 3600 * SECOND, DAY)
    if lo is not None and alike:
        lo = -(-lo // long) * long
    if hi is not None:
        hi = hi // long * long + long - 1 if alike else hi + long
    return lo, hi


def _numbers(subject: Node, op: str, number: Any, value_of: Value) -> tuple[Node, Span] | None:
    """Of epoch(…) and the like, and of years."""
    if subject.get("class") != "FUNCTION":
        return None
    name, given = subject["function_name"].lower(), arguments(subject)
    if name in ("date_part", "datepart") and len(given) == 2:
        name, given = (_text(given[0], value_of) or "").lower(), given[1:]
    if len(given) != 1 or abs(number) > 1 << 53 and name != "epoch_ns":
        return None
    if name == "year" and 0 < number < 9999:
        op = where.AT_MOST if op == where.LESS and number != int(number) else op  # 2023 is less than 2023.5
        first, last = _ends(op, int(number))
        lo = None if first is None else _year(first - 1)
        hi = None if last is None else _year(last + 2)
        return _moments(given[0], (lo, hi), value_of, 0)
    if (unit := _EPOCHS.get(name)) is None:
        return None
    at, slack = math.floor(Fraction(number) * unit), max(1, int(2 * unit))  # times are rounded to the unit, and floats are not exact
    lo, hi = _ends(op, at)
    return _moments(given[0], _shifted((lo, hi), -slack, slack), value_of, 0)


def _year(year: int) -> int:
    """A moment that is not after its begin."""
    return int((year - 1970) * 365.2425 * 86_400) * SECOND - 2 * DAY


def _distance(subject: Node, op: str, long: int | None, value_of: Value) -> tuple[Node, Span] | None:
    """Of how long something is ago: now() - ts, age(now(), ts)."""
    if subject.get("class") != "FUNCTION" or long is None or len(given := arguments(subject)) != 2:
        return None
    at = value_of(given[0])
    from_ = None if at is None else micros(at)
    if from_ is None:
        return None
    lo, hi = _ends(op, long)
    if subject["function_name"] == "-":
        return _moments(given[1], (None if hi is None else from_ - hi, None if lo is None else from_ - lo), value_of, 0)
    if subject["function_name"] == "age" and hi is not None and hi >= 0:  # it counts months, of which each is taken for 30 days
        return _moments(given[1], (from_ - (hi if hi <= 28 * DAY else hi * 26 // 25 + 3 * DAY), None), value_of, 0)
    return None


def _interval(node: Node, value_of: Value) -> int | None:
    """The length of a constant interval without months."""
    found = value_of(node)
    return None if found is None or _months(found) else _length(found)


def _months(value: pa.Scalar) -> int:
    return int(value.as_py().months) if value.type == pa.month_day_nano_interval() else 0


def _length(value: pa.Scalar) -> int | None:
    """As DuckDB compares intervals: a month has thirty days."""
    if pa.types.is_duration(value.type):
        return int(value.value) * {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[value.type.unit] // 1000
    if value.type != pa.month_day_nano_interval():
        return None
    said: Any = value.as_py()
    return int((said.months * 30 + said.days) * DAY + said.nanoseconds // 1000)


def _text(node: Node, value_of: Value) -> str | None:
    found = value_of(node)
    return found.as_py() if found is not None and pa.types.is_string(found.type) else None
