"""A chunk on storage that is not a local disk: only its frame and the leaves that a query touches are fetched.

How a query reads it, in two steps, each of which asks the cache first:
  1. `probe`  template, zone maps and masks choose leaves from the frame; only those that the query cuts (not wholly
              inside or outside its key and time interval) have their key and time codes fetched, and are scanned.
  2. `load`   the leaves that the found segments lie in, in the columns that the query reads, become a piece in memory.

Checksums cover blocks of 16,384 rows of a column, so bytes come in blocks and are verified before anything looks at
them; the cache keeps and drops them leaf by leaf. A request costs a round trip, so reading a block (128 KB of int64)
instead of a leaf (4 KB) costs little, while keeping it whole would cost the memory of 32 leaves. A leaf that two blocks
share is kept as two fragments. Columns of types that only Arrow knows are one block, fetched and kept whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from tidewheel.chunk.cache import Group, Key, LeafCache, Sized, Units
from tidewheel.chunk.format import (
    Array,
    Leaves,
    code_columns,
    coordinate_zones,
    damaged_block,
    damaged_frame,
    first_generation,
    generation_column,
    has_generations,
)
from tidewheel.chunk.frame import Bytes, Frame, check_block, check_other, cut, read_frame
from tidewheel.env.store import Range, RangeReader, remove_with
from tidewheel.errors import CorruptionError
from tidewheel.model import pieces as p
from tidewheel.model.codes import Codes, KeyCoder, fixed
from tidewheel.model.pieces import OTHER, Loaded, Row, Scannable, Shape
from tidewheel.model.records import ChunkRecord
from tidewheel.model.schema import TableSpec

FRAME = -1
"""In place of a column: the unit is the frame."""

OVERHEAD = 768
"""Bytes that a unit takes besides its buffers: the array, its buffers' owners, its place in the cache."""


