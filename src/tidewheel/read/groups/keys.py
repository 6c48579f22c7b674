"""What rows can be grouped by: a column, or a value that follows from one in a few steps, with DuckDB's meaning and DuckDB's type.

A step is here only if it is certain what DuckDB makes of it. Where that depends on the value (an overflow, a time beyond the calendar),
the kernel says that it is not sure, and the query is begun again through DuckDB.
"""

from __future__ import annotations

import pyarrow as pa

from tidewheel.model.dataclass import dataclass

UNITS = {
    "microsecond": ("us", "usec", "usecs", "usecond", "useconds", "microseconds"),
    "millisecond": ("ms", "msec", "msecs", "millisecond", "milliseconds"),
    "second": ("s", "sec", "secs", "seconds"),
    "minute": ("m", "min", "mins", "minutes"),
    "hour": ("h", "hr", "hrs", "hours"),
    "day": ("d", "days", "dayofmonth"),
    "week": ("w", "weeks", "weekofyear"),
    "month": ("mon", "mons", "months"),
    "quarter": ("quarters",),
    "year": ("y", "yr", "yrs", "years"),
}  # fmt: skip
"""Units of time, each with its other names."""

PARTS = {name: UNITS[name] for name in UNITS} | {
    "dow": ("dayofweek", "weekday"),
    "isodow": (),
    "doy": ("dayofyear",),
    "isoyear": (),
    "yearweek": (),
}  # fmt: skip
"""Parts of a time, each with its other names; `week` is that of ISO."""

MICROSECONDS = {
    "microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6, "day": 86_400 * 10**6,
    "week": 7 * 86_400 * 10**6,
}  # fmt: skip
MONTHS = {"month": 1, "quarter": 3, "year": 12}

MOMENT, MOMENT_UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")

TYPES: dict[str, pa.DataType] = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(), "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(), "UINTEGER": pa.uint32(), "DOUBLE": pa.float64(), "DATE": pa.date32(), "TIMESTAMP": MOMENT,
}  # fmt: skip
"""What a value can be made by a cast."""

_NAMED = {type_: name for name, type_ in TYPES.items()}


@dataclass(frozen=True, slots=True)
class Truncated:
    """date_trunc: the beginning of the unit that a time lies in."""

    unit: str


@dataclass(frozen=True, slots=True)
class Bucketed:
    """time_bucket: the beginning of the interval that a time lies in, counted from DuckDB's origin. One of the two is 0."""

    months: int
    microseconds: int


@dataclass(frozen=True, slots=True)
class TimePart:
    """extract: a part of a time, as a number."""

    name: str


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The value (sign) a constant: + - * // % of whole numbers, + - * / of floats, / of both."""

    sign: str
    number: int | float
    text: str
    """The constant as it is written."""


@dataclass(frozen=True, slots=True)
class Floored:
    """The greatest whole number that is not greater."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A cast."""

    to: str
    """A name of TYPES."""


KeyStep = Truncated | Bucketed | TimePart | Arithmetic | Floored | Converted


@dataclass(frozen=True, slots=True)
class Key:
    """A column, and what is made of its values, one step after the other."""

    column: str
    steps: tuple[KeyStep, ...] = ()


def type_of_key(key: Key, schema: pa.Schema) -> pa.DataType | None:
    """The type that DuckDB gives to a key; None if it is left to DuckDB."""
    type_: pa.DataType | None = schema.field(key.column).type
    if not _is_known(type_):
        return None
    for step in key.steps:
        if type_ is None:
            return None
        type_ = type_after(step, type_)
    return type_


def is_counted(key: Key, schema: pa.Schema) -> bool:
    """Whether it is certain which values of a key are null, though nothing else need be known of them."""
    t, type_ = pa.types, schema.field(key.column).type
    plain = t.is_decimal128(type_) or t.is_time(type_) or t.is_timestamp(type_) or t.is_large_string(type_) or t.is_large_binary(type_)
    return type_of_key(key, schema) is not None or bool(plain) and not key.steps


def type_after(step: KeyStep, type_: pa.DataType) -> pa.DataType | None:
    """The type of what a step makes of values of a type; None if it is not certain."""
    t = pa.types
    match step:
        case Truncated():
            return _moment(type_)
        case Bucketed(months, microseconds):
            if not t.is_date32(type_):
                return _moment(type_)
            return type_ if months or microseconds % MICROSECONDS["day"] == 0 else None
        case TimePart():
            return pa.int64() if _moment(type_) is not None else None
        case Floored():
            return type_ if t.is_floating(type_) else pa.float64() if _is_whole(type_) else None
        case Arithmetic(sign, number):
            return _calculated(sign, number, type_)
        case Converted(to):
            return TYPES[to] if _can_become(type_, TYPES[to]) else None


def _is_known(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_integer(type_) or t.is_float32(type_) or t.is_float64(type_) or t.is_boolean(type_) or t.is_date32(type_)
        or t.is_string(type_) or t.is_binary(type_) or t.is_timestamp(type_) and (type_.tz is None or type_ == MOMENT_UTC)
    )  # fmt: skip


def _is_whole(type_: pa.DataType) -> bool:
    """Whole numbers that fit 64 bits with a sign."""
    return bool(pa.types.is_integer(type_) and not pa.types.is_uint64(type_))


def _moment(type_: pa.DataType) -> pa.DataType | None:
    if type_ == MOMENT_UTC:
        return MOMENT_UTC
    return MOMENT if pa.types.is_timestamp(type_) and type_.tz is None or pa.types.is_date32(type_) else None


def _calculated(sign: str, number: int | float, type_: pa.DataType) -> pa.DataType | None:
    if sign == "/":
        return pa.float64() if number and (_is_whole(type_) or pa.types.is_float64(type_)) else None
    if pa.types.is_float64(type_):
        return type_ if sign in ("+", "-", "*") else None
    if not _is_whole(type_) or not isinstance(number, int) or sign in ("//", "%") and number < 1:
        return None
    least, greatest = ends_of(type_)
    if least <= number <= greatest:
        return type_
    wider = [one for one in (pa.int32(), pa.int64()) if ends_of(one)[0] <= number <= ends_of(one)[1]]
    small = pa.types.is_signed_integer(type_) or type_.bit_width < 32
    return wider[0] if wider and small and wider[0].bit_width > type_.bit_width else None


def ends_of(type_: pa.DataType) -> tuple[int, int]:
    """The least and the greatest whole number of a type."""
    bits = type_.bit_width
    return (0, (1 << bits) - 1) if pa.types.is_unsigned_integer(type_) else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _can_become(type_: pa.DataType, to: pa.DataType) -> bool:
    t = pa.types
    if t.is_integer(to):
        return bool(_is_whole(type_) or t.is_float64(type_) or t.is_boolean(type_))
    if to == pa.float64():
        return bool(_is_whole(type_) or t.is_floating(type_) and not t.is_float16(type_))
    return bool(_moment(type_) == MOMENT)


def written_key(key: Key) -> str:
    """The expression of a key."""
    said = '"' + key.column.replace('"', '""') + '"'
    for step in key.steps:
        match step:
            case Truncated(unit):
                said = f"date_trunc('{unit}', {said})"
            case Bucketed(months, microseconds):
                said = f"time_bucket(INTERVAL '{f'{months} months' if months else f'{microseconds} microseconds'}', {said})"
            case TimePart(name):
                said = f"date_part('{name}', {said})"
            case Arithmetic(sign, _, text):
                said = f"({said} {sign} {text})"
            case Floored():
                said = f"floor({said})"
            case Converted(to):
                said = f"CAST({said} AS {to})"
    return said
