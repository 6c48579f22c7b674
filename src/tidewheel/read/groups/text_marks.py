"""Which texts a group has had, where different ones are counted: memory of the kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidewheel.model.loading import later
from tidewheel.read.groups.left_to_duck import take
from tidewheel.read.groups.lowering import Numbers
from tidewheel.read.limits import Watch

k = later("tidewheel.read.groups.marks.kernels")

MOST = 1 << 24
"""Marks; from there on, pairs of a group and a text are hashed."""

_FIRST = 64
"""Groups, and words of a row of marks, that there is room for at first."""

_NO_PAIRS = np.zeros((0, 3), np.int64)


class TextMarks:
    """`bits` has no rows if none are wanted, or they were given up because they are too many."""

    def __init__(self, each: int, watch: Watch) -> None:
        """`each`: rows of a group; none are wanted if it has none."""
        self._each = each
        self._watch = watch
        self.bits: npt.NDArray[np.uint64] = np.zeros((each * _FIRST, _FIRST), np.uint64)
        take(watch, self.bits.nbytes)

    @property
    def used(self) -> bool:
        return len(self.bits) > 0

    def has_room(self, groups: int, texts: int) -> bool:
        rows, words = self.bits.shape
        return bool(groups * self._each <= rows and texts <= 64 * words)

    def make_room(self, groups: int, texts: int) -> bool:
        """For so many; whether they are not too many."""
        if self.has_room(groups, texts):
            return True
        rows, words = self.bits.shape
        for times in (4, 2, 1):  # as many: more will come
            more = max(rows, times * groups * self._each), max(words, -(-times * texts // 64))
            if 64 * more[0] * more[1] <= MOST:
                break
        else:
            return False
        take(self._watch, 8 * (more[0] * more[1] - rows * words))
        bits = np.zeros(more, np.uint64)
        bits[:rows, :words] = self.bits
        self.bits = bits
        return True

    def pairs(self, watch: Watch) -> Numbers:
        """All of them, as rows of pairs."""
        count = k.marked(self.bits, _NO_PAIRS)
        take(watch, 24 * count)
        pairs = np.empty((count, 3), np.int64)
        k.marked(self.bits, pairs)
        return pairs

    def give_up(self) -> None:
        self._watch.take(-self.bits.nbytes)
        self.bits = np.zeros((0, 0), np.uint64)
