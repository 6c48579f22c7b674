"""A connection to the owner: the client's side of `cluster/service.py`. Imported when a process attaches, because Flight takes its time.

When the connection breaks, for whatever reason, it is `lost` for good. A thread waits for that, so it is mostly known before the next call.
An owner that hangs breaks nothing: its beats are missed (cluster/pulse.py). A call whose deadline passes ends with LimitError; the
connection stays as it is.
"""

from __future__ import annotations

import atexit
import gc
import math
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa
from pyarrow import flight

from tidewheel.cluster import sockets
from tidewheel.cluster.address import Door
from tidewheel.cluster.client_handles import Hold, Holdings
from tidewheel.cluster.exchange_pool import Lines
from tidewheel.cluster.owner_lost import BROKEN, late_during, lost_during, reason, wait_for_the_end
from tidewheel.cluster.pulse import Pulse, Wait
from tidewheel.cluster.requests import (
    PROGRESS,
    PROTOCOL,
    Answer,
    Attach,
    Complete,
    PinnedTables,
    Progressed,
    Release,
    ResultRequest,
    Stay,
    Welcome,
)
from tidewheel.cluster.wire import pack, unpack, unwrapped
from tidewheel.env import deadline
from tidewheel.env.deadline import Within
from tidewheel.env.steps import Aside
from tidewheel.errors import ClosedError, OwnerLostError, TidewheelError

GRACE = 0.3
"""Seconds that an answer may come late: an owner that lives ends a call in time itself, and knows better why."""

_ASIDE = 5.0
"""Seconds for what nobody waits for."""

_READ = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)


