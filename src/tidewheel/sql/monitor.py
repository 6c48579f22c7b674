"""Minds the clock and the memory while statements run: DuckDB does neither by itself for all that it does.

One thread for all of them, which begins with the first and ends when there was none for a while: a statement that takes a millisecond
pays for nothing but being written down.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter

NEVER = math.inf

_LOOK = 0.05
"""Seconds between two looks at the memory."""

_LINGER = 0.5
"""Seconds that the thread waits for the next statement."""

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class _Watched:
    deadline: float
    size: float
    """How much the memory of the process may grow from the first look on."""
    late: Callable[[], None]
    large: Callable[[], None]
    most: float | None = None
    """What it may be then. It is not looked at before: most statements have ended by then."""
    was_large: bool = False


class Monitor:
    """Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._watched: dict[int, _Watched] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, seconds: float, size: float, late: Callable[[], None], large: Callable[[], None]) -> Iterator[None]:
        """While something runs: call `late` after so many seconds, `large` if the process takes so many bytes more than now."""
        number = next(self._numbers)
        one = _Watched(perf_counter() + seconds, size, late, large)
        with self._lock:
            self._watched[number] = one
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tidewheel-monitor", daemon=True)
                self._thread.start()
            elif seconds < _LOOK:
                self._changed.notify()
        try:
            yield
        finally:
            with self._lock:
                self._watched.pop(number, None)

    def _run(self) -> None:
        idle_since = perf_counter()
        while True:
            with self._lock:
                now = perf_counter()
                if self._watched:
                    idle_since = now
                elif now - idle_since > _LINGER:
                    self._thread = None
                    return
                soonest = min((one.deadline for one in self._watched.values()), default=NEVER)
                self._changed.wait(min(_LOOK, max(0.001, soonest - now)))
                watched = list(self._watched.items())
            self._look(watched)
            watched.clear()  # or it would hold on to what has ended, for as long as it waits

    def _look(self, watched: list[tuple[int, _Watched]]) -> None:
        now = perf_counter()
        used = memory_in_use() if any(one.size != NEVER for _, one in watched) else 0
        for number, one in watched:
            if one.most is None:
                one.most = used + one.size
            one.was_large = one.was_large or used > one.most
            if not one.was_large and now < one.deadline:
                continue
            act = one.large if one.was_large else one.late
            with self._lock:
                if number not in self._watched:  # it has ended just now
                    continue
            act()  # an interrupt may find nothing to end yet: it is repeated at every look


def memory_in_use() -> int:
    """Bytes that this process has for itself: without what it shares and maps. 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as file:
        words = file.read().split()
        return (int(words[1]) - int(words[2])) * _PAGE
    return 0


monitor = Monitor()


def _forget_in_child() -> None:
    """A forked child has no such thread."""
    global monitor
    monitor = Monitor()


os.register_at_fork(after_in_child=_forget_in_child)
