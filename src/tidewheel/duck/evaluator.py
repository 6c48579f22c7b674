"""The evaluator: a database that holds no data and evaluates statements over rows that are given to it. There is one for each process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.duck import ip_functions
from tidewheel.duck.connect import connect
from tidewheel.duck.lifetime import Kept

if TYPE_CHECKING:
    from tidewheel.duck.connect import Connection

MEMORY = 1 << 30
"""What all grouping of this process together may take before it spills to a temporary folder."""

ROWS = "·rows"
"""The name of the rows in a statement that is evaluated: one that no column has, or `t.x` would be the table's x and not a column's."""

_evaluator: Kept[Connection] = Kept()


_with_addresses: set[int] = set()
"""The evaluator, once it has functions of addresses. (After a fork there is another one.)"""


def _cursor(text: str = "") -> Connection:
    """A connection of its own to the evaluator, for a statement: cursors of one database may run in several threads."""
    with _evaluator.lock:
        if not _evaluator.items:
            _evaluator.items.append(connect(MEMORY))  # when it is locked: an interrupt must not leave an open one behind
        root = _evaluator.items[0]
        if id(root) not in _with_addresses and ip_functions.are_needed(text):
            ip_functions.install(root)
            _with_addresses.add(id(root))
        return root.cursor()


@contextmanager
def evaluator() -> Iterator[Connection]:
    """A connection for one question."""
    cursor = _cursor()
    try:
        yield cursor
    finally:
        cursor.close()


def asked(text: str) -> list[tuple[Any, ...]]:
    """The rows of a statement that reads nothing."""
    with evaluator() as cursor:
        return cursor.execute(text).fetchall()


class RowStatement:
    """One statement over `ROWS` that is run once, in a connection of its own. Another thread may interrupt it at any time."""

    def __init__(self, sql: str, memory: int = MEMORY) -> None:
        """With less memory than the evaluator has, it is run in a database of its own."""
        self._sql = sql
        self._own = None if memory == MEMORY else connect(memory)
        if self._own is not None and ip_functions.are_needed(sql):
            ip_functions.install(self._own)
        self._cursor = _cursor(sql) if self._own is None else self._own.cursor()
        self._closing = threading.Lock()
        self._closed = False

    def run(self, rows: pa.Table | pa.RecordBatchReader, take: Callable[[int], None]) -> pa.Table:
        """Its answer. `take` is told the bytes of each batch of it, and may refuse more by an exception."""
        try:
            self._cursor.register(ROWS, rows)
            answer = self._cursor.sql(self._sql).to_arrow_reader()
            batches = []
            for batch in answer:
                take(batch.nbytes)
                batches.append(batch)
            return pa.Table.from_batches(batches, answer.schema)
        finally:
            with self._closing:
                self._closed = True
            self._cursor.close()
            if self._own is not None:
                self._own.close()

    def interrupt(self) -> None:
        with self._closing:
            if not self._closed:
                self._cursor.interrupt()
