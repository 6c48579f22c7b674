"""The region index: which regions meet a query, without looking at all of them.

A packed R-tree (sort-tile-recursive) in arrays. It is immutable and part of the version; what came after it was packed
is a short tail that is looked at one by one. Below a few hundred regions one pass over them is as fast as any tree.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tidewheel.model.loading import later

k = later("tidewheel.index.kernels")

FANOUT = 16
WORTH = 512
"""Regions from which on a tree is packed."""

Boxes = npt.NDArray[np.int64]
"""One row per region: the least and the greatest code in each dimension. The last dimension is time."""


class RegionIndex:
    """Levels of bounding boxes, leaves first; a node covers FANOUT nodes of the level below it."""

    __slots__ = ("boxes", "levels", "order")

    def __init__(self, regions: Boxes) -> None:
        self.order = tile(regions)
        levels = [np.ascontiguousarray(regions[self.order])]
        while len(levels[-1]) > FANOUT:
            levels.append(_bounds(levels[-1]))
        self.boxes: Boxes = np.concatenate(levels)
        self.levels = np.cumsum([0, *(len(level) for level in levels)]).astype(np.int64)
        """Where each level begins in `boxes`; the last number is the end."""

    def search(self, *box: int) -> npt.NDArray[np.int64]:
        """The numbers of the regions that meet the box, which is given as they are, in rising order."""
        out = np.empty(int(self.levels[1]), np.int64)
        n = k.search_regions(self.boxes, self.levels, FANOUT, np.array(box, np.int64), out)
        return np.sort(self.order[out[:n]])


def tile(regions: Boxes) -> npt.NDArray[np.int64]:
    """Sort-tile-recursive: slabs by time, each cut into slabs by the next dimension and so on, so that neighbours in the order are
    neighbours in space."""
    middle = regions[:, 0::2].astype(np.float64) + regions[:, 1::2]
    n, dimensions = middle.shape
    order, slabs, size = np.arange(n), np.zeros(n, np.int64), n
    for left, dimension in zip(range(dimensions, 0, -1), (dimensions - 1, *range(dimensions - 1)), strict=True):
        order = order[np.lexsort((middle[order, dimension], slabs))]
        whole, size = size, FANOUT * math.ceil((-(-size // FANOUT)) ** (1 - 1 / left))  # regions of a slab, and of one inside of it
        slabs = slabs * -(-whole // size) + np.arange(n) % whole // size
    return order


def _bounds(boxes: Boxes) -> Boxes:
    """The bounding boxes of FANOUT boxes each."""
    starts = np.arange(0, len(boxes), FANOUT)
    bounds = np.empty((len(starts), boxes.shape[1]), np.int64)
    bounds[:, 0::2] = np.minimum.reduceat(boxes[:, 0::2], starts)
    bounds[:, 1::2] = np.maximum.reduceat(boxes[:, 1::2], starts)
    return bounds
