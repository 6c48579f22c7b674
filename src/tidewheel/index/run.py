"""A run: one accepted batch (or the part of it that one indexing server owns), immutable, ordered by leaf.

The rows themselves stay where they arrived; a run adds a permutation and the leaves' starts. A batch too small to be
worth that is a run with one leaf, which a query scans as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.index.kernels import pick, route, sort_by_leaf, survey
from tidewheel.index.template import Template
from tidewheel.model.codes import Codes
from tidewheel.model.pieces import (
    COLUMNS, GENERATION, LEAVES, Row, Shape,
)  # fmt: skip
from tidewheel.model.times import INT64_MIN

RowNumbers = npt.NDArray[np.uint32]
EVERY_ROW: RowNumbers = np.empty(0, np.uint32)

ONE_LEAF = np.array([INT64_MIN], np.int64)
"""The bounds of a run that is not divided."""

SMALL = 4
"""A batch with fewer than a SMALLth row per leaf is not put in leaf order: scanning it costs less than its leaf starts."""


class Batch:
    """A batch with its codes, as the dispatcher hands it to the indexing servers."""

    __slots__ = ("bytes", "codes", "data", "times")

    def __init__(self, data: pa.RecordBatch, codes: Codes, times: Codes, size: int) -> None:
        self.data = data
        self.codes = codes
        self.times = times
        self.bytes = size


class Run:
    """Immutable once made, but for its generation, which is set when it is published."""

    __slots__ = ("arrays", "batch", "bytes", "codes", "generation_hi", "generation_lo", "level", "row", "row_numbers", "rows", "template", "times")

    batch: pa.RecordBatch

    def __init__(
        self, source: Batch, rows: RowNumbers, template: Template, coder: int, shape: Shape, level: int = 0, whole: bool = False
    ) -> None:
        n = source.data.num_rows
        some = len(rows) > 0
        count = len(rows) if some else n
        self.batch = source.data
        self.codes = source.codes
        self.times = source.times
        self.row_numbers = rows
        self.rows = count
        self.template = template
        self.level = level
        self.bytes = source.bytes * count // n
        self.generation_lo = self.generation_hi = 0
        keys, times = source.codes.ctypes.data, source.times.ctypes.data
        region = np.empty(5, np.int64)
        survey(keys, times, n, rows, region)
        self.row: Row = np.zeros(shape.width, np.int64)
        row = self.row
        shape.describe(source.data, row)
        if count * SMALL < template.leaves and not whole:
            self.arrays: Any = np.array([0, count], np.uint32)
            leaves, bounds, starts, perm = 1, ONE_LEAF.ctypes.data, self.arrays.ctypes.data, rows.ctypes.data if some else 0
        else:
            # one allocation holds both: the permutation, then the starts
            self.arrays = np.empty(count + template.leaves + 1, np.uint32)
            leaf = np.empty(count, np.uint16)
            if some:
                picked = np.empty(count, np.int64)
                pick(keys, n, rows, picked)
                route(template.nodes, template.depth, picked.ctypes.data, count, leaf)
            else:
                route(template.nodes, template.depth, keys, n, leaf)
            sort_by_leaf(leaf, rows, self.arrays[count:], self.arrays[:count])
            perm = self.arrays.ctypes.data
            leaves, bounds, starts = template.leaves, template.address, perm + 4 * count
        kmin, kmax, tmin, tmax, ordered = region.tolist()
        # one assignment: setting the numbers one by one costs as much as sorting a thousand rows
        row[:COLUMNS] = (
            count, 1, coder, 0, kmin, kmax, tmin, tmax, keys, times, leaves, starts, bounds, perm, 0, ordered, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        )  # fmt: skip

    @property
    def is_small(self) -> bool:
        """Not in leaf order."""
        return int(self.row[LEAVES]) != self.template.leaves

    @property
    def coalesces(self) -> bool:
        """Few enough rows to be merged with others like it."""
        return self.rows * 2 < self.template.leaves

    def publish(self, generation: int) -> None:
        """Called once, under the table's lock, before any reader can see the run."""
        self.generation_lo = self.generation_hi = generation
        self.row[GENERATION] = generation

    def own_rows(self) -> tuple[pa.RecordBatch, Codes, Codes]:
        """This run's rows by themselves, in order of arrival."""
        if not len(self.row_numbers):
            return self.batch, self.codes, self.times
        return self.batch.take(pa.array(self.row_numbers)), self.codes[self.row_numbers], self.times[self.row_numbers]


def coalesce(runs: list[Run], template: Template, coder: int, shape: Shape) -> Run:
    """One run that holds the rows of several, in the order given. It covers all their generations."""
    parts = [run.own_rows() for run in runs]
    data = pa.Table.from_batches([p[0] for p in parts]).unify_dictionaries().combine_chunks().to_batches()[0]
    same = all(run.template.coder is template.coder for run in runs)
    codes = np.concatenate([p[1] for p in parts]) if same else template.coder.encode(data)
    times = np.concatenate([p[2] for p in parts])
    run = Run(Batch(data, codes, times, sum(r.bytes for r in runs)), EVERY_ROW, template, coder, shape, level=1 + max(r.level for r in runs))
    run.generation_lo = min(r.generation_lo for r in runs)
    run.generation_hi = max(r.generation_hi for r in runs)
    run.row[GENERATION] = run.generation_hi
    return run
