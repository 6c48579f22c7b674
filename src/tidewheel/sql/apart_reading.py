"""One run of a statement in a process apart. Its tables are scanned here, within its limits; its errors are those it would have here."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import pyarrow as pa

from tidewheel.duck.connect import working_memory
from tidewheel.duck.error_text import said_by_duckdb
from tidewheel.errors import CancelledError, LimitError, QueryError
from tidewheel.read import apart
from tidewheel.read.apart import Apart, Wrong, WrongError, unpacked
from tidewheel.read.limits import FREE, Cancellable, Limits
from tidewheel.sql.asking import Asking, Used
from tidewheel.sql.ddl import Change
from tidewheel.sql.execution import BATCH_ROWS, Inputs, out_of_memory, too_late
from tidewheel.sql.explained import Explained
from tidewheel.sql.parameters import Parameters
from tidewheel.sql.statement import Statement
from tidewheel.sql.table_scan import TableScan


class _Clock:
    """The time of a statement: it runs while the statement is worked on, not while its reader does something else."""

    def __init__(self, limits: Limits, of: Cancellable, used: Used) -> None:
        self._limits = limits
        self._of = of
        self._left = limits.seconds - used.seconds
        self.started = used.started
        self._deadline = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        began = perf_counter()
        self._deadline = began + self._left
        try:
            yield
        finally:
            self._left -= perf_counter() - began

    @contextmanager
    def starting(self) -> Iterator[None]:
        """While a process starts: `check` is generous then, once for each statement."""
        began, free = perf_counter(), FREE - self.started
        self._deadline = began + self._left + free
        try:
            yield
        finally:
            took = perf_counter() - began
            self.started += min(free, took)
            self._left -= max(0.0, took - free)

    def left(self) -> float:
        """Seconds, while it runs."""
        return self._deadline - perf_counter()

    def check(self) -> None:
        self.wanted()
        if perf_counter() > self._deadline:
            raise too_late(self._limits.seconds)

    def wanted(self) -> None:
        if self._of.cancelled:
            raise CancelledError("the statement was cancelled; ask it again")


class ApartReading:
    """Used by one thread, `interrupt` by any. `close` it in any case. What `sql/execution.py` is in this process."""

    def __init__(self, inputs: Inputs, limits: Limits, of: Cancellable, used: Used) -> None:
        self._inputs = inputs
        self._limits = limits
        self._memory = working_memory(limits.bytes)
        self._clock = _Clock(limits, of, used)
        self._apart: Apart | None = None
        self.scans: list[TableScan] = []

    def bind(self, text: str, parameters: Parameters) -> None:
        """Names and types are known to be right then."""
        self._ask({"kind": "statement", "text": text, "parameters": parameters, "batch_rows": BATCH_ROWS})

    def begin(self) -> pa.Schema:
        """Let the first rows come."""
        with self._working() as work:
            work.tell(apart.GO, self._clock.check)
            kind, data = work.until((apart.SCHEMA, apart.DONE), self._clock.check)
        assert kind == apart.SCHEMA
        return pa.ipc.read_schema(data)

    def next(self) -> pa.RecordBatch | None:
        """The next rows; None: there are no more."""
        with self._working() as work:
            kind, data = work.until((apart.ROWS, apart.DONE), self._clock.check)
        return unpacked(data) if kind == apart.ROWS else None

    def explain(self, text: str, parameters: Parameters, analyze: bool) -> Explained:
        """How it would be run, or, with `analyze`, was."""
        self.close()
        self._ask({"kind": "explain", "text": text, "parameters": parameters, "analyze": analyze})
        with self._working() as work:
            work.tell(apart.GO, self._clock.check)
            _, data = work.until((apart.DONE,), self._clock.check)
        found: Explained = pickle.loads(data)
        return found

    def _ask(self, job: dict[str, Any]) -> None:
        tables = {name: (table.spec, table.about) for name, table in self._inputs.tables.items()}
        self._clock.wanted()
        frames = {name: frame.schema for name, frame in self._inputs.frames.items()}
        others = dict(self._inputs.others)
        given = {**job, "root": str(self._inputs.root), "tables": tables, "others": others, "frames": frames, "at": self._inputs.at}
        with self._clock.starting():
            self._apart = Apart(given, self._open, self._memory, self._clock.check)
        with self._working() as work:
            work.until((apart.BOUND, apart.DONE), self._clock.check)

    def _open(self, asked: str | tuple[str, list[str], Any]) -> Iterator[pa.RecordBatch]:
        """The rows of a frame by its name, or those of a table that a scan asks for."""
        if isinstance(asked, str):
            return iter(self._inputs.frames[asked].to_batches(max_chunksize=BATCH_ROWS))
        scan = self._inputs.scan(*asked, self._limits, self._clock.left())
        self.scans.append(scan)
        return iter(scan)

    @contextmanager
    def _working(self) -> Iterator[Apart]:
        assert self._apart is not None
        try:
            with self._clock.running():
                yield self._apart
        except WrongError as e:
            raise _error(e.wrong, self._memory, self._inputs.columns()) from None
        except CancelledError:
            raise
        except LimitError:
            if self._clock.left() > 0:
                raise
            raise too_late(self._limits.seconds) from None  # a scan has said so, of the seconds that were left to it

    @property
    def started(self) -> float:
        """Seconds that processes took to start, of those that are not the statement's time."""
        return self._clock.started

    def interrupt(self) -> None:
        """Whoever waits looks every few milliseconds whether the statement was cancelled."""

    def close(self) -> None:
        """Let the process go on to other work. May be called twice."""
        work, self._apart = self._apart, None
        if work is not None:
            work.close()


def parsed_apart(text: str, original: str, limits: Limits, asking: Asking) -> Statement | Change:
    """What a long statement is; looking at it is a part of its time."""
    clock = _Clock(limits, _Wanted(), asking.used)
    memory = working_memory(limits.bytes)
    with clock.starting():
        work = Apart({"kind": "parse", "text": text, "original": original}, iter, memory, clock.check)
    asking.started = clock.started
    try:
        with clock.running():
            found: Statement | Change = pickle.loads(work.until((apart.DONE,), clock.check)[1])
        return found
    except WrongError as e:
        raise _error(e.wrong, memory, []) from None
    finally:
        work.close()


class _Wanted:
    cancelled = False


def _error(wrong: Wrong, memory: float, columns: list[str]) -> Exception:
    match wrong.kind:
        case "memory":
            return out_of_memory(memory, wrong.message)
        case "interrupted":
            return CancelledError("the statement was interrupted; ask it again")
        case "query":
            return QueryError(said_by_duckdb(wrong.message, columns))
        case _:
            return QueryError(wrong.message)
