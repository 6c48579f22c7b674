"""The kernel of totals of those rows of some segments where a program is true. It stands apart, so that totals of all rows load nothing of
programs."""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import view
from tidewheel.model.pieces import BIT_OFFSET, PERM, VALIDITY, VALUES
from tidewheel.read.filters.kernels import places_left, places_of
from tidewheel.read.filters.step_codes import BLOCK, ROOM
from tidewheel.read.kernels import gathered
from tidewheel.read.totals.kernels import (
    FLOAT32,
    FLOAT64,
    HIGH,
    INT32,
    INT64,
    LOW,
    _add_floats,
    _add_wholes,
    _bring,
    _bring_wholes,
)

_GREATEST = np.int64(9223372036854775807)
_LOWER = np.int64(0xFFFFFFFF)


@nb.njit(inline="always")
def _known(bits, offset, places, n, some):
    """Those of n rows whose value is not null. Returns how many."""
    at = 0
    for i in range(n):
        p = offset + np.int64(places[i])
        some[at] = places[i]
        at += np.int64((bits[p >> 3] >> np.uint8(p & 7)) & np.uint8(1))
    return at


@kernel(
    "int64(int64[:, ::1], int64[:, ::1], int64[:, ::1], boolean, int64[:, ::1], int64[:, ::1], float64[:, ::1])",
    fastmath={"reassoc"},
    makes_arrays=True,
)
def fold_where(pieces, segments, steps, only_marked, columns, found, floats):
    """Add what the rows hold where the program is true: see `fold`. `only_marked`: it is true of all rows in segments without a mark.
    Returns how many rows these are."""
    room = np.empty(ROOM, np.uint8)
    places = np.empty(BLOCK, np.uint32)
    some = np.empty(BLOCK, np.uint32)
    wholes = np.empty(BLOCK, np.int64)
    numbers = np.empty(BLOCK, np.float64)
    no_steps = steps[:0]
    rows = np.int64(0)
    behind = np.int64(0)
    for s in range(segments.shape[0]):
        if s < behind:
            continue
        row = pieces[segments[s, 0]]
        end = segments[s, 1] + segments[s, 2]
        asked = no_steps if only_marked and segments[s, 3] == 0 else steps
        behind, together = gathered(row, segments, s, only_marked, places)
        for first in range(segments[s, 1], end, BLOCK):
            size = min(end - first, BLOCK)
            if behind > s + 1:
                m = places_left(row, steps, np.int64(-1), together, room, places)
            else:
                m = places_of(row, asked, first, size, room, places)
            if m == 0:
                continue
            rows += m
            side = m == size and row[PERM] == 0 and behind <= s + 1
            for c in range(columns.shape[0]):
                column = columns[c, 0]
                kind = columns[c, 1]
                wants = columns[c, 2]
                source = row[column + VALUES]
                here = places
                n = m
                if row[column + VALIDITY] != 0:
                    n = _known(view(row[column + VALIDITY], _GREATEST, np.uint8), row[column + BIT_OFFSET], places, m, some)
                    here = some
                elif side and kind == FLOAT64:
                    _add_floats(view(source + 8 * first, size, np.float64), size, wants, found[c], floats[c])
                    continue
                elif side and kind == INT64:
                    _add_wholes(view(source + 8 * first, size, np.int64), size, wants, False, found[c])
                    continue
                elif side and kind == INT32:
                    _add_wholes(view(source + 4 * first, size, np.int32), size, wants, True, found[c])
                    continue
                if kind == FLOAT64:
                    _bring(view(source, _GREATEST, np.float64), here, n, numbers)
                    _add_floats(numbers, n, wants, found[c], floats[c])
                elif kind == FLOAT32:
                    _bring(view(source, _GREATEST, np.float32), here, n, numbers)
                    _add_floats(numbers, n, wants, found[c], floats[c])
                else:
                    _bring_wholes(source, kind, here, n, wholes)
                    _add_wholes(wholes, n, wants, False, found[c])
    for c in range(columns.shape[0]):
        found[c, HIGH] += found[c, LOW] >> np.int64(32)
        found[c, LOW] &= _LOWER
    return rows
