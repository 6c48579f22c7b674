"""Versions that are read by others, piece by piece: held here until they let go, or until nobody asked for a while."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field

import numpy as np

from tidewheel.errors import NotFoundError
from tidewheel.index.version import ChunkSet, Version
from tidewheel.model.pieces import INDEX, SOURCE
from tidewheel.model.records import ChunkRecord
from tidewheel.read.local_result import LocalResult

EXPIRES = 600.0
"""Seconds after which a pin that nobody touched is let go: whoever took it is dead."""

SOON = 60.0
"""The same once every part has been read. Not at once: parts are read again when a task is tried again."""

MOST = 256
"""Pins at once; the one that was not asked for the longest goes first."""


@dataclass(slots=True)
class _Held:
    version: Version
    touched: float
    read: set[int] = field(default_factory=set)
    """Parts that were read to their end."""
    parts: int = 0

    def is_over(self, now: float) -> bool:
        return now - self.touched > (SOON if self.parts and len(self.read) >= self.parts else EXPIRES)


class Pins:
    """The pinned versions of one table. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()

    def add(self, version: Version) -> str:
        """Hold a version; returns the name to ask for it by."""
        name = secrets.token_hex(8)
        with self._lock:
            dropped = self._expire(MOST - 1)
            self._held[name] = _Held(version, time.monotonic())
        del dropped  # outside the lock: letting go of a version may delete files
        return name

    def get(self, name: str) -> Version:
        with self._lock:
            held = self._held.get(name)
            if held is None:
                raise NotFoundError(
                    "the version that this read began with is not held any more: its owner restarted, or nobody asked for it for "
                    f"{EXPIRES / 60:.0f} minutes. Read the table again"
                )
            held.touched = time.monotonic()
            return held.version

    def touch(self, name: str, part: int, parts: int) -> None:
        """Somebody reads it; if `parts` is given, has read one of so many parts. No error if it is not held any more."""
        with self._lock:
            held = self._held.get(name)
            if held is not None:
                held.touched = time.monotonic()
                if parts:
                    held.parts = parts
                    held.read.add(part)

    def remove(self, name: str) -> None:
        with self._lock:
            dropped = self._held.pop(name, None)
        del dropped

    def __len__(self) -> int:
        with self._lock:
            dropped = self._expire(MOST)
            count = len(self._held)
        del dropped
        return count

    def _expire(self, most: int) -> list[_Held]:
        """Called with the lock held; the caller lets go of what is returned."""
        now = time.monotonic()
        over = [name for name, held in self._held.items() if held.is_over(now)]
        rest = sorted(self._held.keys() - over, key=lambda name: self._held[name].touched)
        return [self._held.pop(name) for name in over + rest[: max(0, len(rest) - most)]]


def fresh_of(version: Version, width: int) -> Version:
    """The version without its chunks: what only the owner has."""
    return version.of_chunks(ChunkSet(width))


def chunks_of(result: LocalResult) -> tuple[ChunkRecord, ...]:
    """The chunks that hold rows of a result, as far as the index can tell."""
    found = result.found
    numbers = np.unique(found.pieces[found.pieces[:, SOURCE] == 0, INDEX])  # masks cut a chunk into several pieces
    return tuple(found.version.chunks.holders[i].record for i in numbers.tolist())
