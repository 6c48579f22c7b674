"""Whether the groups of a query are to be made by partitions, and of what: decided by a sample of the rows, and the ends of the key."""

from __future__ import annotations

import secrets
from functools import partial

import numpy as np

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

LOOKS, LOOK = 1 << 10, 16
"""A sample: rows at so many places, and how many at each."""

RUN = 8
"""Rows of a group that stand together, on the average, from which on one look finds the group of many."""

MANY, MANY_IN_WINDOW = 100_000, 250_000
"""Groups, as far as a sample tells, from which on they are too many to be found one by one: by a hash, and where they have one window."""

APART = 8
"""Places of keys, at most, for each row."""

WINDOW_BYTES = 1 << 20
"""Bytes of a partition's groups: what the second cache of a core holds."""

MOST_PARTITIONS = 1 << 10
"""Partitions that are written to at once."""

_NARROW = (INT8, INT16, INT32, UINT8, UINT16, BOOL)
_PLAIN_FOLDS = frozenset((layout.SUM_NARROW, layout.SUM_WIDE, layout.SUM_REAL, layout.LEAST, layout.GREATEST))
_MOST_BITS = 16
"""Of a place in a window."""
_CHANCE = 3
"""More rows of groups that are seen twice there may well be: so few rows never tell of many groups."""
_LONGEST = 48
"""Bits of a place, before the last key."""
_MOST_KEYS = _MOST_FLAGS = 8
_ENTRY = 6
"""Words of a table for each group, most of them empty."""


@dataclass(frozen=True, slots=True)
class DividingPlan:
    """How rows are put into partitions, and what is kept of each."""

    groups: int
    """At most, or about."""
    hashed: bool
    """By a hash of the keys, begun with `seed`, and not by their place in windows."""
    seed: int
    spans: Numbers
    """By key, the numbers that have a place, and where in it they stand: see the layout of groups."""
    shift: int
    """Bits of a place, or a hash, below the partition."""
    partitions: int
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


def planned(scan: Scan, of: Grouping, program: Program, watch: Watch) -> DividingPlan | None:
    """None if partitions do not pay, or cannot have these groups."""
    found = scan.found
    if found.rows < LEAST_ROWS or found.near < len(found.pieces) or not _is_plain(of):
        return None
    groups = _groups(scan, of, program, watch)
    if groups is None:
        return None
    ends = _ends(scan, of, watch)
    if ends is None or groups < MANY_IN_WINDOW and sum(map(_width, ends)) <= layout.WINDOW_BITS:
        return None
    made = _by_place(scan, of, ends) or _by_hash(scan, of, groups)
    return None if made.flags > _MOST_FLAGS else made


def _is_plain(of: Grouping) -> bool:
    """Keys that have numbers of their own, and folds of one value each."""
    return 0 < len(of.keys) <= _MOST_KEYS and all(form.kind != TEXT for form in of.key_forms) and _PLAIN_FOLDS.issuperset(
        of.fold_rows[:, layout.WHAT].tolist()
    )  # fmt: skip


