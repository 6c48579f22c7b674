"""Constants of direct statements: how a literal or a parameter becomes a value of the type of the column that it is compared with."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidewheel.model.times import nanoseconds

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?")
WHOLE = re.compile(r"-?\d{1,19}")
_DECIMAL = re.compile(r"-?\d{1,12}(?:\.\d{1,8})?")
_DOUBLE = re.compile(r"-?\d{1,17}(?:\.\d{1,17})?[eE][+-]?\d{1,3}")
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,6}))?)?")
_FRACTION = re.compile(r"\.(\d{1,9})$")
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
"""Of a second, by the unit of a time."""
_LONG = 19
"""Digits of a whole number of 64 bits."""
_SURE = 1 << 24
"""Up to here every whole number is a FLOAT."""


class NotDirectError(Exception):
    """This statement goes the long way. The message says why."""


def compared_as(type_: pa.DataType) -> pa.DataType:
    """The type of the values that a column of a type is compared with."""
    t = pa.types
    if t.is_float32(type_):  # a FLOAT is the same number as a DOUBLE
        return pa.float64()
    if t.is_integer(type_) or t.is_float64(type_) or is_plain_text(type_) or t.is_date32(type_) or t.is_boolean(type_):
        return type_
    if t.is_decimal128(type_) or t.is_time64(type_) and type_.unit == "us":
        return type_
    if t.is_timestamp(type_) and (type_.tz is None or type_.tz == "UTC" and type_.unit == "us"):
        return type_
    raise NotDirectError(f"conditions on a column of type {type_} are left to DuckDB")


def is_plain_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def reading(kind: str, type_: pa.DataType, cast: str) -> Callable[[str], Any]:
    """How the text of a literal becomes a value of the column's type."""
    t = pa.types
    number = kind in ("INTEGER", "NUMERIC") and not cast
    if number and t.is_integer(type_):
        least, greatest = _limits(type_)
        return lambda text: _whole(text, least, greatest)
    if number and t.is_float64(type_):
        return _double
    if number and t.is_float32(type_):
        return _float
    if number and t.is_decimal128(type_) and _has_room(type_, kind):
        return lambda text: _decimal(text, type_)
    if t.is_boolean(type_) and kind == "BOOLEAN" and not cast:
        return lambda text: text == "true"
    if is_plain_text(type_) and kind == "STRING" and not cast:
        return str
    if kind == "STRING" and t.is_time64(type_) and cast in ("", "TIME"):
        return _clock
    if kind == "STRING" and cast != "TIME" and (t.is_timestamp(type_) or t.is_date32(type_) and cast != "TIMESTAMP"):
        if t.is_date32(type_):
            return lambda text: _moment(text, _DATE).date()
        pattern = _DATE if cast == "DATE" else _TIME
        digits = 6 if cast else _DIGITS[type_.unit]  # a TIMESTAMP has microseconds, whatever it is compared with
        return lambda text: _in_unit(_nanoseconds(text, pattern, digits), type_)
    raise NotDirectError(f"a column of type {type_} is compared with a constant of another kind")


def is_wide(node: Any) -> bool | None:
    """Whether a literal makes DOUBLEs of the FLOATs that it is compared with, and of what stands beside it; None: it is the same either
    way."""
    literal = node.get("literal") or {}
    return None if literal.get("kind") != "NUMERIC" else "e" in str(literal.get("text", "")).lower()


def _whole(text: str, least: int, greatest: int) -> int:
    """What is outside of a column's type is compared in a wider one: that is DuckDB's to do."""
    if not WHOLE.fullmatch(text) or not least <= (value := int(text)) <= greatest:
        raise NotDirectError("a constant is not as plain as it looks")
    return value


def _double(text: str) -> float:
    if not (_DECIMAL.fullmatch(text) or _DOUBLE.fullmatch(text)):
        raise NotDirectError("a constant is not as plain as it looks")
    if math.isinf(value := float(text)):  # DuckDB is to say what it is
        raise NotDirectError("a constant is not as plain as it looks")
    return value


