"""What masks hide, swept once: for every time, the greatest generation whose rows are hidden there.

A mask hides the rows of a time interval that came up to its generation, so at any one time only the mask with the greatest
generation counts. The sweep keeps just that, as a step function over time: `edges` are where its steps begin, `tops` their
generations, and touching steps of equal generation are one. A piece is hidden where the step is at least its own last generation.

A `Hidden` never changes and is shared by all versions with the same masks. It is swept when first asked, and adding the newest mask to
one that was swept costs a copy of the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress

import numpy as np
import numpy.typing as npt

from tidewheel.model.pieces import GENERATION_HI, T0, T1, TMAX, TMIN
from tidewheel.model.records import MaskRecord
from tidewheel.model.times import INT64_MAX, INT64_MIN

NOTHING = -1
"""The step where no mask hides anything: no row has a generation as low as this."""

_AT_ONCE = 1 << 20
"""Pairs of a piece and a step that are looked at together; between two such portions a query minds its clock."""

Numbers = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.int64]


class Hidden:
    """The masks of a version, in the order they were committed."""

    __slots__ = ("_steps", "first", "last", "records", "top")

    def __init__(self, records: Iterable[MaskRecord] = ()) -> None:
        self.records: tuple[MaskRecord, ...] = tuple(records)
        self.top = max((mask.generation for mask in self.records), default=NOTHING)
        """Pieces with later rows are not hidden anywhere. No mask has a greater generation; perhaps none has this one any more."""
        self.first = np.array([mask.time_lo for mask in self.records], np.int64)
        self.last = np.array([mask.time_hi for mask in self.records], np.int64)
        self._steps: tuple[Numbers, Numbers, Numbers] | None = None

    def __bool__(self) -> bool:
        return bool(self.records)

    @property
    def steps(self) -> tuple[Numbers, Numbers, Numbers]:
        """(edges, tops, owners): where each step begins, its generation, and the number of the mask that it is of."""
        if self._steps is None:
            self._steps = _swept(self.records)
        return self._steps

    def plus(self, records: Sequence[MaskRecord]) -> Hidden:
        """With more masks."""
        if not records:
            return self
        if self._steps is None or len(records) > 1 or records[0].generation < self.top:
            return Hidden(self.records + tuple(records))
        (mask,) = records
        new = Hidden()
        new.records, new.top = (*self.records, mask), mask.generation
        new.first, new.last = np.append(self.first, mask.time_lo), np.append(self.last, mask.time_hi)
        new._steps = _painted(self._steps, mask, len(self.records))
        return new

    def minus(self, numbers: Iterable[int]) -> Hidden:
        """Without the masks of these numbers, which hide nothing that others do not hide."""
        gone = np.zeros(len(self.records), np.bool_)
        gone[list(numbers)] = True
        if not gone.any():
            return self
        new = Hidden()
        new.records = tuple(compress(self.records, (~gone).tolist()))  # no step in Python for each: there may be many
        new.top = self.top if new.records else NOTHING
        new.first, new.last = self.first[~gone], self.last[~gone]
        if self._steps is not None:
            edges, tops, owners = self._steps
            without = (owners >= 0) & gone[owners]
            moved = np.concatenate([np.cumsum(~gone) - 1, [-1]])[owners]
            new._steps = _joined(edges, np.where(without, NOTHING, tops), np.where(without, -1, moved))
        return new

    # ---- what is hidden of pieces -----------------------------------------------------------------------

    def spans(self, first: Numbers, last: Numbers) -> tuple[Numbers, Numbers]:
        """The first and the last step of each time interval."""
        edges = self.steps[0]
        return np.searchsorted(edges, first, "right") - 1, np.searchsorted(edges, last, "right") - 1

    def touches(self, pieces: Matrix) -> npt.NDArray[np.bool_]:
        """Which pieces have times, among those asked of them, that are hidden."""
        if not self.records or not len(pieces):
            return np.zeros(len(pieces), np.bool_)
        found: npt.NDArray[np.bool_] = pieces[:, GENERATION_HI] <= self.top
        some = np.flatnonzero(found)
        if len(some):
            a, b = self.spans(*_asked(pieces[some]))
            found[some] = _ranges(np.maximum, self.steps[1], a, b) >= pieces[some, GENERATION_HI]
        return found

    def covers(self, generations: Numbers, first: Numbers, last: Numbers) -> npt.NDArray[np.bool_]:
        """Which time intervals are hidden from end to end, for rows that came up to these generations."""
        if not self.records or not len(generations):
            return np.zeros(len(generations), np.bool_)
        covered: npt.NDArray[np.bool_] = _ranges(np.minimum, self.steps[1], *self.spans(first, last)) >= generations
        return covered

    def most(self, first: int, last: int) -> int:
        """The greatest generation that is hidden anywhere in a time interval."""
        a, b = self.spans(np.array([first]), np.array([last]))
        return int(self.steps[1][int(a[0]) : int(b[0]) + 1].max())

    def holes(self, pieces: Matrix) -> Numbers:
        """How many steps lie in the times that are asked of each piece, of those that are hidden anywhere; else 0."""
        a, b = self.spans(*_asked(pieces))
        return np.where(self.touches(pieces), b - a + 1, 0)

    def cut(self, pieces: Matrix, but: npt.NDArray[np.bool_] | None = None) -> Iterator[Matrix]:
        """The pieces without what is hidden of them: each is asked once for every time interval that remains of it. In portions.

        All `but` some, which stay as they are.
        """
        touched = self.touches(pieces) if but is None else self.touches(pieces) & ~but
        if not touched.any():
            yield pieces
            return
        edges, tops, _ = self.steps
        ends = np.append(edges[1:] - 1, INT64_MAX)
        a, b = self.spans(*_asked(pieces))
        counts = np.where(touched, b - a + 1, 1)
        starts = np.concatenate([[0], np.searchsorted(np.cumsum(counts), np.arange(_AT_ONCE, counts.sum(), _AT_ONCE)) + 1, [len(pieces)]])
        for lo, hi in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            if lo >= hi:
                continue
            which = np.repeat(np.arange(lo, hi), counts[lo:hi])
            before = np.cumsum(counts[lo:hi]) - counts[lo:hi]
            step = a[which] + np.arange(len(which)) - before[which - lo]
            seen = ~touched[which] | (tops[step] < pieces[which, GENERATION_HI])
            follows = np.concatenate([[False], (which[1:] == which[:-1]) & seen[1:] & seen[:-1]])
            begins = np.flatnonzero(seen & ~follows)
            finishes = np.flatnonzero(seen & ~np.append(follows[1:], False))
            rows = pieces[which[begins]]
            cut = touched[which[begins]]
            rows[:, T0] = np.where(cut, np.maximum(edges[step[begins]], rows[:, T0]), rows[:, T0])
            rows[:, T1] = np.where(cut, np.minimum(ends[step[finishes]], rows[:, T1]), rows[:, T1])
            yield rows

    # ---- masks that are not needed ----------------------------------------------------------------------

    def idle(self, generations: Numbers, first: Numbers, last: Numbers, window: tuple[int, int]) -> list[int]:
        """The numbers of the masks that meet a time interval and can go: what they hide of these pieces, others hide as well."""
        near = np.flatnonzero((self.first <= window[1]) & (self.last >= window[0]))
        if not len(near):
            return []
        _, tops, owners = self.steps
        domain = int(self.first[near].min()), int(self.last[near].max())
        lo, hi = (int(x[0]) for x in self.spans(np.array(domain[:1]), np.array(domain[1:])))
        least = np.full(hi - lo + 1, INT64_MAX)
        met = np.flatnonzero((generations <= self.top) & (first <= domain[1]) & (last >= domain[0]))
        met = met[np.argsort(-generations[met], kind="stable")]  # the least last: it stays
        a, b = self.spans(first[met], last[met])
        for start, end, generation in zip(
            np.maximum(a - lo, 0).tolist(), np.minimum(b - lo, hi - lo).tolist(), generations[met].tolist(), strict=True
        ):
            least[start : end + 1] = generation
        needed = set(owners[lo : hi + 1][least <= tops[lo : hi + 1]].tolist())
        return [i for i in near.tolist() if i not in needed]


def _asked(pieces: Matrix) -> tuple[Numbers, Numbers]:
    """The times of each piece that are asked for."""
    first, last = np.maximum(pieces[:, T0], pieces[:, TMIN]), np.minimum(pieces[:, T1], pieces[:, TMAX])
    return first, np.maximum(first, last)


def _ranges(fold: np.ufunc, values: Numbers, a: Numbers, b: Numbers) -> Numbers:
    """A fold over values[a] to values[b], for each pair."""
    bounds = np.stack([a, b + 1], axis=1).reshape(-1)
    folded: Numbers = fold.reduceat(np.append(values, values[-1]), bounds)[::2]
    return folded


def _swept(records: Sequence[MaskRecord]) -> tuple[Numbers, Numbers, Numbers]:
    """All masks onto one grid of their ends, the greatest generation last: it stays."""
    ends = [mask.time_hi + 1 for mask in records if mask.time_hi < INT64_MAX]
    edges = np.unique(np.array([INT64_MIN, *(mask.time_lo for mask in records), *ends], np.int64))
    tops, owners = np.full(len(edges), NOTHING, np.int64), np.full(len(edges), -1, np.int64)
    order = sorted(range(len(records)), key=lambda i: records[i].generation)
    first = np.searchsorted(edges, np.array([records[i].time_lo for i in order], np.int64))
    last = np.searchsorted(edges, np.array([records[i].time_hi for i in order], np.int64), "right")
    for i, a, b in zip(order, first.tolist(), last.tolist(), strict=True):
        tops[a:b], owners[a:b] = records[i].generation, i
    return _joined(edges, tops, owners)


def _painted(steps: tuple[Numbers, Numbers, Numbers], mask: MaskRecord, number: int) -> tuple[Numbers, Numbers, Numbers]:
    """The steps with one more mask over them, of a generation that none exceeds."""
    edges, tops, owners = steps
    i, j = (int(np.searchsorted(edges, t, "right")) - 1 for t in (mask.time_lo, mask.time_hi))
    i += int(edges[i]) < mask.time_lo  # the step that it begins in stays before it
    ends_inside = mask.time_hi < INT64_MAX and (j + 1 == len(edges) or int(edges[j + 1]) > mask.time_hi + 1)
    after = np.array([mask.time_hi + 1] if ends_inside else [], np.int64)
    rest = slice(j, j + 1 if ends_inside else j)
    return _joined(
        np.concatenate([edges[:i], [mask.time_lo], after, edges[j + 1 :]]),
        np.concatenate([tops[:i], [mask.generation], tops[rest], tops[j + 1 :]]),
        np.concatenate([owners[:i], [number], owners[rest], owners[j + 1 :]]),
    )


def _joined(edges: Numbers, tops: Numbers, owners: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Touching steps of one mask, or of none, are one."""
    new = np.concatenate([[True], (owners[1:] != owners[:-1]) | (tops[1:] != tops[:-1])])
    return edges[new], tops[new], owners[new]
