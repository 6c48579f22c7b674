"""The kernels that add the rows of a partition to its groups, which a core has near, and take from these what is wanted.

The groups are a window, with a row for every number that the partition's keys can have, or are found by a hash as all others are.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.read.groups.group_layout import (
    BEHIND_FOLDS,
    COUNT,
    DONE,
    FIRST_FOLD,
    GREATEST,
    GREATEST_NUMBER,
    LEAST,
    LEAST_NUMBER,
    NULLS_AT,
    REAL,
    ROWS_AT,
    SHIFT,
    UNLUCKY,
    WHAT,
)
from tidewheel.read.groups.numbers.kernels import codes
from tidewheel.read.groups.partitions.partition_layout import CHUNK, HEAD, NARROW_AT, NEXT, NULL_BIT, TAIL, WIDE_AT
from tidewheel.read.groups.slots.kernels import in_table
from tidewheel.read.groups.sums.kernels import add_values, count_rows, without_nulls

_FIRST = np.int64(-9223372036854775808)
_NEAR = 16
"""Places of a window that are looked at together."""


@kernel("int64(int64, int64[:, :, ::1], int64[::1])")
def rows_in(p, sides, links):
    """Rows of a partition."""
    rows = np.int64(0)
    for side in range(sides.shape[0]):
        at = sides[side, HEAD, p]
        while at // CHUNK != sides[side, TAIL, p]:
            rows += CHUNK - at % CHUNK
            at = links[at // CHUNK] * CHUNK
        rows += sides[side, NEXT, p] - at
    return rows


@nb.njit(inline="always")
def _brought(stored, v, at, n, narrow, wide, out):
    """A column of a chunk."""
    if stored[v, NARROW_AT] >= 0:
        few = narrow[stored[v, NARROW_AT]]
        for i in range(n):
            out[i] = np.int64(few[at + i])
    else:
        many = wide[stored[v, WIDE_AT]]
        for i in range(n):
            out[i] = many[at + i]


@nb.njit(inline="always")
def _marked(stored, v, at, n, bits, nulls):
    """Which values of a chunk are null. Returns how many."""
    count = np.int64(0)
    bit = np.uint8(stored[v, NULL_BIT])
    for i in range(n):
        null = (bits[at + i] >> bit) & np.uint8(1)
        nulls[i] = null
        count += np.int64(null)
    return count


@kernel(
    "void(int64, int64, int32[::1], int32[:, ::1], int64[:, ::1], uint8[::1], int64[:, ::1], int64[:, ::1], int64, int64[:, ::1],"
    " int64[:, ::1], int64[:, ::1], uint8[::1], int32[::1])"
)
def add_chunk(at, n, slots, narrow, wide, bits, stored, values, keys, folds, groups, room, nulls, kept_slots):
    """Add n rows, from one place of the partitions on, to the groups with these slots. The last three are room to work in."""
    found = room[0]
    kept = room[1]
    coded = room[2]
    starts = kept_slots  # there are none, nor places of groups that are near each other
    counting = np.int64(1)
    for v in range(keys, values.shape[0]):
        value = values[v]
        first = value[FIRST_FOLD]
        behind = value[BEHIND_FOLDS]
        count = np.int64(0)
        if stored[v, NULL_BIT] >= 0:
            count = _marked(stored, v, at, n, bits, nulls)
        given = found
        if stored[v, WIDE_AT] >= 0:
            given = wide[stored[v, WIDE_AT], at : at + n]
        elif first < behind:
            _brought(stored, v, at, n, narrow, wide, found)
        m = n
        given_slots = slots
        if count:
            m = without_nulls(given, nulls, slots, slots, n, value[NULLS_AT], groups, kept, kept_slots, kept_slots)
            given = kept
            given_slots = kept_slots
        if m == 0 or first == behind:
            continue
        ordered = given
        if value[REAL]:
            for f in range(first, behind):
                if folds[f, WHAT] == LEAST or folds[f, WHAT] == GREATEST:
                    codes(given, m, coded)
                    ordered = coded
                    break
        both_ways = np.int64(counting and not count)
        left = add_values(given, ordered, given_slots, m, starts, 0, slots, slots, 0, coded, folds, first, behind, both_ways, groups)
        counting = left if both_ways else counting
    if counting:
        count_rows(slots, n, starts, 0, slots, slots, 0, coded, groups)


@kernel(
    "void(int64, int64[:, :, ::1], int64[::1], uint16[::1], int32[:, ::1], int64[:, ::1], uint8[::1], int64[:, ::1], int64[:, ::1], int64,"
    " int64[:, ::1], int64[:, ::1])",
    makes_arrays=True,
)
def add_up(p, sides, links, slots, narrow, wide, bits, stored, values, keys, folds, window):
    """Add the rows of a partition to its window."""
    slot = np.empty(CHUNK, np.int32)
    room = np.empty((3, CHUNK), np.int64)
    nulls = np.empty(CHUNK, np.uint8)
    kept_slots = np.empty(CHUNK, np.int32)
    for side in range(sides.shape[0]):
        at = sides[side, HEAD, p]
        while True:
            chunk = at // CHUNK
            is_last = chunk == sides[side, TAIL, p]
            n = (sides[side, NEXT, p] if is_last else (chunk + 1) * CHUNK) - at
            for i in range(n):
                slot[i] = np.int32(slots[at + i])
            if n:
                add_chunk(at, n, slot, narrow, wide, bits, stored, values, keys, folds, window, room, nulls, kept_slots)
            if is_last:
                break
            at = links[chunk] * CHUNK


@kernel(
    "int64(int64, int64[:, :, ::1], int64[::1], int32[:, ::1], int64[:, ::1], uint8[::1], int64[:, ::1], int64[:, ::1], int64,"
    " int64[:, ::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1])",
    makes_arrays=True,
)
def add_hashed(p, sides, links, narrow, wide, bits, stored, values, keys, folds, state, table, known, groups, empty):
    """Make the groups of a partition's rows, for all of which there is room, with an empty table. Returns why it stops: DONE or UNLUCKY."""
    numbers = np.empty((keys, CHUNK), np.int64)
    null_bits = np.empty(CHUNK, np.uint8)
    nulls = np.empty(CHUNK, np.uint8)
    hashes = np.empty(CHUNK, np.int64)
    slot = np.empty(CHUNK, np.int32)
    room = np.empty((3, CHUNK), np.int64)
    kept_slots = np.empty(CHUNK, np.int32)
    state[COUNT] = 0
    for side in range(sides.shape[0]):
        at = sides[side, HEAD, p]
        while True:
            chunk = at // CHUNK
            is_last = chunk == sides[side, TAIL, p]
            n = (sides[side, NEXT, p] if is_last else (chunk + 1) * CHUNK) - at
            some_null = np.int64(0)
            null_bits[:n] = 0
            for k in range(keys):
                _brought(stored, k, at, n, narrow, wide, numbers[k])
                if stored[k, NULL_BIT] >= 0 and _marked(stored, k, at, n, bits, nulls):
                    some_null = np.int64(1)
                    for i in range(n):
                        null_bits[i] |= nulls[i] << np.uint8(k)
            if n:
                if in_table(numbers, keys, null_bits, some_null, n, state, table, known, groups, empty, hashes, slot):
                    return UNLUCKY
                add_chunk(at, n, slot, narrow, wide, bits, stored, values, keys, folds, groups, room, nulls, kept_slots)
            if is_last:
                break
            at = links[chunk] * CHUNK
    return DONE


