"""Groups by keys of very many values: rows are put into partitions by their keys, then each partition is added up by itself.

Each of the rows that are added to millions of groups waits for memory. Here they are written twice instead, and neither time in places that
are far apart: first to the partition of their keys, with what is folded of them, then, partition by partition, to groups that stay in the
caches of a core. No group is in two partitions, so nothing is joined, and where only the foremost groups are wanted, the others are not
even kept.

Rows wait in partitions until all are there. Where they are many more than groups in windows take, they come in portions, and the windows of
all partitions are kept from one to the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from tidewheel.errors import LimitError
from tidewheel.model.times import INT64_MAX
from tidewheel.read.filters.program import Program
from tidewheel.read.foremost import OrderTerm
from tidewheel.read.groups import group_layout as layout
from tidewheel.read.groups.group_columns import answer, may_fail, those_first
from tidewheel.read.groups.grouping import Grouping
from tidewheel.read.groups.left_to_duck import take
from tidewheel.read.groups.lowering import Numbers
from tidewheel.read.groups.partitions.near_groups import NearGroups, NearTables, NearWindows
from tidewheel.read.groups.partitions.planning import DividingPlan, planned
from tidewheel.read.groups.partitions.ranks import ANY, rank_of
from tidewheel.read.groups.partitions.rows_divided import DividedRows
from tidewheel.read.groups.texts_found import Texts
from tidewheel.read.limits import Watch
from tidewheel.read.planner import Scan
from tidewheel.read.rows import cut
from tidewheel.read.two_threads import both

HELD_BYTES = 1 << 28
"""Of rows that wait in partitions, at most, or as many as their groups can take."""

TAKEN = 1 << 17
"""Groups, about, that become one part of an answer."""


def divided(
    scan: Scan, of: Grouping, program: Program, order: Sequence[OrderTerm], limit: int | None, watch: Watch
) -> list[pa.RecordBatch] | None:
    """The groups of a query; those at least that are among the first `limit`. None if partitions are not for them."""
    plan = planned(scan, of, program, watch)
    if plan is None:
        return None
    held, rows, each = watch.held, scan.found.rows, 8 * (len(of.keys) + 1 + len(of.empty))
    portion = max(HELD_BYTES, plan.groups * each) // plan.row_bytes
    portions, kept = [scan], None
    try:
        if portion < rows:
            if plan.hashed:
                return None
            portions = list(cut(scan, portion))
            watch.take(8 * plan.partitions * (len(of.empty) << plan.shift))
            kept = np.empty((plan.partitions, 1 << plan.shift, len(of.empty)), np.int64)
        made = DividedGroups(of, plan, DividedRows(of, plan, program, min(rows, portion), watch), kept)
    except LimitError:  # groups that are found one by one may take less, or else are left to DuckDB
        watch.held = held
        return None
    for number, one in enumerate(portions):
        made.add(one, number == 0, watch)
    found = made.found(order, limit, watch)
    watch.held = held + sum(batch.nbytes for batch in found)
    return found


class DividedGroups:
    """The rows of a query by partitions, and then their groups."""

    def __init__(self, of: Grouping, plan: DividingPlan, rows: DividedRows, kept: Numbers | None) -> None:
        self._of, self._plan, self._rows, self._kept = of, plan, rows, kept

    def add(self, scan: Scan, anew: bool, watch: Watch) -> None:
        """Put rows into their partitions, and if others will come, add them up."""
        self._rows.fill(scan, watch)
        if self._kept is not None:
            both([partial(self._keep, itertools.count(), anew)] * 2, watch)

    def found(self, order: Sequence[OrderTerm], limit: int | None, watch: Watch) -> list[pa.RecordBatch]:
        """The groups, of which those may be left out that are not among the first `limit`."""
        made = both([partial(self._take, itertools.count(), order, None if may_fail(self._of) else limit)] * 2, watch)
        return [batch for batches in made for batch in batches]

    def _left(self, numbers: Iterator[int], watch: Watch) -> Iterator[int]:
        """The partitions, as long as there are any that the other thread has not taken."""
        for p in numbers:
            if p >= self._plan.partitions:
                return
            watch.check()
            yield p

    def _keep(self, numbers: Iterator[int], anew: bool, watch: Watch) -> None:
        windows = NearWindows(self._rows, self._of, self._plan, watch, self._kept)
        for p in self._left(numbers, watch):
            windows.add_to_kept(p, anew)

    def _near(self, watch: Watch) -> NearGroups:
        of, plan = self._of, self._plan
        return NearTables(self._rows, of, plan, watch) if plan.hashed else NearWindows(self._rows, of, plan, watch, self._kept)

    def _take(self, numbers: Iterator[int], order: Sequence[OrderTerm], limit: int | None, watch: Watch) -> list[pa.RecordBatch]:
        of, near = self._of, self._near(watch)
        texts = Texts(np.zeros(layout.STATE, np.int64), watch)  # none
        rank = None if limit is None else rank_of(of, order, self._plan.stored)
        bound, made = INT64_MAX, list[pa.RecordBatch]()
        known, words, have = *_room(of, 0), 0
        for p in itertools.chain(self._left(numbers, watch), [None]):
            most = 0 if p is None else near.most(p)
            if have and (p is None or have + most > len(words)):
                some = known[:have], words[:have]
                if limit is not None:
                    some = those_first(of, *some, texts, order, limit, watch)
                    bound = bound if rank is None else min(bound, rank.bound(*some, limit))
                made.append(answer(of, *some, texts, order, None, watch))
                known, words, have = *_room(of, len(words)), 0
            if p is None:
                break
            if most > len(words):
                more = max(TAKEN, 2 * most)
                take(watch, 8 * (more - len(words)) * (len(of.keys) + 1 + len(of.empty)))
                known, words = _room(of, more)
            have = near.take(p, rank or ANY, bound, known, words, have)
        return made


def _room(of: Grouping, rows: int) -> tuple[Numbers, Numbers]:
    """For so many groups. It is never used again: an answer may show what is there."""
    return np.empty((rows, len(of.keys) + 1), np.int64), np.empty((rows, len(of.empty)), np.int64)
