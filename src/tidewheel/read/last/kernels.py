"""Kernels of the last row of each key: which leaves can still have one, and which rows of them are one."""

from __future__ import annotations

import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import view
from tidewheel.model.pieces import GENERATION_HI, KEYS, LEAVES, PERM, ROWS, STARTS, TIMES, ZONES

_GREATEST = np.int64(9223372036854775807)


@kernel("int64(int64[:, ::1], int64[:, ::1], int64, int64[::1], int64[:, ::1])")
def undecided(pieces, segments, base, best, out):
    """The parts of segments that lie in leaves with a key whose last time so far, best[key - base], is not behind all of the leaf's times.

    Returns how many, or -1 if `out` is too short.
    """
    n = 0
    for s in range(segments.shape[0]):
        row = pieces[segments[s, 0]]
        a = segments[s, 1]
        end = a + segments[s, 2]
        leaves = row[LEAVES]
        starts = view(row[STARTS], leaves + 1, np.uint32)
        zoned = row[ZONES] != 0
        zkmin = view(row[ZONES], leaves, np.int64)
        zkmax = view(row[ZONES] + 8 * leaves, leaves, np.int64)
        ztmax = view(row[ZONES] + 24 * leaves, leaves, np.int64)
        l = np.int64(0)
        high = leaves
        while high - l > 1:
            mid = (l + high) >> 1
            if np.int64(starts[mid]) <= a:
                l = mid
            else:
                high = mid
        while a < end:
            b = min(np.int64(starts[l + 1]), end)
            if a < b:
                open_ = not zoned
                if zoned:
                    lo = max(zkmin[l] - base, np.int64(0))
                    hi = min(zkmax[l] - base, best.shape[0] - 1)
                    latest = ztmax[l]
                    behind = np.int64(0)
                    for k in range(lo, hi + 1):
                        behind += best[k] <= latest
                    open_ = behind > 0
                if open_:
                    if n and out[n - 1, 0] == segments[s, 0] and out[n - 1, 1] + out[n - 1, 2] == a:
                        out[n - 1, 2] += b - a
                    else:
                        if n == out.shape[0]:
                            return -1
                        out[n, 0] = segments[s, 0]
                        out[n, 1] = a
                        out[n, 2] = b - a
                        out[n, 3] = 0
                        n += 1
                a = b
            l += 1
    return n


@kernel("void(int64[:, ::1], int64[:, ::1], int64, int64[::1], int64[:, ::1])")
def keep_last(pieces, segments, base, best, places):
    """Note the last row of each key of these segments, if it is behind the one that is known: its time, piece and position.

    Of rows with the same time, it is the one that came with the later generation, then that at the later position.
    """
    for s in range(segments.shape[0]):
        q = segments[s, 0]
        row = pieces[q]
        generation = row[GENERATION_HI]
        some = row[PERM] != 0
        perm = view(row[PERM], row[ROWS], np.uint32)
        keys = view(row[KEYS], _GREATEST, np.int64)
        times = view(row[TIMES], _GREATEST, np.int64)
        for i in range(segments[s, 1], segments[s, 1] + segments[s, 2]):
            r = np.int64(perm[i]) if some else i
            k = keys[r] - base
            t = times[r]
            if t < best[k]:
                continue
            before = places[k, 0]
            if t > best[k] or before < 0 or before == q or pieces[before, GENERATION_HI] < generation:
                best[k] = t
                places[k, 0] = q
                places[k, 1] = i
