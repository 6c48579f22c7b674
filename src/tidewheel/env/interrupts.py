"""Ctrl-C comes between any two calls of the main thread. Some things must be done whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def to_the_end(step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a step to its end. If it is interrupted it is begun again, which it must allow; the interrupt is raised after it."""
    try:
        return step(*args, **kwargs)
    except KeyboardInterrupt:
        to_the_end(step, *args, **kwargs)
        raise
