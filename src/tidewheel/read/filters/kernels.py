"""The interpreter of programs (step_codes.py): which rows of a block satisfy a condition.

What others call, from kernels of their own and with the GIL released:

    count = places_of(row, steps, first, n, room, places)

`row` is the descriptor of a piece (model/pieces.py) whose columns in `Program.reads` are in memory and verified; `steps` is
`Program.steps`, whose constants live as long as the program: hold on to it during the call. Of the positions from `first` to `first + n`,
at most BLOCK of them, it writes the *row numbers* of those where the program is true to `places`, in the order of positions, and returns
how many they are. Row numbers are positions with the piece's permutation applied: `values[places[i]]` is a column's value. If all n are
returned and the piece has no permutation, they are first, first + 1, ... A program without steps lets all rows through. `room` has ROOM
bytes, `places` room for BLOCK numbers; what was in them does not matter, and both can be used again for the next block.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import eight_bytes, view
from tidewheel.model.pieces import BIT_OFFSET, DATA, PERM, ROWS, VALIDITY, VALUES
from tidewheel.read.filters.step_codes import (
    ASKED,
    BIT,
    BLOCK,
    BOTH,
    BYTES1,
    BYTES2,
    BYTES4,
    BYTES8,
    BYTES16,
    COLUMN,
    CONSTANTS,
    COUNT,
    EITHER,
    FEW,
    FIRST,
    FLOAT4,
    FLOAT8,
    INT1,
    INT2,
    INT4,
    INT16,
    IS_NULL,
    KEEP,
    LISTED,
    LISTED_FLOAT,
    MASKS,
    ROOM,
    SECOND,
    SIFT,
    TABLED,
    TEXT_LISTED,
    TURN,
    UINT1,
    UINT2,
    UINT4,
)
from tidewheel.read.filters.texts.kernels import compared, listed
from tidewheel.read.kernels import gathered

_GREATEST = np.int64(9223372036854775807)


@nb.njit(inline="always")
def _at(row, places, i):
    return row + i if row >= 0 else np.int64(places[i])


@nb.njit(inline="always")
def _range1(source, row, places, n, least, more, turn, mask):
    values = view(source, _GREATEST, np.uint8)
    lo = np.uint8(least)
    span = np.uint8(more)
    if row >= 0:
        side = view(source + 1 * row, n, np.uint8)  # an index that may be negative, for all that is known, keeps a loop slow
        for i in range(n):
            mask[i] = np.uint8(np.uint8(side[i] - lo) <= span) ^ turn
    else:
        for i in range(n):
            mask[i] = np.uint8(np.uint8(values[places[i]] - lo) <= span) ^ turn


@nb.njit(inline="always")
def _range2(source, row, places, n, least, more, turn, mask):
    values = view(source, _GREATEST, np.uint16)
    lo = np.uint16(least)
    span = np.uint16(more)
    if row >= 0:
        side = view(source + 2 * row, n, np.uint16)
        for i in range(n):
            mask[i] = np.uint8(np.uint16(side[i] - lo) <= span) ^ turn
    else:
        for i in range(n):
            mask[i] = np.uint8(np.uint16(values[places[i]] - lo) <= span) ^ turn


@nb.njit(inline="always")
def _range4(source, row, places, n, least, more, turn, mask):
    values = view(source, _GREATEST, np.uint32)
    lo = np.uint32(least)
    span = np.uint32(more)
    if row >= 0:
        side = view(source + 4 * row, n, np.uint32)
        for i in range(n):
            mask[i] = np.uint8(np.uint32(side[i] - lo) <= span) ^ turn
    else:
        for i in range(n):
            mask[i] = np.uint8(np.uint32(values[places[i]] - lo) <= span) ^ turn


@nb.njit(inline="always")
def _range8(source, step, row, places, n, least, more, turn, mask):
    """Every `step`th number of eight bytes."""
    values = view(source, _GREATEST, np.uint64)
    lo = np.uint64(least)
    span = np.uint64(more)
    if step == 2:
        for i in range(n):
            mask[i] = np.uint8(values[2 * _at(row, places, i)] - lo <= span) ^ turn
    elif row >= 0:
        side = view(source + 8 * row, n, np.uint64)
        for i in range(n):
            mask[i] = np.uint8(side[i] - lo <= span) ^ turn
    else:
        for i in range(n):
            mask[i] = np.uint8(values[places[i]] - lo <= span) ^ turn


@nb.njit(inline="always")
def _range_floats(values, side, row, places, n, ends, nan, turn, mask):
    """`side`: the values from `row` on."""
    lo = ends[0]
    hi = ends[1]
    if row >= 0:
        for i in range(n):
            v = side[i]
            mask[i] = (np.uint8((v >= lo) & (v <= hi)) | (np.uint8(v != v) & nan)) ^ turn
    else:
        for i in range(n):
            v = values[places[i]]
            mask[i] = (np.uint8((v >= lo) & (v <= hi)) | (np.uint8(v != v) & nan)) ^ turn


@nb.njit(inline="always")
def _spread(byte):
    """Eight bits as eight bytes of 0 or 1."""
    some = (np.uint64(byte) * np.uint64(0x0101010101010101)) & np.uint64(0x8040201008040201)
    return ((some + np.uint64(0x7F7F7F7F7F7F7F7F)) >> np.uint64(7)) & np.uint64(0x0101010101010101)


@nb.njit(inline="always")
def _bits_of(bits, offset, row, places, n, mask):
    """mask = the bits of n rows."""
    done = np.int64(0)
    if row >= 0:  # eight at a time
        words = view(mask.ctypes.data, n >> 3, np.uint64)
        first = (offset + row) >> 3
        shift = np.uint64((offset + row) & 7)
        if shift == 0:
            for j in range(n >> 3):
                words[j] = _spread(bits[first + j])
        else:
            for j in range(n >> 3):
                words[j] = _spread(
                    np.uint8((np.uint64(bits[first + j]) >> shift) | (np.uint64(bits[first + j + 1]) << (np.uint64(8) - shift)))
                )
        done = n & -8
    for i in range(done, n):
        p = offset + _at(row, places, i)
        mask[i] = (bits[p >> 3] >> np.uint8(p & 7)) & np.uint8(1)


@nb.njit(inline="always")
def _range_bits(source, offset, row, places, n, least, more, turn, mask):
    _bits_of(view(source, _GREATEST, np.uint8), offset, row, places, n, mask)
    lo = np.uint8(least)
    span = np.uint8(more)
    for i in range(n):
        mask[i] = np.uint8(np.uint8(mask[i] - lo) <= span) ^ turn


@nb.njit(inline="always")
def _bring(values, side, step, row, places, n, out):
    if step == 2:
        for i in range(n):
            out[i] = values[2 * _at(row, places, i)]
    elif row >= 0:
        for i in range(n):
            out[i] = side[i]
    else:
        for i in range(n):
            out[i] = values[places[i]]


@nb.njit(inline="always")
def _wholes(source, kind, row, places, n, out):
    """Whole numbers of any kind, in eight bytes each."""
    if kind == INT1:
        _bring(view(source, _GREATEST, np.int8), view(source + 1 * row, n, np.int8), 1, row, places, n, out)
    elif kind == INT2:
        _bring(view(source, _GREATEST, np.int16), view(source + 2 * row, n, np.int16), 1, row, places, n, out)
    elif kind == INT4:
        _bring(view(source, _GREATEST, np.int32), view(source + 4 * row, n, np.int32), 1, row, places, n, out)
    elif kind == UINT1:
        _bring(view(source, _GREATEST, np.uint8), view(source + 1 * row, n, np.uint8), 1, row, places, n, out)
    elif kind == UINT2:
        _bring(view(source, _GREATEST, np.uint16), view(source + 2 * row, n, np.uint16), 1, row, places, n, out)
    elif kind == UINT4:
        _bring(view(source, _GREATEST, np.uint32), view(source + 4 * row, n, np.uint32), 1, row, places, n, out)
    else:
        _bring(view(source, _GREATEST, np.int64), view(source + 8 * row, n, np.int64), 2 if kind == INT16 else 1, row, places, n, out)


@nb.njit(inline="always")
def _is_in(values, n, v):
    """Whether a value is one of n in rising order."""
    base = np.int64(0)
    left = n
    while left > 1:
        half = left >> 1
        base += half * np.int64(values[base + half] <= v)
        left -= half
    return values[base] == v


@kernel("void(int64, int64, int64, int64, int64, int64, int64, int64, uint32[::1], int64, int64, uint8[::1])")
def listed_numbers(asked, source, first, second, given, count, turned, row, places, n, room, mask):
    """mask = whether each of n numbers is in a list, or is not. What the arguments mean is in step_codes.py; `room` is an address."""
    turn = np.uint8(turned)
    if asked == LISTED_FLOAT:
        floats = view(given, max(count, 1), np.float64)
        numbers = view(room, n, np.float64)
        if first == 8:
            _bring(view(source, _GREATEST, np.float64), view(source + 8 * row, n, np.float64), 1, row, places, n, numbers)
        else:
            _bring(view(source, _GREATEST, np.float32), view(source + 4 * row, n, np.float32), 1, row, places, n, numbers)
        for i in range(n):
            v = numbers[i]
            if v != v:
                mask[i] = np.uint8(second) ^ turn
            else:
                mask[i] = np.uint8(count > 0 and _is_in(floats, count, v)) ^ turn
        return
    values = view(room, n, np.int64)
    _wholes(source, first, row, places, n, values)
    wholes = view(given, count, np.int64)
    if asked == TABLED:
        table = view(given, count + 1, np.uint8)  # what is behind the last is not in the list
        for i in range(n):
            place = min(np.uint64(values[i]) - np.uint64(second), np.uint64(count))
            mask[i] = table[np.int64(place)] ^ turn
    elif count <= FEW:
        for i in range(n):
            mask[i] = turn
        for c in range(count):
            one = wholes[c]
            for i in range(n):
                mask[i] ^= np.uint8(values[i] == one)
    else:
        for i in range(n):
            mask[i] = np.uint8(_is_in(wholes, count, values[i])) ^ turn


@kernel("void(int64[::1], int64[::1], int64, uint32[::1], int64, int64, uint8[::1])")
def asked_of(piece, step, row, places, n, room, mask):
    """mask = what a step that asks something of a column finds for n rows: `row` and those that follow it, or, if it is -1, `places`.

    At the address `room` there are eight bytes for each.
    """
    asked = step[ASKED]
    column = step[COLUMN]
    turn = np.uint8(step[TURN])
    source = piece[column + VALUES]
    offset = piece[column + BIT_OFFSET]
    given = step[CONSTANTS]
    validity = piece[column + VALIDITY]
    if asked == IS_NULL:
        if validity == 0:
            for i in range(n):
                mask[i] = turn
        else:
            _bits_of(view(validity, _GREATEST, np.uint8), offset, row, places, n, mask)
            for i in range(n):
                mask[i] ^= np.uint8(1) ^ turn
        return
    if asked == BYTES4:
        _range4(source, row, places, n, step[FIRST], step[SECOND], turn, mask)
    elif asked == BYTES8:
        _range8(source, 1, row, places, n, step[FIRST], step[SECOND], turn, mask)
    elif asked == FLOAT8:
        _range_floats(
            view(source, _GREATEST, np.float64),
            view(source + 8 * row, n, np.float64),
            row,
            places,
            n,
            view(given, 2, np.float64),
            np.uint8(step[FIRST]),
            turn,
            mask,
        )
    elif asked == FLOAT4:
        _range_floats(
            view(source, _GREATEST, np.float32),
            view(source + 4 * row, n, np.float32),
            row,
            places,
            n,
            view(given, 2, np.float32),
            np.uint8(step[FIRST]),
            turn,
            mask,
        )
    elif asked == BYTES2:
        _range2(source, row, places, n, step[FIRST], step[SECOND], turn, mask)
    elif asked == BYTES1:
        _range1(source, row, places, n, step[FIRST], step[SECOND], turn, mask)
    elif asked == BYTES16:
        _range8(source, 2, row, places, n, step[FIRST], step[SECOND], turn, mask)
    elif asked == BIT:
        _range_bits(source, offset, row, places, n, step[FIRST], step[SECOND], turn, mask)
    elif asked >= LISTED and asked <= LISTED_FLOAT:
        listed_numbers(asked, source, step[FIRST], step[SECOND], given, step[COUNT], step[TURN], row, places, n, room, mask)
    else:
        wide = step[FIRST] >> 3
        if wide:
            end = piece[column + DATA] + view(source, _GREATEST, np.int64)[piece[ROWS]]
        else:
            end = piece[column + DATA] + np.int64(view(source, _GREATEST, np.int32)[piece[ROWS]])
        if asked == TEXT_LISTED:
            listed(source, piece[column + DATA], wide, end, given, row, places, n, mask)
        else:
            compared(asked, source, piece[column + DATA], wide, end, given, step[COUNT], row, places, n, step[SECOND], mask)
        if turn:
            for i in range(n):
                mask[i] ^= np.uint8(1)
    if validity != 0:
        known = view(room, n, np.uint8)
        _bits_of(view(validity, _GREATEST, np.uint8), offset, row, places, n, known)
        for i in range(n):
            mask[i] &= known[i]


@nb.njit(inline="always")
def _count(mask, n):
    """How many ones a mask has."""
    words = view(mask.ctypes.data, n >> 3, np.uint64)
    sums = np.uint64(0)  # eight of them: a block has 128 words, so none reaches the next
    for j in range(n >> 3):
        sums += words[j]
    pairs = (sums & np.uint64(0x00FF00FF00FF00FF)) + ((sums >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF))
    count = np.int64((pairs * np.uint64(0x0001000100010001)) >> np.uint64(48))
    for i in range(n & -8, n):
        count += np.int64(mask[i])
    return count


@nb.njit(inline="always")
def _sift(mask, count, row, places, n):
    """Leave the `count` rows where the mask is 1: of those from `row` on, or, if it is -1, of `places`, which it overwrites."""
    at = np.int64(0)
    if count * 16 > n:  # no branch is guessed wrong
        if row >= 0:
            for i in range(n):
                places[at] = np.uint32(row + i)
                at += np.int64(mask[i])
        else:
            for i in range(n):
                places[at] = places[i]
                at += np.int64(mask[i])
        return
    address = mask.ctypes.data
    i = np.int64(0)
    while i < n:
        end = i + 8
        if end > n:
            end = n
        elif eight_bytes(address, i) == 0:
            i = end
            continue
        while i < end:
            if mask[i]:
                places[at] = np.uint32(row + i) if row >= 0 else places[i]
                at += 1
            i += 1


@kernel("int64(int64[::1], int64[:, ::1], int64, int64, uint8[::1], uint32[::1])")
def places_of(piece, steps, first, n, room, places):
    """The rows of a block where a program is true. See above."""
    row = first
    if piece[PERM] != 0:
        perm = view(piece[PERM] + 4 * first, n, np.uint32)
        for i in range(n):
            places[i] = perm[i]
        row = np.int64(-1)
    return places_left(piece, steps, row, n, room, places)


@kernel("int64(int64[::1], int64[:, ::1], int64, int64, uint8[::1], uint32[::1])")
def places_left(piece, steps, row, n, room, places):
    """The same of n rows that are known by their numbers: `row` and those that follow it, or, if it is -1, `places`."""
    alive = room[:BLOCK]  # which rows from `row` on are still in question, while they are not worth sifting
    some = False
    left = n
    masks = 1
    wide = room.ctypes.data + MASKS * BLOCK
    for s in range(steps.shape[0]):
        step = steps[s]
        if some and step[SIFT]:
            _sift(alive, left, row, places, n)
            n = left
            some = False
            row = np.int64(-1)
        asked = step[ASKED]
        if asked > EITHER:
            asked_of(piece, step, row, places, n, wide, room[masks * BLOCK : (masks + 1) * BLOCK])
            masks += 1
        else:
            masks -= 1
            one = room[(masks - 1) * BLOCK : masks * BLOCK]
            two = room[masks * BLOCK : (masks + 1) * BLOCK]
            if asked == BOTH:
                for i in range(n):
                    one[i] &= two[i]
            else:
                for i in range(n):
                    one[i] |= two[i]
        if step[KEEP]:
            masks -= 1
            mask = room[masks * BLOCK : (masks + 1) * BLOCK]
            if some:
                for i in range(n):
                    mask[i] &= alive[i]
            count = _count(mask, n)
            if count == 0:
                return np.int64(0)
            if count == n:
                continue
            left = count
            if row < 0 or count * 8 < n:
                _sift(mask, count, row, places, n)
                n = count
                some = False
                row = np.int64(-1)
            else:
                for i in range(n):
                    alive[i] = mask[i]
                some = True
    if some:
        _sift(alive, left, row, places, n)
        return left
    if row >= 0:
        for i in range(n):
            places[i] = np.uint32(row + i)
    return n


@nb.njit(inline="always")
def _append(out, n, piece, a, b):
    """Append a segment or lengthen the last one. Returns the new count."""
    if n and out[n - 1, 0] == piece and out[n - 1, 1] + out[n - 1, 2] == a:
        out[n - 1, 2] += b - a
        return n
    out[n, 0] = piece
    out[n, 1] = a
    out[n, 2] = b - a
    out[n, 3] = 0
    return n + 1


@kernel("UniTuple(int64, 2)(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64)", makes_arrays=True)
def keep_where(pieces, segments, steps, out, only_marked):
    """Segments of the rows where a program is true. `only_marked`: segments without a mark are kept as they are. `out` has room for half
    of all rows and one more for each segment.

    Returns how many segments, and of how many rows.
    """
    room = np.empty(ROOM, np.uint8)
    places = np.empty(BLOCK, np.uint32)
    n = np.int64(0)
    rows = np.int64(0)
    behind = np.int64(0)
    for s in range(segments.shape[0]):
        if s < behind:
            continue
        piece = segments[s, 0]
        row = pieces[piece]
        end = segments[s, 1] + segments[s, 2]
        behind, size = gathered(row, segments, s, only_marked, places)
        if behind > s + 1:
            count = places_left(row, steps, np.int64(-1), size, room, places)
            rows += count
            for j in range(count):
                a = np.int64(places[j])
                n = _append(out, n, piece, a, a + 1)
            continue
        if only_marked and segments[s, 3] == 0:
            rows += segments[s, 2]
            n = _append(out, n, piece, segments[s, 1], end)
            continue
        for first in range(segments[s, 1], end, BLOCK):
            size = min(end - first, BLOCK)
            count = places_of(row, steps, first, size, room, places)
            rows += count
            if count == size:
                n = _append(out, n, piece, first, first + size)
            elif row[PERM] == 0:
                j = np.int64(0)
                while j < count:
                    a = np.int64(places[j])
                    b = a + 1
                    j += 1
                    while j < count and np.int64(places[j]) == b:
                        b += 1
                        j += 1
                    n = _append(out, n, piece, a, b)
            elif count:
                perm = view(row[PERM] + 4 * first, size, np.uint32)
                j = np.int64(0)
                for i in range(size):
                    if j < count and perm[i] == places[j]:
                        n = _append(out, n, piece, first + i, first + i + 1)
                        j += 1
    return n, rows
