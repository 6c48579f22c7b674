"""An answer that was read, and the lines that show it: a grid, or the text of a plan, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter

import pyarrow as pa

from tidewheel.model.figures import counted, duration
from tidewheel.model.query import Stats
from tidewheel.model.visible_text import visible
from tidewheel.read.result import Result
from tidewheel.surfaces.shell import grid

ROWS_KEPT = 10_000
"""Rows of an answer that are kept to be shown. The rest is read and counted: formats other than `table` have all of them."""

PLAN = ["explain_key", "explain_value"]
"""The columns of what EXPLAIN answers."""


@dataclass(frozen=True)
class ShownAnswer:
    schema: pa.Schema
    kept: list[pa.RecordBatch]
    rows: int
    """All of them, kept or not."""

    @cached_property
    def columns(self) -> list[grid.GridColumn]:
        return grid.columns_of(self.schema, self.kept)

    @property
    def is_plan(self) -> bool:
        return list(self.schema.names) == PLAN

    def is_fitting(self, width: int | None) -> bool:
        """Whether every column can be seen."""
        return self.is_plan or grid.fit(self.columns, width).is_whole

    def lines(self, width: int | None, colour: bool = False, rows: int | None = None) -> Iterator[str]:
        """As a grid that is fitted to a width, or as the text of plans; with no more rows than so many."""
        if self.is_plan:
            yield from _plans(self.kept)
        elif self.columns:
            yield from grid.draw(self.columns, grid.fit(self.columns, width), colour, rows)

    def said(self, width: int | None, rows: int | None = None) -> str:
        """The number of rows, and the part of them that is shown."""
        if self.is_plan:
            return ""
        shown = min(self.rows, ROWS_KEPT, self.rows if rows is None else rows)
        parts = [counted(self.rows, "row") + (f", the first {shown:,} shown" if shown < self.rows else "")]
        left_out = grid.fit(self.columns, width).left_out
        if left_out:
            parts.append(f"{len(self.columns) - left_out} of {len(self.columns)} columns shown")
        return " · ".join(parts)


def take(result: Result) -> ShownAnswer:
    """Read a result to its end."""
    kept: list[pa.RecordBatch] = []
    rows = 0
    for batch in result:
        if rows < ROWS_KEPT:
            kept.append(batch.slice(0, ROWS_KEPT - rows))
        rows += batch.num_rows
    return ShownAnswer(result.schema, kept, rows)


def cost(stats: Stats, seconds: float) -> str:
    """The cost of an answer: its duration, and the regions and leaves that were read."""
    parts = [duration(seconds)]
    if stats.regions_considered:
        parts.append(f"{stats.regions_read:,} of {counted(stats.regions_considered, 'region')} read")
        parts.append(f"{counted(stats.leaves_read, 'leaf', 'leaves')} read, {stats.leaves_skipped:,} skipped")
        if stats.rows_scanned:  # the index alone may know
            parts.append(f"{counted(stats.rows_scanned, 'row')} looked at")
    return " · ".join(parts)


class Stopwatch:
    """A stopwatch that runs from its making."""

    def __init__(self) -> None:
        self._began = perf_counter()

    @property
    def seconds(self) -> float:
        return perf_counter() - self._began


def _plans(batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    for batch in batches:
        for row in batch.to_pylist():
            if row[PLAN[0]] == "duckdb":
                yield "duckdb"
            yield from map(visible, row[PLAN[1]].rstrip("\n").split("\n"))
            yield ""
