"""Kernels that add up rows whose groups are near each other, as those of a leaf are: at places of a block, and these then once each.

To add where the row before was added is to wait for it: so each place has four parts, and rows that follow each other have different ones.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel

NEAR = 512
"""Places of a block that are near each other, from the least to the greatest."""

_TIMES = 4
"""Rows of a block for each of its places from which on that pays."""


@kernel("int64(int64[::1], int64, int32[::1], int32[::1], int32[::1])")
def near_in_window(packed, n, window, places, slots):
    """Places of rows in a part of a window, and the slots of that part. Returns how many they are, 0 if they are not near each other."""
    least = packed[0]
    greatest = packed[0]
    for i in range(n):
        least = min(least, packed[i])
        greatest = max(greatest, packed[i])
    span = greatest - least + 1
    if span > NEAR or _TIMES * span > n:
        return 0
    for i in range(n):
        places[i] = np.int32(packed[i] - least)
    part = window[least : least + span]
    for s in range(span):
        slots[s] = part[s] - np.int32(1)
    return span


@kernel("int64(int32[::1], int64, int32[::1], int32[::1])")
def near_slots(row_slots, n, places, slots):
    """The same of rows whose slots are near each other."""
    least = row_slots[0]
    greatest = row_slots[0]
    for i in range(n):
        least = min(least, row_slots[i])
        greatest = max(greatest, row_slots[i])
    span = np.int64(greatest) - np.int64(least) + 1
    if span > NEAR or _TIMES * span > n:
        return 0
    for i in range(n):
        places[i] = row_slots[i] - least
    for s in range(span):
        slots[s] = least + np.int32(s)
    return span


@nb.njit(inline="always")
def add_near(values, places, n, span, room):
    """Add n values at their places, or as many ones if there are no values."""
    for s in range(4 * span):
        room[s] = 0
    first = np.uint64(0)
    second = np.uint64(span)
    third = second + second
    fourth = third + second
    for four in range(n >> 2):
        i = np.uint64(4 * four)
        room[places[i] + first] += values[i] if values is not None else 1
        room[places[i + np.uint64(1)] + second] += values[i + np.uint64(1)] if values is not None else 1
        room[places[i + np.uint64(2)] + third] += values[i + np.uint64(2)] if values is not None else 1
        room[places[i + np.uint64(3)] + fourth] += values[i + np.uint64(3)] if values is not None else 1
    for i in range(n & ~3, n):
        room[places[i] + first] += values[i] if values is not None else 1


@nb.njit(inline="always")
def added_near(room, span, s):
    """What was added at a place."""
    return (room[s] + room[span + s]) + (room[2 * span + s] + room[3 * span + s])
