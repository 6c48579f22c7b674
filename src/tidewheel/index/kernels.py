"""Kernels of the tree: route a batch through a template, put it in leaf order, count leaves."""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import view
from tidewheel.model.pieces import BOUNDS, KEYS, KMAX, KMIN, LEAVES, OPEN, ORDERED, PERM, ROWS, STARTS, TIMES, TMAX, TMIN


@nb.njit(inline="always")
def _route(nodes, depth, key, n, leaf):
    """The leaf of each code. `nodes` is the template in breadth-first order (node i has children 2i, 2i + 1).

    Four searches go on at a time, so that their cache misses overlap; there is no branch that could be mispredicted.
    """
    one = np.uint64(1)  # unsigned throughout: Numba would look at every signed index whether it counts from the end
    first = one << np.uint64(depth)
    for q in range(n // 4):
        i = 4 * q
        p0 = one
        p1 = one
        p2 = one
        p3 = one
        k0 = key[i]
        k1 = key[i + 1]
        k2 = key[i + 2]
        k3 = key[i + 3]
        for _ in range(depth):
            p0 = (p0 << one) | np.uint64(nodes[p0] <= k0)
            p1 = (p1 << one) | np.uint64(nodes[p1] <= k1)
            p2 = (p2 << one) | np.uint64(nodes[p2] <= k2)
            p3 = (p3 << one) | np.uint64(nodes[p3] <= k3)
        leaf[i] = p0 - first
        leaf[i + 1] = p1 - first
        leaf[i + 2] = p2 - first
        leaf[i + 3] = p3 - first
    for i in range(n // 4 * 4, n):
        p = one
        for _ in range(depth):
            p = (p << one) | np.uint64(nodes[p] <= key[i])
        leaf[i] = p - first


@nb.njit(inline="always")
def _survey(key, time, n, row):
    """The region of the run, and whether its times never fall."""
    kmin = key[0]
    kmax = kmin
    for i in range(n):
        kmin = min(kmin, key[i])
        kmax = max(kmax, key[i])
    falls = 0
    tmin = time[0]
    tmax = tmin
    last = tmin
    for i in range(n):
        t = time[i]
        falls += t < last
        last = t
        tmin = min(tmin, t)
        tmax = max(tmax, t)
    row[KMIN] = kmin
    row[KMAX] = kmax
    row[TMIN] = tmin
    row[TMAX] = tmax
    row[ORDERED] = 1 if falls == 0 else 0


@kernel("void(int64[::1], int64, int64, int64, int64, uint32[::1], uint32[::1], int64[::1])", makes_arrays=True)
def build_run(nodes, depth, bounds, one_leaf, batch_rows, rows, arrays, row):
    """Survey a batch and put it in leaf order, by a counting sort that keeps the order of arrival inside a leaf.

    `rows` picks the rows of the batch that belong to the run (empty: all). arrays = the permutation (row number by
    position), then the first position of each leaf; with room for two numbers only, the run gets one leaf.
    `row` comes with KEYS and TIMES and the column slots, and goes as the complete descriptor.
    """
    some = rows.shape[0] > 0
    n = np.int64(rows.shape[0]) if some else batch_rows
    key = view(row[KEYS], batch_rows, np.int64)
    time = view(row[TIMES], batch_rows, np.int64)
    if some:
        picked = np.empty((2, n), np.int64)
        for i in range(n):
            picked[0, i] = key[rows[i]]
            picked[1, i] = time[rows[i]]
        key = picked[0]
        time = picked[1]
    _survey(key, time, n, row)
    row[ROWS] = n
    row[OPEN] = 1
    leaves = np.int64(1) << depth
    if arrays.shape[0] == 2:
        arrays[0] = 0
        arrays[1] = n
        row[LEAVES] = 1
        row[STARTS] = arrays.ctypes.data
        row[BOUNDS] = one_leaf
        row[PERM] = rows.ctypes.data if some else 0
        return
    leaf = np.empty(n, np.uint16)
    _route(nodes, depth, key, n, leaf)
    perm = arrays[:n]
    starts = arrays[n:]
    row[LEAVES] = leaves
    row[STARTS] = starts.ctypes.data
    row[BOUNDS] = bounds
    row[PERM] = perm.ctypes.data
    for l in range(leaves + 1):
        starts[l] = 0
    for i in range(n):
        starts[leaf[i] + 1] += np.uint32(1)
    for l in range(leaves):
        starts[l + 1] += starts[l]
    for i in range(n):
        l = leaf[i]
        perm[starts[l]] = rows[i] if some else np.uint32(i)
        starts[l] += np.uint32(1)
    for l in range(leaves, 0, -1):
        starts[l] = starts[l - 1]
    starts[0] = 0


@kernel("void(int64[:, ::1], int64, int64, int64[::1])")
def leaf_counts(pieces, n, bounds, out):
    """Rows per leaf, over the pieces whose template has its bounds at this address."""
    leaves = out.shape[0]
    for r in range(n):
        if pieces[r, BOUNDS] != bounds or pieces[r, LEAVES] != leaves:
            continue
        starts = view(pieces[r, STARTS], leaves + 1, np.uint32)
        for l in range(leaves):
            out[l] += np.int64(starts[l + 1]) - np.int64(starts[l])


@kernel("int64(int64[:, ::1], int64[::1], int64, int64[::1], int64[::1])", makes_arrays=True)
def search_regions(boxes, levels, fanout, box, out):
    """Walk a packed R-tree from its top level down; out = positions of the lowest boxes that meet the one given."""
    found = 0
    depth = levels.shape[0] - 2
    top = levels[depth + 1] - levels[depth]
    stack = np.empty((64 * (depth + 1) + top, 2), np.int64)
    size = 0
    for i in range(top):
        stack[size, 0] = depth
        stack[size, 1] = i
        size += 1
    while size:
        size -= 1
        level = stack[size, 0]
        i = stack[size, 1]
        b = levels[level] + i
        meets = True
        for d in range(0, box.shape[0], 2):
            meets &= boxes[b, d] <= box[d + 1] and boxes[b, d + 1] >= box[d]
        if not meets:
            continue
        if level == 0:
            out[found] = i
            found += 1
            continue
        below = levels[level] - levels[level - 1]
        for j in range(i * fanout, min((i + 1) * fanout, below)):
            stack[size, 0] = level - 1
            stack[size, 1] = j
            size += 1
    return found
