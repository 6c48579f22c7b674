"""A result whose rows go through a pipeline in this process, wherever they come from."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator

import pyarrow as pa

from tidewheel.model.schema import TableSpec
from tidewheel.read.limits import NEVER, Cancellable, Watch
from tidewheel.read.ordering import first
from tidewheel.read.pipeline import Pipeline, Source
from tidewheel.read.result import Result

COPY_ROWS = 1 << 20
"""Most rows that are copied into one batch when a result is taken whole."""

_FEW_ROWS = 1024
"""Rows per batch while only the first few are wanted."""


class PipedResult(Result):
    """The base of results whose rows go through a `Pipeline`: reading, counting and timing."""

    _pipeline: Pipeline
    _planned: float
    """Seconds spent before the first reading."""
    _rows: int | None = None

    @abstractmethod
    def _source(self) -> tuple[Source, int | None]:
        """The source of its rows, and their number, if that is known. Raises if the query was cancelled."""

    def known_rows(self) -> int | None:
        return self._rows if self._rows is not None else self._source()[1]

    def _batches(self, whole: bool, of: Cancellable | None = None) -> Iterator[pa.RecordBatch]:
        return self._timed(self._run(COPY_ROWS if whole else self._batch_rows(), whole, of))

    def _first(self, rows: int, of: Cancellable | None = None) -> list[pa.RecordBatch]:
        return list(first(self._run(_FEW_ROWS, False, of), rows))

    def _count(self, of: Cancellable | None = None) -> int:
        if self._rows is None:
            self._rows = self.known_rows()
        if self._rows is None:  # counting returns no rows, so max_rows is not asked
            self._rows = sum(batch.num_rows for batch in self._timed(self._run(self._batch_rows(), False, of, NEVER)))
        return self._rows

    def _counts_cheaply(self) -> bool:
        return self._rows is not None or not self._pipeline.filters

    def _spec(self) -> TableSpec:
        return self._pipeline.planner.spec

    def _batch_rows(self) -> int:
        return self._pipeline.planner.settings.batch_rows

    def _run(self, size: int, whole: bool, of: Cancellable | None, most: float | None = None) -> Iterator[pa.RecordBatch]:
        source, known = self._source()
        watch = Watch(self._pipeline.limits, self if of is None else of, self._planned)
        return self._pipeline.run(source, watch, size, whole, known, most)

    def _timed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count rows, bytes and the time spent in here, not in the caller."""
        rows = size = 0
        row_bytes = self._pipeline.row_bytes
        began = time.perf_counter()
        spent = 0.0
        for batch in batches:
            rows += batch.num_rows
            size += row_bytes * batch.num_rows or batch.nbytes
            spent += time.perf_counter() - began
            yield batch
            began = time.perf_counter()
        self.stats.rows_returned, self.stats.bytes = rows, size
        self.stats.milliseconds += (spent + time.perf_counter() - began) * 1e3
        self._rows = rows