def _float(text: str) -> float:
    """What a FLOAT is compared with: a DOUBLE, which has an exponent, or else the FLOAT that is next to a short number."""
    if _DOUBLE.fullmatch(text):
        return _double(text)
    if not _DECIMAL.fullmatch(text) or int(text.replace(".", "").lstrip("-")) > _SURE:
        raise NotDirectError("a constant is not as plain as it looks")
    found: float = pa.scalar(float(text), pa.float32()).as_py()
    return found


def _has_room(type_: pa.DataType, kind: str) -> bool:
    """Whether a DECIMAL that holds both all values of a column and all constants of a kind has no more digits than there are."""
    scale = type_.scale if kind == "INTEGER" else max(type_.scale, 8)
    return bool(max(type_.precision - type_.scale, _LONG) + scale <= 38) or type_.scale == 0 and kind == "INTEGER"


def _decimal(text: str, type_: pa.DataType) -> Decimal:
    """A value that a column can have; another one is compared in a wider type, and that is DuckDB's to do."""
    whole, _, fraction = text.lstrip("-").partition(".")
    if not (WHOLE.fullmatch(text) or _DECIMAL.fullmatch(text)) or len(fraction.rstrip("0")) > type_.scale:
        raise NotDirectError("a constant is not as plain as it looks")
    if len(whole.lstrip("0")) > min(type_.precision - type_.scale, _LONG - 1):
        raise NotDirectError("a constant is not as plain as it looks")
    return Decimal(text)


def _clock(text: str) -> dt.time:
    if not _CLOCK.fullmatch(text):
        raise NotDirectError("a constant is not as plain as it looks")
    return dt.time.fromisoformat(text)


def _moment(text: str, pattern: re.Pattern[str]) -> dt.datetime:
    if not pattern.fullmatch(text):
        raise NotDirectError("a constant is not as plain as it looks")
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise NotDirectError("a constant is no time") from None


def _nanoseconds(text: str, pattern: re.Pattern[str], digits: int) -> int:
    """Since 1970. `digits`: of a second, as many as are certain to count."""
    fraction = _FRACTION.search(text)
    said = fraction[1] if fraction else ""
    if len(said) > digits:
        raise NotDirectError("a constant is not as plain as it looks")
    found = nanoseconds(_moment(text[: -len(said) - 1] if said else text, pattern))
    assert found is not None
    return found + int(said.ljust(9, "0"))


def _in_unit(nanos: int, type_: pa.DataType) -> int:
    """A time as a column has it. One between two of these, or beyond all of them, is DuckDB's to compare."""
    value, rest = divmod(nanos, int(10 ** (9 - _DIGITS[type_.unit])))
    if rest or abs(value) >= (1 << 63) - 1:  # the last one is no time but infinity
        raise NotDirectError("a constant is a time that the column cannot have")
    return value


def given(value: Any, type_: pa.DataType) -> Any:
    """The value of a parameter."""
    t = pa.types
    if t.is_integer(type_) and type(value) is int:
        least, greatest = _limits(type_)
        if least <= value <= greatest:
            return value
    if t.is_float64(type_) and (type(value) is float and math.isfinite(value) or type(value) is int and abs(value) < 1 << 53):
        return float(value)
    if t.is_float32(type_) and (type(value) is float and math.isfinite(value) or type(value) is int and abs(value) <= _SURE):
        return float(value)  # a DOUBLE, or a number that is the same as FLOAT
    if t.is_decimal128(type_) and type(value) is int and _has_room(type_, "INTEGER"):
        return _decimal(str(value), type_)
    if t.is_boolean(type_) and type(value) is bool:
        return value
    if is_plain_text(type_) and type(value) is str and "\0" not in value:
        return value
    if t.is_date32(type_) and type(value) is dt.date:
        return value
    if t.is_time64(type_) and type(value) is dt.time and value.tzinfo is None:
        return value
    if t.is_timestamp(type_) and type(value) is dt.datetime and (value.tzinfo is None or type_.unit != "ns"):
        # with a zone or without: sessions are in UTC
        found = nanoseconds(value)
        assert found is not None
        return _in_unit(found, type_)
    raise NotDirectError("a constant is not as plain as it looks")


def _limits(type_: pa.DataType) -> tuple[int, int]:
    """The least and the greatest number of a type."""
    bits = type_.bit_width
    return (0, (1 << bits) - 1) if pa.types.is_unsigned_integer(type_) else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
