"""Kernels of the flush: bring the runs of a tree into leaf and time order, column by column, and describe the leaves."""

from __future__ import annotations

import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import copy_memory, unsigned, view
from tidewheel.model.pieces import BIT_OFFSET, DATA, GENERATION_LO, GENERATION_WIDTH, GENERATIONS, KEYS, PERM, ROWS, STARTS, VALUES

_ANY = np.int64(1) << 60
"""The length of a view whose length does not matter."""


@kernel("void(int64[:, ::1], int64[::1], int64[::1], uint32[::1])", makes_arrays=True)
def places(runs, bases, starts, place):
    """place[bases[r] + j] = position in the chunk of run r's row at its position j; starts = first position of each leaf.

    Runs come in order of arrival and keep it inside a leaf. Both sides go leaf by leaf, so every column is written in
    ascending order, with reads scattered over one run only: that stays in the cache.
    """
    leaves = starts.shape[0] - 1
    for l in range(leaves + 1):
        starts[l] = 0
    for r in range(runs.shape[0]):
        s = view(runs[r, STARTS], leaves + 1, np.uint32)
        for l in range(leaves):
            starts[l + 1] += np.int64(s[l + 1]) - np.int64(s[l])
    for l in range(leaves):
        starts[l + 1] += starts[l]
    cursor = starts[:leaves].copy()
    for r in range(runs.shape[0]):
        s = view(runs[r, STARTS], leaves + 1, np.uint32)
        here = place[bases[r] : bases[r + 1]]
        for l in range(leaves):
            c = cursor[l]
            for j in range(s[l], s[l + 1]):
                here[j] = c
                c += 1
            cursor[l] = c


@kernel("void(int64[:, ::1], int64[:, ::1], int64[::1], uint32[::1])")
def place_columns(runs, columns, bases, place):
    """All columns of four or eight bytes to their places: a row of `columns` is (slot of the address, width, address of the copy).

    One call for all of them: every call from a background thread makes it wait for the GIL.
    """
    for r in range(runs.shape[0]):
        perm = view(runs[r, PERM], runs[r, ROWS], np.uint32)
        here = place[bases[r] : bases[r + 1]]
        n = here.shape[0]
        for c in range(columns.shape[0]):
            if columns[c, 1] == 8:
                v8 = view(runs[r, columns[c, 0]], _ANY, np.uint64)
                out8 = view(columns[c, 2], _ANY, np.uint64)
                for j in range(n):
                    out8[here[j]] = v8[perm[j]]
            else:
                v4 = view(runs[r, columns[c, 0]], _ANY, np.uint32)
                out4 = view(columns[c, 2], _ANY, np.uint32)
                for j in range(n):
                    out4[here[j]] = v4[perm[j]]


@kernel("void(int64[:, ::1], int64[::1], uint32[::1], int64, int64, int64)")
def place_generations(runs, bases, place, first, width, out):
    """The generation of each row, less the first, to its place: `out` is the address of numbers of so many bytes.

    Most runs have one generation: then there is nothing to read but the places.
    """
    out1 = view(out, _ANY, np.uint8)
    out2 = view(out, _ANY, np.uint16)
    out4 = view(out, _ANY, np.uint32)
    out8 = view(out, _ANY, np.uint64)
    for r in range(runs.shape[0]):
        here = place[bases[r] : bases[r + 1]]
        n = here.shape[0]
        since = runs[r, GENERATION_LO] - first
        each = runs[r, GENERATIONS]
        if each == 0 and width == 1:
            for j in range(n):
                out1[here[j]] = np.uint8(since)
            continue
        if each == 0 and width == 2:
            for j in range(n):
                out2[here[j]] = np.uint16(since)
            continue
        perm = view(runs[r, PERM], runs[r, ROWS], np.uint32)
        for j in range(n):
            value = since if each == 0 else since + unsigned(each, runs[r, GENERATION_WIDTH], np.int64(perm[j]))
            if width == 1:
                out1[here[j]] = np.uint8(value)
            elif width == 2:
                out2[here[j]] = np.uint16(value)
            elif width == 4:
                out4[here[j]] = np.uint32(value)
            else:
                out8[here[j]] = np.uint64(value)


@kernel("int64(int64[::1], int64[::1])")
def disordered(times, starts):
    """How many leaves are not in time order."""
    found = 0
    for l in range(starts.shape[0] - 1):
        falls = 0
        leaf = times[starts[l] : starts[l + 1]]
        last = np.int64(-9223372036854775808)
        for i in range(leaf.shape[0]):
            falls += leaf[i] < last
            last = leaf[i]
        found += falls > 0
    return found


@kernel("void(int64[::1], int64[::1], uint32[::1])", makes_arrays=True)
def order_by_time(times, starts, moved):
    """moved[p] = where the row at p belongs if its leaf is put in time order (stable)."""
    for l in range(starts.shape[0] - 1):
        a = starts[l]
        order = np.argsort(times[a : starts[l + 1]], kind="mergesort")
        for j in range(order.shape[0]):
            moved[a + order[j]] = a + j