class RemoteChunk:
    """One chunk of a table. Shared by all versions that contain it; safe to use from several threads.

    It holds nothing but its catalog row: `row` never gets addresses, since what they would point to may be dropped from the
    cache. Rows handed out were verified, each time they were fetched.
    """

    __slots__ = ("__weakref__", "_cache", "_files", "_spec", "coder", "record", "row")

    def __init__(self, record: ChunkRecord, spec: TableSpec, shape: Shape, coder: KeyCoder, files: RangeReader, cache: LeafCache) -> None:
        self.record = record
        self.coder = coder
        self._spec = spec
        self._files = files
        self._cache = cache
        row: Row = np.zeros(shape.width, np.int64)
        row[p.ROWS], row[p.CODER] = record.rows, coder.number
        row[p.GENERATION_LO], row[p.GENERATION_HI] = first_generation(record), record.generation_hi
        row[p.KMIN], row[p.KMAX], row[p.TMIN], row[p.TMAX] = record.key_lo, record.key_hi, record.time_lo, record.time_hi
        self.row = row

    # ---- the face of every chunk ------------------------------------------------------------------------

    mapped = None
    can_be_mapped = False
    most = 0

    @property
    def region(self) -> Row:
        """The descriptor, which never has addresses."""
        return self.row

    @property
    def leaves(self) -> Leaves:
        return self.frame().leaves

    def enter(self, shared: Row | None = None, displace: bool = True) -> None:
        """Never mapped."""

    def far(self) -> RemoteChunk:
        return self

    def open(self) -> Row:
        """Fetch and check the frame, if it is not in the cache."""
        self.frame()
        return self.row

    @property
    def batch(self) -> pa.RecordBatch:
        """The table's columns, all rows: fetches the whole file."""
        whole = np.array([0]), np.array([self.record.rows])
        return self.load(self.row, *whole, range(len(self._spec.stored))).batch

    def codes(self) -> Codes:
        """Key codes of all rows, in leaf order."""
        return self._whole(code_columns(self._spec)[0])

    def times(self) -> Codes:
        return self._whole(code_columns(self._spec)[1])

    def row_generations(self) -> Array | None:
        """The generation of each row, less the first; None if all rows came with the last."""
        return self._whole(generation_column(self._spec)) if has_generations(self.record) else None

    def verify(self, column: int, block: int) -> None:
        """Fetch one block of a stored column and check it, whatever the cache holds."""
        frame = self.frame()
        self._fetch(frame, [(self.record.id, column, 0 if frame.places[column].kind == OTHER else block)])

    def verify_column(self, column: int) -> bool:
        """Does nothing: this chunk is not mapped."""
        return False

    def condemn(self) -> None:
        """The chunk left its table: delete the file as soon as no version holds this chunk any more."""
        remove_with(self, self._files.remove, self.record.file)

    # ---- for the read path ------------------------------------------------------------------------------

    def frame(self) -> Frame:
        frame: Frame = self._cache.get_or_load(((self.record.id, FRAME, 0), 0), self._read_frame)
        return frame

    def probe(self, asked: Row, klo: Codes, khi: Codes, mode: int, lost: Array | None = None) -> Scannable:
        """Complete a query's copy of `row` so that the scan kernel can walk it.

        klo, khi are the key intervals under this chunk's coder; mode says which rows are checked by value later. `lost`
        marks leaves that cannot be read: nothing of them is fetched or looked at.
        """
        frame = self.frame()
        leaves = frame.leaves if lost is None else frame.leaves.without(lost)
        cut_by_key, cut_by_time = cut(leaves, klo, khi, mode, int(asked[p.T0]), int(asked[p.T1]))
        chosen = (np.flatnonzero(cut_by_key[frame.leaf_of]), np.flatnonzero(cut_by_time[frame.leaf_of]))
        wants = list(zip(code_columns(self._spec), chosen, strict=True))
        keys, times = (_spread(frame, c, which, arrays) for (c, which), arrays in zip(wants, self._units(frame, wants), strict=True))
        row = asked.copy()
        row[p.KEYS], row[p.TIMES] = keys[0], times[0]
        row[p.LEAVES], row[p.STARTS], row[p.BOUNDS] = leaves.count, leaves.starts.ctypes.data, leaves.bounds.ctypes.data
        row[p.ZONES], row[p.ORDERED] = leaves.zones.ctypes.data, leaves.ordered.ctypes.data
        row[p.MASKS], row[p.MASK_START], row[p.MASK_WIDTH] = leaves.masks.ctypes.data, leaves.mask_start, leaves.mask_width
        row[p.MORE_ZONES] = coordinate_zones(leaves, frame.header, self._spec)
        row[p.OPEN] = 1
        return Scannable(row, (frame, leaves, keys[1], times[1]))

    def with_generations(self, probe: Scannable, positions: Codes, lengths: Codes) -> Scannable:
        """The same, with the generations of the rows in these segments, and in their leaves."""
        frame, column = self.frame(), generation_column(self._spec)
        chosen = _fragments(frame, *_span(frame.edges, positions, lengths))
        (arrays,) = self._units(frame, [(column, chosen)])
        address, keep = _spread(frame, column, chosen, arrays)
        row = probe.row.copy()
        row[p.GENERATIONS], row[p.GENERATION_WIDTH] = address, frame.places[column].width
        return Scannable(row, (*probe.keep, keep))

    def reach(self, positions: Codes, lengths: Codes) -> tuple[Codes, Codes]:
        """The rows [lo, hi) that are loaded for each segment: whole leaves."""
        edges = self.frame().edges
        first, last = _span(edges, positions, lengths)
        return edges[first], edges[last + 1]

    def load(self, asked: Row, positions: Codes, lengths: Codes, columns: Sequence[int]) -> Loaded:
        """The leaves that these segments lie in, one after the other, as a piece of its own. Segments may come in any order."""
        frame = self.frame()
        first, last = _span(frame.edges, positions, lengths)
        chosen = _fragments(frame, first, last)
        sizes = frame.edges[chosen + 1] - frame.edges[chosen]
        starts = np.cumsum(sizes) - sizes
        rows = int(sizes.sum())

        units = self._units(frame, [(c, chosen) for c in columns])
        arrays = {c: _join(parts, frame.places[c].type) for c, parts in zip(columns, units, strict=True)}
        row = asked.copy()
        row[p.ROWS] = rows
        self._describe(row, arrays, frame)
        return Loaded(row, self._batch(arrays, rows), positions - frame.edges[first] + starts[np.searchsorted(chosen, first)])

    # ---- fetching ---------------------------------------------------------------------------------------

    def _read_frame(self) -> Sized:
        record = self.record
        try:
            head, tail = self._files.read_ranges(record.file, [(0, record.body_lo), (record.body_hi, record.bytes - record.body_hi)])
            if xxhash.xxh3_64_intdigest(tail, xxhash.xxh3_64_intdigest(head)) != record.frame:
                raise damaged_frame(record.file, self._where())
            frame = read_frame(head, tail, self._spec, record, self._where())
        except CorruptionError as e:
            e.file = record.file
            raise
        return frame, frame.nbytes + OVERHEAD

    def _read(self, ranges: Sequence[Range]) -> list[memoryview]:
        try:
            return self._files.read_ranges(self.record.file, ranges)
        except CorruptionError as e:
            e.file = self.record.file
            raise

    def _units(self, frame: Frame, wants: Sequence[tuple[int, Array]]) -> list[list[pa.Array]]:
        """For each (column, fragments): the arrays, one per fragment, from the cache or fetched together."""
        blocks = frame.edges // frame.header.block_rows
        keys: list[Key] = []
        for column, which in wants:
            if frame.places[column].kind == OTHER:
                keys.append(((self.record.id, column, 0), 0))
            else:
                groups = {b: (self.record.id, column, b) for b in np.unique(blocks[which]).tolist()}
                keys += [(groups[b], f) for b, f in zip(blocks[which].tolist(), which.tolist(), strict=True)]
        found = iter(self._cache.get(keys, lambda missing: self._fetch(frame, missing)) if keys else ())
        arrays: list[list[pa.Array]] = []
        for column, which in wants:
            if frame.places[column].kind == OTHER:
                arrays.append(_runs(next(found), frame.edges, which))
            else:
                arrays.append([next(found) for _ in which])
        return arrays

    def _fetch(self, frame: Frame, groups: list[Group]) -> Mapping[Group, Units]:
        """Read blocks, verify them, and cut them into leaves. Texts take a second round: their offsets say where they lie."""
        plain = [g for g in groups if frame.places[g[1]].kind != OTHER]
        first: list[Range] = [r for _, c, b in plain for r in frame.places[c].rows(*frame.block(b))]
        whole = {g: frame.missing(g[1]) for g in groups if frame.places[g[1]].kind == OTHER}
        read = self._read(first + [r for ranges in whole.values() for r in ranges])
        loaded: dict[Group, Units] = {}
        at = len(first)
        for group, ranges in whole.items():
            parts: list[tuple[int, Bytes]] = [(r[0], data) for r, data in zip(ranges, read[at:], strict=False)]
            at += len(ranges)
            loaded[group] = {0: self._other(frame, group, parts)}
        second: list[Range] = []
        for n, (_, c, b) in enumerate(plain):
            try:
                second.append(frame.places[c].texts(read[2 * n + 1]))
            except ValueError as e:
                raise self._damaged(frame, c, b) from e
        for n, (group, data) in enumerate(zip(plain, self._read(second), strict=True)):
            loaded[group] = self._cut(frame, group, (read[2 * n], read[2 * n + 1], data))
        return loaded

    def _cut(self, frame: Frame, group: Group, parts: tuple[Bytes, Bytes, Bytes]) -> Units:
        _, column, block = group
        if not check_block(frame, column, block, parts):
            raise self._damaged(frame, column, block)
        lo, hi = frame.block(block)
        array = frame.places[column].array(hi - lo, *parts)
        units: dict[int, Sized] = {}
        for f in frame.fragments(lo, hi):
            a, b = int(frame.edges[f]), int(frame.edges[f + 1])
            unit = pa.concat_arrays([array.slice(a - lo, b - a)])  # a copy: a slice would keep the whole block in memory
            units[f] = unit, unit.get_total_buffer_size() + OVERHEAD
        return units

    def _other(self, frame: Frame, group: Group, parts: list[tuple[int, Bytes]]) -> Sized:
        array = frame.other(group[1], parts)
        if not check_other(frame, group[1], array):
            raise self._damaged(frame, group[1], 0)
        return array, sum(len(data) for _, data in (*parts, *frame.ends)) + OVERHEAD

    # ---- assembling -------------------------------------------------------------------------------------

    def _batch(self, arrays: Mapping[int, pa.Array], rows: int) -> pa.RecordBatch:
        schema = self._spec.stored
        if len(arrays) < len(schema):
            fields = [f if c in arrays else pa.field(f.name, pa.null()) for c, f in enumerate(schema)]
            schema = pa.schema(fields, schema.metadata)
        none = pa.nulls(rows)
        return pa.RecordBatch.from_arrays([arrays.get(c, none) for c in range(len(schema))], schema=schema)

    @staticmethod
    def _describe(row: Row, arrays: Mapping[int, pa.Array], frame: Frame) -> None:
        """Fill in the slots of the columns that are there; these arrays start at offset 0."""
        for c, array in arrays.items():
            if frame.places[c].kind != OTHER:
                slot = p.COLUMNS + p.SLOTS * c
                buffers = [0 if b is None else b.address for b in array.buffers()]
                row[slot + p.VALIDITY] = buffers[0] if array.null_count else 0
                row[slot + p.BIT_OFFSET], row[slot + p.VALUES] = array.offset, buffers[1]
                row[slot + p.DATA] = buffers[2] if len(buffers) > 2 else 0

    def _whole(self, column: int) -> Array:
        frame = self.frame()
        (arrays,) = self._units(frame, [(column, np.arange(len(frame.leaf_of)))])
        return fixed(_join(arrays, frame.places[column].type), _dtype(frame, column))

    def _damaged(self, frame: Frame, column: int, block: int) -> CorruptionError:
        place = frame.places[column]
        rows = None if place.kind == OTHER else frame.block(block)
        return damaged_block(self.record.file, self._where(), place.name, block, rows)

    def _where(self) -> str:
        return f"{self._files.root}/{self.record.file}"