@nb.njit(inline="always")
def _rank(window, i, place, at, least, shift, mask, falls):
    """What a group is told by, if it has rows. A null key is before all others, and so never beyond a bound."""
    field = (place >> shift) & mask
    rank = field + least if at < 0 else window[i, at]
    rank = ~rank if falls else rank
    return _FIRST if at < 0 and field == 0 else rank


@kernel("int64(int64[:, ::1], int64, int64[:, ::1], int64, int64, int64, int64, int64[:, ::1], int64[:, ::1], int64)", makes_arrays=True)
def take_groups(window, first_place, spans, keys, at, falls, bound, known, groups, have):
    """Write the groups of a window behind `have` others: those whose word `at`, or number of key k if it is -1 - k, is not beyond a bound.
    With `falls` what is greater comes first, and all are told by their complement. Returns how many there are."""
    masks = np.empty(keys, np.int64)
    for k in range(keys):
        masks[k] = 1
        while masks[k] <= spans[k, GREATEST_NUMBER] - spans[k, LEAST_NUMBER] + 1:
            masks[k] *= 2
        masks[k] -= 1
    key = max(-1 - at, 0)
    least = spans[key, LEAST_NUMBER] - 1
    shift = spans[key, SHIFT]
    mask = masks[key]
    for first in range(0, window.shape[0], _NEAR):
        near = min(_NEAR, window.shape[0] - first)
        some = np.int64(0)
        for i in range(first, first + near):
            rank = _rank(window, i, first_place + i, at, least, shift, mask, falls)
            some |= np.int64(window[i, ROWS_AT] > 0) & np.int64(rank <= bound)
        if not some:
            continue
        for i in range(first, first + near):
            if window[i, ROWS_AT] > 0 and _rank(window, i, first_place + i, at, least, shift, mask, falls) <= bound:
                known[have, keys] = 0
                for k in range(keys):
                    field = ((first_place + i) >> spans[k, SHIFT]) & masks[k]
                    known[have, k] = spans[k, LEAST_NUMBER] - 1 + field if field else 0
                    known[have, keys] |= np.int64(field == 0) << k
                for w in range(window.shape[1]):
                    groups[have, w] = window[i, w]
                have += 1
    return have


@kernel("int64(int64[:, ::1], int64[:, ::1], int64, int64, int64, int64, int64, int64[:, ::1], int64[:, ::1], int64)")
def take_hashed(known_here, groups_here, count, keys, at, falls, bound, known, groups, have):
    """The same of groups that were found by a hash; a word of -1 - k is the number of key k, and is not asked of a null."""
    for i in range(count):
        rank = known_here[i, -1 - at] if at < 0 else groups_here[i, at]
        rank = ~rank if falls else rank
        if rank <= bound or at < 0 and (known_here[i, keys] >> (-1 - at)) & 1:
            for k in range(keys + 1):
                known[have, k] = known_here[i, k]
            for w in range(groups_here.shape[1]):
                groups[have, w] = groups_here[i, w]
            have += 1
    return have
