"""What the kernel has to do to make totals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.pieces import COLUMNS, SLOTS
from tidewheel.read.totals.parse import AVG, MAX, MIN, SUM

KINDS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double")
"""Types of columns, as the kernel numbers them."""

ADD, COMPARE = 1, 2
"""What the kernel does with the values of a column besides counting them: bits."""


def folds_of(wants: Mapping[str, set[str]], schema: pa.Schema) -> npt.NDArray[np.int64] | None:
    """A row for each column that something is wanted of: (first slot in a piece, kind, bits); None if one is not for the kernel."""
    rows = []
    for column, what in wants.items():
        number = schema.get_field_index(column)
        if (kind := _kind(schema.field(number).type)) is None:
            return None
        rows.append((COLUMNS + SLOTS * number, kind, (ADD if what & {SUM, AVG} else 0) | (COMPARE if what & {MIN, MAX} else 0)))
    return np.array(rows, np.int64).reshape(-1, 3)


def _kind(type_: pa.DataType) -> int | None:
    name = "int64" if pa.types.is_timestamp(type_) else "int32" if pa.types.is_date32(type_) else str(type_)
    return KINDS.index(name) if name in KINDS else None
