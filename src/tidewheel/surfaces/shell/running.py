"""A statement that runs while someone may press Ctrl-C: it has a thread of its own, and the main thread waits for it, or for the key.

DuckDB looks for Ctrl-C in some of its steps only; `Result.cancel` ends all of them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tidewheel.read.result import Result
from tidewheel.sql.queries import queries

T = TypeVar("T")

_AGAIN = 0.1
"""Seconds until a statement that did not hear that it is cancelled is told again."""

_PATIENCE = 20
"""So many times, before the user is told of it. There is nothing to cancel yet while a statement is planned."""


def cancellable(ask: Callable[[], Result], read: Callable[[Result], T]) -> tuple[Result, T]:
    """Ask, and read the answer. Ctrl-C cancels it, and is raised when it has ended; a second one does not wait for that."""
    run = _Run(ask, read)
    run.start()
    try:
        run.over.wait()
        return run.outcome()
    except KeyboardInterrupt:
        run.unwanted = True
        run.cancel()
        tries = 0
        while not run.over.wait(_AGAIN):
            run.cancel()
            tries += 1
            if tries == _PATIENCE:
                print("it has not ended yet; Ctrl-C again leaves it to itself", file=sys.stderr, flush=True)
        raise


class _Run(threading.Thread, Generic[T]):
    """A thread that asks one statement."""

    def __init__(self, ask: Callable[[], Result], read: Callable[[Result], T]) -> None:
        super().__init__(name="tidewheel-statement", daemon=True)
        self._ask = ask
        self._read = read
        self._result: Result | None = None
        self._answer: list[T] = []
        self._error: BaseException | None = None
        self.over = threading.Event()
        self.unwanted = False
        """Ctrl-C came, perhaps before there was a result to cancel."""

    def run(self) -> None:
        try:
            self._result = self._ask()
            if not self.unwanted:
                self._answer.append(self._read(self._result))
        except BaseException as e:  # it belongs to whoever waits
            self._error = e
        finally:
            self.over.set()

    def cancel(self) -> None:
        if self._result is not None:
            self._result.cancel()
        else:  # an INSERT reads its rows before there is a result
            queries.cancel_in(self.ident)

    def outcome(self) -> tuple[Result, T]:
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            assert self._result is not None
            return self._result, self._answer.pop()
        finally:
            del error  # or it would be reached from its own traceback, and stay
