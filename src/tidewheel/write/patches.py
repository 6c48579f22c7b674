"""Patches: few rows of a chunk are exchanged, and all others are copied as they stand, in the order that they have.

A chunk is in the order of its leaves, and a leaf in the order of time. So a row that leaves is a gap, a row that comes has one place, and
what lies between two of them is copied as a block: nothing is sorted, routed or encoded again. What is written is a chunk like any other.
Where a chunk would be worse for it (a leaf of many keys grew too large, a code does not tell new keys apart), there is no patch, and
whoever asked writes the rows of the chunk anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.chunk.format import block_count, zoned_columns
from tidewheel.chunk.reader import Mapped
from tidewheel.chunk.writer import Origin, write_chunk
from tidewheel.env.store import WriteOnce
from tidewheel.index.version import ChunkLike, Version
from tidewheel.model.codes import Codes, integer_codes
from tidewheel.model.pieces import OTHER, TMAX, TMIN, Shape
from tidewheel.model.records import ChunkRecord, TableRecord
from tidewheel.model.schema import ColumnKey, TableSpec
from tidewheel.model.times import INT64_MIN

Positions = npt.NDArray[np.int64]

MOST_PIECES = 2048
"""Rows that come to one chunk or leave it. With more, it costs less to write the chunk from its rows."""


@dataclass(slots=True)
class Spot:
    """A chunk, and those of its rows that have one of some keys."""

    chunk: ChunkLike
    held: Mapped
    """Its addresses are good for as long as this is held."""
    first: int
    """The least time of rows that belong here: they may come before the first row, in what lies between two chunks."""
    positions: Positions
    """In rising order."""
    times: Codes
    """Of these rows."""

    def rows(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([column.take(pa.array(self.positions)) for column in self.held.batch.columns], schema=self.schema)

    @property
    def schema(self) -> pa.Schema:
        return self.held.batch.schema

    def only(self, mask: npt.NDArray[np.bool_]) -> Spot:
        """With some of these rows."""
        return Spot(self.chunk, self.held, self.first, self.positions[mask], self.times[mask])


@dataclass(slots=True)
class Patch:
    """What becomes of one chunk: the rows of its spot leave, others come."""

    spot: Spot
    new: pa.RecordBatch


def spots_of(version: Version, spec: TableSpec, shape: Shape, keys: pa.Array, times: Sequence[tuple[int, int]]) -> list[Spot] | None:
    """The chunks that rows of these closed intervals of time belong to, in that order, each with its rows of these keys, at all times.

    None if they cannot be patched: one shares a partition with another chunk, masks hide a part of the table, or there are
    types that kernels do not know.
    All that is looked at is verified: what is copied from here has new checksums.
    """
    chunks = version.chunks
    if not chunks.count or version.hidden or version.trees or OTHER in shape.kinds or not isinstance(spec.key, ColumnKey):
        return None
    matrix = chunks.matrix[: chunks.count]
    order = np.argsort(matrix[:, TMIN], kind="stable")
    opening = spec.partitions.numbers(matrix[order, TMIN])
    closing = spec.partitions.numbers(matrix[order, TMAX])
    shared = np.searchsorted(opening, closing, side="right") - np.searchsorted(np.sort(closing), opening) > 1
    starts = [INT64_MIN, *(max(spec.partitions.start(number), INT64_MIN) for number in opening[1:].tolist())]
    met: set[int] = set()
    for lo, hi in times:
        met.update(range(_at(starts, lo), _at(starts, hi) + 1))
    if shared[sorted(met)].any():
        return None
    found = []
    for n in sorted(met):
        chunk = chunks.holders[int(order[n])]
        held = chunk.enter() if chunk.can_be_mapped else None
        if not isinstance(held, Mapped) or not held.leaves.ordered.all():
            return None
        _verify(chunk, held)
        positions = _positions(chunk, held, spec.key.column, keys)
        found.append(Spot(chunk, held, starts[n], positions, held.times[positions]))
    return found


def _at(starts: Sequence[int], time: int) -> int:
    return int(np.searchsorted(np.array(starts, np.int64), time, side="right")) - 1


def _verify(chunk: ChunkLike, held: Mapped) -> None:
    for column in range(held.stored.num_columns):
        for block in range(block_count(chunk.record.rows)):
            chunk.verify(column, block)


def _positions(chunk: ChunkLike, held: Mapped, column: str, keys: pa.Array) -> Positions:
    """The rows of these keys. Only the leaves that they can be in are looked at."""
    starts, bounds = _groups(held.leaves.starts, held.leaves.bounds)
    codes = chunk.coder.encode(pa.RecordBatch.from_arrays([keys], [column]))
    groups = np.unique(np.maximum(np.searchsorted(bounds, codes, side="right") - 1, 0))
    whole = held.batch.column(column)
    found = [np.zeros(0, np.int64)]  # of no keys at all, as of new rows that make none
    for a, b in zip(starts[groups].tolist(), starts[groups + 1].tolist(), strict=True):
        found.append(a + np.flatnonzero(np.asarray(pc.is_in(whole.slice(a, b - a), value_set=keys))))
    return np.concatenate(found)


def _groups(starts: npt.NDArray[np.uint32], bounds: Codes) -> tuple[Positions, Codes]:
    """(starts, bounds) of leaves as they were before large ones were cut by time: neighbours with one bound are one."""
    first = np.flatnonzero(np.concatenate([[True], bounds[1:] != bounds[:-1]]))
    return np.append(starts[first], starts[-1]).astype(np.int64), np.ascontiguousarray(bounds[first])


def write_patch(
    files: WriteOnce, table: TableRecord, patch: Patch, leaf_rows: int, generation: int
) -> ChunkRecord | bool:  # fmt: skip
    """Write the chunk with the patch. True: no row is left. False: it is to be written from its rows instead; nothing was."""
    from tidewheel.write.arrange import Arranged, leaves_over, partitions  # on first use: its kernels take long to load
    from tidewheel.write.kernels import disordered
    from tidewheel.write.templates import fits

    spot, new, spec = patch.spot, patch.new, table.spec
    chunk, held, record = spot.chunk, spot.held, spot.chunk.record
    if len(spot.positions) + new.num_rows > MOST_PIECES:
        return False
    if record.rows + new.num_rows == len(spot.positions):
        return True
    # 1. the leaf of each new row, and its place in it by time
    old_codes, old_times = held.codes, held.times
    codes, times = chunk.coder.encode(new), integer_codes(new.column(spec.time.column))
    starts, bounds = _groups(held.leaves.starts, held.leaves.bounds)
    group = np.maximum(np.searchsorted(bounds, codes, side="right") - 1, 0)
    order = np.lexsort((times, group))
    new, codes, times, group = new.take(pa.array(order)), codes[order], times[order], group[order]
    places = np.array([
        starts[g] + np.searchsorted(old_times[starts[g] : starts[g + 1]], t, side="right")
        for g, t in zip(group.tolist(), times.tolist(), strict=True)
    ], np.int64)  # fmt: skip
    # 2. blocks of old rows, and new ones between them
    pieces = _pieces(record.rows, spot.positions, places)
    lost = np.searchsorted(starts, spot.positions, side="right") - 1
    came = np.bincount(group, minlength=len(bounds))
    counts = np.diff(starts) - np.bincount(lost, minlength=len(bounds)) + came
    starts = np.concatenate([[0], np.cumsum(counts)])
    all_codes, all_times = _joined(old_codes, codes, pieces), _joined(old_times, times, pieces)
    for g in np.flatnonzero((came > 0) & (counts > 2 * leaf_rows)).tolist():
        some = all_codes[starts[g] : starts[g + 1]]
        if some.min() != some.max():  # it would be divided by key, if it were made now
            return False
    if disordered(all_times, starts):
        return False
    columns = [_concatenated(a, b, pieces) for a, b in zip(held.batch.columns, new.columns, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=spot.schema)
    leaves = leaves_over(starts, bounds, leaf_rows, all_codes, all_times, batch, zoned_columns(spec))
    arranged = Arranged(batch, all_codes, all_times, leaves, (generation, generation), ((generation, generation),), None)
    if not fits(arranged, chunk.coder):
        return False
    # 3. the file
    return write_chunk(files, table, arranged, partitions(arranged, spec.partitions), Origin(record.server, record.late, record.prefix))


Pieces = list[tuple[bool, int, int]]
"""(new, from, to): rows of one side or the other, one after the other."""


def _pieces(rows: int, gone: Positions, places: Positions) -> Pieces:
    """The old rows without those that are gone, and before the row at each place the new one, which come in this order."""
    out: Pieces = []
    at = 0
    events = sorted([(place, 0, n) for n, place in enumerate(places.tolist())] + [(position, 1, 0) for position in gone.tolist()])
    for place, leaves, n in events:
        if place > at:
            out.append((False, at, place))
            at = place
        if leaves:
            at = place + 1
        elif out and out[-1][0] and out[-1][2] == n:
            out[-1] = True, out[-1][1], n + 1
        else:
            out.append((True, n, n + 1))
    if at < rows:
        out.append((False, at, rows))
    return out


def _joined(old: Codes, new: Codes, pieces: Pieces) -> Codes:
    return np.concatenate([(new if is_new else old)[a:b] for is_new, a, b in pieces])


def _concatenated(old: pa.Array, new: pa.Array, pieces: Pieces) -> pa.Array:
    parts = [(new if is_new else old).slice(a, b - a) for is_new, a, b in pieces]
    return pa.concat_arrays([*parts, old.slice(0, 0)])  # never one alone: what is written starts at offset 0
