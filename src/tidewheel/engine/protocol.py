"""What `Warehouse` and `Table` delegate to. The owner's engine and an attached one both hold it, and one suite of tests runs over both.

Every method may be called from any thread. All errors are `TidewheelError`s, the same ones on both sides of a wire. A method whose owner
died raises `OwnerLostError`; the engine is then `lost`, and whoever holds it opens the warehouse again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tidewheel.metrics import TableMetrics
from tidewheel.model.delivery import Ack, Load, Pin, ServerState, SliceId, Staged, StreamState, TableState, Written
from tidewheel.model.query import Query
from tidewheel.model.recovery import Recovery
from tidewheel.model.report import BackupReport, CheckReport, Progress
from tidewheel.model.schema import TableSpec
from tidewheel.read.result import Result
from tidewheel.settings import Settings


class PinnedTable(Protocol):
    """A table at one version: however often it is asked, and whatever is inserted meanwhile, it has the same rows."""

    @property
    def spec(self) -> TableSpec: ...
    @property
    def generation(self) -> int: ...
    @property
    def about(self) -> int:
        """About how many rows it has."""
        ...

    def query(self, query: Query) -> Result: ...


class TableEngine(Protocol):
    """One table."""

    @property
    def spec(self) -> TableSpec: ...
    @property
    def lost(self) -> bool:
        """Its owner is gone: get the table anew."""
        ...

    # what users do
    def insert(self, data: Any, package: str | None, on_bad: str) -> Ack: ...
    def replace(self, data: Any, time: Any) -> Ack: ...
    def query(self, query: Query) -> Result: ...
    def rejects(self, ordered: bool = True) -> Result:
        """The rows that did not fit, the oldest first; if not `ordered`, as they come: the first of them then costs no more than itself."""
        ...

    def flush(self) -> None: ...
    def state(self) -> TableState: ...
    def metrics(self) -> TableMetrics: ...
    def server_states(self) -> list[ServerState]:
        """Its indexing servers, by their numbers."""
        ...

    def stream_states(self) -> list[StreamState]:
        """The streams that came to it, by their names."""
        ...

    def pinned(self) -> PinnedTable:
        """The table as it is now."""
        ...

    # a stream of batches, each made of slices
    def stage(self, slice_id: SliceId, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Staged:
        """Hand a slice to the owner. Bad rows do not stop it. The same slice again takes the place of the first."""
        ...

    def commit_batch(self, stream: str, run: str, batch: int, slices: Sequence[SliceId], written: Sequence[Written] = ()) -> Ack:
        """Publish these slices as one batch, at most once per (stream, batch). Visible and durable when it returns.

        `written` are slices that were large enough to be written as chunks, each for a load of its own that was begun here.

        Batches of a stream come in order: one at or below its last is a `duplicate`, and its slices are dropped.
        """
        ...

    def abort_batch(self, stream: str, run: str, batch: int) -> None:
        """Drop what was staged for it. No error if there is nothing."""
        ...

    def last_batch(self, stream: str) -> int | None:
        """The last batch of a stream that was committed."""
        ...

    # a bulk load
    def begin_load(self) -> Load: ...
    def commit_load(self, job: str, written: Sequence[Written], overwrite: bool) -> Ack:
        """Make all these chunks part of the table in one transaction; with `overwrite`, all other rows leave it."""
        ...

    def abort_load(self, job: str) -> None:
        """Remove what its tasks wrote. No error if there is nothing."""
        ...

    # one version, read by many
    def pin(self, query: Query) -> Pin:
        """Hold the version of this moment until `unpin`, or until nobody asked for it for a while."""
        ...

    def fresh(self, pin: str, query: Query) -> Result:
        """The rows of a pinned version that are in no chunk."""
        ...

    def touch(self, pin: str, part: int, parts: int) -> None:
        """Somebody still reads it. With `parts`: part number `part` of so many has been read; after the last, the pin is soon let go."""
        ...

    def unpin(self, pin: str) -> None: ...

    # changes
    def generation(self) -> int:
        """The last generation that is complete: no more rows will come with it or one before."""
        ...

    def rows_by_generation(self, after: int, upto: int | None, most: int | None) -> list[tuple[int, int]]:
        """(generation, rows that came after `after` and up to it) for each with rows, in rising order.

        With `most` the list ends before that many rows are exceeded, but has one generation at least: none can be divided.
        """
        ...

    def changes(self, after: int, upto: int, columns: Sequence[str] | None) -> Result:
        """The rows that came with the generations after < g <= upto."""
        ...


class Engine(Protocol):
    """A warehouse."""

    @property
    def root(self) -> Path: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def recovery(self) -> Recovery: ...
    @property
    def lost(self) -> bool: ...
    @property
    def owns(self) -> bool:
        """Whether this process owns the warehouse."""
        ...

    @property
    def fenced(self) -> bool:
        """Whether it did, and does not any more: everything but `close` raises FencedError, for good."""
        ...

    def tables(self) -> list[str]: ...
    def table(self, name: str) -> TableEngine: ...
    def versions(self, names: Sequence[str]) -> Sequence[PinnedTable]:
        """These tables, all as they were at one moment: whoever fills one and then another is never seen to have done it the other way."""
        ...

    def create(self, spec: TableSpec, if_exists: str) -> TableEngine: ...
    def drop(self, name: str) -> None: ...
    def check(self, repair: bool, progress: Progress | None) -> CheckReport: ...
    def backup(self, folder: str | os.PathLike[str], verify: str, progress: Progress | None) -> BackupReport: ...
    def close(self) -> None: ...
    def forsake(self) -> None:
        """In a forked child: it is the parent's, and nothing of it is used, or closed, here."""
        ...
