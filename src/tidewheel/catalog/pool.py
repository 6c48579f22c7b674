"""Connections that are kept for the next call, handed out and taken back in single steps.

SQLAlchemy's own queue of them enters a lock by a call in Python: a Ctrl-C behind it would leave the lock held, and every thread that
needs the catalog would wait for it (env/interrupts.py).
"""

from __future__ import annotations

from queue import Empty, SimpleQueue

from sqlalchemy import QueuePool
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util import queue as theirs


class _Kept(theirs.QueueCommon[ConnectionPoolEntry]):
    """Never waited for: a thread that finds none makes a connection, and closes it if there are enough when it is done."""

    def __init__(self, maxsize: int = 0, use_lifo: bool = False) -> None:
        self.maxsize = maxsize
        self.use_lifo = use_lifo
        self._entries: SimpleQueue[ConnectionPoolEntry] = SimpleQueue()

    def empty(self) -> bool:
        return self._entries.empty()

    def full(self) -> bool:
        return 0 < self.maxsize <= self._entries.qsize()

    def qsize(self) -> int:
        return self._entries.qsize()

    def put_nowait(self, item: ConnectionPoolEntry) -> None:
        self.put(item)

    def put(self, item: ConnectionPoolEntry, block: bool = True, timeout: float | None = None) -> None:
        if self.full():
            raise theirs.Full
        self._entries.put(item)

    def get_nowait(self) -> ConnectionPoolEntry:
        return self.get()

    def get(self, block: bool = True, timeout: float | None = None) -> ConnectionPoolEntry:
        try:
            return self._entries.get_nowait()
        except Empty:
            raise theirs.Empty from None


class Connections(QueuePool):
    """Its `max_overflow` must be -1."""

    _queue_class = _Kept
