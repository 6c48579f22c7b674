"""The program of a worker (`env/workers.py`): runs statements in DuckDB for the process that started it, one at a time.

It holds nothing of a warehouse. The rows of a table are asked for batch by batch; the other process answers only while it waits for the
statement's own rows. The main thread listens, so that this process ends with the other one, and a statement stops when it is told to.
"""

from __future__ import annotations

import itertools
import os
import pickle
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.duck.evaluator import ROWS
from tidewheel.duck.expressions import looked_at
from tidewheel.duck.failures import BROKEN, DuckError, is_interrupt, is_out_of_memory
from tidewheel.duck.parser import TOO_DEEP
from tidewheel.env.without_pandas import let_in
from tidewheel.env.workers import IDLE, READY, EndedError, Line
from tidewheel.errors import LimitError, TidewheelError
from tidewheel.model.conditions import Condition
from tidewheel.model.schema import TableSpec
from tidewheel.read import apart
from tidewheel.read.apart import Wrong, packed, unpacked
from tidewheel.sql.database import Session, database
from tidewheel.sql.explained import explained
from tidewheel.sql.statement import parsed
from tidewheel.sql.streamed import Streamed

if TYPE_CHECKING:
    from tidewheel.duck.connect import Connection

_LINUX = sys.platform == "linux"
_ABOVE = 192 << 20
"""Bytes that may be reserved besides one and a half times the memory of the work: reserved is not used yet."""
_KEPT = 128 << 20
"""Bytes that may stay reserved from one work to the next: they are taken from the limit of what comes."""
_DEEPEST = 4_000
"""Levels of a condition that can be handed on."""
_EVALUATOR = Path("·")


@dataclass(frozen=True, slots=True)
class _Table:
    """What a session has to know of a table."""

    spec: TableSpec
    about: int


class _Process:
    def __init__(self, line: Line) -> None:
        self._line = line
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._answers: dict[int, SimpleQueue[tuple[int, Any]]] = {}
        self._go: SimpleQueue[bool] = SimpleQueue()
        self._connection: Connection | None = None
        self._stopped = False
        self.busy = threading.Event()

    # ---- the main thread --------------------------------------------------------------------------------

    def listen(self) -> None:
        """Until nobody is there any more, or nothing was asked for a while."""
        self._send(READY)
        since = time.monotonic()
        while True:
            if self.busy.is_set():
                since = time.monotonic()
            if self._line.silent(1.0):  # not longer: the work may end meanwhile, and nobody says so here
                if not self.busy.is_set() and time.monotonic() > since + IDLE:
                    return
                continue
            kind, number, data = self._line.receive(pa.allocate_buffer)
            if kind == apart.JOB:
                self._stopped, self._go = False, SimpleQueue()
                self.busy.set()
                threading.Thread(target=self._work, args=(_loaded(data),), daemon=True).start()
            elif kind == apart.GO:
                self._go.put(True)
            elif kind == apart.STOP:
                self._stop()
            elif (waiting := self._answers.get(number)) is not None:
                waiting.put((kind, data))

    def _stop(self) -> None:
        self._stopped = True
        self._go.put(False)
        for waiting in list(self._answers.values()):
            waiting.put((apart.FAIL, None))
        if (connection := self._connection) is not None:
            with suppress(DuckError):
                connection.interrupt()

    def _send(self, kind: int, number: int = 0, data: Any = b"") -> None:
        with self._sending:
            self._line.send(kind, number, data)

    # ---- the work ---------------------------------------------------------------------------------------

    def _work(self, job: dict[str, Any]) -> None:
        last: tuple[int, Any]
        broken = False
        try:
            _limit_memory(job["memory"])
            last = apart.DONE, getattr(self, f"_{job['kind']}")(job)
        except BaseException as e:
            last, broken = (apart.ERROR, wrong(e)), isinstance(e, BROKEN)
        try:
            _limit_memory(None)
            self._answers.clear()
            data = pickle.dumps(last[1])
            self.busy.clear()
            used_up = broken or job["memory"] is not None and _reserved() > _BASE + _KEPT
            self._send(last[0], apart.USED_UP if used_up else 0, data)
        except BaseException:
            os._exit(1)  # or the other process would wait for a word that never comes

    def _parse(self, job: dict[str, Any]) -> Any:
        return parsed(job["text"], job["original"])

    def _look(self, job: dict[str, Any]) -> Any:
        return looked_at(job["text"], job["names"], job["aggregates"])

    def _statement(self, job: dict[str, Any]) -> None:
        with _Lent(self, job) as session:
            relation = session.bind(job["text"], job["parameters"])
            self._send(apart.BOUND)
            if self._go.get():
                self._hand_over(relation.to_arrow_reader(job["batch_rows"]))

    def _explain(self, job: dict[str, Any]) -> Any:
        with _Lent(self, job) as session:
            session.bind(job["text"], job["parameters"])
            self._send(apart.BOUND)
            if not self._go.get():
                return None
            return explained(session, _tables(job), job["text"], job["parameters"], job["analyze"])

    def _evaluate(self, job: dict[str, Any]) -> None:
        """A statement over `ROWS`, which are read once."""
        with _Lent(self, job) as session:
            rows = pa.RecordBatchReader.from_batches(job["schema"], self.rows(None))
            session.connection.register(ROWS, rows)
            session.prepare(job["text"])
            try:
                self._hand_over(session.connection.sql(job["text"]).to_arrow_reader())
            finally:
                session.connection.unregister(ROWS)

    def _hand_over(self, reader: pa.RecordBatchReader) -> None:
        self._send(apart.SCHEMA, data=reader.schema.serialize())
        while not self._stopped and (batch := next(reader, None)) is not None:
            self._send(apart.ROWS, data=packed(batch))

    # ---- rows of tables ---------------------------------------------------------------------------------

    def open(self, spec: TableSpec, columns: list[str], condition: Condition | None) -> Iterable[pa.RecordBatch]:
        return self.rows((spec.name, columns, condition))

    def rows(self, asked: Any) -> Iterator[pa.RecordBatch]:
        """One more is always asked for than was come by: the other process reads while this one works."""
        number = next(self._numbers)
        answers = self._answers[number] = SimpleQueue()
        self._send(apart.SCAN, number, pickle.dumps(asked))
        self._send(apart.NEXT, number)
        try:
            while not self._stopped:
                self._send(apart.NEXT, number)
                kind, data = answers.get()
                if kind == apart.END:
                    return
                if kind == apart.FAIL:
                    raise RuntimeError("the rows of a table could not be read")
                yield unpacked(data)
            raise RuntimeError("nobody wants more")
        finally:
            self._answers.pop(number, None)
            self._send(apart.LEAVE, number)

    def runs(self, connection: Connection | None) -> None:
        self._connection = connection


