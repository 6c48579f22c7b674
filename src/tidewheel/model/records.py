"""What the catalog knows, as plain values: the rows of its tables and the commit that changes them.

A `Commit` is everything one transaction does to one table; either all of it happens or none.
"""

from __future__ import annotations

import builtins
from dataclasses import field

from tidewheel.model.dataclass import dataclass
from tidewheel.model.derived import Definition, DerivedContents, Label, RefreshRecord
from tidewheel.model.schema import TableSpec

BASE = "base"
DERIVED = "derived"


@dataclass(frozen=True, slots=True)
class TableRecord:
    id: int
    spec: TableSpec
    kind: str = BASE
    generation: int = 0
    horizon: int = 0
    """The earliest generation that it can still be read at."""
    definition: Definition | None = None
    """Of a derived table."""


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """One chunk. Its region is in codes: of the chunk's own coder for the key, of the column's unit for the time."""

    id: str
    table_id: int
    server: int
    file: str
    container: str
    format: int
    rows: int
    bytes: int
    key_lo: int
    key_hi: int
    time_lo: int
    time_hi: int
    late: bool
    generation_lo: int
    generation_hi: int
    covers: int
    """The last record of its owner's log that it holds rows of; records are numbered by generation (0: made before there was a log)."""
    prefix: builtins.bytes
    """The common prefix its key codes leave out (text and binary keys)."""
    body_lo: int
    body_hi: int
    """The rows' bytes in the file; what is before and after is its frame."""
    frame: int
    """xxh3 of the frame."""
    partitions: tuple[tuple[int, int], ...]
    """(start of the partition, rows of this chunk in it)."""
    latest: tuple[int, ...] = field(default=(), compare=False)
    """The last generation that its rows in each of these partitions came with, while it is on its way to the catalog, which has labels
    instead. Empty: `generation_hi`, for all of them."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Rows of these generations that belonged to this server's ordinary or late tree are in a chunk, or were once."""

    server: int
    late: bool
    generation_lo: int
    generation_hi: int


@dataclass(frozen=True, slots=True)
class MaskRecord:
    """Rows of the time interval [time_lo, time_hi] that were committed up to `generation` are hidden."""

    time_lo: int
    time_hi: int
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class PackageRecord:
    name: str
    generation: int
    rows: int
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class StreamBatchRecord:
    """One batch of a stream that has been published. A stream's batches come in order, so its last one says it for all before."""

    stream: str
    batch: int
    generation: int
    rows: int


Delivery = PackageRecord | StreamBatchRecord
"""What a batch of rows came as, to be recorded when they are committed, so that it comes only once."""


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """The key interval of an indexing server starts at `key_lo`, a code that leaves out `prefix`."""

    server: int
    key_lo: int
    prefix: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    table_id: int
    epoch: int
    """The lease epoch of the owner that commits; a stale one is refused."""
    generation: int
    """The table's generation after this commit."""
    add: tuple[ChunkRecord, ...] = ()
    remove: tuple[str, ...] = ()
    """Ids of chunks that leave the table with this commit."""
    masks: tuple[MaskRecord, ...] = ()
    drop_masks: tuple[MaskRecord, ...] = ()
    """Masks that hide nothing any more."""
    horizon: int = 0
    """The table cannot be read at earlier generations after this commit; less than it was: as it was."""
    forget: int = 0
    """Chunks that were removed, and whose rows all came up to this generation, are forgotten: no log has these rows any more."""
    packages: tuple[PackageRecord, ...] = ()
    batches: tuple[StreamBatchRecord, ...] = ()
    servers: tuple[ServerRecord, ...] = field(default=())
    """If given, replaces the key intervals of the table's servers."""
    labels: tuple[Label, ...] = ()
    """Partitions that rows came to, or left. Labels only rise."""
    undone: tuple[tuple[int, int], ...] = ()
    """(first, last): partitions that are known, and whose start lies from first to last, lost rows with this commit."""
    at: float = 0.0
    """The wall clock's time of the commit."""
    refresh: RefreshRecord | None = None
    """Of a derived table: the refresh that this commit is."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may write. `epoch` grows with every owner."""

    epoch: int
    pid: int
    host: str
    since: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of the catalog that stands for itself: the bytes of an SQLite file, and what that file says."""

    data: bytes
    warehouse: str
    """The id a warehouse keeps for life, also through a backup."""
    tables: tuple[TableRecord, ...]
    chunks: tuple[ChunkRecord, ...]
    """Of all tables, those they hold."""


@dataclass(frozen=True, slots=True)
class TableContents:
    """A table and what it is made of, all of one moment."""

    record: TableRecord
    chunks: tuple[ChunkRecord, ...] = ()
    """Those it holds now, ordered by generation_hi, then id."""
    coverage: tuple[Coverage, ...] = ()
    """Of all chunks that the catalog knows, removed ones included."""
    masks: tuple[MaskRecord, ...] = ()
    """In the order they were committed."""
    servers: tuple[ServerRecord, ...] = ()
    """Ordered by server number."""
    derived: DerivedContents | None = None
    """Of a derived table."""
