"""Kernels that find runs of rows of one number: those that stand together need one look for their group, and are added up before that.

All of them write where runs begin, and behind them the number of rows, and the number of each run. They return how many runs there are, or
0 if these are too short to be worth it.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.read.groups.lowering import CHECK, FLOOR_DIVIDE

_FEW = 12
"""A block with at most one run for so many rows is added up by runs."""

_SOON = 16
"""Runs after which it is seen whether they are long."""

_NEAR = 64
"""Rows that are compared with those before them at a time."""


@nb.njit(inline="always")
def _are_few(numbers, n):
    """Whether there are few runs: counted without a branch, for where there are many each is a surprise."""
    here = numbers[1:n]
    before = numbers[: n - 1]
    count = np.int64(1)
    for i in range(n - 1):
        count += np.int64(here[i] != before[i])
    return count <= n // _FEW + 1


@kernel("int64(int32[::1], int64, int32[::1])")
def runs_of(slots, n, starts):
    """Runs of one slot."""
    if not _are_few(slots, n):
        return 0
    count = np.int64(1)
    starts[0] = 0
    for i in range(1, n):
        if slots[i] != slots[i - 1]:
            starts[count] = np.int32(i)
            count += 1
    starts[count] = np.int32(n)
    return count


@kernel("int64(int64[::1], int64, int32[::1], int64[::1])")
def runs_of_numbers(numbers, n, starts, each):
    """Runs of one number."""
    if not _are_few(numbers, n):
        return 0
    count = np.int64(1)
    starts[0] = 0
    each[0] = numbers[0]
    for i in range(1, n):
        if numbers[i] != numbers[i - 1]:
            starts[count] = np.int32(i)
            each[count] = numbers[i]
            count += 1
    starts[count] = np.int32(n)
    return count


@kernel("int64(int64[:, ::1], int64, int64)")
def bucket_step(steps, first, behind):
    """The step that makes buckets of one width, if that is all there is besides checks; else -1."""
    for s in range(first, behind - 1):
        if steps[s, 0] != CHECK:
            return -1
    return behind - 1 if behind > first and steps[behind - 1, 0] == FLOOR_DIVIDE else -1


@kernel("int64(int64[::1], int64, int64, int64, int64, int64, int32[::1], int64[::1])")
def runs_of_buckets(values, n, least, greatest, width, origin, starts, each):
    """Runs of one bucket: the floor of (value - origin) by the width. Where values rise, as times in a leaf do, nothing is divided but
    the first value of each run."""
    most = n // _FEW + 1
    if np.float64(greatest) - np.float64(least) > np.float64(width) * np.float64(most):
        return 0  # most buckets between them will have rows: runs would be found to be short one by one
    count = np.int64(0)
    a = np.int64(0)
    while a < n:
        b = a + 1  # where values stop rising
        while b < n:
            end = min(b + _NEAR, n)
            here = values[b:end]
            before = values[b - 1 : end - 1]
            falls = np.int64(0)
            for i in range(here.shape[0]):
                falls += np.int64(here[i] < before[i])
            if falls:
                while values[b] >= values[b - 1]:
                    b += 1
                break
            b = end
        while a < b:
            if count >= most or count >= _SOON and a < count * _FEW // 2:
                return 0
            bucket = (values[a] - origin) // width
            border = (bucket + 1) * width + origin
            starts[count] = np.int32(a)
            each[count] = bucket
            count += 1
            if values[b - 1] < border:
                a = b
                break
            while True:  # counting many takes less time than halving, whose every step is a surprise
                some = values[a : min(a + _NEAR, b)]
                before_it = np.int64(0)
                for i in range(some.shape[0]):
                    before_it += np.int64(some[i] < border)
                a += before_it
                if before_it < _NEAR:
                    break
    starts[count] = np.int32(n)
    return count


@kernel("void(int32[::1], int64, int32[::1])")
def spread(slots, runs, starts):
    """The slots of runs, which stand in front, to all their rows."""
    for r in range(runs - 1, -1, -1):
        slot = slots[r]
        some = slots[starts[r] : starts[r + 1]]
        for i in range(some.shape[0]):
            some[i] = slot
