"""Write a chunk: header, index and rows of one arranged tree, as one immutable file."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tidewheel.chunk import names
from tidewheel.chunk.format import (
    Header,
    Leaves,
    block_count,
    column_checksums,
    format_of,
    metadata,
    pack_index,
    stored_schema,
    zoned_columns,
)  # fmt: skip
from tidewheel.env.store import WriteOnce
from tidewheel.model.arrays import named_as
from tidewheel.model.codes import Codes
from tidewheel.model.dataclass import dataclass
from tidewheel.model.pieces import BLOCK_ROWS
from tidewheel.model.records import ChunkRecord, TableRecord


class Content(Protocol):
    """What a chunk is made of: rows in leaf order with their codes and leaves."""

    @property
    def batch(self) -> pa.RecordBatch: ...
    @property
    def codes(self) -> Codes: ...
    @property
    def times(self) -> Codes: ...
    @property
    def leaves(self) -> Leaves: ...
    @property
    def generations(self) -> tuple[int, int]: ...
    @property
    def batches(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def row_generations(self) -> npt.NDArray[Any] | None: ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a chunk comes from."""

    server: int
    late: bool
    prefix: bytes


def write_chunk(
    files: WriteOnce, table: TableRecord, content: Content, partitions: tuple[tuple[int, int], ...], origin: Origin
) -> ChunkRecord:
    """Write the file, under its temporary name, and return the row that a commit adds to the catalog.

    Before the commit the file must be made to appear (`Store.appear_each`); until the commit it means nothing.
    """
    spec = table.spec
    chunk_id = names.new_chunk_id()
    file = names.chunk_file(table.id, chunk_id)
    leaves = content.leaves

    # 1. the columns, with the codes and generations that they do not show themselves
    columns = [named_as(c, f.type) for c, f in zip(content.batch.columns, spec.stored, strict=True)]  # names are part of checksums
    if spec.direct_key < 0:
        columns.append(_as_arrow(content.codes))
    if spec.direct_time < 0:
        columns.append(_as_arrow(content.times))
    generations = None if content.row_generations is None else _as_arrow(content.row_generations)
    if generations is not None:
        columns.append(generations)

    # 2. checksums, index, header
    rows = content.batch.num_rows
    blocks = block_count(rows)
    index = pack_index(leaves, np.array([column_checksums(c, blocks) for c in columns], np.uint64))
    key = (int(leaves.zones[0].min()), int(leaves.zones[1].max()))
    time = (int(leaves.zones[2].min()), int(leaves.zones[3].max()))
    header = Header(
        format=format_of(origin.prefix),
        id=chunk_id,
        table=spec.name,
        server=origin.server,
        late=origin.late,
        layout=spec.layout_json(),
        fields=spec.field_ids,
        rows=rows,
        leaves=leaves.count,
        prefix=origin.prefix,
        key=key,
        time=time,
        generations=content.generations,
        batches=content.batches,
        mask=(leaves.mask_start, leaves.mask_width),
        zones=zoned_columns(spec),
        block_rows=BLOCK_ROWS,
        blocks=blocks,
        index=f"{xxhash.xxh3_64_intdigest(index):016x}",
    )

    # 3. the file
    schema = stored_schema(spec, generations.type if generations is not None else None)
    schema = schema.with_metadata(metadata(schema, header, index))
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)

    def write(sink: Any) -> None:
        with pa.ipc.new_file(sink, schema) as out:
            out.write_batch(batch)

    size = files.write(file, write)

    # 4. what the catalog keeps to tell a damaged file before parsing it
    whole = files.map(file, size, temporary=True)
    body_lo, body_hi = body_of(pa.ipc.open_file(whole).get_batch(0), whole)
    return ChunkRecord(
        id=chunk_id, table_id=table.id, server=origin.server, file=file, container=names.ARROW, format=header.format, rows=rows, bytes=size,
        key_lo=key[0], key_hi=key[1], time_lo=time[0], time_hi=time[1], late=origin.late,
        generation_lo=content.generations[0], generation_hi=content.generations[1], covers=content.generations[1], prefix=origin.prefix,
        body_lo=body_lo, body_hi=body_hi, frame=frame_checksum(whole, body_lo, body_hi), partitions=partitions,
    )  # fmt: skip


def _as_arrow(numbers: npt.NDArray[Any]) -> pa.Array:
    """Not `pa.array`, which loads pandas to see whether it is meant."""
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, pa.py_buffer(numbers)])


def body_of(batch: pa.RecordBatch, whole: pa.Buffer) -> tuple[int, int]:
    """From where to where the buffers of a mapped batch lie in its file.

    Every column has checksums of its own; what lies outside of their buffers (dictionaries, say) is part of the frame.
    """
    first, last = whole.size, 0
    for column in batch.columns:
        for buffer in column.buffers():
            if buffer is not None and buffer.size:
                at = buffer.address - whole.address
                first, last = min(first, at), max(last, at + buffer.size)
    return first, last


def frame_checksum(whole: pa.Buffer, body_lo: int, body_hi: int) -> int:
    head = xxhash.xxh3_64_intdigest(whole.slice(0, body_lo))
    return xxhash.xxh3_64_intdigest(whole.slice(body_hi), head)