def _by_place(scan: Scan, of: Grouping, ends: list[tuple[int, int]]) -> DividingPlan | None:
    """Partitions of a window each, where all numbers have a place, and a null one before them; None if that takes too many."""
    spans: Numbers = np.zeros((len(ends), layout.SPAN), np.int64)
    places, last = 1, 0
    for span, (least, greatest) in zip(spans, ends, strict=True):
        behind = places.bit_length() - 1
        if behind >= _LONGEST:
            return None
        span[[layout.LEAST_NUMBER, layout.GREATEST_NUMBER, layout.SHIFT]] = least, greatest, behind
        last += (greatest - least + 1) << behind
        places <<= _width((least, greatest))
    shift = min(max(WINDOW_BYTES // (8 * len(of.empty)), 1).bit_length() - 1, _MOST_BITS)
    while last >> shift >= MOST_PARTITIONS and shift < _MOST_BITS:
        shift += 1
    if last >= APART * scan.found.rows or last >> shift >= MOST_PARTITIONS:
        return None
    return DividingPlan(min(scan.found.rows, last + 1), False, 0, spans, shift, (last >> shift) + 1, _stored(scan, of, False))


def _width(ends: tuple[int, int]) -> int:
    """Bits of the places of a key."""
    return (ends[1] - ends[0] + 1).bit_length()


def _by_hash(scan: Scan, of: Grouping, groups: int) -> DividingPlan:
    """Partitions of as many groups as have their words and their part of a table in the cache."""
    each = 8 * (len(of.keys) + 1 + len(of.empty) + _ENTRY)
    bits = min(max(groups * each // WINDOW_BYTES, 1), MOST_PARTITIONS - 1).bit_length()
    spans: Numbers = np.zeros((len(of.keys), layout.SPAN), np.int64)
    return DividingPlan(groups, True, secrets.randbits(62), spans, 64 - bits, 1 << bits, _stored(scan, of, True))


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
    """About how many groups there are, at most one for each row; None if rows are few where the program is true, or groups are few, or
    their rows stand together."""
    columns = scan.planner.columns(list(dict.fromkeys([*(key.column for key in of.keys), *program.reads])))
    sample, hashes = _sample(scan), list[Numbers]()
    for here, segments in parts_of(sample, columns, MOST_ROWS, watch):
        out: Numbers = np.empty(int(segments[:, 2].sum()), np.int64)
        count = k.some_hashes(here.pieces, segments, program.steps, of.value_rows, len(of.keys), of.steps, _state(), out)
        if count < 0:
            return None
        hashes.append(out[:count])
    some = np.concatenate(hashes) if hashes else np.zeros(0, np.int64)
    rows = len(some) * scan.found.rows // sample.found.rows
    seen = np.sort(some[np.flatnonzero(some[1:] != some[:-1])])
    if rows < LEAST_ROWS or len(seen) * RUN < len(some):
        return None
    alike = np.zeros(len(seen) + 1, np.bool_)
    alike[1:-1] = seen[1:] == seen[:-1]
    more = int(np.count_nonzero(alike[1:] | alike[:-1]))
    groups = min(rows, len(seen) ** 2 // (more + _CHANCE))
    return None if groups < MANY else groups


def _sample(scan: Scan) -> Scan:
    """Some of the rows, from all over."""
    segments = scan.found.segments
    ends = np.cumsum(segments[:, 2])
    firsts = np.arange(0, int(ends[-1]), max(1, int(ends[-1]) // LOOKS))
    at = np.searchsorted(ends, firsts, side="right")
    some = segments[at]
    some[:, 1] += firsts - (ends[at] - some[:, 2])
    some[:, 2] = np.minimum(ends[at] - firsts, LOOK)
    return part_of(scan, some)


def _ends(scan: Scan, of: Grouping, watch: Watch) -> list[tuple[int, int]] | None:
    """The least and the greatest number of each key; None if a step is not sure of one. Of a key that is always null: 0 and -1."""
    columns = scan.planner.columns(list(dict.fromkeys(key.column for key in of.keys)))

    def of_half(half: Scan, watch: Watch) -> Numbers | None:
        ends: Numbers = np.full((len(of.keys), 2), (INT64_MAX, INT64_MIN), np.int64)
        for here, segments in parts_of(half, columns, MOST_ROWS, watch):
            for value, pair in zip(of.value_rows, ends, strict=False):
                if k.number_ends(here.pieces, segments, NO_PROGRAM.steps, value, of.steps, _state(), pair) != layout.DONE:
                    return None
        return ends

    found = both([partial(of_half, half) for half in cut(scan, -(-scan.found.rows // 2))], watch)
    sure = [ends for ends in found if ends is not None]
    if len(sure) < len(found):
        return None
    pairs = zip(np.min(sure, axis=0)[:, 0].tolist(), np.max(sure, axis=0)[:, 1].tolist(), strict=True)
    return [(least, greatest) if least <= greatest else (0, -1) for least, greatest in pairs]


def _state() -> Numbers:
    """Of a kernel that goes through segments: at the first one."""
    return np.zeros(layout.STATE, np.int64)
