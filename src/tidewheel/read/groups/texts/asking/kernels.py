"""Kernels that find out which texts of a block have to be looked up: not those that are the same as the one before, and not short ones
that are where they are looked for first.

Both take the rows of a block as `intern` does, and write each text that is to be looked up, with the rows that have it, to `asked`.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import eight_bytes, view
from tidewheel.model.pieces import DATA, VALUES
from tidewheel.read.groups.texts.words.kernels import NUMBER_BITS, equal, few_bytes, many_bytes, place, shift_of

START, LENGTH, WORD, NUMBER, ROW, BEHIND, ASKED = range(7)
"""Of a text that is looked up: where its bytes begin, how many they are, its word, then its number, and the rows that have it, from one to
another."""

_MOST = np.int64(9223372036854775807)

_STRETCH = 64
"""Rows that are compared at a time."""

_FEW = 8
"""As many, where there is a difference among those; and rows of one text from which on more are compared at a time."""


@nb.njit(inline="always")
def _one_length(ends, first, n):
    """The length of n texts, the first of which begins here; -1 if they have several."""
    side = view(ends + 4 * first, n + 1, np.int32)
    length = np.int32(side[1] - side[0])
    wrong = np.int32(0)
    for i in range(n):
        wrong |= np.int32(side[i + 1] - side[i]) ^ length
    return np.int64(-1) if wrong else np.int64(length)


@nb.njit(inline="always")
def _repeats(begin, size, length):
    """Whether bytes, of which there are eight at least, repeat those that lie so far before them."""
    wrong = eight_bytes(begin, size - 8) ^ eight_bytes(begin, size - 8 - length)
    for i in range(size >> 3):
        wrong |= eight_bytes(begin, 8 * i) ^ eight_bytes(begin, 8 * i - length)
    return wrong == 0


@nb.njit(inline="always")
def _seen_alike(begin, length, seed, shift, entries, out, a, b):
    """Numbers of short texts of one length that lie side by side: eight bytes up to the end of the first begin here. Whether all were seen
    and are in their first place in the table."""
    half = np.uint64(32 - 4 * length)
    who = np.uint64(length + 1) << np.uint64(32)
    wrong = np.uint64(0)
    wrong_length = np.uint64(0)
    for i in range(a, b):
        word = eight_bytes(begin, (i - a) * length) >> half >> half
        at = np.uint64(2) * np.uint64(place(word, length, seed, shift))
        entry = entries[at + np.uint64(1)]
        wrong |= entries[at] ^ word
        wrong_length |= entry ^ who
        out[i] = np.int64(entry & NUMBER_BITS)
    return (wrong | (wrong_length >> np.uint64(32))) == 0


@kernel("int64(int64, int64, int64, int64, uint32[::1], int64, int64, uint64, uint64, int64[:, ::1], int32[::1], int64[::1])")
def seen(offsets, data, straight, first, places, a, b, seed, shift, table, rows, out):
    """The numbers of texts of at most eight bytes, with eight before their ends, that were seen and are in their first place in the table,
    as nearly all are: one look follows the other without waiting for what it finds. Returns how many are not, which `rows` says."""
    ends = view(offsets, _MOST, np.int32)
    entries = view(table.ctypes.data, 2 * table.shape[0], np.uint64)
    m = np.int64(0)
    for i in range(a, b):
        r = np.uint64(first + i) if straight else np.uint64(places[i])
        end = np.int64(ends[r + np.uint64(1)])
        length = end - np.int64(ends[r])
        half = np.uint64(32 - 4 * length)
        word = eight_bytes(data, end - 8) >> half >> half
        at = np.uint64(2) * np.uint64(place(word, length, seed, shift))
        entry = entries[at + np.uint64(1)]
        out[i] = np.int64(entry & NUMBER_BITS)
        rows[m] = np.int32(i)
        m += np.int64((entries[at] ^ word) | ((entry >> np.uint64(32)) ^ np.uint64(length + 1)) != 0)
    return m


@nb.njit(inline="always")
def are_short(offsets, straight, first, places, n):
    """Whether texts have at most eight bytes, and there are eight before the end of each."""
    long = np.int32(0)
    if straight:
        side = view(offsets + 4 * first, n + 1, np.int32)
        for i in range(n):
            long |= np.int32(side[i + 1] - side[i] > 8)
        return long == 0 and side[1] >= 8
    ends = view(offsets, _MOST, np.int32)
    for i in range(n):
        end = ends[np.uint64(places[i]) + np.uint64(1)]
        long |= np.int32(end - ends[np.uint64(places[i])] > 8) | np.int32(end < 8)
    return long == 0


@kernel(
    "int64(int64[::1], int64, int64, int64, uint32[::1], int64, uint8[::1], int64, uint64, int64[:, ::1], int32[::1], int64[:, ::1],"
    " int64[::1])"
)
def ask_short(row, column, straight, first, places, n, nulls, some_null, seed, table, rows, asked, out):
    """The numbers of short texts, as far as they are known; the others are to be looked up. Returns how many these are."""
    ends = view(row[column + VALUES], _MOST, np.int32)
    data = row[column + DATA]
    shift = shift_of(table.shape[0])
    entries = view(table.ctypes.data, 2 * table.shape[0], np.uint64)
    m = np.int64(0)
    for a in range(0, n, _STRETCH):
        b = min(a + _STRETCH, n)
        if straight:
            length = _one_length(row[column + VALUES], first + a, b - a)
            if length >= 0:
                begin = data + np.int64(ends[first + a]) + length - 8
                if _seen_alike(begin, length, seed, shift, entries, out, a, b):
                    continue
        for j in range(seen(row[column + VALUES], data, straight, first, places, a, b, seed, shift, table, rows, out)):
            i = np.int64(rows[j])
            if some_null and nulls[i]:
                continue
            r = first + i if straight else np.int64(places[i])
            start = np.int64(ends[r])
            length = np.int64(ends[r + 1]) - start
            asked[START, m] = start
            asked[LENGTH, m] = length
            asked[WORD, m] = np.int64(few_bytes(data, start + length, length))
            asked[ROW, m] = i
            asked[BEHIND, m] = i + 1
            m += 1
    return m


@kernel("int64(int64[::1], int64, int64, int64, uint32[::1], int64, uint8[::1], int64, uint64, int64[:, ::1])")
def ask_runs(row, column, straight, first, places, n, nulls, some_null, seed, asked):
    """The texts that are to be looked up: those that are not the same as the one before. Returns how many they are."""
    ends = view(row[column + VALUES], _MOST, np.int32)
    data = row[column + DATA]
    m = np.int64(0)
    last = np.int64(0)  # where the text before begins, and what it is
    last_length = np.int64(-1)
    last_head = np.uint64(0)
    last_tail = np.uint64(0)
    alike = np.int64(0)
    i = np.int64(0)
    while i < n:
        if some_null and nulls[i]:
            i += 1
            continue
        r = np.uint64(first + i) if straight else np.uint64(places[i])
        start = np.int64(ends[r])
        length = np.int64(ends[r + np.uint64(1)]) - start
        if length <= 8:
            head = few_bytes(data, start + length, length)
            tail = head
        else:
            head = eight_bytes(data, start)
            tail = eight_bytes(data, start + length - 8)
        alike += 1
        if (
            length != last_length
            or head != last_head
            or tail != last_tail
            or (length > 16 and not equal(data + start, data + last, length))
        ):
            last = start
            last_length = length
            last_head = head
            last_tail = tail
            asked[START, m] = start
            asked[LENGTH, m] = length
            asked[WORD, m] = np.int64(head if length <= 8 else many_bytes(data, start, length, seed))
            asked[ROW, m] = i
            m += 1
            alike = 0
        i += 1
        if straight and alike >= _FEW and length > 8 and not some_null:
            alike = np.int64(0)
            for stretch in (_STRETCH, _FEW):
                while i + stretch <= n and _one_length(row[column + VALUES], first + i - 1, stretch + 1) >= 0:
                    if not _repeats(data + np.int64(ends[first + i]), stretch * length, length):
                        break
                    i += stretch
        asked[BEHIND, m - 1] = i
    return m
