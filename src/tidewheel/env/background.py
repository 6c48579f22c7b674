"""Processes that only use what others leave of the processors."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

NICENESS = 10
"""Beside a process of the usual niceness, one of this gets about a tenth of a core that both want."""


def started_in_background(start: Callable[[], T]) -> T:
    """Call `start`, whose child processes get a low priority, for good; this process keeps its own.

    A child inherits the niceness of the thread that starts it. On Linux each thread has its own, and nobody but root may raise it again,
    so that a thread is made for this one call. Elsewhere niceness is the whole process's, and is left as it is.
    """
    if not sys.platform.startswith("linux"):
        return start()
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
            done.append(start())
        except BaseException as e:  # raised in the thread of the caller
            failed.append(e)

    thread = threading.Thread(target=run, name="tidewheel-background", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
