"""What tasks do that write chunks themselves, for a bulk load or for a large slice of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tidewheel.engine.operations import Stage
from tidewheel.engine.protocol import TableEngine
from tidewheel.model.dead_letters import DeadLetter, letters_batch
from tidewheel.model.delivery import Load, RowStream, SliceId, Written
from tidewheel.model.schema import TableSpec
from tidewheel.spark.options import TablePath

if TYPE_CHECKING:
    from tidewheel.write.accept import Rejected


def is_here(place: TablePath, load: Load) -> bool:
    """Whether the folder that the owner made can be seen by this task: it may run on another machine."""
    return (Path(place.root) / load.folder).is_dir()


def write_chunks(
    place: TablePath, spec: TableSpec, load: Load, batches: Iterable[pa.RecordBatch], on_bad: str
) -> tuple[Written, list[Rejected]]:
    """Write rows as chunks of a load. Returns them, and the rows that do not fit the table."""
    from tidewheel.write.chunk_maker import ChunkMaker  # here: its kernels take long to load, and most tasks need none

    rejected: list[Rejected] = []
    with ChunkMaker(place.root, spec, load) as maker:
        for batch in batches:
            rejected += maker.add(batch, on_bad)
    return maker.written, rejected


def stage_rejects(table: TableEngine, slice_id: SliceId, rejected: Sequence[Rejected], origin: str) -> None:
    """Let bad rows wait with the owner, as dead letters of a slice that has no other rows."""
    letters = letters_batch(table.spec.schema, [DeadLetter(r.position, r.reason, r.column, r.row, origin) for r in rejected])
    table.give(Stage(slice_id), RowStream(letters.schema, [letters]))
