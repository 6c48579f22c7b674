"""What can be asked of a warehouse and of a table: one class per operation, with the call that carries it out.

An operation is a value: processes, and later HTTP and servers, hand it on as it is (`engine/protocol.py`). A new one is a class here and
the method of `Warehouse` or `Table` that users call. What an operation does is not written here: `on` names the part of the engine that
does it, in one line. Modules that take long to load are none of this module's, because every attached process imports it.

A change to a class is a change of the wire's protocol: count `cluster.requests.PROTOCOL` up (tests/unit/test_wire.py notices).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tidewheel.engine.protocol import TableDelivery, TableOperation, TableQuestion, WarehouseOperation
from tidewheel.metrics import TableMetrics
from tidewheel.model.dataclass import dataclass
from tidewheel.model.delivery import Ack, Load, Pin, RowStream, ServerState, SliceId, SourceFile, Staged, StreamState, TableState, Written
from tidewheel.model.derived import Definition, DerivedState, RefreshedPartition, RefreshOutcome, RefreshPlan
from tidewheel.model.description import TableDescription
from tidewheel.model.query import Query
from tidewheel.model.report import Progress
from tidewheel.model.schema import TableSpec
from tidewheel.read.result import Result

if TYPE_CHECKING:
    from tidewheel.engine.local_engine import LocalEngine
    from tidewheel.engine.local_table import LocalTable

# ---- the warehouse -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListTables(WarehouseOperation[list[str]]):
    """The names of all tables."""

    def on(self, engine: LocalEngine, progress: Progress | None) -> list[str]:
        return engine.tables()


@dataclass(frozen=True, slots=True)
class DropTable(WarehouseOperation[None]):
    """Drop a table and its rejects; with `cascade`, first all tables that are derived from it."""

    name: Any
    cascade: bool = False

    if_lost: ClassVar[str] = "the table may be there or not"

    def on(self, engine: LocalEngine, progress: Progress | None) -> None:
        engine.drop(self.name, self.cascade)


# ---- rows into a table ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Insert(TableDelivery[Ack]):
    """Insert rows, as a package if there is a name: that is loaded at most once."""

    package: Any
    on_bad: Any

    if_lost: ClassVar[str] = "the rows may be there or not: look, or insert under a package name, which can simply be repeated"

    def on(self, table: LocalTable, rows: Any) -> Ack:
        return table.feeding(lambda: table.inserts.insert(rows, self.package, self.on_bad))


@dataclass(frozen=True, slots=True)
class Replace(TableDelivery[Ack]):
    """Exchange the rows of a time interval at once: readers see the old ones or the new ones, never both or neither."""

    time: Any

    if_lost: ClassVar[str] = "the rows may have been exchanged or not: replacing them again is safe"

    def on(self, table: LocalTable, rows: Any) -> Ack:
        return table.feeding(lambda: table.replacements.replace(rows, self.time))


@dataclass(frozen=True, slots=True)
class Stage(TableDelivery[Staged]):
    """Hand a slice of a stream's batch to the owner. Bad rows do not stop it. The same slice again takes the place of the first."""

    slice_id: SliceId

    streamed: ClassVar[bool] = True

    def on(self, table: LocalTable, rows: RowStream) -> Staged:
        return table.feeding(lambda: table.streams.stage(self.slice_id, rows.batches))


@dataclass(frozen=True, slots=True)
class LoadFile(TableDelivery[Ack]):
    """Make a file part of the table, at most once. `written`: chunks of its rows, of a load that was begun before; the rows that come along
    are the others, with dead letters among them."""

    file: SourceFile
    written: tuple[Written, ...] = ()

    streamed: ClassVar[bool] = True
    if_lost: ClassVar[str] = "the file may be loaded or not: loading it again is safe"

    def on(self, table: LocalTable, rows: RowStream) -> Ack:
        return table.feeding(lambda: table.files.load(self.file, self.written, rows.batches))


@dataclass(frozen=True, slots=True)
class IsLoaded(TableOperation[bool]):
    """Whether a file is in the table already. InputError: it was, and has changed since."""

    file: SourceFile

    def on(self, table: LocalTable) -> bool:
        table.check_fed()
        return table.as_owner(lambda: table.files.is_loaded(self.file))


# ---- rows out of a table -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunQuery(TableQuestion):
    """The rows that a query asks for."""

    query: Query

    def on(self, table: LocalTable) -> Result:
        return table.query(self.query)

    @property
    def timeout(self) -> float | None:
        return self.query.timeout


@dataclass(frozen=True, slots=True)
class ReadRejects(TableQuestion):
    """The rows that did not fit, the oldest first; if not `ordered`, as they come: the first of them then costs no more than itself."""

    ordered: bool = True

    def on(self, table: LocalTable) -> Result:
        return table.rejects(self.ordered)

    def about(self, spec: TableSpec) -> TableSpec:
        from tidewheel.write.rejects import rejects_spec

        return rejects_spec(spec.name)


