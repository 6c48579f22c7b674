"""A run: one accepted batch (or the part of it that one indexing server owns), immutable, ordered by leaf.

The rows themselves stay where they arrived; a run adds a permutation and the leaves' starts. A batch too small to be
worth that is a run with one leaf, which a query scans as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.index.layout import Template
from tidewheel.model.arrays import take, take_rows, unified
from tidewheel.model.codes import Codes, KeyCoder, integer_codes
from tidewheel.model.pieces import CODER, GENERATION_HI, GENERATION_LO, GENERATION_WIDTH, GENERATIONS, KEYS, TIMES, Row, Shape

RowNumbers = npt.NDArray[np.uint32]
Generations = npt.NDArray[Any]
"""Unsigned, of any width."""
EVERY_ROW: RowNumbers = np.empty(0, np.uint32)

SMALL = 4
"""A batch with fewer than a SMALLth row per leaf is not put in leaf order: scanning it costs less than its leaf starts."""


class Batch:
    """A batch with its codes, as the dispatcher hands it to the indexing servers. Made once, shared by all its runs."""

    __slots__ = ("_codes", "_times", "bytes", "coder", "data", "row")

    def __init__(self, data: pa.RecordBatch, coder: KeyCoder, shape: Shape) -> None:
        self.data = data
        self.coder = coder
        self.bytes = shape.bytes_of(data)
        self.row: Row = np.zeros(shape.width, np.int64)
        """What all descriptors of its runs have in common."""
        shape.describe(data, self.row)
        # codes that are a column anyway are made into an array only when somebody asks for them
        self._codes = None if shape.key_slot else coder.encode(data)
        self._times = None if shape.time_slot else integer_codes(data.column(shape.time_column))
        self.row[KEYS] = self.row[shape.key_slot] if self._codes is None else self._codes.ctypes.data
        self.row[TIMES] = self.row[shape.time_slot] if self._times is None else self._times.ctypes.data

    @property
    def codes(self) -> Codes:
        if self._codes is None:
            self._codes = self.coder.encode(self.data)
        return self._codes

    def times(self, column: str) -> Codes:
        if self._times is None:
            self._times = integer_codes(self.data.column(column))
        return self._times

    def coded_by(self, coder: KeyCoder, shape: Shape) -> Batch:
        """The same rows with the codes of another coder."""
        return self if coder is self.coder else Batch(self.data, coder, shape)


class Run:
    """Immutable once made, but for its generation, which is set when it is published.

    Merged runs hold rows of several generations; `generations` then has each row's, less the first, in order of arrival.
    """

    __slots__ = (
        "arrays",
        "bytes",
        "generation_hi",
        "generation_lo",
        "generations",
        "is_small",
        "level",
        "row",
        "row_numbers",
        "rows",
        "source",
        "template",
    )

    def __init__(self, source: Batch, rows: RowNumbers, template: Template, level: int = 0, whole: bool = False) -> None:
        n = source.data.num_rows
        count = len(rows) or n
        self.source = source
        self.row_numbers = rows
        self.rows = count
        self.template = template
        self.level = level
        self.bytes = source.bytes * count // n
        self.generation_lo = self.generation_hi = 0
        self.generations: Generations | None = None
        self.is_small = count * SMALL < template.leaves and not whole
        """Not in leaf order."""
        self.row: Row = source.row.copy()
        self.row[CODER] = template.coder.number
        self.arrays: npt.NDArray[np.uint32] = np.empty(2 if self.is_small else count + template.leaves + 1, np.uint32)
        template.route(n, rows, self.arrays, self.row)

    @property
    def batch(self) -> pa.RecordBatch:
        return self.source.data

    @property
    def coder(self) -> KeyCoder:
        return self.source.coder

    @property
    def keys(self) -> pa.Array:
        """The first key column of this run's rows, in order of arrival."""
        column = self.source.data.column(self.source.coder.columns[0])
        return take(column, self.row_numbers) if len(self.row_numbers) else column

    @property
    def coalesces(self) -> bool:
        """Few enough rows to be merged with others like it."""
        return self.rows * 2 < self.template.leaves

    def publish(self, generation: int) -> None:
        """Called once, under the table's lock, before any reader can see the run."""
        self.generation_lo = self.generation_hi = generation
        self.row[GENERATION_LO] = self.row[GENERATION_HI] = generation

    def came_with(self, lo: int, hi: int, generations: Generations | None) -> None:
        """The same for rows that were published before."""
        self.generation_lo, self.generation_hi, self.generations = lo, hi, generations
        self.row[GENERATION_LO], self.row[GENERATION_HI] = lo, hi
        if generations is not None:
            self.row[GENERATIONS], self.row[GENERATION_WIDTH] = generations.ctypes.data, generations.itemsize

    def own_rows(self) -> pa.RecordBatch:
        """This run's rows by themselves, in order of arrival."""
        data = self.source.data
        return take_rows(data, self.row_numbers) if len(self.row_numbers) else data

    def codes_by(self, coder: KeyCoder) -> Codes:
        """The key codes of this run's rows by this coder, in order of arrival."""
        if self.source.coder is not coder:
            return coder.encode(self.own_rows())
        return self.source.codes[self.row_numbers] if len(self.row_numbers) else self.source.codes


def coalesce(runs: list[Run], template: Template, shape: Shape) -> Run:
    """One run that holds the rows of several, in the order given. It covers all their generations."""
    parts = pa.Table.from_batches([run.own_rows() for run in runs])
    (data,) = pa.Table.from_arrays(list(map(unified, parts.columns)), schema=parts.schema).combine_chunks().to_batches()
    run = Run(Batch(data, template.coder, shape), EVERY_ROW, template, level=1 + max(r.level for r in runs))
    lo, hi = min(r.generation_lo for r in runs), max(r.generation_hi for r in runs)
    run.came_with(lo, hi, _generations(runs, lo, hi) if lo < hi else None)
    return run


def _generations(runs: list[Run], lo: int, hi: int) -> Generations:
    """Of the rows of all runs, less the first, in the narrowest type."""
    each = np.repeat(np.array([run.generation_lo - lo for run in runs]), [run.rows for run in runs])
    at = 0
    for run in runs:
        if run.generations is not None:
            each[at : at + run.rows] += run.generations.astype(np.int64)
        at += run.rows
    return each.astype(np.min_scalar_type(hi - lo))
