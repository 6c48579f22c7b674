"""What the rest of Tidewheel may ask of the catalog. Readers cannot write: hand out a `CatalogReader` wherever reading is enough.

Every method may be called from any thread. One call is one transaction, so it sees one committed state; two calls may see two.
Errors of the store surface as `StorageError`; a call after `close` raises `ClosedError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidewheel.model.derived import Definition, Dependency, Label
from tidewheel.model.records import (
    ChunkRecord,
    Commit,
    Coverage,
    Lease,
    MaskRecord,
    PackageRecord,
    ServerRecord,
    Snapshot,
    StreamBatchRecord,
    TableContents,
    TableRecord,
)
from tidewheel.model.schema import TableSpec


class CatalogReader(Protocol):
    """Reads. An unknown table id has no chunks, masks, servers or partitions; it is not an error."""

    @property
    def identity(self) -> tuple[int, int] | None:
        """The device and inode of the file that is read and written, whatever has its name by now; None if it is no file."""
        ...

    def tables(self) -> list[TableRecord]:
        """Every table, in the order of creation."""
        ...

    def table(self, name: str) -> TableRecord | None: ...

    def contents(self) -> list[TableContents]:
        """Every table and what it is made of, in the order of creation: one transaction, however many there are."""
        ...

    def chunks(self, table_id: int) -> list[ChunkRecord]:
        """The chunks the table holds now (not the removed ones), ordered by generation_hi, then id; their partitions ascend."""
        ...

    def coverage(self, table_id: int) -> list[Coverage]:
        """Which rows of its log are or were in chunks of the table, removed ones included until a commit forgets them."""
        ...

    def masks(self, table_id: int) -> list[MaskRecord]:
        """In the order they were committed."""
        ...

    def package(self, table_id: int, name: str) -> PackageRecord | None: ...

    def last_batch(self, table_id: int, stream: str) -> StreamBatchRecord | None:
        """The greatest batch of a stream that was committed. Only the newest of a stream are kept."""
        ...

    def streams(self, table_id: int) -> list[StreamBatchRecord]:
        """The greatest batch of each stream that was committed, ordered by the name of the stream."""
        ...

    def servers(self, table_id: int) -> list[ServerRecord]:
        """Ordered by server number."""
        ...

    def partitions(self, table_id: int) -> list[tuple[int, int, int]]:
        """(start of the partition, rows, chunks) over the chunks the table holds now, ascending. Masks are not applied."""
        ...

    def labels(self, table_id: int) -> list[tuple[Label, float]]:
        """The labels of the table's partitions, in rising order, and the time at which each was raised last."""
        ...

    def lease(self) -> Lease | None:
        """The lease as last recorded, or None if it was released or never taken. Its holder may have died since."""
        ...

    def faults(self) -> list[str]:
        """What is wrong with the store itself, a line each: damaged pages, rows that point to nothing, generations to come."""
        ...

    def snapshot(self, upto: Mapping[int, int]) -> Snapshot:
        """A copy that holds, of each table id in `upto`, what was committed up to that generation; no other table, and no lease."""
        ...


class CatalogWriter(CatalogReader, Protocol):
    """Writes. Each takes the epoch of the caller's lease and raises `FencedError`, changing nothing, if that lease is over."""

    def create_table(
        self, spec: TableSpec, epoch: int, definition: Definition | None = None, sources: Sequence[Dependency] = ()
    ) -> TableRecord:
        """Raises `ExistsError` if the name is taken. Ids are never reused, also not after a drop. With a definition, it is derived."""
        ...

    def drop_table(self, name: str, epoch: int) -> list[ChunkRecord]:
        """Forget the table and all that belongs to it; raises `NotFoundError` if there is none, `InputError` if others depend on it.

        Returns every chunk it ever held whose file may still exist, removed ones included: some of those files are gone already.
        """
        ...

    def commit(self, *commits: Commit) -> None:
        """All of these or nothing, durable on return. Each is of another table.

        `FencedError`: the lease is over. `NotFoundError`: the table was dropped. `ExistsError`: a package or stream batch was
        committed before. `ConflictError`: another refresh of the same partitions was. `StorageError`: the generation went back, or a
        chunk is added twice or removed without being there.
        """
        ...

    def acquire(self, pid: int, host: str, now: float) -> Lease:
        """Take the lease from whoever had it: its epoch is one more than the last, which fences the last holder.

        Does not ask whether that holder still lives; `catalog.lease` does.
        """
        ...

    def release(self, epoch: int) -> None:
        """Give the lease back. The epoch stays used, so nothing can commit with it again. No effect if another holder took it."""
        ...

    def abandon(self) -> None:
        """Use it no more, and touch nothing: the store of that name may be another's by now."""
        ...

    def close(self) -> None:
        """Close every connection. May be called twice."""
        ...
