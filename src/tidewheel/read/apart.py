"""A piece of work in a process apart: what DuckDB might not end in time, or within its memory, if it were asked to.

The worker (`sql/apart_process.py`) has DuckDB and nothing else of the warehouse: rows of tables come to it from here, where they are
pinned and scanned as ever, and what it makes of them comes back batch by batch. All that it says is handled by the thread that waits for
its answer, which looks at the clock and at the worker's memory meanwhile, and ends the worker if it takes more than it may.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any

import pyarrow as pa

from tidewheel.env.workers import TICK, EndedError, Worker, workers
from tidewheel.errors import LimitError, QueryError, TidewheelError
from tidewheel.model.dataclass import dataclass
from tidewheel.read.limits import NEVER, shown

# from here to there
JOB, BATCH, END, FAIL, GO, STOP = 1, 2, 3, 4, 5, 6
# and back
SCAN, NEXT, LEAVE, BOUND, SCHEMA, ROWS, DONE, ERROR = 10, 11, 12, 13, 14, 15, 16, 17

_SLACK = 64 << 20
"""Bytes that a worker may have besides those of the work: its threads, and what DuckDB keeps."""

USED_UP = 1
"""The number of a last word: this worker keeps too much memory to do other work."""

_STALLED = 15.0
"""Seconds without any work, after which a worker that is waited for is taken to be lost: out of memory, DuckDB may lock itself up."""

_GRACE = 0.25
"""Seconds that a worker is given to stop what nobody wants any more."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """An error of a worker, as it crosses to the process that waits for it."""

    kind: str
    """`memory`, `interrupted`, `query`: a message of DuckDB's, or `said`: one of ours."""
    message: str


class WrongError(Exception):
    """The work failed; `wrong` says how."""

    def __init__(self, wrong: Wrong) -> None:
        super().__init__(wrong.message)
        self.wrong = wrong


Opens = Callable[[Any], Iterable[pa.RecordBatch]]
"""Begins a scan that the worker asks for."""


