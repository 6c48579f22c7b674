"""The owner's side of every request: a value in, a call of the engine, a value out. Nothing is decided here.

Knows nothing of the transport. Every method may be called from any thread; no lock is held while the engine works.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from tidewheel.cluster import requests as ask
from tidewheel.cluster.sessions import HeldResult, Life, Reading, Sessions
from tidewheel.cluster.wire import encode, has_dictionary, stream, unstream
from tidewheel.engine.operations import ListTables
from tidewheel.engine.protocol import Engine, PinnedTable, TableEngine, TableQuestion
from tidewheel.env.deadline import Within
from tidewheel.errors import CancelledError, ClosedError, InputError, NotFoundError, OwnedError, TidewheelError
from tidewheel.model.delivery import RowStream
from tidewheel.model.report import Progress
from tidewheel.model.schema import TableSpec
from tidewheel.read.local_result import LocalResult
from tidewheel.read.result import Result
from tidewheel.write.arrow_input import InputColumns
from tidewheel.write.soundness import check_schema, settled_rows, unreadable_text

FEW_ROWS = 4096
"""A result that looks at no more rows than this is read at once and sent with the answer: one way there and back, nothing to hold."""

_FEW_BYTES = 4 << 20

_SOON = 0.05
"""Seconds that such a result may take."""

_TELL = 0.05
"""Seconds between two messages about the progress of long work."""

Answer = tuple[Any, pa.Buffer | None]
Rows = Iterator[tuple[pa.RecordBatch | None, Any]]


class Handlers:
    def __init__(self, engine: Engine, epoch: int) -> None:
        self.engine = engine
        self.epoch = epoch
        self.sessions = Sessions()
        self._tables: dict[int, tuple[str, weakref.ref[TableEngine]]] = {}
        self._plain: dict[str, tuple[TableSpec, bool]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def _welcome(self, request: ask.Attach) -> ask.Welcome:
        if request.protocol != ask.PROTOCOL:
            raise OwnedError(
                f"the owner of {self.engine.root} speaks version {ask.PROTOCOL} of the protocol, and this process (Tidewheel "
                f"{request.version}) version {request.protocol}; use the same Tidewheel in both, or close the warehouse there first",
                retryable=False,
            )
        self.engine.do(ListTables())  # raises if it is not the owner any more
        return ask.Welcome(self.epoch, self.engine.settings, self.engine.recovery)

    def answer(self, session: str, request: Any, rows: pa.Buffer, progress: Progress | None = None) -> Answer:
        """What the engine says to a request that came in one piece."""
        match request:
            case ask.OnTable(table, operation):
                return self._table(table).do(operation), None
            case ask.AskTable(table, question):
                return self._asked(session, self._table(table), question)
            case ask.GiveTable():
                try:
                    schema, batches = unstream(rows)
                except (pa.ArrowException, OSError, ValueError) as e:
                    name = self._table(request.table).spec.name
                    raise InputError(f"table {name!r}: these rows are no Arrow IPC stream: {e}; nothing was done") from e
                return self.take(request, schema, batches), None
            case ask.PinTable(table, release):
                self.sessions.release(session, release)
                return self._pinned(session, [self._table(table).pinned()]), None
            case ask.AskPinned(held, place, query):
                pinned = self.sessions.version(session, held, place)
                return self._shipped(session, pinned.query(query), pinned.spec, held)
            case ask.PinTables(names, release):
                self.sessions.release(session, release)
                return self._pinned(session, self.engine.versions(names)), None
            case ask.ResultRequest():
                return self._of_result(request, self.sessions.get(session, request.result))
            case ask.Release(results, readings):
                self.sessions.release(session, results)
                for result, reading in readings:
                    with suppress(NotFoundError):
                        self.sessions.get(session, result).readings.pop(reading, None)
                return None, None
        return self._of_warehouse(request, progress), None

    def take(self, request: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Any:
        """The engine's answer to a request with rows, which may still be on their way."""
        if not isinstance(request, ask.GiveTable):
            raise TidewheelError(f"{type(request).__name__} is no request with rows")
        table, delivery = self._table(request.table), request.delivery
        name = table.spec.name
        check_schema(schema, name)
        arrived = (aligned(batch, name) for batch in batches)
        with Within(request.timeout):
            streamed = delivery.streamed
            return table.give(delivery, RowStream(schema, arrived) if streamed else _rows(request.values, schema, list(arrived), name))

    # ---- one piece --------------------------------------------------------------------------------------

    def _of_warehouse(self, request: Any, progress: Progress | None) -> Any:
        match request:
            case ask.Attach():
                return self._welcome(request)
            case ask.OnWarehouse(operation):
                return self.engine.do(operation, progress)
            case ask.OpenTable(name):
                return self._opened(self.engine.table(name))
            case ask.CreateTable(spec, if_exists):
                return self._opened(self.engine.create(spec, if_exists))
        raise TidewheelError(f"the owner does not know the request {type(request).__name__}")

    def _asked(self, session: str, table: TableEngine, question: TableQuestion) -> Answer:
        return self._shipped(session, table.ask(question), table.spec)

    def _shipped(self, session: str, result: Result, spec: TableSpec, of: int = 0) -> Answer:
        return self.ship(session, result, result.schema is spec.schema and self._is_plain(spec), of)

    def _pinned(self, session: str, tables: Sequence[PinnedTable]) -> ask.PinnedTables:
        said = tuple(ask.PinnedAs(table.spec, table.generation, table.about) for table in tables)
        return ask.PinnedTables(self.sessions.hold_versions(session, tables), said)

    # ---- tables -----------------------------------------------------------------------------------------

    def _opened(self, table: TableEngine) -> ask.Opened:
        with self._lock:
            for number, (_, known) in self._tables.items():
                if known() is table:
                    return ask.Opened(number, table.spec)
            number = next(self._numbers)
            self._tables[number] = table.spec.name, weakref.ref(table)
            return ask.Opened(number, table.spec)

    def _table(self, number: int) -> TableEngine:
        name, found = self._tables[number]
        table = found()
        if table is None:
            raise ClosedError(f"table {name!r} was dropped")
        return table

    def _is_plain(self, spec: TableSpec) -> bool:
        """Whether a batch of a table can be sent without its schema: dictionaries come with that."""
        known = self._plain.get(spec.name)
        if known is None or known[0] is not spec:
            known = self._plain[spec.name] = spec, not any(has_dictionary(field.type) for field in spec.schema)
        return known[1]

    # ---- results ----------------------------------------------------------------------------------------

    def ship(self, session: str, result: Result, bare: bool = False, of: int = 0) -> Answer:
        """A result on its way to whoever asked: with its rows if they are few, else with the number to read it by.

        `of`: the number of the versions that were asked."""
        if result.is_small(FEW_ROWS) and (answer := self._with_rows(result, bare)) is not None:
            return answer
        held, cheap = self.sessions.hold(session, result, of), result._counts_cheaply()
        return ask.Answer(held, result.generation, result.stats, result.warning, result.known_rows(), cheap), stream(result.schema)

    def _with_rows(self, result: Result, bare: bool) -> Answer | None:
        """What goes wrong here goes wrong again when it is read, and then it is the reader's; so is what takes long."""
        stats = result.stats
        planned, cheap = stats.milliseconds, result._counts_cheaply()
        try:
            batches: list[pa.RecordBatch] | None = list(result._batches(True, _Soon(result)))
            plan = encode(result.packed_plan() if isinstance(result, LocalResult) else result.plan)
        except TidewheelError:
            batches = None
        if batches is None or stats.bytes > _FEW_BYTES:
            stats.rows_returned, stats.bytes, stats.milliseconds = 0, 0, planned
            return None
        read = stats.rows_returned, stats.bytes, stats.milliseconds
        stats.rows_returned, stats.bytes, stats.milliseconds = 0, 0, planned
        bare = bare and len(batches) == 1
        answer = ask.Answer(0, result.generation, stats, result.warning, read[0], cheap, bare, plan, read)
        return answer, batches[0].serialize() if bare else stream(result.schema, batches)

    def _of_result(self, request: ask.ResultRequest, held: HeldResult) -> Answer:
        result = held.result
        match request:
            case ask.GetPlan():
                return result.plan, None
            case ask.Cancel():
                result.cancel()
                return None, None
        raise TidewheelError(f"the owner does not know the request {type(request).__name__}")

    def read(self, session: str, request: Any, is_over: Callable[[], bool]) -> tuple[pa.Schema, Rows]:
        """Rows of a result, each batch with what is to be said behind it: nothing yet, or the last word, which may be an error.

        `is_over` says whether the reader is gone; then the work ends.
        """
        held = self.sessions.get(session, request.result)
        return held.result.schema, self._read(held, request, is_over)

    def _read(self, held: HeldResult, request: Any, is_over: Callable[[], bool]) -> Rows:
        try:
            match request:
                case ask.Read():
                    yield from self._window(held, request, is_over)
                case ask.First(_, rows):
                    with (life := Life(held.result)).until(is_over):
                        batches = held.result._first(rows, life)
                    yield from ((batch, None) for batch in batches)
                    yield None, ask.Counted(rows)
                case ask.Count():
                    with (life := Life(held.result)).until(is_over):
                        rows = held.result._count(life)
                    yield None, ask.Counted(rows)
        except Exception as e:
            yield None, e

    def _window(self, held: HeldResult, request: ask.Read, is_over: Callable[[], bool]) -> Rows:
        sent = 0
        reading = held.readings.pop(request.reading, None)
        if request.begin:
            life = Life(held.result)
            reading = Reading(held.result._batches(request.whole, life), life)
        if reading is None:
            raise NotFoundError("this reading of a result was broken off; read the result again")
        last: pa.RecordBatch | None = None
        with reading.life.until(is_over):
            for batch in reading.batches:
                sent += batch.nbytes
                if 0 < request.window <= sent:
                    last = batch
                    break
                yield batch, None
        if last is None:
            yield None, ask.NoMoreRows(held.result.stats)
        else:
            held.readings[request.reading] = reading  # first: as soon as this is said, the next window may be asked for
            yield last, ask.More()


