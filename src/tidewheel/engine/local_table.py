"""One table of a warehouse that this process owns: its parts, put together, and what they say together. Operations find them here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tidewheel.chunk.format import code_columns
from tidewheel.engine.local_derived import LocalDerived
from tidewheel.engine.protocol import TableDelivery, TableOperation, TableQuestion
from tidewheel.errors import FencedError, InputError
from tidewheel.index.version import Version
from tidewheel.metrics import TableMetrics
from tidewheel.model.delivery import Pin, ServerState, StreamState, TableState
from tidewheel.model.description import TableDescription
from tidewheel.model.partition_labels import Labels
from tidewheel.model.pieces import Shape
from tidewheel.model.query import Query
from tidewheel.model.records import Coverage, StreamBatchRecord, TableContents, TableRecord
from tidewheel.model.schema import TableSpec
from tidewheel.read.describe import describe
from tidewheel.read.generation_counts import rows_by_generation
from tidewheel.read.local_result import LocalResult
from tidewheel.read.pinned import PinnedVersion, split
from tidewheel.read.pins import Pins, chunks_of, fresh_of
from tidewheel.read.planner import Planner
from tidewheel.read.result import Result
from tidewheel.read.scan import StoredColumns
from tidewheel.read.shortened import shortened
from tidewheel.write.accept import Acceptor
from tidewheel.write.bulk_loads import Loads
from tidewheel.write.file_loads import FileLoads
from tidewheel.write.inserts import Inserts
from tidewheel.write.log import Log
from tidewheel.write.packages import Packages
from tidewheel.write.publish import Publisher
from tidewheel.write.recover import Step, TableRecovery, recover
from tidewheel.write.rejects import rejects_spec
from tidewheel.write.replace import Replacements
from tidewheel.write.streams import Streams

if TYPE_CHECKING:
    from tidewheel.engine.local_engine import LocalEngine

T = TypeVar("T")


class LocalTable:
    """One table of an owned warehouse; holds `engine.protocol.TableEngine`. Every method may be called from any thread."""

    lost = False

    def __init__(self, engine: LocalEngine, contents: TableContents) -> None:
        record = contents.record
        self.engine = engine
        self.record = record
        self.spec = record.spec
        log = Log(engine.files, record, Shape(record.spec), engine.epoch, engine.settings.durability, engine.tenure.look)
        self.publisher = Publisher(record, engine.settings, engine.clock, engine.flusher.wake, log)
        chunks = [engine.commits.chunk(self.publisher, c) for c in contents.chunks]
        self.publisher.resume(list(chunks), list(contents.masks), list(contents.servers))
        self.acceptor = Acceptor(record.spec, self.publisher.coders.first.refuse, engine.settings.max_batch_bytes)
        self.planner = Planner(record.spec, self.publisher.shape, engine.settings, _stored(record.spec))
        self.packages = Packages(self.publisher, engine.catalog, engine.commits)
        turn = threading.Lock()  # of whatever seals all trees and then commits: a replacement, a load
        rejects = partial(_rejects_of, engine, record)
        self.inserts = Inserts(self.publisher, self.acceptor, self.packages, rejects)
        self.replacements = Replacements(self.publisher, self.acceptor, engine.flusher, turn)
        self.loads = Loads(self.publisher, engine.flusher, engine.files, turn)
        self.streams = Streams(self.publisher, self.acceptor, engine.catalog, rejects, self.packages, self.loads)
        self.files = FileLoads(self.publisher, self.packages, self.streams, self.loads, rejects)
        self.pins = Pins(engine.clock)
        self.derived = LocalDerived(self, contents.derived) if contents.derived is not None else None
        """Of a derived table: what makes it."""

    def recover(self, coverage: Sequence[Coverage], logged: bool, step: Step, shared: bool) -> TableRecovery | None:
        """Bring back what an owner that crashed had acknowledged, if it left a log. Called once, before the table is used."""
        skip = self.engine.settings.damaged_log == "skip"
        held = {(c.record.server, c.record.late, c.record.generation_lo, c.record.generation_hi) for c in self.publisher.version.chunks}
        self.publisher.removed = [c.generation_hi for c in coverage if (c.server, c.late, c.generation_lo, c.generation_hi) not in held]
        done = recover(self.publisher, self.engine.files, coverage, skip, step, shared) if logged else None
        if done is not None:
            self.packages.add(done.packages)
        self.engine.commits.tidy(self.publisher)
        return done

    # ---- what is asked of it ----------------------------------------------------------------------------

    def do(self, operation: TableOperation[T]) -> T:
        return operation.on(self)

    def ask(self, question: TableQuestion) -> Result:
        return question.on(self)

    def give(self, delivery: TableDelivery[T], rows: Any) -> T:
        return delivery.on(self, rows)

    # ---- writing ----------------------------------------------------------------------------------------

    def as_owner(self, work: Callable[[], T]) -> T:
        """Do something that is to be acknowledged. What was done is done by the owner, or this raises FencedError, now and ever after."""
        self.check_open()
        try:
            done = work()
        except FencedError as e:
            raise self.engine.tenure.ended_by(e) from None
        self.engine.tenure.confirm()
        return done

    def feeding(self, work: Callable[[], T]) -> T:
        """The same for rows that come from outside, which derived tables do not take."""
        self.check_fed()
        return self.as_owner(work)

    def check_fed(self) -> None:
        """Raises InputError for a derived table."""
        if self.derived is not None:
            of = ", ".join(self.derived.sources)
            raise InputError(f"table {self.spec.name!r} is derived: only a refresh writes to it. Insert into what it is made of: {of}")

    def as_derived(self) -> LocalDerived:
        """What makes the table; InputError if it is not derived."""
        self.check_open()
        if self.derived is None:
            raise InputError(
                f"table {self.spec.name!r} is not derived, so there is nothing to refresh; wh.create_derived makes such tables"
            )
        return self.derived

    def labels(self) -> Labels:
        """What changed in each partition, up to the last commit."""
        found = self.publisher.labels
        if found is None:
            with self.engine.commits.still():  # none comes between the look and the first change
                self.publisher.labels = found = Labels.of(self.engine.catalog.labels(self.record.id))
        return found

    def confirm_ownership(self) -> None:
        """Raises unless the table is open and this process owns it at this moment."""
        self.check_open()
        self.engine.tenure.confirm()

    def check_open(self) -> None:
        self.engine.check_open()
        self.publisher.check_open()

    def flush(self) -> None:
        """Everything inserted before this call is in chunks and in the catalog when it returns, rejects included."""
        rejects = self.engine.rejects_of(self.record, create=False)
        if rejects is not None:
            rejects.flush()
        self.as_owner(lambda: self.publisher.wait_flushed(self.publisher.seal()))

    # ---- read by many -----------------------------------------------------------------------------------

    def pin(self, query: Query, name: str = "", scan: str = "") -> Pin:
        id_, version = self.pins.hold(self.version, name, scan)
        found = LocalResult(self.planner, version, query)
        trees = version.trees
        return Pin(
            id_, version.generation, chunks_of(found), version.masks_for_others(), sum(t.rows for t in trees),
            sum(run.bytes for t in trees for run in t.holders[: t.count]),
        )  # fmt: skip

    def fresh(self, pin: str, query: Query) -> Result:
        """The rows of a pinned version that are in no chunk."""
        self.check_open()
        return LocalResult(self.planner, fresh_of(self.pins.get(pin), self.publisher.shape.width), query)

    def rows_by_generation(self, after: int, upto: int | None, most: int | None) -> list[tuple[int, int]]:
        return rows_by_generation(self.version(), after, upto, most)

    # ---- reading ----------------------------------------------------------------------------------------

    def query(self, query: Query) -> Result:
        version = self.version()
        return LocalResult(self.planner, version, shortened(self.planner, version, query))

    def version(self) -> Version:
        """What a query of this moment would read."""
        self.check_open()
        return self.publisher.version

    def pinned(self) -> PinnedVersion:
        return self.pinned_at(self.version())

    def pinned_at(self, version: Version) -> PinnedVersion:
        """The table at a version of its own."""
        return PinnedVersion(self.planner, version)

    def rejects(self, ordered: bool = True) -> Result:
        self.check_open()
        rejects = self.engine.rejects_of(self.record, create=False)
        if rejects is None:
            record = TableRecord(0, rejects_spec(self.spec.name))
            no_log = Log(self.engine.files, record, Shape(record.spec), 0, "memory")
            empty = Publisher(record, self.engine.settings, self.engine.clock, lambda: None, no_log)
            return LocalResult(Planner(empty.spec, empty.shape, self.engine.settings, _stored(empty.spec)), empty.version, Query())
        return rejects.query(Query(order_by="rejected_at, position" if ordered else None))

    def state(self) -> TableState:
        version = self.publisher.version
        trees = version.trees
        fresh = sum(t.rows for t in trees)
        disk = list(version.chunks)
        old = sum(c.record.rows for c in disk)
        return TableState(
            rows=self._count(version) if version.hidden else fresh + old,
            fresh_rows=fresh, historical_rows=old, chunks=len(disk), trees=len(version.live), sealed=len(version.sealed),
            memory_bytes=sum(run.bytes for t in trees for run in t.holders[: t.count]), disk_bytes=sum(c.record.bytes for c in disk),
            generation=version.generation,
        )  # fmt: skip

    def _count(self, version: Version) -> int:
        """The rows that are seen of a version with masks: only what these touch is looked at."""
        whole, rest = split(version)
        return sum(chunk.record.rows for chunk in whole) + len(LocalResult(self.planner, rest, Query()))

    def describe(self) -> TableDescription:
        return describe(self.planner, self.version())

    def metrics(self) -> TableMetrics:
        return replace(self.publisher.metrics)

    def server_states(self) -> list[ServerState]:
        trees = [view.tree for view in self.version().trees]
        states = []
        for known in self.publisher.placing.division:
            mine = [tree for tree in trees if tree.server == known.server]
            fresh, late = sum(tree.rows for tree in mine), sum(tree.rows for tree in mine if tree.late)
            states.append(ServerState(known.server, known.key_lo, known.prefix, fresh, late, sum(tree.bytes for tree in mine)))
        return states

    def stream_states(self) -> list[StreamState]:
        version = self.version()  # first: what is flushed meanwhile is in the catalog then
        last = {one.stream: (one, True) for one in self.engine.catalog.streams(self.record.id)}
        for view in version.trees:
            for one in list(view.tree.deliveries):
                if isinstance(one, StreamBatchRecord) and (one.stream not in last or one.batch > last[one.stream][0].batch):
                    last[one.stream] = one, False
        return [StreamState(stream, one.batch, one.rows, flushed) for stream, (one, flushed) in sorted(last.items())]


def _rejects_of(engine: LocalEngine, table: TableRecord) -> tuple[Publisher, Streams]:
    """Not a method: a table that held on to itself would keep its files after it was dropped."""
    rejects = engine.rejects_of(table, create=True)
    assert rejects is not None
    return rejects.publisher, rejects.streams


def _stored(spec: TableSpec) -> StoredColumns:
    return StoredColumns(*code_columns(spec))
