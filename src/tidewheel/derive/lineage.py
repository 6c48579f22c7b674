"""Lineage: which partitions of a derived table are stale, and what has to be read to compute them. Pure: labels in, decisions out.

A partition is stale if some partition of a source, of whose rows it may be made, changed after the generation that it was computed at. The
check costs what changed since the last complete refresh: older changes are known to be contained (`Dependency.verified`).

A partition that nothing changed for is as good as if it had been computed at `verified`. So its *standing* with a source is the greater
of the two numbers; in an incremental mode the rows after it are all that is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidewheel.derive.bounds import EVERYTHING, Bounds, outward, to_ns
from tidewheel.errors import InputError
from tidewheel.model.dataclass import dataclass
from tidewheel.model.derived import RefreshedPartition
from tidewheel.model.partition_labels import Labels
from tidewheel.model.partitions import Partitions, joined
from tidewheel.model.times import INT64_MAX, INT64_MIN

Numbers = npt.NDArray[np.int64]
Interval = tuple[int, int]
"""Closed, in units of a time column."""

NEVER = -1
"""The standing of a partition that was never computed."""


@dataclass(frozen=True, slots=True)
class Division:
    """How a table's time is divided, and from where on it is looked at."""

    partitions: Partitions
    unit: str
    begin: int = INT64_MIN

    def interval(self, start: int) -> Interval:
        """The times of the partition that the catalog knows by this start."""
        number = self.partitions.number(start)
        return max(self.partitions.start(number), INT64_MIN), min(self.partitions.start(number + 1) - 1, INT64_MAX)

    def start(self, number: int) -> int:
        return max(self.partitions.start(number), INT64_MIN)

    def touched(self, lo: int, hi: int) -> Iterator[int]:
        """The starts of the partitions that an interval touches."""
        lo = max(lo, self.begin)
        return (self.start(n) for n in range(self.partitions.number(lo), self.partitions.number(hi) + 1)) if lo <= hi else iter(())


@dataclass(frozen=True, slots=True)
class SourceView:
    """A source of a derived table at one moment."""

    division: Division
    bounds: Bounds
    labels: Labels
    verified: int


def check_bounds(name: str, bounds: Sequence[tuple[str, str]]) -> None:
    """Raises InputError if partitions of a table could not be told from its sources."""
    try:
        known = [Bounds.from_json(text) for _, text in bounds]
    except ValueError as e:
        raise InputError(f"table {name!r}: {e}") from None
    if len({source for source, _ in bounds}) < len(bounds):
        raise InputError(f"table {name!r} names a source twice")
    if all(one.is_open for one in known):
        odd = bounds[0][0]
        raise InputError(
            f"table {name!r} needs a source whose rows reach only some of its times: no source says which partitions it has. Declare how "
            f"far the rows of one reach, both before and after: bounds={{{odd!r}: tw.bounds(before='1 hour', after='0')}}"
        )


class Refreshed:
    """The partitions of a derived table that were computed, in rising order. Never changes; a commit makes the next one."""

    __slots__ = ("numbers", "starts", "vectors")

    def __init__(self, starts: Numbers, numbers: Numbers, vectors: Numbers) -> None:
        self.starts = starts
        self.numbers = numbers
        """Of the refresh that computed each of them last."""
        self.vectors = vectors
        """The generation of each source (column) that each partition (row) was computed at."""

    @staticmethod
    def of(known: Sequence[RefreshedPartition], sources: int) -> Refreshed:
        vectors = np.array([one.vector for one in known], np.int64).reshape(-1, sources)
        pairs = np.array([(one.partition, one.refresh) for one in known], np.int64).reshape(-1, 2)
        return Refreshed(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), vectors)

    def __len__(self) -> int:
        return len(self.starts)

    def place(self, start: int) -> int:
        """The row of a partition; -1 if it was never computed."""
        i = int(np.searchsorted(self.starts, start))
        return i if i < len(self.starts) and self.starts[i] == start else -1

    def number(self, start: int) -> int:
        """The refresh that computed a partition last; 0: none did."""
        i = self.place(start)
        return int(self.numbers[i]) if i >= 0 else 0

    def after(self, starts: Iterable[int], number: int, vector: Sequence[int]) -> Refreshed:
        """With these partitions computed anew."""
        new = np.array(sorted(starts), np.int64)
        missing = new[~np.isin(new, self.starts, assume_unique=True)]
        where = np.searchsorted(self.starts, missing)
        all_ = np.insert(self.starts, where, missing)
        numbers, vectors = np.insert(self.numbers, where, 0), np.insert(self.vectors, where, 0, axis=0)
        mine = np.searchsorted(all_, new)
        numbers[mine] = number
        vectors[mine] = np.array(vector, np.int64)
        return Refreshed(all_, numbers, vectors)


@dataclass(slots=True)
class StalePartition:
    """A partition that is to be computed, and why."""

    start: int
    refresh: int
    """That made what is there; 0: it was never computed."""
    standing: tuple[int, ...]
    """The generation of each source up to which it contains all changes."""
    changed: set[int] = field(default_factory=set)
    """The sources, by number, that changed since."""
    undone: set[int] = field(default_factory=set)
    """Those of them that rows left since: what is there cannot be added to."""


