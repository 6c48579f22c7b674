"""The kernel that sorts the leaves of a z-order key by a box: outside, inside, cut."""

from __future__ import annotations

import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import view
from tidewheel.model.pieces import LEAVES, MORE_ZONES, STARTS
from tidewheel.read.kernels import DOUBTFUL, LEAVES_READ, LEAVES_SKIPPED, LONGEST, ROWS_FOUND, count_found, emit


@kernel("int64(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1])")
def in_box(pieces, segments, corners, out, stats):
    """The parts of segments that lie in leaves that a box meets; only in leaves that it cuts are they marked. Returns how many parts, or
    -1 if `out` is too short; only then nothing is counted in `stats`.

    corners[d]: the least and the greatest code of coordinate d. Pieces without such zone maps stay as they are.
    """
    n = np.int64(0)
    dropped = np.int64(0)
    dims = corners.shape[0]
    last_piece = np.int64(-1)
    last_leaf = np.int64(-1)
    for s in range(segments.shape[0]):
        q = segments[s, 0]
        row = pieces[q]
        a = segments[s, 1]
        end = a + segments[s, 2]
        if row[MORE_ZONES] == 0:
            n = emit(out, n, q, a, end, segments[s, 3])
            if n < 0:
                return -1
            continue
        leaves = row[LEAVES]
        starts = view(row[STARTS], leaves + 1, np.uint32)
        lo = np.int64(0)
        hi = leaves
        while hi - lo > 1:  # the last leaf that begins at or before a
            mid = (lo + hi) >> 1
            if np.int64(starts[mid]) <= a:
                lo = mid
            else:
                hi = mid
        leaf = lo
        while a < end:
            b = min(np.int64(starts[leaf + 1]), end)
            if b > a:
                meets = True
                inside = True
                for d in range(dims):
                    least = view(row[MORE_ZONES] + 16 * leaves * d, leaves, np.int64)[leaf]
                    most = view(row[MORE_ZONES] + 16 * leaves * d + 8 * leaves, leaves, np.int64)[leaf]
                    if most < corners[d, 0] or least > corners[d, 1]:
                        meets = False
                        break
                    inside &= least >= corners[d, 0] and most <= corners[d, 1]
                if meets:
                    check = np.int64(0) if inside else segments[s, 3]
                    n = emit(out, n, q, a, b, check)
                    if n < 0:
                        return -1
                elif q != last_piece or leaf != last_leaf:  # a leaf that was cut by time may have several segments
                    dropped += 1
                    last_piece = q
                    last_leaf = leaf
                a = b
            leaf += 1
    stats[LEAVES_READ] -= dropped
    stats[LEAVES_SKIPPED] += dropped
    stats[ROWS_FOUND] = 0
    stats[DOUBTFUL] = 0
    stats[LONGEST] = 0
    count_found(pieces, out, n, stats)
    return n
