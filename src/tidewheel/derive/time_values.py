"""What is known of a value in a row: between which functions of the row's other attributes it lies. In nanoseconds.

An attribute is a column somewhere in a plan; a number is taken as the time it stands for: `scale` nanoseconds each (a timestamp counts
microseconds, a date days, unix_timestamp(ts) seconds).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidewheel.derive.ends import IDENTITY, End, Side, outermost

Attr = tuple[int | str, ...]
"""(scope, number of the attribute, field of a struct, …): a plan that is walked twice has a scope of its own each time."""

MICRO, SECOND = 1000, 10**9
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
SCALES = {"timestamp": MICRO, "timestamp_ntz": MICRO, "date": DAY}


@dataclass(frozen=True, slots=True)
class Arm:
    """lower(attr) ≤ value ≤ upper(attr); None: no end."""

    attr: Attr
    lower: End | None = IDENTITY
    upper: End | None = IDENTITY


@dataclass(frozen=True, slots=True)
class Value:
    """A value that is, in each row, one of the arms. No two arms are of one attribute.

    `type` is timestamp, timestamp_ntz or date of Spark's, or number. `scale` is in nanoseconds; None for a number of which nobody said what
    it counts. `whole`: it is a multiple of the scale. `sure`: it is not null, where its attributes are not.
    """

    arms: tuple[Arm, ...]
    type: str
    scale: int | None
    whole: bool = True
    sure: bool = True

    def then(self, lower: End | None, upper: End | None = None) -> Value:
        """A rising function of it that lies between two ends; one end alone is the function itself."""
        top = lower if upper is None else upper
        arms = tuple(
            Arm(
                arm.attr,
                lower.after(arm.lower, Side.LOWER) if lower and arm.lower else None,
                top.after(arm.upper, Side.UPPER) if top and arm.upper else None,
            )
            for arm in self.arms
        )
        return replace(self, arms=arms)

    def shifted(self, least: int, most: int | None = None) -> Value:
        return self.then(End(b=least), End(b=least if most is None else most))

    def floored(self, every: int, origin: int = 0) -> Value:
        return self.then(End(every, origin))

    def number(self, scale: int, whole: bool = True) -> Value:
        """The same, as a number that counts so many nanoseconds."""
        return replace(self, type="number", scale=scale, whole=whole)

    def as_type(self, type_: str) -> Value:
        """The same, as a time of Spark's."""
        return replace(self, type=type_, scale=SCALES[type_], whole=True)


def one_of(values: Iterable[Value]) -> Value | None:
    """A value that is one of several: of coalesce, CASE, a sliding window. None, if they do not count the same."""
    found = list(values)
    if not found or len({(value.type, value.scale) for value in found}) > 1:
        return None
    by_attr: dict[Attr, list[Arm]] = {}
    for value in found:
        for arm in value.arms:
            by_attr.setdefault(arm.attr, []).append(arm)
    arms = (
        Arm(attr, hull([arm.lower for arm in several], Side.LOWER), hull([arm.upper for arm in several], Side.UPPER))
        for attr, several in by_attr.items()
    )
    return Value(tuple(arms), found[0].type, found[0].scale, all(v.whole for v in found), all(v.sure for v in found))


def hull(ends: list[End | None], side: Side) -> End | None:
    """An end that is as far out as each; None, if one is open."""
    there = [end for end in ends if end is not None]
    if len(there) < len(ends) or not there:
        return None
    grids = sorted({(1, 0), *((end.every, end.origin) for end in there)}, reverse=True)
    found = [outermost(there, every, origin, side) for every, origin in grids]
    return min(found, key=lambda end: end.flat(side) * side.value)