class _Changed(NamedTuple):
    """A partition of a source that changed since the last complete refresh."""

    start: int
    changed: int
    undone: int


def stale_partitions(
    division: Division, refreshed: Refreshed, sources: Sequence[SourceView], within: Interval | None
) -> list[StalePartition]:
    """All that is stale, in rising order; with `within`, of the partitions that this interval touches."""
    found: dict[int, StalePartition] = {}
    lowest, highest = (INT64_MIN, INT64_MAX) if within is None else (division.start(division.partitions.number(within[0])), within[1])
    # bounded sources first: where a source reaches everywhere, only partitions can be meant that others know of
    for i in sorted(range(len(sources)), key=lambda i: sources[i].bounds.is_open):
        source = sources[i]
        for change in _changes(source):
            for start in _reached(division, source, change.start, refreshed, found):
                one = found.get(start)
                if one is None and lowest <= start <= highest:
                    at = refreshed.place(start)
                    one = StalePartition(start, int(refreshed.numbers[at]) if at >= 0 else 0, _standing(refreshed, at, sources))
                if one is not None and change.changed > one.standing[i]:
                    one.changed.add(i)
                    if change.undone > one.standing[i]:
                        one.undone.add(i)
                    found[start] = one
    return [found[start] for start in sorted(found)]


def _changes(source: SourceView) -> list[_Changed]:
    """The partitions of a source that changed after what is verified. Where each of them reaches everything, one stands for all."""
    labels = source.labels
    met = np.flatnonzero(labels.changed > source.verified)
    parts = (labels.starts, labels.changed, labels.undone)
    found = [_Changed(*three) for three in zip(*(part[met].tolist() for part in parts), strict=True)]
    if source.bounds == EVERYTHING and found:
        return [_Changed(found[0].start, max(c.changed for c in found), max(c.undone for c in found))]
    return found


def _standing(refreshed: Refreshed, at: int, sources: Sequence[SourceView]) -> tuple[int, ...]:
    if at < 0:
        return (NEVER,) * len(sources)
    return tuple(max(v, source.verified) for v, source in zip(refreshed.vectors[at].tolist(), sources, strict=True))


def _reached(division: Division, source: SourceView, start: int, refreshed: Refreshed, found: Iterable[int]) -> Iterable[int]:
    """The starts of the partitions that a change of this partition of the source can reach."""
    lo, hi = outward(*source.bounds.reach(*to_ns(*source.division.interval(start), source.division.unit)), division.unit)
    lo, hi = max(lo, INT64_MIN), min(hi, INT64_MAX)
    if source.bounds.is_open:
        known = {*refreshed.starts.tolist(), *found}
        return [one for one in known if one <= hi and division.interval(one)[1] >= lo]
    return division.touched(lo, hi)


def contained(division: Division, refreshed: Refreshed, source: SourceView, number: int, upto: int) -> int:
    """The generation, `upto` at the most, up to which every partition contains all that changed in a source, the one of this number.

    A label has only the last change of a partition. There may have been others before it, also where it is of later than `upto`: a stale
    partition contains for certain no more than it was computed of.
    """
    least = upto
    for change in _changes(source) if upto > source.verified else ():
        for start in _reached(division, source, change.start, refreshed, ()):
            at = refreshed.place(start)
            of = int(refreshed.vectors[at, number]) if at >= 0 else NEVER
            if of < change.changed and of < least:
                least = max(of, source.verified)
                if least == source.verified:
                    return least
    return least


# ---- what is read -------------------------------------------------------------------------------------------


def less(spans: Iterable[Interval], inside: Sequence[Interval]) -> tuple[Interval, ...]:
    """The times of the spans that are in none of the others. Both are in rising order and apart from each other."""
    left = []
    for lo, hi in spans:
        for a, b in inside:
            if b < lo or a > hi:
                continue
            if a > lo:
                left.append((lo, a - 1))
            lo = b + 1
        if lo <= hi:
            left.append((lo, hi))
    return tuple(left)


def needed(division: Division, intervals: Iterable[Interval], source: SourceView) -> tuple[Interval, ...]:
    """The times of a source that rows of these times are made of."""
    found = []
    for interval in intervals:
        lo, hi = outward(*source.bounds.needs(*to_ns(*interval, division.unit)), source.division.unit)
        if lo <= INT64_MAX and hi >= INT64_MIN:
            found.append((max(lo, INT64_MIN), min(hi, INT64_MAX)))
    return joined(found)


def first_set(stale: Sequence[StalePartition], sizes: Sequence[int], most: int, apart: bool) -> list[StalePartition]:
    """The newest partitions, as many as have at most so many bytes to read, but one at least. `sizes` are of each of them."""
    chosen: list[StalePartition] = []
    total = 0
    for one, size in zip(reversed(stale), reversed(sizes), strict=True):
        if chosen and (apart or total + size > most):
            break
        chosen.append(one)
        total += size
    return chosen[::-1]