@kernel("void(uint32[::1], uint32[::1])")
def move(place, moved):
    for i in range(place.shape[0]):
        place[i] = moved[place[i]]


@kernel("void(int64[:, ::1], int64[::1], int64[::1], uint32[::1], int64[::1])")
def row_order(runs, bases, batch_bases, place, out):
    """out[p] = which row, counted over the batches of all runs, goes to place p"""
    for r in range(runs.shape[0]):
        perm = view(runs[r, PERM], runs[r, ROWS], np.uint32)
        here = place[bases[r] : bases[r + 1]]
        first = batch_bases[r]
        for j in range(here.shape[0]):
            out[here[j]] = first + perm[j]


@kernel("void(int64[:, ::1], int64[::1], int64[::1], int64, uint32[::1], int64[::1])", makes_arrays=True)
def place_keys(runs, bases, starts, leaf_rows, place, codes):
    """The codes of leaves of more than twice leaf_rows to their places; those of all others are left alone."""
    leaves = starts.shape[0] - 1
    large = np.flatnonzero(np.diff(starts) > 2 * leaf_rows)
    for r in range(runs.shape[0]):
        perm = view(runs[r, PERM], runs[r, ROWS], np.uint32)
        keys = view(runs[r, KEYS], _ANY, np.int64)
        here = place[bases[r] : bases[r + 1]]
        s = view(runs[r, STARTS], leaves + 1, np.uint32)
        for l in large:
            for j in range(s[l], s[l + 1]):
                codes[here[j]] = keys[perm[j]]


@kernel("int64(int64[::1], int64[::1], int64[::1], int64, int64[::1], int64[::1], uint32[::1])", makes_arrays=True)
def divide_leaves(codes, starts, bounds, leaf_rows, out_starts, out_bounds, moved):
    """Divide leaves of more than twice leaf_rows by their codes: no leaf of several codes is larger than leaf_rows then.

    Of other leaves, no code is looked at. Returns how many leaves there are; moved[p] = where the row at p belongs in them (stable).
    """
    n = 0
    for l in range(bounds.shape[0]):
        a = starts[l]
        b = starts[l + 1]
        out_starts[n] = a
        out_bounds[n] = bounds[l]
        n += 1
        some = codes[a:b]
        if b - a <= 2 * leaf_rows or some.min() == some.max():
            for p in range(a, b):
                moved[p] = p
            continue
        order = np.argsort(some, kind="mergesort")
        first = np.int64(0)
        i = np.int64(0)
        while i < b - a:
            j = i + 1
            while j < b - a and some[order[j]] == some[order[i]]:
                j += 1
            if i > first and j - first > leaf_rows:
                out_starts[n] = a + i
                out_bounds[n] = some[order[i]]
                n += 1
                first = i
            i = j
        # rows of a new leaf keep the order that they had, as those of every other leaf do
        leaf = np.empty(b - a, np.int64)
        k = n
        for p in range(b - a - 1, -1, -1):
            while out_starts[k - 1] - a > p:
                k -= 1
            leaf[order[p]] = k - 1
        cursor = out_starts[leaf[order[0]] : n].copy()
        for p in range(b - a):
            c = leaf[p] - leaf[order[0]]
            moved[a + p] = cursor[c]
            cursor[c] += 1
    out_starts[n] = starts[bounds.shape[0]]
    return n


@kernel("int64(int64[::1], int64[::1], int64, uint32[::1], int64[::1])")
def cut_leaves(starts, bounds, leaf_rows, out_starts, out_bounds):
    """The chunk's leaves: empty ones left out, those of more than twice leaf_rows cut (by time, since that is their order)."""
    n = 0
    leaves = bounds.shape[0]
    for l in range(leaves):
        a = starts[l]
        b = starts[l + 1]
        if a == b:
            continue
        parts = 1 if b - a <= 2 * leaf_rows else (b - a + leaf_rows - 1) // leaf_rows
        bound = bounds[l] if n else bounds[0]  # the chunk's first leaf takes all lower keys, in all its parts
        for p in range(parts):
            out_starts[n] = a + p * (b - a) // parts
            out_bounds[n] = bound
            n += 1
    out_starts[n] = starts[leaves]
    return n


@kernel("void(int64[::1], uint32[::1], int64[::1], int64[::1])")
def zone_map(codes, starts, least, greatest):
    for l in range(least.shape[0]):
        leaf = codes[starts[l] : starts[l + 1]]
        lo = leaf[0]
        hi = lo
        for i in range(leaf.shape[0]):
            lo = min(lo, leaf[i])
            hi = max(hi, leaf[i])
        least[l] = lo
        greatest[l] = hi


