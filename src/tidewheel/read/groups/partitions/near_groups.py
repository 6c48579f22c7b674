"""The groups of one partition after the other, near a core. For one thread at a time."""

from __future__ import annotations

import secrets
from typing import Protocol

import numpy as np

from tidewheel.model.loading import later
from tidewheel.read.groups import group_layout as layout
from tidewheel.read.groups.grouping import Grouping
from tidewheel.read.groups.left_to_duck import take
from tidewheel.read.groups.lowering import Numbers
from tidewheel.read.groups.partitions.planning import DividingPlan
from tidewheel.read.groups.partitions.ranks import Rank
from tidewheel.read.groups.partitions.rows_divided import DividedRows
from tidewheel.read.limits import Watch

k = later("tidewheel.read.groups.partitions.windows.kernels")

_NOTHING: Numbers = np.zeros((0, 0), np.int64)


class NearGroups(Protocol):
    def most(self, p: int) -> int:
        """Groups that a partition can have."""

    def take(self, p: int, rank: Rank, bound: int, known: Numbers, words: Numbers, have: int) -> int:
        """Write the groups of a partition whose rank is not beyond a bound behind `have` others. Returns how many there are then."""


def window_of(of: Grouping, plan: DividingPlan) -> Numbers:
    """A window of groups without rows."""
    return np.tile(of.empty, (1 << plan.shift, 1))


class NearWindows:
    """Groups by the place of their number in a window. `kept`: the windows of all partitions, with what came before."""

    def __init__(self, rows: DividedRows, of: Grouping, plan: DividingPlan, watch: Watch, kept: Numbers | None) -> None:
        self._rows, self._of, self._plan, self._kept = rows, of, plan, kept
        take(watch, 16 * (len(of.empty) << plan.shift))
        self._empty = window_of(of, plan)
        self._window = self._empty.copy()

    def most(self, p: int) -> int:
        return len(self._window)

    def add_to_kept(self, p: int, anew: bool) -> None:
        """Add the rows of a partition to what came before."""
        assert self._kept is not None
        if anew:
            self._kept[p] = self._empty
        self._add(p, self._kept[p])

    def take(self, p: int, rank: Rank, bound: int, known: Numbers, words: Numbers, have: int) -> int:
        plan, window = self._plan, self._window
        if self._kept is None:
            window[:] = self._empty
            self._add(p, window)
        else:
            window = self._kept[p]
        first, of = p << plan.shift, self._of
        found: int = k.take_groups(window, first, plan.spans, len(of.keys), rank.at, int(rank.falls), bound, known, words, have)
        return found

    def _add(self, p: int, window: Numbers) -> None:
        rows, of = self._rows, self._of
        k.add_up(
            p, rows.sides, rows.links, rows.slots, rows.narrow, rows.wide, rows.bits, self._plan.stored, of.value_rows, len(of.keys),
            of.fold_rows, window,
        )  # fmt: skip


class NearTables:
    """Groups by a hash of their keys, in a table of each partition's own."""

    def __init__(self, rows: DividedRows, of: Grouping, plan: DividingPlan, watch: Watch) -> None:
        self._rows, self._of, self._plan, self._watch = rows, of, plan, watch
        self._state: Numbers = np.zeros(layout.STATE, np.int64)
        self._state[layout.SEED] = secrets.randbits(62)
        self._known = self._words = self._table = _NOTHING
        self._room(1 << 10)

    def _room(self, most: int) -> None:
        """For so many groups, in place of what there is."""
        keys, each, had = len(self._of.keys), len(self._of.empty), len(self._words)
        self._known = self._words = self._table = _NOTHING
        take(self._watch, 8 * (most - had) * (keys + 1 + each + 4))
        self._known = np.empty((most, keys + 1), np.int64)
        self._words = np.empty((most, each), np.int64)
        self._table = np.empty((2 * most, 2), np.int64)

    def most(self, p: int) -> int:
        return int(k.rows_in(p, self._rows.sides, self._rows.links))

    def take(self, p: int, rank: Rank, bound: int, known: Numbers, words: Numbers, have: int) -> int:
        rows, of = self._rows, self._of
        most = 1 << max(self.most(p) - 1, 1).bit_length()
        if most > len(self._words):
            self._room(most)
        table = self._table[: 2 * most]
        while True:
            table.fill(0)
            why = k.add_hashed(
                p, rows.sides, rows.links, rows.narrow, rows.wide, rows.bits, self._plan.stored, of.value_rows, len(of.keys), of.fold_rows,
                self._state, table, self._known, self._words, of.empty,
            )  # fmt: skip
            if why == layout.DONE:
                break
            self._state[layout.SEED] = secrets.randbits(62)
        count = int(self._state[layout.COUNT])
        found: int = k.take_hashed(
            self._known, self._words, count, len(of.keys), rank.at, int(rank.falls), bound, known, words, have
        )  # fmt: skip
        return found
