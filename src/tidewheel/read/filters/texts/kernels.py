"""Kernels of text steps: a mask of the texts of a block that are equal to, before, at the beginning of others.

Texts lie at `data`, their ends at `offsets`, of 4 or 8 bytes each as `wide` says (0 or 1). `row` is that of the first text, or -1: then
`places` has the row of each. Bytes of texts can be read up to the address `end`.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import eight_bytes, view
from tidewheel.read.filters.step_codes import TEXT_BEGINS, TEXT_ENDS, TEXT_IS, TEXT_ORDER

_ANY = np.int64(1) << 60
"""The length of a view whose length does not matter."""

_FEW, _FEW_PLACES = 8, 128
"""Short texts of a list that are compared one by one, and places of a table that can have so few."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@nb.njit(inline="always")
def _low(size):
    """A mask of so many bytes, from one to eight."""
    return np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64 - 8 * size) & np.uint64(63))


@nb.njit(inline="always")
def _same(a, end, b, size):
    """Whether so many bytes are the same at two addresses. Bytes up to `end` can be read behind a, and eight behind those of b."""
    if size < 8:
        if size == 0:
            return True
        if a + 8 <= end:
            return ((eight_bytes(a, 0) ^ eight_bytes(b, 0)) & _low(size)) == 0
        one = view(a, size, np.uint8)
        two = view(b, size, np.uint8)
        j = np.int64(0)
        while j < size and one[j] == two[j]:
            j += 1
        return j == size
    if eight_bytes(a, size - 8) != eight_bytes(b, size - 8):
        return False
    j = np.int64(0)
    while j + 8 < size:
        if eight_bytes(a, j) != eight_bytes(b, j):
            return False
        j += 8
    return True


@nb.njit(inline="always")
def _order(a, a_size, b, b_size):
    """1, 2 or 4: text a comes before, is or comes after text b, in the order of bytes."""
    n = min(a_size, b_size)
    j = np.int64(0)
    while j + 8 <= n and eight_bytes(a, j) == eight_bytes(b, j):
        j += 8
    one = view(a, a_size, np.uint8)
    two = view(b, b_size, np.uint8)
    while j < n:
        if one[j] != two[j]:
            return 1 if one[j] < two[j] else 4
        j += 1
    return 1 if a_size < b_size else 4 if a_size > b_size else 2


@nb.njit(inline="always")
def _has(a, a_size, end, b, b_size):
    """Whether text b is somewhere in text a."""
    if b_size == 0:
        return True
    begin = view(b, 1, np.uint8)[0]
    some = view(a, a_size, np.uint8)
    j = np.int64(0)
    while j <= a_size - b_size:
        if some[j] == begin and _same(a + j, end, b, b_size):
            return True
        j += 1
    return False


@nb.njit(inline="always")
def _word(a, size, end):
    """At most eight bytes as one number. Bytes up to `end` can be read."""
    if a + 8 <= end:
        word = eight_bytes(a, 0) & _low(size)
        return word if size else np.uint64(0)
    word = np.uint64(0)
    some = view(a, size, np.uint8)
    for j in range(size):
        word |= np.uint64(some[j]) << np.uint64(8 * j)
    return word


@nb.njit(inline="always")
def _hash(a, size, end, seed):
    """A number that tells texts apart, mostly. Bytes up to `end` can be read."""
    h = (np.uint64(seed) ^ np.uint64(size)) * _FACTOR
    if size >= 8:
        last = eight_bytes(a, size - 8)
        j = np.int64(0)
        while j + 8 < size:
            h = (h ^ eight_bytes(a, j)) * _FACTOR
            h ^= h >> np.uint64(29)
            j += 8
    else:
        last = _word(a, size, end)
    h = (h ^ last) * _FACTOR
    h = (h ^ (h >> np.uint64(32))) * _FACTOR  # the last bytes of a text are its highest bits, and have not reached the low ones yet
    return np.int64((h ^ (h >> np.uint64(32))) & np.uint64(0x7FFFFFFFFFFFFFFF))


@nb.njit(inline="always")
def _ends(offsets, wide, r):
    if wide:
        both8 = view(offsets + 8 * r, 2, np.int64)
        return both8[0], both8[1]
    both4 = view(offsets + 4 * r, 2, np.int32)
    return np.int64(both4[0]), np.int64(both4[1])


@nb.njit(inline="always")
def _of_size(offsets, wide, n, size, mask):
    """mask = whether each of n texts side by side has so many bytes. Returns how many have."""
    count = np.int64(0)
    if wide:
        ends8 = view(offsets, n + 1, np.int64)
        for i in range(n):
            mask[i] = np.uint8(ends8[i + 1] - ends8[i] == size)
            count += np.int64(mask[i])
    else:
        ends4 = view(offsets, n + 1, np.int32)
        short = np.int32(min(size, 2147483647))
        for i in range(n):
            mask[i] = np.uint8(np.int32(ends4[i + 1] - ends4[i]) == short)
            count += np.int64(mask[i])
    return count


