"""Whether the groups of a query are to be made by partitions, and of what: decided by a sample of the rows, and the ends of the key."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from tidewheel.model.dataclass import dataclass
from tidewheel.model.loading import later
from tidewheel.model.pieces import VALIDITY
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.read.filters.program import NO_PROGRAM, Program
from tidewheel.read.groups import group_layout as layout
from tidewheel.read.groups.grouping import Grouping
from tidewheel.read.groups.lowering import BOOL, INT8, INT16, INT32, TEXT, UINT8, UINT16, Numbers
from tidewheel.read.groups.partitions import partition_layout as parts
from tidewheel.read.limits import Watch
from tidewheel.read.materialise import Columns
from tidewheel.read.planner import Scan
from tidewheel.read.rows import cut, part_of, parts_of
from tidewheel.read.two_threads import both

k = later("tidewheel.read.groups.partitions.kernels")

MOST_ROWS = 1 << 20
"""Rows between two looks at the clock."""

LEAST_ROWS = 1 << 20
"""Rows, as far as a sample tells, from which on partitions pay."""

LOOKS, LOOK = 64, 256
"""A sample: rows at so many places, and how many at each. Where rows of one key lie near each other, they are alike in it."""

SINGLE = 0.94
"""Of the keys of a sample, the part that is there but once from which on groups are too many for the caches."""

APART = 16
"""Numbers that a key may have, at most, for each row."""

WINDOW_BYTES = 1 << 20
"""Bytes of a partition's groups: what the second cache of a core holds."""

MOST_PARTITIONS = 1 << 10
"""Partitions that are written to at once."""

_NARROW = (INT8, INT16, INT32, UINT8, UINT16, BOOL)
_PLAIN_FOLDS = (layout.SUM_NARROW, layout.SUM_WIDE, layout.SUM_REAL, layout.LEAST, layout.GREATEST)
_MOST_BITS = 16
"""Of a place in a window."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How rows are put into partitions, and what is kept of each."""

    least: int
    greatest: int
    """The ends of the key's numbers."""
    shift: int
    """Bits of a number that are its place in a window; those above are its partition."""
    stored: Numbers
    """By value: see the layout."""
    row_bytes: int

    @property
    def partitions(self) -> int:
        """All but that of the null keys, which is the last."""
        return ((self.greatest - self.least) >> self.shift) + 1

    @property
    def narrow(self) -> int:
        return int(self.stored[:, parts.NARROW_AT].max()) + 1

    @property
    def wide(self) -> int:
        return int(self.stored[:, parts.WIDE_AT].max()) + 1

    @property
    def flagged(self) -> bool:
        """Some values may be null."""
        return bool((self.stored[:, parts.NULL_BIT] >= 0).any())


