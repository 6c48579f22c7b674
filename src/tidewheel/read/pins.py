"""Versions that are read by others, piece by piece: held here until they let go, or until nobody asked for a while."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
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

GONE = (
    "the version that this read began with is not held any more: its owner restarted, or nobody asked for it for "
    f"{EXPIRES / 60:.0f} minutes. Read the table again"
)

REMEMBERED = 4096
"""Scans that began under a name, whose later tasks must not be given another version."""


class Pins:
    """The pinned versions of one table. Every method may be called from any thread.

    Scans that give the same name read the same version: that of when the first of them came. A pin is soon let go when all scans that have
    come were read to their end, so a scan that comes a minute later reads another version; but never two tasks of one scan.
    """

    def __init__(self, clock: Clock) -> None:
        self._held: Expiring[str, _Pinned] = Expiring(clock, EXPIRES, MOST)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._begun: dict[tuple[str, str], None] = {}
        """(name, scan), in the order in which they began."""
        self.era = secrets.token_hex(8)
        """Every pin's id begins with it: whether two pins come from one opening of the table."""

    def hold(self, version: Callable[[], Version], name: str = "", scan: str = "") -> tuple[str, Version]:
        """Hold the version of now, or with a `name` the one that is held under it; returns an id to ask for it by, and the version."""
        if not name:
            return self._put(f"{self.era}.{next(self._numbers)}", version())
        id_ = f"{self.era}.{name}"
        with self._lock:
            held = self._held.get(id_)
            if held is None and (name, scan) in self._begun:
                raise NotFoundError(GONE)
            if held is None:
                self._put(id_, version())
                held = self._held.get(id_)
                assert held is not None
            held.scans.setdefault(scan, _Read())
            self._begun[name, scan] = None
            if len(self._begun) > REMEMBERED:
                del self._begun[next(iter(self._begun))]
            return id_, held.version

    def _put(self, id_: str, version: Version) -> tuple[str, Version]:
        self._held.put(id_, _Pinned(version))
        return id_, version

    def get(self, name: str) -> Version:
        held = self._held.get(name)
        if held is None:
            raise NotFoundError(GONE)
        return held.version

    def touch(self, name: str, part: int, parts: int, scan: str = "") -> None:
        """Somebody reads it; if `parts` is given, has read one of so many parts of a scan. No error if it is not held any more."""
        held = self._held.get(name)
        if held is not None and parts:
            with self._lock:
                read = held.scans.setdefault(scan, _Read())
                read.parts.add(part)
                read.of = parts
                over = all(one.of and len(one.parts) >= one.of for one in held.scans.values())
            self._held.touch(name, SOON if over else EXPIRES)

    def remove(self, name: str) -> None:
        self._held.pop(name)

    def __len__(self) -> int:
        self._held.sweep()
        return len(self._held)


@dataclass(slots=True)
class _Read:
    """How far a scan is."""

    parts: set[int] = field(default_factory=set)
    """Those that were read to their end."""
    of: int = 0
    """How many there are; 0: none was read yet."""


@dataclass(slots=True)
class _Pinned:
    version: Version
    scans: dict[str, _Read] = field(default_factory=dict)


def fresh_of(version: Version, width: int) -> Version:
    """The version without its chunks: what only the owner has."""
    return version.of_chunks(ChunkSet(width))


def chunks_of(result: LocalResult) -> tuple[ChunkRecord, ...]:
    """The chunks that hold rows of a result, as far as the index can tell."""
    found = result.found
    numbers = np.unique(found.pieces[found.pieces[:, SOURCE] == 0, INDEX])  # masks cut a chunk into several pieces
    return tuple(found.version.chunks.holders[i].record for i in numbers.tolist())
