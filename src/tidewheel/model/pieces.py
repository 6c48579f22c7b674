"""A piece is what the read path scans: one run of a tree or one chunk, both in leaf order.

Each piece is described by one row of int64: sizes, region and the addresses of its arrays and column buffers. A kernel
walks a matrix of such rows, so one call spans all runs and chunks of a query. The object behind a row (its `holder`)
keeps the memory alive; whoever uses a row holds on to the version it came from.

Positions are counted in leaf order. Without a permutation (chunks, small runs) position and row number are the same.
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import BadRowsError
from tidewheel.model.dataclass import dataclass
from tidewheel.model.loading import later
from tidewheel.model.schema import TableSpec

kernels = later("tidewheel.model.kernels")

(
    ROWS,  # positions in the piece
    OPEN,  # not 0 when the addresses below are filled in; of a chunk, the number of the mapping that they belong to
    CODER,  # the number of the coder that made its key codes; filled in by a query: which row of its key intervals is for it
    GENERATION_HI,  # the last generation that rows of it came with
    KMIN, KMAX, TMIN, TMAX,  # region, in codes
    KEYS, TIMES,  # int64 codes by row number
    LEAVES,  # how many leaves
    STARTS,  # uint32[leaves + 1]: first position of each leaf
    BOUNDS,  # int64[leaves]: lower key bound of each leaf; the first is the least int64; equal bounds: one leaf cut by time
    PERM,  # uint32[rows]: row number by position, or 0
    ZONES,  # int64[4, leaves]: least and greatest key, least and greatest time of each leaf, or 0
    MORE_ZONES,  # int64[z, 2, leaves]: least and greatest code of each coordinate of a z-order key in each leaf, or 0
    ORDERED,  # uint8[leaves]: leaf is in time order; 0: no leaf, 1: all leaves are
    MASKS, MASK_START, MASK_WIDTH,  # uint64[leaves]: which of at most 64 mini-ranges of the piece's time a leaf has rows in, or 0
    VERIFIED, BLOCKS,  # uint8[columns, blocks]: checksum verified; blocks per column (0: nothing to verify)
    GENERATION_LO,  # the first generation that rows of it came with
    GENERATIONS, GENERATION_WIDTH,  # unsigned, by row number: the row's generation less the first; bytes of each. 0: all rows have the same
    SOURCE, INDEX,  # filled in by a query: which matrix, which row of it
    T0, T1,  # filled in by a query: the time interval asked of this piece
    COLUMNS,  # from here on, SLOTS numbers per column
) = range(30)  # fmt: skip

VALIDITY, BIT_OFFSET, VALUES, DATA, SLOTS = range(5)
"""Per column: address of the validity bits (0: no nulls), offset in bits, address of values or offsets, address of bytes."""

BLOCK_ROWS = 1 << 14
"""Rows per checksummed block of a column."""

FIXED, BITS, VAR32, VAR64, OTHER = range(5)
"""How kernels see a column: fixed width, one bit, bytes with 32 or 64 bit offsets; OTHER is left to Arrow."""

Row = npt.NDArray[np.int64]


class Holder(Protocol):
    """The object behind a piece: a run or a chunk."""

    @property
    def batch(self) -> pa.RecordBatch: ...


@dataclass(frozen=True, slots=True)
class Scannable:
    """A descriptor that can be scanned. Keys and times are there only for the leaves that the query cuts."""

    row: Row
    keep: tuple[Any, ...]
    """Hold on to this while the row is in use."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Some leaves of a chunk, in memory, as a piece that can be materialised."""

    row: Row
    batch: pa.RecordBatch
    """The table's columns; those that were not asked for are of type null."""
    positions: Row
    """Where the segments lie in it."""


def column_kind(type_: pa.DataType) -> tuple[int, int]:
    """(kind, bytes per value) of a column of this type."""
    t = pa.types
    if t.is_boolean(type_):
        return BITS, 0
    if t.is_string(type_) or t.is_binary(type_):
        return VAR32, 4
    if t.is_large_string(type_) or t.is_large_binary(type_):
        return VAR64, 8
    if t.is_fixed_size_binary(type_):
        return FIXED, type_.byte_width
    if t.is_primitive(type_) or t.is_decimal(type_):
        return FIXED, type_.bit_width // 8
    return OTHER, 0


class Shape:
    """The columns of a table as kernels see them, worked out once."""

    __slots__ = ("_kinds", "_widths", "key_slot", "kinds", "row_bytes", "time_column", "time_slot", "width", "widths")

    def __init__(self, spec: TableSpec) -> None:
        pairs = [column_kind(f.type) for f in spec.stored]
        self.key_slot = COLUMNS + SLOTS * spec.direct_key + VALUES if spec.direct_key >= 0 else 0
        """Where a descriptor has the address of key codes that are a column, or 0; the same for times."""
        self.time_slot = COLUMNS + SLOTS * spec.direct_time + VALUES if spec.direct_time >= 0 else 0
        self.time_column: str = spec.time.column
        self.kinds = tuple(k for k, _ in pairs)
        self.widths = tuple(w for _, w in pairs)
        self._kinds = np.array(self.kinds, np.int64)
        self._widths = np.array(self.widths, np.int64)
        self.width = COLUMNS + SLOTS * len(pairs)
        fixed = all(k == FIXED for k in self.kinds)
        self.row_bytes = sum(self.widths) if fixed else 0
        """Bytes of a row where every row has the same, else 0."""

    def bytes_of(self, batch: pa.RecordBatch) -> int:
        return self.row_bytes * batch.num_rows if self.row_bytes else int(batch.nbytes)

    def describe(self, batch: pa.RecordBatch, row: Row) -> None:
        """Fill the column slots of a descriptor row with the addresses of a batch's buffers.

        Through Arrow's C data interface: asking pyarrow column by column costs more than indexing a thousand rows.
        """
        capsule = batch.__arrow_c_array__()[1]
        astray = kernels.column_slots(address_of(capsule, b"arrow_array"), self._kinds, self._widths, row[COLUMNS:])
        if astray >= 0:  # what Arrow's own validation does not look at
            name = batch.schema.field(astray).name
            raise BadRowsError(f"column {name!r} is not valid Arrow data: it starts before its buffers; nothing was inserted", column=name)


address_of = ctypes.pythonapi.PyCapsule_GetPointer
"""The address that a capsule of this name holds."""
address_of.restype = ctypes.c_ssize_t
address_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
