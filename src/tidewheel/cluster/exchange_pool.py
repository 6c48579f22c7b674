"""Lines: open streams to the owner that carry one question and one answer after the other.

To open a call costs several times as much as to send a small message over one that is open, on both sides. So a line is kept for the
next question; there are as many as there are questions at one time, up to a limit: each keeps a thread of the owner waiting.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from time import monotonic
from typing import Any

import pyarrow as pa
from pyarrow import flight

from tidewheel.cluster import sockets
from tidewheel.cluster.pulse import Wait

MOST = 8


class ExchangeLine:
    """For one thread at a time."""

    def __init__(self, client: Any, start: bytes) -> None:
        self._writer, self._reader = client.do_exchange(flight.FlightDescriptor.for_command(start))
        sockets.keep_in_child(self._writer)
        sockets.keep_in_child(self._reader)

    def ask(self, message: bytes, wait: Wait | None) -> pa.Buffer:
        """The answer to a message. A wait that is ended breaks the line."""
        if wait is not None:
            wait.cancel = self._reader.cancel
        self._writer.write_metadata(message)
        try:
            answer = self._reader.read_chunk().app_metadata
        except StopIteration:
            answer = None
        if answer is None:
            raise flight.FlightUnavailableError("the owner hung up")
        return answer

    def hang_up(self) -> None:
        with suppress(flight.FlightError, pa.ArrowException, OSError):
            self._reader.cancel()
            self._writer.close()  # which says that it was cancelled; if nobody closed it, it would say so on the terminal


class Lines:
    """Every method may be called from any thread."""

    def __init__(self, client: Any, start: bytes) -> None:
        self._client = client
        self._start = start
        self._idle: list[ExchangeLine] = []
        self._busy = 0
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, message: bytes, wait: Wait | None = None) -> pa.Buffer:
        """The answer to a message, over whatever is free.

        What Flight raises means that the connection is broken, or that the wait is `late`.
        """
        line = self._take()
        if line is None:
            options = None if wait is None else flight.FlightCallOptions(timeout=max(0.0, wait.at - monotonic()))
            (answer,) = self._client.do_action(flight.Action("", message), options)
            return answer.body
        whole = False
        try:
            answer = line.ask(message, wait)
            whole = wait is None or not wait.late
            return answer
        finally:
            self._give_back(line, whole)

    def _take(self) -> ExchangeLine | None:
        with self._lock:
            if self._idle:
                self._busy += 1
                return self._idle.pop()
            if self._busy >= MOST:
                return None
            self._busy += 1
        try:
            return ExchangeLine(self._client, self._start)
        except BaseException:
            with self._lock:
                self._busy -= 1
            raise

    def _give_back(self, line: ExchangeLine, whole: bool) -> None:
        with self._lock:
            self._busy -= 1
            keep = whole and not self._closed
            if keep:
                self._idle.append(line)
        if not keep:
            line.hang_up()

    def close(self) -> None:
        """Hang up, except where an answer is still awaited: there, when it has come. May be called twice."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for line in idle:
            line.hang_up()
