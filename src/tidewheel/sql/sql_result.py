"""The result of a statement. It pins all tables that the statement reads, at versions of one moment."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import pyarrow as pa

from tidewheel.read.limits import NEVER, Cancellable, Limits, Watch
from tidewheel.sql.apart_reading import ApartReading
from tidewheel.sql.asking import Asking, Used
from tidewheel.sql.execution import Inputs, StatementReading
from tidewheel.sql.parameters import Parameters
from tidewheel.sql.statement_result import StatementResult
from tidewheel.sql.table_scan import TableScan


class Text(NamedTuple):
    """A statement, as it was written and as DuckDB is given it."""

    written: str
    run: str


Makes = Callable[[Inputs, Limits, Cancellable, Used], StatementReading | ApartReading]
"""Makes a reading of these tables within these limits, of which so much is used up."""


class _Life:
    """Whether a result was cancelled. Its readings look here: if they held the result itself, neither could ever be let go of, because
    one end of the circle is inside of DuckDB."""

    cancelled = False


@dataclass(slots=True)
class _Run:
    """A statement that is bound, and perhaps begun."""

    reading: StatementReading | ApartReading
    begun: bool = False


class SqlResult(StatementResult):
    """Checked and bound when it is made; run when it is read, each time anew and over the same rows."""

    def __init__(self, makes: Makes, inputs: Inputs, limits: Limits, text: Text, parameters: Parameters, asking: Asking) -> None:
        """`makes` a reading, each time that it is read."""
        super().__init__(inputs.root, text.written)
        self.life = _Life()
        self._makes = makes
        self._inputs = inputs
        self._limits = limits
        self._text = text
        self._parameters = parameters
        self._schema: pa.Schema | None = None
        self._scans: list[TableScan] = []
        self._lock = threading.Lock()
        self._readings: set[StatementReading | ApartReading] = set()
        self._used = asking.used
        self._ready: _Run | None = None
        self._ready = self._bind(self.life)
        asking.started = self._ready.reading.started
        _all.add(self)
        if isinstance(self._ready.reading, ApartReading):
            _waits(self)
        self._used = asking.used
        self.stats.milliseconds = self._used.seconds * 1e3

    def _bind(self, of: Cancellable) -> _Run:
        """A run that is ready to begin: names and types are known to be right."""
        reading = self._makes(self._inputs, self._limits, of, self._used)
        try:
            reading.bind(self._text.run, self._parameters)
        except BaseException:
            reading.close()
            raise
        with self._lock:
            self._readings.add(reading)
        return _Run(reading)

    def _begin(self, of: Cancellable | None) -> StatementReading | ApartReading:
        """A run whose first rows are on their way. The caller ends it."""
        run = None
        if of is None:
            with self._lock:
                run, self._ready = self._ready, None
        run = run or self._bind(self.life if of is None else of)
        try:
            if not run.begun:
                self._schema = run.reading.begin()
        except BaseException:
            self._end(run.reading)
            raise
        return run.reading

    def _end(self, reading: StatementReading | ApartReading) -> None:
        with self._lock:
            self._readings.discard(reading)
        reading.close()

    # ---- taking it --------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            run = _Run(self._begin(None), begun=True)
            with self._lock:
                ready, self._ready = self._ready, run
            if ready is not None:
                self._end(ready.reading)
        return self._schema

    def to_arrow(self) -> pa.Table:
        batches = list(self._batches(whole=True))
        return pa.Table.from_batches(batches, self.schema)

    def _batches(self, whole: bool, of: Cancellable | None = None) -> Iterator[pa.RecordBatch]:
        began, spent, rows, size = perf_counter(), 0.0, 0, 0
        watch = Watch(Limits(NEVER, self._limits.rows, self._limits.bytes), self.life if of is None else of)
        reading: StatementReading | ApartReading | None = None
        with self._in_system_queries():
            try:
                reading = self._begin(of)
                while (batch := reading.next()) is not None:
                    watch.check()
                    rows, size = rows + batch.num_rows, size + batch.nbytes
                    watch.count(rows)
                    watch.take(batch.nbytes)
                    if batch.num_rows:
                        spent += perf_counter() - began
                        yield batch
                        began = perf_counter()
                    if not whole:
                        watch.held = 0
                self._scans = list(reading.scans)
                self._costs(self._scans)
                self._returned(rows, size, self._used.seconds + spent + perf_counter() - began)
            finally:
                if reading is not None:
                    self._end(reading)

    def _first(self, rows: int, of: Cancellable | None = None) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        left = rows
        reading = self._begin(of)
        try:
            while left > 0 and (batch := reading.next()) is not None:
                found.append(batch.slice(0, left))
                left -= found[-1].num_rows
        finally:
            self._end(reading)
        return found

    # ---- what is known about it -------------------------------------------------------------------------

    @property
    def scans(self) -> list[TableScan]:
        """What was read of tables, when it was last read to its end; `EXPLAIN` tells it before."""
        return self._scans

    @property
    def about(self) -> int:
        """About how many rows its tables have, and those that came with it."""
        frames: int = sum(frame.num_rows for frame in self._inputs.frames.values())
        return frames + sum(table.about for table in self._inputs.tables.values())

    @property
    def generations(self) -> dict[str, int]:
        return self._inputs.generations

    @property
    def cancelled(self) -> bool:  # type: ignore[override]
        return self.life.cancelled

    def cancel(self) -> None:
        self.life.cancelled = True
        with self._lock:
            readings = list(self._readings)
        for reading in readings:
            reading.interrupt()
        self.let_go()

    def let_go(self) -> None:
        """Of the run that is ready to begin; the next reading makes a new one."""
        with self._lock:
            ready, self._ready = self._ready, None
        if ready is not None:
            self._end(ready.reading)

    def __del__(self) -> None:
        if getattr(self, "_ready", None) is not None:
            self.let_go()


_all: weakref.WeakSet[SqlResult] = weakref.WeakSet()
_waiting: deque[weakref.ref[SqlResult]] = deque()
_MOST_WAITING = 2
"""Results that have a process apart although nobody reads them yet."""


def _waits(result: SqlResult) -> None:
    _waiting.append(weakref.ref(result))
    while len(_waiting) > _MOST_WAITING:
        with suppress(IndexError):  # another thread was faster
            earlier = _waiting.popleft()()
            if earlier is not None:
                earlier.let_go()


@atexit.register
def _let_go_of_all() -> None:
    """DuckDB complains at the end of the process about what is still there."""
    for result in list(_all):
        result.let_go()
