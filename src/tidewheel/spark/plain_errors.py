"""Our errors in Spark's processes begin with their sentence: Spark would put the whole traceback of the process before it."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from tidewheel.errors import TidewheelError

P = ParamSpec("P")
T = TypeVar("T")

_HIDE = "SPARK_HIDE_TRACEBACK"
"""Spark looks for it in the environment of the process at the moment in which it tells the driver of an error."""


def plainly(method: Callable[P, T]) -> Callable[P, T]:
    """For methods that Spark calls. An error of ours says by itself what is wrong; the traceback of any other is left to Spark."""

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except TidewheelError as e:
            e.__cause__, e.__suppress_context__ = None, True
            if _HIDE not in os.environ:
                os.environ[_HIDE] = "1"
                # Spark uses the process again, also for others: their tracebacks are theirs.
                weakref.finalize(e, os.environ.pop, _HIDE, None)
            raise

    return called


def plain_iterator(items: Iterator[T]) -> Iterator[T]:
    """The same for the items of an iterator that Spark reads."""
    step = plainly(lambda: next(items, _END))
    while (item := step()) is not _END:
        yield item  # type: ignore[misc]  # mypy does not see that it is no end


_END: object = object()
