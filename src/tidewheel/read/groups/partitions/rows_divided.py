"""Rows in partitions, where they wait until they are added up: memory of the kernels."""

from __future__ import annotations

from functools import partial

import numpy as np

from tidewheel.model.loading import later
from tidewheel.read.filters.program import Program
from tidewheel.read.groups import group_layout as layout
from tidewheel.read.groups.grouping import Grouping
from tidewheel.read.groups.left_to_duck import NOT_SURE, LeftToDuckError
from tidewheel.read.groups.lowering import Numbers
from tidewheel.read.groups.partitions import partition_layout as parts
from tidewheel.read.groups.partitions.planning import MOST_ROWS, DividingPlan
from tidewheel.read.limits import Watch
from tidewheel.read.planner import Scan
from tidewheel.read.rows import cut, parts_of
from tidewheel.read.two_threads import both

k = later("tidewheel.read.groups.partitions.kernels")


_APART = 72
"""Rows of a chunk between the beginnings of one chain and the next."""


class DividedRows:
    """Room for so many rows. What it takes of memory that is never written to is counted, too."""

    def __init__(self, of: Grouping, plan: DividingPlan, program: Program, rows: int, watch: Watch) -> None:
        """Raises LimitError if there is not so much memory."""
        self._of, self._plan, self._program = of, plan, program
        self._side_chunks = 2 * plan.partitions + 1 + -(-rows // 2) // parts.CHUNK
        """Of a half: those that are begun, two for each chain, and those that are full."""
        room = 2 * self._side_chunks * parts.CHUNK
        watch.take(room * plan.row_bytes)
        self.sides: Numbers = np.zeros((2, parts.CHAIN, plan.partitions), np.int64)
        self.links: Numbers = np.zeros(2 * self._side_chunks, np.int64)
        self.slots = np.empty(0 if plan.hashed else room, np.uint16)
        self.narrow = np.empty((plan.narrow, room), np.int32)
        self.wide = np.empty((plan.wide, room), np.int64)
        self.bits = np.empty(room if plan.flags else 0, np.uint8)

    def fill(self, scan: Scan, watch: Watch) -> None:
        """Put the rows of a scan into their partitions, in place of those that were there: half of them by another thread."""
        for number, side in enumerate(self.sides):
            chunks = np.arange(side.shape[1])
            side[parts.TAIL] = number * self._side_chunks + chunks
            # not all at the beginning of a chunk, or what is written to next would have but few places in a cache
            side[parts.HEAD] = side[parts.NEXT] = side[parts.TAIL] * parts.CHUNK + chunks * _APART % parts.CHUNK
        sides = cut(scan, -(-scan.found.rows // 2))
        both([partial(self._divide, number, side) for number, side in enumerate(sides)], watch)

    def _divide(self, number: int, side: Scan, watch: Watch) -> None:
        of, plan = self._of, self._plan
        columns = side.planner.columns(list(dict.fromkeys([*of.reads, *self._program.reads])))
        used: Numbers = np.array([number * self._side_chunks + plan.partitions], np.int64)
        for here, segments in parts_of(side, columns, MOST_ROWS, watch):
            state: Numbers = np.zeros(layout.STATE, np.int64)
            why = k.divide(
                here.pieces, segments, self._program.steps, of.value_rows, len(of.keys), of.steps, plan.stored, state, int(plan.hashed),
                plan.seed, plan.spans, plan.shift, self.sides[number], self.links, used, self.slots, self.narrow, self.wide, self.bits,
            )  # fmt: skip
            if why != layout.DONE:
                raise LeftToDuckError(NOT_SURE)
