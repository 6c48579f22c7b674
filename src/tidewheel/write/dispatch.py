"""The dispatcher: which rows of a batch belong to which indexing server (Waterwheel III.A, III.D).

Servers own adjoining key intervals, in codes. When their shares drift apart, the intervals are divided anew; rows that
are in a tree stay there, and regions say truthfully where rows are, so queries need to know nothing of it.
"""

from __future__ import annotations

import numpy as np

from tidewheel.index.run import EVERY_ROW, Batch, RowNumbers
from tidewheel.index.template import divide
from tidewheel.model.codes import Codes, KeyCoder

UNEVEN = 0.2
"""Divide anew when a server's share is this far from an even one."""


class Dispatch:
    """An immutable division of the keys: server s owns the codes from bounds[s] up to bounds[s + 1]."""

    __slots__ = ("bounds", "coder", "inner")

    def __init__(self, bounds: Codes, coder: KeyCoder) -> None:
        self.bounds = bounds
        self.coder = coder
        self.inner = bounds[1:]

    @property
    def servers(self) -> int:
        return len(self.bounds)

    def split(self, batch: Batch) -> list[tuple[int, RowNumbers]]:
        """(server, rows) for every server that gets some. Rows keep their order; nothing is copied but their numbers."""
        if len(self.bounds) == 1:
            return [(0, EVERY_ROW)]
        owner = np.searchsorted(self.inner, batch.codes, side="right")
        first = int(owner[0])
        if (owner == first).all():
            return [(first, EVERY_ROW)]
        return [(s, rows) for s in range(self.servers) if len(rows := np.flatnonzero(owner == s).astype(np.uint32))]


def even_dispatch(codes: Codes, servers: int, coder: KeyCoder) -> Dispatch:
    return Dispatch(divide(codes, servers), coder)


def is_uneven(shares: list[int], least: int) -> bool:
    """Whether the rows each server took are too different; never before `least` rows came in."""
    total = sum(shares)
    if len(shares) < 2 or total < least:
        return False
    even = total / len(shares)
    return max(abs(s - even) for s in shares) > UNEVEN * even
