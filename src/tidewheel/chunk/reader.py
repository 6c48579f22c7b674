"""Read a chunk: mapped on first use, its frame checked before it is parsed, each block verified when it is first touched.

A mapping may be let go of when others need the room (`chunk.mappings`), and be made again. An address is good for as long as somebody
holds the `Mapped` that it came from. Descriptor rows are copied around without locks, so each says which mapping its addresses belong to
(OPEN is its number, which is never given again); a query takes the chunk's `mapped` and uses a row's addresses only if they are of it.
Where there is no room for a mapping, `far` reads the same file by range.
"""

from __future__ import annotations

import base64
import itertools
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.chunk.blocks import Blocks
from tidewheel.chunk.cache import LeafCache
from tidewheel.chunk.format import (
    HEADER_KEY,
    INDEX_KEY,
    Header,
    Leaves,
    check_columns,
    check_header,
    code_columns,
    coordinate_zones,
    damaged_block,
    damaged_frame,
    first_generation,
    generation_column,
    has_generations,
    is_intact,
    unpack_index,
)  # fmt: skip
from tidewheel.chunk.mappings import MAPPINGS, Beyond
from tidewheel.chunk.remote_chunk import RemoteChunk
from tidewheel.chunk.writer import frame_checksum
from tidewheel.env.memory import mappings_for_chunks
from tidewheel.env.store import Mapper, NoMappingError, remove_with
from tidewheel.errors import CorruptionError
from tidewheel.model.codes import Codes, KeyCoder, fixed
from tidewheel.model.pieces import (
    BLOCK_ROWS,
    BLOCKS,
    BOUNDS,
    CODER,
    COLUMNS,
    GENERATION_HI,
    GENERATION_LO,
    GENERATION_WIDTH,
    GENERATIONS,
    KEYS,
    KMAX,
    KMIN,
    LEAVES,
    MASK_START,
    MASK_WIDTH,
    MASKS,
    MORE_ZONES,
    OPEN,
    ORDERED,
    OTHER,
    ROWS,
    SOURCE,
    STARTS,
    TIMES,
    TMAX,
    TMIN,
    VERIFIED,
    ZONES,
    Row,
    Shape,
    column_kind,
)  # fmt: skip
from tidewheel.model.records import ChunkRecord
from tidewheel.model.schema import TableSpec
from tidewheel.settings import Settings


@dataclass(eq=False, slots=True, weakref_slot=True)
class Mapped:
    """One mapping of a chunk, and all that was made of it. Whoever holds it may use its addresses."""

    record: ChunkRecord
    row: Row
    """The whole descriptor; OPEN is the number of this mapping."""
    batch: pa.RecordBatch
    """The table's columns, in leaf order. Not verified: see `Chunk.verify`."""
    stored: pa.RecordBatch
    """All stored columns."""
    header: Header
    leaves: Leaves
    checksums: npt.NDArray[np.uint64]
    codes: Codes
    times: Codes
    number: int
    """Its own, for ever."""
    blocks: dict[int, Blocks] = field(default_factory=dict)
    """By stored column, those of which some were verified."""
    used: bool = True
    """Since the chunk was last asked to let go of it."""


