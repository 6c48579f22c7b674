"""Rows in the order in which they were inserted, as far as one key and one time are concerned: older pieces first.

Within a piece, rows of one key and one time lie in that order already. Chunks mostly stand in it as well, and all of them before what is
in memory; where they do not (a bulk load beside a tree that is older), pieces are read in groups that do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidewheel.model.pieces import GENERATION_HI
from tidewheel.read.last.needed_pieces import with_last_rows
from tidewheel.read.latest import last_rows
from tidewheel.read.limits import Watch
from tidewheel.read.materialise import Columns, copy
from tidewheel.read.planner import Scan
from tidewheel.read.rows import parts_of, rows_of
from tidewheel.read.scan import Matrix

if TYPE_CHECKING:
    from tidewheel.read.filters.program import Program

_WIDER = 3
"""Times as many columns as tell which rows are the last, from which on it pays to look at these first."""

_PLACE = [pa.field("·piece", pa.int64()), pa.field("·position", pa.int64())]


def aged_rows(
    scan: Scan, columns: Columns, size: int, watch: Watch, enough: int | None = None, program: Program | None = None
) -> Iterator[pa.RecordBatch]:
    """Like `rows_of`."""
    for part in _groups(scan):
        yield from rows_of(part, columns, size, watch, enough, program)


def last_aged_rows(
    scan: Scan, columns: Columns, size: int, watch: Watch, enough: int | None = None, program: Program | None = None
) -> Iterator[pa.RecordBatch]:
    """Of each key the last row alone, where that can be told by key and time before anything else is read; else as `aged_rows`, of
    pieces that can have a last row."""
    spec = scan.planner.spec
    scan = with_last_rows(scan, watch, program)
    found = scan.found
    told_by = scan.planner.columns(list(dict.fromkeys((*spec.key.columns, spec.time.column))))
    if program is not None or found.near < len(found.pieces) or len(columns.numbers) < _WIDER * len(told_by.numbers):
        yield from aged_rows(scan, columns, size, watch, enough, program)
        return
    schema = pa.schema([*told_by.schema, *_PLACE])
    last = last_rows(_places(scan, told_by, schema, size, watch), schema, spec, watch)
    watch.held = 0
    if last:
        pieces, positions = (np.asarray(last[0].column(field.name)) for field in _PLACE)
        order = np.lexsort((positions, pieces))
        ones = np.ones(len(order), np.int64)
        segments = np.stack([pieces[order], positions[order], ones, 0 * ones], axis=1)
        yield from rows_of(_part(scan, segments), columns, size, watch)


def _places(scan: Scan, columns: Columns, schema: pa.Schema, size: int, watch: Watch) -> Iterator[pa.RecordBatch]:
    """Some columns of all rows, and where each row lies."""
    for group in _groups(scan):
        for found, segments in parts_of(group, columns, size, watch):
            watch.held = 0
            batch = copy(found, segments, columns, watch)
            lengths = segments[:, 2]
            starts = np.repeat(segments[:, 1] - np.cumsum(lengths) + lengths, lengths)
            places = np.repeat(segments[:, 0], lengths), starts + np.arange(batch.num_rows)
            yield pa.record_batch([*batch.columns, *map(pa.array, places)], schema=schema)


def _groups(scan: Scan) -> Iterator[Scan]:
    """The scan, in parts whose pieces stand in the order of their generations."""
    found = scan.found
    order = np.argsort(found.pieces[:, GENERATION_HI], kind="stable")
    ends = np.flatnonzero(order[1:] < order[:-1]) + 1
    if not len(ends):
        yield scan
        return
    for group in np.split(order, ends):
        yield _part(scan, found.segments[np.isin(found.segments[:, 0], group)])


def _part(scan: Scan, segments: Matrix) -> Scan:
    part = replace(scan.found, segments=segments, rows=int(segments[:, 2].sum()), doubtful=int(segments[:, 3].sum()))
    return Scan(scan.planner, part, scan.keys, scan.time, scan.check, scan.damage)
