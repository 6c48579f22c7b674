"""The reader of a table's changes: its rows in the order of the generations they came with, each exactly once.

A stream's offset is a generation. What came with a generation never changes, so a batch that Spark runs again has the same rows, and
any sink that knows its batches gets each row once, over restarts of the query and of the warehouse.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidewheel.engine.operations import CountChanges, GetGeneration, TakePin, Unpin
from tidewheel.errors import TidewheelError
from tidewheel.model.query import Query
from tidewheel.model.schema import TableSpec
from tidewheel.spark import connections
from tidewheel.spark.filters import Ask
from tidewheel.spark.options import TablePath
from tidewheel.spark.plain_errors import plain_iterator, plainly
from tidewheel.spark.splits import Portion, divide, rows
from tidewheel.spark.types import delivery

GENERATION = "generation"

FRESH_FOR = 0.02
"""Seconds: how old the answer to Spark's question for news may be. An idle stream asks without pause."""


@dataclass
class _Polled:
    """What the driver's copy remembers. Tasks get none of it."""

    generation: int = 0
    at: float = float("-inf")
    pins: dict[str, int] = field(default_factory=dict)
    """Pins of batches that are under way, with their last generation."""


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Planned on the driver, by one process for the life of the query; `read` runs in tasks, in copies of it."""

    def __init__(
        self,
        place: TablePath,
        spec: TableSpec,
        wanted: StructType,
        nanoseconds: str,
        most: int | None,
        start: int | None,
        limit: int | None,
    ) -> None:
        self._place = place
        self._spec = spec
        self._wanted = wanted
        self._nanoseconds = nanoseconds
        self._most = most
        self._start = start
        """Where a new stream begins; None: with what comes next."""
        self._limit = limit
        self._last: int | None = None
        """With availableNow: the generation to end with."""
        self._polled = _Polled()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_polled": _Polled()}

    # ---- on the driver ----------------------------------------------------------------------------------

    @plainly
    def initialOffset(self) -> dict[str, int]:
        return {GENERATION: self._newest() if self._start is None else self._start}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._limit is None else ReadMaxRows(self._limit)

    @plainly
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        after = start[GENERATION]
        newest = self._newest() if self._last is None else self._last
        if newest <= after:
            return start
        return {GENERATION: self._within(after, newest, limit.max_rows) if isinstance(limit, ReadMaxRows) else newest}

    def _within(self, after: int, newest: int, most: int) -> int:
        """How far about so many rows reach: at least one generation, because none can be divided."""
        found = connections.do(self._place, CountChanges(after, newest, most))
        if not found:
            return newest
        last = found[-1][0]
        more = connections.do(self._place, CountChanges(last, newest, 1))
        return last if more else newest

    @plainly
    def reportLatestOffset(self) -> dict[str, int]:
        return {GENERATION: self._newest()}

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._newest(0.0)

    @plainly
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        after, upto = start[GENERATION], end[GENERATION]
        if upto <= after:
            return []
        query = self._query(after, upto)
        pin = connections.do(self._place, TakePin(query))
        self._polled.pins[pin.id] = upto
        return [_Changes(portion, after, upto) for portion in divide(pin, Ask(), self._spec, self._most)]

    @plainly
    def commit(self, end: dict[str, int]) -> None:
        """Spark will not ask for these again: their versions can go."""
        done = [pin for pin, upto in self._polled.pins.items() if upto <= end[GENERATION]]
        for pin in done:
            del self._polled.pins[pin]
            connections.do(self._place, Unpin(pin))

    def _newest(self, fresh_for: float = FRESH_FOR) -> int:
        polled, now = self._polled, time.monotonic()
        if now - polled.at > fresh_for:
            polled.generation = connections.do(self._place, GetGeneration())
            polled.at = now
        return polled.generation

    # ---- in a task --------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Changes)
        deliver = delivery(self._spec, self._wanted, self._nanoseconds)
        query = self._query(partition.after, partition.upto)
        return plain_iterator(map(deliver, rows(self._place, self._spec, partition.portion, Ask(), query)))

    def _query(self, after: int, upto: int) -> Query:
        return Query(columns=list(self._wanted.names), after=after, upto=upto)


class RefusedReader(DataSourceStreamReader):
    """For a stream that cannot be read: says so at Spark's first question, whichever that is."""

    def __init__(self, error: TidewheelError) -> None:
        self._error = error

    @plainly
    def initialOffset(self) -> dict[str, int]:
        raise self._error

    @plainly
    def latestOffset(self, *args: object) -> dict[str, int]:
        raise self._error

    @plainly
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        raise self._error

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


class _Changes(InputPartition):
    """What one task reads of a batch of changes."""

    def __init__(self, portion: Portion, after: int, upto: int) -> None:
        super().__init__((after, upto))
        self.portion = portion
        self.after = after
        self.upto = upto