class Chunk:
    """One chunk of a table. Shared by all versions that contain it; safe to use from several threads."""

    __slots__ = (
        "__weakref__",
        "_beyond",
        "_files",
        "_last",
        "_lock",
        "_region",
        "_shape",
        "_spec",
        "_verified",
        "coder",
        "mapped",
        "record",
    )

    def __init__(self, record: ChunkRecord, spec: TableSpec, shape: Shape, coder: KeyCoder, files: Mapper, beyond: Beyond) -> None:
        self.record = record
        self.coder = coder
        self.mapped: Mapped | None = None
        """The mapping, while there is one. Take it once and look at what was taken: it may be gone a moment later."""
        self._last: weakref.ref[Mapped] | None = None
        """The mapping that there was last; as long as somebody reads from it, it need not be made again."""
        self._spec = spec
        self._shape = shape
        self._files = files
        self._beyond = beyond
        self._lock = threading.Lock()
        self._verified: npt.NDArray[np.uint8] | None = None
        """Stays when a mapping goes: rows of queries under way point to it."""
        row: Row = np.zeros(shape.width, np.int64)
        row[ROWS], row[CODER] = record.rows, coder.number
        row[GENERATION_LO], row[GENERATION_HI] = first_generation(record), record.generation_hi
        row[KMIN], row[KMAX], row[TMIN], row[TMAX] = record.key_lo, record.key_hi, record.time_lo, record.time_hi
        self._region = row

    can_be_mapped = True

    @property
    def row(self) -> Row:
        """Describes it to kernels: the region, and the addresses while it is mapped."""
        mapped = self.mapped
        return self._region if mapped is None else mapped.row

    @property
    def most(self) -> int:
        """Chunks that the process may have mapped."""
        return self._beyond.most

    @property
    def region(self) -> Row:
        """The descriptor without addresses."""
        return self._region

    @property
    def batch(self) -> pa.RecordBatch:
        """The table's columns, in leaf order. Not verified: see `verify`."""
        mapped = self.enter()
        return self.far().batch if mapped is None else mapped.batch

    @property
    def leaves(self) -> Leaves:
        mapped = self.enter()
        return self.far().frame().leaves if mapped is None else mapped.leaves

    def open(self) -> Row:
        """See to it that it can be read; raises CorruptionError."""
        mapped = self.enter()
        if mapped is None:
            self.far().frame()
        return self.row if mapped is None else mapped.row

    def far(self) -> RemoteChunk:
        """The same chunk, read by range."""
        return RemoteChunk(self.record, self._spec, self._shape, self.coder, self._files, self._beyond.cache)

    def enter(self, shared: Row | None = None, displace: bool = True) -> Mapped | None:
        """The mapping, made if need be; its addresses are then in `shared` too. None: there is no room for it, `far` reads the chunk.

        With `displace`, others may have to make room.
        """
        mapped = self.mapped
        if mapped is None:
            mapped = self._map_again() or self._map(displace)
            if mapped is None:
                return None
        mapped.used = True
        if shared is not None:
            with self._lock:  # rows of one mapping never follow those of a later one
                if self.mapped is mapped:
                    shared[OPEN + 1 : SOURCE] = mapped.row[OPEN + 1 : SOURCE]
                    shared[COLUMNS:] = mapped.row[COLUMNS:]
                    shared[OPEN] = mapped.row[OPEN]  # last: others copy the row at any time, and look at this first
        return mapped

    def _map_again(self) -> Mapped | None:
        with self._lock:
            if self.mapped is None and self._last is not None and (mapped := self._last()) is not None:
                self.mapped = mapped
                again = True
            else:
                mapped, again = self.mapped, False
        if again:
            MAPPINGS.enlist(self)
        return mapped

    def _map(self, displace: bool) -> Mapped | None:
        if not MAPPINGS.take(self._beyond.most, displace):
            return None
        with self._lock:
            mapped = self.mapped
            if mapped is not None:  # somebody was quicker
                MAPPINGS.give_back()
                return mapped
            try:
                mapped = self._parsed(self._mapping())
            except NoMappingError:
                return None
            except CorruptionError as e:
                e.file = self.record.file
                raise
            self._last, self.mapped = weakref.ref(mapped), mapped
        MAPPINGS.enlist(self)
        return mapped

    def _mapping(self) -> pa.Buffer:
        """The file, mapped; the room that was taken for it ends with it, or at once if it cannot be had."""
        try:
            whole = self._files.map(self.record.file, self.record.bytes)
        except BaseException:
            MAPPINGS.give_back()
            raise
        return MAPPINGS.hold(whole)

    def let_go(self) -> bool | None:
        """Give the mapping up, unless it was used since this was last asked (False). None if there is none."""
        taken: list[bool] = []
        try:
            taken.extend(map(self._lock.acquire, (False,)))  # one step of the interpreter: no interrupt between lock and list
            if not taken[0]:
                return False
            mapped = self.mapped
            if mapped is None:
                return None
            if mapped.used:
                mapped.used = False
                return False
            self.mapped = None
            return True
        finally:
            if taken and taken[0]:
                self._lock.release()

    def _parsed(self, whole: pa.Buffer) -> Mapped:
        record = self.record
        if frame_checksum(whole, record.body_lo, record.body_hi) != record.frame:
            raise damaged_frame(record.file, self._where())
        stored = pa.ipc.open_file(whole).get_batch(0)
        meta = stored.schema.metadata
        header = Header.from_json(meta[HEADER_KEY], self._where())
        check_columns(stored.schema, self._spec, record, self._where())
        check_header(header, record, self._spec, stored.num_rows, self._where())
        leaves, checksums = unpack_index(base64.b64decode(meta[INDEX_KEY]), header, stored.num_columns, self._where())
        # not from_arrays, which looks at offsets: nothing of the body may be looked at before it is verified
        batch = stored.select(list(range(len(self._spec.stored)))).replace_schema_metadata(self._spec.schema.metadata)
        key, time = code_columns(self._spec)
        keys, times = fixed(stored.column(key), np.int64), fixed(stored.column(time), np.int64)
        generations = _generations(stored.columns[-1]) if has_generations(record) else None
        if self._verified is None:
            self._verified = np.zeros((stored.num_columns, header.blocks), np.uint8)
        else:
            self._verified[:] = 0  # the file may have been put back meanwhile

        row = self._region.copy()
        self._shape.describe(batch, row)
        row[KEYS], row[TIMES] = keys.ctypes.data, times.ctypes.data
        row[LEAVES], row[STARTS], row[BOUNDS] = leaves.count, leaves.starts.ctypes.data, leaves.bounds.ctypes.data
        row[ZONES], row[ORDERED] = leaves.zones.ctypes.data, leaves.ordered.ctypes.data
        row[MASKS], row[MASK_START], row[MASK_WIDTH] = leaves.masks.ctypes.data, leaves.mask_start, leaves.mask_width
        row[MORE_ZONES] = coordinate_zones(leaves, header, self._spec)
        row[VERIFIED], row[BLOCKS] = self._verified.ctypes.data, header.blocks
        if generations is not None:
            row[GENERATIONS], row[GENERATION_WIDTH] = generations.ctypes.data, generations.itemsize
        row[OPEN] = number = next(_numbers)
        return Mapped(record, row, batch, stored, header, leaves, checksums, keys, times, number)

    def verify(self, column: int, block: int) -> None:
        """Check one block of a stored column against its checksum, unless that was done before."""
        mapped = self.enter()
        if mapped is not None:
            self._verify(mapped, column, block)
            return
        self.far().verify(column, block)
        if self._verified is not None:
            self._verified[column, block] = 1

    def verify_column(self, column: int) -> bool:
        """Check all blocks of a stored column, if the chunk is mapped. Returns whether there is a column behind it.

        Columns of types that kernels do not know are left out: their checksum takes a copy of the whole. Does not count as a use of the
        mapping.
        """
        mapped = self.mapped
        if mapped is None or column >= mapped.stored.num_columns:
            return False
        if column_kind(mapped.stored.schema.field(column).type)[0] != OTHER:
            for block in range(mapped.header.blocks):
                self._verify(mapped, column, block)
        return bool(column + 1 < mapped.stored.num_columns)

    def _verify(self, mapped: Mapped, column: int, block: int) -> None:
        verified = self._verified
        assert verified is not None
        if verified[column, block]:
            return
        blocks = mapped.blocks.get(column)
        if blocks is None:
            blocks = mapped.blocks[column] = Blocks(mapped.stored.column(column))
        other = blocks.kind == OTHER
        if other:
            block = 0  # a column of such a type is one block
        checksum = int(mapped.checksums[column, block])
        if not (is_intact(mapped.stored.column(column), 0, checksum) if other else blocks.checksum(block) == checksum):
            name, first = mapped.stored.schema.field(column).name, block * BLOCK_ROWS
            rows = None if other else (first, min(first + BLOCK_ROWS, self.record.rows))
            raise damaged_block(self.record.file, self._where(), name, block, rows)
        verified[column, slice(None) if other else block] = 1

    def codes(self) -> Codes:
        """Key codes of all rows, in leaf order."""
        mapped = self.enter()
        return self.far().codes() if mapped is None else mapped.codes

    def times(self) -> Codes:
        mapped = self.enter()
        return self.far().times() if mapped is None else mapped.times

    def row_generations(self) -> npt.NDArray[Any] | None:
        """The generation of each row, less the first; None if all rows came with the last. Verified."""
        if not has_generations(self.record):
            return None
        mapped = self.enter()
        if mapped is None:
            return self.far().row_generations()
        for block in range(mapped.header.blocks):
            self.verify(generation_column(self._spec), block)
        return _generations(mapped.stored.columns[-1])

    def condemn(self) -> None:
        """The chunk left its table: delete the file as soon as no version holds this chunk any more."""
        remove_with(self, self._files.remove, self.record.file)

    def _where(self) -> str:
        return f"{self._files.root}/{self.record.file}"


_numbers = itertools.count(1)


def beyond_of(settings: Settings) -> Beyond:
    """What a warehouse or a task of these settings does about chunks that cannot all be mapped."""
    return Beyond(settings.mapped_chunks or mappings_for_chunks(), LeafCache(settings.cache_bytes))


def _generations(column: pa.Array) -> npt.NDArray[Any]:
    return fixed(column, column.type.to_pandas_dtype())
