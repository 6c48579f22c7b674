"""The rows of a scan that come first in some order, found by the columns that they are ordered by; of no other row anything else is read.

As soon as enough rows are held, the last of them says which others need not be looked at more closely. Of rows that are alike, those that
are found first stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.arrays import take_rows
from tidewheel.model.conditions import Condition, columns_of
from tidewheel.model.loading import later
from tidewheel.read.condition_mask import mask
from tidewheel.read.limits import Watch
from tidewheel.read.materialise import Columns, check_blocks, copy
from tidewheel.read.ordering import SortKey, in_order
from tidewheel.read.planner import Scan
from tidewheel.read.rows import parts_of, split
from tidewheel.read.scan import Found, Matrix
from tidewheel.read.top.order_columns import order_of

if TYPE_CHECKING:
    from tidewheel.read.filters.program import Program

filters = later("tidewheel.read.filters.kernels")
k = later("tidewheel.read.top.kernels")

MOST = 1 << 16
"""Rows of an answer that are found so: of more, each would be looked at several times."""

_GROUP = 1 << 20
"""Rows between two looks at the clock."""

_SOME = 1 << 16
"""Rows that are asked a condition together, as long as there are too few that satisfy it."""

_SOON, _ROOM = 2048, 1 << 14
"""Rows that are put in order together: the first time, and at most, where later rows go on to come before those that are held."""


def can_find(scan: Scan, keys: Sequence[SortKey], wanted: int) -> bool:
    """Whether so many rows of a scan in this order can be found so: its pieces are all in memory, and whole."""
    found = scan.found
    local = scan.damage is None and found.near == len(found.pieces)
    return local and 0 < wanted <= MOST and order_of(keys, scan.planner.spec.stored) is not None


def best_rows(
    scan: Scan,
    columns: Columns,
    keys: Sequence[SortKey],
    wanted: int,
    size: int,
    watch: Watch,
    enough: int | None = None,
    program: Program | None = None,
    rest: Condition | None = None,
) -> Iterator[pa.RecordBatch]:
    """The first `wanted` rows of those that satisfy a program and the rest of a condition, in order, as one batch at most."""
    best = _Best(scan, keys, wanted, program, rest, watch)
    for here, segments in parts_of(scan, best.by, _GROUP, watch):
        assert here is scan.found
        best.look_at(segments)
    best.settle()
    if len(best.held):
        rising = np.lexsort((best.held[:, 1], best.held[:, 0]))
        rows = best.held[rising]
        check_blocks(scan.found, rows, columns, watch)
        batch = copy(scan.found, rows, columns, watch)
        places = np.empty(len(rising), np.int64)
        places[rising] = np.arange(len(rising))
        yield batch if len(places) == 1 else take_rows(batch, places)


class _Best:
    """The first rows of those that were looked at, and those that came since and may be among them."""

    def __init__(
        self, scan: Scan, keys: Sequence[SortKey], wanted: int, program: Program | None, rest: Condition | None, watch: Watch
    ) -> None:
        planner = scan.planner
        self.by = planner.columns(list(dict.fromkeys(key.column for key in keys)))
        self.held: Matrix = np.empty((0, 4), np.int64)
        """In order."""
        self._found: Found = scan.found
        self._keys = list(keys)
        self._wanted = wanted
        self._program = program
        self._looked_at = None if program is None else planner.columns(program.reads)
        self._rest = rest
        self._asked = None if rest is None else planner.columns(list(columns_of(rest) or ()))
        self._watch = watch
        known = order_of(keys, planner.spec.stored)
        assert known is not None
        self._order, self._exact = known
        self._values: tuple[pa.RecordBatch, npt.NDArray[np.uint64]] | None = None
        """What the held rows are ordered by, among others, and which of these they are."""
        self._room: Matrix = np.empty((max(_SOON, 4 * wanted), 4), np.int64)
        self._new = 0
        """Rows in there."""

    def look_at(self, segments: Matrix) -> None:
        """While any row may be among the first, the condition says more than the order; then the order does."""
        if self._program is None or len(self.held) == self._wanted:
            self._compare(segments, False)
            return
        for part in split(segments, _SOME):
            asked = len(self.held) < self._wanted
            self._compare(self._satisfying(part) if asked else part, asked)

    def _compare(self, segments: Matrix, asked: bool) -> None:
        """`asked`: the program is true of these rows."""
        pieces, at = self._found.pieces, np.zeros(2, np.int64)
        while at[0] < len(segments):
            enough = len(self.held) == self._wanted
            held = 0 if not enough else 1 if self._exact else 2
            self._new = k.better(pieces, segments, at, _GROUP, self._order, held, self._room, self._new)
            if at[0] < len(segments) or self._new > len(self._room) // 4 or asked:
                self.settle(asked)

    def _satisfying(self, segments: Matrix) -> Matrix:
        """The rows of segments where the program is true."""
        if self._program is None or self._looked_at is None or not len(segments):
            return segments
        check_blocks(self._found, segments, self._looked_at, self._watch)
        out = np.empty((int(segments[:, 2].sum()) // 2 + len(segments) + 1, 4), np.int64)
        count, _ = filters.keep_where(self._found.pieces, segments, self._program.steps, out, 0)
        return out[:count].copy()

    def settle(self, asked: bool = False) -> None:
        """Put what is new in order among the rest. `asked`: the program is true of it."""
        new, self._new = self._room[: self._new].copy(), 0
        self._watch.check()
        before = self._watch.held
        if not asked:
            new = self._apart(self._satisfying(new))
        if self._asked is not None and self._rest is not None and len(new):
            check_blocks(self._found, new, self._asked, self._watch)
            keep = mask(self._rest, copy(self._found, new, self._asked, self._watch))
            new = new[keep.fill_null(False).to_numpy(zero_copy_only=False)]
        if len(new):
            values = [copy(self._found, new, self.by, self._watch)]
            if self._values is not None:
                values.insert(0, take_rows(*self._values))
            table = pa.Table.from_batches(values).combine_chunks()
            order = in_order(table, self._keys)[: self._wanted]
            self.held = np.concatenate([self.held, new])[order]
            (rows,) = table.to_batches()
            self._values = rows, order
            if len(self.held) == self._wanted:
                piece, position = self.held[-1, :2].tolist()
                k.mark(self._found.pieces[piece], position, self._order)
        self._watch.held = before
        if len(self._room) < _ROOM:
            self._room = np.empty((2 * len(self._room), 4), np.int64)

    def _apart(self, segments: Matrix) -> Matrix:
        """Each row by itself."""
        lengths = segments[:, 2]
        if not len(segments) or int(lengths.max()) == 1:
            return segments
        rows = np.repeat(segments, lengths, axis=0)
        rows[:, 1] += np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        rows[:, 2] = 1
        return rows
