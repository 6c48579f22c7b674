"""The kernels of groups that are too many for the caches: rows are first written to partitions, by the upper bits of their keys' numbers.

A partition's rows lie in chunks of CHUNK rows, of which each side (a half of the rows, that one thread writes) has a chain for each
partition. Of a row there is its place in the partition's window, in 16 bits, the values that are folded, and bits that say which of these
are null. A window is a matrix like that of all groups, with a row for every number that the partition's keys can have, and fits the cache
of one core. Rows whose key is null have the last partition.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.pieces import BIT_OFFSET, VALIDITY, VALUES
from tidewheel.read.filters.step_codes import ROOM as PROGRAM_ROOM
from tidewheel.read.groups.blocks.kernels import next_block
from tidewheel.read.groups.group_layout import (
    BEHIND_FOLDS,
    BEHIND_STEPS,
    COLUMN,
    DONE,
    FIRST,
    FIRST_FOLD,
    FIRST_STEP,
    GREATEST,
    KIND,
    LEAST,
    NEXT_OFFSET,
    NEXT_SEGMENT,
    NULLS_AT,
    OFFSET,
    PIECE,
    REAL,
    ROOM,
    ROWS_AT,
    SEGMENT,
    UNSURE,
    WHAT,
)
from tidewheel.read.groups.numbers.kernels import bring, codes, ends, mark_nulls, take_steps
from tidewheel.read.groups.partitions.partition_layout import (
    CHUNK,
    HEAD,
    NARROW_AT,
    NEXT,
    NULL_BIT,
    TAIL,
    USED,
    WIDE_AT,
)
from tidewheel.read.groups.sums.kernels import add_values, count_rows, without_nulls

_NEAR = 16
"""Places of a window that are looked at together."""


@nb.njit(inline="always")
def _nulls(row, column, straight, first, places, n, nulls):
    if row[column + VALIDITY] == 0:
        return np.int64(0)
    return mark_nulls(row[column + VALIDITY], row[column + BIT_OFFSET], straight, first, places, n, nulls)


@nb.njit(inline="always")
def _made(row, value, steps, straight, first, places, n, nulls, count, out):
    """What n values come to, of which `count` are null: these come to what one of the others does. Returns 1 if a step is not sure."""
    bring(row[value[COLUMN] + VALUES], row[value[COLUMN] + BIT_OFFSET], value[KIND], straight, first, places, n, out)
    if count == n:
        return np.int64(0)
    if count:
        some = np.int64(0)
        for i in range(n):
            some = out[i] if not nulls[i] else some
        for i in range(n):
            out[i] = some if nulls[i] else out[i]
    return take_steps(steps, value[FIRST_STEP], value[BEHIND_STEPS], out, n, 0)


@kernel("int64(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], int64[::1])")
def some_numbers(pieces, segments, program, values, steps, state, out):
    """The numbers of the keys of rows, of which `out` has room for all. Returns how many are not null, or -1 if a step is not sure."""
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
        count = _nulls(row, values[0, COLUMN], straight, state[FIRST], places, n, nulls)
        if _made(row, values[0], steps, straight, state[FIRST], places, n, nulls, count, number):
            return -1
        for i in range(n):
            if not (count and nulls[i]):
                out[m] = number[i]
                m += 1
        state[SEGMENT] = state[NEXT_SEGMENT]
        state[OFFSET] = state[NEXT_OFFSET]


@kernel("int64(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], int64[::1])")
def number_ends(pieces, segments, program, values, steps, state, both):
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
        count = _nulls(row, values[0, COLUMN], straight, state[FIRST], places, n, nulls)
        if count < n:
            if _made(row, values[0], steps, straight, state[FIRST], places, n, nulls, count, number):
                return UNSURE
            ends(number, n, here)
            both[0] = min(both[0], here[0])
            both[1] = max(both[1], here[1])
        state[SEGMENT] = state[NEXT_SEGMENT]
        state[OFFSET] = state[NEXT_OFFSET]


@kernel(
    "int64(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], int64, int64, int64,"
    " int64[:, ::1], int64[::1], int64[::1], uint16[::1], int32[:, ::1], int64[:, ::1], uint8[::1])"
)
def divide(
    pieces, segments, program, values, steps, stored, state, least, greatest, shift, chains, links, used, slots, narrow, wide, bits
):  # fmt: skip
    """Write rows to their partitions; `chains` are those of one side, and have room in as many chunks as the rows can need. Returns why it
    stops: DONE or UNSURE."""
    places = np.empty(ROOM, np.uint32)
    room = np.empty(PROGRAM_ROOM, np.uint8)
    nulls = np.empty(ROOM, np.uint8)
    flags = np.empty(ROOM, np.uint8)
    found = np.empty(ROOM, np.int64)
    to = np.empty(ROOM, np.uint64)
    here = np.empty(2, np.int64)
    nexts = chains[NEXT]
    tails = chains[TAIL]
    behind = (chains.shape[1] - 1) << shift
    mask = (np.int64(1) << shift) - 1
    while True:
        n = next_block(pieces, segments, program, state, room, places)
        if n == 0:
            return DONE
        row = pieces[state[PIECE]]
        first = state[FIRST]
        straight = np.int64(first >= 0)
        # ---- where each row goes
        count = _nulls(row, values[0, COLUMN], straight, first, places, n, nulls)
        if count < n:
            if _made(row, values[0], steps, straight, first, places, n, nulls, count, found):
                return UNSURE
            ends(found, n, here)
            if here[0] < least or here[1] > greatest:
                return UNSURE
        for i in range(n):
            found[i] -= least
        if count:
            for i in range(n):
                found[i] = behind if nulls[i] else found[i]
        for i in range(n):
            p = np.uint64(found[i]) >> np.uint64(shift)
            at = nexts[p]
            to[i] = np.uint64(at)
            slots[np.uint64(at)] = np.uint16(found[i] & mask)
            at += 1
            if at & (CHUNK - 1) == 0:
                chunk = used[USED]
                used[USED] = chunk + 1
                links[tails[p]] = chunk
                tails[p] = chunk
                at = chunk * CHUNK
            nexts[p] = at
        # ---- what goes with it
        flagged = bits.shape[0] > 0
        if flagged:
            flags[:n] = 0
        for v in range(1, values.shape[0]):
            bit = stored[v, NULL_BIT]
            count = np.int64(0)
            if bit >= 0:
                count = _nulls(row, values[v, COLUMN], straight, first, places, n, nulls)
                if count:
                    for i in range(n):
                        flags[i] |= nulls[i] << np.uint8(bit)
            if stored[v, NARROW_AT] >= 0 or stored[v, WIDE_AT] >= 0:
                if _made(row, values[v], steps, straight, first, places, n, nulls, count, found):
                    return UNSURE
                if stored[v, NARROW_AT] >= 0:
                    few = narrow[stored[v, NARROW_AT]]
                    for i in range(n):
                        few[to[i]] = np.int32(found[i])
                else:
                    many = wide[stored[v, WIDE_AT]]
                    for i in range(n):
                        many[to[i]] = found[i]
        if flagged:
            for i in range(n):
                bits[to[i]] = flags[i]
        state[SEGMENT] = state[NEXT_SEGMENT]
        state[OFFSET] = state[NEXT_OFFSET]


@kernel(
    "void(int64, int64[:, :, ::1], int64[::1], uint16[::1], int32[:, ::1], int64[:, ::1], uint8[::1], int64[:, ::1], int64[:, ::1],"
    " int64[:, ::1], int64[:, ::1])"
)
def add_up(p, sides, links, slots, narrow, wide, bits, stored, values, folds, window):
    """Add the rows of a partition to its window."""
    slot = np.empty(CHUNK, np.int32)
    kept_slots = np.empty(CHUNK, np.int32)
    nulls = np.empty(CHUNK, np.uint8)
    found = np.empty(CHUNK, np.int64)
    kept = np.empty(CHUNK, np.int64)
    coded = np.empty(CHUNK, np.int64)
    starts = np.empty(1, np.int32)
    for side in range(sides.shape[0]):
        chunk = sides[side, HEAD, p]
        while True:
            at = chunk * CHUNK
            is_last = chunk == sides[side, TAIL, p]
            n = sides[side, NEXT, p] - at if is_last else CHUNK
            if n == 0:
                break
            for i in range(n):
                slot[i] = np.int32(slots[at + i])
            counting = np.int64(1)
            for v in range(1, values.shape[0]):
                value = values[v]
                first_fold = value[FIRST_FOLD]
                behind = value[BEHIND_FOLDS]
                count = np.int64(0)
                if stored[v, NULL_BIT] >= 0:
                    bit = np.uint8(stored[v, NULL_BIT])
                    for i in range(n):
                        null = (bits[at + i] >> bit) & np.uint8(1)
                        nulls[i] = null
                        count += np.int64(null)
                given = found
                if stored[v, NARROW_AT] >= 0:
                    few = narrow[stored[v, NARROW_AT]]
                    for i in range(n):
                        found[i] = np.int64(few[at + i])
                elif stored[v, WIDE_AT] >= 0:
                    given = wide[stored[v, WIDE_AT], at : at + n]
                m = n
                given_slots = slot
                if count:
                    m = without_nulls(given, nulls, slot, n, value[NULLS_AT], window, kept, kept_slots)
                    given = kept
                    given_slots = kept_slots
                if m == 0 or first_fold == behind:
                    continue
                ordered = given
                if value[REAL]:
                    for f in range(first_fold, behind):
                        if folds[f, WHAT] == LEAST or folds[f, WHAT] == GREATEST:
                            codes(given, m, coded)
                            ordered = coded
                            break
                both_ways = np.int64(counting and not count)
                left = add_values(given, ordered, given_slots, m, starts, 0, folds, first_fold, behind, both_ways, window)
                counting = left if both_ways else counting
            if counting:
                count_rows(slot, n, starts, 0, window)
            if is_last:
                break
            chunk = links[chunk]


@kernel("int64(int64[:, ::1], int64, int64, int64, int64, int64, int64[:, ::1], int64[:, ::1], int64)")
def take_groups(window, number, bits, at, falls, bound, known, groups, have):
    """Write the groups of a window behind `have` others: those whose word `at`, or number if it is -1, is not beyond a bound. With `falls`
    what is greater comes first, and all are told by their complement. `number`: of the first place; `bits`: 1 if the key is null. Returns
    how many there are."""
    for first in range(0, window.shape[0], _NEAR):
        near = min(_NEAR, window.shape[0] - first)
        some = np.int64(0)
        for i in range(first, first + near):
            rank = number + i if at < 0 else window[i, at]
            rank = ~rank if falls else rank
            some |= np.int64(window[i, ROWS_AT] > 0) & np.int64(rank <= bound)
        if not some:
            continue
        for i in range(first, first + near):
            rank = number + i if at < 0 else window[i, at]
            rank = ~rank if falls else rank
            if window[i, ROWS_AT] > 0 and rank <= bound:
                known[have, 0] = number + i
                known[have, 1] = bits
                for w in range(window.shape[1]):
                    groups[have, w] = window[i, w]
                have += 1
    return have