@dataclass(frozen=True, slots=True)
class ReadFresh(TableQuestion):
    """The rows of a pinned version that are in no chunk."""

    pin: str
    query: Query

    def on(self, table: LocalTable) -> Result:
        return table.fresh(self.pin, self.query)

    @property
    def timeout(self) -> float | None:
        return self.query.timeout


@dataclass(frozen=True, slots=True)
class ReadChanges(TableQuestion):
    """The rows that came with the generations after < g <= upto."""

    after: int
    upto: int
    columns: tuple[str, ...] | None = None

    def on(self, table: LocalTable) -> Result:
        return table.query(Query(columns=self.columns, after=self.after, upto=self.upto))


# ---- a table -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlushTable(TableOperation[None]):
    """Everything inserted before is in chunks and in the catalog when it returns, rejects included."""

    def on(self, table: LocalTable) -> None:
        table.flush()


@dataclass(frozen=True, slots=True)
class GetState(TableOperation[TableState]):
    """Rows, chunks, trees and bytes at this moment."""

    def on(self, table: LocalTable) -> TableState:
        return table.state()


@dataclass(frozen=True, slots=True)
class DescribeTable(TableOperation[TableDescription]):
    """Per column: type, nulls, least, greatest, about how many different values."""

    def on(self, table: LocalTable) -> TableDescription:
        return table.describe()


@dataclass(frozen=True, slots=True)
class GetMetrics(TableOperation[TableMetrics]):
    """The counters since the warehouse was opened, as a copy."""

    def on(self, table: LocalTable) -> TableMetrics:
        return table.metrics()


@dataclass(frozen=True, slots=True)
class GetServers(TableOperation[list[ServerState]]):
    """The indexing servers, by their numbers."""

    def on(self, table: LocalTable) -> list[ServerState]:
        return table.server_states()


@dataclass(frozen=True, slots=True)
class GetStreams(TableOperation[list[StreamState]]):
    """The streams that came to the table, by their names."""

    def on(self, table: LocalTable) -> list[StreamState]:
        return table.stream_states()


# ---- a stream of batches, each made of slices ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CommitBatch(TableOperation[Ack]):
    """Publish slices as one batch, at most once per (stream, batch). Visible and durable when it returns.

    `written` are slices that were large enough to be written as chunks, each for a load of its own that was begun before. Batches of a
    stream come in order: one at or below the last is a `duplicate`, and its slices are dropped.
    """

    stream: str
    run: str
    batch: int
    slices: tuple[SliceId, ...]
    written: tuple[Written, ...] = ()

    if_lost: ClassVar[str] = "the batch may be there or not: committing it again is safe"

    def on(self, table: LocalTable) -> Ack:
        return table.feeding(lambda: table.streams.commit(self.stream, self.run, self.batch, self.slices, self.written))


@dataclass(frozen=True, slots=True)
class AbortBatch(TableOperation[None]):
    """Drop what was staged for a batch. No error if there is nothing."""

    stream: str
    run: str
    batch: int

    def on(self, table: LocalTable) -> None:
        table.streams.abort(self.stream, self.run, self.batch)


@dataclass(frozen=True, slots=True)
class LastBatch(TableOperation[int | None]):
    """The last batch of a stream that was committed."""

    stream: str

    def on(self, table: LocalTable) -> int | None:
        return table.as_owner(lambda: table.streams.last(self.stream))


# ---- a bulk load ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginLoad(TableOperation[Load]):
    """Make a folder for the chunks that tasks will write."""

    def on(self, table: LocalTable) -> Load:
        table.check_fed()
        table.confirm_ownership()  # first: a folder is made
        return table.as_owner(table.loads.begin)


@dataclass(frozen=True, slots=True)
class CommitLoad(TableOperation[Ack]):
    """Make all these chunks part of the table in one transaction; with `overwrite`, all other rows leave it."""

    job: str
    written: tuple[Written, ...]
    overwrite: bool

    if_lost: ClassVar[str] = "the rows may be there or not"

    def on(self, table: LocalTable) -> Ack:
        return table.feeding(lambda: table.loads.commit(self.job, self.written, self.overwrite))


@dataclass(frozen=True, slots=True)
class AbortLoad(TableOperation[None]):
    """Remove what the tasks of a load wrote. No error if there is nothing."""

    job: str

    def on(self, table: LocalTable) -> None:
        table.loads.abort(self.job)


# ---- one version, read by many -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakePin(TableOperation[Pin]):
    """Hold the version of this moment until `Unpin`, or until nobody asked for it for a while.

    With a `name`: the version that is held under it already, if there is one. `scan` tells apart who reads under one name.
    """

    query: Query
    name: str = ""
    scan: str = ""

    def on(self, table: LocalTable) -> Pin:
        return table.pin(self.query, self.name, self.scan)


