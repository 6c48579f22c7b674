"""What the owner holds for this process: each result, and versions that were pinned together, as long as the hold lives that stands for
them here."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

_MANY = 16
"""Versions that nobody needs any more, and that the owner is told of at once; of fewer it hears with the next request for versions."""


class Hold:
    """Stands for something that the owner holds, which is let go of with it, or before."""

    __slots__ = ("__weakref__", "let_go", "number")

    def __init__(self, number: int, let_go: Callable[[int], None]) -> None:
        self.number = number
        self.let_go: Callable[[], Any] = (letting_go := weakref.finalize(self, let_go, number))
        letting_go.atexit = False


class Holdings:
    """Every method may be called from any thread."""

    def __init__(self, let_go: Callable[[int], None]) -> None:
        """`let_go` tells the owner of something that nobody needs any more, without waiting; then it calls `gone`."""
        self._let_go = let_go
        self._lock = threading.Lock()
        self._held: set[int] = set()
        self._unneeded: deque[int] = deque()
        """Versions of these that the owner is still to be told of."""
        self.hurried = False
        """Set when the connection is retired: from then on releases are sent at once, and not with the next call."""

    def __bool__(self) -> bool:
        return bool(self._held)

    def result(self, number: int) -> Hold:
        """For a result that the owner holds."""
        with self._lock:
            self._held.add(number)
        return Hold(number, self._let_go)

    def versions(self, number: int) -> Hold:
        """For versions, of which a statement needs some each time: to let go of them costs no call of its own."""
        with self._lock:
            self._held.add(number)
        return Hold(number, self._put_off)

    def _put_off(self, number: int) -> None:
        """In a finalizer: nothing here waits for a lock."""
        self._unneeded.append(number)
        if self.hurried or len(self._unneeded) >= _MANY:
            for one in self._drained():
                self._let_go(one)

    def unneeded(self) -> tuple[int, ...]:
        """Versions that the owner can let go of; the caller tells it."""
        numbers = tuple(self._drained())
        with self._lock:
            self._held.difference_update(numbers)
        return numbers

    def _drained(self) -> Iterator[int]:
        with suppress(IndexError):
            while True:
                yield self._unneeded.popleft()

    def gone(self, number: int) -> bool:
        """The owner does not hold it any more. Returns whether it was the last."""
        with self._lock:
            self._held.discard(number)
            return not self._held
