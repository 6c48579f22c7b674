"""One table of a warehouse that this process owns: what `Table` delegates to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from tidewheel.catalog.access import CatalogReader
from tidewheel.catalog.tenure import Tenure
from tidewheel.chunk.format import code_columns
from tidewheel.env.clock import Clock
from tidewheel.env.deadline import holding
from tidewheel.env.local_files import LocalFiles
from tidewheel.errors import BadRowsError, FencedError, InputError
from tidewheel.index.run import Run
from tidewheel.index.tree import Tree
from tidewheel.index.version import Version
from tidewheel.metrics import TableMetrics
from tidewheel.model.codes import integer_codes
from tidewheel.model.delivery import Ack, Load, Pin, ServerState, SliceId, Staged, StreamState, TableState, Written
from tidewheel.model.pieces import Shape
from tidewheel.model.query import Query, pair
from tidewheel.model.records import Coverage, MaskRecord, PackageRecord, StreamBatchRecord, TableContents, TableRecord
from tidewheel.model.schema import TableSpec
from tidewheel.read.generation_counts import rows_by_generation
from tidewheel.read.local_result import LocalResult
from tidewheel.read.pinned import PinnedVersion, split
from tidewheel.read.pins import Pins, chunks_of, fresh_of
from tidewheel.read.planner import Planner
from tidewheel.read.result import Result
from tidewheel.read.scan import StoredColumns
from tidewheel.settings import Settings
from tidewheel.write.accept import Accepted, Acceptor
from tidewheel.write.bulk_loads import Loads
from tidewheel.write.commit import Committer
from tidewheel.write.flush import Flusher
from tidewheel.write.log import Log
from tidewheel.write.packages import Packages
from tidewheel.write.publish import Publisher
from tidewheel.write.recover import Step, TableRecovery, recover
from tidewheel.write.rejects import rejects_batch, rejects_spec
from tidewheel.write.streams import Streams

T = TypeVar("T")


class Owner(Protocol):
    """What a table needs of the engine that owns it."""

    settings: Settings
    clock: Clock
    flusher: Flusher
    commits: Committer
    files: LocalFiles
    epoch: int

    @property
    def catalog(self) -> CatalogReader: ...
    @property
    def tenure(self) -> Tenure: ...
    def check_open(self) -> None: ...
    def rejects_of(self, table: TableRecord, create: bool) -> LocalTable | None: ...


class LocalTable:
    """One table of an owned warehouse; holds `engine.protocol.TableEngine`. Every method may be called from any thread."""

    lost = False

    def __init__(self, engine: Owner, contents: TableContents) -> None:
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
        self._replacing = threading.Lock()
        rejects = partial(_rejects_of, engine, record)
        self.loads = Loads(self.publisher, engine.flusher, engine.files, self._replacing)
        self.streams = Streams(self.publisher, self.acceptor, engine.catalog, rejects, self.packages, self.loads)
        self.pins = Pins()

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

    # ---- writing ----------------------------------------------------------------------------------------

    def insert(self, data: Any, package: str | None, on_bad: str) -> Ack:
        return self._as_owner(lambda: self._insert_rows(data, on_bad) if package is None else self._insert_package(data, package, on_bad))

    def _as_owner(self, work: Callable[[], T]) -> T:
        """Do something that is to be acknowledged. What it did is done by the owner, or this raises FencedError, now and ever after."""
        self._check_open()
        try:
            done = work()
        except FencedError as e:
            raise self.engine.tenure.ended_by(e) from None
        self.engine.tenure.confirm()
        return done

    def _insert_rows(self, data: Any, on_bad: str) -> Ack:
        accepted = self.acceptor.accept(data, on_bad)
        if accepted.rejected:
            self._keep_rejects(accepted, None)
        return self._insert(accepted, None)

    def _insert(self, accepted: Accepted, package: PackageRecord | None) -> Ack:
        if not accepted.batches:
            return Ack(0, len(accepted.rejected), self.publisher.version.generation)
        rows = sum(b.num_rows for b in accepted.batches)
        return Ack(rows, len(accepted.rejected), self.publisher.insert(accepted.batches, (package,) if package else ()))

    def _insert_package(self, data: Any, name: str, on_bad: str) -> Ack:
        """At most once under that name."""
        if not isinstance(name, str) or not name:
            raise InputError(f"a package is named by a text, such as its file name, not {name!r}")
        with holding(self.packages.lock, f"other packages of table {self.spec.name!r} are being loaded; nothing was inserted"):
            if self.packages.known(name):
                return Ack(0, 0, self.publisher.version.generation, duplicate=True)
            ack = self._load_package(data, name, on_bad)
            self.packages.add([name])
            return ack

    def _load_package(self, data: Any, name: str, on_bad: str) -> Ack:
        accepted = self.acceptor.accept(data, on_bad)
        if accepted.rejected:
            self._keep_rejects(accepted, name)
        rows = sum(b.num_rows for b in accepted.batches)
        package = PackageRecord(name, self.publisher.version.generation + 1, rows, len(accepted.rejected))
        if rows:
            try:
                return self._insert(accepted, package)
            except BaseException:  # the log could not be synced, or the wait for it was interrupted
                self.packages.interrupted([name])
                raise
        self.packages.add_without_rows(package)
        return Ack(0, len(accepted.rejected), self.publisher.version.generation)

    def _keep_rejects(self, accepted: Accepted, package: str | None) -> None:
        """Bad rows first: if what follows fails, the caller inserts again, and a reject twice is better than one lost."""
        rejects = self.engine.rejects_of(self.record, create=True)
        assert rejects is not None
        rejects.publisher.insert([rejects_batch(accepted.rejected, self.engine.clock.now(), rejects.spec.schema, package)])
        self.publisher.metrics.rejected += len(accepted.rejected)

    def replace(self, data: Any, time: Any) -> Ack:
        """Exchange the rows of a time interval at once: readers see the old ones or the new ones, never both or neither."""
        return self._as_owner(lambda: self._replace(data, time))

    def _replace(self, data: Any, time: Any) -> Ack:
        if time is None:
            raise InputError("replace needs the interval time=(first, last) whose rows are exchanged; (None, None) is all of them")
        lo, hi = pair(time, "time")
        first, last = self.spec.time.interval(lo, hi)
        if first > last:
            raise InputError(f"replace: the interval {lo!r} .. {hi!r} of table {self.spec.name!r} is empty")
        accepted = self.acceptor.accept(data, "error")
        self._check_inside(accepted, first, last)
        publisher = self.publisher
        placed = [p for batch in accepted.batches for p in publisher.place(batch)]
        # 1. all rows of before are sealed, so each piece is wholly before or wholly after this generation
        busy = f"another replace or load of table {self.spec.name!r} is being done; nothing was changed"
        with holding(self._replacing, busy), publisher.reserve() as reserved:
            generation = reserved.generation
            # 2. the new rows, as a tree that nobody sees yet
            runs: list[Run] = [run for _, _, run in placed]
            server = placed[0][0] if placed else publisher.servers[0]
            tree = Tree(server.number, True, server.template, publisher.shape, 0.0) if server.template else None
            for run in runs:
                run.publish(generation)
                assert tree is not None
                tree.append(run)
            # 3. one transaction, one swap
            mask = MaskRecord(first, last, generation - 1, "replace")
            self.engine.flusher.replace(publisher, tree.view() if tree else None, mask, reserved)
        return Ack(sum(run.rows for run in runs), 0, generation)

    def _check_inside(self, accepted: Accepted, first: int, last: int) -> None:
        at = 0
        axis = self.spec.time
        for batch in accepted.batches:
            times = integer_codes(batch.column(self.spec.time.column))
            outside = (times < first) | (times > last)
            if outside.any():
                row = int(outside.argmax())
                raise BadRowsError(
                    f"replace: row {at + row} of table {self.spec.name!r} has {axis.column} = {axis.show(int(times[row]))}, "
                    f"outside the interval {axis.show(first)} .. {axis.show(last)}; nothing was changed",
                    table=self.spec.name, column=axis.column, rows=(at + row,),
                )  # fmt: skip
            at += batch.num_rows

    def flush(self) -> None:
        """Everything inserted before this call is in chunks and in the catalog when it returns, rejects included."""
        rejects = self.engine.rejects_of(self.record, create=False)
        if rejects is not None:
            rejects.flush()
        self._as_owner(lambda: self.publisher.wait_flushed(self.publisher.seal()))

    def _check_open(self) -> None:
        self.engine.check_open()
        self.publisher.check_open()

    # ---- written by many --------------------------------------------------------------------------------

    def stage(self, slice_id: SliceId, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Staged:
        return self._as_owner(lambda: self.streams.stage(slice_id, batches))

    def commit_batch(self, stream: str, run: str, batch: int, slices: Sequence[SliceId], written: Sequence[Written] = ()) -> Ack:
        return self._as_owner(lambda: self.streams.commit(stream, run, batch, slices, written))

    def abort_batch(self, stream: str, run: str, batch: int) -> None:
        self.streams.abort(stream, run, batch)

    def last_batch(self, stream: str) -> int | None:
        return self._as_owner(lambda: self.streams.last(stream))

    def begin_load(self) -> Load:
        self._check_open()
        self.engine.tenure.confirm()  # first: it makes a folder
        return self._as_owner(self.loads.begin)

    def commit_load(self, job: str, written: Sequence[Written], overwrite: bool) -> Ack:
        return self._as_owner(lambda: self.loads.commit(job, written, overwrite))

    def abort_load(self, job: str) -> None:
        self.loads.abort(job)

    # ---- read by many -----------------------------------------------------------------------------------

    def pin(self, query: Query) -> Pin:
        version = self.version()
        found = LocalResult(self.planner, version, query)
        trees = version.trees
        return Pin(
            self.pins.add(version), version.generation, chunks_of(found), version.masks_for_others(), sum(t.rows for t in trees),
            sum(run.bytes for t in trees for run in t.holders[: t.count]),
        )  # fmt: skip

    def fresh(self, pin: str, query: Query) -> Result:
        self._check_open()
        return LocalResult(self.planner, fresh_of(self.pins.get(pin), self.publisher.shape.width), query)

    def touch(self, pin: str, part: int, parts: int) -> None:
        self.pins.touch(pin, part, parts)

    def unpin(self, pin: str) -> None:
        self.pins.remove(pin)

    def generation(self) -> int:
        return self.publisher.version.settled

    def rows_by_generation(self, after: int, upto: int | None, most: int | None) -> list[tuple[int, int]]:
        return rows_by_generation(self.version(), after, upto, most)

    def changes(self, after: int, upto: int, columns: Sequence[str] | None) -> Result:
        return self.query(Query(columns=columns, after=after, upto=upto))

    # ---- reading ----------------------------------------------------------------------------------------

    def query(self, query: Query) -> Result:
        return LocalResult(self.planner, self.version(), query)

    def version(self) -> Version:
        """What a query of this moment would read."""
        self._check_open()
        return self.publisher.version

    def pinned(self) -> PinnedVersion:
        return self.pinned_at(self.version())

    def pinned_at(self, version: Version) -> PinnedVersion:
        """The table at a version of its own."""
        return PinnedVersion(self.planner, version)

    def rejects(self, ordered: bool = True) -> Result:
        self._check_open()
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


def _rejects_of(engine: Owner, table: TableRecord) -> tuple[Publisher, Streams]:
    """Not a method: a table that held on to itself would keep its files after it was dropped."""
    rejects = engine.rejects_of(table, create=True)
    assert rejects is not None
    return rejects.publisher, rejects.streams


def _stored(spec: TableSpec) -> StoredColumns:
    return StoredColumns(*code_columns(spec))
