"""Room that the kernel of groups works in, for one block after the other."""

from __future__ import annotations

import numpy as np

from tidewheel.read.filters.step_codes import ROOM as PROGRAM_ROOM
from tidewheel.read.groups.group_layout import ROOM

_MORE = 12
"""Rows of eight bytes for each row of a block, besides the numbers of keys."""


class WorkingRoom:
    """For one thread at a time. The thread that asks makes that of the other one too: a thread that has just begun has no memory at hand,
    and to be given new pages takes it longer than small groups do."""

    __slots__ = ("narrow", "small", "wide")

    def __init__(self, keys: int) -> None:
        self.wide = np.empty((max(keys, 2) + _MORE, ROOM), np.int64)
        self.narrow = np.zeros((10, ROOM + 8), np.int32)
        self.small = np.empty((4, max(ROOM, PROGRAM_ROOM)), np.uint8)