def planned(scan: Scan, of: Grouping, program: Program, watch: Watch) -> Plan | None:
    """None if partitions do not pay, or cannot have these groups."""
    found = scan.found
    if found.rows < LEAST_ROWS or found.near < len(found.pieces) or not _is_plain(of):
        return None
    stored = _stored(scan, of)
    columns = scan.planner.columns(list(dict.fromkeys([of.keys[0].column, *program.reads])))
    if stored is None or not _are_many(scan, of, program, columns, watch):
        return None
    ends = _ends(scan, of, watch)
    if ends is None:
        return None
    least, greatest = ends
    span = greatest - least + 1
    bits = min(max(WINDOW_BYTES // (8 * len(of.empty)), 1).bit_length() - 1, _MOST_BITS)
    while span >> bits >= MOST_PARTITIONS and bits < _MOST_BITS:
        bits += 1
    if span > APART * found.rows or span >> bits >= MOST_PARTITIONS:
        return None
    narrow, wide, flags = (int((stored[:, at] >= 0).sum()) for at in (parts.NARROW_AT, parts.WIDE_AT, parts.NULL_BIT))
    return Plan(least, greatest, bits, stored, 2 + 4 * narrow + 8 * wide + (flags > 0))


def _is_plain(of: Grouping) -> bool:
    """One key that has numbers of its own, and folds of one value each."""
    return len(of.keys) == 1 and of.key_forms[0].kind != TEXT and all(fold[layout.WHAT] in _PLAIN_FOLDS for fold in of.fold_rows)


def _stored(scan: Scan, of: Grouping) -> Numbers | None:
    """Where each value is kept; None if too many of them may be null."""
    stored: Numbers = np.full((len(of.value_rows), parts.STORED), -1, np.int64)
    narrow = wide = flags = 0
    for row, to in zip(of.value_rows[1:], stored[1:], strict=True):
        if row[layout.FIRST_FOLD] < row[layout.BEHIND_FOLDS]:
            if row[layout.KIND] in _NARROW and row[layout.FIRST_STEP] == row[layout.BEHIND_STEPS]:
                to[parts.NARROW_AT], narrow = narrow, narrow + 1
            else:
                to[parts.WIDE_AT], wide = wide, wide + 1
        if (scan.found.pieces[:, row[layout.COLUMN] + VALIDITY] != 0).any():
            to[parts.NULL_BIT], flags = flags, flags + 1
    return stored if flags <= 8 else None


def _are_many(scan: Scan, of: Grouping, program: Program, columns: Columns, watch: Watch) -> bool:
    """Whether there are enough rows where the program is true, and most are of groups that a sample does not see twice."""
    sample = _sample(scan)
    numbers, looked_at = [], sample.found.rows
    for here, group in parts_of(sample, columns, MOST_ROWS, watch):
        out: Numbers = np.empty(int(group[:, 2].sum()), np.int64)
        count = k.some_numbers(here.pieces, group, program.steps, of.value_rows, of.steps, _state(), out)
        if count < 0:
            return False
        numbers.append(out[:count])
    seen = np.sort(np.concatenate(numbers)) if numbers else np.zeros(0, np.int64)
    if len(seen) * scan.found.rows < LEAST_ROWS * looked_at:
        return False
    alike = np.zeros(len(seen) + 1, np.bool_)
    alike[1:-1] = seen[1:] == seen[:-1]
    return bool(np.count_nonzero(~alike[1:] & ~alike[:-1]) >= SINGLE * len(seen))


def _sample(scan: Scan) -> Scan:
    """Some of the rows, from all over."""
    segments = scan.found.segments
    ends = np.cumsum(segments[:, 2])
    rows = int(ends[-1])
    some = []
    for first in np.unique(np.linspace(0, max(rows - LOOK, 0), LOOKS).astype(np.int64)).tolist():
        a = int(np.searchsorted(ends, first, side="right"))
        b = int(np.searchsorted(ends, min(first + LOOK, rows)))
        group = segments[a : b + 1].copy()
        skipped = first - int(ends[a] - segments[a, 2])
        group[0, 1] += skipped
        group[0, 2] -= skipped
        group[-1, 2] = min(int(group[-1, 2]), LOOK)
        some.append(group)
    return part_of(scan, np.concatenate(some))


def _ends(scan: Scan, of: Grouping, watch: Watch) -> tuple[int, int] | None:
    """The least and the greatest number of the key; None if it has none, or a step is not sure of one."""
    columns = scan.planner.columns([of.keys[0].column])

    def of_half(half: Scan, watch: Watch) -> npt.NDArray[np.int64] | None:
        ends: Numbers = np.array([INT64_MAX, INT64_MIN], np.int64)
        for here, segments in parts_of(half, columns, MOST_ROWS, watch):
            if k.number_ends(here.pieces, segments, NO_PROGRAM.steps, of.value_rows, of.steps, _state(), ends) != layout.DONE:
                return None
        return ends

    found = both([partial(of_half, half) for half in cut(scan, -(-scan.found.rows // 2))], watch)
    sure = [ends for ends in found if ends is not None]
    if len(sure) < len(found):
        return None
    least, greatest = min(int(ends[0]) for ends in sure), max(int(ends[1]) for ends in sure)
    return (least, greatest) if least <= greatest else None


def _state() -> Numbers:
    """Of a kernel that goes through segments: at the first one."""
    return np.zeros(layout.STATE, np.int64)