class _Lent:
    """A session for one job."""

    def __init__(self, process: _Process, job: dict[str, Any]) -> None:
        self._process = process
        self._root = Path(job.get("root", _EVALUATOR))
        self._database = database(float("inf") if job["memory"] is None else job["memory"])
        self._session = self._database.take(self._root)
        frames = {name: Streamed(schema, partial(process.rows, name)) for name, schema in job.get("frames", {}).items()}
        self._session.begin(_tables(job), job.get("others", {}), frames, process.open, job.get("at"))

    def __enter__(self) -> Session:
        self._process.runs(self._session.connection)
        return self._session

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._process.runs(None)
        self._database.give_back(self._session, self._root, kind is None)


def _loaded(data: Any) -> Any:
    try:
        return pickle.loads(data)
    except ModuleNotFoundError:  # a parameter that is a value of pandas
        let_in()
        return pickle.loads(data)


def _tables(job: dict[str, Any]) -> dict[str, Any]:
    return {name: _Table(*about) for name, about in job.get("tables", {}).items()}


def wrong(error: BaseException) -> Wrong:
    """What went wrong, as the other process is told of it."""
    message = str(error).partition("\n\nStack Trace:")[0]
    if isinstance(error, (MemoryError, pa.ArrowMemoryError)) or is_out_of_memory(error):
        return Wrong("memory", message.split("\n")[0].split("Error: ", 1)[-1])
    if isinstance(error, LimitError):
        return Wrong("memory", message)
    if isinstance(error, TidewheelError):
        return Wrong("said", message)
    if isinstance(error, RecursionError):
        return Wrong("said", TOO_DEEP)
    if is_interrupt(error):
        return Wrong("interrupted", message)
    if isinstance(error, (DuckError, pa.ArrowException, OSError)):
        return Wrong("query", message)
    return Wrong("memory" if "bad_alloc" in message else "said", f"{type(error).__name__}: {message}")


def _limit_memory(memory: int | None) -> None:
    """The other process looks at this one's memory every few milliseconds; what is asked for at once must fail at once."""
    if _LINUX:
        most = resource.RLIM_INFINITY if memory is None else _BASE + memory * 3 // 2 + _ABOVE
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))


def _reserved() -> int:
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmData:"):
                return int(line.split()[1]) << 10
    return 0


def _leave_with(parent: int) -> None:
    """A fork of the other process may keep its end open when it is gone."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


_BASE = 0


def main() -> None:
    global _BASE
    sys.setrecursionlimit(_DEEPEST)
    threading.Thread(target=_leave_with, args=(int(sys.argv[2]),), daemon=True).start()
    database(1 << 30)
    pa.allocate_buffer(1 << 20)  # with its first large array, Arrow's allocator reserves much more than that
    _BASE = _reserved()
    with suppress(EndedError):
        _Process(Line(socket.socket(fileno=int(sys.argv[1])))).listen()
    os._exit(0)  # at once: whatever still runs, nobody waits for it
