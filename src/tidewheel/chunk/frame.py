"""Where things lie in a chunk's file, learned from its frame alone. Bytes in, offsets and arrays out; no I/O.

Arrow's own reader parses the frame: head and tail are put where they belong into empty memory of the file's size, which
takes room only where it is written to, and the batch is opened over it without looking at the body. The addresses of
its buffers, less the start of that memory, are their offsets in the file. So every Arrow type is known here, and no
second parser of Arrow's metadata has to be right.
"""

from __future__ import annotations

import base64
import mmap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from tidewheel.chunk.format import (
    HEADER_KEY,
    INDEX_KEY,
    REMEDY,
    Array,
    Header,
    Leaves,
    check_columns,
    check_header,
    is_intact,
    unpack_index,
)
from tidewheel.env.store import Range
from tidewheel.errors import CorruptionError
from tidewheel.model.codes import ALL, TIES, Codes
from tidewheel.model.dataclass import dataclass
from tidewheel.model.pieces import BITS, FIXED, OTHER, column_kind
from tidewheel.model.records import ChunkRecord
from tidewheel.model.schema import TableSpec

Bytes = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Place:
    """Where one stored column lies. Offsets and sizes in bytes; a size of 0: there is no such buffer."""

    name: str
    type: pa.DataType
    kind: int
    width: int
    validity: Range
    """Only if the column has a null in this chunk."""
    values: Range
    """Values, bits, or the offsets of texts."""
    data: Range
    """The bytes of texts."""
    all: tuple[Range, ...]
    """Every buffer, children included."""

    def rows(self, lo: int, hi: int) -> list[Range]:
        """Validity and values of the rows [lo, hi); lo is a multiple of eight."""
        bits = (lo // 8, (hi + 7) // 8 - lo // 8)
        if self.kind == BITS:
            values = bits
        else:
            values = (lo * self.width, (hi - lo + (self.kind != FIXED)) * self.width)
        return [_inside(self.validity, bits) if self.validity[1] else (0, 0), _inside(self.values, values)]

    def texts(self, offsets: Bytes) -> Range:
        """Where the bytes lie that these offsets span."""
        if self.kind in (FIXED, BITS):
            return 0, 0
        ends = self._ends(offsets)
        return _inside(self.data, (int(ends[0]), int(ends[-1]) - int(ends[0]))) if ends[-1] != ends[0] else (0, 0)

    def array(self, rows: int, validity: Bytes, values: Bytes, data: Bytes) -> pa.Array:
        """The block that these bytes hold."""
        nulls = pa.py_buffer(validity) if len(validity) else None
        if self.kind in (FIXED, BITS):
            return pa.Array.from_buffers(self.type, rows, [nulls, pa.py_buffer(values)])
        ends = self._ends(values)
        return pa.Array.from_buffers(self.type, rows, [nulls, pa.py_buffer(ends - ends[0]), pa.py_buffer(data)])

    def _ends(self, offsets: Bytes) -> Array:
        return np.frombuffer(offsets, f"<i{self.width}")


def _inside(buffer: Range, part: Range) -> Range:
    """A part of a buffer, as a range of the file. Raises ValueError if it is not inside."""
    if part[0] < 0 or part[1] < 0 or part[0] + part[1] > buffer[1]:
        raise ValueError(f"bytes {part[0]} to {part[0] + part[1]} of a buffer of {buffer[1]}")
    return buffer[0] + part[0], part[1]


@dataclass(frozen=True, slots=True)
class Frame:
    """What is known of a chunk without its rows: the unit that the paper calls template. Immutable."""

    header: Header
    leaves: Leaves
    checksums: Array
    places: tuple[Place, ...]
    edges: Array
    """Where leaves and blocks begin: rows [edges[f], edges[f + 1]) are fragment f, a leaf cut where its block ends."""
    leaf_of: Array
    """The leaf of each fragment."""
    ends: tuple[tuple[int, Bytes], ...]
    """Head and tail of the file with their offsets; only if a column needs them to be read (dictionaries are in there)."""
    size: int
    """Bytes of the file."""

    @property
    def nbytes(self) -> int:
        known = self.leaves
        arrays = (known.starts, known.bounds, known.zones, known.masks, known.ordered, known.more_zones)
        size = sum(int(a.nbytes) for a in (*arrays, self.checksums, self.edges, self.leaf_of))
        return size + sum(len(data) for _, data in self.ends) + 1024 * (1 + len(self.places))

    def block(self, number: int) -> tuple[int, int]:
        """The rows [lo, hi) of a block."""
        lo = number * self.header.block_rows
        return lo, min(lo + self.header.block_rows, self.header.rows)

    def fragments(self, lo: int, hi: int) -> range:
        """The fragments of the rows [lo, hi), which begin and end with one."""
        first, last = np.searchsorted(self.edges, (lo, hi))
        return range(int(first), int(last))

    def missing(self, column: int) -> list[Range]:
        """The parts of a column that head and tail do not hold already."""
        body_lo, body_hi = len(self.ends[0][1]), self.ends[1][0]
        return [r for r in self.places[column].all if r[0] + r[1] > body_lo and r[0] < body_hi]

    def other(self, column: int, parts: Iterable[tuple[int, Bytes]]) -> pa.Array:
        """A whole column of a type that only Arrow knows, from the bytes of its missing parts."""
        return _open(sparse(self.size, [*self.ends, *parts])).column(column)


def read_frame(head: Bytes, tail: Bytes, spec: TableSpec, record: ChunkRecord, file: str) -> Frame:
    """The frame of a chunk of this table. Head and tail were compared with their checksum before."""
    size = record.bytes
    ends = ((0, head), (size - len(tail), tail))
    whole = sparse(size, ends)
    stored = _open(whole)
    check_columns(stored.schema, spec, record, file)
    meta = stored.schema.metadata
    header = Header.from_json(meta[HEADER_KEY], file)
    check_header(header, record, spec, stored.num_rows, file)
    leaves, checksums = unpack_index(base64.b64decode(meta[INDEX_KEY]), header, stored.num_columns, file)
    starts = leaves.starts.astype(np.int64)
    edges = np.union1d(starts, np.arange(0, header.rows, header.block_rows))
    leaf_of = np.searchsorted(starts, edges[:-1], side="right") - 1
    try:
        places = tuple(_place(name, column, whole) for name, column in zip(stored.schema.names, stored.columns, strict=True))
    except ValueError as e:
        raise CorruptionError(f"chunk {file}: a column lies outside of it ({e}); {REMEDY}") from e
    kept = tuple((at, bytes(data)) for at, data in ends) if any(p.kind == OTHER for p in places) else ()
    return Frame(header, leaves, checksums, places, edges, leaf_of, kept, size)


def sparse(size: int, parts: Iterable[tuple[int, Bytes]]) -> pa.Buffer:
    """Memory of this size with bytes at some offsets; what is not written to costs nothing."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset, data in parts:
        memory[offset : offset + len(data)] = bytes(data)
    return pa.py_buffer(memory)


def check_block(frame: Frame, column: int, block: int, parts: Sequence[Bytes]) -> bool:
    """Whether validity, values and bytes of a block are those that were written (docs/chunk-format.md, Checksums)."""
    validity, values, data = parts
    digest = xxhash.xxh3_64_intdigest(validity) if len(validity) else 0
    digest = xxhash.xxh3_64_intdigest(values, digest)
    if len(data):
        digest = xxhash.xxh3_64_intdigest(data, digest)
    return digest == int(frame.checksums[column, block])


def check_other(frame: Frame, column: int, array: pa.Array) -> bool:
    return is_intact(array, 0, int(frame.checksums[column, 0]))


def cut(leaves: Leaves, klo: Codes, khi: Codes, mode: int, t0: int, t1: int) -> tuple[Array, Array]:
    """Which leaves the scan kernel looks into: at keys, at times. The same tests as in `read.kernels.scan`, for all leaves at
    once; a leaf too many costs a fetch, a leaf too few would be a wrong answer."""
    kmin, kmax, tmin, tmax = leaves.zones
    real = klo <= khi  # coders under which nothing matches are filled up with empty intervals
    klo, khi = klo[real], khi[real]
    if not len(klo):
        return np.zeros(leaves.count, np.bool_), np.zeros(leaves.count, np.bool_)
    at = np.searchsorted(khi, kmin)  # the first interval that does not end before the leaf
    lo, hi = klo[np.minimum(at, len(klo) - 1)], khi[np.minimum(at, len(klo) - 1)]
    inside_time = (tmin >= t0) & (tmax <= t1)
    meets = (at < len(klo)) & (lo <= kmax) & (tmax >= t0) & (tmin <= t1)
    meets &= inside_time | ((leaves.masks & np.uint64(_mini_ranges(leaves.mask_start, leaves.mask_width, t0, t1))) != 0)
    if mode == ALL:
        inside_key = np.ones(leaves.count, np.bool_)
    elif mode == TIES:
        inside_key = (kmin > lo) & (kmax < hi)
    else:
        inside_key = (kmin >= lo) & (kmax <= hi)
    return meets & ~inside_key, meets & ~inside_time


def _mini_ranges(start: int, width: int, t0: int, t1: int) -> int:
    """The bits of the time mini-ranges that [t0, t1] touches."""
    a, b = max(0, (t0 - start) // width), min(63, (t1 - start) // width)
    return ((1 << (b + 1)) - (1 << a)) if 0 <= a <= b else 0


def _open(whole: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.open_file(whole).get_batch(0)


def _place(name: str, column: Any, whole: pa.Buffer) -> Place:
    kind, width = column_kind(column.type)
    ranges = [(0, 0) if b is None or not b.size else (b.address - whole.address, b.size) for b in column.buffers()]
    for offset, size in ranges:
        _inside((0, whole.size), (offset, size))
    plain = kind != OTHER
    return Place(
        name=name, type=column.type, kind=kind, width=width,
        validity=ranges[0] if plain and column.null_count else (0, 0),
        values=ranges[1] if plain else (0, 0),
        data=ranges[2] if plain and len(ranges) > 2 else (0, 0),
        all=tuple(r for r in ranges if r[1]),
    )  # fmt: skip
