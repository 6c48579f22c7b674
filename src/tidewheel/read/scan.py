"""Scan: from a pinned version and a query's bounds to segments (Waterwheel IV.A–B).

Regions choose pieces, then each piece's template, zone maps and masks choose leaves, then times are searched. One
kernel call does this for all runs and chunks. The result names positions; no row has been copied yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tidewheel.errors import CorruptionError
from tidewheel.index.hidden import Hidden
from tidewheel.index.version import FarChunk, MappedChunk, Version
from tidewheel.model.codes import ALL
from tidewheel.model.dataclass import dataclass
from tidewheel.model.loading import later
from tidewheel.model.pieces import (
    CODER,
    COLUMNS,
    GENERATION_HI,
    GENERATION_LO,
    INDEX,
    OPEN,
    SLOTS,
    SOURCE,
    VALIDITY,
    Holder,
)
from tidewheel.read.limits import Watch
from tidewheel.read.wanted import Wanted

if TYPE_CHECKING:
    from tidewheel.read.damage import Damage

k = later("tidewheel.read.kernels")
coordinates = later("tidewheel.read.coordinates.kernels")

Matrix = npt.NDArray[np.int64]


_LARGE_BOX = 1 << 12
"""Rows found of a box from which on the coordinates of its leaves are looked at: of fewer, the rows are asked sooner."""

MANY_HOLES = 32
"""Steps of the masks over one piece from which on its rows are sieved; with fewer it is asked for each interval that they leave."""


class _Scratch(threading.local):
    """Room for segments, per thread, so that a small query allocates nothing."""

    def __init__(self) -> None:
        self.segments = np.empty((8192, 4), np.int64)
        self.todo = np.empty((1024, 3), np.int64)


_scratch = _Scratch()


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """Numbers of the stored columns in which chunks of this table have key and time codes."""

    key: int
    time: int


@dataclass(frozen=True, slots=True)
class Era:
    """The generations after < g <= upto."""

    after: int
    upto: int
    column: int
    """The stored column in which a chunk has them, if it does."""

    def meets(self, pieces: Matrix) -> npt.NDArray[np.bool_]:
        """A mask of the pieces that can have rows of these generations."""
        some: npt.NDArray[np.bool_] = (pieces[:, GENERATION_HI] > self.after) & (pieces[:, GENERATION_LO] <= self.upto)
        return some

    def cuts(self, pieces: Matrix) -> npt.NDArray[np.bool_]:
        """A mask of the pieces that can have rows of other generations."""
        some: npt.NDArray[np.bool_] = (pieces[:, GENERATION_LO] <= self.after) | (pieces[:, GENERATION_HI] > self.upto)
        return some


@dataclass(slots=True)
class Found:
    """Segments of one query, and the version that keeps what they point to."""

    version: Version
    pieces: Matrix
    segments: Matrix
    """(piece, position, length, check) each."""
    considered: int
    leaves_read: int = 0
    leaves_skipped: int = 0
    rows_scanned: int = 0
    rows: int = 0
    """Rows in the segments; an upper limit as long as some are to be checked."""
    longest: int = 0
    """Rows of the longest segment that could be returned as a slice."""
    doubtful: int = 0
    """Segments whose rows must be checked by value."""
    null_columns: int = 0
    """Columns of pieces that have nulls, if their number is known; else 1."""
    near: int = 0
    """Pieces from this number on are chunks that are not mapped; `read.remote_scan` loads what is read of them."""
    kept: Sequence[MappedChunk | None] = ()
    """By piece, the mappings of the chunks before: their addresses are good for as long as these are held."""
    held: Mapping[int, Holder] = field(default_factory=dict)
    """By piece, what was loaded of chunks that are not mapped: pieces point into its memory."""
    _nulls: list[bool] | None = None

    def nulls(self) -> list[bool]:
        """Per column: some piece has nulls in it."""
        if self._nulls is None and not self.null_columns:
            self._nulls = [False] * ((self.pieces.shape[1] - COLUMNS) // SLOTS)
        if self._nulls is None:
            self._nulls = (self.pieces[:, COLUMNS + VALIDITY :: SLOTS] != 0).any(axis=0).tolist()
        return self._nulls

    def holder(self, piece: int) -> Holder:
        found = self.held.get(piece) or (self.kept[piece] if piece < len(self.kept) else None)
        return found or holder(self.version, self.pieces[piece])

    def far(self, piece: int) -> FarChunk:
        """The chunk behind a piece from `near` on."""
        return self.version.chunks.holders[int(self.pieces[piece, INDEX])].far()


def holder(version: Version, row: npt.NDArray[np.int64]) -> Holder:
    """The chunk or run behind a selected descriptor."""
    source, index = int(row[SOURCE]), int(row[INDEX])
    if source == 0:
        return version.chunks.holders[index]
    return version.trees[source - 1].holders[index]


def find(
    version: Version,
    keys: Wanted,
    t0: int,
    t1: int,
    stored: StoredColumns,
    watch: Watch,
    damage: Damage | None = None,
    era: Era | None = None,
    corners: Callable[[], Matrix | None] | None = None,
) -> Found:
    """All segments that can hold rows of the query.

    With `era`, only rows that came with its generations: that is decided here, for each row. `corners` says the codes of a box of a
    z-order key (`read.coordinates.corner_codes`): leaves outside of it are left out, and rows of leaves inside need no check.

    Raises CorruptionError if something it needs is damaged; with `damage`, notes it there and leaves its rows out.
    """
    trees = version.trees
    considered = version.chunks.count + sum(tree.count for tree in trees)
    if keys.is_empty or t0 > t1 or not considered:
        return Found(version, version.chunks.matrix[:0], _NO_SEGMENTS, considered)

    # 1. the pieces whose region meets the query
    pieces = np.empty((considered, version.chunks.matrix.shape[1]), np.int64)
    chosen, slots, klo, khi = keys.within(version, t0, t1)
    if chosen is None:
        count = k.select(version.chunks.matrix, version.chunks.count, 0, slots, klo, khi, t0, t1, pieces, 0)
    else:
        count = k.select(chosen, len(chosen), 0, slots, klo, khi, t0, t1, pieces, 0)
        pieces[:count, INDEX] = chosen[pieces[:count, INDEX], INDEX]
    for number, tree in enumerate(trees):
        count = k.select(tree.matrix, tree.count, number + 1, slots, klo, khi, t0, t1, pieces, count)
    if era is not None:
        kept = pieces[:count][era.meets(pieces[:count])]
        count = len(kept)
        pieces[:count] = kept
    if version.hidden and count:
        pieces, count = _seen(version, version.hidden, pieces, count, watch)
    if damage is not None:
        count = damage.sift(pieces, count)
    mappings, near = _open_all(version, pieces, count, watch)
    if version.hidden and near < count:  # what is not mapped cannot be sieved: it is asked for each interval that the masks leave
        pieces = np.concatenate([pieces[:near], *version.hidden.cut(pieces[near:count])])
        count = len(pieces)

    # 2. their segments: one call for all that are mapped or in memory, one for each of the others
    mode = keys.check
    segments, stats = _segments(version, pieces, near, klo, khi, mode, stored, watch, damage, corners)
    sieved = version.hidden.touches(pieces[:near]) if version.hidden else None
    if sieved is not None and sieved.any():
        segments = _sieved(version, pieces, segments, sieved, stored, watch, damage)
    if era is not None and era.cuts(pieces[:near]).any():
        segments = _of_era(version, pieces, segments, era, watch, damage)
    far = [segments]
    for q in range(near, count):
        watch.check()
        number, coder = int(pieces[q, INDEX]), int(pieces[q, CODER])
        chunk = version.chunks.holders[number].far()
        try:
            probe = chunk.probe(pieces[q], klo[coder], khi[coder], mode, damage.lost(number) if damage is not None else None)
            one = probe.row.reshape(1, -1)
            more, counts = _segments(version, one, 1, klo, khi, mode, stored, watch, damage, corners)
            if era is not None and era.cuts(one).any() and len(more):
                more = more if damage is None else damage.cut(one, more)
                probe = chunk.with_generations(probe, more[:, 1], more[:, 2])
                more = _of_era(version, probe.row.reshape(1, -1), more, era, watch, None)
        except CorruptionError as e:
            if damage is None:
                raise
            damage.note(number, e)
            continue
        more[:, 0] = q
        far.append(more)
        longest = max(stats[k.LONGEST], counts[k.LONGEST])
        stats += counts
        stats[k.LONGEST] = longest
    segments = np.concatenate(far) if len(far) > 1 else segments
    read, skipped, scanned, _, rows, longest, doubtful, nulls = stats.tolist()
    if damage is not None:
        segments = damage.cut(pieces, segments)
    if damage is not None or era is not None or sieved is not None:
        rows, doubtful = int(segments[:, 2].sum()), int(segments[:, 3].sum())
    return Found(
        version,
        pieces[:count],
        segments,
        considered,
        read,
        skipped,
        scanned,
        rows,
        longest,
        doubtful,
        nulls + count - near,
        near,
        mappings,
    )


def _segments(
    version: Version,
    pieces: Matrix,
    count: int,
    klo: Matrix,
    khi: Matrix,
    mode: int,
    stored: StoredColumns,
    watch: Watch,
    damage: Damage | None,
    corners: Callable[[], Matrix | None] | None,
) -> tuple[Matrix, npt.NDArray[np.int64]]:
    """Scan some pieces and verify the blocks that this touches. Returns the segments and what was counted."""
    room, todo = _scratch.segments, _scratch.todo
    stats = np.zeros(k.STATS, np.int64)
    n = k.scan(pieces, count, klo, khi, mode, stored.key, stored.time, room, stats, todo)
    while n < 0 or stats[k.PENDING] > len(todo):
        if n < 0:
            room = np.empty((4 * len(room), 4), np.int64)
        if stats[k.PENDING] > len(todo):
            todo = np.empty((int(stats[k.PENDING]), 3), np.int64)
        stats[:] = 0
        n = k.scan(pieces, count, klo, khi, mode, stored.key, stored.time, room, stats, todo)
    if stats[k.PENDING]:
        verify(version, pieces, todo[: stats[k.PENDING]], watch, damage)
    found = room[:n].copy()
    if klo.shape[1] > 1 and mode != ALL:  # others rely on rising positions
        found = found[np.argsort(found[:, 0] << 32 | found[:, 1], kind="stable")]  # which gains from runs that rise already
    if corners is not None and stats[k.ROWS_FOUND] >= _LARGE_BOX and (codes := corners()) is not None:
        found = _in_box(pieces, found, codes, stats)
    return found, stats


def _in_box(pieces: Matrix, segments: Matrix, corners: Matrix, stats: npt.NDArray[np.int64]) -> Matrix:
    """The segments without the leaves outside of a box; those of leaves inside are not to be checked. What was counted is made right."""
    room = np.empty((2 * len(segments) + 1024, 4), np.int64)
    while (n := coordinates.in_box(pieces, segments, corners, room, stats)) < 0:
        room = np.empty((4 * len(room), 4), np.int64)
    return room[:n]


def _sieved(
    version: Version,
    pieces: Matrix,
    segments: Matrix,
    sieved: npt.NDArray[np.bool_],
    stored: StoredColumns,
    watch: Watch,
    damage: Damage | None,
) -> Matrix:
    """The segments without the rows of these pieces that masks hide."""
    if damage is not None:
        segments = damage.cut(pieces, segments)
    verify_column(version, pieces, segments[sieved[segments[:, 0]]], stored.time, watch, damage)
    edges, tops, _ = version.hidden.steps
    rows = int(segments[sieved[segments[:, 0]], 2].sum())
    room = np.empty((2 * len(segments) + 1024 + min(rows, _AT_ONCE), 4), np.int64)  # every other row may be hidden
    while (n := k.by_time(pieces, segments, sieved, edges, tops, room)) < 0:
        watch.check()
        room = np.empty((4 * len(room), 4), np.int64)
    return room[:n]


def verify_column(version: Version, pieces: Matrix, looked_at: Matrix, column: int, watch: Watch, damage: Damage | None) -> None:
    """Check the blocks of a stored column that these segments lie in."""
    todo, number = _scratch.todo, np.array([column], np.int64)
    while n := k.unverified(pieces, looked_at, number, todo):
        verify(version, pieces, todo[:n], watch, damage)
        if damage is not None and damage.grown:  # all of this will be done again
            break


def _of_era(version: Version, pieces: Matrix, segments: Matrix, era: Era, watch: Watch, damage: Damage | None) -> Matrix:
    """The segments without rows of other generations; of pieces that have no such rows, nothing is looked at."""
    if damage is not None:
        segments = damage.cut(pieces, segments)
    verify_column(version, pieces, segments[era.cuts(pieces)[segments[:, 0]]], era.column, watch, damage)
    room = np.empty((2 * len(segments) + 1024, 4), np.int64)
    while (n := k.by_generation(pieces, segments, era.after, era.upto, room)) < 0:
        room = np.empty((4 * len(room), 4), np.int64)
    return room[:n]


_AT_ONCE = 1 << 20
"""Rows that are sieved in one go whatever is hidden of them. Memory that is not written to costs nothing."""

_NO_SEGMENTS: Matrix = np.empty((0, 4), np.int64)


def _seen(version: Version, hidden: Hidden, pieces: Matrix, count: int, watch: Watch) -> tuple[Matrix, int]:
    """The pieces without the times that masks hide. Those with many holes stay whole: their rows are sieved, once they are found."""
    holes = hidden.holes(pieces[:count])
    if not holes.any():
        return pieces, count
    sieved = holes > MANY_HOLES
    for q in np.flatnonzero(sieved).tolist():
        sieved[q] = pieces[q, SOURCE] or version.chunks.holders[int(pieces[q, INDEX])].can_be_mapped
    portions = []
    for portion in hidden.cut(pieces[:count], sieved):
        watch.check()
        portions.append(portion)
    seen = portions[0] if len(portions) == 1 else np.concatenate(portions)
    return seen, len(seen)


def _open_all(version: Version, pieces: Matrix, count: int, watch: Watch) -> tuple[list[MappedChunk | None], int]:
    """Complete the descriptors of chunks that are not open, and hold on to the mappings of all. Those for which there is no mapping go to
    the end. Returns the mappings by piece, and how many pieces can be scanned where they are.
    """
    holders = version.chunks.holders
    kept: list[MappedChunk | None] = [None] * count
    asked = pieces[:count, [SOURCE, INDEX, OPEN]].tolist()
    for q, (source, index, opened) in enumerate(asked):
        if source == 0 and opened:
            mapped = holders[index].mapped
            if mapped is not None and mapped.number == opened:
                mapped.used = True
                kept[q] = mapped
            else:
                pieces[q, OPEN] = 0  # let go of since the row was filled in: its addresses are of nothing
    near, fresh, allowed = count, 0, 0
    while (q := k.closed(pieces, near)) >= 0:
        watch.check()
        index = int(pieces[q, INDEX])
        chunk = holders[index]
        mapped = None
        if chunk.can_be_mapped:
            allowed = allowed or max(1, chunk.most // 4)
            # a query that touches more chunks than can be mapped must not drive out what all others use
            mapped = chunk.enter(version.chunks.matrix[index], displace=fresh < allowed)
            fresh = fresh + 1 if mapped is not None else allowed  # nor go on to do so where it makes no room: it holds them all itself
        row = chunk.region if mapped is None else mapped.row
        coder = pieces[q, CODER]  # the query's own numbering
        pieces[q, :SOURCE] = row[:SOURCE]
        pieces[q, CODER] = coder
        pieces[q, COLUMNS:] = row[COLUMNS:]
        kept[q] = mapped
        if mapped is None:
            near -= 1
            pieces[[q, near]] = pieces[[near, q]]
            kept[q], kept[near] = kept[near], None
    return kept, near


def verify(version: Version, pieces: Matrix, todo: Any, watch: Watch, damage: Damage | None) -> None:
    """Check the blocks a query touches for the first time; raises CorruptionError, or notes what is damaged."""
    holders = version.chunks.holders  # only chunks have anything to verify
    numbers = pieces[todo[:, 0], INDEX].tolist()
    for number, (_, column, block) in zip(numbers, todo.tolist(), strict=True):
        watch.check()
        try:
            holders[number].verify(column, block)
        except CorruptionError as e:
            if damage is None:
                raise
            damage.note(number, e)
