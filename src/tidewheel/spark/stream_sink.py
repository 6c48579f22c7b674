"""The streaming sink: each task stages its slice of a batch with the owner, Spark's commit publishes them all at once.

A slice of a chunk's size or more is not sent: the task writes it as chunks, as a bulk load's does, and the commit makes them part of the
table. Sending it, logging it and flushing it would move every row three times more, most of it in one process.

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

from tidewheel.engine.operations import AbortBatch, AbortLoad, BeginLoad, CommitBatch, Stage
from tidewheel.engine.protocol import TableEngine
from tidewheel.errors import InputError, TidewheelError
from tidewheel.model.dead_letters import BAD
from tidewheel.model.delivery import RowStream, SliceId, Written
from tidewheel.spark import connections
from tidewheel.spark.chunks import is_here, stage_rejects, write_chunks
from tidewheel.spark.options import TablePath
from tidewheel.spark.plain_errors import plainly
from tidewheel.spark.types import conform

if TYPE_CHECKING:
    from collections.abc import Sequence

LARGE = 16 << 20
"""Bytes from which on a slice is written as chunks: a tree of that size would be flushed at once."""


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """What a task did. Commit and abort run elsewhere and know of the stream only what is said here."""

    task: SliceId
    slices: tuple[SliceId, ...] = ()
    """What waits with the owner."""
    written: Written | None = None
    """What was written as chunks."""


class StreamSink(DataSourceStreamArrowWriter):
    """Spark makes one for every batch, on the driver, and another to commit it; tasks get copies of the first."""

    def __init__(self, place: TablePath, stream: str | None) -> None:
        self._place = place
        self._stream = stream

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """In a task. Reads to the end whatever happens but an error: a worker that is left with rows is not used again."""
        task = slice_of_task(self._stream)
        rows = (batch for batch in iterator if batch.num_rows)
        first = next(rows, None)
        if first is None:  # nothing to tell the owner
            return TaskReport(task)
        with connections.of(self._place) as table:
            return self._hand_over(table, task, first, rows)

    def _hand_over(self, table: TableEngine, task: SliceId, first: pa.RecordBatch, rows: Iterator[pa.RecordBatch]) -> TaskReport:
        fit = conform(table.spec, first.schema)
        fitting = chain((fit(first),), map(fit, rows))
        begun = _take(fitting, LARGE)
        is_large = sum(batch.nbytes for batch in begun) >= LARGE
        load = table.do(BeginLoad()) if is_large and BAD not in first.schema.names else None
        if load is not None and not is_here(self._place, load):
            table.do(AbortLoad(load.job))
            load = None
        if load is None:
            staged = table.give(Stage(task), RowStream(begun[0].schema, chain(begun, fitting)))
            return TaskReport(task, (task,) if staged.rows or staged.rejected else ())
        try:
            written, rejected = write_chunks(self._place, table.spec, load, chain(begun, fitting), "reject")
        except BaseException:
            with suppress(TidewheelError):
                table.do(AbortLoad(load.job))
            raise
        if not rejected:
            return TaskReport(task, written=written)
        stage_rejects(table, task, rejected, f"stream {task.stream}, batch {task.batch}, partition {task.partition}")
        return TaskReport(task, (task,), written)

    @plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver. If the owner died, the next one is asked: it knows whether the batch is in. If it is not, its slices are gone

        with the old one, this raises, and the query runs the batch again when it is started again.
        """
        parts = _parts(messages)
        slices = tuple(one for part in parts for one in part.slices)
        written = tuple(part.written for part in parts if part.written is not None)
        if slices or written:
            task = parts[0].task
            connections.do(self._place, CommitBatch(task.stream, task.run, batchId, slices, written))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, now and then: what nobody aborts expires."""
        parts = _parts(messages)
        if parts:
            task = parts[0].task
            with suppress(TidewheelError):
                table = connections.table(self._place)
                table.do(AbortBatch(task.stream, task.run, batchId))
                for part in parts:
                    if part.written is not None:
                        table.do(AbortLoad(part.written.job))


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport]:
    """Those of the tasks that came to an end."""
    return [m for m in messages if isinstance(m, TaskReport)]


def _take(batches: Iterator[pa.RecordBatch], size: int) -> list[pa.RecordBatch]:
    """The next ones, until they have so many bytes."""
    taken: list[pa.RecordBatch] = []
    while size > 0 and (batch := next(batches, None)) is not None:
        taken.append(batch)
        size -= batch.nbytes
    return taken


def slice_of_task(stream: str | None) -> SliceId:
    """Who this task is. A query's id stays the same over restarts, its run's does not; an attempt's number is never used twice."""
    context = TaskContext.get()
    assert context is not None
    query, run, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"))
    if query is None or run is None or batch is None:
        raise InputError("this is no task of a streaming query; write a DataFrame that is no stream with df.write")
    return SliceId(stream or query, run, int(batch), context.partitionId(), context.taskAttemptId())
