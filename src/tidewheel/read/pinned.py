"""Tables of this process pinned at versions: one table, or several at versions that were current at one moment."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tidewheel.errors import LimitError
from tidewheel.index.version import ChunkSet, Version
from tidewheel.model.pieces import ROWS, T0, T1
from tidewheel.model.query import Query
from tidewheel.model.schema import TableSpec
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.read.local_result import LocalResult
from tidewheel.read.planner import Planner
from tidewheel.read.shortened import shortened
from tidewheel.read.time_order import ends_of_time

PATIENCE = 5.0
"""Seconds in which a moment must come when no table changes between two looks at all of them. A look takes less than any insert does."""


class PinnedVersion:
    """A version of a table. It holds what it points to, and has the same rows however often it is asked."""

    def __init__(self, planner: Planner, version: Version) -> None:
        self.spec: TableSpec = planner.spec
        self.generation = version.generation
        self.version = version
        self._planner = planner

    @property
    def about(self) -> int:
        """Rows, without a look at those that were replaced."""
        chunks = self.version.chunks
        return int(chunks.matrix[: chunks.count, ROWS].sum()) + sum(tree.rows for tree in self.version.trees)

    @property
    def times(self) -> tuple[int, int] | None:
        """Codes between which all times are; None if there are no rows."""
        return ends_of_time(self.version)

    def query(self, query: Query) -> LocalResult:
        return LocalResult(self._planner, self.version, shortened(self._planner, self.version, query))

    def query_at(self, version: Version, query: Query) -> LocalResult:
        """The answer to a query of another version of the table."""
        return LocalResult(self._planner, version, query)


def split(version: Version) -> tuple[ChunkSet, Version]:
    """The chunks that masks hide nothing of, and the version with only the rest: what must be looked at to know what is seen of it."""
    if not version.hidden:
        return version.chunks, version.of_chunks(ChunkSet(version.chunks.matrix.shape[1]))
    regions = version.chunks.matrix[: version.chunks.count].copy()
    regions[:, [T0, T1]] = INT64_MIN, INT64_MAX
    touched = version.hidden.touches(regions)
    return version.chunks.only(np.flatnonzero(~touched)), version.of_chunks(version.chunks.only(np.flatnonzero(touched)))


def at_one_moment(look: Callable[[], list[Version]]) -> list[Version]:
    """The versions of some tables, all as they were at one moment: whoever inserts into one and then into another is never seen the other
    way round. Two looks that see the same have a moment between them when all was so."""
    give_up = time.monotonic() + PATIENCE
    before = look()
    while len(before) > 1:
        after = look()
        if all(a is b for a, b in zip(before, after, strict=True)):
            break
        if time.monotonic() > give_up:
            raise LimitError("the tables change so fast that no moment was found to read them all at; ask again")
        before = after
    return before
