"""One table of things that expire: kept here for others, who may die without a word.

Staged slices wait for their commit, pinned versions for their readers, results for the processes that asked for them. Each is dropped when
nobody touched it for as long as its table says. Bulk loads expire as well, but outlive their owner: the table of those is the disk, and the
ages of their folders (`write.bulk_loads`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidewheel.env.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Entry(Generic[V]):
    value: V
    touched: float
    seconds: float | None = None
    """How long it lasts, if not as long as others."""


class Expiring(Generic[K, V]):
    """Values by name, each with the moment it was last touched. Every method may be called from any thread.

    A value that is dropped is let go of outside of the lock: the last reference to a version deletes files.
    """

    def __init__(self, clock: Clock, seconds: float, most: float = math.inf, stays: Callable[[K], bool] = lambda key: False) -> None:
        """`most`: how many at once; the one that was not touched the longest goes first. `stays`: asked of those whose time is over."""
        self.clock = clock
        self.seconds = seconds
        self._most = most
        self._stays = stays
        self._kept: dict[K, _Entry[V]] = {}
        self._lock = threading.Lock()

    def put(self, key: K, value: V) -> None:
        """Keep a value, in the place of one with the same name; those whose time is over go."""
        with self._lock:
            dropped = self._expired(self._most - 1)
            dropped.append(self._kept.pop(key, None))
            self._kept[key] = _Entry(value, self.clock.monotonic())
        del dropped

    def get(self, key: K) -> V | None:
        """The value, which is touched by this; None if it is not kept any more."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            kept.touched = self.clock.monotonic()
            return kept.value

    def touch(self, key: K, seconds: float | None = None) -> None:
        """Somebody uses it; with `seconds` it lasts so long from its last touch, now and later. Nothing if it is not kept any more."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                kept.touched = self.clock.monotonic()
                kept.seconds = kept.seconds if seconds is None else seconds

    def pop(self, key: K) -> None:
        with self._lock:
            dropped = self._kept.pop(key, None)
        del dropped

    def drop(self, those: Callable[[K], bool]) -> None:
        """Drop all whose names are of `those`."""
        with self._lock:
            dropped = [self._kept.pop(key) for key in list(self._kept) if those(key)]
        del dropped

    def sweep(self) -> None:
        """Drop all whose time is over."""
        with self._lock:
            dropped = self._expired(self._most)
        del dropped

    def items(self) -> list[tuple[K, V]]:
        """All that are kept at this moment; none is touched by this."""
        with self._lock:
            return [(key, kept.value) for key, kept in self._kept.items()]

    def touched_within(self, seconds: float) -> bool:
        """Whether one was touched in the last so many seconds."""
        now = self.clock.monotonic()
        with self._lock:
            return any(now - kept.touched <= seconds for kept in self._kept.values())

    def __len__(self) -> int:
        with self._lock:
            return len(self._kept)

    def _expired(self, most: float) -> list[_Entry[V] | None]:
        """Take out all whose time is over, and of the others so many that `most` are left. Called with the lock held."""
        now = self.clock.monotonic()
        gone = [key for key, kept in self._kept.items() if now - kept.touched > self._lasts(kept) and not self._stays(key)]
        if len(self._kept) - len(gone) > most:
            rest = sorted(self._kept.keys() - gone, key=lambda key: self._kept[key].touched)
            gone += rest[: len(rest) - int(most)]
        return [self._kept.pop(key) for key in gone]

    def _lasts(self, kept: _Entry[V]) -> float:
        return self.seconds if kept.seconds is None else kept.seconds
