"""One end of a bound: a step function of a time, and how two of them follow each other, are put on one grid, and are compared.

An end (m, o, a, b) stands for s ↦ m·⌊(s + a − o)/m⌋ + o + b, in whole numbers of any unit: all ends of one calculation have the same.
m = 1 is no grid at all: s ↦ s + a + b. Where an exact result has no such form, a lower end is made lower and an upper end higher, so what
was true of the exact one stays true. `None` in place of an end is no end: −∞ or +∞.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tidewheel.model.dataclass import dataclass


class Side(Enum):
    LOWER = -1
    UPPER = 1


@dataclass(frozen=True, slots=True)
class End:
    """s ↦ every·⌊(s + a − origin)/every⌋ + origin + b. Equal functions are equal values: 0 ≤ origin, a < every."""

    every: int = 1
    origin: int = 0
    a: int = 0
    b: int = 0

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"a grid has a width of at least 1, not {self.every}")
        steps, rest = divmod(self.a, self.every)
        object.__setattr__(self, "origin", self.origin % self.every)
        object.__setattr__(self, "a", rest)
        object.__setattr__(self, "b", self.b + steps * self.every)

    def at(self, time: int) -> int:
        return (time + self.a - self.origin) // self.every * self.every + self.origin + self.b

    def plus(self, shift: int) -> End:
        return End(self.every, self.origin, self.a, self.b + shift)

    def flat(self, side: Side) -> int:
        """The shift that is at least as far out, everywhere, and exact somewhere."""
        return self.a + self.b - (self.every - 1 if side is Side.LOWER else 0)

    def after(self, inner: End, side: Side) -> End:
        """self(inner(s)). Exact where one of them has no grid, or its grid lies on the inner one's."""
        if self.every == 1:
            return inner.plus(self.b)
        if self.every % inner.every == 0 and (self.origin - inner.origin) % inner.every == 0:
            whole = (inner.b + self.a) // inner.every * inner.every  # between two points of the inner grid, floors see only whole steps
            return End(self.every, self.origin, inner.a + whole, self.b)
        return End(self.every, self.origin, self.a + inner.flat(side), self.b)

    def scaled(self, factor: int) -> End:
        """The same function in a unit that is `factor` times as fine: of microseconds, in nanoseconds, with 1000.

        Exact for times that are whole in the coarser unit; for the others it is that of the time cut off to the coarser one.
        """
        if self.every == 1:
            return End(1, 0, 0, self.b * factor)
        return End(self.every * factor, self.origin * factor, self.a * factor, self.b * factor)


IDENTITY = End()


def inverse(end: End, side: Side) -> End:
    """Of x ≥ end(y) (side LOWER), the upper end of y that follows; of x ≤ end(y), the lower. Exact without a grid."""
    return End(b=-end.flat(side))


def tighter(e: End | None, f: End | None, side: Side) -> End | None:
    """Of two ends that both hold, the one that leaves less; the one on the coarser grid, if their worst cases are alike."""
    if e is None or f is None:
        return e or f
    far_e, far_f = e.flat(side) * side.value, f.flat(side) * side.value
    if far_e == far_f:
        return e if e.every >= f.every else f
    return e if far_e < far_f else f


@dataclass(frozen=True, slots=True)
class _Lifted:
    """An end on a grid that is not its own: (a + k·step, b − k·step) is as good for every k."""

    a: int
    b: int
    step: int

    def with_b(self, wanted: int, side: Side) -> tuple[int, int]:
        """The representation whose b is the nearest to the wanted one that is no farther out."""
        away = (self.b - wanted) % self.step  # how far b lies above wanted, in steps' remainder
        b = wanted + (away if side is Side.LOWER else away - self.step if away else 0)
        return self.a + self.b - b, b


def _lift(end: End, every: int, origin: int, side: Side) -> _Lifted:
    if (end.every, end.origin) == (every, origin):
        return _Lifted(end.a, end.b, every)
    if every % end.every or (origin - end.origin) % end.every:
        end = End(b=end.flat(side))
    far = 0 if side is Side.LOWER else every - end.every  # a point of the finer grid lies so far at most beyond one of the coarser
    return _Lifted(end.a, end.b + far, end.every)


def outermost(ends: Sequence[End], every: int, origin: int, side: Side) -> End:
    """The nearest end on a grid that is at least as far out as each of some."""
    lifted = [_lift(end, every, origin, side) for end in ends]
    pick = min if side is Side.LOWER else max
    found: list[End] = []
    for reference in lifted:
        pairs = [one.with_b(reference.b, side) for one in lifted]
        found.append(End(every, origin, pick(a for a, _ in pairs), pick(b for _, b in pairs)))
    return min(found, key=lambda end: ((end.a + end.b) * side.value, end.a))  # of equally good ones, the one that stays within its cell
