"""A stream that goes on for ever at RATE rows a second: the history first, then the same taxis again with later times.

Row i has the time BASE + i / RATE and the values of a known history row, so the right answer to any query can be computed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import data
from benchmarks.peers import Ask, System
from benchmarks.reader import read

STEP = 1_000_000 // data.RATE
PER_BATCH = 5_000
"""Rows in a live batch: ten of them a second."""


class Stream:
    """The endless rows. Immutable, for any thread."""

    def __init__(self, history: data.Rows) -> None:
        self.history = history.restamped()
        self.loaded = len(history)
        self.cycle = self.loaded // PER_BATCH * PER_BATCH

    def live_batch(self, number: int) -> pa.RecordBatch:
        """Live batch `number`, counted from the end of the history."""
        return self._piece(number * PER_BATCH % self.cycle, self.loaded + number * PER_BATCH, PER_BATCH).batch()

    def newest(self, batches: int) -> int:
        """The time of the last row when `batches` live batches are in."""
        return data.BASE + (self.loaded + batches * PER_BATCH - 1) * STEP

    def answer(self, ask: Ask) -> tuple[float, ...]:
        """What `read` must give for this query, by NumPy over all rows of its time range."""
        assert ask.key is not None and ask.time is not None
        first = max(0, -((data.BASE - ask.time[0]) // STEP))
        last = (ask.time[1] - data.BASE) // STEP
        tables = []
        for rows in self._pieces(first, last + 1):
            hit = np.flatnonzero((rows.z >= ask.key[0]) & (rows.z <= ask.key[1]))
            found = data.Rows(rows.z[hit], rows.ts[hit], rows.taxi[hit], rows.lon[hit], rows.lat[hit], "")
            tables.append(found.batch())
        table = pa.Table.from_batches(tables, schema=data.SCHEMA)
        if not ask.totals:
            return read(table)
        last = pc.max(table["ts"].cast(pa.int64())).as_py()
        return (1, len(table), pc.sum(table["taxi"]).as_py(), last, pc.mean(table["lon"]).as_py(), pc.mean(table["lat"]).as_py())

    def _pieces(self, first: int, end: int) -> Iterator[data.Rows]:
        while first < end:
            start = first if first < self.loaded else (first - self.loaded) % self.cycle
            rows = min(end - first, (self.loaded if first < self.loaded else self.cycle) - start)
            yield self._piece(start, first, rows)
            first += rows

    def _piece(self, start: int, first: int, rows: int) -> data.Rows:
        part, h = slice(start, start + rows), self.history
        return data.Rows(h.z[part], data.stamps(first, rows), h.taxi[part], h.lon[part], h.lat[part], "")


class Feeder:
    """Inserts the live stream into one system while it is measured, ten batches a second; stands still otherwise.

    A system that cannot keep up is not skipped over: the next batch follows at once, and `rate` shows the shortfall.
    """

    def __init__(self, system: System, stream: Stream) -> None:
        self.system, self.stream = system, stream
        self.batches = 0
        self.busy = 0.0
        self.elapsed = 0.0
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def newest(self) -> int:
        return self.stream.newest(self.batches)

    @property
    def rate(self) -> float:
        """Rows a second that really went in."""
        return self.batches * PER_BATCH / self.elapsed if self.elapsed else 0.0

    def __enter__(self) -> Feeder:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name=f"feed {self.system.name}")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
        if self._failure is not None:
            raise RuntimeError(f"feeding {self.system.name} failed") from self._failure

    def _run(self) -> None:
        begun = time.perf_counter()
        due = begun + PER_BATCH / data.RATE / 2  # half a beat in, so that short rounds do not get a batch too many
        try:
            self._stop.wait(due - begun)
            while not self._stop.is_set():
                batch = self.stream.live_batch(self.batches)
                start = time.perf_counter()
                self.system.insert(batch)
                self.busy += time.perf_counter() - start
                self.batches += 1
                due += PER_BATCH / data.RATE
                self._stop.wait(max(0.0, due - time.perf_counter()))
        except BaseException as failure:  # handed to the measuring thread
            self._failure = failure
        self.elapsed += time.perf_counter() - begun
