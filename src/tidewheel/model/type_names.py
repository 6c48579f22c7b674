"""Types of columns by their names: Arrow's, SQL's, and C's as MDDS writes them."""

from __future__ import annotations

import re

import pyarrow as pa

from tidewheel.errors import SchemaError
from tidewheel.model.schema import nearest

_UTC = "UTC"

_ARROW = {
    name: pa.type_for_alias(name)
    for name in (
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "float", "double", "string",
        "large_string", "binary", "bool", "date32", "time64[us]", "duration[us]",
    )
}  # fmt: skip

SQL = {
    "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "integer": pa.int32(), "bigint": pa.int64(),
    "utinyint": pa.uint8(), "usmallint": pa.uint16(), "uinteger": pa.uint32(), "ubigint": pa.uint64(), "float": pa.float32(),
    "double": pa.float64(), "varchar": pa.string(), "blob": pa.binary(), "date": pa.date32(), "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"), "timestamp_s": pa.timestamp("s"), "timestamp_ms": pa.timestamp("ms"),
    "timestamp_ns": pa.timestamp("ns"), "timestamp with time zone": pa.timestamp("us", _UTC),
    "interval": pa.month_day_nano_interval(), "time_ns": pa.time64("ns"),
}  # fmt: skip
"""By the names that DuckDB has for them, whatever they are called in a statement."""

_SQL_ALSO = {"int": SQL["integer"], "real": SQL["float"], "text": SQL["varchar"], "timestamptz": SQL["timestamp with time zone"]}

_C = {
    **{f"{name}_t": pa.type_for_alias(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    "char": pa.string(), "epoch_t": pa.timestamp("s", _UTC),
}  # fmt: skip

NAMES: dict[str, pa.DataType] = {**_ARROW, **SQL, **_SQL_ALSO, **_C}

_MOMENT = re.compile(r"timestamp\[\s*(s|ms|us|ns)\s*(?:,\s*(?:tz\s*=\s*)?([\w/+:-]+)\s*)?\]")
_DECIMAL = re.compile(r"(?:decimal(?:128)?|numeric)\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_LIST = re.compile(r"list<\s*(?:item:\s*)?(.+)>|(.+)\[\]")

_DEEPEST = 32


def type_named(text: str) -> pa.DataType:
    """The type of this name; what Arrow prints is understood too. SchemaError suggests the nearest."""
    name = text.strip()
    small = name.lower()
    if name.count("<") + name.count("[]") > _DEEPEST:
        raise SchemaError(f"a type has at most {_DEEPEST} lists within each other, not {text[:40]!r} …")
    if small in NAMES:
        return NAMES[small]
    if found := _MOMENT.fullmatch(name):
        return pa.timestamp(found[1], _zone(found[2]))
    if found := _DECIMAL.fullmatch(small):
        try:
            return pa.decimal128(int(found[1]), int(found[2] or 0))
        except ValueError as e:
            raise SchemaError(f"{text!r} is not a type: {e}") from None
    if found := _LIST.fullmatch(name):
        return pa.list_(type_named(found[1] or found[2]))
    try:
        return pa.type_for_alias(small)
    except ValueError:
        known = [*NAMES, "timestamp[us]", "timestamp[us, UTC]", "decimal(18, 2)", "list<int64>"]
        raise SchemaError(
            f"there is no type {text!r}.{nearest(small, known)} Types: {', '.join(known[:17])}, date, timestamp, timestamp[ms], "
            "timestamp[us, UTC], decimal(18, 2), list<int64> …"
        ) from None


def _zone(name: str | None) -> str | None:
    """Arrow takes any name, and fails when a value is shown."""
    try:
        pa.scalar(0, pa.timestamp("s", name)).as_py()
    except (ValueError, KeyError, pa.ArrowException):
        raise SchemaError(f"there is no time zone {name!r}; times are kept in UTC: timestamp[us, UTC]") from None
    return name
