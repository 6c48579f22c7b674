"""Limits: what a query may take, and the watch that ends it when it takes more or is cancelled.

A query is ended by an exception in the thread that reads it, between two steps. Steps are kept short; those that are not
(sorting, DuckDB) run in a thread of their own, while the reading thread minds the clock, `cancel` and Ctrl-C. Nothing has
to be undone: a query holds no lock between steps, and all it has is dropped with its frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Protocol, TypeVar

from tidewheel.env.memory import machine_memory
from tidewheel.env.steps import Step
from tidewheel.errors import CancelledError, LimitError, QueryError
from tidewheel.model.dataclass import dataclass
from tidewheel.model.query import Query
from tidewheel.settings import Settings

T = TypeVar("T")

NEVER = math.inf

_TICK = 0.02
"""Seconds between two looks at the clock while a long step runs."""

_GRACE = 1.0
"""Seconds that a step which was asked to end is waited for. DuckDB ends after the 2,048 rows it is at, mostly milliseconds."""


FREE = 1.25
"""Seconds, once for each reading, that a process may take to start and that are not the query's time; what it takes beyond, on a busy
machine, is."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, rows and bytes that one query may take; infinity is no limit."""

    seconds: float
    rows: float
    bytes: float

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """The limits of queries that name none."""
        size = NEVER if settings.query_bytes is None else settings.query_bytes
        return cls(
            seconds=NEVER if settings.query_seconds is None else settings.query_seconds,
            rows=NEVER if settings.query_rows is None else settings.query_rows,
            bytes=size * machine_memory() if size <= 1 else size,
        )

    def asked_by(self, query: Query) -> Limits:
        """With the limits that a query names itself."""
        return Limits(
            self.seconds if query.timeout is None else _number("timeout", query.timeout),
            self.rows if query.max_rows is None else _number("max_rows", query.max_rows),
            self.bytes if query.max_bytes is None else _number("max_bytes", query.max_bytes),
        )


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        unit = {"timeout": "seconds", "max_rows": "rows", "max_bytes": "bytes"}[name]
        raise QueryError(f"{name} is a number of {unit}, not {value!r}")
    return value


class Cancellable(Protocol):
    @property
    def cancelled(self) -> bool: ...


class Watch:
    """Guards one reading of a result, in one thread."""

    __slots__ = ("_deadline", "_free", "_of", "held", "limits")

    def __init__(self, limits: Limits, of: Cancellable, spent: float = 0.0) -> None:
        """`spent`: seconds of the limit that are used up already."""
        self.limits = limits
        self.held = 0
        """Bytes that it holds in memory now."""
        self._of = of
        self._free = FREE
        self._deadline = NEVER if limits.seconds == NEVER else perf_counter() + limits.seconds - spent

    @property
    def of(self) -> Cancellable:
        """Whose reading it guards."""
        return self._of

    def beside(self, of: Cancellable) -> tuple[Watch, int]:
        """A watch for another thread, until the same time, with half of the memory that is left; and how much that is, which counts here
        until the other one says how much it holds."""
        reserved = 0 if self.limits.bytes == NEVER else max(0, int(self.limits.bytes - self.held) // 2)
        limits = Limits(self.limits.seconds, self.limits.rows, self.limits.bytes if self.limits.bytes == NEVER else reserved)
        other = Watch(limits, of)
        other._deadline = self._deadline
        self.held += reserved
        return other, reserved

    def check(self) -> None:
        """Between two steps: raises if the query was cancelled or its time is up."""
        self.wanted()
        if self._deadline != NEVER and perf_counter() > self._deadline:
            raise LimitError(
                f"the query took longer than its timeout of {self.limits.seconds:g} s; narrow it, or give it more time with timeout= "
                "(for all queries: Settings.query_seconds)"
            )

    def wanted(self) -> None:
        """Raises if the query was cancelled."""
        if self._of.cancelled:
            raise CancelledError("the query was cancelled; ask again for the rest of its answer")

    @contextmanager
    def starting(self) -> Iterator[None]:
        """While a process starts for the query."""
        free, began = self._free, perf_counter()
        self._deadline += free
        try:
            yield
        finally:
            self._free = max(0.0, free - (perf_counter() - began))
            self._deadline -= self._free

    def pause(self, since: float) -> None:
        """Leave the time since then out: the caller had it, not the query."""
        self._deadline += perf_counter() - since

    def take(self, size: int) -> None:
        """Before so many bytes are allocated: raises if that is more than the query may hold."""
        self.held += size
        if self.held > self.limits.bytes:
            raise LimitError(
                f"the query needs more than {shown(self.limits.bytes)} of memory at once, its max_bytes; iterate over the result instead "
                "of taking it whole, ask for fewer rows or columns, or raise max_bytes= (for all queries: Settings.query_bytes)"
            )

    def count(self, rows: int) -> None:
        """Compare the rows that are returned in all with the limit: raises if they are too many."""
        if rows > self.limits.rows:
            raise LimitError(
                f"the query returns more than {self.limits.rows:,.0f} rows, its max_rows; narrow it, say limit= if some are enough, "
                "or raise max_rows= (for all queries: Settings.query_rows)"
            )

    def apart(self, work: Callable[[], T], interrupt: Callable[[], None] | None = None) -> T:
        """Do a long step in a thread of its own. `interrupt` asks it to end before its time, as often as it takes.

        A step that cannot be asked is left to itself when the query ends: what it makes is dropped as soon as it is made.
        """
        self.check()
        step = Step(work)
        try:
            step.start("tidewheel-step")
            while not step.wait(min(_TICK, max(0.0, self._deadline - perf_counter()))):
                self.check()
            return step.outcome()
        except BaseException:
            step.unwanted = True
            give_up = perf_counter() + _GRACE
            while interrupt is not None and step.thread is not None and not step.wait(_TICK / 4) and perf_counter() < give_up:
                interrupt()
            step.give_up()
            raise


def shown(size: float) -> str:
    """A number of bytes as people say it."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:g} bytes"
