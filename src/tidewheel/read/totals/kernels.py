"""The kernel of totals: what the values of some columns come to, over the segments of a query, where they lie.

Whole numbers of 64 bits are added up in two halves: with at most 2^31 rows in a call, and 2^32 in all, no sum wraps. Floats are simply
added up, as DuckDB does it, in an order that suits the machine; of NaN there is only a count.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import view
from tidewheel.model.pieces import BIT_OFFSET, PERM, ROWS, VALIDITY, VALUES
from tidewheel.read.kernels import gathered
from tidewheel.read.totals.folds import ADD, COMPARE, KINDS

INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT32, FLOAT64 = range(len(KINDS))
"""Kinds of columns. Numbers of UINT64 count from 2^63: so they fit, and keep their order."""

COUNT, HIGH, LOW, LEAST, GREATEST, NANS, WHOLES = range(7)
"""What is found of whole numbers: how many, their sum divided by 2^32 and what is left of it, their ends. Of floats only COUNT and NANS."""

FLOAT_SUM, FLOAT_LEAST, FLOAT_GREATEST, FLOATS = range(4)
"""What is found of floats. The ends are those of numbers that are not NaN."""

_ROOM = 1024
"""Values that are brought into one form at a time: they stay in the nearest cache."""

_GREATEST = np.int64(9223372036854775807)
_LOWER = np.int64(0xFFFFFFFF)


@nb.njit(inline="always")
def _add_wholes(values, n, wants, narrow, found):
    found[COUNT] += n
    if wants & ADD:
        low = np.int64(0)
        if narrow:
            for i in range(n):
                low += np.int64(values[i])
            found[HIGH] += low >> np.int64(32)
            found[LOW] += low & _LOWER
        else:
            high = np.int64(0)
            for i in range(n):
                v = np.int64(values[i])
                high += v >> np.int64(32)
                low += v & _LOWER
            found[HIGH] += high
            found[LOW] += low
    if wants & COMPARE:
        least = found[LEAST]
        greatest = found[GREATEST]
        for i in range(n):
            v = np.int64(values[i])
            least = min(least, v)
            greatest = max(greatest, v)
        found[LEAST] = least
        found[GREATEST] = greatest


@nb.njit(inline="always")
def _add_floats(values, n, wants, found, floats):
    found[COUNT] += n
    if wants & ADD:
        total = 0.0
        for i in range(n):
            total += values[i]
        floats[FLOAT_SUM] += total
    if wants & COMPARE:
        least = floats[FLOAT_LEAST]
        greatest = floats[FLOAT_GREATEST]
        nans = np.int64(0)
        for i in range(n):
            v = values[i]
            nans += np.int64(v != v)
            least = v if v < least else least
            greatest = v if v > greatest else greatest
        found[NANS] += nans
        floats[FLOAT_LEAST] = least
        floats[FLOAT_GREATEST] = greatest


@nb.njit(inline="always")
def _not_null(row, column, first, n, some, places):
    """The row numbers of those values of positions from `first` on that are not null. Returns how many."""
    perm = view(row[PERM], row[ROWS], np.uint32)
    bits = view(row[column + VALIDITY], _GREATEST, np.uint8)
    offset = row[column + BIT_OFFSET]
    at = 0
    for i in range(first, first + n):
        r = np.int64(perm[i]) if some else i
        p = offset + r
        places[at] = np.uint32(r)
        at += np.int64((bits[p >> 3] >> np.uint8(p & 7)) & np.uint8(1))
    return at


@nb.njit(inline="always")
def _bring(values, places, n, out):
    for i in range(n):
        out[i] = values[places[i]]


@nb.njit(inline="always")
def _bring_wholes(source, kind, places, n, out):
    if kind == INT8:
        _bring(view(source, _GREATEST, np.int8), places, n, out)
    elif kind == INT16:
        _bring(view(source, _GREATEST, np.int16), places, n, out)
    elif kind == INT32:
        _bring(view(source, _GREATEST, np.int32), places, n, out)
    elif kind == UINT8:
        _bring(view(source, _GREATEST, np.uint8), places, n, out)
    elif kind == UINT16:
        _bring(view(source, _GREATEST, np.uint16), places, n, out)
    elif kind == UINT32:
        _bring(view(source, _GREATEST, np.uint32), places, n, out)
    else:
        values = view(source, _GREATEST, np.int64)
        turn = np.int64(-9223372036854775808) if kind == UINT64 else np.int64(0)
        for i in range(n):
            out[i] = values[places[i]] ^ turn


@nb.njit(inline="always")
def _add_scattered(source, kind, wants, places, n, wholes, numbers, found, floats):
    """Add the values in rows of these numbers. There is room in `wholes` and `numbers` for as many."""
    if kind == FLOAT64:
        _bring(view(source, _GREATEST, np.float64), places, n, numbers)
        _add_floats(numbers, n, wants, found, floats)
    elif kind == FLOAT32:
        _bring(view(source, _GREATEST, np.float32), places, n, numbers)
        _add_floats(numbers, n, wants, found, floats)
    else:
        _bring_wholes(source, kind, places, n, wholes)
        _add_wholes(wholes, n, wants, False, found)


@kernel("void(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], float64[:, ::1])", fastmath={"reassoc"}, makes_arrays=True)
def fold(pieces, segments, columns, found, floats):
    """Add what the segments hold to what was found. A row of `columns` is (column, kind, wants), of the others what the names above say."""
    room = np.empty(_ROOM, np.uint32)
    wholes = np.empty(_ROOM, np.int64)
    numbers = np.empty(_ROOM, np.float64)
    for c in range(columns.shape[0]):
        column = columns[c, 0]
        kind = columns[c, 1]
        wants = columns[c, 2]
        behind = np.int64(0)
        for s in range(segments.shape[0]):
            if s < behind:
                continue
            row = pieces[segments[s, 0]]
            a = segments[s, 1]
            size = segments[s, 2]
            source = row[column + VALUES]
            some = row[PERM] != 0
            known = row[column + VALIDITY] != 0
            if not known:
                behind, n = gathered(row, segments, s, 0, room)
                if behind > s + 1:
                    _add_scattered(source, kind, wants, room, n, wholes, numbers, found[c], floats[c])
                    continue
            if not some and not known:
                if kind == FLOAT64:
                    _add_floats(view(source + 8 * a, size, np.float64), size, wants, found[c], floats[c])
                    continue
                if kind == INT64:
                    _add_wholes(view(source + 8 * a, size, np.int64), size, wants, False, found[c])
                    continue
                if kind == INT32:
                    _add_wholes(view(source + 4 * a, size, np.int32), size, wants, True, found[c])
                    continue
            for first in range(a, a + size, _ROOM):
                n = min(a + size - first, _ROOM)
                places = room
                if known:
                    n = _not_null(row, column, first, n, some, room)
                elif some:
                    places = view(row[PERM] + 4 * first, n, np.uint32)
                else:
                    for i in range(n):
                        room[i] = np.uint32(first + i)
                _add_scattered(source, kind, wants, places, n, wholes, numbers, found[c], floats[c])
        found[c, HIGH] += found[c, LOW] >> np.int64(32)
        found[c, LOW] &= _LOWER
