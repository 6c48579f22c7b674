"""New chunks are verified before a query asks for their rows.

A block's checksum is compared when the block is first touched. For a chunk that this process just wrote, the thread that commits does that
while it has nothing to commit: its bytes are still in memory, and the system maps the pages on the way, so that no query waits for either.
Chunks of earlier processes, and those that were written elsewhere, are left to the queries that touch them: to read all of a history would
take long, and drive out pages in use. So are small chunks, whose blocks are few.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from tidewheel.index.version import ChunkLike
from tidewheel.model.pieces import BLOCK_ROWS

MOST = 1 << 30
"""Bytes of chunks that may wait; of more, the oldest are left to the queries: they may not be in memory any more."""
LEAST_ROWS = 4 * BLOCK_ROWS


@dataclass(slots=True)
class _Waiting:
    chunk: weakref.ref[ChunkLike]
    bytes: int
    column: int = 0
    """The next one."""


class Ahead:
    """Used by one thread. Chunks that leave their table meanwhile are not held on to."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0

    def add(self, chunks: Iterable[ChunkLike]) -> None:
        for chunk in chunks:
            if chunk.mapped is not None and chunk.record.rows >= LEAST_ROWS:
                self._waiting.append(_Waiting(weakref.ref(chunk), chunk.record.bytes))
                self._bytes += chunk.record.bytes
        while self._bytes > MOST:
            self._leave()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def step(self) -> None:
        """Verify one column of one chunk: a millisecond for a chunk of the usual size."""
        first = self._waiting[0]
        chunk, more = first.chunk(), False
        if chunk is not None:
            with suppress(Exception):  # which the first query that touches it is told; the thread that commits has to go on
                more = chunk.verify_column(first.column)
        if more:
            first.column += 1
        else:
            self._leave()

    def _leave(self) -> None:
        self._bytes -= self._waiting.popleft().bytes
