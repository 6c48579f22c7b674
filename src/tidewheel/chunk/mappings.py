"""How many chunks this process has mapped, and which of them it lets go of when there is no room for another.

A system allows a process so many mappings (Linux 65,530), for everything in it; a process that uses them up dies in its next allocation.
So chunks take only a part of them. What always holds:

- No more chunks are mapped than the one that asks allows, whoever holds on to them: chunks, queries under way, or rows that were
  returned without a copy. A mapping is counted from before it is made until the last of these has let go of it.
- Where there is no room, chunks that no query used of late are let go of; a query that still reads them keeps them until it is done.
- If that makes no room, `take` says so, and the chunk is read by range instead (`chunk.remote_chunk`): slower, and as right.

Call from any thread.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Protocol

import pyarrow as pa

from tidewheel.chunk.cache import LeafCache
from tidewheel.model.dataclass import dataclass


class Mappable(Protocol):
    """A chunk that has a mapping, or had one."""

    def let_go(self) -> bool | None:
        """Give the mapping up, unless it was used since this was last asked (False). None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Beyond:
    """What one warehouse does about chunks that cannot all be mapped."""

    most: int
    """Mapped chunks of this process, at which it maps no more."""
    cache: LeafCache
    """For what is read of the others."""


class Mappings:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._gone: deque[None] = deque()
        """One for each mapping that ended. Appended to while memory is freed, at any point of any thread: so without the lock."""
        self._ring: deque[weakref.ref[Mappable]] = deque()
        """Chunks that were mapped, in the order in which they are asked to let go."""

    @property
    def count(self) -> int:
        """Chunks that are mapped now."""
        with self._lock:
            return self._settled()

    def take(self, most: int, displace: bool) -> bool:
        """Room for one more mapping: True if there is, which is then taken. With `displace`, others may have to make room."""
        with self._lock:
            if self._settled() >= most and displace:
                self._displace(max(1, most // 64))
            if self._settled() >= most:
                return False
            self._count += 1
            return True

    def give_back(self) -> None:
        """The mapping that was to be made was not."""
        self._gone.append(None)

    def hold(self, mapped: pa.Buffer) -> pa.Buffer:
        """The same memory, counted until nobody holds it any more."""
        return pa.foreign_buffer(mapped.address, mapped.size, base=_Counted(mapped, self._gone))

    def enlist(self, chunk: Mappable) -> None:
        """A chunk has a mapping now, and can be asked to let go of it."""
        with self._lock:
            if len(self._ring) > 1024 + 2 * self._settled():  # most of these chunks are gone
                self._ring = deque(held for held in self._ring if held() is not None)
            self._ring.append(weakref.ref(chunk))

    def _settled(self) -> int:
        while self._gone:
            self._gone.pop()
            self._count -= 1
        return self._count

    def _displace(self, some: int) -> None:
        """Go round once or twice, the hand of a clock: whoever was used since it last passed is passed once more."""
        for _ in range(2 * len(self._ring)):
            if not self._ring:  # all have let go, or were gone: what is still counted, readers hold
                return
            held = self._ring.popleft()
            chunk = held()
            freed = None if chunk is None else chunk.let_go()
            del chunk
            if freed is False:
                self._ring.append(held)
            elif freed:
                some -= 1
            if not some:
                return


class _Counted:
    """Ends with the last buffer over a mapping."""

    __slots__ = ("_gone", "_mapped")

    def __init__(self, mapped: pa.Buffer, gone: deque[None]) -> None:
        self._mapped = mapped
        self._gone = gone

    def __del__(self) -> None:
        self._gone.append(None)


MAPPINGS = Mappings()
"""Of this process: the system counts them together, so we do."""
