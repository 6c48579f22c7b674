"""Kernels for the texts of segments, where they lie in their pieces. Rows that lie side by side are dealt with together.

`column` is the place of a column in descriptors; `wide` says whether its offsets are of 64 bits, as those of a copy then are.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import copy_memory, eight_bytes, view
from tidewheel.model.pieces import DATA, PERM, VALUES

_ANY = np.int64(1) << 60
"""The length of a view whose length does not matter."""


@nb.njit(inline="always")
def _stretch(perm, some, i, end):
    """(the row at position i, the position behind those whose rows follow it one by one)."""
    if not some:
        return i, end
    order = view(perm, _ANY, np.uint32)
    row = np.int64(order[i])
    j = i + 1
    while j < end and np.int64(order[j]) == row + j - i:
        j += 1
    return row, j


@nb.njit(inline="always")
def _offset(offsets, wide, row):
    if wide:
        return view(offsets, _ANY, np.int64)[row]
    return np.int64(view(offsets, _ANY, np.int32)[row])


@nb.njit(inline="always")
def _is(text, size, given):
    """Whether a text is the one that is given."""
    if size != given.shape[0]:
        return False
    differs = np.uint64(0)
    if size < 8:
        some = view(text, size, np.uint8)
        for j in range(size):
            differs |= np.uint64(some[j] ^ given[j])
        return differs == 0
    wanted = given.ctypes.data
    differs |= eight_bytes(text, size - 8) ^ eight_bytes(wanted, size - 8)
    for j in range(size >> 3):
        differs |= eight_bytes(text, 8 * j) ^ eight_bytes(wanted, 8 * j)
    return differs == 0


@nb.njit(inline="always")
def _order(text, size, given):
    """-1, 0 or 1: whether a text comes before, is or comes after the one that is given."""
    n = min(size, given.shape[0])
    wanted = given.ctypes.data
    j = np.int64(0)
    while j + 8 <= n and eight_bytes(text, j) == eight_bytes(wanted, j):
        j += 8
    some = view(text, size, np.uint8)
    while j < n:
        if some[j] != given[j]:
            return -1 if some[j] < given[j] else 1
        j += 1
    return -1 if size < given.shape[0] else 1 if size > given.shape[0] else 0


@nb.njit(inline="always")
def _are_all(offsets, wide, data, row, n, given):
    """Whether n texts side by side are all the one that is given: the first is, and each byte is that of the text before it."""
    size = given.shape[0]
    others = np.int64(0)
    if wide:
        ends8 = view(offsets + 8 * row, n + 1, np.int64)
        for r in range(n):
            others += np.int64(ends8[r + 1] - ends8[r] != size)
    else:
        ends4 = view(offsets + 4 * row, n + 1, np.int32)
        for r in range(n):
            others += np.int64(np.int64(ends4[r + 1]) - np.int64(ends4[r]) != size)
    if others:
        return False
    first = data + _offset(offsets, wide, row)
    if not _is(first, size, given):
        return False
    left = size * (n - 1)
    differs = np.uint64(0)
    for j in range(left >> 3):
        differs |= eight_bytes(first, 8 * j) ^ eight_bytes(first + size, 8 * j)
    some = view(first, size * n, np.uint8)
    for j in range(left & -8, left):
        differs |= np.uint64(some[j] ^ some[j + size])
    return differs == 0


@kernel("int64(int64[:, ::1], int64[:, ::1], int64, int64, uint8[::1], int64, uint8[::1], int64, uint8[::1])")
def within(pieces, segments, column, wide, lo, has_lo, hi, has_hi, out):
    """out = whether each text is at least lo and at most hi, where there are such bounds. Returns how many are."""
    one = has_lo and has_hi and _is(lo.ctypes.data, lo.shape[0], hi)
    at = 0
    count = 0
    for s in range(segments.shape[0]):
        piece = pieces[segments[s, 0]]
        offsets = piece[column + VALUES]
        data = piece[column + DATA]
        i = segments[s, 1]
        end = i + segments[s, 2]
        while i < end:
            row, next_ = _stretch(piece[PERM], piece[PERM] != 0, i, end)
            n = next_ - i
            i = next_
            if one and n >= 8 and _are_all(offsets, wide, data, row, n, lo):  # as nearly always
                out[at : at + n] = 1
                at += n
                count += n
                continue
            b = _offset(offsets, wide, row)
            for r in range(row, row + n):
                a = b
                b = _offset(offsets, wide, r + 1)
                if one:
                    good = _is(data + a, b - a, lo)
                else:
                    good = not has_lo or _order(data + a, b - a, lo) >= 0
                    if has_hi and good:
                        good = _order(data + a, b - a, hi) <= 0
                out[at] = good
                count += np.int64(good)
                at += 1
    return count


@kernel("int64(int64[:, ::1], int64[:, ::1], int64, int64, int64)")
def copy_ends(pieces, segments, column, wide, out):
    """Offsets of a copy of all texts, one more than rows, at the address `out`. Returns the last; 32 bits may not hold it."""
    narrow = view(out, _ANY, np.int32)
    broad = view(out, _ANY, np.int64)
    total = np.int64(0)
    at = 0
    if wide:
        broad[0] = 0
    else:
        narrow[0] = 0
    for s in range(segments.shape[0]):
        piece = pieces[segments[s, 0]]
        offsets = piece[column + VALUES]
        i = segments[s, 1]
        end = i + segments[s, 2]
        while i < end:
            row, next_ = _stretch(piece[PERM], piece[PERM] != 0, i, end)
            n = next_ - i
            less = total - _offset(offsets, wide, row)
            if wide:
                given8 = view(offsets + 8 * (row + 1), n, np.int64)
                for r in range(n):
                    broad[at + 1 + r] = given8[r] + less
            else:
                given4 = view(offsets + 4 * (row + 1), n, np.int32)
                for r in range(n):
                    narrow[at + 1 + r] = np.int32(given4[r] + less)
            total = less + _offset(offsets, wide, row + n)
            at += n
            i = next_
    return total


@kernel("void(int64[:, ::1], int64[:, ::1], int64, int64, uint8[::1])")
def copy_bytes(pieces, segments, column, wide, out):
    """The bytes of all texts, one after the other."""
    at = np.int64(0)
    for s in range(segments.shape[0]):
        piece = pieces[segments[s, 0]]
        offsets = piece[column + VALUES]
        i = segments[s, 1]
        end = i + segments[s, 2]
        while i < end:
            row, next_ = _stretch(piece[PERM], piece[PERM] != 0, i, end)
            first = _offset(offsets, wide, row)
            size = _offset(offsets, wide, row + next_ - i) - first
            copy_memory(out.ctypes.data + at, piece[column + DATA] + first, size)
            at += size
            i = next_
