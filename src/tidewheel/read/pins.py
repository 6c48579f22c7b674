"""Versions that are read by others, piece by piece: held here until they let go, or until nobody asked for a while."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import numpy as np

from tidewheel.env.clock import Clock
from tidewheel.env.expiring import Expiring
from tidewheel.errors import NotFoundError
from tidewheel.index.version import ChunkSet, Version
from tidewheel.model.pieces import INDEX, SOURCE
from tidewheel.model.records import ChunkRecord
from tidewheel.read.local_result import LocalResult

EXPIRES = 600.0
"""Seconds after which a pin that nobody touched is let go: whoever took it is dead."""

SOON = 60.0
"""Seconds that a pin is kept once every part has been read. Not none: parts are read again when a task is tried again."""

MOST = 256
"""Pins at once; the one that was not asked for the longest goes first."""


class Pins:
    """The pinned versions of one table. Every method may be called from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._held: Expiring[str, _Pinned] = Expiring(clock, EXPIRES, MOST)

    def add(self, version: Version) -> str:
        """Hold a version; returns the name to ask for it by."""
        name = secrets.token_hex(8)
        self._held.put(name, _Pinned(version))
        return name

    def get(self, name: str) -> Version:
        held = self._held.get(name)
        if held is None:
            raise NotFoundError(
                "the version that this read began with is not held any more: its owner restarted, or nobody asked for it for "
                f"{EXPIRES / 60:.0f} minutes. Read the table again"
            )
        return held.version

    def touch(self, name: str, part: int, parts: int) -> None:
        """Somebody reads it; if `parts` is given, has read one of so many parts. No error if it is not held any more."""
        held = self._held.get(name)
        if held is not None and parts:
            held.read.add(part)
            self._held.touch(name, SOON if len(held.read) >= parts else EXPIRES)

    def remove(self, name: str) -> None:
        self._held.pop(name)

    def __len__(self) -> int:
        self._held.sweep()
        return len(self._held)


@dataclass(slots=True)
class _Pinned:
    version: Version
    read: set[int] = field(default_factory=set)
    """Parts that were read to their end."""


def fresh_of(version: Version, width: int) -> Version:
    """The version without its chunks: what only the owner has."""
    return version.of_chunks(ChunkSet(width))


def chunks_of(result: LocalResult) -> tuple[ChunkRecord, ...]:
    """The chunks that hold rows of a result, as far as the index can tell."""
    found = result.found
    numbers = np.unique(found.pieces[found.pieces[:, SOURCE] == 0, INDEX])  # masks cut a chunk into several pieces
    return tuple(found.version.chunks.holders[i].record for i in numbers.tolist())