class Connection:
    """One session with an owner. Every method may be called from any thread."""

    def __init__(self, root: Path, door: Door, version: str, timeout: float, root_certificates: bytes | None = None) -> None:
        """Attach, or raise: OwnerLostError if nobody answers, OwnedError if we do not understand each other."""
        self._root = root
        self.lost = False
        self._why = ""
        self._pid = os.getpid()
        self._session = secrets.token_hex(8)
        self._start = (door.token + self._session).encode()
        self._closed = False
        self._retired = False
        self.holdings = Holdings(self._let_go)
        self._lock = threading.Lock()
        self._aside = Aside()
        # a pool of its own: a connection that another client of this process broke must not be taken for ours
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        self._client = flight.FlightClient(door.location, tls_root_certs=root_certificates, generic_options=options)
        self._name = _name(door.location)
        sockets.track(self._client, self._name)
        itself = weakref.ref(self)
        self._pulse = Pulse(partial(_lose, itself), partial(sockets.cut, self._name))
        self._pulse.start()
        self._lines = Lines(self._client, self._start)
        first = Wait(monotonic() + timeout)
        self._pulse.begin(first)  # the stream that lasts can have no deadline of Flight's, but its beginning must have one
        try:
            self._presence = self._aside.run(partial(self._attach, version, timeout))
        except BaseException:
            self._pulse.stop()
            self._client.close()
            self._aside.close()
            sockets.forget(self._client)
            raise
        self._pulse.end(first)
        sockets.keep_in_child(self._presence)
        watched = (self._presence, self._pulse.beat, partial(_lose, itself))
        self._watch = threading.Thread(target=wait_for_the_end, args=watched, name="tidewheel-attached", daemon=True)
        self._watch.start()
        self._aside.start()
        _open.add(self)

    def _attach(self, version: str, timeout: float) -> Any:
        try:
            action = flight.Action("", self._start + pack(Attach(PROTOCOL, version)))
            (answer,) = self._client.do_action(action, flight.FlightCallOptions(timeout=timeout))
            word, _ = unpack(answer.body)
            if isinstance(word, Exception):
                raise word
            self.welcome: Welcome = word
            return self._client.do_get(flight.Ticket(self._start + pack(Stay(self._session))))
        except (*BROKEN, ValueError) as e:
            raise OwnerLostError(f"the owner does not answer: {reason(e)}", untouched=True) from None

    # ---- calls ------------------------------------------------------------------------------------------

    def call(self, request: Any, rows: pa.Buffer | None = None) -> tuple[Any, pa.Buffer, Hold | None]:
        """A request in one piece; its answer, the rows that come with it, and what stands here for what the owner holds from now on."""
        self._check(request)
        message = self._start + pack(request, rows)
        with self._guard(request) as wait:
            answer = self._aside.run(partial(self._answer, message, wait))
        if isinstance(answer[0], Exception):
            raise self._refused(answer[0])
        return answer

    def _answer(self, message: bytes, wait: Wait | None) -> tuple[Any, pa.Buffer, Hold | None]:
        """The hold is made with the answer, where no interrupt comes. If whoever asked is interrupted, it ends and tells the owner."""
        value, rows = unpack(self._lines.ask(message, wait))
        if isinstance(value, PinnedTables):
            return value, rows, self.holdings.versions(value.result)
        return value, rows, self.holdings.result(value.result) if isinstance(value, Answer) and value.result else None

    def ask(self, request: Any) -> Any:
        """A request in one piece, for a value."""
        return self.call(request)[0]

    def follow(self, request: Any, progress: Callable[[int, int], None]) -> Any:
        """A request whose answer takes long; `progress` is told how far it is, in the thread of the caller."""
        self._check(request)
        action = flight.Action(PROGRESS, self._start + pack(request))
        with self._guard(request):
            answers = self._client.do_action(action)
            while True:
                value, _ = unpack(self._aside.run(lambda: next(answers)).body)
                if not isinstance(value, Progressed):
                    break
                progress(value.done, value.total)
        if isinstance(value, Exception):
            raise self._refused(value)
        return value

    def put(self, request: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Any:
        """A request with a stream of rows. They are sent as they come; if `batches` fails, nothing was done."""
        self._check(request)
        descriptor = flight.FlightDescriptor.for_command(self._start + pack(request))
        try:
            with self._guard(request) as wait:
                value = self._aside.run(partial(self._put, descriptor, schema, _named(batches), _options(wait)))
        except _SenderError as e:
            raise e.error from None
        if isinstance(value, Exception):
            raise self._refused(value)
        return value

    def _put(self, descriptor: Any, schema: pa.Schema, batches: Iterator[pa.RecordBatch], options: Any) -> Any:
        writer, answers = self._client.do_put(descriptor, schema, options)
        rows = 0
        try:
            for batch in batches:
                try:
                    writer.write_batch(batch)
                except BROKEN:
                    break  # it has heard enough, or is gone: its answer tells
                rows += batch.num_rows
            else:
                with suppress(*BROKEN):
                    writer.write_metadata(pack(Complete(rows)))
                    writer.done_writing()
            said = answers.read()
            if said is None:
                writer.close()  # raises what broke it
                raise flight.FlightUnavailableError("the owner broke off")
            return unpack(said)[0]
        finally:
            with suppress(*BROKEN, pa.ArrowException):
                writer.close()

    def read(self, request: ResultRequest, seconds: float = math.inf, of: float | None = None) -> tuple[list[pa.RecordBatch], Any]:
        """Rows of a result, and the last word about them, within the seconds that are left of so many. An interrupt ends its work."""
        with Within(seconds, of):
            return self._read_now(request)

    def _read_now(self, request: ResultRequest) -> tuple[list[pa.RecordBatch], Any]:
        self._check(request)
        readers: list[Any] = []
        with self._guard(request) as wait:
            options = _options(wait, read_options=_READ)
            try:
                batches, word = self._aside.run(partial(self._read, flight.Ticket(self._start + pack(request)), readers, options))
            except BaseException:
                for reader in readers:  # an interrupt ends the wait alone
                    reader.cancel()
                raise
        if isinstance(word, Exception):
            raise self._refused(word)
        return batches, word

    def _read(self, ticket: Any, readers: list[Any], options: Any) -> tuple[list[pa.RecordBatch], Any]:
        reader = self._client.do_get(ticket, options)
        readers.append(reader)
        batches = []
        while True:
            chunk = reader.read_chunk()
            if chunk.data is not None and chunk.data.num_rows:
                batches += unwrapped(chunk.data)
            if chunk.app_metadata is not None:
                return batches, unpack(chunk.app_metadata)[0]

    # ---- what the owner holds for us --------------------------------------------------------------------

    def _let_go(self, number: int) -> None:
        self._aside.later(partial(self._release, number))

    def _release(self, number: int) -> None:
        if os.getpid() != self._pid:
            return
        with suppress(TidewheelError), Within(_ASIDE):
            if not self.lost:
                self.ask(Release((number,)))
        if self.holdings.gone(number) and self._retired:
            self.close()

    def drop_reading(self, result: int, reading: int) -> None:
        """Nobody wants the rest of it."""
        if not self.lost and not self._closed:
            self._aside.later(partial(self._drop_reading, result, reading))

    def _drop_reading(self, result: int, reading: int) -> None:
        with Within(_ASIDE):
            self.ask(Release((), ((result, reading),)))

    def seconds(self, timeout: Any) -> float:
        """What a query may take that names this timeout, or none."""
        named: Any = self.welcome.settings.query_seconds if timeout is None else timeout
        return float(named) if deadline.is_seconds(named) else math.inf

    # ---- its end ----------------------------------------------------------------------------------------

    def _check(self, request: Any) -> None:
        if os.getpid() != self._pid:
            raise ClosedError(f"this process was forked from the one that opened the warehouse {self._root}; open it in this one")
        if self._retired and not isinstance(request, (ResultRequest, Release)):
            raise self.closed_error()
        if self.lost:  # first: another thread may have closed it for that
            raise OwnerLostError(f"the owner of the warehouse {self._root} is gone ({self._why}); nothing was done", untouched=True)
        if self._closed:
            raise self.closed_error()

    def closed_error(self) -> ClosedError:
        return ClosedError(f"the warehouse {self._root} was closed; open it again")

    def _guard(self, request: Any) -> _Guard:
        return _Guard(self, request)

    def _refused(self, error: Exception) -> Exception:
        if isinstance(error, OwnerLostError):
            self.lose(str(error))
        return error

    def lose(self, why: str) -> None:
        """The owner is gone, or we are to it. Who hung up has not lost it."""
        if not self.lost and not self._closed:
            self._why = why
            self.lost = True
            self._lines.close()  # the owner may be waiting for us to hang up

    def retire(self) -> None:
        """Close it as soon as nobody holds a result that is still with the owner. One that is lost stays so for whoever still uses it."""
        if self.lost:
            self.close()
            return
        if self.holdings:
            gc.collect()  # an error that somebody caught holds the result it came from, in a circle with its own traceback
        self._retired = self.holdings.hurried = True
        self.holdings.unneeded()  # they end with the session
        if not self.holdings or self.lost:
            self.close()

    def close(self) -> None:
        """May be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        _open.discard(self)
        if os.getpid() != self._pid:
            return
        with suppress(*BROKEN):
            self._presence.cancel()
        self._lines.close()
        self._aside.close()
        if self._watch is not threading.current_thread():
            self._watch.join(1.0)
        if self._watch.is_alive() or not self._aside.ended:
            sockets.cut(self._name)  # it hangs, and must not keep this process from ending
        self._pulse.stop()
        with suppress(*BROKEN):
            self._client.close()
        sockets.forget(self._client)


class _SenderError(Exception):
    """Whoever gives us rows failed; the owner is well."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _named(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same, with errors that are not taken for Flight's."""
    try:
        yield from batches
    except Exception as e:
        raise _SenderError(e) from e


class _Guard:
    """Around the calls of Flight: what it raises means that the owner is lost, or that the deadline of the call has passed."""

    __slots__ = ("_connection", "_request", "_wait")

    def __init__(self, connection: Connection, request: Any) -> None:
        self._connection = connection
        self._request = request
        seconds = deadline.left()
        self._wait = None if seconds == math.inf else Wait(monotonic() + seconds + GRACE)

    def __enter__(self) -> Wait | None:
        if self._wait is not None:
            self._connection._pulse.begin(self._wait)
        return self._wait

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._wait is not None:
            self._connection._pulse.end(self._wait)
            if isinstance(error, BROKEN) and self._is_late(error):
                raise late_during(self._request, self._connection._root, deadline.given()) from None
        if isinstance(error, pa.ArrowException) and self._connection._closed:
            pass  # a client that was closed says so, in its own way
        elif not isinstance(error, (*BROKEN, StopIteration)):
            return
        if self._connection._closed and not self._connection.lost:
            raise self._connection.closed_error() from None
        why = self._connection._why or reason(error)
        self._connection.lose(why)
        raise lost_during(self._request, self._connection._root, why) from None

    def _is_late(self, error: BaseException) -> bool:
        assert self._wait is not None
        return self._wait.late or isinstance(error, flight.FlightTimedOutError) or monotonic() >= self._wait.at


def _options(wait: Wait | None, **others: Any) -> Any:
    """For a call of Flight's own that must end in time."""
    if wait is None:
        return flight.FlightCallOptions(**others)
    return flight.FlightCallOptions(timeout=max(0.001, wait.at - monotonic()), **others)


def _lose(connection: weakref.ref[Connection], why: str) -> None:
    found = connection()
    if found is not None:
        found.lose(why)


def _name(location: str) -> str | int:
    """The path or port of a location, as its socket has it."""
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(location)
    return unquote(parts.path) if parts.scheme == "grpc+unix" else parts.port or 0


_open: set[Connection] = set()


@atexit.register
def _close_all() -> None:
    """Threads that wait in Flight must not outlive the interpreter."""
    for connection in list(_open):
        connection.close()
