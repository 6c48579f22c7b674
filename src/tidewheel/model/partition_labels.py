"""The labels of a table's partitions in memory: what changed, and when, as arrays in rising order of the partition.

A `Labels` never changes; a commit makes the next one. So whoever plans a refresh holds one picture, without a lock.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidewheel.model.derived import Label

Numbers = npt.NDArray[np.int64]


class Labels:
    __slots__ = ("at", "changed", "starts", "undone")

    def __init__(self, starts: Numbers, changed: Numbers, undone: Numbers, at: npt.NDArray[np.float64]) -> None:
        self.starts = starts
        """Of the partitions, rising."""
        self.changed = changed
        """The last generation that brought or took rows."""
        self.undone = undone
        """The last generation that took rows; 0: none did."""
        self.at = at
        """When the label was raised last, by the wall clock."""

    @staticmethod
    def of(known: Sequence[tuple[Label, float]]) -> Labels:
        numbers = np.array([(one.partition, one.changed, one.undone) for one, _ in known], np.int64).reshape(-1, 3)
        order = np.argsort(numbers[:, 0], kind="stable")
        starts, changed, undone = (np.ascontiguousarray(numbers[order, i]) for i in range(3))
        return Labels(starts, changed, undone, np.array([at for _, at in known], np.float64)[order])

    def __len__(self) -> int:
        return len(self.starts)

    def raised(self, labels: Sequence[Label], undone: Sequence[tuple[int, int]], generation: int, at: float) -> Labels:
        """After a commit of this generation: these partitions changed, and all that are known in these intervals lost rows."""
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
        for first, last in undone:
            lo, hi = np.searchsorted(starts, first), np.searchsorted(starts, last, side="right")
            known = np.flatnonzero(np.isin(starts[lo:hi], self.starts, assume_unique=True)) + lo
            changed[known] = taken[known] = generation
            times[known] = at
        return Labels(starts, changed, taken, times)
