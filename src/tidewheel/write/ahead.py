"""New chunks are verified before a query asks for their rows.

A block's checksum is compared when the block is first touched. For a chunk that was just written, the thread that commits does that while
it has nothing to commit: its bytes are still in memory, and the system maps the pages on the way, so that no query waits for either. Chunks
of earlier processes are left to the queries that touch them: to read all of a history would take long, and drive out pages in use. So are
small chunks, whose blocks are few.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from tidewheel.index.version import ChunkLike
from tidewheel.model.pieces import BLOCK_ROWS

MOST = 1024
"""Chunks that may wait; of more, the oldest are left to the queries."""
LEAST_ROWS = 4 * BLOCK_ROWS


class Ahead:
    """Used by one thread. Chunks that leave their table meanwhile are not held on to."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[weakref.ref[ChunkLike], int]] = deque(maxlen=MOST)
        """Each with the next of its columns."""

    def add(self, chunks: Iterable[ChunkLike]) -> None:
        self._waiting.extend((weakref.ref(chunk), 0) for chunk in chunks if chunk.mapped is not None and chunk.record.rows >= LEAST_ROWS)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def step(self) -> None:
        """Verify one column of one chunk: less than a millisecond, usually."""
        held, column = self._waiting.popleft()
        chunk = held()
        if chunk is None:
            return
        with suppress(Exception):  # which the first query that touches it is told; the thread that commits has to go on
            if chunk.verify_column(column):
                self._waiting.appendleft((held, column + 1))
