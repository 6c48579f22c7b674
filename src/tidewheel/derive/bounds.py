"""Bounds: which derived times a source row can change, and which source times a derived row is made of. In nanoseconds, exactly.

A source row at s changes derived rows at t only if

    every·⌊(s + al − origin)/every⌋ + origin + bl  ≤  t  ≤  every·⌊(s + ah − origin)/every⌋ + origin + bh

The floor at both ends keeps a row inside one hour from reaching the next. every = 1 is no grid: s + bl ≤ t ≤ s + bh. An end that is
missing (bl or bh is None) is open, and both missing is `EVERYTHING`: any change of the source makes all of the derived table stale.

Intervals are closed, (lo, hi) with lo > hi has nothing in it, and ±`FOREVER` stands for an open end: it lies beyond every int64 of every
unit, and results may lie beyond it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import reduce
from typing import Any

from tidewheel.derive.ends import End, Side, outermost
from tidewheel.errors import InputError
from tidewheel.model.dataclass import dataclass
from tidewheel.model.times import TimeAxis, parse_duration, parse_months

FOREVER = 1 << 127
Interval = tuple[int, int]

_ZERO = re.compile(r"\s*[+-]?0+\s*[a-zA-Z]*\s*")
_FIELDS = ("every", "origin", "al", "ah", "bl", "bh")
_SPARK = 1000
"""Spark's times end at microseconds: what is finer in a column was cut off before a definition saw it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Equal functions are equal values: 0 ≤ origin, al, ah < every. ValueError, if the lower end lies above the upper one somewhere."""

    every: int = 1
    origin: int = 0
    al: int = 0
    ah: int = 0
    bl: int | None = 0
    bh: int | None = 0

    def __post_init__(self) -> None:
        lower = None if self.bl is None else End(self.every, self.origin, self.al, self.bl)
        upper = None if self.bh is None else End(self.every, self.origin, self.ah, self.bh)
        if lower is not None and upper is not None and lower.b + (self.every if lower.a > upper.a else 0) > upper.b:
            raise ValueError(f"the lower end of bounds lies above the upper: {lower}, {upper}")
        grid = lower or upper or End()
        for name, value in (
            ("every", grid.every), ("origin", grid.origin),
            ("al", lower.a if lower else 0), ("bl", lower.b if lower else None),
            ("ah", upper.a if upper else 0), ("bh", upper.b if upper else None),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def lower(self) -> End | None:
        return None if self.bl is None else End(self.every, self.origin, self.al, self.bl)

    @property
    def upper(self) -> End | None:
        return None if self.bh is None else End(self.every, self.origin, self.ah, self.bh)

    @property
    def is_open(self) -> bool:
        """Whether a source row can change derived rows however far away."""
        return self.bl is None or self.bh is None

    def reach(self, lo: int, hi: int) -> Interval:
        """The derived times that source rows at lo..hi can change."""
        if lo > hi:
            return lo, hi
        m, o = self.every, self.origin  # as `lower.at(lo)` and `upper.at(hi)`, without making these: it is asked for each change
        first = -FOREVER if self.bl is None else (lo + self.al - o) // m * m + o + self.bl
        last = FOREVER if self.bh is None else (hi + self.ah - o) // m * m + o + self.bh
        return first, last

    def needs(self, lo: int, hi: int) -> Interval:
        """The source times that derived rows at lo..hi are made of: s lies in needs(t, t) exactly if t lies in reach(s, s)."""
        if lo > hi:
            return lo, hi
        m, o = self.every, self.origin
        first = -FOREVER if self.bh is None else -((o + self.bh - lo) // m) * m + o - self.ah
        last = FOREVER if self.bl is None else ((hi - o - self.bl) // m + 1) * m + o - self.al - 1
        return first, last

    def hull(self, other: Bounds) -> Bounds:
        """Bounds that hold where one of the two does: for a source that is referred to twice."""
        return nearest([self.lower, other.lower], [self.upper, other.upper])

    def to_json(self) -> str:
        if self == EVERYTHING:
            return '"all"'
        return json.dumps({name: getattr(self, name) for name in _FIELDS})

    @staticmethod
    def from_json(text: str) -> Bounds:
        """What `to_json` wrote. ValueError, if it did not."""
        try:
            value: Any = json.loads(text)
        except (RecursionError, TypeError, ValueError) as e:
            raise ValueError(f"these are no bounds: {text!r:.100} ({e})") from None
        if value == "all":
            return EVERYTHING
        numbers = value if isinstance(value, dict) and set(value) == set(_FIELDS) else {"": None}
        if not all(type(number) is int or number is None and name in ("bl", "bh") for name, number in numbers.items()):
            raise ValueError(f"these are no bounds: {text!r:.100}")
        return Bounds(**numbers)

    def __str__(self) -> str:
        """What a derived row is made of, for people."""
        if self == EVERYTHING:
            return "all rows: any change makes everything stale"
        if self == Bounds():
            return "rows of the same time"
        cell = self.every if self.every > 1 else 1
        first, last = self.needs(self.origin, self.origin + cell - 1)
        before, after = self.origin - first, last - (self.origin + cell - 1)
        if self.every > 1:
            start, end = f"the start of its {words(cell)}", "their end"
            if not self.is_open and before == after == 0:
                shifted = f", counted from {words(self.origin)} after midnight UTC, 1970-01-01" if self.origin else ""
                return f"rows of the same {words(cell)}{shifted}"
        else:
            start = end = "its time"
        if not self.is_open and before == -after and self.every == 1:
            return f"rows {_place(after, end)}"
        begin = "from the beginning" if self.bh is None else f"from {_place(-before, start)}"
        return f"rows {begin} to {'all that follow' if self.bl is None else _place(after, end)}"


EVERYTHING = Bounds(bl=None, bh=None)
"""Any change of the source makes all of the derived table stale, and all of the source is read for every row of it."""


def nearest(lowers: Iterable[End | None], uppers: Iterable[End | None]) -> Bounds:
    """The bounds with the least between its ends that are as far out as each of some ends; None is an open one.

    The grid is that of one of the ends, or none. Of two that leave equally much, the coarser grid: it never reaches into the next cell.
    """
    low, high = list(lowers), list(uppers)
    below = None if None in low else [end for end in low if end is not None]
    above = None if None in high else [end for end in high if end is not None]
    grids = sorted({(1, 0), *((e.every, e.origin) for e in (*(below or ()), *(above or ())))}, reverse=True)
    found: list[tuple[int, Bounds]] = []
    for every, origin in grids:
        lower = outermost(below, every, origin, Side.LOWER) if below else None
        upper = outermost(above, every, origin, Side.UPPER) if above else None
        width = (upper.a + upper.b if upper else 0) - (lower.a + lower.b if lower else 0)
        found.append((width, _joined(lower, upper)))
    return min(found, key=lambda pair: pair[0])[1]


def _joined(lower: End | None, upper: End | None) -> Bounds:
    """Two ends on one grid as bounds. Ends that contradict each other, as those of a filter that nothing passes, are swapped."""
    grid = lower or upper or End()
    try:
        return Bounds(
            grid.every, grid.origin,
            lower.a if lower else 0, upper.a if upper else 0, lower.b if lower else None, upper.b if upper else None,
        )  # fmt: skip
    except ValueError:
        assert lower is not None and upper is not None
        shifts = [lower.flat(Side.LOWER), lower.flat(Side.UPPER), upper.flat(Side.LOWER), upper.flat(Side.UPPER)]
        return Bounds(bl=min(shifts), bh=max(shifts))


def hull_of(bounds: Iterable[Bounds]) -> Bounds:
    """The hull of several, at least one."""
    return reduce(Bounds.hull, bounds)


# ---- declared by people -------------------------------------------------------------------------------------


def declared(before: str | int, after: str | int = 0, every: str | None = None) -> Bounds:
    """A derived row at t is made of source rows from t − before to t + after; `tw.bounds`.

    With `every`, of those from the start of its bucket − before to the end of its bucket + after; buckets are counted from 1970-01-01 UTC.
    "all" as before or after: of all rows there are on that side.
    """
    back, ahead = _open_span(before, "before"), _open_span(after, "after")
    width = 1 if every is None else _width(every)
    try:
        return Bounds(width, 0, -(ahead or 0), back or 0, None if ahead is None else 0, None if back is None else width - 1)
    except ValueError:
        raise InputError(
            f"bounds(before={before!r}, after={after!r}{'' if every is None else f', every={every!r}'}) leave no row: they begin "
            "after they end. before= says how far back from a derived row's time its rows lie, after= how far ahead; a negative one "
            "needs a larger other, as in bounds(before='-1 hour', after='2 hours')"
        ) from None


def as_bounds(value: object) -> Bounds:
    """What people give for a source: bounds, or the word 'all'."""
    if isinstance(value, Bounds):
        return value
    if isinstance(value, str) and value.strip().lower() == "all":
        return EVERYTHING
    raise InputError(
        f"bounds of a source are tw.bounds(before=…, after=…, every=…), or 'all' (any change makes everything stale), not {value!r}"
    )


def _open_span(text: str | int, name: str) -> int | None:
    return None if isinstance(text, str) and text.strip().lower() == "all" else _span(text, name)


def _span(text: str | int, name: str) -> int:
    """A duration that may be zero or negative."""
    if type(text) is int and text == 0:
        return 0
    if isinstance(text, str):
        if _ZERO.fullmatch(text):
            return 0
        sign, rest = (-1, text.strip()[1:]) if text.strip()[:1] in ("-", "−") else (1, text.strip().removeprefix("+"))
        try:
            return sign * parse_duration(rest)
        except ValueError:
            pass
        if parse_months(rest) is not None:
            raise InputError(f"{name}={text!r}: months and years differ in length; write the longest in days, like '31 days' or '366 days'")
    raise InputError(f"{name}={text!r} is no duration: write one like '5 minutes', '1 hour', '-25 h', '0', or 'all'")


def _width(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError:
        pass
    if parse_months(text) is not None:
        raise InputError(
            f"every={text!r}: months and years differ in length, so they are no buckets here; leave every= out and write the longest one: "
            "for a time that is the start of its month, before='0', after='31 days'"
        )
    raise InputError(f"every={text!r} is no width of buckets: write one like '15 minutes', '1 hour' or '1 day'")


# ---- units --------------------------------------------------------------------------------------------------


def to_ns(lo: int, hi: int, unit: str) -> Interval:
    """The nanoseconds that a definition can see for the codes lo..hi of a column in unit s, ms, us, ns or day.

    A code stands for the whole of its unit, because what was finer was cut off; one of nanoseconds for its microsecond.
    """
    nanos = TimeAxis("", unit).nanos
    return (lo * nanos // _SPARK * _SPARK, (hi * nanos + nanos - 1) // _SPARK * _SPARK + _SPARK - 1) if lo <= hi else (lo, hi)


def outward(lo: int, hi: int, unit: str) -> Interval:
    """The codes of a column in this unit that nanoseconds lo..hi can be: the least closed interval with all of them in it."""
    nanos = TimeAxis("", unit).nanos
    if lo > hi:
        return 1, 0
    return lo // _SPARK * _SPARK // nanos, (hi // _SPARK * _SPARK + _SPARK - 1) // nanos


# ---- in words -----------------------------------------------------------------------------------------------

_NAMES = (
    (7 * 86_400 * 10**9, "week"), (86_400 * 10**9, "day"), (3600 * 10**9, "hour"), (60 * 10**9, "minute"), (10**9, "second"),
    (10**6, "ms"), (10**3, "us"), (1, "ns"),
)  # fmt: skip


def words(nanoseconds: int) -> str:
    """A duration as `declared` reads it, exactly: '90 minutes'; '0'."""
    if nanoseconds == 0:
        return "0"
    size, name = next((size, name) for size, name in _NAMES if nanoseconds % size == 0 and (name != "week" or nanoseconds == size))
    count = nanoseconds // size
    return f"{count} {name}{'s' if abs(count) != 1 and len(name) > 2 else ''}"


def _place(shift: int, what: str) -> str:
    if shift == 0:
        return what
    return f"{words(abs(shift))} {'after' if shift > 0 else 'before'} {what}"