def _span(edges: Array, positions: Codes, lengths: Codes) -> tuple[Codes, Codes]:
    """The first and the last fragment of each segment; segments have at least one row."""
    return np.searchsorted(edges, positions, side="right") - 1, np.searchsorted(edges, positions + lengths - 1, side="right") - 1


def _fragments(frame: Frame, first: Array, last: Array) -> Array:
    """All that lie in one of the spans, in rising order."""
    marks = np.zeros(len(frame.edges), np.int64)
    np.add.at(marks, first, 1)
    np.add.at(marks, last + 1, -1)
    return np.flatnonzero(np.cumsum(marks) > 0)


def _dtype(frame: Frame, column: int) -> Any:
    """Of codes and generations: all are stored as integers."""
    type_ = frame.places[column].type
    return np.dtype(type_.to_pandas_dtype()) if pa.types.is_unsigned_integer(type_) else np.dtype(np.int64)


def _spread(frame: Frame, column: int, which: Array, arrays: list[pa.Array]) -> tuple[int, Any]:
    """Numbers where they stand in the chunk: (address of row 0, what keeps it alive). Other rows are not there; nobody looks at them."""
    if not len(which):
        return 0, None
    first = int(frame.edges[which[0]])
    dtype = _dtype(frame, column)
    out = np.empty(int(frame.edges[which[-1] + 1]) - first, dtype)
    for at, array in zip((frame.edges[which] - first).tolist(), arrays, strict=True):
        out[at : at + len(array)] = fixed(array, dtype)
    return out.ctypes.data - out.itemsize * first, out


def _runs(array: pa.Array, edges: Array, which: Array) -> list[pa.Array]:
    """The rows of these fragments of a whole column, adjoining ones in one slice."""
    breaks = np.flatnonzero(np.diff(which) != 1) + 1
    return [array.slice(int(edges[run[0]]), int(edges[run[-1] + 1] - edges[run[0]])) for run in np.split(which, breaks) if len(run)]


def _join(arrays: list[pa.Array], type_: pa.DataType) -> pa.Array:
    if not arrays:
        return pa.array([], type_)
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
