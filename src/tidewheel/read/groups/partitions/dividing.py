"""Groups of a key of very many values: rows are put by the ranges of their keys, then each range is added up by itself.

Each of the rows that are added to millions of groups waits for memory. Here they are written twice instead, and neither time in places that
are far apart: first to the partition of their key, with what is folded of them, then, partition by partition, to groups that stay in the
caches of a core. No group is in two partitions, so nothing is joined, and where only the foremost groups are wanted, the others are not
even written.

Rows wait in partitions until all are there. Where they are many more than the groups, they come in portions, and the windows of all
partitions are kept from one to the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from tidewheel.errors import LimitError
from tidewheel.model.loading import later
from tidewheel.model.times import INT64_MAX
from tidewheel.read.filters.program import Program
from tidewheel.read.foremost import OrderTerm
from tidewheel.read.groups import group_layout as layout
from tidewheel.read.groups.group_columns import answer, may_fail, those_first
from tidewheel.read.groups.grouping import Grouping
from tidewheel.read.groups.left_to_duck import LeftToDuckError, take
from tidewheel.read.groups.lowering import Numbers
from tidewheel.read.groups.partitions import partition_layout as parts
from tidewheel.read.groups.partitions.planning import MOST_ROWS, Plan, planned
from tidewheel.read.groups.partitions.ranks import Rank, rank_of
from tidewheel.read.groups.texts_found import Texts
from tidewheel.read.limits import Watch
from tidewheel.read.planner import Scan
from tidewheel.read.rows import cut, parts_of
from tidewheel.read.two_threads import both

k = later("tidewheel.read.groups.partitions.kernels")

HELD_BYTES = 1 << 28
"""Of rows that wait in partitions, at most, or as many as the groups may take."""

TAKEN = 1 << 17
"""Places of windows whose groups become one part of an answer."""


def divided(
    scan: Scan, of: Grouping, program: Program, order: Sequence[OrderTerm], limit: int | None, watch: Watch
) -> list[pa.RecordBatch] | None:
    """The groups of a query; those at least that are among the first `limit`. None if partitions are not for them."""
    plan = planned(scan, of, program, watch)
    if plan is None:
        return None
    held = watch.held
    try:
        made = Partitions(scan, of, plan, program, watch)
    except LimitError:  # hashed groups may take less, or else are left to DuckDB
        watch.held = held
        return None
    made.add(watch)
    return made.found(order, limit, watch)


class Partitions:
    """The rows of a query by partitions, and then their groups."""

    def __init__(self, scan: Scan, of: Grouping, plan: Plan, program: Program, watch: Watch) -> None:
        """Raises LimitError if that takes more memory than there is."""
        self._of, self._plan, self._program = of, plan, program
        self._columns = scan.planner.columns(list(dict.fromkeys([*of.reads, *program.reads])))
        self._texts = Texts(np.zeros(layout.STATE, np.int64), watch)
        """None: `answer` wants them."""
        self._window_rows = 1 << plan.shift
        rows, span, each = scan.found.rows, plan.partitions << plan.shift, 8 * len(of.empty)
        portion = max(HELD_BYTES, min(rows, span) * each) // plan.row_bytes
        self._portions = list(cut(scan, portion)) if rows > portion else [scan]
        self._side_chunks = plan.partitions + 2 + -(-min(rows, portion) // 2) // parts.CHUNK
        """Those that are begun, one for each chain, and those that are full."""
        chunks = 2 * self._side_chunks
        room = chunks * parts.CHUNK
        self._kept: Numbers | None = None
        watch.take(room * plan.row_bytes)
        if len(self._portions) > 1:
            watch.take((plan.partitions + 1) * self._window_rows * each)
            self._kept = np.empty((plan.partitions + 1, self._window_rows, len(of.empty)), np.int64)
        self._sides: Numbers = np.zeros((2, parts.CHAIN, plan.partitions + 1), np.int64)
        self._links: Numbers = np.zeros(chunks, np.int64)
        self._slots = np.empty(room, np.uint16)
        self._narrow = np.empty((plan.narrow, room), np.int32)
        self._wide = np.empty((plan.wide, room), np.int64)
        self._bits = np.empty(room if plan.flagged else 0, np.uint8)

    def add(self, watch: Watch) -> None:
        """Put all rows into their partitions."""
        for portion in self._portions:
            self._begin()
            sides = cut(portion, -(-portion.found.rows // 2))
            both([partial(self._divide, number, side) for number, side in enumerate(sides)], watch)
            if self._kept is not None:
                numbers = itertools.count()
                both([partial(self._add_to_kept, numbers, portion is self._portions[0])] * 2, watch)

    def found(self, order: Sequence[OrderTerm], limit: int | None, watch: Watch) -> list[pa.RecordBatch]:
        """The groups, of which those may be left out that are not among the first `limit`."""
        if may_fail(self._of):
            limit = None
        rank = None if limit is None else rank_of(self._of, order, self._plan.stored)
        numbers = itertools.count()
        made = both([partial(self._take, numbers, order, limit, rank)] * 2, watch)
        return [batch for batches in made for batch in batches]

    def _begin(self) -> None:
        """Each side has a chunk for each partition, and then those of its half of the others."""
        behind = self._plan.partitions + 1
        for number, side in enumerate(self._sides):
            side[parts.HEAD] = side[parts.TAIL] = number * self._side_chunks + np.arange(behind)
            side[parts.NEXT] = side[parts.HEAD] * parts.CHUNK

    def _divide(self, number: int, side: Scan, watch: Watch) -> None:
        of, plan = self._of, self._plan
        used: Numbers = np.array([number * self._side_chunks + plan.partitions + 1], np.int64)
        for here, segments in parts_of(side, self._columns, MOST_ROWS, watch):
            state: Numbers = np.zeros(layout.STATE, np.int64)
            why = k.divide(
                here.pieces, segments, self._program.steps, of.value_rows, of.steps, plan.stored, state, plan.least, plan.greatest,
                plan.shift, self._sides[number], self._links, used, self._slots, self._narrow, self._wide, self._bits,
            )  # fmt: skip
            if why != layout.DONE:
                raise LeftToDuckError

    def _add_up(self, p: int, window: Numbers) -> None:
        of = self._of
        k.add_up(
            p, self._sides, self._links, self._slots, self._narrow, self._wide, self._bits, self._plan.stored, of.value_rows, of.fold_rows,
            window,
        )  # fmt: skip

    def _empty(self) -> Numbers:
        return np.tile(self._of.empty, (self._window_rows, 1))

    def _add_to_kept(self, numbers: Iterator[int], anew: bool, watch: Watch) -> None:
        """Add the rows of partitions, as long as there are any that the other thread has not taken, to their groups."""
        assert self._kept is not None
        empty = self._empty()
        for p in numbers:
            if p > self._plan.partitions:
                return
            watch.check()
            if anew:
                self._kept[p] = empty
            self._add_up(p, self._kept[p])

    def _take(
        self, numbers: Iterator[int], order: Sequence[OrderTerm], limit: int | None, rank: Rank | None, watch: Watch
    ) -> list[pa.RecordBatch]:
        """The groups of partitions, as long as there are any that the other thread has not taken."""
        of, plan, most = self._of, self._plan, self._window_rows
        room, each = max(TAKEN, most) + most, len(of.empty)
        take(watch, 8 * (2 * most * each + room * (2 + each)))
        empty, window = self._empty(), np.empty((most, each), np.int64)
        at, falls, bound = (layout.ROWS_AT, False, INT64_MAX) if rank is None else (rank.at, rank.falls, INT64_MAX)
        made = list[pa.RecordBatch]()
        known, words, have = np.empty((room, 2), np.int64), np.empty((room, each), np.int64), 0
        for p in numbers:
            is_over, is_null = p > plan.partitions, p == plan.partitions
            if have and is_over or have + most > room:
                some = known[:have], words[:have]
                if limit is not None:
                    some = those_first(of, *some, self._texts, order, limit)
                    bound = bound if rank is None else min(bound, rank.bound(*some, limit))
                made.append(answer(of, *some, self._texts, order, None))
                take(watch, made[-1].nbytes)
                known, words, have = np.empty((room, 2), np.int64), np.empty((room, each), np.int64), 0
            if is_over:
                break
            watch.check()
            if self._kept is None:
                window[:] = empty
                self._add_up(p, window)
            else:
                window = self._kept[p]
            first = 0 if is_null else plan.least + (p << plan.shift)
            have = k.take_groups(window, first, int(is_null), at, int(falls), INT64_MAX if is_null else bound, known, words, have)
        return made
