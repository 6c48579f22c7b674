"""How long a process keeps what it has of DuckDB: until its end, and never across a fork.

The parser, the evaluator and the databases of statements are each made at the first use and kept for the next. DuckDB complains at the
end of a process about connections that are still there. A forked child has none of the threads that DuckDB works with, and perhaps a lock
that nobody will release: it makes databases of its own, and leaves those of its parent alone, because closing them would crash it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Kept(Generic[C]):
    """A list of connections or databases, for the whole process. Hold `lock` while you use `items`; the last one is closed first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.items: list[C] = []
        _every.append(self)

    def close(self) -> None:
        with self.lock:
            items = self.items[::-1]
            self.items.clear()
        for one in items:
            one.close()


_every: list[Kept[Any]] = []


@atexit.register
def _close_all() -> None:
    for kept in _every:
        kept.close()


def _forget_in_child() -> None:
    for kept in _every:
        kept.lock = threading.Lock()
        for one in kept.items:
            # never let go of, also not when Python ends: a list of a module would be emptied then, and they would be closed
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
        kept.items.clear()


os.register_at_fork(after_in_child=_forget_in_child)
