"""Reads every value of an answer as fast as this machine can, the same way for every system.

An answer is not there until somebody has read it: one that merely points into a file would look free otherwise. Reading
must not cost more than it has to either, or it hides the difference between the systems. So the sums run over the
columns' memory at the speed of that memory, on two threads where there is enough to share.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numba as nb
import numpy as np
import pyarrow as pa

SHARED_FROM = 16 << 20
"""Bytes of an answer from which on two threads share the reading."""

_pool = ThreadPoolExecutor(2, thread_name_prefix="reader")


@nb.njit(nogil=True, fastmath=True, cache=True)
def _sum_floats(values):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(values.shape[0]):
        total += values[i]
    return total


@nb.njit(nogil=True, cache=True)
def _sum_integers(values):  # type: ignore[no-untyped-def]
    total = np.int64(0)
    for i in range(values.shape[0]):
        total += np.int64(values[i])
    return total


def read(table: pa.Table) -> tuple[float, ...]:
    """The number of rows and the sum of each column. Integer sums wrap around."""
    parts = [(c, _values(chunk)) for c, column in enumerate(table.columns) for chunk in column.chunks if len(chunk)]
    size = sum(values.nbytes for _, values in parts)
    if size < SHARED_FROM:
        return (table.num_rows, *_sums(parts, table.num_columns))
    halves: tuple[list[tuple[int, np.ndarray]], list[tuple[int, np.ndarray]]] = ([], [])
    filled = [0, 0]
    for c, values in parts:
        for piece in np.array_split(values, 2) if values.nbytes > SHARED_FROM else (values,):
            half = int(filled[1] < filled[0])
            halves[half].append((c, piece))
            filled[half] += piece.nbytes
    one, other = _pool.map(lambda half: _sums(half, table.num_columns), halves)
    return (table.num_rows, *(_wrap(a + b) for a, b in zip(one, other, strict=True)))


def _values(array: pa.Array) -> np.ndarray:
    type_ = array.type
    dtype = np.dtype(np.int64) if pa.types.is_timestamp(type_) else np.dtype(type_.to_pandas_dtype())
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def _sums(parts: list[tuple[int, np.ndarray]], columns: int) -> list[float]:
    sums: list[float] = [0] * columns
    for c, values in parts:
        sums[c] = _wrap(sums[c] + (_sum_floats(values) if values.dtype.kind == "f" else int(_sum_integers(values))))
    return sums


def _wrap(number: float) -> float:
    """Integers modulo 2^64, as int64 addition gives them."""
    return number if isinstance(number, float) else (int(number) + (1 << 63)) % (1 << 64) - (1 << 63)
