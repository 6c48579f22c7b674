"""Versions that are read by others, piece by piece: held here until they let go, or until nobody asked for a while."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any

from tidewheel.errors import NotFoundError
from tidewheel.index.version import ChunkSet, Version
from tidewheel.model.pieces import SOURCE
from tidewheel.model.records import ChunkRecord
from tidewheel.read.local_result import LocalResult

EXPIRES = 600.0
"""Seconds. A reader of many pieces asks for each when it comes to it, so this is the longest that one piece may take."""

MOST = 256
"""Pins at once; the one that was not asked for the longest goes first."""


@dataclass(slots=True)
class _Held:
    version: Version
    touched: float


class Pins:
    """The pinned versions of one table. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()

    def add(self, version: Version) -> str:
        """Hold a version; returns the name to ask for it by."""
        name = secrets.token_hex(8)
        with self._lock:
            self._expire()
            self._held[name] = _Held(version, time.monotonic())
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

    def remove(self, name: str) -> None:
        with self._lock:
            self._held.pop(name, None)

    def __len__(self) -> int:
        with self._lock:
            self._expire()
            return len(self._held)

    def _expire(self) -> None:
        now = time.monotonic()
        for name, held in list(self._held.items()):
            if now - held.touched > EXPIRES:
                del self._held[name]
        while len(self._held) >= MOST:
            del self._held[min(self._held, key=lambda name: self._held[name].touched)]


def fresh_of(version: Version, width: int) -> Version:
    """The version without its chunks: what only the owner has."""
    return Version(version.generation, ChunkSet(width), version.sealed, version.live, version.masks, version.coders)


def chunks_of(result: LocalResult) -> tuple[ChunkRecord, ...]:
    """The chunks that hold rows of a result, as far as the index can tell."""
    found = result.found
    holders: list[Any] = [found.holder(piece) for piece, row in enumerate(found.pieces) if row[SOURCE] == 0]
    return tuple(chunk.record for chunk in holders)
