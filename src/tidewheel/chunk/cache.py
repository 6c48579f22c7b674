"""The leaf cache: what queries fetched from storage that is not a local disk, kept in memory (Waterwheel IV.B).

Its unit is one leaf of one column, or a chunk's frame ("template or leaf" in the paper). Units that share a checksum
form a group, because they can only be loaded and verified together; they are kept and dropped one by one, so memory
goes to the leaves that are asked for, not to their neighbours.

What always holds:
- The kept units have at most `capacity` bytes. A larger unit is handed out and not kept.
- The least recently used unit goes first. Neighbours that merely came along are kept where room is free, displace
  nothing, and are the first to go.
- A group that several threads miss at the same time is loaded once; if that fails, all of them see the error.
- Units are immutable: whoever got one may use it for as long as it likes, also after it was dropped here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

from tidewheel.model.dataclass import dataclass

Group = tuple[str, int, int]
"""(chunk id, column, block): what is loaded together."""
Key = tuple[Group, int]
"""(group, leaf): one unit."""
Sized = tuple[Any, int]
"""A unit and its bytes in memory."""
Units = Mapping[int, Sized]
"""All units of one group, by leaf."""
Load = Callable[[list[Group]], Mapping[Group, Units]]
Flights = dict[Group, "Future[Units]"]
"""Groups on their way."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What the cache did so far and holds now."""

    hits: int
    misses: int
    evictions: int
    bytes: int
    units: int


class LeafCache:
    """One per warehouse, shared by its tables. Every method may be called from any thread; nothing is loaded under the lock."""

    __slots__ = ("_bytes", "_evictions", "_flights", "_hits", "_lock", "_misses", "_units", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        self._units: OrderedDict[Key, Sized] = OrderedDict()
        self._flights: Flights = {}
        self._bytes = self._hits = self._misses = self._evictions = 0

    @property
    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(self._hits, self._misses, self._evictions, self._bytes, len(self._units))

    def get_or_load(self, key: Key, load: Callable[[], Sized]) -> Any:
        """One unit that is a group of its own."""
        return self.get([key], lambda groups: {key[0]: {key[1]: load()}})[0]

    def get(self, keys: Sequence[Key], load: Load) -> list[Any]:
        """The units of these keys, in their order. `load` is called with the groups that are missing and that nobody else is
        loading, at most once unless another thread is interrupted meanwhile; it returns every unit of each."""
        found: dict[Key, Any] = {}
        count = True
        while True:
            theirs = self._take_or_load(keys, found, count, load)
            # ours are done before we wait for others, so two threads never wait for each other
            interrupted = False
            for group, flight in theirs.items():
                try:
                    self._collect(found, keys, {group: flight.result()})
                except CancelledError:
                    interrupted = True  # the other thread gave up (Ctrl-C): look again, and load it here
            if not interrupted:
                return [found[key] for key in keys]
            count = False

    def _take_or_load(self, keys: Sequence[Key], found: dict[Key, Any], count: bool, load: Load) -> Flights:
        """Take what is here and load what nobody else is loading; returns what others are. However this ends, nobody waits for us."""
        mine: Flights = {}
        try:
            theirs = self._look(keys, found, count, mine)
            if mine:
                loaded = load(list(mine))
                wanted = set(keys)
                with self._lock:
                    for group in mine:
                        self._keep(group, loaded[group], wanted)
                self._collect(found, keys, loaded)
                for group, flight in mine.items():
                    flight.set_result(loaded[group])
            return theirs
        except BaseException as e:
            with self._lock:
                for group, flight in mine.items():
                    if self._flights.get(group) is flight:
                        del self._flights[group]
            for flight in mine.values():
                if isinstance(e, Exception) and not flight.done():
                    flight.set_exception(e)
                flight.cancel()
            raise

    def _look(self, keys: Sequence[Key], found: dict[Key, Any], count: bool, mine: Flights) -> Flights:
        """Take what is here; of what is missing, note in `mine` what falls to the caller, and return what is on its way."""
        theirs: Flights = {}
        with self._lock:
            for key in keys:
                if key in found:
                    continue
                unit = self._units.get(key)
                if unit is not None:
                    self._units.move_to_end(key)
                    found[key] = unit[0]
                    self._hits += count
                    continue
                self._misses += count
                group = key[0]
                if group not in mine and group not in theirs:
                    flight = self._flights.get(group)
                    if flight is None:
                        # in `mine` first: after an interrupt at any point, what others can see is also taken back
                        mine[group] = flight = Future()
                        self._flights[group] = flight
                    else:
                        theirs[group] = flight
        return theirs

    def _keep(self, group: Group, units: Units, wanted: set[Key]) -> None:
        """Under the lock."""
        for leaf, unit in units.items():
            key, size = (group, leaf), unit[1]
            if key in self._units or size > self.capacity:
                continue
            if key in wanted:
                while self._bytes + size > self.capacity:
                    self._bytes -= self._units.popitem(last=False)[1][1]
                    self._evictions += 1
            elif self._bytes + size > self.capacity:
                continue
            self._units[key] = unit
            self._bytes += size
            if key not in wanted:
                self._units.move_to_end(key, last=False)
        self._flights.pop(group, None)

    @staticmethod
    def _collect(found: dict[Key, Any], keys: Sequence[Key], loaded: Mapping[Group, Units]) -> None:
        for key in keys:
            if key not in found and key[0] in loaded:
                found[key] = loaded[key[0]][key[1]][0]