class Apart:
    """One piece of work, done for one thread. `close` it in any case."""

    def __init__(self, job: dict[str, Any], opens: Opens, memory: float, alive: Callable[[], None]) -> None:
        """`memory`: bytes that the work may take. `alive` is called while a process starts, and raises if nobody wants it any more."""
        self._opens = opens
        self._memory = memory
        self._scans: dict[int, Iterator[pa.RecordBatch]] = {}
        self._failures: list[BaseException] = []
        self._check: Callable[[], None] = alive
        self._work, self._worked, self._look_at_work = "", monotonic(), monotonic() + 1.0
        self._look_at_memory = monotonic()
        self._over = False
        self._used_up = False
        self._worker: Worker | None = workers.take(alive)
        self._most = NEVER
        if memory != NEVER and self._worker.memory():
            self._most = self._worker.base + memory + _SLACK
        try:
            self._tell(JOB, data=_dumped({**job, "memory": None if memory == NEVER else int(memory)}))
        except BaseException:
            self.close()
            raise

    # ---- what its user does -----------------------------------------------------------------------------

    def tell(self, kind: int, check: Callable[[], None]) -> None:
        self._check = check
        self._tell(kind)

    def until(self, wanted: Iterable[int], check: Callable[[], None]) -> tuple[int, Any]:
        """The next word of these kinds. Raises WrongError if the work failed, and what `check` raises."""
        self._check = check
        self._worked = monotonic()
        while True:
            kind, number, data = self._hear()
            self._look()  # whoever always has something to say is never waited for
            if kind == SCAN:
                self._scan(number, pickle.loads(data))
            elif kind == NEXT:
                self._next(number)
            elif kind == LEAVE:
                self._scans.pop(number, None)
            elif kind == ERROR:
                self._over, self._used_up = True, number == USED_UP
                raise self._failure() or WrongError(pickle.loads(data))
            else:
                if kind == DONE:
                    self._over, self._used_up = True, number == USED_UP
                if kind in wanted:
                    return kind, data

    def close(self) -> None:
        """Let the worker go, to its next work or for good. May be called twice."""
        worker, self._worker = self._worker, None
        self._scans.clear()
        self._failures.clear()  # an error that is reached from its own traceback would stay, and all its frames with it
        if worker is None:
            return
        if not self._over:
            self._over = _stopped(worker)
        if self._over and not self._used_up:
            workers.give_back(worker)
        else:
            workers.end(worker)

    # ---- what the worker asks for -----------------------------------------------------------------------

    def _scan(self, number: int, asked: Any) -> None:
        try:
            self._scans[number] = iter(self._opens(asked))
        except Exception as e:
            self._failures.append(e)

    def _next(self, number: int) -> None:
        scan = self._scans.get(number)
        batch: pa.RecordBatch | None = None
        try:
            batch = next(scan, None) if scan is not None else None
            self._worked = monotonic()  # it had to wait for us
        except Exception as e:
            self._scans.pop(number, None)
            self._failures.append(e)
        if batch is not None:
            self._tell(BATCH, number, packed(batch))
        else:
            self._tell(FAIL if self._failures else END, number)

    def _failure(self) -> BaseException | None:
        return next((one for one in self._failures if isinstance(one, TidewheelError)), None) or next(iter(self._failures), None)

    # ---- the talk ---------------------------------------------------------------------------------------

    def _tell(self, kind: int, number: int = 0, data: Any = b"") -> None:
        assert self._worker is not None
        try:
            self._worker.line.send(kind, number, data, self._look)
        except EndedError:
            raise self._ended() from None

    def _hear(self) -> tuple[int, int, Any]:
        assert self._worker is not None
        try:
            return self._worker.line.receive(pa.allocate_buffer, self._look)
        except EndedError:
            raise self._ended() from None

    def _look(self) -> None:
        """Whether it goes on. Whoever called is told why not; the worker is ended when it is let go of."""
        self._check()
        worker = self._worker
        if worker is not None and monotonic() > self._look_at_work:
            self._look_at_work = monotonic() + 1.0
            if (work := worker.work()) != self._work:
                self._work, self._worked = work, monotonic()
            elif monotonic() > self._worked + _STALLED:
                workers.end(worker)
                raise self._ended()
        if self._most == NEVER or worker is None or monotonic() < self._look_at_memory:
            return
        self._look_at_memory = monotonic() + TICK / 2
        if worker.memory() > self._most:
            workers.end(worker)
            raise too_large(self._memory)

    def _ended(self) -> Exception:
        """Most likely it was out of memory in a place where nothing but its end was left to it."""
        return LimitError(
            f"the process in which the statement ran has ended: it needed more than {shown(self._memory)} of memory, its max_bytes, or "
            "somebody ended it. Narrow the statement, raise max_bytes=, or ask again"
        )


def too_large(memory: float) -> LimitError:
    return LimitError(
        f"the statement needs more than {shown(memory)} of memory, its max_bytes; narrow it, or raise max_bytes= "
        "(for all: Settings.query_bytes)"
    )


def _stopped(worker: Worker) -> bool:
    """Ask a worker to stop what it does; whether it has, and can do other work."""
    if not worker.line.whole:  # the rest of a message would be taken for others
        return False
    give_up = monotonic() + _GRACE

    def patient() -> None:
        if monotonic() > give_up:
            raise EndedError

    with suppress(EndedError, OSError, ValueError):
        worker.line.send(STOP, check=patient)
        while True:
            kind, number, _ = worker.line.receive(bytearray, patient)
            if kind == NEXT:
                worker.line.send(FAIL, number, check=patient)
            if kind in (DONE, ERROR):
                return number != USED_UP
    return False


def packed(batch: pa.RecordBatch) -> pa.Buffer:
    """A batch with its schema, as one message."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write_batch(batch)
    return sink.getvalue()


def unpacked(data: Any) -> pa.RecordBatch:
    """The inverse; the rows stay where they are."""
    return pa.ipc.open_stream(data).read_next_batch()


def _dumped(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as e:
        raise QueryError(f"a parameter of the statement cannot be handed on: {e}") from None
