"""The demo's numbers: what its processes and the table say, and what follows from it. No I/O, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tidewheel.metrics import TableMetrics
from tidewheel.model.delivery import TableState

LAG_STEP = 0.01
"""Seconds: lags are counted in steps of this."""
_RECENT = 10  # seconds: what is shown as now
_RATE_OVER = 3.0  # seconds: long enough for the gaps between Spark's batches not to be seen in the rate


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """The options of the command line."""

    seconds: float = 45.0
    rows_per_second: int = 20_000
    keep: Path | None = None
    seed: int = 1
    spark: bool = True


@dataclass(frozen=True, slots=True)
class Sent:
    """Counts of what the fleet has sent so far."""

    reports: int = 0
    late: int = 0
    broken: int = 0
    files: int = 0
    start: int = 0
    """When the fleet began, in microseconds since 1970: only late reports are older."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The table at one moment of the stream."""

    seconds: float
    state: TableState
    metrics: TableMetrics
    late: int = 0

    @property
    def arrived(self) -> int:
        """Messages that are no longer on their way."""
        return self.state.rows + self.metrics.rejected


@dataclass(slots=True)
class Numbers:
    """So far. `sent` is set by the thread that listens to the fleet, `heard` called by the one that listens to the watcher."""

    sent: Sent = Sent()
    streamed: float = 0.0
    """Seconds that the fleet drove."""
    now: Moment | None = None
    queries: list[float] = field(default_factory=list)
    """Milliseconds each, answers read in full."""
    rows_read: int = 0
    lags: Counter[int] = field(default_factory=Counter)
    """Rows by the time from their report until the watcher saw them."""
    rates: list[float] = field(default_factory=list)
    """Rows a second that became visible, by the second; so are the next two, which are None where nothing was seen."""
    lag_medians: list[float | None] = field(default_factory=list)
    query_medians: list[float | None] = field(default_factory=list)
    _moments: list[Moment] = field(default_factory=list)
    _by_second: list[tuple[int, Counter[int]]] = field(default_factory=lambda: [(0, Counter())])
    """Queries and lags up to the end of each second."""

    def heard(self, said: Mapping[str, Any]) -> None:
        """Take in a message of the watcher."""
        self.queries += said["ms"]
        self.rows_read += said["rows"]
        self.lags = self.lags + Counter({int(step): rows for step, rows in said["lags"].items()})  # a new one: others may be reading

    def look(self, moment: Moment) -> None:
        """The table now. The rate is over the last seconds; the histories get a value for every full second."""
        self.now = moment
        self._moments = [m for m in self._moments if m.seconds >= moment.seconds - _RATE_OVER] + [moment]
        while len(self.rates) + 1 <= moment.seconds:
            self.rates.append(self.rate)
            (queries, lags), now = self._by_second[-1], (len(self.queries), self.lags)
            self.query_medians.append(quantile(self.queries[queries : now[0]], 0.5) or None)
            self.lag_medians.append(lag_quantile(now[1] - lags, 0.5) or None)
            self._by_second = [*self._by_second[1 - _RECENT :], now]

    @property
    def rate(self) -> float:
        """Messages a second, of the last seconds."""
        first, last = self._moments[0], self._moments[-1]
        return (last.arrived - first.arrived) / (last.seconds - first.seconds) if last.seconds > first.seconds else 0.0

    def latency(self, recent: bool = False) -> tuple[float, float]:
        """The median and the 99th percentile of the queries in milliseconds, of the last seconds or of all."""
        taken = self.queries[self._by_second[0][0] if recent else 0 :]
        return quantile(taken, 0.5), quantile(taken, 0.99)

    def lag(self, recent: bool = False) -> tuple[float, float]:
        """Within so many seconds half of the rows were visible, and 99 of 100."""
        taken = self.lags - self._by_second[0][1] if recent else self.lags
        return lag_quantile(taken, 0.5), lag_quantile(taken, 0.99)


def quantile(values: list[float], share: float) -> float:
    """0 if there are none."""
    return float(np.quantile(values, share)) if values else 0.0


def lag_quantile(lags: Mapping[int, int], share: float) -> float:
    """The end of the step in which so many of the rows are."""
    steps = sorted(lags)
    if not steps:
        return 0.0
    upto = np.cumsum([lags[step] for step in steps])
    return float((steps[int(np.searchsorted(upto, share * upto[-1]))] + 1) * LAG_STEP)
