"""Materialise: segments become Arrow batches. Long segments are slices of what is there, short ones are copied together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidewheel.model.pieces import BITS, COLUMNS, FIXED, OTHER, PERM, SLOTS, VALIDITY, VALUES, VAR64, Shape
from tidewheel.read import kernels as k
from tidewheel.read.scan import Found, Matrix, verify

_MOST_BYTES = (1 << 31) - 1
"""What 32-bit offsets can address."""


class Columns:
    """The columns a query needs, by their numbers in the table."""

    __slots__ = ("numbers", "schema", "shape", "stored", "whole")

    def __init__(self, numbers: list[int], schema: pa.Schema, shape: Shape) -> None:
        self.numbers = numbers
        self.whole = numbers == list(range(len(schema)))
        self.schema = schema if self.whole else pa.schema([schema.field(i) for i in numbers], schema.metadata)
        self.shape = shape
        self.stored = np.array(numbers, np.int64)


def check_blocks(found: Found, segments: Matrix, columns: Columns) -> None:
    """Verify the checksums of all blocks that these segments touch for the first time."""
    todo = np.empty((256, 3), np.int64)
    while n := k.unverified(found.pieces, segments, columns.stored, todo):
        verify(found.version, found.pieces, todo[:n])


def slice_of(found: Found, segment: list[int], columns: Columns) -> pa.RecordBatch:
    """A segment as it lies in its piece, without copying."""
    piece, first, length, _ = segment
    batch = found.holder(piece).batch
    part = batch if columns.whole else batch.select(columns.numbers)
    return part.slice(first, length)


def copy(found: Found, segments: Matrix, columns: Columns) -> pa.RecordBatch:
    """The rows of all segments in one new batch, in the order of the segments."""
    rows = int(segments[:, 2].sum())
    arrays = [_column(found, segments, c, rows, columns) for c in columns.numbers]
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=columns.schema)


def sliceable(found: Found, segments: Matrix, least: int) -> Matrix:
    """Which segments are long enough to be returned as slices and lie in order."""
    return (segments[:, 2] >= least) & (found.pieces[segments[:, 0], PERM] == 0)


_COPY = {1: (np.uint8, k.copy1), 2: (np.uint16, k.copy2), 4: (np.uint32, k.copy4), 8: (np.uint64, k.copy8)}


def _column(found: Found, segments: Matrix, c: int, rows: int, columns: Columns) -> pa.Array:
    kind, width = columns.shape.kinds[c], columns.shape.widths[c]
    pieces, slot = found.pieces, COLUMNS + SLOTS * c
    type_ = columns.schema.field(columns.numbers.index(c)).type
    if kind == OTHER:
        return _arrow_column(found, segments, c, type_)
    validity = None
    if pieces[:, slot + VALIDITY].any() and pieces[segments[:, 0], slot + VALIDITY].any():
        validity = _bits(found, segments, slot, VALIDITY, rows)
    if kind == BITS:
        return pa.Array.from_buffers(type_, rows, [validity, _bits(found, segments, slot, VALUES, rows)])
    if kind == FIXED:
        out = pa.allocate_buffer(rows * width)  # from Arrow's pool: fresh pages would have to be faulted in
        if width in _COPY:
            dtype, kernel = _COPY[width]
            kernel(pieces, segments, slot, np.frombuffer(out, dtype))
        else:
            k.copy_wide(pieces, segments, slot, width, np.frombuffer(out, np.uint8))
        return pa.Array.from_buffers(type_, rows, [validity, out])
    wide = kind == VAR64
    ends = np.empty(rows + 1, np.int64)
    total = k.var_ends(pieces, segments, slot, int(wide), ends)
    if total > _MOST_BYTES and not wide:
        raise TooLongError
    data = pa.allocate_buffer(total)
    k.copy_bytes(pieces, segments, slot, int(wide), ends, np.frombuffer(data, np.uint8))
    return pa.Array.from_buffers(type_, rows, [validity, pa.py_buffer(ends if wide else ends.astype(np.int32)), data])


class TooLongError(Exception):
    """A copied text column would exceed 32-bit offsets: copy fewer rows at a time."""


def _bits(found: Found, segments: Matrix, slot: int, which: int, rows: int) -> pa.Buffer:
    flags = np.empty(rows, np.uint8)
    k.copy_bits(found.pieces, segments, slot, which, flags)
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _arrow_column(found: Found, segments: Matrix, c: int, type_: pa.DataType) -> pa.Array:
    """Types that kernels do not know are left to Arrow, segment by segment."""
    parts = []
    for piece, first, length, _ in segments.tolist():
        array = found.holder(piece).batch.column(c)
        perm = int(found.pieces[piece, PERM])
        if perm:
            numbers = np.empty(length, np.uint32)
            k.row_numbers(perm, first, numbers)
            parts.append(array.take(pa.array(numbers)))
        else:
            parts.append(array.slice(first, length))
    if pa.types.is_dictionary(type_):
        parts = pa.chunked_array(parts, type_).unify_dictionaries().chunks
    return pa.concat_arrays(parts) if parts else pa.array([], type_)
