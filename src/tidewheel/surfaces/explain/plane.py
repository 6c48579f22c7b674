"""The key × time plane in cells: where regions lie, which of them a query reads, and where the query itself is. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidewheel.model.query import Plan, Subquery
from tidewheel.model.times import INT64_MAX, INT64_MIN

PRUNED, READ, ASKED = 1, 2, 4
"""Contents of a cell, as bits: a region that is not read, one that is, a part of the query."""

Interval = tuple[int, int]
Cells = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Region:
    """A tree or a chunk: its key interval in codes, its time interval in the column's unit, and whether the query reads it."""

    place: str
    name: str
    key: Interval
    time: Interval
    read: bool
    rows: int
    """All of them, or if it is read those that the query takes."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A closed interval that is cut into so many cells."""

    lo: int
    hi: int
    cells: int

    def cell(self, code: int) -> int:
        """The cell of a code; those outside have the outermost."""
        return min(max((code - self.lo) * self.cells // (self.hi - self.lo + 1), 0), self.cells - 1)

    def span(self, interval: Interval) -> slice:
        """The cells that an interval touches; none if it lies outside."""
        lo, hi = interval
        return slice(self.cell(lo), self.cell(hi) + 1) if lo <= hi and lo <= self.hi and hi >= self.lo else slice(0, 0)


@dataclass(frozen=True, slots=True)
class Plane:
    """Rows of cells: the lowest key is in the first row, the earliest time in the first column."""

    key: Axis
    time: Axis
    cells: Cells


def regions_of(everything: Plan, plan: Plan) -> list[Region]:
    """All regions of a table, from the plan of a query without bounds and from that of the query."""
    read: dict[Hashable, list[Subquery]] = {}
    for sub in plan.subqueries:
        read.setdefault(_which(sub), []).append(sub)
    found = []
    for sub in everything.subqueries:
        alike = read.get(_which(sub), [])  # runs of one batch differ only in their times
        mine = next((one for one in alike if sub.time[0] <= one.time[0] and one.time[1] <= sub.time[1]), None)
        if mine is not None:
            alike.remove(mine)
        found.append(_region(sub, mine is not None, sub.rows if mine is None else mine.rows))
    grown = [_region(sub, True, sub.rows) for left in read.values() for sub in left]  # trees that grew in between, or became chunks
    return found + grown


def _which(sub: Subquery) -> Hashable:
    return sub.place, sub.name, sub.key


def _region(sub: Subquery, read: bool, rows: int) -> Region:
    return Region(sub.place, sub.name, sub.key, sub.time, read, rows)


def plane(regions: Sequence[Region], keys: Sequence[Interval], time: Interval, width: int, height: int) -> Plane:
    """The plane that all regions, and as much of the query as fits beside them, lie in."""
    key_axis, time_axis = axes(regions, keys, time, width, height)
    cells = np.zeros((height, width), np.uint8)
    for region in regions:
        cells[key_axis.span(region.key), time_axis.span(region.time)] |= READ if region.read else PRUNED
    for key in keys:
        cells[key_axis.span(key), time_axis.span(time)] |= ASKED
    return Plane(key_axis, time_axis, cells)


def axes(regions: Sequence[Region], keys: Sequence[Interval], time: Interval, width: int, height: int) -> tuple[Axis, Axis]:
    """The axes of that plane: of keys, and of times."""
    return _axis([r.key for r in regions], keys, height), _axis([r.time for r in regions], [time], width)


def _axis(there: Iterable[Interval], asked: Sequence[Interval], cells: int) -> Axis:
    """From the first to the last region; and the query's ends, unless they are open or so far away that nothing else could be seen."""
    known = list(there)
    ends = [end for interval in asked for end in interval if interval[0] <= interval[1] and INT64_MIN < end < INT64_MAX]
    if not known:
        return Axis(min(ends, default=0), max(ends, default=0), cells)
    lo, hi = min(interval[0] for interval in known), max(interval[1] for interval in known)
    beside = (hi - lo + 1) // 4 + 1
    return Axis(max(min([lo, *ends]), lo - beside), min(max([hi, *ends]), hi + beside), cells)
