"""The answer to a query with a function, in an attached process.

A function cannot cross: the owner sends the rows within the query's bounds that satisfy its condition, and all the rest is done here, by
the code that the owner would use. A module of its own, because that code takes its time to load.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from tidewheel.chunk.format import code_columns
from tidewheel.cluster.attached_result import AttachedResult
from tidewheel.model.pieces import Shape
from tidewheel.model.query import Plan, Query
from tidewheel.model.schema import TableSpec
from tidewheel.read.limits import Watch
from tidewheel.read.piped_result import PipedResult
from tidewheel.read.pipeline import Pipeline, Source, limits_of
from tidewheel.read.planner import Planner
from tidewheel.read.scan import StoredColumns
from tidewheel.settings import Settings


def planner(spec: TableSpec, settings: Settings) -> Planner:
    """One that plans nothing, and knows what is right and wrong with a query."""
    return Planner(spec, Shape(spec), settings, StoredColumns(*code_columns(spec)))


class FilteredResult(PipedResult):
    """`bounded` asks the owner; what it answers pins the version that this result shows."""

    def __init__(self, planner: Planner, query: Query, bounded: Callable[[Query], AttachedResult]) -> None:
        began = time.perf_counter()
        watch = Watch(limits_of(planner, query), self)
        self._pipeline = pipeline = Pipeline(planner, replace(query, condition=None), watch)
        self.schema = pipeline.schema
        self._bounded = bounded(
            Query(
                key=query.key, box=query.box, time=query.time, timeout=query.timeout, max_rows=float("inf"), max_bytes=query.max_bytes,
                on_corrupt=query.on_corrupt, after=query.after, upto=query.upto, condition=query.condition, aged=query.aged,
            )
        )  # fmt: skip
        self.stats = replace(self._bounded.stats)
        self.warning = self._bounded.warning
        self._planned = time.perf_counter() - began
        self.stats.milliseconds = self._planned * 1e3

    @property
    def plan(self) -> Plan:
        return replace(self._bounded.plan, stats=self.stats)

    @property
    def generation(self) -> int:
        return self._bounded.generation

    def cancel(self) -> None:
        self.cancelled = True
        self._bounded.cancel()

    def _source(self) -> tuple[Source, int | None]:
        bounded = self._bounded
        bounded._check()

        def rows(size: int, watch: Watch, enough: int | None) -> Iterator[pa.RecordBatch]:
            read = 0
            for batch in bounded:
                watch.check()
                watch.take(batch.nbytes)
                read += batch.num_rows
                self.stats.rows_scanned = max(self.stats.rows_scanned, read)
                yield batch

        return rows, None
