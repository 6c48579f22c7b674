"""Constants of direct statements: how a literal or a parameter becomes a value of the type of the column that it is compared with."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tidewheel.model.times import nanoseconds

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?")
WHOLE = re.compile(r"-?\d{1,19}")
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,8})?|-?\d{1,17}(?:\.\d{1,17})?[eE][+-]?\d{1,3}")
"""The second is a DOUBLE from the start, the first a DECIMAL that becomes one."""


class NotDirectError(Exception):
    """This statement goes the long way. The message says why."""


def compared_as(type_: pa.DataType) -> pa.DataType:
    t = pa.types
    whole = t.is_signed_integer(type_) or t.is_unsigned_integer(type_) and type_.bit_width < 64
    if whole or t.is_float64(type_) or t.is_string(type_) or t.is_date32(type_):
        return type_
    if t.is_timestamp(type_) and type_.unit == "us" and type_.tz in (None, "UTC"):
        return type_
    raise NotDirectError(f"conditions on a column of type {type_} are left to DuckDB")


def reading(kind: str, type_: pa.DataType, cast: str) -> Callable[[str], Any]:
    """How the text of a literal becomes a value of the column's type."""
    t = pa.types
    number = kind in ("INTEGER", "NUMERIC") and not cast
    if number and t.is_integer(type_):
        least, greatest = _limits(type_)
        return lambda text: _whole(text, least, greatest)
    if number and t.is_float64(type_):
        return _float
    if t.is_string(type_) and kind == "STRING" and not cast:
        return str
    if kind == "STRING" and (t.is_timestamp(type_) or t.is_date32(type_) and cast != "TIMESTAMP"):
        if t.is_date32(type_):
            return lambda text: _moment(text, _DATE).date()
        pattern = _DATE if cast == "DATE" else _TIME
        return lambda text: _microseconds(_moment(text, pattern))
    raise NotDirectError(f"a column of type {type_} is compared with a constant of another kind")


def _whole(text: str, least: int, greatest: int) -> int:
    """What is outside of a column's type is compared in a wider one: that is DuckDB's to do."""
    if not WHOLE.fullmatch(text) or not least <= (value := int(text)) <= greatest:
        raise NotDirectError("a constant is not as plain as it looks")
    return value


def _float(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise NotDirectError("a constant is not as plain as it looks")
    if math.isinf(value := float(text)):  # DuckDB is to say what it is
        raise NotDirectError("a constant is not as plain as it looks")
    return value


def _moment(text: str, pattern: re.Pattern[str]) -> dt.datetime:
    if not pattern.fullmatch(text):
        raise NotDirectError("a constant is not as plain as it looks")
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise NotDirectError("a constant is no time") from None


def _microseconds(moment: dt.datetime) -> int:
    found = nanoseconds(moment)
    assert found is not None
    return found // 1000


def given(value: Any, type_: pa.DataType) -> Any:
    """The value of a parameter."""
    t = pa.types
    if t.is_integer(type_) and type(value) is int:
        least, greatest = _limits(type_)
        if least <= value <= greatest:
            return value
    if t.is_float64(type_) and (type(value) is float and math.isfinite(value) or type(value) is int and abs(value) < 1 << 53):
        return float(value)
    if t.is_string(type_) and type(value) is str and "\0" not in value:
        return value
    if t.is_date32(type_) and type(value) is dt.date:
        return value
    if t.is_timestamp(type_) and type(value) is dt.datetime:  # with a zone or without: sessions are in UTC
        return _microseconds(value)
    raise NotDirectError("a constant is not as plain as it looks")


def _limits(type_: pa.DataType) -> tuple[int, int]:
    """The least and the greatest number of a type."""
    bits = type_.bit_width
    return (0, (1 << bits) - 1) if pa.types.is_unsigned_integer(type_) else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
