"""What a running stream has done, in numbers: from Spark's progress and the table's counters."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from tidewheel.cluster.start_owner import summon
from tidewheel.engine.operations import GetMetrics
from tidewheel.errors import TidewheelError
from tidewheel.metrics import TableMetrics
from tidewheel.spark.ingestion import OBSERVED
from tidewheel.spark.options import TablePath

WINDOW = 10.0
"""Seconds over which a rate is taken."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A stream at one moment."""

    batches: int = 0
    rows: int = 0
    rejected: int = 0
    rows_per_second: float = 0.0
    behind: int | None = None
    """Records that are in the source and not yet in the table; None if the source cannot tell."""
    newest: float | None = None
    oldest: float | None = None
    """Seconds from a record's arrival in the source until it was visible, of the last batch: its newest and its oldest record."""
    batch_seconds: float = 0.0


class SparkQuery(Protocol):
    """What is needed of Spark's StreamingQuery."""

    @property
    def lastProgress(self) -> Any: ...


class StreamWatch:
    """Looks at a stream from time to time. `metrics` asks the table's owner; it may be another one each time."""

    def __init__(self, query: SparkQuery, metrics: Callable[[], TableMetrics], clock: Callable[[], float] = time.monotonic) -> None:
        self._query = query
        self._metrics = metrics
        self._clock = clock
        self._rows = Counter()
        self._rejected = Counter()
        self._first: int | None = None
        self._recent: deque[tuple[float, int]] = deque()
        self._counted()

    def look(self) -> Seen:
        self._counted()
        now = self._clock()
        self._recent.append((now, self._rows.total))
        while len(self._recent) > 2 and now - self._recent[0][0] > WINDOW:
            self._recent.popleft()
        (then, before) = self._recent[0]
        rate = (self._rows.total - before) / (now - then) if now > then else 0.0
        progress = self._query.lastProgress
        if progress is None:
            return Seen(0, self._rows.total, self._rejected.total, rate)
        batch = int(progress["batchId"])
        # the first progress may be of a batch of nothing: a stream that found nothing new reports the batch that would be next
        took = float(progress["durationMs"].get("triggerExecution", 0)) / 1000
        if self._first is None:
            self._first = batch
        newest, oldest = _latency(progress, took)
        done = batch - self._first + (1 if int(progress["numInputRows"]) else 0)
        return Seen(done, self._rows.total, self._rejected.total, rate, _behind(progress), newest, oldest, took)

    def _counted(self) -> None:
        metrics = self._metrics()
        self._rows.set(metrics.rows)
        self._rejected.set(metrics.rejected)


class Counters:
    """The counters of a table, asked of its owner. A context manager, because it stays attached."""

    def __init__(self, place: TablePath) -> None:
        self._place = place
        self._owner = summon(place.root)
        self._last = self._owner.table(place.table).do(GetMetrics())
        self._begun = False

    def __call__(self) -> TableMetrics:
        """The counters: at first as they were when this was made, before the stream began; then as they are now, or were last while they
        cannot be had. Whoever watches a stream must not end it.
        """
        if not self._begun:
            self._begun = True
            return self._last
        with suppress(TidewheelError):
            if self._owner.lost:
                self._owner.close()
                self._owner = summon(self._place.root)
            self._last = self._owner.table(self._place.table).do(GetMetrics())
        return self._last

    def __enter__(self) -> Counters:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._owner.close()


class Counter:
    """What a counter grew by since it was first looked at. It starts again at 0 when the owner is another one."""

    def __init__(self) -> None:
        self.total = 0
        self._last: int | None = None

    def set(self, value: int) -> None:
        if self._last is not None:
            self.total += value - self._last if value >= self._last else value
        self._last = value


def _behind(progress: Mapping[str, Any]) -> int | None:
    """How many offsets are between what was read and what is there."""
    total = None
    for source in progress["sources"]:
        latest, end = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
        if latest and end:
            total = (total or 0) + sum(max(0, there - end.get(place, 0)) for place, there in latest.items())
    return total


def _offsets(offsets: Any) -> dict[tuple[str, str], int]:
    """Kafka's {topic: {partition: offset}}, flat."""
    if isinstance(offsets, str):
        try:
            offsets = json.loads(offsets)
        except ValueError:
            return {}
    if not isinstance(offsets, Mapping):
        return {}
    return {(t, p): int(o) for t, inner in offsets.items() if isinstance(inner, Mapping) for p, o in inner.items()}


def _latency(progress: Mapping[str, Any], took: float) -> tuple[float | None, float | None]:
    """Seconds from arrival to visible, of the newest and the oldest record of a batch."""
    observed = (progress["observedMetrics"] or {}).get(OBSERVED)
    if observed is None or observed["newest"] is None or not int(progress["numInputRows"]):
        return None, None
    began = dt.datetime.fromisoformat(progress["timestamp"]).timestamp()
    return began + took - observed["newest"] / 1e6, began + took - observed["oldest"] / 1e6
