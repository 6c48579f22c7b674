"""Kernels that keep a text of each group: its least, its greatest, or the one that goes with what decides.

Of a text that was kept in an earlier block, a group has the number. Within a block it has the complement of the row instead, which is
negative; when all rows have been looked at, only the texts of those rows that are left are given numbers. If that stops half way, the block
may be begun again: nothing comes before itself, so the same rows are left.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import eight_bytes, view
from tidewheel.model.pieces import DATA, VALUES
from tidewheel.read.groups.texts.asking.kernels import LENGTH, START

_MOST = np.int64(9223372036854775807)
_NONE = np.int64(-9223372036854775808)
"""There is no text yet."""


@nb.njit(inline="always")
def _is_less(one, length, other, other_length):
    """Whether bytes at an address come before others."""
    few = min(length, other_length)
    i = np.int64(0)
    while i + 8 <= few and eight_bytes(one, i) == eight_bytes(other, i):
        i += 8
    first = view(one, few, np.uint8)
    second = view(other, few, np.uint8)
    while i < few:
        if first[i] != second[i]:
            return first[i] < second[i]
        i += 1
    return length < other_length


@kernel("boolean(uint8[::1], int64[:, ::1], int64, int64, boolean)")
def comes_before(arena, texts, number, known, falls):
    """Whether a text comes before another one, by their numbers; `falls`: behind it."""
    kept = np.int64(arena.ctypes.data)
    one, length = kept + texts[number, START], texts[number, LENGTH]
    other, other_length = kept + texts[known, START], texts[known, LENGTH]
    return _is_less(other, other_length, one, length) if falls else _is_less(one, length, other, other_length)


@kernel(
    "void(int64[::1], int64, int64, int64, uint32[::1], int64, uint8[::1], int64, int32[::1], boolean, int64, uint8[::1], int64[:, ::1],"
    " int64[:, ::1])"
)
def keep_ends(row, column, straight, first, places, n, nulls, some_null, slots, falls, at, arena, texts, groups):
    """Keep the least text of each group, or, if it `falls`, the greatest: of a row of this block, the complement of its number."""
    offsets = view(row[column + VALUES], _MOST, np.int32)
    data = row[column + DATA]
    kept = np.int64(arena.ctypes.data)
    for i in range(n):
        if some_null and nulls[i]:
            continue
        r = first + i if straight else np.int64(places[i])
        one = data + np.int64(offsets[r])
        length = np.int64(offsets[r + 1]) - np.int64(offsets[r])
        known = groups[slots[i], at]
        if known == _NONE:
            groups[slots[i], at] = ~np.int64(i)
            continue
        if known >= 0:
            other = kept + texts[known, START]
            other_length = texts[known, LENGTH]
        else:
            s = first + ~known if straight else np.int64(places[~known])
            other = data + np.int64(offsets[s])
            other_length = np.int64(offsets[s + 1]) - np.int64(offsets[s])
        if _is_less(other, other_length, one, length) if falls else _is_less(one, length, other, other_length):
            groups[slots[i], at] = ~np.int64(i)


@kernel("int64(int64, int64, uint32[::1], int64, int32[::1], int64, int64[:, ::1], uint32[::1], int32[::1])")
def rows_kept(straight, first, places, n, slots, at, groups, kept_places, kept_slots):
    """The rows of this block that their groups have now, with their slots. Returns how many."""
    m = np.int64(0)
    for i in range(n):
        kept_places[m] = np.uint32(first + i) if straight else places[i]
        kept_slots[m] = slots[i]
        m += np.int64(groups[slots[i], at] == ~np.int64(i))
    return m