@nb.njit(inline="always")
def _mark_side_by_side(end, size, given, n, mask):
    """Add to mask which of n texts of one length, from one byte to eight, is the given one: they lie side by side, the first one ends here,
    and has eight bytes before its end. The given one has eight bytes behind its begin."""
    shift = np.uint64(64 - 8 * size)
    wanted = eight_bytes(given, 0) << shift
    begin = end - 8
    for i in range(n):
        mask[i] |= np.uint8(((eight_bytes(begin, i * size) ^ wanted) >> shift) == 0)


@kernel("void(int64, int64, int64, int64, int64, int64, int64, int64, uint32[::1], int64, int64, uint8[::1])")
def compared(asked, offsets, data, wide, end, given, size, row, places, n, bits, mask):
    """mask = whether each of n texts stands to the given one as it is asked."""
    if asked == TEXT_IS:
        if row >= 0:
            count = _of_size(offsets + (8 if wide else 4) * row, wide, n, size, mask)
            if count == 0 or size == 0:
                return
            _, b = _ends(offsets, wide, row)
            if count == n and size <= 8 and b >= 8:
                mask[:n] = 0
                _mark_side_by_side(data + b, size, given, n, mask)
                return
            for i in range(n):
                if mask[i]:
                    a, _ = _ends(offsets, wide, row + i)
                    mask[i] = _same(data + a, end, given, size)
            return
        for i in range(n):
            a, b = _ends(offsets, wide, np.int64(places[i]))
            mask[i] = b - a == size and _same(data + a, end, given, size)
    elif asked == TEXT_ORDER:
        for i in range(n):
            a, b = _ends(offsets, wide, row + i if row >= 0 else np.int64(places[i]))
            mask[i] = (_order(data + a, b - a, given, size) & bits) != 0
    elif asked == TEXT_BEGINS:
        for i in range(n):
            a, b = _ends(offsets, wide, row + i if row >= 0 else np.int64(places[i]))
            mask[i] = b - a >= size and _same(data + a, end, given, size)
    elif asked == TEXT_ENDS:
        for i in range(n):
            a, b = _ends(offsets, wide, row + i if row >= 0 else np.int64(places[i]))
            mask[i] = b - a >= size and _same(data + b - size, end, given, size)
    else:
        for i in range(n):
            a, b = _ends(offsets, wide, row + i if row >= 0 else np.int64(places[i]))
            mask[i] = b - a >= size and _has(data + a, b - a, end, given, size)


@kernel("void(int64[::1], uint8[::1], int64, int32[::1])")
def laid_out(ends, texts, seed, table):
    """Put the number of each text into a table of places, of which there are a power of two; -1 where there is none."""
    last = table.shape[0] - 1
    table[:] = -1
    begin = texts.ctypes.data
    for t in range(ends.shape[0] - 1):
        at = _hash(begin + ends[t], ends[t + 1] - ends[t], begin + texts.shape[0], seed) & last
        while table[at] >= 0:
            at = (at + 1) & last
        table[at] = np.int32(t)


@nb.njit(inline="always")
def _short_ones(ends, texts, table, last, words, sizes):
    """The texts of a table as words, with their sizes, if they are few and none has more than eight bytes; how many they are, or -1."""
    if last >= _FEW_PLACES:
        return np.int64(-1)
    count = np.int64(0)
    for place in range(last + 1):
        t = np.int64(table[place])
        if t < 0:
            continue
        size = ends[t + 1] - ends[t]
        if size > 8 or count == _FEW:
            return np.int64(-1)
        sizes[count] = size
        words[count] = eight_bytes(texts + ends[t], 0) & _low(size) if size else np.uint64(0)
        count += 1
    return count


@kernel("void(int64, int64, int64, int64, int64, int64, uint32[::1], int64, uint8[::1])", makes_arrays=True)
def listed(offsets, data, wide, end, given, row, places, n, mask):
    """mask = whether each of n texts is in a list: `given` is the address of what step_codes.py says of it."""
    what = view(given, 5, np.int64)
    ends = view(what[0], _ANY, np.int64)
    texts = what[1]
    table = view(what[2], _ANY, np.int32)
    last = what[3]
    seed = what[4]
    words = np.empty(_FEW, np.uint64)
    sizes = np.empty(_FEW, np.int64)
    few = _short_ones(ends, texts, table, last, words, sizes)
    if few >= 0:
        for i in range(n):
            a, b = _ends(offsets, wide, row + i if row >= 0 else np.int64(places[i]))
            size = b - a
            word = _word(data + a, min(size, 8), end)
            found = np.int64(0)
            for t in range(few):
                found |= np.int64(words[t] == word) & np.int64(sizes[t] == size)
            mask[i] = np.uint8(found)
        return
    for i in range(n):
        a, b = _ends(offsets, wide, row + i if row >= 0 else np.int64(places[i]))
        at = _hash(data + a, b - a, end, seed) & last
        found = np.uint8(0)
        while table[at] >= 0:
            t = np.int64(table[at])
            if ends[t + 1] - ends[t] == b - a and _same(data + a, end, texts + ends[t], b - a):
                found = np.uint8(1)
                break
            at = (at + 1) & last
        mask[i] = found
