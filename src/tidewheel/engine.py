"""The engine of a warehouse that this process owns: its catalog, files, tables and background thread.

`Warehouse` and `Table` delegate to it. It is opened once per process and root and counts its users.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidewheel.catalog.lease import lock
from tidewheel.catalog.sql import open_sqlite
from tidewheel.chunk import names
from tidewheel.chunk.cache import LeafCache
from tidewheel.chunk.format import code_columns
from tidewheel.chunk.reader import Chunk
from tidewheel.chunk.remote import RemoteChunk
from tidewheel.env.clock import Clock
from tidewheel.env.files import LocalFiles
from tidewheel.env.remote import RangeFiles
from tidewheel.errors import (
    BadRowsError,
    ClosedError,
    ExistsError,
    FormatError,
    InputError,
    NotFoundError,
    SettingsError,
    StorageError,
    TidewheelError,
)  # fmt: skip
from tidewheel.index.run import Run
from tidewheel.index.tree import Tree
from tidewheel.model.codes import integer_codes
from tidewheel.model.query import Query
from tidewheel.model.records import MaskRecord, PackageRecord, TableRecord
from tidewheel.model.schema import TableSpec, nearest
from tidewheel.read.coordinator import Coordinator, pair
from tidewheel.read.result import Result
from tidewheel.read.scan import StoredColumns
from tidewheel.settings import Settings
from tidewheel.write.accept import Accepted, Acceptor
from tidewheel.write.flush import Flusher, MakeChunk
from tidewheel.write.publish import Publisher
from tidewheel.write.rejects import SUFFIX, rejects_batch, rejects_spec


@dataclass(frozen=True, slots=True)
class Ack:
    """An insert's acknowledgement: its rows are visible to every reader, and as durable as Settings.durability says."""

    rows: int
    rejected: int = 0
    generation: int = 0
    duplicate: bool = False
    """The package was loaded before; nothing was inserted."""


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


class LocalTable:
    """One table of an owned warehouse. Every method may be called from any thread."""

    def __init__(self, engine: LocalEngine, record: TableRecord) -> None:
        self.engine = engine
        self.record = record
        self.spec = record.spec
        self.publisher = Publisher(record, engine.settings, engine.clock, engine.flusher.wake)
        chunks = [engine.flusher.chunk(self.publisher, c) for c in engine.catalog.chunks(record.id)]
        self.publisher.resume(list(chunks), engine.catalog.masks(record.id), engine.catalog.servers(record.id))
        self.acceptor = Acceptor(record.spec, self.publisher.coders.all[0].refuse)
        self.coordinator = Coordinator(record.spec, self.publisher.shape, engine.settings, _stored(record.spec))
        self._packages: set[str] = set()
        self._packages_lock = threading.Lock()
        self._replacing = threading.Lock()

    # ---- writing ----------------------------------------------------------------------------------------

    def insert(self, data: Any, package: str | None, on_bad: str) -> Ack:
        self._check_open()
        if package is not None:
            return self._insert_package(data, package, on_bad)
        accepted = self.acceptor.accept(data, on_bad)
        if accepted.rejected:
            self._keep_rejects(accepted, None)
        return self._insert(accepted, None)

    def _insert(self, accepted: Accepted, package: PackageRecord | None) -> Ack:
        if not accepted.batches:
            return Ack(0, len(accepted.rejected), self.publisher.version.generation)
        rows = sum(b.num_rows for b in accepted.batches)
        return Ack(rows, len(accepted.rejected), self.publisher.insert(accepted.batches, package))

    def _insert_package(self, data: Any, name: str, on_bad: str) -> Ack:
        """At most once under that name: known names are in the catalog or in `_packages`.

        Packages are loaded one after the other: whoever is told "duplicate" can rely on the first one being in.
        """
        if not isinstance(name, str) or not name:
            raise InputError(f"a package is named by a text, such as its file name, not {name!r}")
        with self._packages_lock:
            if name in self._packages or self.engine.catalog.package(self.record.id, name) is not None:
                return Ack(0, 0, self.publisher.version.generation, duplicate=True)
            ack = self._load_package(data, name, on_bad)
            self._packages.add(name)
            return ack

    def _load_package(self, data: Any, name: str, on_bad: str) -> Ack:
        accepted = self.acceptor.accept(data, on_bad)
        if accepted.rejected:
            self._keep_rejects(accepted, name)
        rows = sum(b.num_rows for b in accepted.batches)
        package = PackageRecord(name, self.publisher.version.generation + 1, rows, len(accepted.rejected))
        if rows:
            return self._insert(accepted, package)
        self.engine.flusher.commit_package(self.publisher, package)
        return Ack(0, len(accepted.rejected), self.publisher.version.generation)

    def _keep_rejects(self, accepted: Accepted, package: str | None) -> None:
        """Bad rows first: if what follows fails, the caller inserts again, and a reject twice is better than one lost."""
        rejects = self.engine.rejects_of(self.spec.name, create=True)
        assert rejects is not None
        rejects.publisher.insert([rejects_batch(accepted.rejected, self.engine.clock.now(), package)])
        self.publisher.metrics.rejected += len(accepted.rejected)

    def replace(self, data: Any, time: Any) -> Ack:
        """Exchange the rows of a time interval at once: readers see the old ones or the new ones, never both or neither."""
        self._check_open()
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
        with self._replacing:
            # 1. all rows of before are sealed, so each piece is wholly before or wholly after this generation
            generation = publisher.reserve()
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
            self.engine.flusher.replace(publisher, tree.view() if tree else None, mask)
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
        self._check_open()
        rejects = self.engine.rejects_of(self.spec.name, create=False)
        if rejects is not None:
            rejects.flush()
        self.publisher.wait_flushed(self.publisher.seal())

    def _check_open(self) -> None:
        self.engine.check_open()
        self.publisher.check_open()

    # ---- reading ----------------------------------------------------------------------------------------

    def query(self, query: Query) -> Result:
        self._check_open()
        return Result(self.coordinator, self.publisher.version, query)

    def rejects(self) -> Result:
        self._check_open()
        rejects = self.engine.rejects_of(self.spec.name, create=False)
        if rejects is None:
            empty = Publisher(TableRecord(0, rejects_spec(self.spec.name)), self.engine.settings, self.engine.clock, lambda: None)
            return Result(Coordinator(empty.spec, empty.shape, self.engine.settings, _stored(empty.spec)), empty.version, Query())
        return rejects.query(Query(order_by="rejected_at, position"))

    def state(self) -> TableState:
        version = self.publisher.version
        trees = version.trees
        fresh = sum(t.rows for t in trees)
        disk = list(version.chunks)
        old = sum(c.record.rows for c in disk)
        return TableState(
            rows=len(Result(self.coordinator, version, Query())) if version.masks else fresh + old,
            fresh_rows=fresh, historical_rows=old, chunks=len(disk), trees=len(version.live), sealed=len(version.sealed),
            memory_bytes=sum(run.bytes for t in trees for run in t.holders[: t.count]), disk_bytes=sum(c.record.bytes for c in disk),
            generation=version.generation,
        )  # fmt: skip


