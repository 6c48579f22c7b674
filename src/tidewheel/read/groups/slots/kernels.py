"""Kernels that find the slot of each row's group by the numbers of its keys, and make new groups.

Keys whose numbers lie near each other have a window: slots by a number made of theirs. All else is hashed, and compared in full. A group
has a row in each of two matrices: in `known` the numbers of its keys and bits that say which of them are null, in `groups` what it has.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.read.groups.group_layout import COUNT, GREATEST_NUMBER, LEAST_NUMBER, SEED, SEEN_GREATEST, SEEN_LEAST, SHIFT

_PROBES = 64
_SLOT = np.int64(0xFFFFFFFF)


@nb.njit(inline="always")
def _new(state, groups, empty):
    slot = state[COUNT]
    state[COUNT] = slot + 1
    for w in range(empty.shape[0]):
        groups[slot, w] = empty[w]
    return slot


@kernel("int64(int64[:, ::1], int64)")
def fits(spans, keys):
    """Whether the numbers that were seen of all keys have a place in the window."""
    for k in range(keys):
        if spans[k, SEEN_LEAST] < spans[k, LEAST_NUMBER] or spans[k, SEEN_GREATEST] > spans[k, GREATEST_NUMBER]:
            return 0
    return 1


@kernel("void(int64[:, ::1], int64, uint8[::1], int64, int64, int64[:, ::1], int64[::1])")
def pack(numbers, keys, nulls, some_null, n, spans, packed):
    """One number of the numbers of all keys, which is a place in the window. Null is 0."""
    for k in range(keys):
        least = spans[k, LEAST_NUMBER] - 1
        shift = spans[k, SHIFT]
        if k == 0:
            for i in range(n):
                packed[i] = numbers[k, i] - least
        elif not some_null:
            for i in range(n):
                packed[i] += (numbers[k, i] - least) << shift
        else:
            for i in range(n):
                more = (numbers[k, i] - least) << shift
                packed[i] += np.int64(0) if (nulls[i] >> np.uint8(k)) & np.uint8(1) else more
        if k == 0 and some_null:
            for i in range(n):
                packed[i] = np.int64(0) if nulls[i] & np.uint8(1) else packed[i]


@kernel(
    "void(int64[::1], int64[:, ::1], int64, uint8[::1], int64, int64, int64[::1], int32[::1], int64[:, ::1], int64[:, ::1], int64[::1],"
    " int32[::1])"
)
def in_window(packed, numbers, keys, nulls, some_null, n, state, window, known, groups, empty, slots):
    """Slots of n rows by their places in the window. `nulls` has a bit for each key that is null."""
    missing = np.int32(0)
    places = packed.view(np.uint64)
    for i in range(n):
        slot = window[places[i]] - np.int32(1)
        slots[i] = slot
        missing |= slot
    if missing < 0:
        for i in range(n):
            if slots[i] < 0:
                if window[packed[i]] == 0:
                    slot = _new(state, groups, empty)
                    bits = np.int64(nulls[i]) if some_null else np.int64(0)
                    for k in range(keys):
                        known[slot, k] = np.int64(0) if (bits >> k) & 1 else numbers[k, i]
                    known[slot, keys] = bits
                    window[packed[i]] = np.int32(slot + 1)
                slots[i] = window[packed[i]] - np.int32(1)


@nb.njit(inline="always")
def mixed(h, v):
    """A hash with one more number in it."""
    h = (h ^ np.uint64(v)) * np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(32)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(29))


@nb.njit(inline="always")
def _same(known, slot, numbers, keys, i):
    """Whether all keys but the first are."""
    same = True
    for k in range(1, keys):
        same = same and known[slot, k] == numbers[k, i]
    return same


@kernel(
    "int64(int64[:, ::1], int64, uint8[::1], int64, int64, int64[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1],"
    " int64[::1], int32[::1])"
)
def in_table(numbers, keys, nulls, some_null, n, state, table, known, groups, empty, hashes, slots):
    """Slots of n rows with any keys; `nulls` has a bit for each key that is null, whose number is 0. Returns 1 if it cannot go on with this
    seed, and then nothing was added to the groups but empty ones."""
    mask = np.int64(table.shape[0] - 1)
    seed = np.uint64(state[SEED])
    touched = np.int64(0)
    for i in range(n):
        h = seed
        for k in range(keys):
            h = mixed(h, numbers[k, i])
        if some_null and nulls[i]:
            h = mixed(h, np.int64(nulls[i]))
        at = np.int64(h >> np.uint64(1)) & mask
        hashes[i] = at
        touched ^= table[at, 1]  # all of them first: so the waits for memory overlap
    slots[n - 1] = np.int32(touched)  # overwritten below; without a use the compiler would leave this out
    for i in range(n):
        bits = np.int64(nulls[i]) if some_null else np.int64(0)
        at = hashes[i]
        probes = 0
        while True:
            slot = (table[at, 1] & _SLOT) - 1
            if slot < 0:
                slot = _new(state, groups, empty)
                for k in range(keys):
                    known[slot, k] = numbers[k, i]
                known[slot, keys] = bits
                table[at, 0] = numbers[0, i]
                table[at, 1] = (bits << 32) | (slot + 1)
                break
            # with one key, the entry says it all: what lies elsewhere is not waited for
            if table[at, 0] == numbers[0, i] and table[at, 1] >> 32 == bits and (keys == 1 or _same(known, slot, numbers, keys, i)):
                break
            at = (at + 1) & mask
            probes += 1
            if probes > _PROBES:
                return 1
        slots[i] = np.int32(slot)
    return 0


@kernel("int64(int64[:, ::1], int64, int64[::1], int64[:, ::1])")
def fill_table(known, keys, state, table):
    """Put all groups into an empty table. Returns 1 if too many of them have one hash."""
    mask = np.int64(table.shape[0] - 1)
    for slot in range(state[COUNT]):
        h = np.uint64(state[SEED])
        for k in range(keys):
            h = mixed(h, known[slot, k])
        if known[slot, keys]:
            h = mixed(h, known[slot, keys])
        at = np.int64(h >> np.uint64(1)) & mask
        probes = 0
        while table[at, 1]:
            at = (at + 1) & mask
            probes += 1
            if probes > _PROBES:
                return 1
        table[at, 0] = known[slot, 0]
        table[at, 1] = (known[slot, keys] << 32) | (slot + 1)
    return 0


@kernel("void(int64[:, ::1], int64, int64[:, ::1], int64[::1], int32[::1])")
def fill_window(known, keys, spans, state, window):
    """Put all groups into an empty window that has room for their numbers."""
    for slot in range(state[COUNT]):
        at = np.int64(0)
        for k in range(keys):
            if (known[slot, keys] >> k) & 1 == 0:
                at += (known[slot, k] - spans[k, LEAST_NUMBER] + 1) << spans[k, SHIFT]
        window[at] = np.int32(slot + 1)
