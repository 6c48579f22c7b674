"""A tree: an indexing server's rows in memory. A template and an append-only list of runs.

Only the table's writer changes a tree, under the table's lock. Readers take a `TreeView`, which never changes: a view
counts the runs it knows, and what is appended later lies behind that count.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tidewheel.index.deliveries import Deliveries
from tidewheel.index.layout import Template
from tidewheel.index.run import Run, coalesce
from tidewheel.model.codes import Codes, KeyCoder
from tidewheel.model.loading import later
from tidewheel.model.pieces import Shape

k = later("tidewheel.index.kernels")

FAN_IN = 16
"""So many small runs of one level become one run of the next."""


class TreeView:
    """What a reader sees of a tree: the first `count` rows of `matrix`, and the runs behind them."""

    __slots__ = ("coders", "count", "holders", "matrix", "tree")

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.coders = tree.coders
        self.matrix = tree.matrix
        self.holders = tree.runs
        self.count = len(tree.runs)

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.holders[: self.count])


class Tree:
    __slots__ = (
        "_counted",
        "born",
        "bytes",
        "coders",
        "deliveries",
        "late",
        "matrix",
        "oldest",
        "rows",
        "runs",
        "server",
        "shape",
        "small",
        "spanning",
        "template",
    )

    def __init__(self, server: int, late: bool, template: Template, shape: Shape, born: float) -> None:
        self.server = server
        self.late = late
        self.template = template
        self.shape = shape
        self.born = born
        """When the first row came in; meaningless while the tree is empty."""
        self.oldest = 0
        """The generation of the first row that came in."""
        self.rows = 0
        self.bytes = 0
        self.deliveries = Deliveries()
        """To be recorded when this tree is committed."""
        self.spanning = False
        """Holds part of a delivery whose other rows are in other trees: they must be committed together."""
        self.runs: list[Run] = []
        self.matrix = np.zeros((16, shape.width), np.int64)
        self.coders: dict[int, KeyCoder] = {}
        """Of its runs, by number. Replaced, never changed: readers go through it."""
        self.small: dict[int, int] = {}
        """How many runs of each level may still be merged."""
        self._counted = 0
        """So many runs are in the counts above."""

    @classmethod
    def of(cls, server: int, late: bool, template: Template, shape: Shape, runs: Iterable[Run]) -> Tree:
        """A tree that takes no more rows: of published runs that no indexing server holds."""
        tree = cls(server, late, template, shape, 0.0)
        for run in runs:
            tree.append(run)
        return tree

    def append(self, run: Run) -> None:
        """Take a published run in. May be called again for the same run, if the first call was interrupted."""
        if not self.runs:
            self.oldest = run.generation_lo
        if not self.runs or self.runs[-1] is not run:
            self._put(run)
        if self._counted < len(self.runs):
            small = self.small | {run.level: self.small.get(run.level, 0) + 1} if run.coalesces else self.small
            rows, size, counted = self.rows + run.rows, self.bytes + run.bytes, len(self.runs)
            self.rows, self.bytes, self.small, self._counted = rows, size, small, counted  # no call in between: nothing interrupts it

    def settle(self) -> bool:
        """Let small runs coalesce, so that single rows neither pile up nor slow queries down. True if any did."""
        merged = False
        while full := [level for level, runs in self.small.items() if runs >= FAN_IN]:
            self._merge(min(full))
            merged = True
        return merged

    def _put(self, run: Run) -> None:
        n = len(self.runs)
        if n == len(self.matrix):
            grown = np.zeros((2 * n, self.matrix.shape[1]), np.int64)
            grown[:n] = self.matrix
            self.matrix = grown
        self._note(run)
        self.matrix[n] = run.row
        self.runs.append(run)

    def _note(self, run: Run) -> None:
        coder = run.template.coder
        if coder.number not in self.coders:
            self.coders = {**self.coders, coder.number: coder}

    def _merge(self, level: int) -> None:
        """Replace the small runs of a level by one. Views taken earlier keep the old list and matrix."""
        old = [run for run in self.runs if run.level == level and run.coalesces]
        kept = [run for run in self.runs if not (run.level == level and run.coalesces)]
        merged = coalesce(old, self.template, self.shape)
        self._note(merged)
        small = {other: runs for other, runs in self.small.items() if other != level}
        if merged.coalesces:
            small[level + 1] = small.get(level + 1, 0) + 1
        runs = [*kept, merged]
        counted = len(runs)
        matrix = np.zeros((max(16, 2 * counted), self.shape.width), np.int64)
        for i, run in enumerate(runs):
            matrix[i] = run.row
        self.runs, self.matrix, self.small, self._counted = runs, matrix, small, counted  # no call in between: nothing interrupts it

    def view(self) -> TreeView:
        return TreeView(self)


def counts_per_leaf(view: TreeView, template: Template) -> npt.NDArray[np.int64]:
    """Rows per leaf of the runs that were routed by this template."""
    counts = np.zeros(template.leaves, np.int64)
    k.leaf_counts(view.matrix, view.count, template.address, counts)
    return counts


def all_codes(view: TreeView, coder: KeyCoder) -> Codes:
    """The key codes of every row in the tree, in no particular order."""
    parts = [run.codes_by(coder) for run in view.holders[: view.count]]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
