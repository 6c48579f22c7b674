"""The template of the key layout: the leaf boundaries of a tree, kept from one tree to the next (Waterwheel III.B–C).

A template is immutable. Batches are routed through it without touching it, so readers and writers share it freely; a
new division of the keys is a new template, used by later runs, while each earlier run keeps the one it was routed by.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidewheel.model.codes import Codes, KeyCoder
from tidewheel.model.loading import later
from tidewheel.model.pieces import Row
from tidewheel.model.times import INT64_MAX, INT64_MIN

k = later("tidewheel.index.kernels")

MAX_LEAVES = 1 << 15

PAYS = 1.0
"""Re-divide when a row's leaf is, on average, this much larger than an even one (see `skew`)."""


ONE_LEAF = np.array([INT64_MIN], np.int64)
"""The bounds of a run that is not divided."""
ONE_LEAF_AT = ONE_LEAF.__array_interface__["data"][0]


class KeyTemplate:
    """`bounds[l]` is the least code of leaf l; `bounds[0]` is the least int64. There are a power of two of leaves.

    Holds `index.layout.Template`.
    """

    __slots__ = ("address", "bounds", "coder", "depth", "leaves", "nodes")

    def __init__(self, bounds: Codes, coder: KeyCoder) -> None:
        self.bounds = bounds
        self.coder = coder
        self.leaves = len(bounds)
        self.depth = self.leaves.bit_length() - 1
        self.nodes = breadth_first(bounds)
        self.address = bounds.ctypes.data
        assert 1 << self.depth == self.leaves and bounds[0] == INT64_MIN

    @classmethod
    def of(cls, codes: Codes, leaves: int, coder: KeyCoder) -> KeyTemplate:
        return cls(divide(codes, leaves), coder)

    def route(self, batch_rows: int, rows: npt.NDArray[np.uint32], arrays: npt.NDArray[np.uint32], row: Row) -> None:
        k.build_run(self.nodes, self.depth, self.address, ONE_LEAF_AT, batch_rows, rows, arrays, row)

    def divided(self, codes: Codes, coder: KeyCoder) -> KeyTemplate:
        return KeyTemplate.of(codes, self.leaves, coder)

    def coarser(self, leaves: int) -> KeyTemplate:
        step = self.leaves // max(1, leaves)
        return self if step <= 1 else KeyTemplate(np.ascontiguousarray(self.bounds[::step]), self.coder)

    def skew(self, counts: npt.NDArray[np.int64]) -> float:
        return skew(counts, self.bounds)

    def shipped(self) -> tuple[int, ...]:
        return tuple(self.bounds.tolist())


def breadth_first(bounds: Codes) -> Codes:
    """The inner nodes of a perfect search tree over bounds[1:], in breadth-first order from index 1."""
    nodes = np.full(len(bounds), INT64_MAX, np.int64)
    inner = bounds[1:]
    step = len(bounds)
    first = 1
    while step > 1:
        nodes[first : 2 * first] = inner[step // 2 - 1 :: step]
        first *= 2
        step //= 2
    return nodes


def leaves_for(rows: int, leaf_rows: int) -> int:
    """How many leaves a tree of so many rows gets: the power of two that comes nearest to `leaf_rows` each."""
    wanted = max(1.0, rows / leaf_rows)
    return min(MAX_LEAVES, 1 << round(float(np.log2(wanted))))


def divide(codes: Codes, leaves: int) -> Codes:
    """Bounds that divide these codes evenly over the leaves (Waterwheel Eq. 3).

    A code that fills a whole leaf or more gets a leaf of its own: the leaf after it starts at the next code. What is
    left over of equal bounds are empty leaves, which cost nothing.
    """
    bounds = np.full(leaves, INT64_MIN, np.int64)
    if len(codes) and leaves > 1:
        ordered = np.sort(codes)
        inner = ordered[(np.arange(1, leaves) * len(codes)) // leaves]
        same = inner[1:] == inner[:-1]
        if same.any():
            repeat = np.flatnonzero(same) + 1
            inner[repeat] = np.where(inner[repeat] < INT64_MAX, inner[repeat] + 1, INT64_MAX)
        # a code of the least int64 belongs to leaf 0; a bound there would leave leaf 0 without any code
        bounds[1:] = np.maximum(inner, INT64_MIN + 1)
    return bounds


def skew(counts: npt.NDArray[np.int64], bounds: Codes) -> float:
    """How much larger than an even leaf the leaf of an average row is; 0 is perfectly even.

    The paper takes the largest leaf (Eq. 1) and 0.2 as threshold. On real streams the largest leaf is a parked taxi's
    and no boundary can divide it, so that rule fires on every chunk and gains nothing. What a query pays is the leaf a
    row happens to be in, so we weigh leaves by their rows, and leave out those that hold a single code.
    """
    widths = np.diff(bounds, append=INT64_MAX)
    divisible = (widths > 1) | (widths < 0)  # the difference of two int64 may wrap: such a leaf is wide
    rows = counts[divisible].astype(np.float64)
    total = rows.sum()
    if total == 0:
        return 0.0
    even = max(1.0, counts.sum() / len(counts))
    return float((rows * rows).sum() / total / even) - 1.0


def paper_skew(counts: npt.NDArray[np.int64]) -> float:
    """The skewness factor as the paper defines it (Eq. 1), for comparison."""
    even = counts.sum() / len(counts)
    return float(counts.max() / even - 1.0) if even else 0.0
