"""Values of Spark's as literals of SQL, for the types whose comparisons DuckDB makes as Spark does."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidewheel.model.arrow_types import is_text, value_type


class NoLiteral(Exception):
    """This value cannot be said for this column."""


def literals(type_: pa.DataType) -> Callable[[Any], str] | None:
    """How values are written for a column of this type; None if its comparisons are left to Spark."""
    t = pa.types
    type_ = value_type(type_)
    if t.is_integer(type_):
        return _integer
    if t.is_float32(type_) or t.is_float64(type_):
        return _float
    if is_text(type_):
        return _string
    if t.is_binary(type_) or t.is_large_binary(type_):
        return _bytes
    if t.is_boolean(type_):
        return _boolean
    if t.is_date32(type_):
        return _date
    if t.is_timestamp(type_) and type_.unit == "us":
        return _zoned if type_.tz is not None else _unzoned
    if t.is_decimal128(type_) and 0 <= type_.scale <= type_.precision:
        return lambda value: _decimal(value, type_)
    return None


def _integer(value: Any) -> str:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 100:
        raise NoLiteral
    return str(value)


def _float(value: Any) -> str:
    if not isinstance(value, float):
        raise NoLiteral
    text = repr(value) if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return f"CAST('{text}' AS DOUBLE)"


def _string(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise NoLiteral
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NoLiteral from None
    return "'" + value.replace("'", "''") + "'"


def _bytes(value: Any) -> str:
    if not isinstance(value, (bytes, bytearray)):
        raise NoLiteral
    return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"


def _boolean(value: Any) -> str:
    if not isinstance(value, bool):
        raise NoLiteral
    return "true" if value else "false"


def _date(value: Any) -> str:
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise NoLiteral
    return f"DATE '{value.isoformat()}'"


def _zoned(value: Any) -> str:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        raise NoLiteral
    return f"TIMESTAMPTZ '{value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=' ')}+00'"


def _unzoned(value: Any) -> str:
    if not isinstance(value, dt.datetime) or value.tzinfo is not None:
        raise NoLiteral
    return f"TIMESTAMP '{value.isoformat(sep=' ')}'"


def _decimal(value: Any, type_: pa.DataType) -> str:
    if not isinstance(value, Decimal) or not value.is_finite():
        raise NoLiteral
    try:
        pa.scalar(value, type_)
    except (pa.ArrowException, ValueError):
        raise NoLiteral from None
    return f"CAST('{value:f}' AS DECIMAL({type_.precision}, {type_.scale}))"
