"""Which coder makes the codes of a table's key."""

from __future__ import annotations

import pyarrow as pa

from tidewheel.model.codes import DecimalCoder, FloatCoder, IntegerCoder, KeyCoder
from tidewheel.model.schema import ColumnKey, Ip, TableSpec, ZOrder
from tidewheel.model.text_codes import BytesCoder, IpCoder
from tidewheel.model.zorder_codes import ZOrderCoder


def key_coder(spec: TableSpec) -> KeyCoder:
    """The coder of a table's key."""
    match spec.key:
        case ZOrder(columns, bounds):
            return ZOrderCoder(columns, bounds)
        case Ip(column):
            return IpCoder(column)
        case ColumnKey(column):
            type_ = spec.schema.field(column).type
            value = type_.value_type if pa.types.is_dictionary(type_) else type_
            t = pa.types
            if t.is_floating(value):
                return FloatCoder(column, value)
            if t.is_decimal(value):
                return DecimalCoder(column, value)
            if t.is_integer(value) or t.is_boolean(value) or t.is_temporal(value):
                return IntegerCoder(column, value)
            return BytesCoder(column, value)
    raise AssertionError(spec.key)
