"""The time of a statement, from the moment it is asked: what is used up of it before its rows are read."""

from __future__ import annotations

from time import perf_counter

from tidewheel.model.dataclass import dataclass
from tidewheel.read.limits import FREE


@dataclass(frozen=True, slots=True)
class Used:
    """What a statement has taken before a reading of it."""

    seconds: float = 0.0
    """Of its time."""
    started: float = 0.0
    """Of the `FREE` seconds in which processes may start."""


class Asking:
    """While a statement is asked all time is its own, but for what processes take to start. Its reader has not come by anything yet."""

    __slots__ = ("_began", "started")

    def __init__(self, began: float) -> None:
        """`began`: before anything was loaded, which is a start too."""
        self._began = began
        self.started = min(FREE, perf_counter() - began)

    @property
    def used(self) -> Used:
        return Used(perf_counter() - self._began - self.started, self.started)