@dataclass(frozen=True, slots=True)
class TouchPin(TableOperation[None]):
    """A pinned version is still read. With `parts`: part number `part` of them has been read; after the last, the pin is soon let go."""

    pin: str
    part: int
    parts: int
    scan: str = ""

    def on(self, table: LocalTable) -> None:
        table.pins.touch(self.pin, self.part, self.parts, self.scan)


@dataclass(frozen=True, slots=True)
class Unpin(TableOperation[None]):
    """Nobody reads a pinned version any more."""

    pin: str

    def on(self, table: LocalTable) -> None:
        table.pins.remove(self.pin)


# ---- changes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GetGeneration(TableOperation[int]):
    """The last generation that is complete: no more rows will come with it or one before."""

    def on(self, table: LocalTable) -> int:
        return table.publisher.version.settled


@dataclass(frozen=True, slots=True)
class CountChanges(TableOperation[list[tuple[int, int]]]):
    """(generation, rows that came after `after` and up to it) for each with rows, in rising order.

    With `most` the list ends before that many rows are exceeded, but has one generation at least: none can be divided.
    """

    after: int
    upto: int | None
    most: int | None

    def on(self, table: LocalTable) -> list[tuple[int, int]]:
        return table.rows_by_generation(self.after, self.upto, self.most)


# ---- derived tables ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateDerived(WarehouseOperation[TableSpec]):
    """Make a derived table without rows; every partition that its sources have rows for is stale. Answered by its spec."""

    spec: TableSpec
    definition: Definition
    bounds: tuple[tuple[str, str], ...]
    """(source, JSON of `derive.bounds.Bounds`)."""
    if_exists: Any

    if_lost: ClassVar[str] = "the table may be there or not"

    def on(self, engine: LocalEngine, progress: Progress | None) -> TableSpec:
        return engine.create_derived(self.spec, self.definition, self.bounds, self.if_exists).spec


@dataclass(frozen=True, slots=True)
class ListDerived(WarehouseOperation[list[str]]):
    """The names of all derived tables, each after those that it is made of."""

    def on(self, engine: LocalEngine, progress: Progress | None) -> list[str]:
        return engine.derived_tables()


@dataclass(frozen=True, slots=True)
class CutTables(WarehouseOperation[dict[str, int]]):
    """Bring these tables' rows to rest. Answered by the generation that each can be read at: chunks and catalog have all rows up to it."""

    names: tuple[str, ...]

    def on(self, engine: LocalEngine, progress: Progress | None) -> dict[str, int]:
        return engine.cut(self.names)


@dataclass(frozen=True, slots=True)
class GetDerived(TableOperation[DerivedState | None]):
    """Definition, sources and staleness of a derived table; None for any other."""

    def on(self, table: LocalTable) -> DerivedState | None:
        return table.derived.state() if table.derived is not None else None


@dataclass(frozen=True, slots=True)
class GetDefinition(TableOperation[Definition | None]):
    """What makes a derived table; None for any other."""

    def on(self, table: LocalTable) -> Definition | None:
        return table.derived.definition if table.derived is not None else None


@dataclass(frozen=True, slots=True)
class SampleRefreshed(TableOperation[tuple[RefreshedPartition, ...]]):
    """Partitions of a derived table that were computed, some of them by chance, in rising order."""

    most: int

    def on(self, table: LocalTable) -> tuple[RefreshedPartition, ...]:
        return table.as_derived().sample(self.most)


@dataclass(frozen=True, slots=True)
class PlanRefresh(TableOperation[RefreshPlan | None]):
    """The next set of stale partitions of a derived table, the newest first; None if there is none."""

    cut: tuple[tuple[str, int], ...] = ()
    """(source, the generation to read it at); others are read as they are now, without what is only in memory."""
    time: Any = None
    """Only partitions that this interval touches."""
    full: bool = False
    """All partitions that were computed before this refresh began, stale or not: `since` says when."""
    since: int = 0
    """With `full`: partitions that refresh number `since` or a later one computed are done."""
    most_bytes: int = 512 << 20
    """Of stored source rows that one set reads, unless a single partition has more."""
    mode: str = ""
    """Only this mode; else the best."""

    def on(self, table: LocalTable) -> RefreshPlan | None:
        return table.as_derived().plan(self)


@dataclass(frozen=True, slots=True)
class CommitRefresh(TableDelivery[RefreshOutcome]):
    """Exchange the rows of a plan's partitions, and say what they are made of, at once.

    ConflictError, which changes nothing: another refresh was faster. The same job again is answered as the first time.
    """

    plan: RefreshPlan
    keys: tuple[Any, ...] | None
    """Only rows of these keys are exchanged; None: all. In mode append none is."""
    rows_read: int
    began: float

    if_lost: ClassVar[str] = "the refresh may be done or not: committing it again is safe"

    def on(self, table: LocalTable, rows: Any) -> RefreshOutcome:
        from tidewheel.engine.refresh_commit import commit_refresh

        return table.as_owner(lambda: commit_refresh(table, table.as_derived(), self, rows))
