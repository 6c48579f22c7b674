"""Whether a chunk's bytes are those that were written: its frame, header, index and blocks, against their checksums and the catalog.

A chunk's bytes and its catalog row go in, findings come out; no I/O. Nothing is trusted before its checksum is right.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidewheel.chunk.format import (
    HEADER_KEY,
    INDEX_KEY,
    READABLE,
    Array,
    Header,
    Leaves,
    block_count,
    is_intact,
    stored_schema,
    unpack_index,
    zoned_columns,
)
from tidewheel.chunk.writer import body_of, frame_checksum
from tidewheel.errors import TidewheelError
from tidewheel.model.pieces import BLOCK_ROWS, OTHER, column_kind
from tidewheel.model.records import ChunkRecord
from tidewheel.model.schema import TableSpec


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a chunk: which part of it, and what."""

    kind: str
    what: str


@dataclass(slots=True)
class StoredChunk:
    """A chunk whose frame is whole. Its rows are right only where no block is damaged."""

    record: ChunkRecord
    spec: TableSpec
    header: Header
    leaves: Leaves
    checksums: Array
    batch: pa.RecordBatch
    """All stored columns, those of codes included."""
    blocks: int = 0
    """Checked so far."""
    damaged: set[str] = field(default_factory=set)
    """Columns with a damaged block."""


class _Unreadable(Exception):
    """A part without which nothing else can be checked."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.finding = Finding(kind, what)


def read_chunk(record: ChunkRecord, spec: TableSpec, whole: pa.Buffer) -> tuple[StoredChunk | None, list[Finding]]:
    """The chunk, with every checksum of it checked and its header compared with the catalog; None if its frame is damaged."""
    try:
        chunk = _open(record, spec, whole)
    except _Unreadable as e:
        return None, [e.finding]
    return chunk, [*_header(chunk, whole), *_blocks(chunk)]


def _open(record: ChunkRecord, spec: TableSpec, whole: pa.Buffer) -> StoredChunk:
    if whole.size != record.bytes:
        raise _Unreadable("size", f"it has {whole.size:,} bytes, the catalog says {record.bytes:,}")
    if not 0 <= record.body_lo <= record.body_hi <= whole.size:
        raise _Unreadable("frame", f"the catalog says that its rows lie at bytes {record.body_lo} to {record.body_hi}, which cannot be")
    if frame_checksum(whole, record.body_lo, record.body_hi) != record.frame:
        raise _Unreadable("frame", "header or footer is damaged, or is not the one that the catalog knows")
    where = record.file
    try:
        file = pa.ipc.open_file(whole)
        batch = file.get_batch(0)
        header = Header.from_json(batch.schema.metadata[HEADER_KEY], where)
        columns = stored_schema(spec, _generations(header, batch))
        if batch.schema.names != columns.names or batch.schema.types != columns.types:
            raise _Unreadable("header", f"its columns are not the table's:\n{batch.schema.remove_metadata()}")
        packed = base64.b64decode(batch.schema.metadata[INDEX_KEY])
    except (TidewheelError, pa.ArrowException, OSError, KeyError, TypeError, ValueError) as e:
        raise _Unreadable("header", f"its header cannot be read: {e}") from e
    if header.rows != batch.num_rows or header.blocks != block_count(header.rows) or not 0 < header.leaves <= header.rows:
        what = f"its header says {header.rows} rows, {header.leaves} leaves and {header.blocks} blocks, but it has {batch.num_rows} rows"
        raise _Unreadable("header", what)
    try:
        leaves, checksums = unpack_index(packed, header, len(columns), where)
    except (TidewheelError, ValueError) as e:
        raise _Unreadable("index", "its index is damaged") from e
    return StoredChunk(record, spec, header, leaves, checksums, batch)


def _header(chunk: StoredChunk, whole: pa.Buffer) -> Iterator[Finding]:
    """The header against the catalog row and the table. Regions are compared with the rows instead."""
    header, record, spec = chunk.header, chunk.record, chunk.spec
    body = body_of(chunk.batch, whole)
    same: tuple[tuple[str, Any, Any], ...] = (
        ("format", header.format, record.format),
        ("id", header.id, record.id),
        ("server", header.server, record.server),
        ("late", header.late, bool(record.late)),
        ("rows", header.rows, record.rows),
        ("prefix", header.prefix, record.prefix),
        ("generations", header.generations if any(header.generations) else _of_load(record), (record.generation_lo, record.generation_hi)),
        ("body", body, (record.body_lo, record.body_hi)),
        ("layout", header.layout, spec.layout_json()),
        ("fields", header.fields, spec.field_ids),
        ("zones", header.zones, zoned_columns(spec)),
        ("block_rows", header.block_rows, BLOCK_ROWS),
    )
    if record.format not in READABLE:
        yield Finding("header", f"the catalog says that it has format {record.format}, which there is not")
    for name, found, known in same:
        if found != known:
            yield Finding("header", f"{name} is {found!r} in the file, but {known!r} in the catalog")
    spans = header.batches
    rising = all(a[0] <= a[1] < b[0] for a, b in zip(spans, (*spans[1:], (1 << 63, 0)), strict=True))
    if not spans or not rising or (spans[0][0], spans[-1][1]) != header.generations:
        yield Finding("header", f"its batches {spans} are not the generations {header.generations}")


def _generations(header: Header, batch: pa.RecordBatch) -> pa.DataType | None:
    """The type of the column with the rows' generations, if there must be one."""
    last = batch.schema.types[-1]
    return last if header.format > 1 and header.generations[0] < header.generations[1] and pa.types.is_unsigned_integer(last) else None


def _of_load(record: ChunkRecord) -> tuple[int, int]:
    """The generations of a chunk whose file was written before they were known: one, which only the catalog has."""
    return record.generation_hi, record.generation_hi


def _blocks(chunk: StoredChunk) -> Iterator[Finding]:
    for number, column in enumerate(chunk.batch.columns):
        name = chunk.batch.schema.field(number).name
        bad = []
        for block in range(chunk.header.blocks if column_kind(column.type)[0] != OTHER else 1):
            chunk.blocks += 1
            if not is_intact(column, block, int(chunk.checksums[number, block])):
                bad.append(block)
        if bad:
            chunk.damaged.add(name)
            rest = f" and {len(bad) - 1:,} more of its blocks are damaged" if len(bad) > 1 else " is damaged"
            yield Finding("block", f"block {bad[0]} of column {name!r}{rest}")
    if not chunk.damaged:
        try:
            chunk.batch.validate(full=True)
        except (pa.ArrowException, ValueError) as e:
            chunk.damaged.update(chunk.batch.schema.names)
            yield Finding("rows", f"its checksums are right, but its rows make no sense: {e}")
