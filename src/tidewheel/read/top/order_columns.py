"""What the kernel of ordered answers has to know of the columns that rows are ordered by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.pieces import COLUMNS, SLOTS
from tidewheel.read.ordering import SortKey

INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT32, FLOAT64, BOOL, DECIMAL, TEXT32, TEXT64 = range(14)
"""Kinds of columns, as the kernel numbers them."""

SLOT, KIND, DESCENDING, NULLS_FIRST, RANK, CODE, ORDER = range(7)
"""What a row of the kernel's order says: a column, how it is ordered by, and the rank and code that it has in the last row that is held."""

_TYPES = {
    "int8": INT8, "int16": INT16, "int32": INT32, "int64": INT64, "uint8": UINT8, "uint16": UINT16, "uint32": UINT32, "uint64": UINT64,
    "float": FLOAT32, "double": FLOAT64, "bool": BOOL, "date32[day]": INT32, "date64[ms]": INT64, "string": TEXT32, "binary": TEXT32,
    "large_string": TEXT64, "large_binary": TEXT64,
}  # fmt: skip


def order_of(keys: Sequence[SortKey], schema: pa.Schema) -> tuple[npt.NDArray[np.int64], bool] | None:
    """A row for each of the first keys that the kernel knows, and whether they tell all that order rows; None if it knows none."""
    rows: list[tuple[int, ...]] = []
    for key in keys:
        number = schema.get_field_index(key.column)
        kind = _kind(schema.field(number).type)
        if kind is None:
            break
        rows.append((COLUMNS + SLOTS * number, kind, int(key.descending), int(key.nulls_first), 2, 0))
        if kind in (DECIMAL, TEXT32, TEXT64):  # codes that may tie
            break
    if not rows:
        return None
    exact = len(rows) == len(keys) and rows[-1][KIND] not in (DECIMAL, TEXT32, TEXT64)
    return np.array(rows, np.int64).reshape(-1, ORDER), exact


def _kind(type_: pa.DataType) -> int | None:
    t = pa.types
    if t.is_timestamp(type_) or t.is_time64(type_) or t.is_duration(type_):
        return INT64
    if t.is_time32(type_):
        return INT32
    return DECIMAL if t.is_decimal128(type_) else _TYPES.get(str(type_))
