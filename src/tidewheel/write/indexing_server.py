"""An indexing server: owns a key interval of a table in memory, as an ordinary tree and a late tree.

Its state is changed only under the table's lock. Making runs needs no lock: it reads the template once, and a run made
with an older template stays right.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from tidewheel.errors import TidewheelError
from tidewheel.index.layout import Template, first_division
from tidewheel.index.run import Batch, RowNumbers, Run
from tidewheel.index.table_coders import Coders
from tidewheel.index.tree import Tree
from tidewheel.index.version import ChunkLike
from tidewheel.model.codes import Codes
from tidewheel.model.pieces import TMIN, Shape
from tidewheel.model.times import INT64_MIN
from tidewheel.settings import Settings
from tidewheel.write.templates import ENOUGH, first_template, leaves_of

MORE = 8
"""A batch with this many times the rows makes a better template than the one that the template was made of."""


class IndexingServer:
    def __init__(self, number: int, coders: Coders, shape: Shape, settings: Settings, late_after: int) -> None:
        self.number = number
        self.late_after = late_after
        self.coders = coders
        self.shape = shape
        self.settings = settings
        self.template: Template | None = None
        self.made_of = 0
        """Rows that the template was made of, if it was made of a batch."""
        self.late_before = INT64_MIN
        """Rows older than this go to the late tree."""
        self.check_at = 0
        """Rows in the live tree at which its skew is looked at next."""
        self.live: Tree | None = None
        self.late: Tree | None = None
        self.rows_taken = 0

    # ---- under the table's lock -------------------------------------------------------------------------

    def begin(self, sample: Batch, before: ChunkLike | None) -> None:
        """Make the first template: from the server's last chunk if there is one, else from the first batch that arrives."""
        leaves = leaves_of(sample, self.settings.chunk_bytes, self.settings.leaf_rows)
        if before is not None:
            with suppress(TidewheelError):  # one that cannot be read is no reason to refuse rows
                self.use(first_division(before.codes(), leaves, before.coder))
                self.learn_late([before.times()])
                return
        self.use(first_template(sample, self.coders, leaves, self.shape))
        self.made_of = sample.data.num_rows

    def outgrows(self, rows: int) -> bool:
        """Whether a batch of so many rows tells so much more than the one the template was made of that it should be made of that."""
        return self.template is not None and 0 < MORE * self.made_of <= rows and self.made_of < ENOUGH * self.template.leaves

    def use(self, template: Template) -> None:
        """Route later runs by this template."""
        self.template, self.made_of = template, 0
        for tree in (self.live, self.late):
            if tree is not None:
                tree.template = template
        self.check_at = max(ENOUGH * template.leaves, 2 * (self.live.rows if self.live else 0))

    def learn_late(self, times: list[Codes]) -> None:
        """Rows that are older than what came last, less Δt, will be late."""
        self.late_before = max(self.late_before, usual_end(times) - self.late_after, INT64_MIN)

    def tree(self, late: bool, now: float) -> Tree:
        """The tree for new rows; made when it is first needed."""
        tree = self.late if late else self.live
        if tree is None:
            assert self.template is not None
            tree = Tree(self.number, late, self.template, self.shape, now)
            if late:
                self.late = tree
            else:
                self.live = tree
                self.check_at = ENOUGH * self.template.leaves
        return tree

    def trees(self) -> list[Tree]:
        return [t for t in (self.live, self.late) if t is not None and t.rows]

    def take_off(self, tree: Tree) -> None:
        """The tree was sealed; the next row starts a new one."""
        if tree is self.late:
            self.late = None
        elif tree is self.live:
            self.live = None

    # ---- without a lock ---------------------------------------------------------------------------------

    def runs(self, batch: Batch, rows: RowNumbers) -> list[tuple[bool, Run]]:
        """The runs of a batch's rows for this server, each with whether it is late."""
        template, late_before = self.template, self.late_before
        assert template is not None
        batch = batch.coded_by(template.coder, self.shape)
        run = Run(batch, rows, template)
        if run.row[TMIN] >= late_before:
            return [(False, run)]
        numbers = rows if len(rows) else np.arange(batch.data.num_rows, dtype=np.uint32)
        old = batch.times(self.shape.time_column)[numbers] < late_before
        if old.all():
            return [(True, run)]
        return [
            (False, Run(batch, numbers[~old], template)),
            (True, Run(batch, numbers[old], template)),
        ]


def usual_end(times: list[Codes]) -> int:
    """The time that all but one in a hundred rows do not exceed: a clock that runs ahead must not make all others late."""
    step = max(1, sum(map(len, times)) // 8192)
    sample = np.concatenate([t[::step] for t in times])
    return int(np.partition(sample, len(sample) * 99 // 100)[len(sample) * 99 // 100])
