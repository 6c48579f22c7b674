"""Python's values as Arrow's, made of their bytes.

With the first of Python's values that Arrow converts by itself it imports pandas, if that is installed: a third of the time of a short
command. Once something else has loaded pandas, Arrow's own way is taken, which is as short.
"""

from __future__ import annotations

import datetime as dt
import struct
import sys
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_WHOLE = {
    pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q",
    pa.uint8(): "B", pa.uint16(): "H", pa.uint32(): "I", pa.uint64(): "Q",
}  # fmt: skip
_FIRST_DAY = dt.date(1970, 1, 1).toordinal()
_FIRST_MOMENT = dt.datetime(1970, 1, 1)


def array_of(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """As `pa.array(values, type_)`, and with its errors."""
    if "pandas" not in sys.modules:
        try:
            buffers = _buffers(values, type_)
        except (struct.error, UnicodeEncodeError):  # Arrow is to say what is wrong
            buffers = None
        if buffers is not None:
            return pa.Array.from_buffers(type_, len(values), buffers)
    return pa.array(values, type_)


def scalar_of(value: Any, type_: pa.DataType) -> pa.Scalar:
    """As `pa.scalar(value, type_)`, and with its errors."""
    return pa.scalar(value, type_) if "pandas" in sys.modules else array_of((value,), type_)[0]


def numbers_of(values: npt.NDArray[np.integer]) -> pa.Array:
    """As `pa.array(values)`, of numbers: truth values, which Arrow has bits for, are none."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def no_rows(schema: pa.Schema) -> pa.Table:
    """As `schema.empty_table()`, without a chunk in its columns."""
    return pa.Table.from_batches([], schema)


def _buffers(values: Sequence[Any], type_: pa.DataType) -> list[pa.Buffer | None] | None:
    """Those of an array; None, if some value is null or not plainly of the type."""
    kinds = set(map(type, values))
    if not kinds:
        return None
    form = "q" if pa.types.is_timestamp(type_) else _WHOLE.get(type_, "")
    if form and kinds == {int}:
        return [None, pa.py_buffer(struct.pack(f"={len(values)}{form}", *values))]
    if type_ == pa.float64() and kinds == {float}:
        return [None, pa.py_buffer(struct.pack(f"={len(values)}d", *values))]
    if type_ == pa.bool_() and kinds == {bool}:
        return [None, pa.py_buffer(np.packbits(values, bitorder="little").tobytes())]
    if pa.types.is_timestamp(type_) and type_.unit == "us" and kinds == {dt.datetime} and _are_of(type_.tz, values):
        return [None, pa.py_buffer(struct.pack(f"={len(values)}q", *map(_microseconds, values)))]
    if type_ == pa.date32() and kinds == {dt.date}:
        return [None, pa.py_buffer(struct.pack(f"={len(values)}i", *(value.toordinal() - _FIRST_DAY for value in values)))]
    if (type_ == pa.string() or type_ == pa.large_string()) and kinds == {str}:
        texts = [value.encode() for value in values]
        ends = struct.pack(f"={len(texts) + 1}{'i' if type_ == pa.string() else 'q'}", 0, *accumulate(map(len, texts)))
        return [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    if pa.types.is_decimal128(type_) and type_.scale == 0 and kinds == {Decimal}:
        wholes = [int(value) for value in values if value.as_tuple().exponent == 0]
        if len(wholes) == len(values) and all(abs(whole) < 10**type_.precision for whole in wholes):
            return [None, pa.py_buffer(b"".join(whole.to_bytes(16, "little", signed=True) for whole in wholes))]
    return None


def _are_of(zone: str | None, values: Sequence[dt.datetime]) -> bool:
    """Whether these moments have a zone where their type has one: UTC."""
    return all(value.tzinfo is (None if zone is None else dt.UTC) for value in values)


def _microseconds(value: dt.datetime) -> int:
    return (value.replace(tzinfo=None) - _FIRST_MOMENT) // dt.timedelta(microseconds=1)
