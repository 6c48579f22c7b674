"""The kernel of ordered answers: which rows can still be among the first ones, by the columns that they are ordered by, where they lie.

A value becomes a rank (0: a null that comes first, 1: a value, 2: a null that comes last) and, if it is none, a code whose order is that of
the answer. Codes of texts are of their first eight bytes, those of long decimals end at the ends of int64: they may tie.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import view
from tidewheel.model.pieces import BIT_OFFSET, DATA, PERM, ROWS, VALIDITY, VALUES
from tidewheel.read.top.order_columns import (
    BOOL,
    CODE,
    DECIMAL,
    DESCENDING,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    KIND,
    NULLS_FIRST,
    RANK,
    SLOT,
    TEXT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
)

_GREATEST = np.int64(9223372036854775807)
_LEAST = np.int64(-9223372036854775808)
_INFINITY = np.int64(0x7FF0000000000000)
_LOW = np.int64(0x7FFFFFFF)
_NARROW_INFINITY = np.int64(0x7F800000)
_ROOM = 1024
"""Rows that are looked at together: their codes stay in the nearest cache."""


@nb.njit(inline="always")
def _double(bits):
    """The code of a float of 64 bits: NaN is the greatest, and both zeros are one."""
    code = np.int64(0) if bits == _LEAST else bits ^ ((bits >> np.int64(63)) & _GREATEST)
    return _GREATEST if (bits & _GREATEST) > _INFINITY else code


@nb.njit(inline="always")
def _single(bits):
    code = np.int64(0) if bits == -_LOW - 1 else bits ^ ((bits >> np.int64(63)) & _LOW)
    return _GREATEST if (bits & _LOW) > _NARROW_INFINITY else code


@kernel("int64(int64[::1], int64, int64, int64)")
def code_of(row, slot, kind, r):
    """Of the value in row number r of a piece, in rising order."""
    values = row[slot + VALUES]
    if kind == INT64:
        return view(values, r + 1, np.int64)[r]
    if kind == FLOAT64:
        return _double(view(values, r + 1, np.int64)[r])
    if kind == INT32:
        return np.int64(view(values, r + 1, np.int32)[r])
    if kind == FLOAT32:
        return _single(np.int64(view(values, r + 1, np.int32)[r]))
    if kind == UINT64:
        return view(values, r + 1, np.int64)[r] ^ _LEAST
    if kind == INT16:
        return np.int64(view(values, r + 1, np.int16)[r])
    if kind == INT8:
        return np.int64(view(values, r + 1, np.int8)[r])
    if kind == UINT32:
        return np.int64(view(values, r + 1, np.uint32)[r])
    if kind == UINT16:
        return np.int64(view(values, r + 1, np.uint16)[r])
    if kind == UINT8:
        return np.int64(view(values, r + 1, np.uint8)[r])
    if kind == BOOL:
        p = row[slot + BIT_OFFSET] + r
        return np.int64((view(values, (p >> 3) + 1, np.uint8)[p >> 3] >> np.uint8(p & 7)) & np.uint8(1))
    if kind == DECIMAL:
        halves = view(values + 16 * r, 2, np.int64)
        low = halves[0]
        high = halves[1]
        if high == low >> np.int64(63):
            return low
        return _LEAST if high < 0 else _GREATEST
    if kind == TEXT64:
        long_ends = view(values + 8 * r, 2, np.int64)
        first = long_ends[0]
        size = long_ends[1] - first
    else:
        ends = view(values + 4 * r, 2, np.int32)
        first = np.int64(ends[0])
        size = np.int64(ends[1]) - first
    text = view(row[slot + DATA] + first, 8, np.uint8)
    code = np.int64(0)
    for i in range(8):
        code = (code << np.int64(8)) | (np.int64(text[i]) if i < size else np.int64(0))
    return code ^ _LEAST


@nb.njit(inline="always")
def _is_null(row, slot, r):
    bits = row[slot + VALIDITY]
    if bits == 0:
        return False
    p = row[slot + BIT_OFFSET] + r
    return ((view(bits, (p >> 3) + 1, np.uint8)[p >> 3] >> np.uint8(p & 7)) & np.uint8(1)) == np.uint8(0)


@kernel("int64(int64[::1], int64, int64[:, ::1], int64)")
def beats(row, r, order, ties):
    """Whether row number r of a piece comes before the last row that is held; with `ties`, also if the two are alike."""
    for c in range(order.shape[0]):
        if _is_null(row, order[c, SLOT], r):
            rank = np.int64(0) if order[c, NULLS_FIRST] else np.int64(2)
            if rank != order[c, RANK]:
                return np.int64(rank < order[c, RANK])
        else:
            if order[c, RANK] != 1:
                return np.int64(order[c, RANK] == 2)
            code = code_of(row, order[c, SLOT], order[c, KIND], r)
            code = ~code if order[c, DESCENDING] else code
            if code != order[c, CODE]:
                return np.int64(code < order[c, CODE])
    return ties


@kernel("void(int64[::1], int64, int64[:, ::1])")
def mark(row, position, order):
    """Note in `order` that the row at a position is the last one that is held."""
    r = position if row[PERM] == 0 else np.int64(view(row[PERM], row[ROWS], np.uint32)[position])
    for c in range(order.shape[0]):
        if _is_null(row, order[c, SLOT], r):
            order[c, RANK] = 0 if order[c, NULLS_FIRST] else 2
        else:
            code = code_of(row, order[c, SLOT], order[c, KIND], r)
            order[c, RANK] = 1
            order[c, CODE] = ~code if order[c, DESCENDING] else code


@nb.njit(inline="always")
def _near(values, n, descending, worst, near):
    """The numbers of the items that are not behind `worst`. Most blocks have none: that is told without a branch for each item."""
    hits = 0
    if descending:
        for i in range(n):
            hits += values[i] >= worst
    else:
        for i in range(n):
            hits += values[i] <= worst
    at = 0
    if hits:
        for i in range(n):
            near[at] = np.uint32(i)
            at += np.int64(values[i] >= worst if descending else values[i] <= worst)
    return at


@nb.njit(inline="always")
def _near_floats(values, n, descending, worst, near):
    """The same of floats; `worst` is not NaN, which is above all numbers."""
    hits = 0
    if descending:
        for i in range(n):
            hits += not (values[i] < worst)
    else:
        for i in range(n):
            hits += values[i] <= worst
    at = 0
    if hits:
        for i in range(n):
            near[at] = np.uint32(i)
            at += np.int64(not (values[i] < worst) if descending else values[i] <= worst)
    return at


@kernel("int64(int64[::1], int64, int64, int64[:, ::1], uint32[::1], int64[::1])")
def near_ones(row, first, n, order, near, codes):
    """The numbers of those of n rows that lie one behind the other whose first value is not behind that of the last row held."""
    values = row[order[0, SLOT] + VALUES]
    kind = order[0, KIND]
    descending = order[0, DESCENDING]
    worst = ~order[0, CODE] if descending else order[0, CODE]
    if kind == INT64:
        return _near(view(values + 8 * first, n, np.int64), n, descending, worst, near)
    if kind == INT32 and worst == np.int64(np.int32(worst)):
        return _near(view(values + 4 * first, n, np.int32), n, descending, np.int32(worst), near)
    if kind == INT16 and worst == np.int64(np.int16(worst)):
        return _near(view(values + 2 * first, n, np.int16), n, descending, np.int16(worst), near)
    if kind == FLOAT64 and worst != _GREATEST:
        codes[0] = worst if worst >= 0 else worst ^ _GREATEST
        number = codes.view(np.float64)[0]
        return _near_floats(view(values + 8 * first, n, np.float64), n, descending, number, near)
    if kind == FLOAT64 or kind == FLOAT32:
        if kind == FLOAT64:
            doubles = view(values + 8 * first, n, np.int64)
            for i in range(n):
                codes[i] = _double(doubles[i])
        else:
            singles = view(values + 4 * first, n, np.int32)
            for i in range(n):
                codes[i] = _single(np.int64(singles[i]))
    else:
        for i in range(n):
            codes[i] = code_of(row, order[0, SLOT], kind, first + i)
    return _near(codes, n, descending, worst, near)


@kernel("int64(int64[::1], uint32[::1], int64, int64[:, ::1], uint32[::1], int64[::1])")
def near_scattered(row, places, n, order, near, codes):
    """The same of n rows at places of their own."""
    values = row[order[0, SLOT] + VALUES]
    kind = order[0, KIND]
    descending = order[0, DESCENDING]
    if kind == INT64:
        longs = view(values, row[ROWS], np.int64)
        for i in range(n):
            codes[i] = longs[places[i]]
    elif kind == FLOAT64:
        doubles = view(values, row[ROWS], np.int64)
        for i in range(n):
            codes[i] = _double(doubles[places[i]])
    else:
        for i in range(n):
            codes[i] = code_of(row, order[0, SLOT], kind, np.int64(places[i]))
    return _near(codes, n, descending, ~order[0, CODE] if descending else order[0, CODE], near)


@kernel("int64(int64[:, ::1], int64[:, ::1], int64[::1], int64, int64[:, ::1], int64, int64[:, ::1], int64)", makes_arrays=True)
def better(pieces, segments, at, most, order, held, out, n):
    """Append to out[:n] the rows that can be among the first ones, each by itself. Returns their number.

    `held`: 0 if there are too few yet, so that every row can; 1 if rows that are like the last one come behind it, 2 if that is not known.
    `at`: where to begin, and then, where it ended: a segment and an offset in it. It ends when `most` rows are looked at or `out` is full.
    """
    near = np.empty(_ROOM + 1, np.uint32)
    codes = np.empty(_ROOM, np.int64)
    s = at[0]
    o = at[1]
    lone = order.shape[0] == 1 and held == 2
    while s < segments.shape[0] and most > 0:
        q = segments[s, 0]
        row = pieces[q]
        size = segments[s, 2]
        some = row[PERM] != 0
        perm = view(row[PERM], row[ROWS], np.uint32)
        plain = row[order[0, SLOT] + VALIDITY] == 0 and order[0, RANK] == 1
        while o < size and most > 0:
            first = segments[s, 1] + o
            m = min(np.int64(_ROOM), size - o, most)
            if n + m > out.shape[0]:
                at[0] = s
                at[1] = o
                return n
            if held and plain and some:
                found = near_scattered(row, perm[first : first + m], m, order, near, codes)
            elif held and plain:
                found = near_ones(row, first, m, order, near, codes)
            else:
                found = m
                for i in range(m):
                    near[i] = np.uint32(i)
            for i in range(found):
                p = first + np.int64(near[i])
                if held and not (lone and plain):
                    r = np.int64(perm[p]) if some else p
                    if beats(row, r, order, np.int64(held == 2)) == 0:
                        continue
                out[n, 0] = q
                out[n, 1] = p
                out[n, 2] = 1
                out[n, 3] = 0
                n += 1
            o += m
            most -= m
        if o >= size:
            s += 1
            o = 0
    at[0] = s
    at[1] = o
    return n
