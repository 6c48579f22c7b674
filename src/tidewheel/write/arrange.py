"""Arrange a tree for its chunk: all rows of its runs in leaf order, and inside a leaf in time order.

Run by run, the rows of a leaf are copied to their place in the chunk: writes ascend, and reads are scattered over one
run only, which fits the cache. A sealed tree goes in, arrays come out; nothing else is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.chunk.format import Leaves
from tidewheel.errors import StorageError
from tidewheel.index.layout import Template
from tidewheel.index.run import Generations, Run
from tidewheel.index.template import leaves_for
from tidewheel.index.tree import TreeView
from tidewheel.model.arrays import take, unified
from tidewheel.model.codes import Codes, integer_codes
from tidewheel.model.loading import later
from tidewheel.model.partitions import Partitions, Widths, rows_by_start
from tidewheel.model.pieces import BITS, COLUMNS, FIXED, KEYS, OTHER, SLOTS, TIMES, VALIDITY, VALUES, VAR64, Shape
from tidewheel.model.times import INT64_MIN

k = later("tidewheel.write.kernels")

MOST_KEPT = 128 << 20
"""Bytes of working memory that are kept from one chunk to the next."""


@dataclass(frozen=True, slots=True)
class Arranged:
    """A chunk's content before it is a file."""

    batch: pa.RecordBatch
    codes: Codes
    times: Codes
    leaves: Leaves
    generations: tuple[int, int]
    batches: tuple[tuple[int, int], ...]
    row_generations: Generations | None
    """The generation of each row, less the first; None if there is only one."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The place of every row of every run in the chunk."""

    runs: npt.NDArray[np.int64]
    bases: npt.NDArray[np.int64]
    place: npt.NDArray[np.uint32]
    rows: int
    room: _Room


class Arranger:
    """Arranges one tree at a time in memory that it keeps: fresh pages would have to be faulted in for every chunk.

    Used by one thread at a time.
    """

    def __init__(self, leaf_rows: int) -> None:
        self.leaf_rows = leaf_rows
        self._room = _Room()

    @contextmanager
    def arrange(self, view: TreeView, template: Template, shape: Shape, zoned: tuple[str, ...]) -> Iterator[Arranged]:
        """The content is valid inside the with-block only: its memory is used again for the next tree."""
        try:
            yield self._arrange(view, template, shape, zoned)
        finally:
            self._room.clear()

    def _arrange(self, view: TreeView, template: Template, shape: Shape, zoned: tuple[str, ...]) -> Arranged:
        room = self._room
        template = template.coarser(leaves_for(view.rows, self.leaf_rows))
        runs = [_routed(run, template, shape) for run in view.holders[: view.count]]
        same = all(a is b for a, b in zip(runs, view.holders, strict=False))
        matrix = view.matrix[: view.count] if same else np.array([run.row for run in runs])
        bases = np.zeros(len(runs) + 1, np.int64)
        np.cumsum([run.rows for run in runs], out=bases[1:])
        rows = int(bases[-1])
        starts = np.empty(template.leaves + 1, np.int64)
        place = room.array(rows, np.uint32)
        k.places(matrix, bases, starts, place)
        bounds = template.bounds
        if (np.diff(starts) > 2 * self.leaf_rows).any():
            starts, bounds = _divided(room, matrix, bases, starts, bounds, place, self.leaf_rows)
        times = room.array(rows, np.int64)
        k.place_columns(matrix, _targets((TIMES, 8, times)), bases, place)
        if k.disordered(times, starts):
            moved = room.array(rows, np.uint32)
            k.order_by_time(times, starts, moved)
            k.move(place, moved)
            k.place_columns(matrix, _targets((TIMES, 8, times)), bases, place)

        codes = room.array(rows, np.int64)
        known = {shape.key_slot: codes, shape.time_slot: times}
        targets = [(KEYS, 8, codes)]
        for c, (kind, width) in enumerate(zip(shape.kinds, shape.widths, strict=True)):
            slot = COLUMNS + SLOTS * c + VALUES
            if kind == FIXED and width in (4, 8) and slot not in known:
                known[slot] = room.array(rows * width, np.uint8)
                targets.append((slot, width, known[slot]))
        k.place_columns(matrix, _targets(*targets), bases, place)

        plan = _Plan(matrix, bases, place, rows, room)
        schema = runs[0].batch.schema
        columns = [_column(plan, runs, c, shape, known) for c in range(len(schema))]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        leaves = leaves_over(starts, bounds, self.leaf_rows, codes, times, batch, zoned)
        generations, batches = _generations(sorted((run.generation_lo, run.generation_hi) for run in runs))
        return Arranged(batch, codes, times, leaves, generations, batches, _row_generations(plan, *generations))