class LocalEngine:
    """The owner's side of a warehouse. Made by `open_engine`, closed by its last user."""

    def __init__(self, root: Path, settings: Settings) -> None:
        self.root = root
        self.settings = settings
        self.clock = Clock()
        self.users = 1
        self._closed = False
        self._closing = False
        self._lock = threading.Lock()
        self.files = LocalFiles(root)
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise StorageError(f"cannot open a warehouse in {root}: {e.strerror or e}") from e
        owner = lock(root)
        try:
            self.catalog = open_sqlite(root / names.CATALOG)
        except BaseException:
            owner.release()
            raise
        try:
            self._lease = owner.take(self.catalog)
            self.epoch = self._lease.epoch
            self._ranges: RangeFiles | None = None
            self.flusher = Flusher(self.catalog, self.files, self._chunk_maker(), self.epoch, settings, self.clock)
            self._tables: dict[str, LocalTable] = {}
            self._sweep()
            for record in self.catalog.tables():
                self._tables[record.spec.name] = LocalTable(self, record)
        except BaseException:
            owner.release()
            self.catalog.close()
            raise
        self.flusher.start(lambda: [t.publisher for t in list(self._tables.values())])

    def _chunk_maker(self) -> MakeChunk:
        """How chunks are read: mapped, or by range through a cache of leaves."""
        if self.settings.map_chunks:
            return lambda record, spec, shape, coder: Chunk(record, spec, shape, coder, self.files)
        from pyarrow import fs

        cache, files = LeafCache(self.settings.cache_bytes), RangeFiles(fs.LocalFileSystem(), str(self.root))
        self._ranges = files
        return lambda record, spec, shape, coder: RemoteChunk(record, spec, shape, coder, files, cache)

    def check_open(self) -> None:
        if self._closed:
            raise ClosedError(self._why_closed())

    def _why_closed(self) -> str:
        return f"the warehouse {self.root} was closed; open it again"

    def _sweep(self) -> None:
        """Remove chunk files that no table knows: what a crash left half done, or a drop could not delete yet."""
        found = [file for file in self.files.list(names.TABLES) if names.is_chunk(file)]
        if found and self.epoch == 1:  # a catalog that nobody owned before knows no chunk: it is not theirs
            raise FormatError(
                f"{self.root} holds {len(found)} chunks, but its catalog {names.CATALOG} is new: put the catalog back from a backup. "
                "Nothing was changed."
            )
        tables = self.catalog.tables()
        known = {chunk.file for table in tables for chunk in self.catalog.chunks(table.id)}
        folders = {names.table_folder(table.id) for table in tables}
        for file in found:
            if file not in known:
                self.files.remove(file)
        for folder in {os.path.dirname(file) for file in found} - folders:
            self.files.remove_folder(folder)

    def tables(self) -> list[str]:
        self.check_open()
        return sorted(n for n in self._tables if SUFFIX not in n)

    def table(self, name: str) -> LocalTable:
        self.check_open()
        try:
            return self._tables[name]
        except (KeyError, TypeError):
            known = self.tables()
            hint = nearest(name, known) if isinstance(name, str) else ""
            raise NotFoundError(f"there is no table {name!r}.{hint} Tables: {', '.join(known) or 'none yet'}") from None

    def create(self, spec: TableSpec, if_exists: str) -> LocalTable:
        self.check_open()
        if if_exists not in ("error", "open"):
            raise InputError(f"if_exists is 'error' or 'open', not {if_exists!r}")
        with self._lock:
            if self._closing:
                raise ClosedError(self._why_closed())
            there = self._tables.get(spec.name)
            if there is not None:
                if if_exists == "error":
                    raise ExistsError(f"table {spec.name!r} is there already; open it with wh.table({spec.name!r}) or say if_exists='open'")
                _check_same(there.spec, spec)
                return there
            record = self.catalog.create_table(spec, self.epoch)
            try:
                self.files.make_folder(names.table_folder(record.id))
            except StorageError:
                self.catalog.drop_table(spec.name, self.epoch)
                raise
            self._tables[spec.name] = table = LocalTable(self, record)
            return table

    def drop(self, name: str) -> None:
        table = self.table(name)
        with self._lock:
            if self._tables.get(name) is not table:
                return
            # the catalog first: if that fails, the table is as it was
            records = self.flusher.drop(table.publisher, lambda: self.catalog.drop_table(name, self.epoch))
            del self._tables[name]
            held = {c.record.file for c in table.publisher.version.chunks}
            for record in records:
                if record.file not in held:
                    self.files.remove(record.file)
            for chunk in table.publisher.version.chunks:
                chunk.condemn()
            self.files.remove_folder(names.table_folder(table.record.id))
        if name + SUFFIX in self._tables:
            self.drop(name + SUFFIX)

    def rejects_of(self, name: str, create: bool) -> LocalTable | None:
        there = self._tables.get(name + SUFFIX)
        return self.create(rejects_spec(name), "open") if there is None and create else there

    def close(self) -> None:
        """Flush everything, then let go of the warehouse. If a flush fails, it is still let go of, and the error is raised."""
        with _registry_lock:
            self.users -= 1
            if self.users > 0 or self._closed:
                return
            _registry.pop(self.root, None)
        with self._lock:
            self._closing = True
            publishers = [table.publisher for table in self._tables.values()]
        error: TidewheelError | None = None
        try:
            for publisher in publishers:
                publisher.close(self._why_closed())
            for publisher, jobs in [(p, p.seal()) for p in publishers]:
                try:
                    publisher.wait_flushed(jobs)
                except TidewheelError as e:
                    error = error or e
        finally:
            self._closed = True
            self.flusher.stop()
            if self._ranges is not None:
                self._ranges.close()
            self._lease.release()
            self.catalog.close()
        if error is not None:
            raise error


def _stored(spec: TableSpec) -> StoredColumns:
    return StoredColumns(*code_columns(spec))


def _check_same(there: TableSpec, wanted: TableSpec) -> None:
    same = there.schema.equals(wanted.schema) and there.layout_json() == wanted.layout_json() and there.partition == wanted.partition
    if not same:
        raise ExistsError(
            f"table {there.name!r} is there with another definition:\n{there.schema}\n{there.layout_json()}\n"
            f"and not\n{wanted.schema}\n{wanted.layout_json()}\nGive the same definition, choose another name, or drop it first."
        )


_registry: dict[Path, LocalEngine] = {}
_registry_lock = threading.RLock()


def open_engine(path: str | os.PathLike[str], settings: Settings | None) -> LocalEngine:
    """The engine of a root: made by the first call in this process, shared by later ones."""
    try:
        root = Path(path).expanduser().resolve()
    except (ValueError, RuntimeError, OSError) as e:
        raise SettingsError(f"{path!r} cannot be the folder of a warehouse: {e}") from None
    with _registry_lock:
        there = _registry.get(root)
        if there is not None:
            if settings is not None and settings != there.settings:
                raise SettingsError(f"{root} is open in this process with other settings; close it first")
            there.users += 1
            return there
        engine = LocalEngine(root, settings or Settings())
        _registry[root] = engine
        return engine


@atexit.register
def _close_all() -> None:
    """A process that ends without closing its warehouses still flushes them, each for itself."""
    for engine in list(_registry.values()):
        engine.users = 1
        try:
            engine.close()
        except TidewheelError as e:
            print(f"tidewheel: {engine.root} could not be flushed at exit: {e}", file=sys.stderr)


def _forget_in_child() -> None:
    """A forked child has neither the threads nor the lease of its parent's warehouses."""
    global _registry_lock
    _registry_lock = threading.RLock()
    for engine in _registry.values():
        engine._closed = True
    _registry.clear()


os.register_at_fork(after_in_child=_forget_in_child)
