"""The labels of a table's partitions in memory: what changed, and when, as arrays in rising order of the partition.

A `Labels` never changes; a commit makes the next one. So whoever plans a refresh holds one picture, without a lock.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidewheel.model.derived import Label

Numbers = npt.NDArray[np.int64]

Reached = tuple[tuple[int, float], ...]
"""(generation, when changes of generations up to it began), rising; of the first, which are those that were read, the time is not known."""

MOST_REACHED = 256
"""Points of `Reached`. With more, older ones are joined in pairs: the longer ago, the less exact."""


class Labels:
    __slots__ = ("_reached", "at", "changed", "starts", "undone")

    def __init__(self, starts: Numbers, changed: Numbers, undone: Numbers, at: npt.NDArray[np.float64], reached: Reached) -> None:
        self.starts = starts
        """Of the partitions, rising."""
        self.changed = changed
        """The last generation that brought or took rows."""
        self.undone = undone
        """The last generation that took rows; 0: none did."""
        self.at = at
        """When the label was raised last, by the wall clock."""
        self._reached = reached

    @staticmethod
    def of(known: Sequence[tuple[Label, float]]) -> Labels:
        numbers = np.array([(one.partition, one.changed, one.undone) for one, _ in known], np.int64).reshape(-1, 3)
        order = np.argsort(numbers[:, 0], kind="stable")
        starts, changed, undone = (np.ascontiguousarray(numbers[order, i]) for i in range(3))
        at = np.array([at for _, at in known], np.float64)[order]
        return Labels(starts, changed, undone, at, ((int(changed.max(initial=0)), 0.0),))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def last(self) -> int:
        """The generation of the last change."""
        return self._reached[-1][0]

    def first_after(self, generation: int) -> float | None:
        """When the first change after a generation came, by the wall clock, or somewhat earlier; None: there is none, or it was there
        when the labels were read, which have the time of the last change alone."""
        return next((at for reached, at in self._reached if reached > generation), 0.0) or None

    def raised(self, labels: Sequence[Label], undone: Sequence[tuple[int, int]], generation: int, at: float, came: float = 0.0) -> Labels:
        """After a commit of this generation: these partitions changed, and all that are known in these intervals lost rows.

        `came`: when the first of its rows did, if it is known that that was earlier.
        """
        if not labels and not undone:
            return self
        new = Labels.of([(one, at) for one in labels])
        missing = new.starts[~np.isin(new.starts, self.starts, assume_unique=True)]
        where = np.searchsorted(self.starts, missing)
        starts = np.insert(self.starts, where, missing)
        changed, taken = np.insert(self.changed, where, 0), np.insert(self.undone, where, 0)
        times = np.insert(self.at, where, at)
        mine = np.searchsorted(starts, new.starts)
        changed[mine] = np.maximum(changed[mine], new.changed)
        taken[mine] = np.maximum(taken[mine], new.undone)
        times[mine] = at
        greatest = int(new.changed.max(initial=0))
        for first, last in undone:
            lo, hi = np.searchsorted(starts, first), np.searchsorted(starts, last, side="right")
            known = np.flatnonzero(np.isin(starts[lo:hi], self.starts, assume_unique=True)) + lo
            changed[known] = taken[known] = generation
            times[known] = at
            greatest = max(greatest, generation) if len(known) else greatest
        return Labels(starts, changed, taken, times, _further(self._reached, greatest, came or at))


def _further(points: Reached, last: int, at: float) -> Reached:
    """With changes of generations up to `last`, of which the first came at this time."""
    if last > points[-1][0]:
        points = (*points, (last, at))
    met = next(i for i, (reached, _) in enumerate(points) if reached >= last) + 1
    if any(began > at for _, began in points[:met]):  # trees are not committed in the order in which their rows came
        points = (*((reached, min(began, at)) for reached, began in points[:met]), *points[met:])
    if len(points) <= MOST_REACHED:
        return points
    first, older, newer = points[0], points[1 : MOST_REACHED // 2 + 1], points[MOST_REACHED // 2 + 1 :]
    return (first, *((two[0], one[1]) for one, two in zip(older[::2], older[1::2], strict=True)), *newer)
