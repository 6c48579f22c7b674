"""The moment by which a call has to have ended, for whatever waits on its way: for the owner, for room, for a lock, for the disk.

It belongs to the thread that makes the call, and all that is called there sees it. A call without a `timeout` has none.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from time import monotonic
from typing import Any, NamedTuple

from tidewheel.errors import InputError, LimitError

_FOR_EVER = 1e9
"""Seconds from which on there is no limit: thirty years, and locks cannot wait for much longer."""


class _Limit(NamedTuple):
    at: float
    """The moment."""
    given: float
    """The seconds that were given."""
    of: weakref.ref[Within]
    """Whose it is. A Ctrl-C may come before that takes it back: it counts for as long as this is there."""
    outer: _Limit | None


_current: ContextVar[_Limit | None] = ContextVar("tidewheel-deadline", default=None)


class Within:
    """`with Within(timeout): …`: what is done there has so many seconds, or what is left of those of a call around it. None: no limit.

    What is no number of seconds is left to whoever is to refuse it. `of`: what was given, if these are what is left of it.
    """

    __slots__ = ("__weakref__", "_given", "_seconds", "_token")

    def __init__(self, seconds: Any, of: float | None = None) -> None:
        self._seconds = float(seconds) if is_seconds(seconds) and seconds < _FOR_EVER else math.inf
        self._given = self._seconds if of is None else of
        self._token: Token[_Limit | None] | None = None

    def __enter__(self) -> None:
        if self._seconds != math.inf:
            outer, at, given = _limit(), monotonic() + self._seconds, self._given
            if outer is not None and outer.at < at:
                at, given = outer.at, outer.given
            self._token = _current.set(_Limit(at, given, weakref.ref(self), outer))

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            _current.reset(self._token)


def _limit() -> _Limit | None:
    found = _current.get()
    while found is not None and found.of() is None:
        found = found.outer
    return found


def is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def check_seconds(value: Any) -> None:
    """For calls that change something: a query has limits of its own, and words for them."""
    if value is not None and not is_seconds(value):
        raise InputError(f"timeout is a number of seconds, not {value!r}")


def left() -> float:
    """Seconds until then: 0 if it has passed, infinity if there is none."""
    limit = _limit()
    return math.inf if limit is None else max(0.0, limit.at - monotonic())


def given() -> float:
    """The seconds that the call was given, for a message."""
    limit = _limit()
    return math.inf if limit is None else limit.given


def late(what: str, *, retryable: bool = False) -> LimitError:
    """The error of a call whose time is up; `what` says how far it came."""
    return LimitError(f"this call took longer than its timeout of {given():g} s: {what}", retryable=retryable)


@contextmanager
def holding(lock: threading.Lock, what: str) -> Iterator[None]:
    """Hold a lock that others may hold for long."""
    seconds = left()
    if seconds == math.inf:
        with lock:  # which no interrupt divides
            yield
        return
    taken: list[bool] = []
    try:
        taken.extend(map(lock.acquire, (True,), (seconds,)))  # one step of the interpreter: no interrupt between lock and list
        if not taken[0]:
            raise late(what, retryable=True)
        yield
    finally:
        if taken and taken[0]:
            lock.release()
