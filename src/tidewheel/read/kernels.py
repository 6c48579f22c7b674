"""Kernels of the query: choose pieces by region, find segments in them, copy the segments of one column together.

A segment is (piece, position, length, check): adjoining positions of one piece; check = 1 if values must still decide.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import unsigned, view
from tidewheel.model.pieces import (
    BIT_OFFSET,
    BLOCK_ROWS,
    BLOCKS,
    BOUNDS,
    CODER,
    COLUMNS,
    GENERATION_HI,
    GENERATION_LO,
    GENERATION_WIDTH,
    GENERATIONS,
    INDEX,
    KEYS,
    KMAX,
    KMIN,
    LEAVES,
    MASK_START,
    MASK_WIDTH,
    MASKS,
    OPEN,
    ORDERED,
    PERM,
    ROWS,
    SLOTS,
    SOURCE,
    STARTS,
    T0,
    T1,
    TIMES,
    TMAX,
    TMIN,
    VALIDITY,
    VALUES,
    VERIFIED,
    ZONES,
)  # fmt: skip

LEAVES_READ, LEAVES_SKIPPED, ROWS_SCANNED, PENDING, ROWS_FOUND, LONGEST, DOUBTFUL, NULLS, STATS = range(9)
"""What `scan` counts: PENDING the blocks whose checksums are still to be verified, LONGEST the rows of the longest segment
that lies in order, DOUBTFUL the segments to be checked, NULLS the columns of pieces that have nulls."""


_GREATEST = np.int64(9223372036854775807)

_SHORT = 64
"""Rows of a segment that is better looked at together with others."""


@kernel(
    "int64(int64[:, ::1], int64, int64, int64[::1], int64[:, ::1], int64[:, ::1], int64, int64, int64[:, ::1], int64)", makes_arrays=True
)
def select(pieces, count, source, slots, klo, khi, t0, t1, out, at):
    """Copy the descriptors of the pieces whose region meets the query behind out[:at]. Returns the new end.

    slots has the row of klo and khi for each coder (the first, for those that it ends before): key intervals in rising order. A region
    is compared with their hull.
    """
    last = klo.shape[1] - 1
    for r in range(count):
        if pieces[r, TMAX] < t0 or pieces[r, TMIN] > t1 or pieces[r, ROWS] == 0:
            continue
        c = pieces[r, CODER]
        c = slots[c] if c < slots.shape[0] else np.int64(0)
        if pieces[r, KMAX] < klo[c, 0] or pieces[r, KMIN] > khi[c, last]:
            continue
        if last > 0:
            meets = False
            for i in range(last + 1):
                if pieces[r, KMAX] >= klo[c, i] and pieces[r, KMIN] <= khi[c, i]:
                    meets = True
                    break
            if not meets:
                continue
        opened = pieces[r, OPEN]  # before the addresses, which another thread may be filling in
        out[at] = pieces[r]
        out[at, OPEN] = opened
        out[at, SOURCE] = source
        out[at, INDEX] = r
        out[at, CODER] = c
        out[at, T0] = t0
        out[at, T1] = t1
        at += 1
    return at


@nb.njit(inline="always")
def _first_above(values, n, x):
    """The first index whose value is greater than x. Without branches: the searches of several pieces overlap."""
    one = np.uint64(1)
    base = np.uint64(0)
    left = np.uint64(n)
    while left > one:
        half = left >> one
        base += half * np.uint64(values[base + half - one] <= x)
        left -= half
    return np.int64(base + np.uint64(values[base] <= x)) if n else np.int64(0)


@nb.njit(inline="always")
def _time_from(times, perm, some, lo, hi, t):
    """The first position in [lo, hi) whose time is at least t."""
    while lo < hi:
        mid = (lo + hi) >> 1
        if times[perm[mid] if some else mid] < t:
            lo = mid + 1
        else:
            hi = mid
    return lo


@nb.njit(inline="always")
def _query_mask(first, width, t0, t1):
    """The bits of the time mini-ranges that [t0, t1] touches."""
    a = np.uint64(0) if t0 <= first else (np.uint64(t0) - np.uint64(first)) // np.uint64(width)
    if t1 < first or a > np.uint64(63):
        return np.uint64(0)
    b = (np.uint64(t1) - np.uint64(first)) // np.uint64(width)
    b = min(b, np.uint64(63))
    high = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(63) - b)
    return high & (np.uint64(0xFFFFFFFFFFFFFFFF) << a)


@nb.njit(inline="always")
def _touch(row, column, a, b, stats, todo, piece):
    """Note the blocks of a stored column that [a, b) reads and whose checksums were not verified yet."""
    blocks = row[BLOCKS]
    if blocks:
        verified = view(row[VERIFIED] + column * blocks, blocks, np.uint8)
        for block in range(a // BLOCK_ROWS, (b - 1) // BLOCK_ROWS + 1):
            if verified[block] == 0:
                n = stats[PENDING]
                if n < todo.shape[0]:
                    todo[n, 0] = piece
                    todo[n, 1] = column
                    todo[n, 2] = block
                stats[PENDING] = n + 1


@nb.njit(inline="always")
def emit(out, n, piece, a, b, check):
    """Append a segment or lengthen the last one. Returns the new count, -1 if there is no room."""
    if n and out[n - 1, 0] == piece and out[n - 1, 1] + out[n - 1, 2] == a and out[n - 1, 3] == check:
        out[n - 1, 2] += b - a
        return n
    if n == out.shape[0]:
        return -1
    out[n, 0] = piece
    out[n, 1] = a
    out[n, 2] = b - a
    out[n, 3] = check
    return n + 1


@nb.njit(inline="always")
def count_found(pieces, out, n, stats):
    """Count what n segments have."""
    for s in range(n):
        stats[ROWS_FOUND] += out[s, 2]
        stats[DOUBTFUL] += out[s, 3]
        if out[s, 2] > stats[LONGEST] and pieces[out[s, 0], PERM] == 0:
            stats[LONGEST] = out[s, 2]


@kernel("UniTuple(int64, 2)(int64, int64, int64, int64, int64, int64, int64[:, ::1], int64, int64)")
def _keys_in_order(keys, a, b, k0, k1, mode, out, n, piece):
    """Rows of [a, b) with a key in [k0, k1], where position is row number and times are right. Returns (b, count).

    Most leaves hold few of them or none: sixteen keys at a time are compared without a branch. Compiled by itself: two of these inside of
    `scan` made it three times as slow for leaves that are full of one key.
    """
    i = a
    while i < b:
        end = i + 16
        hits = 0
        if end <= b:
            some = view(keys + 8 * i, 16, np.int64)
            for j in range(16):
                hits += (some[j] >= k0) & (some[j] <= k1)
        else:
            end = b
            hits = 1
        if hits:
            some = view(keys + 8 * i, end - i, np.int64)
            for j in range(end - i):
                k = some[j]
                if k >= k0 and k <= k1:
                    check = np.int64(1) if mode == 1 and (k == k0 or k == k1) else np.int64(0)
                    n = emit(out, n, piece, i + j, i + j + 1, check)
                    if n < 0:
                        return b, n
        i = end
    return b, n


@kernel("UniTuple(int64, 2)(int64[::1], uint32[::1], int64, int64, int64, int64, int64, int64[:, ::1], int64, int64)")
def _keys_by_number(keys, perm, a, b, k0, k1, mode, out, n, piece):
    """The same where `perm` says which row is at a position, as in a run of a tree. Returns (b, count)."""
    i = a
    while i < b:
        end = i + 16
        hits = 0
        if end <= b:
            for j in range(i, end):
                k = keys[perm[j]]
                hits += (k >= k0) & (k <= k1)
        else:
            end = b
            hits = 1
        if hits:
            for j in range(i, end):
                k = keys[perm[j]]
                if k >= k0 and k <= k1:
                    check = np.int64(1) if mode == 1 and (k == k0 or k == k1) else np.int64(0)
                    n = emit(out, n, piece, j, j + 1, check)
                    if n < 0:
                        return b, n
        i = end
    return b, n


@kernel("int64(int64[:, ::1], int64, int64[:, ::1], int64[:, ::1], int64, int64, int64, int64[:, ::1], int64[::1], int64[:, ::1])")
def scan(pieces, count, klo, khi, mode, key_column, time_column, out, stats, todo):
    """Find the segments of all pieces. Returns how many, or -1 if `out` is too short.

    mode 0: codes decide. 1: rows on the end codes of an interval are marked for a check. 2: every row is.
    With several intervals in modes 0 and 1, the segments of a leaf that several of them meet are not in order.
    In a leaf wholly inside the interval nothing is compared; in one that is in time order, times are searched by halving.
    """
    n = 0
    intervals = klo.shape[1]
    if intervals == 1:
        # Leaves far apart in memory are what a narrow query waits for. Touching them all first lets the waits overlap.
        touched = np.int64(0)
        for q in range(count):
            row = pieces[q]
            if row[BLOCKS]:  # a mapped chunk; of others, not every leaf need be there
                l = _first_above(view(row[BOUNDS], row[LEAVES], np.int64), row[LEAVES], klo[row[CODER], 0]) - 1
                first = np.int64(view(row[STARTS], row[LEAVES], np.uint32)[l])
                touched ^= view(row[KEYS] + 8 * first, 1, np.int64)[0]
        todo[0, 0] = touched  # overwritten below; without a use the compiler would leave all this out
    for q in range(count):
        row = pieces[q]
        t0 = row[T0]
        t1 = row[T1]
        leaves = row[LEAVES]
        rows = row[ROWS]
        starts = view(row[STARTS], leaves + 1, np.uint32)
        bounds = view(row[BOUNDS], leaves, np.int64)
        some = row[PERM] != 0
        perm = view(row[PERM], rows, np.uint32)
        keys = view(row[KEYS], _GREATEST, np.int64)
        times = view(row[TIMES], _GREATEST, np.int64)
        zoned = row[ZONES] != 0
        zkmin = view(row[ZONES], leaves, np.int64)
        zkmax = view(row[ZONES] + 8 * leaves, leaves, np.int64)
        ztmin = view(row[ZONES] + 16 * leaves, leaves, np.int64)
        ztmax = view(row[ZONES] + 24 * leaves, leaves, np.int64)
        masked = row[MASKS] != 0
        masks = view(row[MASKS], leaves, np.uint64)
        whole_time = row[TMIN] >= t0 and row[TMAX] <= t1
        wanted = np.uint64(0)
        if masked and not whole_time:
            wanted = _query_mask(row[MASK_START], row[MASK_WIDTH], t0, t1)
        read = 0
        c = row[CODER]
        for iv in range(intervals):
            k0 = klo[c, iv]
            k1 = khi[c, iv]
            if k0 > k1 or row[KMAX] < k0 or row[KMIN] > k1:
                continue
            if iv and k0 <= khi[c, iv - 1]:
                continue  # the one before once more: where coders have fewer intervals than others, they are filled up so
            l1 = _first_above(bounds, leaves, k1) - 1
            l0 = l1
            if bounds[l1] > k0:
                l0 = _first_above(bounds, l1, k0) - 1
            while l0 > 0 and bounds[l0 - 1] == bounds[l0]:
                l0 -= 1  # the other parts of a leaf that was cut by time
            for l in range(l0, l1 + 1):
                a = np.int64(starts[l])
                b = np.int64(starts[l + 1])
                if a == b:
                    continue
                if zoned:
                    lo = zkmin[l]
                    hi = zkmax[l]
                    if hi < k0 or lo > k1:
                        continue
                else:
                    lo = bounds[l]
                    hi = bounds[l + 1] - 1 if l + 1 < leaves else _GREATEST
                    if row[KMIN] > lo:
                        lo = row[KMIN]
                    if row[KMAX] < hi:
                        hi = row[KMAX]
                met = iv > 0 and lo <= khi[c, iv - 1]
                if met and mode == 2:
                    continue  # an interval before this one has met the leaf, and taken it whole
                inside_time = whole_time
                if not whole_time:
                    if zoned:
                        if ztmax[l] < t0 or ztmin[l] > t1:
                            continue
                        inside_time = ztmin[l] >= t0 and ztmax[l] <= t1
                    if masked and not inside_time and (masks[l] & wanted) == np.uint64(0):
                        continue
                if not met:
                    read += 1
                if mode == 2:
                    inside_key = True
                elif mode == 1:
                    inside_key = lo > k0 and hi < k1
                else:
                    inside_key = lo >= k0 and hi <= k1
                if not inside_time:
                    _touch(row, time_column, a, b, stats, todo, q)
                    ordered = row[ORDERED] == 1 or (row[ORDERED] > 1 and view(row[ORDERED], leaves, np.uint8)[l] == 1)
                    if ordered:
                        a = _time_from(times, perm, some, a, b, t0)
                        if t1 < _GREATEST:
                            b = _time_from(times, perm, some, a, b, t1 + 1)
                        inside_time = True
                        if a >= b:
                            continue
                if inside_time and inside_key:
                    n = emit(out, n, q, a, b, np.int64(1) if mode == 2 else np.int64(0))
                    if n < 0:
                        return -1
                    continue
                if not inside_key:
                    _touch(row, key_column, a, b, stats, todo, q)
                stats[ROWS_SCANNED] += b - a
                i = a
                if inside_time:
                    if some:
                        i, n = _keys_by_number(keys, perm, a, b, k0, k1, mode, out, n, q)
                    else:
                        i, n = _keys_in_order(row[KEYS], a, b, k0, k1, mode, out, n, q)
                    if n < 0:
                        return -1
                while i < b:
                    check = np.int64(2)
                    first = i
                    while i < b:
                        r = np.int64(perm[i]) if some else i
                        good = True
                        this = np.int64(1) if mode == 2 else np.int64(0)
                        if not inside_time:
                            good = times[r] >= t0 and times[r] <= t1
                        if good and not inside_key:
                            k = keys[r]
                            good = k >= k0 and k <= k1
                            if mode == 1 and (k == k0 or k == k1):
                                this = np.int64(1)
                        if not good or (check != 2 and this != check):
                            break
                        check = this
                        i += 1
                    if i > first:
                        n = emit(out, n, q, first, i, check)
                        if n < 0:
                            return -1
                    else:
                        i += 1
        stats[LEAVES_READ] += read
        stats[LEAVES_SKIPPED] += leaves - read
        for column in range(COLUMNS, pieces.shape[1], SLOTS):
            stats[NULLS] += row[column + VALIDITY] != 0
    count_found(pieces, out, n, stats)
    return n


@kernel("int64(int64[:, ::1], int64[:, ::1], int64[::1], int64[:, ::1])", makes_arrays=True)
def unverified(pieces, segments, columns, todo):
    """Blocks of these columns that the segments touch and that were not verified. Returns how many, at most len(todo).

    The segments of a piece stand together and in rising order.
    """
    stats = np.zeros(STATS, np.int64)
    piece = np.int64(-1)
    seen = np.int64(-1)
    for s in range(segments.shape[0]):
        row = pieces[segments[s, 0]]
        if row[BLOCKS]:
            # segments of a piece come in rising order: most lie in blocks that the one before has touched
            last = (segments[s, 1] + segments[s, 2] - 1) // BLOCK_ROWS
            if segments[s, 0] == piece and last <= seen:
                continue
            piece = segments[s, 0]
            seen = last
            for c in columns:
                _touch(row, c, segments[s, 1], segments[s, 1] + segments[s, 2], stats, todo, piece)
    return min(stats[PENDING], todo.shape[0])


@nb.njit(inline="always")
def gathered(row, segments, s, only_marked, places):
    """The row numbers of short segments of one piece, from segment s on, which are better looked at together: as many as `places` has room
    for, and with `only_marked` those that are marked. Returns the first segment that is not among them, and how many rows they have.
    """
    n = np.int64(0)
    piece = segments[s, 0]
    if row[PERM] != 0:
        return s, n
    while s < segments.shape[0] and segments[s, 0] == piece and segments[s, 2] <= _SHORT and n + segments[s, 2] <= places.shape[0]:
        if only_marked and segments[s, 3] == 0:
            break
        for i in range(segments[s, 2]):
            places[n + i] = np.uint32(segments[s, 1] + i)
        n += segments[s, 2]
        s += 1
    return s, n


@kernel("int64(int64[:, ::1], uint8[::1], int64[:, ::1])")
def refine(segments, keep, out):
    """Segments of the rows to keep; keep[i] speaks of the i-th row over all segments. `out` has room for all rows."""
    n = 0
    at = 0
    for s in range(segments.shape[0]):
        a = segments[s, 1]
        for i in range(segments[s, 2]):
            if keep[at]:
                n = emit(out, n, segments[s, 0], a + i, a + i + 1, np.int64(0))
            at += 1
    return n


@kernel("int64(int64[:, ::1], int64[:, ::1], int64, int64, int64[:, ::1])")
def by_generation(pieces, segments, after, upto, out):
    """Segments of the rows that came with a generation after < g <= upto. Returns how many, or -1 if `out` is too short."""
    n = 0
    for s in range(segments.shape[0]):
        row = pieces[segments[s, 0]]
        a = segments[s, 1]
        b = a + segments[s, 2]
        lo = row[GENERATION_LO]
        hi = row[GENERATION_HI]
        if lo > after and hi <= upto:
            n = emit(out, n, segments[s, 0], a, b, segments[s, 3])
            if n < 0:
                return -1
            continue
        if hi <= after or lo > upto:
            continue
        least = after - lo  # what is stored counts from the first generation
        most = upto - lo
        each = row[GENERATIONS]
        width = row[GENERATION_WIDTH]
        some = row[PERM] != 0
        perm = view(row[PERM], row[ROWS], np.uint32)
        first = a
        for i in range(a, b):
            g = unsigned(each, width, np.int64(perm[i]) if some else i)
            if g <= least or g > most:
                if i > first:
                    n = emit(out, n, segments[s, 0], first, i, segments[s, 3])
                    if n < 0:
                        return -1
                first = i + 1
        if b > first:
            n = emit(out, n, segments[s, 0], first, b, segments[s, 3])
            if n < 0:
                return -1
    return n


@kernel("int64(int64[:, ::1], int64[:, ::1], boolean[::1], int64[::1], int64[::1], int64[:, ::1])")
def by_time(pieces, segments, sieved, edges, tops, out):
    """Segments without the rows of some pieces that are hidden. Returns how many, or -1 if `out` is too short.

    `edges` are where the steps of the masks begin, `tops` their generations. A row is mostly in the step of the one before it.
    """
    n = 0
    steps = edges.shape[0]
    for s in range(segments.shape[0]):
        q = segments[s, 0]
        a = segments[s, 1]
        b = a + segments[s, 2]
        if not sieved[q]:
            n = emit(out, n, q, a, b, segments[s, 3])
            if n < 0:
                return -1
            continue
        row = pieces[q]
        generation = row[GENERATION_HI]
        some = row[PERM] != 0
        perm = view(row[PERM], row[ROWS], np.uint32)
        times = view(row[TIMES], _GREATEST, np.int64)
        step = np.int64(0)
        first = a
        for i in range(a, b):
            t = times[np.int64(perm[i]) if some else i]
            if t < edges[step] or (step + 1 < steps and t >= edges[step + 1]):
                step = _first_above(edges, steps, t) - 1
            if tops[step] >= generation:
                if i > first:
                    n = emit(out, n, q, first, i, segments[s, 3])
                    if n < 0:
                        return -1
                first = i + 1
        if b > first:
            n = emit(out, n, q, first, b, segments[s, 3])
            if n < 0:
                return -1
    return n


@kernel("void(int64[:, ::1], int64[:, ::1], int64[:, ::1])")
def copy_columns(pieces, segments, columns):
    """All columns of four or eight bytes at once: a row of `columns` is (column, width, address of the copy).

    For small answers this is what counts: one call instead of one per column.
    """
    at = 0
    for s in range(segments.shape[0]):
        row = pieces[segments[s, 0]]
        a = segments[s, 1]
        size = segments[s, 2]
        some = row[PERM] != 0
        perm = view(row[PERM] + 4 * a, size, np.uint32)
        for c in range(columns.shape[0]):
            source = row[columns[c, 0] + VALUES]
            if columns[c, 1] == 8:
                out8 = view(columns[c, 2] + 8 * at, size, np.uint64)
                if some:
                    v8 = view(source, _GREATEST, np.uint64)
                    for i in range(size):
                        out8[i] = v8[perm[i]]
                else:
                    w8 = view(source + 8 * a, size, np.uint64)
                    for i in range(size):
                        out8[i] = w8[i]
            else:
                out4 = view(columns[c, 2] + 4 * at, size, np.uint32)
                if some:
                    v4 = view(source, _GREATEST, np.uint32)
                    for i in range(size):
                        out4[i] = v4[perm[i]]
                else:
                    w4 = view(source + 4 * a, size, np.uint32)
                    for i in range(size):
                        out4[i] = w4[i]
        at += size


@kernel("void(int64[:, ::1], int64[:, ::1], int64, int64, uint8[::1])")
def copy_wide(pieces, segments, column, width, out):
    """Values of any width, byte by byte."""
    at = 0
    for s in range(segments.shape[0]):
        row = pieces[segments[s, 0]]
        some = row[PERM] != 0
        perm = view(row[PERM], row[ROWS], np.uint32)
        v = view(row[column + VALUES], _GREATEST, np.uint8)
        for i in range(segments[s, 1], segments[s, 1] + segments[s, 2]):
            r = np.int64(perm[i]) if some else i
            for j in range(width):
                out[at + j] = v[r * width + j]
            at += width


@kernel("void(int64[:, ::1], int64[:, ::1], int64, int64, uint8[::1])")
def copy_bits(pieces, segments, column, slot, out):
    """Bits (validity or booleans) as one byte each. No address: all ones."""
    at = 0
    for s in range(segments.shape[0]):
        row = pieces[segments[s, 0]]
        some = row[PERM] != 0
        perm = view(row[PERM], row[ROWS], np.uint32)
        address = row[column + slot]
        offset = row[column + BIT_OFFSET]
        bits = view(address, _GREATEST, np.uint8)
        for i in range(segments[s, 1], segments[s, 1] + segments[s, 2]):
            p = offset + (np.int64(perm[i]) if some else i)
            out[at] = np.uint8(1) if address == 0 else (bits[p >> 3] >> np.uint8(p & 7)) & np.uint8(1)
            at += 1


@kernel("void(int64, int64, uint32[::1])")
def row_numbers(perm, first, out):
    """The rows behind the positions from `first` on."""
    if perm:
        p = view(perm + 4 * first, out.shape[0], np.uint32)
        for i in range(out.shape[0]):
            out[i] = p[i]
    else:
        for i in range(out.shape[0]):
            out[i] = first + i


@kernel("int64(int64[:, ::1], int64)")
def closed(pieces, count):
    """The first piece that is not open yet, or -1."""
    for q in range(count):
        if pieces[q, OPEN] == 0:
            return q
    return -1
