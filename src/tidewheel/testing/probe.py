"""One door for tests and benchmarks to the parts behind a `Warehouse` and a `Table`: engines, versions, chunks, logs, sessions.

Tests reach into the house here and nowhere else. A part that moves is then moved in this file, and a new form of an engine's operations
is adapted in this file. Nothing here decides or checks anything; a part that is not there (an attached engine has no log) is an
AssertionError.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.cluster.handed_engine import HandedTable
from tidewheel.engine import operations
from tidewheel.engine.protocol import Engine, PinnedTable, TableEngine
from tidewheel.index.version import ChunkLike, Version
from tidewheel.maintenance.warehouse_care import CheckWarehouse
from tidewheel.model.delivery import Ack, Load, Pin, RowStream, SliceId, Staged, TableState, Written
from tidewheel.model.query import Query
from tidewheel.model.records import ChunkRecord, TableRecord
from tidewheel.model.report import CheckReport
from tidewheel.model.schema import TableSpec
from tidewheel.read.result import Result
from tidewheel.table import Table
from tidewheel.warehouse import Warehouse

if TYPE_CHECKING:  # a process that attaches loads none of the owner's parts
    from tidewheel.cluster.connection import Connection
    from tidewheel.cluster.listener import Listener
    from tidewheel.cluster.owner import OwnedEngine
    from tidewheel.cluster.sessions import Sessions
    from tidewheel.engine.local_table import LocalTable
    from tidewheel.read.planner import Planner
    from tidewheel.write.bulk_loads import Loads
    from tidewheel.write.log import Log
    from tidewheel.write.packages import Packages
    from tidewheel.write.publish import Publisher
    from tidewheel.write.streams import Streams


# ---- a warehouse ---------------------------------------------------------------------------------------------


def engine_of(warehouse: Warehouse) -> Engine:
    """The engine that the warehouse uses now: the owner's own or an attached one."""
    return warehouse._engine


def owner_of(warehouse: Warehouse) -> OwnedEngine:
    """The engine of a warehouse that this process owns."""
    from tidewheel.cluster.owner import OwnedEngine

    engine = warehouse._engine
    assert isinstance(engine, OwnedEngine), "another process owns the warehouse"
    return engine


def last_engine_of(warehouse: Warehouse) -> Engine:
    """The engine that the warehouse used last; if that is lost, no other is taken for a look."""
    return warehouse._current._engine


def root_of(warehouse: Warehouse) -> Path:
    return warehouse._current.root


def warehouse_of(table: Table) -> Warehouse:
    """The warehouse that a table was taken from, as if it were opened again. Not to be closed: nothing was."""
    return Warehouse(table._current)


def tables_of(engine: Engine) -> list[str]:
    """The names of an engine's tables."""
    return engine.do(operations.ListTables())


def check_of(engine: Engine) -> CheckReport:
    """What a check of an engine's warehouse says."""
    return engine.do(CheckWarehouse(False))


# ---- the two ends of a wire ----------------------------------------------------------------------------------


def listener_of(owner: OwnedEngine) -> Listener:
    assert owner.listener is not None, "this owner was made without a door"
    return owner.listener


def sessions_of(owner: OwnedEngine) -> Sessions:
    """The attached processes that an owner knows, and the results it holds for them."""
    handlers = listener_of(owner)._handlers
    assert handlers is not None, "this owner does not listen yet"
    return handlers.sessions


def connection_of(attached: Any) -> Connection:
    """The connection of an attached engine or table."""
    connection: Connection = attached._connection
    return connection


# ---- a table -------------------------------------------------------------------------------------------------


