"""A statement that runs while someone may press Ctrl-C: it has a thread of its own, and the main thread waits for it, or for the key.

DuckDB looks for Ctrl-C in some of its steps only; `Result.cancel` ends all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from tidewheel.env.steps import Step
from tidewheel.errors import CancelledError
from tidewheel.read.result import Result
from tidewheel.sql.queries import queries

T = TypeVar("T")

_AGAIN = 0.1
"""Seconds until a statement that did not hear that it is cancelled is told again."""

_PATIENCE = 20
"""Attempts to cancel before the user is told of it. There is nothing to cancel yet while a statement is planned."""


def cancellable(ask: Callable[[], Result], read: Callable[[Result], T]) -> tuple[Result, T]:
    """Ask, and read the answer. Ctrl-C cancels it, and is raised when it has ended; a second one does not wait for that."""
    asked: list[Result] = []

    def work() -> T:
        asked.append(ask())
        if step.unwanted:  # Ctrl-C came before there was a result to cancel
            raise CancelledError("nobody waits for this statement any more")
        return read(asked[0])

    def cancel() -> None:
        if asked:
            asked[0].cancel()
        else:  # an INSERT reads its rows before there is a result
            queries.cancel_in(step.thread)

    step = Step(work)
    step.start("tidewheel-statement")
    try:
        step.wait()
        answer = step.outcome()
        return asked[0], answer
    except KeyboardInterrupt:
        step.unwanted = True
        cancel()
        tries = 0
        while not step.wait(_AGAIN):
            cancel()
            tries += 1
            if tries == _PATIENCE:
                print("it has not ended yet; Ctrl-C again leaves it to itself", file=sys.stderr, flush=True)
        raise
