"""Values as text: the same in every format that people read. Whole columns at a time, by Arrow where it can."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tidewheel.model.loading import pc

_BEYOND = {
    **{f"<value out of range: {(1 << bits) - 1}>": "infinity" for bits in (31, 63)},
    **{f"<value out of range: {1 - (1 << bits)}>": "-infinity" for bits in (31, 63)},
    "<value out of range: 86400000000>": "24:00:00",
}


def texts(column: pa.Array) -> list[str | None]:
    """Every value as text, None for null. Bytes are hexadecimal, nested values are JSON."""
    column = _plain(column)
    kind = column.type
    if _is_text(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_integer(kind):  # without Arrow's functions, which take longer to load than a number to write
        return [None if value is None else str(value) for value in column.to_pylist()]
    if pa.types.is_floating(kind):  # Arrow writes 1.0 as 1
        return pc.replace_substring_regex(column.cast(pa.string()), r"^(-?\d+)$", r"\1.0").to_pylist()  # type: ignore[no-any-return]
    if _is_bytes(kind):
        return [None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()]
    if not pa.types.is_nested(kind) and not pa.types.is_duration(kind) and not pa.types.is_interval(kind):
        try:
            return _temporal(column) if pa.types.is_temporal(kind) else column.cast(pa.string()).to_pylist()
        except pa.ArrowException:  # Arrow cannot, or not for these values
            pass
    return [_text(value) for value in column]


def json_texts(column: pa.Array) -> list[str]:
    """Every value as JSON. Numbers are exact; NaN and infinities, which JSON lacks, are null; times are ISO text."""
    column = _plain(column)
    kind = column.type
    found = texts(column)
    if pa.types.is_floating(kind):
        return ["null" if one is None or one.lstrip("-") in ("nan", "inf") else one for one in found]
    if pa.types.is_timestamp(kind):
        return ["null" if one is None else f'"{one if one[0] == "<" else one.replace(" ", "T", 1)}"' for one in found]
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind) or pa.types.is_nested(kind):
        return ["null" if one is None else one for one in found]
    return ["null" if one is None else json.dumps(one, ensure_ascii=False) for one in found]


def is_number(kind: pa.DataType) -> bool:
    """Whether its values stand at the right of a column."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _temporal(column: pa.Array) -> list[str | None]:
    """Arrow has no words for what DuckDB calls infinity, nor for the end of a day; with a zone it would show another time instead."""
    zone = ""
    if pa.types.is_timestamp(column.type) and column.type.tz in ("UTC", "Etc/UTC"):
        column, zone = column.cast(pa.timestamp(column.type.unit)), "Z"
    found = column.cast(pa.string()).to_pylist()
    return [text if text is None else _BEYOND.get(text, text) if text[0] == "<" else text + zone for text in found]


def _plain(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    test = pa.types
    return bool(test.is_binary(kind) or test.is_large_binary(kind) or test.is_binary_view(kind) or test.is_fixed_size_binary(kind))


def _text(scalar: pa.Scalar) -> str | None:
    if not scalar.is_valid:
        return None
    if pa.types.is_nested(scalar.type):
        return json.dumps(_nested(scalar), ensure_ascii=False)
    value = _value(scalar)
    return _interval(value) if isinstance(value, pa.MonthDayNano) else str(value)


def _nested(scalar: pa.Scalar) -> Any:
    """A list, a struct or a map with all that is in it, as JSON can have it."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.UnionScalar):
        return _nested(scalar.value)
    if isinstance(scalar, pa.MapScalar):
        pairs = (tuple(entry.values()) for entry in scalar.values)
        return {str(_storable(_value(key))): _nested(value) for key, value in pairs}
    if isinstance(scalar, pa.StructScalar):
        return {name: _nested(value) for name, value in scalar.items()}
    if pa.types.is_nested(scalar.type):
        return [_nested(one) for one in scalar.values]
    return _storable(_value(scalar))


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):  # a time that Python has no date for
        return texts(pa.array([scalar], scalar.type))[0]


def _storable(value: Any) -> Any:
    """A value that is not nested, as JSON can have it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, pa.MonthDayNano):
        return _interval(value)
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _interval(value: Any) -> str:
    parts = [(value.months, "month"), (value.days, "day"), (value.nanoseconds / 1e9, "second")]
    return " ".join(f"{n:g} {word}{'' if n == 1 else 's'}" for n, word in parts if n) or "0 seconds"
