"""Materialise: segments become Arrow batches. Long segments are slices of what is there, short ones are copied together."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.arrays import take
from tidewheel.model.loading import later
from tidewheel.model.pieces import BITS, COLUMNS, FIXED, OTHER, PERM, SLOTS, VALIDITY, VALUES, VAR64, Shape
from tidewheel.read.limits import Watch
from tidewheel.read.scan import Found, Matrix, verify

if TYPE_CHECKING:
    from tidewheel.read.damage import Damage

k = later("tidewheel.read.kernels")
texts = later("tidewheel.read.texts.kernels")

_MOST_BYTES = (1 << 31) - 1
"""Bytes that 32-bit offsets can address."""

_LARGE = 1 << 16
"""Rows from which on a copy looks at the clock after each column."""


class Columns:
    """The columns a query needs, by their numbers in the table, and what copying them needs to know."""

    __slots__ = ("numbers", "plain", "row_bytes", "schema", "shape", "stored", "types", "whole", "widths")

    def __init__(self, numbers: list[int], schema: pa.Schema, shape: Shape) -> None:
        self.numbers = numbers
        self.whole = numbers == list(range(len(schema)))
        self.schema = schema if self.whole else pa.schema([schema.field(i) for i in numbers], schema.metadata)
        self.types: list[pa.DataType] = self.schema.types
        self.shape = shape
        self.stored = np.array(numbers, np.int64)
        self.row_bytes = sum(shape.widths[c] for c in numbers) if all(shape.kinds[c] == FIXED for c in numbers) else 0
        """Bytes of a row where every row has the same, else 0. To ask a batch takes longer than to read a small one."""
        plain = [c for c in numbers if shape.kinds[c] == FIXED and shape.widths[c] in (4, 8)]
        self.widths = [shape.widths[c] for c in plain]
        self.plain: Matrix = np.array([(COLUMNS + SLOTS * c, shape.widths[c], 0) for c in plain], np.int64).reshape(-1, 3)
        """For `copy_columns`: the columns of four or eight bytes; the addresses are still to be filled in."""


def check_blocks(found: Found, segments: Matrix, columns: Columns, watch: Watch, damage: Damage | None = None) -> None:
    """Verify the checksums of all blocks that these segments touch for the first time; raises CorruptionError.

    With `damage`, what is damaged is noted there, and this returns with the rest unverified.
    """
    todo = np.empty((256, 3), np.int64)
    while n := k.unverified(found.pieces, segments, columns.stored, todo):
        verify(found.version, found.pieces, todo[:n], watch, damage)
        if damage is not None and damage.grown:
            return


def slice_of(found: Found, segment: list[int], columns: Columns) -> pa.RecordBatch:
    """A segment as it lies in its piece, without copying."""
    piece, first, length, _ = segment
    batch = found.holder(piece).batch
    part = batch if columns.whole else batch.select(columns.numbers)
    return part.slice(first, length)


def copy(found: Found, segments: Matrix, columns: Columns, watch: Watch) -> pa.RecordBatch:
    """The rows of all segments in one new batch, in the order of the segments."""
    rows = found.rows if segments is found.segments else int(segments[:, 2].sum())
    # one allocation for all plain columns, from Arrow's pool: fresh pages would have to be faulted in
    ends = list(accumulate((-(-rows * w // 64) * 64 for w in columns.widths), initial=0))
    watch.take(ends[-1])
    memory = pa.allocate_buffer(ends[-1])
    plain = columns.plain.copy()
    plain[:, 2] = ends[:-1]
    plain[:, 2] += memory.address
    k.copy_columns(found.pieces, segments, plain)
    nulls = found.nulls()
    arrays = []
    n = 0
    for type_, c in zip(columns.types, columns.numbers, strict=True):
        kind, width = columns.shape.kinds[c], columns.shape.widths[c]
        if kind != FIXED or width not in (4, 8):
            if rows > _LARGE:
                watch.check()
            arrays.append(_column(found, segments, c, rows, type_, columns.shape, watch))
            continue
        validity = _bits(found, segments, COLUMNS + SLOTS * c, VALIDITY, rows) if nulls[c] else None
        arrays.append(pa.Array.from_buffers(type_, rows, [validity, memory.slice(ends[n], rows * width)]))
        n += 1
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=columns.schema)


def sliceable(found: Found, segments: Matrix, least: int) -> npt.NDArray[np.bool_]:
    """A mask of the segments that are long enough to be returned as slices and lie in order."""
    slices: npt.NDArray[np.bool_] = (segments[:, 2] >= least) & (found.pieces[segments[:, 0], PERM] == 0)
    return slices


def _column(found: Found, segments: Matrix, c: int, rows: int, type_: pa.DataType, shape: Shape, watch: Watch) -> pa.Array:
    kind, width = shape.kinds[c], shape.widths[c]
    pieces, slot = found.pieces, COLUMNS + SLOTS * c
    if kind == OTHER:
        return _arrow_column(found, segments, c, type_, watch)
    validity = _bits(found, segments, slot, VALIDITY, rows) if found.nulls()[c] else None
    if kind == BITS:
        return pa.Array.from_buffers(type_, rows, [validity, _bits(found, segments, slot, VALUES, rows)])
    if kind == FIXED:
        watch.take(rows * width)
        out = pa.allocate_buffer(rows * width)
        k.copy_wide(pieces, segments, slot, width, np.frombuffer(out, np.uint8))
        return pa.Array.from_buffers(type_, rows, [validity, out])
    wide = kind == VAR64
    watch.take((8 if wide else 4) * (rows + 1))
    ends = pa.allocate_buffer((8 if wide else 4) * (rows + 1))
    total = texts.copy_ends(pieces, segments, slot, int(wide), ends.address)
    if total > _MOST_BYTES and not wide:
        raise TooLongError
    watch.take(total)
    data = pa.allocate_buffer(total)
    texts.copy_bytes(pieces, segments, slot, int(wide), np.frombuffer(data, np.uint8))
    return pa.Array.from_buffers(type_, rows, [validity, ends, data])


class TooLongError(Exception):
    """A copied text column would exceed 32-bit offsets: copy fewer rows at a time."""


def _bits(found: Found, segments: Matrix, slot: int, which: int, rows: int) -> pa.Buffer:
    flags = np.empty(rows, np.uint8)
    k.copy_bits(found.pieces, segments, slot, which, flags)
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _arrow_column(found: Found, segments: Matrix, c: int, type_: pa.DataType, watch: Watch) -> pa.Array:
    """Types that kernels do not know are left to Arrow, segment by segment."""
    parts = []
    for n, (piece, first, length, _) in enumerate(segments.tolist()):
        if n % 1024 == 1023:
            watch.check()
        array = found.holder(piece).batch.column(c)
        perm = int(found.pieces[piece, PERM])
        if perm:
            numbers = np.empty(length, np.uint32)
            k.row_numbers(perm, first, numbers)
            parts.append(take(array, numbers))
        else:
            parts.append(array.slice(first, length))
    watch.take(sum(part.nbytes for part in parts))
    if pa.types.is_dictionary(type_):
        parts = pa.chunked_array(parts, type_).unify_dictionaries().chunks
    return pa.concat_arrays(parts) if parts else pa.nulls(0, type_)  # `array` does not take every type
