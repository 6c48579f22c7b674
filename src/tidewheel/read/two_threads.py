"""Work on the rows of a query that two threads share: the one that asks, and one beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from tidewheel.env.steps import Step
from tidewheel.read.limits import Cancellable, Watch

T = TypeVar("T")

_TICK = 0.02
"""Seconds between two looks at the clock while the other one is waited for."""

_GRACE = 1.0
"""Seconds that the other one, which ends with what it is at, is waited for when nobody wants its half any more."""


class _Half:
    """What the other thread works for: it is cancelled with the query, and when nobody waits for it."""

    def __init__(self, of: Cancellable) -> None:
        self._of = of
        self.is_over = False

    @property
    def cancelled(self) -> bool:
        return self.is_over or self._of.cancelled


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def both(steps: Sequence[Callable[[Watch], T]], watch: Watch) -> list[T]:
    """One step or two: at once, if there are two and the cores for them."""
    if len(steps) < 2 or cores() < 2:
        return [step(watch) for step in steps]
    first, second = steps
    return list(halves(first, second, watch))


def halves(first: Callable[[Watch], T], second: Callable[[Watch], T], watch: Watch) -> tuple[T, T]:
    """Both at once, `second` in a thread of its own. Each may take half of the memory that is left."""
    half = _Half(watch.of)
    beside, reserved = watch.beside(half)
    step = Step(lambda: second(beside))
    step.start("tidewheel-half")
    try:
        one = first(watch)
        while not step.wait(_TICK):
            watch.check()
        other = step.outcome()
    except BaseException:
        half.is_over = step.unwanted = True
        step.wait(_GRACE)
        step.give_up()
        raise
    finally:
        watch.held += beside.held - reserved
    return one, other
