"""Codes of points: coordinates interleaved into one number (z-order). They only prune; the coordinates decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import QueryError
from tidewheel.model.codes import ALL, NOWHERE, Codes, KeyCoder, KeyIntervals, Mask, Refusal
from tidewheel.model.loading import later

kernels = later("tidewheel.model.kernels")

Z_INTERVALS = 64
"""Most key intervals that a box is made into."""


class ZOrderCoder:
    """Two or more coordinates, quantised within declared bounds and interleaved."""

    prefix = b""
    number = 0
    learns = False

    def __init__(self, columns: tuple[str, ...], bounds: tuple[float, ...]) -> None:
        self.columns = columns
        self.bits = 62 // len(columns)
        self._lo = np.array(bounds[: len(columns)])
        with np.errstate(over="ignore"):  # bounds nearly alike or without end: all points share few cells, which is right
            self._scale = float(1 << self.bits) / (np.array(bounds[len(columns) :]) - self._lo)

    def with_prefix(self, prefix: bytes, number: int = 0) -> KeyCoder:
        return self

    def learned(self, keys: Sequence[pa.Array], most: int) -> bytes:
        return b""

    def _points(self, batch: pa.RecordBatch) -> npt.NDArray[np.float64]:
        return np.array([np.asarray(batch.column(c), np.float64) for c in self.columns])

    def encode(self, batch: pa.RecordBatch) -> Codes:
        out = np.empty(batch.num_rows, np.int64)
        kernels.zorder_codes(self._points(batch), self._lo, self._scale, self.bits, out)
        return out

    def refuse(self, batch: pa.RecordBatch) -> Refusal:
        bad: Mask = np.logical_or.reduce(np.isnan(self._points(batch)))
        return (bad, f"a coordinate of the key ({', '.join(self.columns)}) is NaN") if bad.any() else None

    def intervals(self, lo: Any, hi: Any) -> KeyIntervals:
        """`lo` and `hi` are the two corners of a box."""
        dims = len(self.columns)
        cells = np.empty((2, dims), np.int64)
        for d in range(dims):
            a = -math.inf if lo is None or lo[d] is None else _number(lo[d])
            b = math.inf if hi is None or hi[d] is None else _number(hi[d])
            if a > b:
                return NOWHERE
            cells[0, d] = kernels.quantise(a, self._lo[d], self._scale[d], self.bits)
            cells[1, d] = kernels.quantise(b, self._lo[d], self._scale[d], self.bits)
        out = np.empty((2, Z_INTERVALS), np.int64)
        n = kernels.zorder_intervals(cells[0], cells[1], self.bits, out[0], out[1])
        return KeyIntervals(out[0, :n].copy(), out[1, :n].copy(), ALL)

    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask:
        keep = np.ones(batch.num_rows, bool)
        for d, column in enumerate(self.columns):
            values = np.asarray(batch.column(column))
            if values.dtype.kind == "f":
                values = values.astype(np.float64)  # or NumPy would round the bound to the column's width
            if lo is not None and lo[d] is not None:
                keep &= _at_least(values, lo[d])
            if hi is not None and hi[d] is not None:
                keep &= _at_most(values, hi[d])
        return keep


def _at_least(values: npt.NDArray[Any], bound: Any) -> Mask:
    """values >= bound, exactly: integers are compared with integers."""
    if values.dtype.kind == "f":
        return np.asarray(values >= float_up(bound))
    least = math.ceil(bound) if not math.isinf(bound) else bound
    info = np.iinfo(values.dtype)
    return np.full(len(values), least <= info.min) if least <= info.min or least > info.max else np.asarray(values >= least)


def _at_most(values: npt.NDArray[Any], bound: Any) -> Mask:
    if values.dtype.kind == "f":
        return np.asarray(values <= float_down(bound))
    most = math.floor(bound) if not math.isinf(bound) else bound
    info = np.iinfo(values.dtype)
    return np.full(len(values), most >= info.max) if most >= info.max or most < info.min else np.asarray(values <= most)


def float_up(value: Any) -> float:
    """The least float at or above a number."""
    number = float(value)
    return math.nextafter(number, math.inf) if number < value else number


def float_down(value: Any) -> float:
    """The greatest float at or below a number."""
    number = float(value)
    return math.nextafter(number, -math.inf) if number > value else number


def _number(value: Any) -> float:
    try:
        number = float("x" if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        raise QueryError(f"{value!r} is no coordinate of a box") from None
    if math.isnan(number):
        raise QueryError("NaN is no coordinate of a box")
    return number
