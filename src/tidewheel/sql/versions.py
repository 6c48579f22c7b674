"""Tables pinned at versions: one table for a scan, or all tables of a statement at versions that were current at one moment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tidewheel.cluster.protocol import TableEngine
from tidewheel.errors import LimitError
from tidewheel.index.version import Version
from tidewheel.local_table import LocalTable
from tidewheel.model.pieces import ROWS
from tidewheel.model.query import Query
from tidewheel.model.schema import TableSpec
from tidewheel.read.local_result import LocalResult
from tidewheel.read.result import Result
from tidewheel.sql.scan import Pinned
from tidewheel.sql.summary import standing_for

PATIENCE = 5.0
"""Seconds in which a moment must come when no table changes between two looks at all of them."""


class PinnedVersion:
    """A version of a table in this process. It holds what it points to."""

    def __init__(self, table: LocalTable, version: Version) -> None:
        self.spec: TableSpec = table.spec
        self.generation = version.generation
        self._coordinator = table.coordinator
        self._version = version

    @property
    def about(self) -> int:
        version = self._version
        return int(version.chunks.matrix[: version.chunks.count, ROWS].sum()) + sum(tree.rows for tree in version.trees)

    def query(self, query: Query) -> Result:
        return LocalResult(self._coordinator, self._version, query)

    def summary(self, columns: tuple[str, ...]) -> tuple[pa.Table, int] | None:
        """Rows with the least and greatest values of some columns, and how many rows there are, if chunks know that."""
        return standing_for(self._version, self.spec, columns, lambda version, query: LocalResult(self._coordinator, version, query))


class PinnedGeneration:
    """A table of another process, as it was at a generation: the owner leaves out what came later."""

    def __init__(self, table: TableEngine, generation: int) -> None:
        self.spec: TableSpec = table.spec
        self.generation = generation
        self._table = table

    @property
    def about(self) -> None:
        """It would take a call to know."""
        return None

    def query(self, query: Query) -> Result:
        return self._table.query(replace(query, upto=self.generation))


def pin(table: TableEngine) -> Pinned:
    """The table as it is now."""
    return pin_all([table])[0]


def pin_all(tables: Sequence[TableEngine]) -> list[Pinned]:
    """All of them as they were at one moment: whoever inserts into one and then into another is never seen the other way round.

    Two looks at all tables that see the same have a moment between them when all was so. In this process a look takes less than any
    insert does; at the owner's it takes a call for each table.
    """
    give_up = time.monotonic() + PATIENCE
    before = _look(tables)
    while len(tables) > 1 and not _same(before, after := _look(tables)):
        if time.monotonic() > give_up:
            names = ", ".join(table.spec.name for table in tables)
            raise LimitError(f"the tables {names} change so fast that no moment was found to read them all at; ask again")
        before = after
    return [
        PinnedVersion(table, seen)
        if isinstance(table, LocalTable) and isinstance(seen, Version)
        else PinnedGeneration(table, _number(seen))
        for table, seen in zip(tables, before, strict=True)
    ]


def _look(tables: Sequence[TableEngine]) -> list[Version | int]:
    return [_version(table) if isinstance(table, LocalTable) else table.generation() for table in tables]


def _version(table: LocalTable) -> Version:
    table._check_open()
    return table.publisher.version


def _number(seen: Version | int) -> int:
    assert isinstance(seen, int)
    return seen


def _same(before: list[Version | int], after: list[Version | int]) -> bool:
    return all(a is b if isinstance(a, Version) else a == b for a, b in zip(before, after, strict=True))
