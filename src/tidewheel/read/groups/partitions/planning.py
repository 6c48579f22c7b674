"""Whether the groups of a query are to be made by partitions, and of what: decided by a sample of the rows, and the ends of the key."""

from __future__ import annotations

import math
import secrets
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
_PLAIN_FOLDS = frozenset((layout.SUM_NARROW, layout.SUM_WIDE, layout.SUM_REAL, layout.LEAST, layout.GREATEST))
_MOST_BITS = 16
"""Of a place in a window."""
_MOST_KEYS = _MOST_FLAGS = 8
_ENTRY = 6
"""Words of a table for each group, most of them empty."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How rows are put into partitions, and what is kept of each."""

    groups: int
    """At most, or about."""
    hashed: bool
    """By a hash of the keys, begun with `seed`, and not by the number of the only one."""
    seed: int
    least: int
    greatest: int
    """The ends of the key's numbers."""
    shift: int
    """Bits of a number, or a hash, below its partition."""
    partitions: int
    """All but that of the null keys, which is the last."""
    stored: Numbers
    """By value: see the layout."""

    @property
    def narrow(self) -> int:
        return int(self.stored[:, parts.NARROW_AT].max()) + 1

    @property
    def wide(self) -> int:
        return int(self.stored[:, parts.WIDE_AT].max()) + 1

    @property
    def flags(self) -> int:
        """Values that may be null."""
        return int(self.stored[:, parts.NULL_BIT].max()) + 1

    @property
    def row_bytes(self) -> int:
        return 4 * self.narrow + 8 * self.wide + (self.flags > 0) + (0 if self.hashed else 2)


def planned(scan: Scan, of: Grouping, program: Program, watch: Watch) -> Plan | None:
    """None if partitions do not pay, or cannot have these groups."""
    found, keys = scan.found, len(of.keys)
    if found.rows < LEAST_ROWS or found.near < len(found.pieces) or not _is_plain(of):
        return None
    groups = _groups(scan, of, program, watch)
    if groups is None:
        return None
    near = _by_number(scan, of, watch) if keys == 1 else None
    made = near or _by_hash(scan, of, groups)
    return None if made is None or made.flags > _MOST_FLAGS else made


def _is_plain(of: Grouping) -> bool:
    """Keys that have numbers of their own, and folds of one value each."""
    return 0 < len(of.keys) <= _MOST_KEYS and all(form.kind != TEXT for form in of.key_forms) and _PLAIN_FOLDS.issuperset(
        of.fold_rows[:, layout.WHAT].tolist()
    )  # fmt: skip


def _by_number(scan: Scan, of: Grouping, watch: Watch) -> Plan | None:
    """Partitions of a window each; None if numbers are too far apart."""
    ends = _ends(scan, of, watch)
    if ends is None:
        return None
    (least, greatest), rows = ends, scan.found.rows
    span = greatest - least + 1
    shift = min(max(WINDOW_BYTES // (8 * len(of.empty)), 1).bit_length() - 1, _MOST_BITS)
    while span >> shift >= MOST_PARTITIONS and shift < _MOST_BITS:
        shift += 1
    if span > APART * rows or span >> shift >= MOST_PARTITIONS:
        return None
    return Plan(min(rows, span), False, 0, least, greatest, shift, (span - 1 >> shift) + 1, _stored(scan, of, False))


def _by_hash(scan: Scan, of: Grouping, groups: int) -> Plan:
    """Partitions of as many groups as have their words and their part of a table in the cache."""
    each = 8 * (len(of.keys) + 1 + len(of.empty) + _ENTRY)
    bits = min(max(groups * each // WINDOW_BYTES, 1), MOST_PARTITIONS - 1).bit_length()
    return Plan(groups, True, secrets.randbits(62), 0, 0, 64 - bits, 1 << bits, _stored(scan, of, True))


def _stored(scan: Scan, of: Grouping, hashed: bool) -> Numbers:
    """Where each value is kept, and each key, unless its place says it."""
    stored: Numbers = np.full((len(of.value_rows), parts.STORED), -1, np.int64)
    narrow = wide = flags = 0
    for v, (row, to) in enumerate(zip(of.value_rows, stored, strict=True)):
        if v < len(of.keys) and not hashed:
            continue
        if v < len(of.keys) or row[layout.FIRST_FOLD] < row[layout.BEHIND_FOLDS]:
            if row[layout.KIND] in _NARROW and row[layout.FIRST_STEP] == row[layout.BEHIND_STEPS]:
                to[parts.NARROW_AT], narrow = narrow, narrow + 1
            else:
                to[parts.WIDE_AT], wide = wide, wide + 1
        if (scan.found.pieces[:, row[layout.COLUMN] + VALIDITY] != 0).any():
            to[parts.NULL_BIT], flags = flags, flags + 1
    return stored


def _groups(scan: Scan, of: Grouping, program: Program, watch: Watch) -> int | None:
    """About how many groups there are, of at most as many rows as that; None if rows are few where the program is true, or most are of
    groups that a sample sees twice."""
    columns = scan.planner.columns(list(dict.fromkeys([*(key.column for key in of.keys), *program.reads])))
    sample, hashes = _sample(scan), list[Numbers]()
    for here, segments in parts_of(sample, columns, MOST_ROWS, watch):
        out: Numbers = np.empty(int(segments[:, 2].sum()), np.int64)
        count = k.some_hashes(here.pieces, segments, program.steps, of.value_rows, len(of.keys), of.steps, _state(), out)
        if count < 0:
            return None
        hashes.append(out[:count])
    seen = np.sort(np.concatenate(hashes)) if hashes else np.zeros(0, np.int64)
    rows = len(seen) * scan.found.rows // sample.found.rows
    if rows < LEAST_ROWS:
        return None
    alike = np.zeros(len(seen) + 1, np.bool_)
    alike[1:-1] = seen[1:] == seen[:-1]
    single = np.count_nonzero(~alike[1:] & ~alike[:-1]) / len(seen)
    if single < SINGLE:
        return None
    return int(min(rows, -len(seen) / math.log(single) if 0 < single < 1 else rows))


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