class Probe:
    """A table from inside: its parts, and the operations that no user calls. Made of a `Table`, or of an engine's table.

    Made of a `Table`, it always looks at the engine that is in use now, also after a change of owners.
    """

    def __init__(self, table: Table | TableEngine) -> None:
        self._held = table

    @property
    def engine(self) -> TableEngine:
        return self._held._engine if isinstance(self._held, Table) else self._held

    @property
    def last_engine(self) -> TableEngine:
        """The engine's table that was used last, even if its owner is lost by now."""
        held = self._held._table if isinstance(self._held, Table) else self._held
        assert not isinstance(held, HandedTable)
        return held

    @property
    def spec(self) -> TableSpec:
        return self.engine.spec

    # ---- parts, where this process owns the table ------------------------------------------------------------

    @property
    def local(self) -> LocalTable:
        from tidewheel.engine.local_table import LocalTable

        engine = self.engine
        assert isinstance(engine, LocalTable), "another process owns the table"
        return engine

    @property
    def owner(self) -> OwnedEngine:
        from tidewheel.cluster.owner import OwnedEngine

        engine = self.local.engine
        assert isinstance(engine, OwnedEngine)
        return engine

    @property
    def record(self) -> TableRecord:
        return self.local.record

    @property
    def publisher(self) -> Publisher:
        return self.local.publisher

    @property
    def log(self) -> Log:
        return self.publisher.log

    @property
    def planner(self) -> Planner:
        return self.local.planner

    @property
    def streams(self) -> Streams:
        return self.local.streams

    @property
    def loads(self) -> Loads:
        return self.local.loads

    @property
    def packages(self) -> Packages:
        return self.local.packages

    @property
    def replacing(self) -> Any:
        """The lock of a replacement or load that is under way."""
        return self.local.replacements._turn

    @property
    def version(self) -> Version:
        """What a query of this moment would read."""
        return self.publisher.version

    @property
    def chunks(self) -> list[ChunkLike]:
        return list(self.version.chunks)

    @property
    def chunk_records(self) -> list[ChunkRecord]:
        """What the catalog says of each chunk."""
        return [chunk.record for chunk in self.chunks]

    # ---- operations, of any engine ---------------------------------------------------------------------------

    def insert(self, data: Any, package: str | None = None, on_bad: str = "error") -> Ack:
        return self.engine.give(operations.Insert(package, on_bad), data)

    def replace(self, data: Any, time: Any) -> Ack:
        return self.engine.give(operations.Replace(time), data)

    def query(self, query: Query | None = None) -> Result:
        return self.engine.ask(operations.RunQuery(query or Query()))

    def rejects(self) -> Result:
        return self.engine.ask(operations.ReadRejects())

    def flush(self) -> None:
        self.engine.do(operations.FlushTable())

    def state(self) -> TableState:
        return self.engine.do(operations.GetState())

    def pinned(self) -> PinnedTable:
        return self.engine.pinned()

    def stage(self, slice_id: SliceId, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Staged:
        return self.engine.give(operations.Stage(slice_id), RowStream(schema, batches))

    def commit_batch(self, stream: str, run: str, batch: int, slices: Sequence[SliceId], written: Sequence[Written] = ()) -> Ack:
        return self.engine.do(operations.CommitBatch(stream, run, batch, tuple(slices), tuple(written)))

    def abort_batch(self, stream: str, run: str, batch: int) -> None:
        self.engine.do(operations.AbortBatch(stream, run, batch))

    def last_batch(self, stream: str) -> int | None:
        return self.engine.do(operations.LastBatch(stream))

    def begin_load(self) -> Load:
        return self.engine.do(operations.BeginLoad())

    def commit_load(self, job: str, written: Sequence[Written], overwrite: bool) -> Ack:
        return self.engine.do(operations.CommitLoad(job, tuple(written), overwrite))

    def abort_load(self, job: str) -> None:
        self.engine.do(operations.AbortLoad(job))

    def pin(self, query: Query | None = None) -> Pin:
        return self.engine.do(operations.TakePin(query or Query()))

    def fresh(self, pin: str, query: Query | None = None) -> Result:
        return self.engine.ask(operations.ReadFresh(pin, query or Query()))

    def unpin(self, pin: str) -> None:
        self.engine.do(operations.Unpin(pin))

    def generation(self) -> int:
        return self.engine.do(operations.GetGeneration())

    def rows_by_generation(self, after: int, upto: int | None = None, most: int | None = None) -> list[tuple[int, int]]:
        return self.engine.do(operations.CountChanges(after, upto, most))

    def changes(self, after: int, upto: int, columns: Sequence[str] | None = None) -> Result:
        return self.engine.ask(operations.ReadChanges(after, upto, None if columns is None else tuple(columns)))
