"""The corners of a box, as codes of the coordinates that zone maps are made of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.codes import FloatCoder, IntegerCoder, KeyIntervals
from tidewheel.model.schema import TableSpec
from tidewheel.model.zorder_codes import float_down, float_up


def corner_codes(spec: TableSpec, lower: Any, upper: Any) -> npt.NDArray[np.int64] | None:
    """Per coordinate, the least and the greatest code that rows of the box have, and only those. None: no row is in it."""
    out = np.empty((len(spec.key.columns), 2), np.int64)
    for d, column in enumerate(spec.key.columns):
        lo, hi = (None if corner is None else corner[d] for corner in (lower, upper))
        known = _between(column, spec.schema.field(column).type, lo, hi)
        if not len(known.lo):
            return None
        out[d] = known.lo[0], known.hi[0]
    return out


def _between(column: str, type_: pa.DataType, lo: Any, hi: Any) -> KeyIntervals:
    if pa.types.is_floating(type_):
        return FloatCoder(column, type_).intervals(None if lo is None else float_up(lo), None if hi is None else float_down(hi))
    a = None if lo is None or lo == -math.inf else lo if lo == math.inf else math.ceil(lo)
    b = None if hi is None or hi == math.inf else hi if hi == -math.inf else math.floor(hi)
    return IntegerCoder(column, type_).intervals(a, b)
