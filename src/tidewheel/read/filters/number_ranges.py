"""Comparisons of numbers and times as ranges of what is stored.

A column of whole numbers, times, decimals or booleans stores whole numbers; every comparison with a constant of whatever exact type is a
range of them, or the opposite of one. Floats have ranges too, with NaN behind them: the neighbours of a number are known.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel.model.conditions import AT_LEAST, AT_MOST, EQUAL, LESS, MORE, UNEQUAL
from tidewheel.model.dataclass import dataclass
from tidewheel.model.times import TimeAxis

_LARGE = 1 << 53
"""Up to here a float stands for one whole number alone."""

_LARGE4 = 1 << 24
"""The same for a float of four bytes."""


@dataclass(frozen=True, slots=True)
class WholeColumn:
    """How a column stores whole numbers."""

    bytes: int
    """0: a bit each; 16: the lower eight of sixteen bytes."""
    signed: bool
    scale: int = 0
    """Digits behind the point, of decimals."""

    @property
    def least(self) -> int:
        return -(1 << (8 * min(self.bytes, 8) - 1)) if self.signed else 0

    @property
    def most(self) -> int:
        bits = 8 * min(self.bytes, 8) or 1
        return (1 << (bits - 1)) - 1 if self.signed else (1 << bits) - 1


def stored_as(type_: pa.DataType) -> WholeColumn | None:
    """How a column of this type stores whole numbers, if it does."""
    t = pa.types
    if t.is_boolean(type_):
        return WholeColumn(0, False)
    if t.is_integer(type_):
        return WholeColumn(type_.bit_width // 8, bool(t.is_signed_integer(type_)))
    if t.is_decimal(type_):
        fits = t.is_decimal32(type_) or t.is_decimal64(type_) or t.is_decimal128(type_) and type_.precision <= 18
        return WholeColumn(type_.bit_width // 8, True, type_.scale) if fits else None
    if t.is_date(type_) or t.is_time(type_) or t.is_timestamp(type_) or t.is_duration(type_):
        return WholeColumn(type_.bit_width // 8, True)
    return None


def ends_of(value: pa.Scalar, type_: pa.DataType) -> tuple[int, int] | None:
    """The least stored number of a column of this type that is not below a value, and the greatest that is not above it, as if it could
    hold any; None if it is not certain what their comparison means."""
    t = pa.types
    own = value.type
    if t.is_boolean(type_) or t.is_boolean(own):
        return (int(value.as_py()),) * 2 if t.is_boolean(type_) and t.is_boolean(own) else None
    if t.is_integer(type_) or t.is_decimal(type_):
        number = _number(value)
        if number is None or t.is_floating(own) and t.is_decimal(type_):
            return None
        number *= Fraction(10) ** (type_.scale if t.is_decimal(type_) else 0)
        return math.ceil(number), math.floor(number)
    if t.is_timestamp(type_) and t.is_timestamp(own):
        if (type_.tz is None) != (own.tz is None):
            return None
        nanos, unit = value.value * TimeAxis("", own.unit).nanos, TimeAxis("", type_.unit).nanos
        return -(-nanos // unit), nanos // unit
    return (value.value,) * 2 if own == type_ and stored_as(type_) is not None else None


def _number(value: pa.Scalar) -> Fraction | None:
    said: Any = value.as_py()
    if isinstance(said, bool) or not isinstance(said, (int, float, Decimal)):
        return None
    if isinstance(said, float) and not (pa.types.is_float64(value.type) and -_LARGE < said < _LARGE):  # NaN is not either
        return None
    return Fraction(said)


@dataclass(frozen=True, slots=True)
class WholeRange:
    """WholeColumn numbers from `least` to `most`, or all others."""

    least: int
    most: int
    turned: bool = False


def whole_range(op: str, ends: tuple[int, int], stored: WholeColumn) -> WholeRange:
    """Where a comparison is true, if these are the ends of its constant."""
    first, last = ends
    turned = op == UNEQUAL
    if op in (EQUAL, UNEQUAL):
        least, most = first, last
    elif op in (MORE, AT_LEAST):
        least, most = (first if op == AT_LEAST else last + 1), stored.most
    else:
        least, most = stored.least, (last if op == AT_MOST else first - 1)
    least, most = max(least, stored.least), min(most, stored.most)
    if least > most:  # nothing: all but everything
        return WholeRange(stored.least, stored.most, not turned)
    return WholeRange(least, most, turned)


@dataclass(frozen=True, slots=True)
class FloatRange:
    """Numbers from `least` to `most`, which are none if `least` is greater, and NaN if it says so; or all others."""

    least: float
    most: float
    nan: bool
    turned: bool = False


def float_range(op: str, value: pa.Scalar, type_: pa.DataType) -> FloatRange | None:
    """Where a comparison of a column of floats is true; None if it is not certain what it means."""
    said = float_of(value, type_)
    if said is None:
        return None
    if math.isnan(said):
        least, most = (math.inf, -math.inf) if op in (EQUAL, UNEQUAL, MORE, AT_LEAST) else (-math.inf, math.inf)
        return FloatRange(least, most, op in (EQUAL, UNEQUAL, AT_LEAST, AT_MOST), op == UNEQUAL)
    least, most = -math.inf, math.inf
    if op in (EQUAL, UNEQUAL, AT_LEAST):
        least = said
    if op in (EQUAL, UNEQUAL, AT_MOST):
        most = said
    if op == MORE:
        least, most = (math.nextafter(said, math.inf), math.inf) if said != math.inf else (math.inf, -math.inf)
    if op == LESS:
        least, most = (-math.inf, math.nextafter(said, -math.inf)) if said != -math.inf else (math.inf, -math.inf)
    if pa.types.is_float32(type_):
        least, most = _short(least, math.inf), _short(most, -math.inf)
    return FloatRange(least, most, op in (MORE, AT_LEAST), op == UNEQUAL)


def float_of(value: pa.Scalar, type_: pa.DataType) -> float | None:
    """A constant as a float, if it is compared as one with a column of floats."""
    said: Any = value.as_py()
    if isinstance(said, bool) or not isinstance(said, (int, float)):
        return None
    large = _LARGE4 if pa.types.is_float32(type_) else _LARGE
    if isinstance(said, int) and not -large <= said <= large:
        return None
    return float(said)


def _short(number: float, towards: float) -> float:
    """The nearest number of four bytes in a direction."""
    with np.errstate(over="ignore"):
        found = np.float32(number)
        if towards > 0 and float(found) < number or towards < 0 and float(found) > number:
            found = np.nextafter(found, np.float32(towards))
    return float(found)
