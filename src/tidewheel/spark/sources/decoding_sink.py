"""The streaming sink for records that are not rows yet: its tasks decode them, and stage what comes out.

A task may stage several slices: one for each file it read, because a file is a package of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from tidewheel.engine.operations import Stage
from tidewheel.ingest.decode import decoder
from tidewheel.model.delivery import RowStream, SliceId
from tidewheel.spark import connections
from tidewheel.spark.options import TablePath
from tidewheel.spark.stream_sink import StreamSink, TaskReport, slice_of_task


class DecodingSink(StreamSink):
    """A `StreamSink` that is given records and the rules to decode them by."""

    def __init__(self, place: TablePath, stream: str | None, rules: str) -> None:
        super().__init__(place, stream)
        self._rules = rules

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """In a task."""
        task = slice_of_task(self._stream)
        records = (batch for batch in iterator if batch.num_rows)
        first = next(records, None)
        if first is None:  # nothing to tell the owner
            return TaskReport(task)
        slices: list[SliceId] = []
        with connections.of(self._place) as table:
            for delivery in decoder(self._rules, table.spec)(chain((first,), records)):
                one = replace(task, package=delivery.package or "")
                staged = table.give(Stage(one), RowStream(delivery.schema, delivery.batches))
                if delivery.package or staged.rows or staged.rejected:  # an empty file is known from now on, an empty slice is nothing
                    slices.append(one)
        return TaskReport(task, tuple(slices))
