"""The streaming sink: each task stages its slice of a batch with the owner, Spark's commit publishes them all at once.

Spark tries tasks again, runs batches again and starts queries again; only its commit says which attempts count. So nothing of a slice is
seen before, and the owner drops a batch whose number it knows, as a whole: a replayed batch may be cut into other slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from tidewheel.errors import InputError, TidewheelError
from tidewheel.model.delivery import SliceId
from tidewheel.spark import connections
from tidewheel.spark.options import Place
from tidewheel.spark.types import conform

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class StagedSlice(WriterCommitMessage):
    """What a task did. Commit and abort run elsewhere and know of the stream only what is said here."""

    slice_id: SliceId
    rows: int
    rejected: int

    @property
    def is_empty(self) -> bool:
        return not self.rows and not self.rejected


class StreamSink(DataSourceStreamArrowWriter):
    """Spark makes one for every batch, on the driver, and another to commit it; tasks get copies of the first."""

    def __init__(self, place: Place, stream: str | None) -> None:
        self._place = place
        self._stream = stream

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task. Reads to the end whatever happens but an error: a worker that is left with rows is not used again."""
        slice_id = slice_of_task(self._stream)
        rows = (batch for batch in iterator if batch.num_rows)
        first = next(rows, None)
        if first is None:  # nothing to tell the owner
            return StagedSlice(slice_id, 0, 0)
        table = connections.table(self._place)
        fit = conform(table.spec, first.schema)
        first = fit(first)
        staged = table.stage(slice_id, chain((first,), map(fit, rows)), first.schema)
        return StagedSlice(slice_id, staged.rows, staged.rejected)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver. If the owner died, the next one is asked: it knows whether the batch is in. If it is not, its slices are gone

        with the old one, this raises, and the query runs the batch again when it is started again.
        """
        slices = self.slices(messages)
        if slices:
            first = slices[0]
            connections.call(self._place, lambda table: table.commit_batch(first.stream, first.run, batchId, slices))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, now and then: what nobody aborts expires."""
        slices = self.slices(messages)
        if slices:
            with suppress(TidewheelError):
                connections.table(self._place).abort_batch(slices[0].stream, slices[0].run, batchId)

    def slices(self, messages: Sequence[WriterCommitMessage | None]) -> list[SliceId]:
        """What the tasks of a batch staged."""
        return [m.slice_id for m in messages if isinstance(m, StagedSlice) and not m.is_empty]


def slice_of_task(stream: str | None) -> SliceId:
    """Who this task is. A query's id stays the same over restarts, its run's does not; an attempt's number is never used twice."""
    context = TaskContext.get()
    assert context is not None
    query, run, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"))
    if query is None or run is None or batch is None:
        raise InputError("this is no task of a streaming query; write a DataFrame that is no stream with df.write")
    return SliceId(stream or query, run, int(batch), context.partitionId(), context.taskAttemptId())