@kernel("void(int64[::1], uint32[::1], int64, int64, uint64[::1])")
def time_masks(times, starts, first, shift, out):
    """Which mini-ranges of 2^shift time units each leaf has rows in. Unsigned: the span of int64 times may exceed int64."""
    for l in range(out.shape[0]):
        mask = np.uint64(0)
        leaf = times[starts[l] : starts[l + 1]]
        for i in range(leaf.shape[0]):
            mask |= np.uint64(1) << ((np.uint64(leaf[i]) - np.uint64(first)) >> np.uint64(shift))
        out[l] = mask


@kernel("void(int64[::1], uint32[::1], int64, int64, int64[::1])")
def partition_counts(times, starts, first, width, out):
    """Rows per partition; `first` is the number of the first one. Leaves are in time order: halving finds the borders."""
    for l in range(starts.shape[0] - 1):
        a = np.int64(starts[l])
        end = np.int64(starts[l + 1])
        while a < end:
            number = times[a] // width
            last = number * width + (width - 1)
            if last < times[a]:
                last = np.int64(9223372036854775807)  # the last partition ends beyond int64
            lo = a
            hi = end
            while lo < hi:
                mid = (lo + hi) >> 1
                if times[mid] <= last:
                    lo = mid + 1
                else:
                    hi = mid
            out[number - first] += lo - a
            a = lo


@kernel("void(int64[::1], int64[::1], int64, int64, int64[::1])")
def partition_latest(times, generations, first, width, out):
    """The greatest generation of the rows of each partition; `first` is the number of the first one. Most rows share that of the last."""
    number = np.int64(0)
    start = np.int64(1)
    last = np.int64(0)
    for i in range(times.shape[0]):
        t = times[i]
        if t < start or t > last:
            number = t // width
            start = number * width
            if start > t:
                start = np.int64(-9223372036854775808)  # the first partition begins before int64
            last = number * width + (width - 1)
            if last < t:
                last = np.int64(9223372036854775807)
        if generations[i] > out[number - first]:
            out[number - first] = generations[i]


@kernel("void(int64[:, ::1], int64, int64[::1], uint32[::1], int64, uint8[::1])")
def place_wide(runs, column, bases, place, width, out):
    """Values of any width, byte by byte."""
    for r in range(runs.shape[0]):
        v = view(runs[r, column + VALUES], _ANY, np.uint8)
        perm = view(runs[r, PERM], runs[r, ROWS], np.uint32)
        here = place[bases[r] : bases[r + 1]]
        for j in range(here.shape[0]):
            p = np.int64(here[j]) * width
            q = np.int64(perm[j]) * width
            for i in range(width):
                out[p + i] = v[q + i]


@kernel("void(int64[:, ::1], int64, int64, int64[::1], uint32[::1], uint8[::1])")
def place_bits(runs, column, slot, bases, place, out):
    """Bits (validity or booleans) as one byte each. No validity address: all ones."""
    for r in range(runs.shape[0]):
        address = runs[r, column + slot]
        offset = runs[r, column + BIT_OFFSET]
        bits = view(address, _ANY, np.uint8)
        perm = view(runs[r, PERM], runs[r, ROWS], np.uint32)
        here = place[bases[r] : bases[r + 1]]
        for j in range(here.shape[0]):
            q = offset + np.int64(perm[j])
            out[here[j]] = np.uint8(1) if address == 0 else (bits[q >> 3] >> np.uint8(q & 7)) & np.uint8(1)


@kernel("int64(int64[:, ::1], int64, int64, int64[::1], uint32[::1], int64[::1])")
def place_ends(runs, column, wide, bases, place, ends):
    """ends = offsets of the strings in their new order (one more than rows). Returns the total."""
    for r in range(runs.shape[0]):
        narrow = view(runs[r, column + VALUES], _ANY, np.int32)
        broad = view(runs[r, column + VALUES], _ANY, np.int64)
        perm = view(runs[r, PERM], runs[r, ROWS], np.uint32)
        here = place[bases[r] : bases[r + 1]]
        for j in range(here.shape[0]):
            i = np.int64(perm[j])
            ends[np.int64(here[j]) + 1] = broad[i + 1] - broad[i] if wide else np.int64(narrow[i + 1]) - np.int64(narrow[i])
    ends[0] = 0
    for i in range(1, ends.shape[0]):
        ends[i] += ends[i - 1]
    return ends[ends.shape[0] - 1]


@kernel("void(int64[:, ::1], int64, int64, int64[::1], uint32[::1], int64[::1], uint8[::1])")
def place_bytes(runs, column, wide, bases, place, ends, out):
    for r in range(runs.shape[0]):
        narrow = view(runs[r, column + VALUES], _ANY, np.int32)
        broad = view(runs[r, column + VALUES], _ANY, np.int64)
        perm = view(runs[r, PERM], runs[r, ROWS], np.uint32)
        here = place[bases[r] : bases[r + 1]]
        for j in range(here.shape[0]):
            i = np.int64(perm[j])
            first = ends[here[j]]
            size = ends[np.int64(here[j]) + 1] - first
            copy_memory(out.ctypes.data + first, runs[r, column + DATA] + (broad[i] if wide else np.int64(narrow[i])), size)
