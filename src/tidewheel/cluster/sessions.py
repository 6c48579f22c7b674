"""What the owner holds for the processes that are attached to it: the results they have not read to the end or may read again, and the
versions they are asking.

A session lasts as long as its process is connected; a result as long as its session, until it is released, or until nobody has touched
it for a while. Every method may be called from any thread.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tidewheel.engine.protocol import PinnedTable
from tidewheel.env.clock import Clock
from tidewheel.env.expiring import Expiring
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
    readings: dict[int, Reading] = field(default_factory=dict)
    """Those that were begun and not ended, without those that are being read just now."""
    of: int = 0
    """The number of the versions that it is a result of, if they are held too: who reads it may ask them again."""


@dataclass(slots=True)
class HeldVersions:
    """Tables that an attached process has pinned together."""

    tables: Sequence[PinnedTable]


Held = HeldResult | HeldVersions


class Sessions:
    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._sessions: dict[str, Expiring[int, Held]] = {}
        self._numbers = itertools.count(1)

    def begin(self, session: str) -> None:
        self._sessions[session] = Expiring(self._clock, EXPIRES)

    def end(self, session: str) -> None:
        """Its process is gone, and everything it held."""
        self._sessions.pop(session, None)

    def hold(self, session: str, result: Result, of: int = 0) -> int:
        """Returns the number to ask for it by. `of`: that of the versions that were asked."""
        return self._hold(session, HeldResult(result, of=of))

    def hold_versions(self, session: str, tables: Sequence[PinnedTable]) -> int:
        """The same, for versions of tables."""
        return self._hold(session, HeldVersions(tables))

    def _hold(self, session: str, held: Held) -> int:
        number = next(self._numbers)
        self._of(session).put(number, held)
        return number

    def _of(self, session: str) -> Expiring[int, Held]:
        """Sessions end when their process hangs up and when the owner closes, also in the middle of a call: what is put into the table of
        such a session goes with it."""
        found = self._sessions.get(session)
        if found is None:
            raise OwnerLostError("this process is not attached to the owner any more; ask the query again")
        return found

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
        mine = self._of(session)
        held = mine.get(number)
        if held is None:
            raise NotFoundError(f"this result is not held any more: nobody read it for {EXPIRES / 60:.0f} minutes. Ask the query again")
        if isinstance(held, HeldResult):
            mine.touch(held.of)
        return held

    def release(self, session: str, numbers: tuple[int, ...]) -> None:
        mine = self._sessions.get(session)
        if mine is not None:
            mine.drop(numbers.__contains__)

    def expire(self, session: str) -> None:
        """Drop what was not touched for long."""
        mine = self._sessions.get(session)
        if mine is not None:
            mine.sweep()

    @property
    def results(self) -> int:
        """How many are held, for all."""
        return sum(len(mine) for mine in list(self._sessions.values()))
