"""Read a chunk: mapped on first use, its frame checked before it is parsed, each block verified when it is first touched."""

from __future__ import annotations

import base64
import threading
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.chunk.format import (
    HEADER_KEY,
    INDEX_KEY,
    Header,
    Leaves,
    check_columns,
    check_header,
    code_columns,
    damaged_block,
    damaged_frame,
    first_generation,
    generation_column,
    has_generations,
    is_intact,
    unpack_index,
)  # fmt: skip
from tidewheel.chunk.writer import frame_checksum
from tidewheel.env.files import remove_with
from tidewheel.errors import CorruptionError
from tidewheel.model.codes import Codes, KeyCoder, fixed
from tidewheel.model.pieces import (
    BLOCK_ROWS,
    BLOCKS,
    BOUNDS,
    CODER,
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
    OPEN,
    ORDERED,
    OTHER,
    ROWS,
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


class Mapper(Protocol):
    @property
    def root(self) -> object: ...
    def map(self, name: str, size: int) -> pa.Buffer: ...
    def remove(self, name: str) -> None: ...


class Chunk:
    """One chunk of a table. Shared by all versions that contain it; safe to use from several threads.

    `row` describes it to kernels: the region at once, addresses after `open`.
    """

    __slots__ = (
        "__weakref__",
        "_batch",
        "_checksums",
        "_codes",
        "_files",
        "_keep",
        "_lock",
        "_shape",
        "_spec",
        "_verified",
        "coder",
        "header",
        "leaves",
        "record",
        "row",
    )

    def __init__(self, record: ChunkRecord, spec: TableSpec, shape: Shape, coder: KeyCoder, files: Mapper) -> None:
        self.record = record
        self.coder = coder
        self._spec = spec
        self._shape = shape
        self._files = files
        self._lock = threading.Lock()
        self._batch: pa.RecordBatch | None = None
        self.header: Header | None = None
        self.leaves: Leaves | None = None
        row: Row = np.zeros(shape.width, np.int64)
        row[ROWS], row[CODER] = record.rows, coder.number
        row[GENERATION_LO], row[GENERATION_HI] = first_generation(record), record.generation_hi
        row[KMIN], row[KMAX], row[TMIN], row[TMAX] = record.key_lo, record.key_hi, record.time_lo, record.time_hi
        self.row = row

    @property
    def batch(self) -> pa.RecordBatch:
        """The table's columns, in leaf order. Not verified: see `verify`."""
        if self._batch is None:
            self.open()
        return self._batch

    def open(self) -> Row:
        """Map the file and complete `row`. Does nothing the second time."""
        with self._lock:
            if self._batch is None:
                try:
                    self._open()
                except CorruptionError as e:
                    e.file = self.record.file
                    raise
        return self.row

    def _open(self) -> None:
        record = self.record
        whole = self._files.map(record.file, record.bytes)
        if frame_checksum(whole, record.body_lo, record.body_hi) != record.frame:
            raise damaged_frame(record.file, self._where())
        stored = pa.ipc.open_file(whole).get_batch(0)
        meta = stored.schema.metadata
        header = Header.from_json(meta[HEADER_KEY], self._where())
        check_columns(stored.schema, self._spec, record, self._where())
        check_header(header, record, self._spec, stored.num_rows, self._where())
        leaves, checksums = unpack_index(base64.b64decode(meta[INDEX_KEY]), header, stored.num_columns, self._where())
        # not from_arrays, which looks at offsets: nothing of the body may be looked at before it is verified
        batch = stored.select(list(range(len(self._spec.schema)))).replace_schema_metadata(self._spec.schema.metadata)
        key, time = code_columns(self._spec)
        keys, times = fixed(stored.column(key), np.int64), fixed(stored.column(time), np.int64)
        verified = np.zeros((stored.num_columns, header.blocks), np.uint8)
        generations = _generations(stored.columns[-1]) if has_generations(record) else None

        row = self.row
        self._shape.describe(batch, row)
        row[KEYS], row[TIMES] = keys.ctypes.data, times.ctypes.data
        row[LEAVES], row[STARTS], row[BOUNDS] = leaves.count, leaves.starts.ctypes.data, leaves.bounds.ctypes.data
        row[ZONES], row[ORDERED] = leaves.zones.ctypes.data, leaves.ordered.ctypes.data
        row[MASKS], row[MASK_START], row[MASK_WIDTH] = leaves.masks.ctypes.data, leaves.mask_start, leaves.mask_width
        row[VERIFIED], row[BLOCKS] = verified.ctypes.data, header.blocks
        if generations is not None:
            row[GENERATIONS], row[GENERATION_WIDTH] = generations.ctypes.data, generations.itemsize
        self.header, self.leaves = header, leaves
        self._keep, self._verified, self._checksums, self._codes = stored, verified, checksums, (keys, times)
        row[OPEN] = 1
        self._batch = batch  # last: an interrupt before this line means that all of it is done again

    def verify(self, column: int, block: int) -> None:
        """Check one block of a stored column against its checksum, unless that was done before."""
        if self._verified[column, block]:
            return
        array = self._keep.column(column)
        other = column_kind(array.type)[0] == OTHER
        if other:
            block = 0  # a column of such a type is one block
        if not is_intact(array, block, int(self._checksums[column, block])):
            name, first = self._keep.schema.field(column).name, block * BLOCK_ROWS
            rows = None if other else (first, min(first + BLOCK_ROWS, self.record.rows))
            raise damaged_block(self.record.file, self._where(), name, block, rows)
        self._verified[column, slice(None) if other else block] = 1

    def codes(self) -> Codes:
        """Key codes of all rows, in leaf order."""
        self.open()
        return self._codes[0]

    def times(self) -> Codes:
        self.open()
        return self._codes[1]

    def row_generations(self) -> npt.NDArray[Any] | None:
        """The generation of each row, less the first; None if all rows came with the last. Verified."""
        self.open()
        if not has_generations(self.record):
            return None
        for block in range(self._verified.shape[1]):
            self.verify(generation_column(self._spec), block)
        return _generations(self._keep.columns[-1])

    def condemn(self) -> None:
        """The chunk left its table: delete the file as soon as no version holds this chunk any more."""
        remove_with(self, self._files.remove, self.record.file)

    def _where(self) -> str:
        return f"{self._files.root}/{self.record.file}"


def _generations(column: pa.Array) -> npt.NDArray[Any]:
    return fixed(column, column.type.to_pandas_dtype())
