"""Arrange a tree for its chunk: all rows of its runs in leaf order, and inside a leaf in time order.

Rows are scattered: read in order of arrival, written to their place. That is twice as fast as gathering them, because
a leaf's rows of one run land next to each other. Pure: a sealed tree in, arrays out; nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.chunk.format import Leaves
from tidewheel.index.run import Run
from tidewheel.index.template import Template
from tidewheel.index.tree import TreeView
from tidewheel.model.codes import Codes, integer_codes
from tidewheel.model.pieces import BITS, COLUMNS, FIXED, KEYS, OTHER, SLOTS, TIMES, VALIDITY, VALUES, VAR64, Shape
from tidewheel.write import kernels as k


@dataclass(frozen=True, slots=True)
class Arranged:
    """A chunk's content before it is a file."""

    batch: pa.RecordBatch
    codes: Codes
    times: Codes
    leaves: Leaves
    generations: tuple[int, int]
    batches: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """Where every row of every run goes."""

    runs: npt.NDArray[np.int64]
    bases: npt.NDArray[np.int64]
    place: npt.NDArray[np.uint32]
    rows: int


def arrange(view: TreeView, template: Template, coder: int, shape: Shape, leaf_rows: int, zoned: tuple[str, ...]) -> Arranged:
    runs = [_routed(run, template, coder, shape) for run in view.holders[: view.count]]
    matrix = np.array([run.row for run in runs])
    sizes = [run.batch.num_rows for run in runs]
    bases = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rows = sum(run.rows for run in runs)
    starts = np.empty(template.leaves + 1, np.int64)
    place = np.full(bases[-1], k.ELSEWHERE, np.uint32)
    k.places(matrix, bases, starts, place)
    times = np.empty(rows, np.int64)
    k.scatter_codes(matrix, TIMES, bases, place, times)
    moved = np.empty(rows, np.uint32)
    if k.order_by_time(times, starts, moved):
        k.move(place, moved)
        k.scatter_codes(matrix, TIMES, bases, place, times)
    codes = np.empty(rows, np.int64)
    k.scatter_codes(matrix, KEYS, bases, place, codes)

    plan = _Plan(matrix, bases, place, rows)
    schema = runs[0].batch.schema
    columns = [_column(plan, runs, c, shape) for c in range(len(schema))]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    spans = sorted((run.generation_lo, run.generation_hi) for run in runs)
    return Arranged(batch, codes, times, _leaves(starts, template, leaf_rows, codes, times, batch, zoned), *_generations(spans))


def _routed(run: Run, template: Template, coder: int, shape: Shape) -> Run:
    """The run in leaf order under this template: as it is if it was routed by it, else routed again."""
    if run.template is template and not run.is_small:
        return run
    again = Run(run.source.coded_by(template.coder, shape), run.row_numbers, template, coder, whole=True)
    again.generation_lo, again.generation_hi = run.generation_lo, run.generation_hi
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


def _leaves(
    starts: Codes, template: Template, leaf_rows: int, codes: Codes, times: Codes, batch: pa.RecordBatch, zoned: tuple[str, ...]
) -> Leaves:
    most = template.leaves + len(codes) // leaf_rows + 1
    out_starts = np.empty(most + 1, np.uint32)
    out_bounds = np.empty(most, np.int64)
    n = k.cut_leaves(starts, template.bounds, leaf_rows, out_starts, out_bounds)
    out_starts, out_bounds = out_starts[: n + 1].copy(), out_bounds[:n].copy()
    zones = np.empty((4, n), np.int64)
    k.zone_map(codes, out_starts, zones[0], zones[1])
    k.zone_map(times, out_starts, zones[2], zones[3])
    first, last = int(zones[2].min()), int(zones[3].max())
    width = (last - first) // 64 + 1
    masks = np.empty(n, np.uint64)
    k.time_masks(times, out_starts, first, width, masks)
    more = np.empty((len(zoned), 2, n), np.int64)
    for z, column in enumerate(zoned):
        k.zone_map(_order_codes(batch.column(column)), out_starts, more[z, 0], more[z, 1])
    return Leaves(out_starts, out_bounds, zones, masks, np.ones(n, np.uint8), more, first, width)


def _order_codes(array: pa.Array) -> Codes:
    """Codes of a z-order coordinate: as integers, or floats by their bits."""
    if not pa.types.is_floating(array.type):
        return integer_codes(array)
    bits = (np.asarray(array, np.float64) + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))


def _column(plan: _Plan, runs: list[Run], c: int, shape: Shape) -> pa.Array:
    kind, width = shape.kinds[c], shape.widths[c]
    type_ = runs[0].batch.schema.field(c).type
    slot = COLUMNS + SLOTS * c
    if kind == OTHER:
        return _arrow_column(plan, runs, c)
    validity = _bits(plan, slot, VALIDITY) if plan.runs[:, slot + VALIDITY].any() else None
    if kind == BITS:
        return pa.Array.from_buffers(type_, plan.rows, [validity, _bits(plan, slot, VALUES)])
    if kind == FIXED:
        return pa.Array.from_buffers(type_, plan.rows, [validity, _fixed(plan, slot, width)])
    wide = kind == VAR64
    ends = np.empty(plan.rows + 1, np.int64)
    total = k.var_lengths(plan.runs, slot, int(wide), plan.bases, plan.place, ends)
    data = pa.allocate_buffer(total)
    k.scatter_bytes(plan.runs, slot, int(wide), plan.bases, plan.place, ends, np.frombuffer(data, np.uint8))
    offsets = ends if wide else ends.astype(np.int32)
    return pa.Array.from_buffers(type_, plan.rows, [validity, pa.py_buffer(offsets), data])


_SCATTER = {1: (np.uint8, k.scatter1), 2: (np.uint16, k.scatter2), 4: (np.uint32, k.scatter4), 8: (np.uint64, k.scatter8)}


def _fixed(plan: _Plan, slot: int, width: int) -> pa.Buffer:
    out = pa.allocate_buffer(plan.rows * width)  # from Arrow's pool: fresh pages would have to be faulted in
    if width in _SCATTER:
        dtype, scatter = _SCATTER[width]
        scatter(plan.runs, slot, plan.bases, plan.place, np.frombuffer(out, dtype))
    else:
        k.scatter_wide(plan.runs, slot, plan.bases, plan.place, width, np.frombuffer(out, np.uint8))
    return out


def _bits(plan: _Plan, slot: int, which: int) -> pa.Buffer:
    flags = np.empty(plan.rows, np.uint8)
    k.scatter_bits(plan.runs, slot, which, plan.bases, plan.place, flags)
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _arrow_column(plan: _Plan, runs: list[Run], c: int) -> pa.Array:
    """Types that kernels do not know are left to Arrow."""
    order = np.empty(plan.rows, np.int64)
    k.invert(plan.place, order)
    parts = pa.chunked_array([run.batch.column(c) for run in runs], runs[0].batch.schema.field(c).type)
    parts = parts.unify_dictionaries()
    whole = pa.concat_arrays(parts.chunks) if parts.num_chunks != 1 else parts.chunk(0)
    taken = whole.take(pa.array(order))
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken
