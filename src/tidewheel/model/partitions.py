"""Partitions: how a table's time is divided into intervals [lo, hi), numbered from 1970 on, in UTC.

Either all have one width, in units of the time column, or they are calendar months, some at a time: partition 0 begins with January 1970,
so years and quarters begin where people expect them to. The catalog knows a partition by its start.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidewheel.model.dataclass import dataclass
from tidewheel.model.times import INT64_MIN, TimeAxis, parse_duration, parse_months

Times = npt.NDArray[np.int64]

_DAY = 86_400 * 10**9
_MANY = 1 << 16
"""Partitions of one chunk up to which each has a place of its own to be counted in."""


class Partitions(Protocol):
    def number(self, time: int) -> int:
        """The partition that a time lies in."""
        ...

    def start(self, number: int) -> int:
        """The first time of a partition; it may lie before the least int64."""
        ...

    def numbers(self, times: Times) -> Times:
        """`number` of each."""
        ...


@dataclass(frozen=True, slots=True)
class Widths:
    """Partitions of one width, which is in units of the time column."""

    width: int

    def number(self, time: int) -> int:
        return time // self.width

    def start(self, number: int) -> int:
        return number * self.width

    def numbers(self, times: Times) -> Times:
        return times // self.width


@dataclass(frozen=True, slots=True)
class Months:
    """Partitions of so many calendar months. `nanos` is the unit of the time column: of a day at most."""

    months: int
    nanos: int

    def number(self, time: int) -> int:
        return int(_months(time * self.nanos // _DAY)) // self.months

    def start(self, number: int) -> int:
        return _first_day(number * self.months) * (_DAY // self.nanos)

    def numbers(self, times: Times) -> Times:
        months: Times = _months(times // (_DAY // self.nanos)) // self.months
        return months


def partitions_of(text: str, axis: TimeAxis) -> Partitions:
    """The partitions that a text like '1 hour' or '3 months' asks for. ValueError says what else can be."""
    months = parse_months(text)
    if months is not None:
        return Months(months, axis.nanos)
    try:
        width = axis.width_of(parse_duration(text))
    except ValueError:
        raise ValueError(f"a partition looks like '1 hour', '15 minutes', '7 days', '1 month' or '1 year', not {text!r}") from None
    if width < 1:
        raise ValueError(f"{text!r} is shorter than one unit of {axis.column!r}, which counts {_UNITS[axis.unit]}")
    return Widths(width)


_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", "day": "days"}


def interval(partitions: Partitions, start: int) -> tuple[int, int]:
    """[lo, hi) of the partition that the catalog knows by this start."""
    return start, partitions.start(partitions.number(start) + 1)


def joined(intervals: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same times in rising order: intervals that meet, or lie side by side, are one."""
    out: list[tuple[int, int]] = []
    for lo, hi in sorted(intervals):
        if out and lo <= out[-1][1] + 1:
            out[-1] = out[-1][0], max(out[-1][1], hi)
        elif lo <= hi:
            out.append((lo, hi))
    return tuple(out)


def rows_by_start(partitions: Partitions, times: Times) -> dict[int, int]:
    """How many of some times lie in each partition, by its start (the least int64, if it starts before that). In order."""
    numbers = partitions.numbers(times)
    first, last = int(numbers.min()), int(numbers.max())
    if last - first < _MANY:
        counts = np.bincount(numbers - first)
        at = np.flatnonzero(counts)
        pairs: Any = zip((at + first).tolist(), counts[at].tolist(), strict=True)
    else:
        found, counts = np.unique(numbers, return_counts=True)
        pairs = zip(found.tolist(), counts.tolist(), strict=True)
    return {max(partitions.start(number), INT64_MIN): rows for number, rows in pairs}


def _months(days: Any) -> Any:
    """Months since January 1970 of days since its first, as the Gregorian calendar has always been. Exact for every int64."""
    shifted = days + 719_468  # from 0000-03-01 on: the leap day is the last of its year
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    day = of_era - (365 * year + year // 4 - year // 100)
    march = (5 * day + 2) // 153
    return (era * 400 + year - 1970) * 12 + march + 2


def _first_day(months: int) -> int:
    """Days from 1970-01-01 to the first day of a month, counted from January 1970."""
    era, rest = divmod(months + 1970 * 12, 4800)
    return (dt.date(rest // 12 + 400, rest % 12 + 1, 1) - dt.date(1970, 1, 1)).days + (era - 1) * 146_097
