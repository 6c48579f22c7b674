"""Kernels that add the values of a block to what their groups come to, in one pass for each fold.

Where rows of one group stand together, as those of a time do, a run of them is added up first. Floats are added up in an order that suits
the machine, which is the same at every reading.

Slots are never negative, and are read as numbers without a sign: an index that may be negative, for all that is known, is looked at twice.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.read.groups.group_layout import AT, GREATEST, LEAST, ROWS_AT, SUM_NARROW, SUM_REAL, SUM_WIDE, WHAT
from tidewheel.read.groups.near.kernels import add_near, added_near


@kernel("void(int32[::1], int64, int32[::1], int64, int32[::1], int32[::1], int64, int64[::1], int64[:, ::1])")
def count_rows(slots, n, starts, runs, places, near, span, room, groups):
    """With `span`, rows are near each other: `places` has the place of each, `near` the slot of each place or -1."""
    if runs:
        for r in range(runs):
            groups[slots[starts[r]], ROWS_AT] += np.int64(starts[r + 1]) - np.int64(starts[r])
    elif span:
        add_near(None, places.view(np.uint32), n, span, room)
        for s in range(span):
            if near[s] >= 0:
                groups[near[s], ROWS_AT] += added_near(room, span, s)
    else:
        at = slots.view(np.uint32)
        for i in range(n):
            groups[at[i], ROWS_AT] += 1


@kernel("int64(int64[::1], uint8[::1], int32[::1], int32[::1], int64, int64, int64[:, ::1], int64[::1], int32[::1], int32[::1])")
def without_nulls(values, nulls, slots, places, n, nulls_at, groups, kept, kept_slots, kept_places):
    """The values that are not null, with their slots and places; the others are counted. Returns how many are left."""
    m = np.int64(0)
    for i in range(n):
        kept[m] = values[i]
        kept_slots[m] = slots[i]
        kept_places[m] = places[i]
        m += np.int64(1) - np.int64(nulls[i])
    if m < n:
        for i in range(n):
            if nulls[i]:
                groups[slots[i], nulls_at] += 1
    return m


@nb.njit(inline="always")
def _add_wide(groups, slot, at, low, high):
    """Add a number of 128 bits."""
    before = np.uint64(groups[slot, at])
    after = before + np.uint64(low)
    groups[slot, at] = np.int64(after)
    groups[slot, at + 1] += high + np.int64(after < before)


@nb.njit(inline="always")
def _are_small(values, n):
    """Whether the sum of any of them, in a block, has a place in 64 bits."""
    least = np.int64(0)
    greatest = np.int64(0)
    for i in range(n):
        least = min(least, values[i])
        greatest = max(greatest, values[i])
    return least >= -_SMALL and greatest <= _SMALL


_SMALL = np.int64(1) << np.int64(51)
_LEAST = np.int64(-9223372036854775808)


@kernel(
    "int64(int64[::1], int64[::1], int32[::1], int64, int32[::1], int64, int32[::1], int32[::1], int64, int64[::1], int64[:, ::1], int64,"
    " int64, int64, int64[:, ::1])",
    fastmath={"reassoc"},
)
def add_values(values, codes, slots, n, starts, runs, places, near, span, room, folds, first, behind, counting, groups):
    """Add n values that are not null: as whole numbers or bits of floats in `values`, in their order in `codes`. With `counting`, the rows
    are to be counted too: returns 0 if they were. `places` and the like are those of `count_rows`."""
    reals = values.view(np.float64)
    sums = groups.view(np.float64)
    slot = slots.view(np.uint32)
    for f in range(first, behind):
        what = folds[f, WHAT]
        at = folds[f, AT]
        if what == SUM_REAL:
            if runs:
                for r in range(runs):
                    some = reals[starts[r] : starts[r + 1]]
                    real = 0.0
                    for i in range(some.shape[0]):
                        real += some[i]
                    sums[slots[starts[r]], at] += real
            elif span:
                real_room = room.view(np.float64)
                add_near(reals, places.view(np.uint32), n, span, real_room)
                for s in range(span):
                    if near[s] >= 0:
                        sums[near[s], at] += added_near(real_room, span, s)
            elif counting:
                for i in range(n):
                    groups[slot[i], ROWS_AT] += 1
                    sums[slot[i], at] += reals[i]
                counting = np.int64(0)
            else:
                for i in range(n):
                    sums[slot[i], at] += reals[i]
        elif what == SUM_NARROW:
            if runs:
                for r in range(runs):
                    few = values[starts[r] : starts[r + 1]]
                    whole = np.int64(0)
                    for i in range(few.shape[0]):
                        whole += few[i]
                    groups[slots[starts[r]], at] += whole
            elif span:
                add_near(values, places.view(np.uint32), n, span, room)
                for s in range(span):
                    if near[s] >= 0:
                        groups[near[s], at] += added_near(room, span, s)
            elif counting:
                for i in range(n):
                    groups[slot[i], ROWS_AT] += 1
                    groups[slot[i], at] += values[i]
                counting = np.int64(0)
            else:
                for i in range(n):
                    groups[slot[i], at] += values[i]
        elif what == SUM_WIDE:
            if runs:
                for r in range(runs):
                    few = values[starts[r] : starts[r + 1]]
                    high = np.int64(0)
                    low = np.int64(0)
                    for i in range(few.shape[0]):
                        high += few[i] >> np.int64(32)
                        low += few[i] & np.int64(0xFFFFFFFF)
                    high += low >> np.int64(32)
                    low = (low & np.int64(0xFFFFFFFF)) | (high << np.int64(32))
                    _add_wide(groups, slots[starts[r]], at, low, high >> np.int64(32))
            elif span and _are_small(values, n):
                add_near(values, places.view(np.uint32), n, span, room)
                for s in range(span):
                    if near[s] >= 0:
                        added = added_near(room, span, s)
                        _add_wide(groups, near[s], at, added, added >> np.int64(63))
            else:
                for i in range(n):
                    _add_wide(groups, slots[i], at, values[i], values[i] >> np.int64(63))
        elif what == LEAST:
            if runs:
                for r in range(runs):
                    few = codes[starts[r] : starts[r + 1]]
                    least = groups[slots[starts[r]], at]
                    for i in range(few.shape[0]):
                        least = min(least, few[i])
                    groups[slots[starts[r]], at] = least
            else:
                for i in range(n):
                    if codes[i] < groups[slot[i], at]:  # which soon is rare: what is not stored is not waited for
                        groups[slot[i], at] = codes[i]
        elif what == GREATEST:
            if runs:
                for r in range(runs):
                    few = codes[starts[r] : starts[r + 1]]
                    greatest = groups[slots[starts[r]], at]
                    for i in range(few.shape[0]):
                        greatest = max(greatest, few[i])
                    groups[slots[starts[r]], at] = greatest
            else:
                for i in range(n):
                    if codes[i] > groups[slot[i], at]:
                        groups[slot[i], at] = codes[i]
    return counting


@kernel("void(int64[::1], int32[::1], int64, int64, int64, int64, int64[:, ::1])")
def add_moments(values, slots, n, real, signless, at, groups):
    """Add n values to the count, the mean and the sum of squares about it (Welford's way). `signless`: they count from 2^63, where floats
    are far apart."""
    reals = values.view(np.float64)
    words = groups.view(np.float64)
    for i in range(n):
        slot = slots[i]
        whole = np.float64(np.uint64(values[i] ^ _LEAST)) if signless else np.float64(values[i])
        v = reals[i] if real else whole
        count = groups[slot, at] + 1
        groups[slot, at] = count
        more = v - words[slot, at + 1]
        mean = words[slot, at + 1] + more / np.float64(count)
        words[slot, at + 1] = mean
        words[slot, at + 2] += more * (v - mean)


@kernel("void(int64[::1], uint8[::1], int64[::1], int32[::1], int64, int64, int64, int64[:, ::1])")
def add_by(values, use, deciding, slots, n, after, at, groups):
    """Keep of each group the value that goes with the least of what decides, or with the greatest; of equal ones, the first. `use`: 0 if a
    row does not count, 2 if its value is null."""
    for i in range(n):
        if use[i]:
            slot = slots[i]
            seen = groups[slot, at]
            known = groups[slot, at + 1]
            if seen == 0 or (deciding[i] > known if after else deciding[i] < known):
                groups[slot, at] = np.int64(use[i])
                groups[slot, at + 1] = deciding[i]
                groups[slot, at + 2] = values[i]


@kernel("void(int64[:, ::1], int64, int64, int64, int64, int64[:, ::1])")
def count_new(pairs, first, behind, each, at, groups):
    """Count the pairs from `first` on for their groups."""
    for p in range(first, behind):
        groups[pairs[p, 0] // each, at] += 1
