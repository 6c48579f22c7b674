"""Boxes: where in key and time the rows of a condition lie, and what becomes of them when conditions are put together.

Boxes prune: a condition that is not understood leaves them wide. If they are `exact`, they also decide, and nobody has to look at the
rows again. No two boxes overlap, so a row is found once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidewheel.model.dataclass import dataclass

MOST_BOXES = 64
"""Each is a query of its own. A condition that needs more gets fewer and wider ones."""

_MOST_UNEVEN = 16
"""Boxes that are bounded in several columns, which are compared each with each."""

Interval = tuple[Any, Any]
"""Closed; None is open."""
Box = Mapping[str, Interval]
"""Intervals by column; a column that is not named is unbounded."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes that hold all rows of a condition."""

    boxes: tuple[Box, ...]
    exact: bool
    """Every row in the boxes satisfies the condition."""


EVERYTHING = Boxes(({},), True)
NOTHING = Boxes((), True)
UNKNOWN = Boxes(({},), False)
"""The bounds of a condition that is not understood: all rows, each of which has to be asked."""


def both(a: Boxes, b: Boxes) -> Boxes:
    """The bounds of rows that satisfy both conditions."""
    if len(a.boxes) * len(b.boxes) > MOST_BOXES:
        a, b = (_hull(a), b) if len(a.boxes) > len(b.boxes) else (a, _hull(b))
    met = [box for one in a.boxes for two in b.boxes if (box := _meet(one, two)) is not None]
    return Boxes(tuple(met), a.exact and b.exact)


def either(a: Boxes, b: Boxes) -> Boxes:
    """The bounds of rows that satisfy at least one of two conditions."""
    joined, even = apart(a.boxes + b.boxes)
    return Boxes(tuple(joined), even and a.exact and b.exact)


def _meet(a: Box, b: Box) -> Box | None:
    """The box that two boxes have in common; None if there is none."""
    met = dict(a)
    for column, (lo, hi) in b.items():
        lo0, hi0 = met.get(column, (None, None))
        met[column] = (
            lo0 if lo is None else lo if lo0 is None else max(lo, lo0),
            hi0 if hi is None else hi if hi0 is None else min(hi, hi0),
        )
    return met if all(lo is None or hi is None or lo <= hi for lo, hi in met.values()) else None


def _join(a: Box, b: Box) -> Box:
    """The smallest box around both."""
    joined = {}
    for column in a.keys() & b.keys():
        (lo0, hi0), (lo1, hi1) = a[column], b[column]
        lo = None if lo0 is None or lo1 is None else min(lo0, lo1)
        hi = None if hi0 is None or hi1 is None else max(hi0, hi1)
        if lo is not None or hi is not None:
            joined[column] = (lo, hi)
    return joined


def around(boxes: Iterable[Box]) -> Box:
    """The smallest box around all of them."""
    whole: Box | None = None
    for box in boxes:
        whole = box if whole is None else _join(whole, box)
    return {} if whole is None else whole


def _hull(bounds: Boxes) -> Boxes:
    return bounds if len(bounds.boxes) < 2 else Boxes((around(bounds.boxes),), False)


def apart(boxes: Iterable[Box]) -> tuple[list[Box], bool]:
    """The boxes, with those that overlap joined; and whether the joined boxes hold the same points as before, and no others."""
    left = [box for box in boxes if all(lo is None or hi is None or lo <= hi for lo, hi in box.values())]
    if len(left) < 2:
        return left, True
    columns = {column for box in left for column in box}
    if any(not box for box in left):
        return [{}], True
    if len(columns) == 1:
        return _line(left, columns.pop())
    if len(left) > _MOST_UNEVEN:
        return [around(left)], False
    even = True
    found: list[Box] = []
    while left:
        box = left.pop()
        other = next((one for one in found if _meet(one, box) is not None), None)
        if other is None:
            found.append(box)
            continue
        found.remove(other)
        joined = _join(other, box)
        even = even and joined in (other, box)
        left.append(joined)
    return found, even


def _line(boxes: list[Box], column: str) -> tuple[list[Box], bool]:
    """Boxes of one column: sorted, and joined where they touch."""
    intervals = sorted((box[column] for box in boxes), key=lambda i: (i[0] is not None, i[0] if i[0] is not None else 0))
    merged: list[Interval] = []
    for lo, hi in intervals:
        if merged and _touches(merged[-1][1], lo):
            before = merged[-1]
            merged[-1] = (before[0], None if hi is None or before[1] is None else max(hi, before[1]))
        else:
            merged.append((lo, hi))
    if len(merged) <= MOST_BOXES:
        return [{column: interval} if interval != (None, None) else {} for interval in merged], True
    return [around({column: interval} for interval in merged)], False


def _touches(hi: Any, lo: Any) -> bool:
    return hi is None or lo is None or lo <= hi or isinstance(hi, int) and isinstance(lo, int) and lo == hi + 1