class _Room:
    """Memory handed out piece by piece and taken back all at once. Pieces that are asked for again are the same ones."""

    def __init__(self) -> None:
        self._pieces: list[npt.NDArray[np.uint8]] = []
        self._used = 0

    def array(self, count: int, dtype: Any) -> npt.NDArray[Any]:
        size = count * np.dtype(dtype).itemsize
        if self._used == len(self._pieces):
            self._pieces.append(np.empty(0, np.uint8))
        if len(self._pieces[self._used]) < size:
            self._pieces[self._used] = np.empty(size + size // 8 + 64, np.uint8)
        piece = self._pieces[self._used]
        self._used += 1
        return piece[:size].view(dtype)

    def clear(self) -> None:
        """Take everything back; what an unusually large chunk needed is not kept."""
        self._used = 0
        if sum(map(len, self._pieces)) > MOST_KEPT:
            self._pieces.clear()


def _routed(run: Run, template: Template, shape: Shape) -> Run:
    """The run in leaf order under this template: as it is if it was routed by it, else routed again."""
    if run.template is template and not run.is_small:
        return run
    again = Run(run.source.coded_by(template.coder, shape), run.row_numbers, template, whole=True)
    again.came_with(run.generation_lo, run.generation_hi, run.generations)
    return again


def _generations(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], tuple[tuple[int, int], ...]]:
    """(first, last) generation, and all of them as closed intervals."""
    merged: list[list[int]] = []
    for lo, hi in spans:
        if merged and lo <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], hi)
        else:
            merged.append([lo, hi])
    return (merged[0][0], merged[-1][1]), tuple((a, b) for a, b in merged)


def _row_generations(plan: _Plan, first: int, last: int) -> Generations | None:
    if first == last:
        return None
    out = plan.room.array(plan.rows, np.min_scalar_type(last - first))
    k.place_generations(plan.runs, plan.bases, plan.place, first, out.itemsize, out.ctypes.data)
    return out


def _divided(
    room: _Room, matrix: npt.NDArray[np.int64], bases: Codes, starts: Codes, bounds: Codes, place: npt.NDArray[np.uint32], leaf_rows: int
) -> tuple[Codes, Codes]:
    """Divide what the template left too large by key, as far as keys differ. Returns starts and bounds, and changes `place`."""
    codes, moved = room.array(len(place), np.int64), room.array(len(place), np.uint32)
    k.place_keys(matrix, bases, starts, leaf_rows, place, codes)
    most = len(bounds) + 2 * (len(place) // leaf_rows) + 2
    out_starts, out_bounds = np.empty(most + 1, np.int64), np.empty(most, np.int64)
    n = k.divide_leaves(codes, starts, bounds, leaf_rows, out_starts, out_bounds, moved)
    k.move(place, moved)
    return out_starts[: n + 1], out_bounds[:n]


def leaves_over(
    starts: Codes, bounds: Codes, leaf_rows: int, codes: Codes, times: Codes, batch: pa.RecordBatch, zoned: tuple[str, ...]
) -> Leaves:
    most = len(bounds) + len(codes) // leaf_rows + 1
    out_starts = np.empty(most + 1, np.uint32)
    out_bounds = np.empty(most, np.int64)
    n = k.cut_leaves(starts, bounds, leaf_rows, out_starts, out_bounds)
    out_starts, out_bounds = out_starts[: n + 1].copy(), out_bounds[:n].copy()
    zones = np.empty((4, n), np.int64)
    k.zone_map(codes, out_starts, zones[0], zones[1])
    zones[2], zones[3] = times[out_starts[:-1]], times[out_starts[1:] - 1]  # a leaf is in time order
    first, last = int(zones[2].min()), int(zones[3].max())
    shift = max(0, (last - first).bit_length() - 6)
    masks = np.empty(n, np.uint64)
    k.time_masks(times, out_starts, first, shift, masks)
    more = np.empty((len(zoned), 2, n), np.int64)
    for z, column in enumerate(zoned):
        k.zone_map(_order_codes(batch.column(column)), out_starts, more[z, 0], more[z, 1])
    return Leaves(out_starts, out_bounds, zones, masks, np.ones(n, np.uint8), more, first, 1 << shift)


def _order_codes(array: pa.Array) -> Codes:
    """Codes of a z-order coordinate: as integers, or floats by their bits."""
    if not pa.types.is_floating(array.type):
        return integer_codes(array)
    bits = (np.asarray(array, np.float64) + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))


