"""The last row of each key, where keys are whole numbers that lie close to each other: newest pieces first, and of the others only the
leaves that can still have one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidewheel.model.loading import later
from tidewheel.model.pieces import KMAX, KMIN, TMAX
from tidewheel.model.schema import ColumnKey
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.read.limits import Watch
from tidewheel.read.materialise import Columns, check_blocks
from tidewheel.read.planner import Scan
from tidewheel.read.rows import rows_of
from tidewheel.read.scan import Matrix, verify_column

if TYPE_CHECKING:
    from tidewheel.read.filters.program import Program

filters = later("tidewheel.read.filters.kernels")
k = later("tidewheel.read.last.kernels")

_MOST = 1 << 20
"""Numbers among which all keys must lie."""

_CLOSE, _FEW = 4, 1 << 16
"""Numbers for each row, beside so many, among which it pays to have a place for each."""

_GROUP = 1 << 20
"""Rows between two looks at the clock."""


def can_walk(scan: Scan) -> bool:
    """Whether the last rows of a scan can be found so: its keys are such numbers, and its pieces in memory, and whole."""
    spec, found = scan.planner.spec, scan.found
    if not isinstance(spec.key, ColumnKey) or not pa.types.is_integer(spec.schema.field(spec.key.column).type):
        return False
    if scan.damage is not None or found.near < len(found.pieces) or found.doubtful:
        return False
    first, last = _ends(scan)
    return last - first < min(_MOST, _CLOSE * found.rows + _FEW)


def last_by_key(
    scan: Scan, columns: Columns, size: int, watch: Watch, enough: int | None = None, program: Program | None = None
) -> Iterator[pa.RecordBatch]:
    """The last row of each key, of the rows where a program is true."""
    found = scan.found
    if not len(found.segments):
        return
    first, last = _ends(scan)
    keys = last - first + 1
    watch.take(4 * 8 * keys)
    best = np.full(keys, INT64_MAX)  # of keys that are not asked for, nothing is looked for
    for lo, hi in zip(scan.keys.intervals.lo.tolist(), scan.keys.intervals.hi.tolist(), strict=True):
        best[max(lo - first, 0) : max(hi - first + 1, 0)] = INT64_MIN
    places = np.full((keys, 2), -1)
    ends = np.searchsorted(found.segments[:, 0], np.arange(len(found.pieces) + 1))
    for piece in np.argsort(-found.pieces[:, TMAX].astype(np.float64), kind="stable").tolist():
        watch.check()
        open_ = _undecided(scan, found.segments[ends[piece] : ends[piece + 1]], first, best)
        for part in _satisfying(scan, open_, watch, program):
            for column in (scan.planner.stored.key, scan.planner.stored.time):
                verify_column(found.version, found.pieces, part, column, watch, None)
            k.keep_last(found.pieces, part, first, best, places)
    rows = places[places[:, 0] >= 0]
    segments = np.ones((len(rows), 4), np.int64)
    segments[:, :2] = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    segments[:, 3] = 0
    lasting = replace(found, segments=segments, rows=len(rows), longest=1)
    yield from rows_of(Scan(scan.planner, lasting, scan.keys, scan.time, scan.check, None), columns, size, watch)


def _ends(scan: Scan) -> tuple[int, int]:
    """Codes between which all keys are that are asked for."""
    pieces, asked = scan.found.pieces, scan.keys.intervals
    if not len(pieces) or not len(asked.lo):
        return 0, -1
    return max(int(pieces[:, KMIN].min()), int(asked.lo[0])), min(int(pieces[:, KMAX].max()), int(asked.hi[-1]))


def _undecided(scan: Scan, segments: Matrix, base: int, best: Matrix) -> Matrix:
    """The parts of a piece's segments that can have a last row."""
    room = np.empty((len(segments) + 1024, 4), np.int64)
    while (n := k.undecided(scan.found.pieces, segments, base, best, room)) < 0:
        room = np.empty((4 * len(room), 4), np.int64)
    return room[:n]


def _satisfying(scan: Scan, segments: Matrix, watch: Watch, program: Program | None) -> Iterator[Matrix]:
    """Some rows at a time, those where a program is true."""
    found = scan.found
    ends = np.cumsum(segments[:, 2])
    for part in np.split(segments, np.flatnonzero(np.diff(ends // _GROUP)) + 1):
        watch.check()
        if program is None or not len(part):
            yield part
            continue
        check_blocks(found, part, scan.planner.columns(program.reads), watch)
        out = np.empty((int(part[:, 2].sum()) // 2 + len(part) + 1, 4), np.int64)
        count, _ = filters.keep_where(found.pieces, part, program.steps, out, 0)
        yield out[:count]
