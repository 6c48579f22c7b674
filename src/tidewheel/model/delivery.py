"""What is said about rows on their way in and out, as plain values: all of it can go over a wire."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import NamedTuple

import pyarrow as pa

from tidewheel.model.dataclass import dataclass
from tidewheel.model.records import ChunkRecord, MaskRecord


@dataclass(frozen=True, slots=True)
class Ack:
    """An insert's acknowledgement: its rows are visible to every reader, and as durable as Settings.durability says."""

    rows: int
    rejected: int = 0
    generation: int = 0
    duplicate: bool = False
    """The package, or batch of a stream, was loaded before; nothing was inserted."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table in numbers, at one moment."""

    rows: int
    fresh_rows: int
    historical_rows: int
    chunks: int
    trees: int
    sealed: int
    memory_bytes: int
    disk_bytes: int
    generation: int


@dataclass(frozen=True, slots=True)
class ServerState:
    """An indexing server of a table: its key interval starts at `key_lo`, a code that leaves out `prefix`."""

    server: int
    key_lo: int
    prefix: bytes
    fresh_rows: int
    late_rows: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class StreamState:
    """The last batch of a stream that was committed, and whether it is on disk."""

    stream: str
    batch: int
    rows: int
    flushed: bool


@dataclass(frozen=True, slots=True)
class SliceId:
    """One task's part of a batch of a stream. Tasks are tried again, runs are started again: only a commit says which one counts."""

    stream: str
    run: str
    """One start of the stream; what another run staged is of no use to this one."""
    batch: int
    partition: int
    attempt: int
    package: str = ""
    """If its rows are a package of their own: they are left out of the batch if it was loaded before."""


class RowStream(NamedTuple):
    """Rows of one schema, as they come: no more than a batch of them need be in memory."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Staged:
    """A slice is with the owner; nobody sees it yet."""

    rows: int
    rejected: int
    """Rows that do not fit the table; they become rejects when the batch is committed."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One version of a table, held by its owner while others read it piece by piece: chunks from their files, fresh rows from the owner."""

    id: str
    generation: int
    chunks: tuple[ChunkRecord, ...]
    """Those whose region the query touches."""
    masks: tuple[MaskRecord, ...]
    fresh_rows: int
    fresh_bytes: int

    @property
    def era(self) -> str:
        """The same for all pins of one opening of the table."""
        return self.id.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Load:
    """A bulk load, or a large slice of a stream, that has begun: what a task needs to write chunks for the table."""

    job: str
    folder: str
    """Where tasks write, relative to the root; removed whole if the load comes to nothing."""
    prefix: bytes
    """What the key codes of these chunks leave out."""
    bounds: tuple[int, ...]
    """The template: leaf boundaries in codes. Empty: the table has none yet, each task makes its own."""
    leaf_rows: int
    chunk_bytes: int


@dataclass(frozen=True, slots=True)
class Written:
    """What a task wrote for a load, or for its slice of a stream's batch."""

    job: str
    chunks: tuple[ChunkRecord, ...] = field(default=())
    rows: int = 0


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that is loaded, at most once: by its path, and by how it looked. One that looks different is not what was loaded."""

    path: str
    """From the root of the machine's files, without links: however it was named, it is one file."""
    look: str
    """Its size, and when it was last changed."""
    again: bool = False
    """It is loaded also if it has changed since it was loaded, beside the rows that it brought then."""

    @property
    def package(self) -> str:
        """As streams name the package of a file."""
        return f"file:{self.path}"

    @property
    def content(self) -> str:
        """The package of what is in it now."""
        return f"content of file:{self.path}: {self.look}"
