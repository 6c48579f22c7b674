"""Totals of what a scan found, where it lies: one pass over the values, no row is copied."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidewheel.model.conditions import Condition
from tidewheel.model.loading import later
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.read.boxes_decided import box_program
from tidewheel.read.limits import Watch
from tidewheel.read.planner import Scan
from tidewheel.read.rows import halved, parts_of
from tidewheel.read.totals.sums import ColumnTotals, Sums, Totals
from tidewheel.read.two_threads import cores, halves

if TYPE_CHECKING:
    from tidewheel.read.filters.program import Program

k = later("tidewheel.read.totals.kernels")
filtered = later("tidewheel.read.totals.filtered.kernels")

MOST_ROWS = 1 << 20
"""Rows between two looks at the clock."""


SHARED_ROWS = 1 << 20
"""Rows from which on two threads share them, if they are asked a condition. To add all of them up is bound by the memory's speed."""


def folded(scan: Scan, totals: Totals, watch: Watch, program: Program | None = None, condition: Condition | None = None) -> pa.RecordBatch:
    """The totals of all rows of a scan, if there is a way to fold them; with the program of a condition, of those where it is true."""
    boxed = box_program(scan, condition)
    program = program if boxed is None else boxed
    made = partial(_folded, totals=totals, program=program, open_=boxed is not None)
    if program is None or scan.found.rows < SHARED_ROWS or cores() < 2:
        return made(scan, watch=watch).answer()
    first, second = halved(scan)
    one, other = halves(lambda watch: made(first, watch=watch), lambda watch: made(second, watch=watch), watch)
    one.join(other)
    return one.answer()


def _folded(scan: Scan, totals: Totals, program: Program | None, open_: bool, watch: Watch) -> Sums:
    asked = totals.folds
    assert asked is not None
    columns = scan.planner.columns(totals.reads)
    looked = columns if program is None else scan.planner.columns(list(dict.fromkeys((*totals.reads, *program.reads))))
    found = np.array([(0, 0, 0, INT64_MAX, INT64_MIN, 0)] * len(asked), np.int64).reshape(-1, k.WHOLES)
    floats = np.array([(0.0, math.inf, -math.inf)] * len(asked)).reshape(-1, k.FLOATS)
    sums = Sums(totals)
    for here, segments in parts_of(scan, looked, MOST_ROWS, watch, open_=open_):
        if program is None:
            sums.rows += int(segments[:, 2].sum())
            k.fold(here.pieces, segments, asked, found, floats)
        else:
            sums.rows += filtered.fold_where(here.pieces, segments, program.steps, program.marked, asked, found, floats)
    for column, type_, wholes, numbers in zip(totals.reads, columns.types, found.tolist(), floats.tolist(), strict=True):
        told = _floats(wholes, numbers) if pa.types.is_floating(type_) else _wholes(wholes, 1 << 63 if pa.types.is_uint64(type_) else 0)
        sums.add_values(column, told)
    return sums


def _wholes(found: list[int], base: int) -> ColumnTotals:
    """`base`: what the numbers count from."""
    count, high, low, least, greatest, _ = found
    return ColumnTotals(count, (high << 32) + low + count * base, least + base, greatest + base) if count else ColumnTotals()


def _floats(found: list[int], numbers: list[float]) -> ColumnTotals:
    count, nans = found[0], found[-1]
    total, least, greatest = numbers
    return ColumnTotals(count, total, math.nan if nans == count else least, math.nan if nans else greatest) if count else ColumnTotals()
