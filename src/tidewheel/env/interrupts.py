"""Ctrl-C comes between any two calls of the main thread. Some things must be done whole.

Python's own Event, Queue, Future and Condition are not: each enters a lock by a call in Python, and an interrupt at its end leaves the lock
held for ever. A plain lock in a `with`, and a SimpleQueue, are single steps of the interpreter. So what the main thread shares with threads
of ours is a `Bell`, a `Flag`, an `Outcome`, a SimpleQueue, or a Condition of which only the lock itself is entered
(`with lock: condition.notify()`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def to_the_end(step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a step to its end. If it is interrupted it is begun again, which it must allow; the interrupt is raised after it."""
    try:
        return step(*args, **kwargs)
    except KeyboardInterrupt:
        to_the_end(step, *args, **kwargs)
        raise


class Bell:
    """Wakes one thread that waits for it, or that will."""

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        if self._rung.empty():
            self._rung.put(None)

    def wait(self, seconds: float) -> None:
        """Until it rings, or so long."""
        with suppress(Empty):
            self._rung.get(timeout=seconds)


class Outcome:
    """How something ended that another thread does: told once, awaited by one."""

    def __init__(self) -> None:
        self._told: SimpleQueue[BaseException | None] = SimpleQueue()

    def tell(self, failure: BaseException | None = None) -> None:
        self._told.put(failure)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, after so long at most. Raises what it failed with."""
        try:
            failure = self._told.get(timeout=seconds)
        except Empty:
            return False
        if failure is not None:
            raise failure
        return True


class Flag:
    """Set once, and awaited by one."""

    def __init__(self) -> None:
        self._set = False
        self._told: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        self._set = True
        self._told.put(None)

    def wait(self, seconds: float | None) -> bool:
        """Whether it is set, after so long at most; None: when it is set."""
        if not self._set:
            try:  # every call of an attached process waits here, and to enter and leave a `suppress` takes longer
                self._told.get(timeout=seconds)
            except Empty:
                return self._set
        return self._set
