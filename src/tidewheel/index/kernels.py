"""Kernels of the tree: route a batch through a template, put it in leaf order, count leaves."""
# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.kernels import JIT, view
from tidewheel.model.pieces import BOUNDS, LEAVES, STARTS


@nb.njit("void(int64[::1], int64, int64, int64, uint16[::1])", **JIT)
def route(nodes, depth, codes, n, leaf):
    """The leaf of each code. `nodes` is the template in breadth-first order (node i has children 2i, 2i + 1).

    Four searches go on at a time, so that their cache misses overlap; there is no branch that could be mispredicted.
    """
    key = view(codes, n, np.int64)
    first = np.int64(1) << depth
    i = 0
    while i + 4 <= n:
        p0 = 1
        p1 = 1
        p2 = 1
        p3 = 1
        k0 = key[i]
        k1 = key[i + 1]
        k2 = key[i + 2]
        k3 = key[i + 3]
        for _ in range(depth):
            p0 = 2 * p0 + (nodes[p0] <= k0)
            p1 = 2 * p1 + (nodes[p1] <= k1)
            p2 = 2 * p2 + (nodes[p2] <= k2)
            p3 = 2 * p3 + (nodes[p3] <= k3)
        leaf[i] = p0 - first
        leaf[i + 1] = p1 - first
        leaf[i + 2] = p2 - first
        leaf[i + 3] = p3 - first
        i += 4
    while i < n:
        p = 1
        for _ in range(depth):
            p = 2 * p + (nodes[p] <= key[i])
        leaf[i] = p - first
        i += 1


@nb.njit("void(uint16[::1], uint32[::1], uint32[::1], uint32[::1])", **JIT)
def sort_by_leaf(leaf, rows, starts, perm):
    """Counting sort: perm = row numbers in leaf order, stable; starts = first position of each leaf.

    `rows` picks the batch's rows that belong to this run (empty: all of them); leaf[i] belongs to rows[i].
    """
    n = leaf.shape[0]
    leaves = starts.shape[0] - 1
    for l in range(leaves + 1):
        starts[l] = 0
    for i in range(n):
        starts[leaf[i] + 1] += 1
    for l in range(leaves):
        starts[l + 1] += starts[l]
    some = rows.shape[0] > 0
    for i in range(n):
        l = leaf[i]
        perm[starts[l]] = rows[i] if some else np.uint32(i)
        starts[l] += np.uint32(1)
    for l in range(leaves, 0, -1):
        starts[l] = starts[l - 1]
    starts[0] = 0


@nb.njit("void(int64, int64, int64, uint32[::1], int64[::1])", **JIT)
def survey(codes, times, n, rows, out):
    """out = least and greatest code, least and greatest time, 1 if the times never fall. n is the batch's row count."""
    key = view(codes, n, np.int64)
    time = view(times, n, np.int64)
    some = rows.shape[0] > 0
    count = np.int64(rows.shape[0]) if some else n
    first = np.int64(rows[0]) if some else 0
    kmin = key[first]
    kmax = kmin
    tmin = time[first]
    tmax = tmin
    if some:
        ordered = True
        last = tmin
        for i in range(count):
            k = key[rows[i]]
            t = time[rows[i]]
            kmin = min(kmin, k)
            kmax = max(kmax, k)
            tmin = min(tmin, t)
            tmax = max(tmax, t)
            ordered = ordered and t >= last
            last = t
    else:
        for i in range(n):
            kmin = min(kmin, key[i])
            kmax = max(kmax, key[i])
        falls = 0
        for i in range(1, n):
            falls += time[i] < time[i - 1]
        ordered = falls == 0
        for i in range(n):
            tmin = min(tmin, time[i])
            tmax = max(tmax, time[i])
    out[0] = kmin
    out[1] = kmax
    out[2] = tmin
    out[3] = tmax
    out[4] = 1 if ordered else 0


@nb.njit("void(int64, int64, uint32[::1], int64[::1])", **JIT)
def pick(values, n, rows, out):
    """out[i] = values[rows[i]]"""
    v = view(values, n, np.int64)
    for i in range(rows.shape[0]):
        out[i] = v[rows[i]]


@nb.njit("void(int64[:, ::1], int64, int64, int64[::1])", **JIT)
def leaf_counts(pieces, n, bounds, out):
    """Rows per leaf, over the pieces whose template has its bounds at this address."""
    leaves = out.shape[0]
    for r in range(n):
        if pieces[r, BOUNDS] != bounds or pieces[r, LEAVES] != leaves:
            continue
        starts = view(pieces[r, STARTS], leaves + 1, np.uint32)
        for l in range(leaves):
            out[l] += np.int64(starts[l + 1]) - np.int64(starts[l])
