"""What the owner holds for the processes that are attached to it: the results they have not read to the end or may read again, and the
versions they are asking.

A session lasts as long as its process is connected; a result as long as its session, until it is released, or until nobody has touched
it for a while. Every method may be called from any thread.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tidewheel.engine.protocol import PinnedTable
from tidewheel.errors import NotFoundError, OwnerLostError
from tidewheel.read.result import Result

EXPIRES = 900.0
"""Seconds after which a result that nobody touched is dropped: it pins a version, and with it memory and files."""


class Life:
    """Of one reading of a result: it ends with the result, or with the call that reads it just now."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._is_over: Callable[[], bool] | None = None
        self._lock = threading.Lock()

    @property
    def cancelled(self) -> bool:
        with self._lock:  # whoever is asked must not vanish meanwhile
            return self._result.cancelled or (self._is_over is not None and self._is_over())

    @contextmanager
    def until(self, is_over: Callable[[], bool]) -> Iterator[None]:
        """While a call reads. Nobody asks `is_over` after that."""
        self._is_over = is_over
        try:
            yield
        finally:
            with self._lock:
                self._is_over = None


class Reading(NamedTuple):
    batches: Iterator[pa.RecordBatch]
    life: Life


@dataclass(slots=True)
class HeldResult:
    """A result that an attached process has."""

    result: Result
    touched: float
    readings: dict[int, Reading] = field(default_factory=dict)
    """Those that were begun and not ended, without those that are being read just now."""
    of: int = 0
    """The number of the versions that it is a result of, if they are held too: who reads it may ask them again."""


@dataclass(slots=True)
class HeldVersions:
    """Tables that an attached process has pinned together."""

    tables: Sequence[PinnedTable]
    touched: float


Held = HeldResult | HeldVersions


class Sessions:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, dict[int, Held]] = {}
        self._numbers = itertools.count(1)

    def begin(self, session: str) -> None:
        with self._lock:
            self._sessions[session] = {}

    def end(self, session: str) -> None:
        """Its process is gone, and everything it held."""
        with self._lock:
            dropped = self._sessions.pop(session, None)
        del dropped  # outside the lock: letting go of a version may delete files

    def hold(self, session: str, result: Result, of: int = 0) -> int:
        """Returns the number to ask for it by. `of`: that of the versions that were asked."""
        return self._hold(session, HeldResult(result, time.monotonic(), of=of))

    def hold_versions(self, session: str, tables: Sequence[PinnedTable]) -> int:
        """The same, for versions of tables."""
        return self._hold(session, HeldVersions(tables, time.monotonic()))

    def _hold(self, session: str, held: Held) -> int:
        number = next(self._numbers)
        with self._lock:
            self._of(session)[number] = held
        return number

    def _of(self, session: str) -> dict[int, Held]:
        """Sessions end when their process hangs up and when the owner closes, also in the middle of a call."""
        if session not in self._sessions:
            raise OwnerLostError("this process is not attached to the owner any more; ask the query again")
        return self._sessions[session]

    def get(self, session: str, number: int) -> HeldResult:
        held = self._get(session, number)
        assert isinstance(held, HeldResult)
        return held

    def version(self, session: str, number: int, place: int) -> PinnedTable:
        """One of the tables that are held together."""
        held = self._get(session, number)
        assert isinstance(held, HeldVersions)
        return held.tables[place]

    def _get(self, session: str, number: int) -> Held:
        with self._lock:
            mine = self._of(session)
            held = mine.get(number)
            if held is None:
                raise NotFoundError(f"this result is not held any more: nobody read it for {EXPIRES / 60:.0f} minutes. Ask the query again")
            held.touched = time.monotonic()
            if isinstance(held, HeldResult) and held.of in mine:
                mine[held.of].touched = held.touched
            return held

    def release(self, session: str, numbers: tuple[int, ...]) -> None:
        with self._lock:
            mine = self._sessions.get(session, {})
            dropped = [mine.pop(number, None) for number in numbers]
        del dropped

    def expire(self, session: str) -> None:
        """Drop what was not touched for long."""
        now = time.monotonic()
        with self._lock:
            mine = self._sessions.get(session, {})
            dropped = [mine.pop(number) for number, held in list(mine.items()) if now - held.touched > EXPIRES]
        del dropped

    @property
    def results(self) -> int:
        """How many are held, for all."""
        with self._lock:
            return sum(len(mine) for mine in self._sessions.values())
