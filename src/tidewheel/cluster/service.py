"""The owner's Flight server: frames in, `Handlers`, frames out. Imported when an owner begins to listen, because Flight takes its time.

Every call carries the token first. What goes wrong in a call is an answer like any other; an error of Flight itself always means that
the connection is broken. A thread of gRPC's serves each call.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import flight

from tidewheel.cluster import requests as ask
from tidewheel.cluster.handlers import Handlers, Progressing
from tidewheel.cluster.wire import WRAPPED, has_dictionary, pack, unpack, wrapped
from tidewheel.errors import ClosedError, FencedError, OwnerLostError, TidewheelError

TOKEN_BYTES = 32
SESSION_BYTES = 16

_LOOK = 1.0
"""Seconds between two looks at whether an attached process is still there, and between two beats for it."""


class Traffic:
    """Counts the calls under way, each of which is a `with`, and lets in no more when it is closed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way = 0
        self._last = time.monotonic()
        self.closing = threading.Event()

    def __enter__(self) -> None:
        """A call begins."""
        with self._changed:
            if self.closing.is_set():
                raise OwnerLostError("the owner of the warehouse is closing it; nothing was done", untouched=True)
            self._under_way += 1

    def __exit__(self, *error: object) -> None:
        """It has ended."""
        with self._changed:
            self._under_way -= 1
            self._last = time.monotonic()
            if not self._under_way:
                self._changed.notify_all()

    def idle_seconds(self) -> float:
        with self._changed:
            return 0.0 if self._under_way else time.monotonic() - self._last

    def touch(self) -> None:
        """Something is in use without a call."""
        self._last = time.monotonic()

    def close(self, patience: float) -> None:
        """Let nobody in, and wait for those who are, but not for ever."""
        with self._changed:
            self.closing.set()
            self._changed.wait_for(lambda: not self._under_way, patience)


class Service(flight.FlightServerBase):  # type: ignore[misc]
    """Listens as soon as it is made, until `shutdown`."""

    def __init__(self, location: str, tls: list[tuple[bytes, bytes]] | None, handlers: Handlers, token: str, traffic: Traffic) -> None:
        self._handlers = handlers
        self._token = token.encode()
        self._traffic = traffic
        super().__init__(location, tls_certificates=tls)

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """A line: requests that come in one piece, one after the other (cluster/exchange_pool.py)."""
        while True:
            try:
                message = reader.read_chunk().app_metadata
            except (StopIteration, pa.ArrowException, flight.FlightError):
                return  # it was hung up, or cut
            answer = self._answer(message)
            try:
                writer.write_metadata(answer)
            except (pa.ArrowException, flight.FlightError, OSError):
                return  # whoever asked waited too long, and is gone
            del message, answer

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """A request that comes in one piece, and perhaps wants to hear how far it is."""
        progress = action.type == ask.PROGRESS
        return self._progressing(action.body) if progress else iter([flight.Result(self._answer(action.body))])

    def _answer(self, message: pa.Buffer) -> bytes:
        try:
            session, request, rows = self._open(message)
            with self._traffic:
                return pack(*self._handlers.answer(session, request, rows))
        except Exception as e:
            return self._word(e)

    def _progressing(self, message: pa.Buffer) -> Iterator[Any]:
        try:
            session, request, rows = self._open(message)
            with self._traffic:
                for value in Progressing(lambda progress: self._handlers.answer(session, request, rows, progress)[0]):
                    yield flight.Result(self._word(value))
        except Exception as e:
            yield flight.Result(self._word(e))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """A request whose rows come in a stream."""
        try:
            _, request, _ = self._open(pa.py_buffer(descriptor.command))
            with self._traffic:
                answer = self._handlers.take(request, reader.schema, _arriving(reader))
        except Exception as e:
            answer = e
        writer.write(self._word(answer))
        if isinstance(answer, Exception):
            _drain(reader)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Rows of a result, or the stream that a session consists of."""
        schema = pa.schema([])
        try:
            session, request, _ = self._open(pa.py_buffer(ticket.ticket))
            if isinstance(request, ask.Stay):
                self._handlers.sessions.begin(request.session)  # now: whoever hears that the stream has begun may ask at once
                return flight.GeneratorStream(schema, self._session(context, request.session))
            schema, window = self._handlers.read(session, request, context.is_cancelled)
            if any(has_dictionary(field.type) for field in schema):
                schema, window = WRAPPED, ((None if batch is None else wrapped(batch), behind) for batch, behind in window)
            return flight.GeneratorStream(schema, self._window(schema, window))
        except Exception as e:
            return flight.GeneratorStream(schema, iter([(_empty(schema), self._word(e))]))

    def _window(self, schema: pa.Schema, window: Iterable[tuple[pa.RecordBatch | None, Any]]) -> Iterator[Any]:
        try:
            with self._traffic:
                for batch, behind in window:
                    if behind is None:
                        yield batch
                    else:
                        yield _empty(schema) if batch is None else batch, self._word(behind)
        except TidewheelError as e:
            yield _empty(schema), self._word(e)

    def _word(self, value: Any) -> bytes:
        """The last message of a call, a value or an error. To attached processes, an owner that closes during a call is a lost owner."""
        if isinstance(value, FencedError):
            value = OwnerLostError(f"the owner is lost: {value}")
        if isinstance(value, ClosedError) and self._traffic.closing.is_set():
            value = OwnerLostError(f"the owner closed the warehouse during this call ({value}); what it was to do may be done or not")
        return pack(value)

    def _session(self, context: Any, session: str) -> Iterator[Any]:
        """Lasts until either side is gone."""
        sessions = self._handlers.sessions
        try:
            self._traffic.touch()
            while not self._traffic.closing.wait(_LOOK) and not context.is_cancelled():
                sessions.expire(session)
                yield _empty(pa.schema([])), self._word(None)  # a beat (cluster/pulse.py)
        finally:
            sessions.end(session)

    def _open(self, message: pa.Buffer) -> tuple[str, Any, pa.Buffer]:
        """Check the token; session, request and rows."""
        start = memoryview(message)[: TOKEN_BYTES + SESSION_BYTES]
        if not hmac.compare_digest(bytes(start[:TOKEN_BYTES]), self._token):
            raise OwnerLostError("this is not the owner that was attached to: it has another token; nothing was done", untouched=True)
        request, rows = unpack(message.slice(TOKEN_BYTES + SESSION_BYTES))
        return bytes(start[TOKEN_BYTES:]).decode(), request, rows


def _arriving(reader: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a stream. It ends with a mark, because a sender that died looks like one that has finished."""
    rows = 0
    while True:
        try:
            chunk = reader.read_chunk()
        except (StopIteration, pa.ArrowException, flight.FlightError) as e:
            raise OwnerLostError(f"the sender broke off after {rows} rows; nothing was done", untouched=True) from e
        if chunk.data is not None:
            rows += chunk.data.num_rows
            yield chunk.data
        if chunk.app_metadata is not None:
            mark, _ = unpack(chunk.app_metadata)
            if mark != ask.Complete(rows):
                raise TidewheelError(f"{rows} rows arrived, but {mark} was said; nothing was done")
            return


def _drain(reader: Any) -> None:
    """Rows that were refused are heard to their end all the same: a sender that finds nobody listening loses its answer, too."""
    with suppress(StopIteration, pa.ArrowException, flight.FlightError):
        while True:
            reader.read_chunk()


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    """What carries a word when there is no row to carry it."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
