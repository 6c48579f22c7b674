"""Codes of keys as people read them."""

from __future__ import annotations

import ipaddress
from decimal import Decimal

import numpy as np
import pyarrow as pa

from tidewheel.model.schema import ColumnKey, Ip, TableSpec, ZOrder
from tidewheel.model.times import INT64_MAX, INT64_MIN, TimeAxis

_V6 = 1 << 33
"""From here on codes are of IPv6 addresses: their first 62 bits."""


def is_relative(spec: TableSpec) -> bool:
    """Whether the key's codes leave out a prefix (text, bytes), in which regions may differ: a query's codes lie on another scale then."""
    if not isinstance(spec.key, ColumnKey):
        return False
    type_ = spec.schema.field(spec.key.column).type
    type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
    t = pa.types
    return not (t.is_primitive(type_) or t.is_boolean(type_) or t.is_decimal(type_))


def key_name(spec: TableSpec) -> str:
    match spec.key:
        case ZOrder(columns):
            return f"z-order of {', '.join(columns)}"
        case _:
            return spec.key.columns[0]


def key_label(spec: TableSpec, code: int) -> str:
    """The value that a code stands for; of text the end that its code is made of; of a z-order the code itself."""
    match spec.key:
        case ZOrder():
            return str(code)
        case Ip():
            clear = max(code, 0)
            return str(
                ipaddress.IPv4Address(clear) if clear < 1 << 32 else ipaddress.IPv6Address(max(clear - _V6, 0) << 66 & (1 << 128) - 1)
            )
        case ColumnKey(column):
            type_ = spec.schema.field(column).type
            return _value(type_.value_type if pa.types.is_dictionary(type_) else type_, code)


def _value(type_: pa.DataType, code: int) -> str:
    t = pa.types
    if t.is_uint64(type_):
        return str(code + (1 << 63))
    if t.is_floating(type_):
        bits = code if code >= 0 else code ^ INT64_MAX
        return f"{float(np.int64(bits).view(np.float64)):.6g}"
    if t.is_timestamp(type_):
        return TimeAxis("", type_.unit).show(code)
    if t.is_date(type_):
        return TimeAxis("", "day" if type_ == pa.date32() else "ms").show(code)
    if t.is_decimal(type_):
        return str(Decimal(code).scaleb(-type_.scale))
    if t.is_integer(type_) or t.is_boolean(type_) or t.is_temporal(type_):
        return str(code)
    if code in (INT64_MIN, INT64_MAX):
        return "…"
    end = (code - INT64_MIN).to_bytes(8, "big").rstrip(b"\0")
    text = end.decode("utf-8", "replace")
    return "…" + (text if text.isprintable() else end.hex())