def _column(plan: _Plan, runs: list[Run], c: int, shape: Shape, known: dict[int, npt.NDArray[Any]]) -> pa.Array:
    kind, width = shape.kinds[c], shape.widths[c]
    type_ = runs[0].batch.schema.field(c).type
    slot = COLUMNS + SLOTS * c
    if slot + VALUES in known:
        validity = _bits(plan, slot, VALIDITY) if plan.runs[:, slot + VALIDITY].any() else None
        return pa.Array.from_buffers(type_, plan.rows, [validity, pa.py_buffer(known[slot + VALUES])])
    if kind == OTHER:
        return _arrow_column(plan, runs, c)
    validity = _bits(plan, slot, VALIDITY) if plan.runs[:, slot + VALIDITY].any() else None
    if kind == BITS:
        return pa.Array.from_buffers(type_, plan.rows, [validity, _bits(plan, slot, VALUES)])
    if kind == FIXED:
        return pa.Array.from_buffers(type_, plan.rows, [validity, _fixed(plan, slot, width)])
    wide = kind == VAR64
    ends = plan.room.array(plan.rows + 1, np.int64)
    total = k.place_ends(plan.runs, slot, int(wide), plan.bases, plan.place, ends)
    if total >= 1 << 31 and not wide:
        name = runs[0].batch.schema.field(c).name
        raise StorageError(f"column {name!r} has more than 2 GB of text in one chunk; use large_string, or smaller chunk_bytes")
    data = plan.room.array(total, np.uint8)
    k.place_bytes(plan.runs, slot, int(wide), plan.bases, plan.place, ends, data)
    offsets = ends if wide else ends.astype(np.int32)
    return pa.Array.from_buffers(type_, plan.rows, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


def _targets(*targets: tuple[int, int, npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """For `place_columns`: (slot, width, where to) of each column."""
    return np.array([(slot, width, out.ctypes.data) for slot, width, out in targets], np.int64)


def _fixed(plan: _Plan, slot: int, width: int) -> pa.Buffer:
    out = plan.room.array(plan.rows * width, np.uint8)
    k.place_wide(plan.runs, slot, plan.bases, plan.place, width, out)
    return pa.py_buffer(out)


def _bits(plan: _Plan, slot: int, which: int) -> pa.Buffer:
    flags = np.empty(plan.rows, np.uint8)
    k.place_bits(plan.runs, slot, which, plan.bases, plan.place, flags)
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _arrow_column(plan: _Plan, runs: list[Run], c: int) -> pa.Array:
    """Types that kernels do not know are left to Arrow."""
    order = np.empty(plan.rows, np.int64)
    batch_bases = np.zeros(len(runs) + 1, np.int64)
    np.cumsum([run.batch.num_rows for run in runs], out=batch_bases[1:])
    k.row_order(plan.runs, plan.bases, batch_bases, plan.place, order)
    parts = pa.chunked_array([run.batch.column(c) for run in runs], runs[0].batch.schema.field(c).type)
    parts = unified(parts)
    whole = pa.concat_arrays(parts.chunks) if parts.num_chunks != 1 else parts.chunk(0)
    return take(whole, order)


def partitions(arranged: Arranged, divided: Partitions) -> tuple[tuple[int, int], ...]:
    """(start of the partition, rows) of every partition a chunk has rows in."""
    zones = arranged.leaves.zones
    first, last = divided.number(int(zones[2].min())), divided.number(int(zones[3].max()))
    if first == last:
        return ((max(divided.start(first), INT64_MIN), len(arranged.times)),)
    if isinstance(divided, Widths) and last - first < 65536:
        counts = np.zeros(last - first + 1, np.int64)
        k.partition_counts(arranged.times, arranged.leaves.starts, first, divided.width, counts)
        return tuple((max(divided.start(first + int(i)), INT64_MIN), int(counts[i])) for i in np.flatnonzero(counts))
    return tuple(rows_by_start(divided, arranged.times).items())


def latest(arranged: Arranged, counts: tuple[tuple[int, int], ...], divided: Partitions) -> tuple[int, ...]:
    """The last generation that came to each of the partitions of `counts`; empty if it is the chunk's last for all of them.

    A chunk spans partitions: without it, one late row would make those that it has only old rows of look changed.
    """
    if len(counts) == 1 or arranged.row_generations is None:
        return ()
    generations = arranged.row_generations.astype(np.int64)
    first, last = divided.number(counts[0][0]), divided.number(counts[-1][0])
    if isinstance(divided, Widths) and last - first < 65536:
        found = np.zeros(last - first + 1, np.int64)
        k.partition_latest(arranged.times, generations, first, divided.width, found)
        found = found[[divided.number(start) - first for start, _ in counts]]
    else:
        _, of_row = np.unique(divided.numbers(arranged.times), return_inverse=True)
        found = np.zeros(len(counts), np.int64)
        np.maximum.at(found, of_row, generations)
    return tuple((found + arranged.generations[0]).tolist())