class _Soon:
    """Cancels the reading of a result after `_SOON` seconds: only a short answer is sent back with its question."""

    __slots__ = ("_end", "_result")

    def __init__(self, result: Result) -> None:
        self._result = result
        self._end = time.monotonic() + _SOON

    @property
    def cancelled(self) -> bool:
        return self._result.cancelled or time.monotonic() > self._end


def _rows(values: ask.Values | None, schema: pa.Schema, batches: list[pa.RecordBatch], table: str) -> Any:
    """What was inserted, as the caller had it. Columns beside Python values are looked at here, all else where it is accepted."""
    if values is None:
        return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches, schema)
    unreadable = unreadable_text(batches[0], table) if batches else frozenset()
    arrays = dict(zip(schema.names, settled_rows(batches[0]).columns, strict=True)) if batches else {}
    columns = {name: values.lists[name] if name in values.lists else arrays[name] for name in values.names}
    if any(len(column) != values.rows for column in columns.values()):
        raise InputError(f"table {table!r}: the columns do not all have {values.rows} rows; nothing was inserted")
    return InputColumns(values.rows, columns, unreadable)


def aligned(batch: pa.RecordBatch, table: str) -> pa.RecordBatch:
    """Rows where numbers may lie: those of a short message lie anywhere, and kernels will look at them for as long as they are fresh."""
    buffers = (buffer for column in batch.columns for buffer in column.buffers() if buffer is not None)
    if all(buffer.address % 8 == 0 for buffer in buffers):
        return batch
    unreadable_text(batch, table)  # first: a copy reads all of it
    return unstream(stream(batch.schema, [batch]))[1][0]


class Progressing:
    """Long work that tells how far it is: iterate over it for what it tells, at last what comes of it (a value or an error).

    The work is done in a thread of its own. If nobody iterates any more, it ends the next time it would tell.
    """

    def __init__(self, work: Callable[[Progress], Any]) -> None:
        self._work = work
        self._told: SimpleQueue[tuple[bool, Any]] = SimpleQueue()
        self._unwanted = False
        self._last = 0.0

    def __iter__(self) -> Iterator[Any]:
        threading.Thread(target=self._run, name="tidewheel-care", daemon=True).start()
        try:
            over = False
            while not over:
                over, value = self._told.get()
                yield value
        finally:
            self._unwanted = True

    def _run(self) -> None:
        try:
            outcome = self._work(self._tell)
        except BaseException as e:
            outcome = e
        self._told.put((True, outcome))

    def _tell(self, done: int, total: int) -> None:
        if self._unwanted:
            raise CancelledError("nobody waits for this any more")
        now = time.monotonic()
        if now - self._last > _TELL or done >= total:
            self._last = now
            self._told.put((False, ask.Progressed(done, total)))
