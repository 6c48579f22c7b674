"""The statements that this process runs and has run lately, for `system.queries` and to cancel one by its number."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidewheel.errors import CancelledError, NotFoundError
from tidewheel.model.query import Stats

KEPT = 256
"""Statements that are remembered after they ended, for each warehouse."""

_LONGEST = 10_000
"""Characters of a statement that are remembered."""


@dataclass(slots=True)
class StatementRun:
    """One reading of a statement's result."""

    id: int
    root: Path
    statement: str
    cancel: Callable[[], None] | None
    """None when it has ended: what it held is let go of."""
    thread: int = field(default_factory=threading.get_ident)
    started: float = field(default_factory=time.time)
    began: float = field(default_factory=time.perf_counter)
    state: str = "running"
    milliseconds: float = 0.0
    rows: int = 0
    stats: Stats = field(default_factory=Stats)
    error: str = ""


class Queries:
    """Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._running: dict[int, StatementRun] = {}
        self._ended: dict[Path, deque[StatementRun]] = {}

    def running(self, root: Path, statement: str, cancel: Callable[[], None], stats: Stats) -> Running:
        """While a statement runs. `stats` say at its end what it cost; `cancel` ends it."""
        return Running(self, root, statement, cancel, stats)

    def begin(self, root: Path, statement: str, cancel: Callable[[], None]) -> StatementRun:
        asked = StatementRun(next(self._numbers), root, statement[:_LONGEST], cancel)
        with self._lock:
            self._running[asked.id] = asked
        return asked

    def end(self, asked: StatementRun, error: BaseException | None, stats: Stats) -> None:
        with self._lock:
            if self._running.pop(asked.id, None) is None:
                return
            asked.cancel = None
            asked.milliseconds = (time.perf_counter() - asked.began) * 1e3
            asked.stats = stats
            asked.state = "done" if error is None else "cancelled" if isinstance(error, CancelledError) else "failed"
            asked.error = "" if error is None else (str(error) or type(error).__name__).split("\n")[0]
            self._ended.setdefault(asked.root, deque(maxlen=KEPT)).append(asked)

    def of(self, root: Path) -> list[StatementRun]:
        """Those of a warehouse, the oldest first."""
        with self._lock:
            mine = [*self._ended.get(root, ()), *(asked for asked in self._running.values() if asked.root == root)]
        return sorted(mine, key=lambda asked: asked.id)

    def cancel(self, root: Path, number: int) -> bool:
        """End a statement. False if it had ended already; NotFoundError if there is none of that number."""
        with self._lock:
            asked = self._running.get(number)
            known = {one.id for one in self._ended.get(root, ())}
        if asked is not None and asked.root == root and asked.cancel is not None:
            asked.cancel()
            return True
        if number in known:
            return False
        raise NotFoundError(f"there is no statement {number!r} in this process; SELECT id, statement FROM system.queries lists them")

    def cancel_in(self, thread: int | None) -> None:
        """End what a thread runs just now, if that is something."""
        with self._lock:
            mine = [asked.cancel for asked in self._running.values() if asked.thread == thread]
        for cancel in mine:
            if cancel is not None:
                cancel()


class Running:
    """The time in which a statement runs."""

    __slots__ = ("_asked", "_of", "_stats", "_what")

    def __init__(self, of: Queries, root: Path, statement: str, cancel: Callable[[], None], stats: Stats) -> None:
        self._of = of
        self._what = root, statement, cancel
        self._stats = stats

    def __enter__(self) -> None:
        self._asked = self._of.begin(*self._what)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        early = kind is GeneratorExit  # a reader that stops early is no error
        self._of.end(self._asked, None if early else error, replace(self._stats))


queries = Queries()
