"""Questions about Arrow types that several parts ask."""

from __future__ import annotations

import pyarrow as pa


def value_type(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def is_text(type_: pa.DataType) -> bool:
    type_ = value_type(type_)
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))
