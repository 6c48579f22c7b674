"""The bulk sink: tasks write chunks side by side, one commit makes them all part of the table, or none.

The load begins when Spark makes the writer, before any task: its job, folder and template travel with the writer. Whatever a failed task
left in the folder goes with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from tidewheel.engine.operations import AbortBatch, AbortLoad, CommitBatch, CommitLoad, DropTable, GetState, TakePin, Unpin
from tidewheel.errors import OwnerLostError, TidewheelError
from tidewheel.model.delivery import Load, SliceId, Written
from tidewheel.model.query import Query
from tidewheel.model.schema import TableSpec
from tidewheel.spark import connections
from tidewheel.spark.chunks import stage_rejects, write_chunks
from tidewheel.spark.options import TablePath
from tidewheel.spark.plain_errors import plainly
from tidewheel.spark.types import conform


@dataclass(frozen=True)
class WrittenPart(WriterCommitMessage):
    """What a task wrote, and where its bad rows wait."""

    written: Written
    rejects: SliceId | None = None


class BulkSink(DataSourceArrowWriter):
    """Made on the driver; tasks get copies, and so does whatever process commits."""

    def __init__(self, place: TablePath, spec: TableSpec, load: Load, overwrite: bool, on_bad: str, made: bool) -> None:
        self._place = place
        self._spec = spec
        self._load = load
        self._overwrite = overwrite
        self._on_bad = on_bad
        self._made = made
        """The table was made for this load."""

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenPart:
        """In a task."""
        fit = cache(lambda schema: conform(self._spec, schema))
        rows = (fit(batch.schema)(batch) for batch in iterator if batch.num_rows)
        written, rejected = write_chunks(self._place, self._spec, self._load, rows, self._on_bad)
        if not rejected:
            return WrittenPart(written)
        context = TaskContext.get()
        assert context is not None
        job, partition = self._load.job, context.partitionId()
        bad = SliceId(f"load {job}", job, 0, partition, context.taskAttemptId())
        stage_rejects(connections.table(self._place), bad, rejected, f"load {job}, partition {partition}")
        return WrittenPart(written, bad)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Bad rows first: if what follows fails, a reject twice is better than one lost."""
        parts = [m for m in messages if isinstance(m, WrittenPart)]
        rejects = [part.rejects for part in parts if part.rejects is not None]
        if rejects:
            one = rejects[0]
            connections.do(self._place, CommitBatch(one.stream, one.run, one.batch, tuple(rejects)))
        written = tuple(part.written for part in parts)
        try:
            connections.do(self._place, CommitLoad(self._load.job, written, self._overwrite), twice=False)
        except OwnerLostError:
            if not self._is_in(written):
                raise

    def _is_in(self, written: Sequence[Written]) -> bool:
        """Whether an owner that died while it committed had done so: the next one knows all chunks by their ids, or none."""
        ours = {chunk.id for part in written for chunk in part.chunks}
        there = connections.do(self._place, TakePin(Query()))
        connections.do(self._place, Unpin(there.id))
        return bool(ours) and ours <= {chunk.id for chunk in there.chunks}

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with suppress(TidewheelError):
            table = connections.table(self._place)
            table.do(AbortLoad(self._load.job))
            table.do(AbortBatch(f"load {self._load.job}", self._load.job, 0))
            if self._made and not table.do(GetState()).rows:
                connections.engine(self._place.root).do(DropTable(self._place.table))


class NoSink(DataSourceArrowWriter):
    """For a table that is there already and is to be left as it is."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        deque(iterator, 0)  # a worker that is left with rows is not used again
        return WriterCommitMessage()
