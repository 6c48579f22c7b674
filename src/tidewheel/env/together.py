"""The same for many things at once, where each mostly waits for the disk: a disk that is asked for one sync after the other does one at a
time, and asked for many does them in one go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

MOST = 16
"""Threads, the caller's among them. Each has a descriptor open."""


def together(act: Callable[[T], None], items: Sequence[T]) -> list[OSError | None]:
    """Do it to each, in no order; returns what each failed with. When it returns, all are done. Anything but an OSError is raised then."""
    left = iter(range(len(items)))  # a step of the interpreter each: threads share it
    failures: list[BaseException | None] = [None] * len(items)

    def work() -> None:
        for i in left:
            try:
                act(items[i])
            except BaseException as e:
                failures[i] = e

    threads = []
    for _ in range(min(MOST, len(items)) - 1):
        thread = threading.Thread(target=work, name="tidewheel-together", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system gives no more, or the interpreter ends: those that there are do it
            break
        threads.append(thread)
    work()
    for thread in threads:
        thread.join()
    for failure in failures:
        if failure is not None and not isinstance(failure, OSError):
            raise failure
    return failures  # type: ignore[return-value]  # all others were raised
