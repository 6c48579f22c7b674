"""The kernels that put rows into partitions, by the upper bits of one number of the numbers of all keys, or of a hash of them.

A partition's rows lie in chunks of CHUNK rows, of which each side (a half of the rows, that one thread writes) has a chain for each
partition. Of a row there are its place in the partition's window, in 16 bits, or else the numbers of its keys; the values that are folded;
and bits that say which of these are null.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import view
from tidewheel.model.pieces import VALUES
from tidewheel.read.filters.step_codes import ROOM as PROGRAM_ROOM
from tidewheel.read.groups.blocks.kernels import next_block
from tidewheel.read.groups.group_layout import (
    BEHIND_STEPS,
    COLUMN,
    DONE,
    FIRST,
    FIRST_STEP,
    GREATEST_NUMBER,
    KIND,
    LEAST_NUMBER,
    NEXT_OFFSET,
    NEXT_SEGMENT,
    OFFSET,
    PIECE,
    RISES,
    ROOM,
    SEGMENT,
    UNSURE,
)
from tidewheel.read.groups.lowering import FLOAT64, INT32, INT64
from tidewheel.read.groups.numbers.kernels import bring_value, ends, nulls_of, take_steps
from tidewheel.read.groups.partitions.partition_layout import CHUNK, NARROW_AT, NEXT, NULL_BIT, TAIL, USED, WIDE_AT
from tidewheel.read.groups.slots.kernels import mixed, pack


@nb.njit(inline="always")
def _made(row, value, steps, straight, first, places, n, nulls, count, out):
    """What n values come to, of which `count` are null: these come to what one of the others does. Returns 1 if a step is not sure."""
    bring_value(row, value, straight, first, places, n, out)
    if count == n:
        return np.int64(0)
    if count:
        some = np.int64(0)
        for i in range(n):
            some = out[i] if not nulls[i] else some
        for i in range(n):
            out[i] = some if nulls[i] else out[i]
    return take_steps(steps, value[FIRST_STEP], value[BEHIND_STEPS], out, n, 0)


@kernel(
    "int64(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, int64[:, ::1], int64[::1], int64[::1])", makes_arrays=True
)
def some_hashes(pieces, segments, program, values, keys, steps, state, out):
    """Hashes of the keys of rows, of which `out` has room for all. Returns how many rows there are, or -1 if a step is not sure."""
    places = np.empty(ROOM, np.uint32)
    room = np.empty(PROGRAM_ROOM, np.uint8)
    nulls = np.empty(ROOM, np.uint8)
    number = np.empty(ROOM, np.int64)
    m = np.int64(0)
    while True:
        n = next_block(pieces, segments, program, state, room, places)
        if n == 0:
            return m
        row = pieces[state[PIECE]]
        straight = np.int64(state[FIRST] >= 0)
        here = out[m : m + n]
        here[:n] = 0
        for k in range(keys):
            count = nulls_of(row, values[k, COLUMN], straight, state[FIRST], places, n, nulls)
            if _made(row, values[k], steps, straight, state[FIRST], places, n, nulls, count, number):
                return -1
            for i in range(n):
                null = count and nulls[i]
                here[i] = np.int64(mixed(np.uint64(here[i]), np.int64(k) if null else number[i]))
        m += n
        state[SEGMENT] = state[NEXT_SEGMENT]
        state[OFFSET] = state[NEXT_OFFSET]


@nb.njit(inline="always")
def _near_ends(values, both):
    least = values[0]
    greatest = values[0]
    for i in range(values.shape[0]):
        least = min(least, values[i])
        greatest = max(greatest, values[i])
    both[0] = least
    both[1] = greatest


@kernel("int64(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], int64[:, ::1], int64[::1], int64[::1])", makes_arrays=True)
def number_ends(pieces, segments, program, value, steps, state, both):
    """Widen `both`, the least and the greatest number of a key, to those of more rows. Returns why it stops: DONE or UNSURE."""
    places = np.empty(ROOM, np.uint32)
    room = np.empty(PROGRAM_ROOM, np.uint8)
    nulls = np.empty(ROOM, np.uint8)
    number = np.empty(ROOM, np.int64)
    here = np.empty(2, np.int64)
    while True:
        n = next_block(pieces, segments, program, state, room, places)
        if n == 0:
            return DONE
        row = pieces[state[PIECE]]
        straight = np.int64(state[FIRST] >= 0)
        count = nulls_of(row, value[COLUMN], straight, state[FIRST], places, n, nulls)
        if count < n:
            if value[RISES] and not count:
                if straight and value[KIND] == INT32:
                    _near_ends(view(row[value[COLUMN] + VALUES] + 4 * state[FIRST], n, np.int32), here)
                else:
                    bring_value(row, value, straight, state[FIRST], places, n, number)
                    ends(number, n, here)
                if take_steps(steps, value[FIRST_STEP], value[BEHIND_STEPS], here, 2, 0):
                    return UNSURE
            else:
                if _made(row, value, steps, straight, state[FIRST], places, n, nulls, count, number):
                    return UNSURE
                ends(number, n, here)
            both[0] = min(both[0], here[0])
            both[1] = max(both[1], here[1])
        state[SEGMENT] = state[NEXT_SEGMENT]
        state[OFFSET] = state[NEXT_OFFSET]


@nb.njit(inline="always")
def _take_places(to, n, nexts, tails, links, used):
    """The place of each row, instead of its partition."""
    for i in range(n):
        p = to[i]
        at = nexts[p]
        to[i] = np.uint64(at)
        at += 1
        if at & (CHUNK - 1) == 0:
            chunk = used[USED]
            used[USED] = chunk + 1
            links[tails[p]] = chunk
            tails[p] = chunk
            at = chunk * CHUNK
        nexts[p] = at


@kernel(
    "int64(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, int64[:, ::1], int64[:, ::1], int64[::1], int64, int64,"
    " int64[:, ::1], int64, int64[:, ::1], int64[::1], int64[::1], uint16[::1], int32[:, ::1], int64[:, ::1], uint8[::1])",
    makes_arrays=True,
)
def divide(
    pieces, segments, program, values, keys, steps, stored, state, hashed, seed, spans, shift, chains, links, used, slots, narrow,
    wide, bits,
):  # fmt: skip
    """Write rows to their partitions; `chains` are those of one side, and have room in as many chunks as the rows can need. `hashed`: the
    partition is what is left of a hash without its lower `shift` bits, and not of the place that `spans` give to numbers. Returns why it
    stops: DONE or UNSURE."""
    places = np.empty(ROOM, np.uint32)
    room = np.empty(PROGRAM_ROOM, np.uint8)
    nulls = np.empty(ROOM, np.uint8)
    null_bits = np.empty(ROOM, np.uint8)
    flags = np.empty(ROOM, np.uint8)
    numbers = np.empty((keys, ROOM), np.int64)
    found = np.empty(ROOM, np.int64)
    hashes = np.empty(ROOM, np.uint64)
    to = np.empty(ROOM, np.uint64)
    here = np.empty(2, np.int64)
    nexts = chains[NEXT]
    tails = chains[TAIL]
    mask = (np.int64(1) << shift) - 1
    while True:
        n = next_block(pieces, segments, program, state, room, places)
        if n == 0:
            return DONE
        row = pieces[state[PIECE]]
        first = state[FIRST]
        straight = np.int64(first >= 0)
        flagged = bits.shape[0] > 0
        if flagged:
            flags[:n] = 0
        # ---- where each row goes
        some_null = np.int64(0)
        null_bits[:n] = 0
        for k in range(keys):
            number = numbers[k]
            count = nulls_of(row, values[k, COLUMN], straight, first, places, n, nulls)
            if _made(row, values[k], steps, straight, first, places, n, nulls, count, number):
                return UNSURE
            if count:
                some_null = np.int64(1)
                for i in range(n):
                    null_bits[i] |= nulls[i] << np.uint8(k)
                    number[i] = np.int64(0) if nulls[i] and hashed else number[i]
                    flags[i] |= nulls[i] << np.uint8(stored[k, NULL_BIT]) if hashed else np.uint8(0)
            if not hashed and count < n:
                ends(number, n, here)
                if here[0] < spans[k, LEAST_NUMBER] or here[1] > spans[k, GREATEST_NUMBER]:
                    return UNSURE
        if hashed:
            hashes[:n] = np.uint64(seed)
            for k in range(keys):
                number = numbers[k]
                for i in range(n):
                    hashes[i] = mixed(hashes[i], number[i])
            for i in range(n):
                to[i] = hashes[i] >> np.uint64(shift)
            _take_places(to, n, nexts, tails, links, used)
        else:
            pack(numbers, keys, null_bits, some_null, n, spans, found)
            for i in range(n):
                to[i] = np.uint64(found[i]) >> np.uint64(shift)
            _take_places(to, n, nexts, tails, links, used)
            for i in range(n):
                slots[to[i]] = np.uint16(found[i] & mask)
        # ---- what goes with it
        for v in range(values.shape[0]):
            bit = stored[v, NULL_BIT]
            given = numbers[v] if v < keys else found
            count = np.int64(0)
            if bit >= 0 and v >= keys:
                count = nulls_of(row, values[v, COLUMN], straight, first, places, n, nulls)
                if count:
                    for i in range(n):
                        flags[i] |= nulls[i] << np.uint8(bit)
            if stored[v, NARROW_AT] < 0 and stored[v, WIDE_AT] < 0:
                counted = v >= keys and values[v, FIRST_STEP] < values[v, BEHIND_STEPS]
                if counted and _made(row, values[v], steps, straight, first, places, n, nulls, count, found):
                    return UNSURE
                continue
            kind = values[v, KIND]
            as_it_lies = v >= keys and straight and not count and values[v, FIRST_STEP] == values[v, BEHIND_STEPS]
            if as_it_lies and (kind == INT64 or kind == FLOAT64):
                given = view(row[values[v, COLUMN] + VALUES] + 8 * first, n, np.int64)
            elif v >= keys and _made(row, values[v], steps, straight, first, places, n, nulls, count, found):
                return UNSURE
            if stored[v, NARROW_AT] >= 0:
                few = narrow[stored[v, NARROW_AT]]
                for i in range(n):
                    few[to[i]] = np.int32(given[i])
            else:
                many = wide[stored[v, WIDE_AT]]
                for i in range(n):
                    many[to[i]] = given[i]
        if flagged:
            for i in range(n):
                bits[to[i]] = flags[i]
        state[SEGMENT] = state[NEXT_SEGMENT]
        state[OFFSET] = state[NEXT_OFFSET]
