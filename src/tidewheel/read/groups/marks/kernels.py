"""Kernels of marks: a bit for each pair of a group and a text that was seen, where these are so few that all bits have room.

Row `slot * each + fold` of `marks` has those of a group and one of its `each` folds, in the order of the numbers of the texts.
"""

from __future__ import annotations

import numpy as np

from tidewheel.model.jit.kernels import kernel

_ONE = np.uint64(1)
_LAST = np.uint64(63)


@kernel("void(int32[::1], int64[::1], uint8[::1], int64, int64, int64, int64, int64, uint64[:, ::1], int64[:, ::1])")
def mark(slots, texts, nulls, some_null, n, each, fold, at, marks, groups):
    """Mark the texts of n rows, and count those that are new in the word `at` of their groups. There is room for all of them."""
    for i in range(n):
        if some_null and nulls[i]:
            continue
        row = np.uint64(np.int64(slots[i]) * each + fold)
        place = np.uint64(texts[i]) >> np.uint64(6)
        bit = _ONE << (np.uint64(texts[i]) & _LAST)
        known = marks[row, place]
        if known & bit == 0:
            marks[row, place] = known | bit
            groups[slots[i], at] += 1


@kernel("int64(uint64[:, ::1], int64[:, ::1])")
def marked(marks, pairs):
    """Write the pairs that are marked, as far as there is room; returns how many they are."""
    count = np.int64(0)
    for row in range(marks.shape[0]):
        for w in range(marks.shape[1]):
            word = marks[row, w]
            if word == 0:
                continue
            for b in range(64):
                if (word >> np.uint64(b)) & _ONE:
                    if count < pairs.shape[0]:
                        pairs[count, 0] = row
                        pairs[count, 1] = 64 * w + b
                        pairs[count, 2] = 0
                    count += 1
    return count


@kernel("void(uint64[:, ::1], int32[::1], int64[::1], int64[::1], uint64[:, ::1], int64[:, ::1])")
def join_marks(others, found, numbers, counted_at, marks, groups):
    """Add marks to marks, and count those that are new. `found`, `numbers`: the slots and texts here of those there; `counted_at`: the word
    of each fold."""
    each = counted_at.shape[0]
    for row in range(min(others.shape[0], each * found.shape[0])):
        slot = np.int64(found[row // each])
        here = marks[slot * each + row % each]
        count = np.int64(0)
        for w in range(others.shape[1]):
            word = others[row, w]
            if word == 0:
                continue
            for b in range(64):
                if (word >> np.uint64(b)) & _ONE:
                    text = np.uint64(numbers[64 * w + b])
                    bit = _ONE << (text & _LAST)
                    known = here[text >> np.uint64(6)]
                    count += np.int64(known & bit == 0)
                    here[text >> np.uint64(6)] = known | bit
        if count:
            groups[slot, counted_at[row % each]] += count
