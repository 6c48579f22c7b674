"""The region index: which regions meet a query, without looking at all of them.

A packed R-tree (sort-tile-recursive) in arrays. It is immutable and part of the version; what came after it was packed
is a short tail that is looked at one by one. Below a few hundred regions one pass over them is as fast as any tree.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidewheel.index.kernels import search_regions

FANOUT = 16
WORTH = 512
"""Regions from which on a tree is packed."""

Boxes = npt.NDArray[np.int64]
"""One row per region: least and greatest key code, least and greatest time."""


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

    def search(self, k0: int, k1: int, t0: int, t1: int) -> npt.NDArray[np.int64]:
        """The numbers of the regions that meet the rectangle, in rising order."""
        out = np.empty(int(self.levels[1]), np.int64)
        n = search_regions(self.boxes, self.levels, FANOUT, k0, k1, t0, t1, out)
        return np.sort(self.order[out[:n]])


def tile(regions: Boxes) -> npt.NDArray[np.int64]:
    """Sort-tile-recursive: slices by time, each sorted by key, so that neighbours in the order are neighbours in the plane."""
    n = len(regions)
    middle = regions.astype(np.float64)
    by_time = np.argsort(middle[:, 2] + middle[:, 3], kind="stable")
    nodes = -(-n // FANOUT)
    per_slice = FANOUT * int(np.ceil(np.sqrt(nodes)))
    slices = np.arange(n) // per_slice
    key = (middle[:, 0] + middle[:, 1])[by_time]
    return by_time[np.lexsort((key, slices))]


def _bounds(boxes: Boxes) -> Boxes:
    """The bounding boxes of FANOUT boxes each."""
    starts = np.arange(0, len(boxes), FANOUT)
    return np.stack(
        [
            np.minimum.reduceat(boxes[:, 0], starts),
            np.maximum.reduceat(boxes[:, 1], starts),
            np.minimum.reduceat(boxes[:, 2], starts),
            np.maximum.reduceat(boxes[:, 3], starts),
        ],
        axis=1,
    )
