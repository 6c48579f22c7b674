"""The engine of a warehouse that this process owns: its catalog, files, tables and background thread.

One process makes it at a time, once per root: `cluster.current_engine` sees to that.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from tidewheel.catalog.access import CatalogWriter
from tidewheel.catalog.lease import OwnerLock, lock, may_live
from tidewheel.catalog.light import open_light
from tidewheel.catalog.tenure import Tenure, check_catalog
from tidewheel.chunk import names
from tidewheel.chunk.cache import LeafCache
from tidewheel.chunk.reader import Chunk, beyond_of
from tidewheel.chunk.remote_chunk import RemoteChunk
from tidewheel.derive.lineage import check_bounds
from tidewheel.engine.local_table import LocalTable
from tidewheel.engine.protocol import WarehouseOperation
from tidewheel.env.clock import Clock
from tidewheel.env.disk import Disk
from tidewheel.env.local_files import LocalFiles
from tidewheel.env.range_files import RangeFiles
from tidewheel.env.store import Store, remove_with
from tidewheel.errors import (
    ClosedError,
    ExistsError,
    FencedError,
    FormatError,
    InputError,
    NotFoundError,
    StorageError,
    TidewheelError,
)  # fmt: skip
from tidewheel.index.version import ChunkLike
from tidewheel.model.derived import Definition, Dependency, DerivedContents
from tidewheel.model.records import TableContents, TableRecord
from tidewheel.model.report import Progress
from tidewheel.model.schema import TableSpec, nearest
from tidewheel.read.pinned import PinnedVersion, at_one_moment
from tidewheel.settings import Settings
from tidewheel.write.bulk_loads import sweep as sweep_loads
from tidewheel.write.commit import Committer, MakeChunk
from tidewheel.write.flush import Flusher
from tidewheel.write.recover import Recovery, TableRecovery
from tidewheel.write.rejects import SUFFIX, rejects_spec

T = TypeVar("T")

OpenCatalog = Callable[[Path], CatalogWriter]


class LocalEngine:
    """The owner's side of a warehouse."""

    def __init__(
        self,
        root: Path,
        settings: Settings,
        disk: Disk | None = None,
        open_catalog: OpenCatalog = open_light,
        anew: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """`anew`: it was there before, so none is made. `progress`: told how many bytes of log are replayed, if an owner left some."""
        self.root = root
        self.settings = settings
        self.clock = Clock()
        self._process = os.getpid()
        self._closed = False
        self._closing = False
        self._lock = threading.Lock()
        self.refreshing = threading.Lock()
        """Held while a refresh is committed, and by a backup that looks at all tables: no derived table is ahead of its sources."""
        self._leaving: threading.Thread | None = None
        self._condemned: weakref.WeakSet[ChunkLike] = weakref.WeakSet()
        """Chunks that left their table and that something still reads."""
        self.files = LocalFiles(root, disk)
        self._take_place(anew)
        owner = lock(root, Path(self.files.path("")))
        try:
            self.catalog = open_catalog(root / names.CATALOG)
        except BaseException:
            owner.release()
            raise
        try:
            check_catalog(self.catalog, self.files, names.CATALOG)
            began = self.clock.monotonic()
            before = self.catalog.lease()
            self._lease = owner.take(self.catalog)
            self.epoch = self._lease.epoch
            self.tenure = Tenure(root, owner, names.CATALOG, self.catalog, self.epoch, self._fenced, self._watched)
            self._ranges: RangeFiles | None = None
            look = self.tenure.look
            self.commits = Committer(self.catalog, self.files, self._chunk_maker(), self.epoch, self.clock, self._condemn, look)
            self.flusher = Flusher(self.commits, self.files, settings, self.clock)
            self._tables: dict[str, LocalTable] = {}
            known = self.catalog.contents()
            orphans, logs = self._sweep(known)
            if before is not None:  # its owner may have died between the catalog's knowing a table and its folder's being made
                self._make_folders([one.record.id for one in known])
            for one in known:
                self._tables[one.record.spec.name] = LocalTable(self, one)
            recovered = self._recover(known, logs, may_live(before), progress)
            self.recovery = Recovery(self.clock.monotonic() - began, before, recovered, orphans)
            """What opening it had to mend."""
        except FencedError:
            owner.release()
            self.catalog.abandon()  # to close it would remove files by name, and another folder has the place
            raise
        except BaseException:
            owner.release()
            self.catalog.close()
            raise
        self.flusher.start(lambda: [t.publisher for t in list(self._tables.values())])
        self.tenure.start()

    def _take_place(self, anew: bool) -> None:
        """All that follows is done in the folder that has the name now, whatever has it later: lock, files and catalog belong together."""
        try:
            if not anew:
                self.root.mkdir(parents=True, exist_ok=True)
            elif not self.root.is_dir():
                raise StorageError(_gone(self.root))
        except OSError as e:
            raise StorageError(f"cannot open a warehouse in {self.root}: {e.strerror or e}") from e
        self.files.hold()
        if anew and self.files.regular_size(names.CATALOG) < 0:
            raise StorageError(_gone(self.root))

    def _chunk_maker(self) -> MakeChunk:
        """How chunks are read: mapped, or by range through a cache of leaves."""
        if self.settings.map_chunks:
            beyond = beyond_of(self.settings)
            return lambda record, spec, shape, coder: Chunk(record, spec, shape, coder, self.files, beyond)
        from pyarrow import fs

        cache, files = LeafCache(self.settings.cache_bytes), RangeFiles(fs.LocalFileSystem(), str(self.root))
        self._ranges = files
        return lambda record, spec, shape, coder: RemoteChunk(record, spec, shape, coder, files, cache)

    def _fenced(self) -> None:
        """Called once, when this process is not the owner any more. In a thread of its own: whoever noticed may hold any lock."""
        self._leaving = threading.Thread(target=self._stop_owning, name="tidewheel-fenced", daemon=True)
        self._leaving.start()

    def _watched(self) -> None:
        """Called from time to time, while this process is the owner."""

    def _stop_owning(self) -> None:
        """Let everybody who waits know, and everybody who comes."""
        self.flusher.halt()
        for table in list(self._tables.values()):
            table.publisher.fence(self.tenure.error())

    @property
    def fenced(self) -> bool:
        """This process is not the owner any more, for good."""
        return bool(self.tenure.over)

    def check_open(self) -> None:
        if self.tenure.over:
            raise self.tenure.error()
        if self._closed or os.getpid() != self._process:
            raise ClosedError(self._why_closed())

    def _why_closed(self) -> str:
        if os.getpid() != self._process:
            return (
                f"the warehouse {self.root} belongs to process {self._process}, from which this one was forked; open it in this process "
                "when that one has closed it, or start processes with multiprocessing's 'spawn' or 'forkserver', which attach to it"
            )
        return f"the warehouse {self.root} was closed; open it again"

    def _recover(
        self, known: Sequence[TableContents], logs: dict[int, int], shared: bool, progress: Progress | None
    ) -> tuple[TableRecovery, ...]:
        """Replay the logs of an owner that did not close: so many bytes, by table id. `shared`: it may live on."""
        total, replayed = sum(logs.values()), 0

        def step(size: int) -> None:
            nonlocal replayed
            replayed += size
            if progress is not None:
                progress(replayed, total)

        done = [self._tables[one.record.spec.name].recover(one.coverage, one.record.id in logs, step, shared) for one in known]
        return tuple(one for one in done if one is not None)

    def _sweep(self, tables: Sequence[TableContents]) -> tuple[int, dict[int, int]]:
        """Remove files of ours that no table knows: what a crash left half done, or a drop could not delete yet.

        Returns how many, and the bytes of log that were left for each table that has one.
        """
        found = [file for file in self.files.list(names.TABLES) if names.is_chunk(file)]
        logs = [file for file in self.files.list(names.LOGS) if names.segment_of(file)]
        if (found or logs) and self.epoch == 1:  # a catalog that nobody owned before knows no chunk: it is not theirs
            raise FormatError(
                f"{self.root} holds {len(found)} chunks and {len(logs)} log segments, but its catalog {names.CATALOG} is new: put the "
                "catalog back from a backup. "
                "Nothing was changed."
            )
        known = {chunk.file for table in tables for chunk in table.chunks}
        ids = {table.record.id for table in tables}
        orphans = [file for file in found if file not in known]
        self.tenure.look()
        sweep_loads(self.files, self.clock)
        left: dict[int, int] = {}
        for file in logs:
            table_id = names.segment_of(file)[0]  # type: ignore[index]
            if table_id in ids:
                left[table_id] = left.get(table_id, 0) + self.files.size(file)
            else:
                orphans.append(file)
        for file in orphans:
            self.tenure.look()  # another folder may be in the place of ours by now, with files that its own catalog knows
            self.files.remove(file)
        kept = {folder for id_ in ids for folder in (names.table_folder(id_), names.log_folder(id_))}
        for folder in {*self.files.folders(names.TABLES), *self.files.folders(names.LOGS)} - kept:
            if folder.rpartition("/")[2].isdecimal():
                self.files.remove_folder(folder)
        return len(orphans), left

    def _make_folders(self, table_ids: list[int]) -> None:
        """Folders of tables, safe from a crash of the machine: a synced chunk is lost if the folder it lies in is."""
        for table_id in table_ids:
            self.files.make_folder(names.table_folder(table_id))
        for parent in (names.TABLES, "") if table_ids else ():
            self.files.sync_folder(parent)

    def do(self, operation: WarehouseOperation[T], progress: Progress | None = None) -> T:
        return operation.on(self, progress)

    def tables(self) -> list[str]:
        self.check_open()
        return sorted(n for n in list(self._tables) if SUFFIX not in n)  # a copy: others make and drop tables meanwhile

    def table(self, name: str) -> LocalTable:
        self.check_open()
        try:
            return self._tables[name]
        except (KeyError, TypeError):
            known = self.tables()
            hint = nearest(name, known) if isinstance(name, str) else ""
            raise NotFoundError(f"there is no table {name!r}.{hint} Tables: {', '.join(known) or 'none yet'}") from None

    def versions(self, names: Sequence[str]) -> list[PinnedVersion]:
        tables = [self.table(name) for name in names]
        seen = at_one_moment(lambda: [table.version() for table in tables])
        return [table.pinned_at(version) for table, version in zip(tables, seen, strict=True)]

    def create(self, spec: TableSpec, if_exists: str, rejects_of: TableRecord | None = None) -> LocalTable:
        """`rejects_of`: the table whose rejects it is for."""
        self.check_open()
        with self._lock:
            if rejects_of is not None and not self._is_there(rejects_of):
                raise ClosedError(f"table {rejects_of.spec.name!r} was dropped")
            return self._making(spec, if_exists) or self._make(spec)

    def _making(self, spec: TableSpec, if_exists: str) -> LocalTable | None:
        """The table of this name, if it is there and the same. Called with the lock held."""
        if if_exists not in ("error", "open"):
            raise InputError(f"if_exists is 'error' or 'open', not {if_exists!r}")
        if self._closing:
            raise ClosedError(self._why_closed())
        there = self._tables.get(spec.name)
        if there is not None:
            if if_exists == "error":
                raise ExistsError(f"table {spec.name!r} is there already; open it with wh.table({spec.name!r}) or say if_exists='open'")
            _check_same(there.spec, spec)
        return there

    def _make(self, spec: TableSpec, definition: Definition | None = None, sources: Sequence[Dependency] = ()) -> LocalTable:
        self.tenure.look()
        record = self._fenced_by(lambda: self.catalog.create_table(spec, self.epoch, definition, sources))
        try:
            self._make_folders([record.id])
        except StorageError:
            self.catalog.drop_table(spec.name, self.epoch)
            raise
        derived = DerivedContents(tuple(sources), (), ()) if definition is not None else None
        self._tables[spec.name] = table = LocalTable(self, TableContents(record, derived=derived))
        return table

    def create_derived(self, spec: TableSpec, definition: Definition, bounds: Sequence[tuple[str, str]], if_exists: str) -> LocalTable:
        """A derived table without rows. `bounds` names its sources, in order."""
        self.check_open()
        sources = [self.table(name) for name, _ in bounds]
        check_bounds(spec.name, bounds)
        with self._lock:
            if (there := self._making(spec, if_exists)) is not None:
                same = (
                    there.derived is not None
                    and there.derived.definition.means_the_same(definition)
                    and there.derived.bounds == tuple(bounds)
                )
                if not same:
                    raise ExistsError(f"table {spec.name!r} is there with another definition; choose another name, or drop it first")
                return there
            if gone := [source.spec.name for source in sources if not self._is_there(source.record)]:
                raise NotFoundError(f"table {gone[0]!r} was dropped; nothing was made of it")
            of = [Dependency(source.record.id, name, text) for source, (name, text) in zip(sources, bounds, strict=True)]
            return self._make(spec, definition, of)

    def derived_tables(self) -> list[str]:
        """Each after those that it is made of: a table is made after its sources."""
        self.check_open()
        return [table.spec.name for table in sorted(self._tables.values(), key=lambda t: t.record.id) if table.derived is not None]

    def cut(self, names: Sequence[str]) -> dict[str, int]:
        """Bring the rows of these tables to rest. Returns the generation up to which chunks and catalog have all of them."""
        tables = [self.table(name) for name in names]
        cuts = [(table, *table.publisher.cut()) for table in tables]
        for table, _, jobs in cuts:
            table.as_owner(partial(table.publisher.wait_flushed, jobs))
        return {table.spec.name: min(generation, table.version().settled) for table, generation, _ in cuts}

    def dependents(self, name: str) -> list[str]:
        """The tables that are derived from this one, directly or not, each after those that it is made of."""
        found = {name}
        for one in self.derived_tables():
            if found & set(self.table(one).as_derived().sources):
                found.add(one)
        return [one for one in self.derived_tables() if one in found and one != name]

    def drop(self, name: str, cascade: bool = False) -> None:
        table = self.table(name)
        dependents = self.dependents(name)
        if dependents and not cascade:
            raise InputError(
                f"table {name!r} cannot be dropped while others are derived from it: {', '.join(dependents)}. Drop these first, or all "
                f"of them with wh.drop_table({name!r}, cascade=True)"
            )
        for one in reversed(dependents):
            self.drop(one)
        with self._lock:
            if self._tables.get(name) is not table:
                return
            self._drop(table)
            if (rejects := self._tables.get(name + SUFFIX)) is not None:  # by the same turn: the next table of this name has its own
                self._drop(rejects)

    def _drop(self, table: LocalTable) -> None:
        name = table.spec.name
        # the catalog first: if that fails, the table is as it was
        self.tenure.look()
        records = self._fenced_by(lambda: self.commits.drop(table.publisher, lambda: self.catalog.drop_table(name, self.epoch)))
        del self._tables[name]
        held = {c.record.file for c in table.publisher.version.chunks} | self._still_read()  # these go when nobody reads them
        for record in records:
            if record.file not in held:
                self.files.remove(record.file)
        for chunk in table.publisher.version.chunks:
            self._condemn(chunk)
        table.publisher.log.drop()
        self.files.remove_folder(names.table_folder(table.record.id))

    def _condemn(self, chunk: ChunkLike) -> None:
        """A chunk left its table: its file is deleted when nothing reads it any more."""
        self._condemned.add(chunk)
        remove_with(chunk, partial(_remove_as_owner, self._lease.lock, self.files), chunk.record.file)

    @contextmanager
    def still(self) -> Iterator[list[LocalTable]]:
        """All tables, rejects included. While this is held none is made or dropped and nothing is committed; rows still come in."""
        with self._lock, self.commits.still():
            self.check_open()
            self.tenure.look()
            yield list(self._tables.values())

    def in_use(self) -> set[str]:
        """Files that no table knows and that are no leftovers: being written, or read by whoever began before a drop."""
        return {name + names.TEMPORARY for name in list(self.files.unfinished)} | self._still_read()

    def _still_read(self) -> set[str]:
        """Files of chunks that left their tables and have readers."""
        while True:
            with suppress(RuntimeError):  # one more left meanwhile, in the thread that commits
                return {chunk.record.file for chunk in self._condemned}

    def _fenced_by(self, write: Callable[[], T]) -> T:
        """Write to the catalog; if that says that another owns the warehouse, it is so for good."""
        try:
            return write()
        except FencedError as e:
            raise self.tenure.ended_by(e) from None

    def rejects_of(self, table: TableRecord, create: bool) -> LocalTable | None:
        there = self._tables.get(table.spec.name + SUFFIX)
        return self.create(rejects_spec(table.spec.name), "open", table) if there is None and create else there

    def _is_there(self, table: TableRecord) -> bool:
        """It was not dropped; perhaps another has its name by now."""
        there = self._tables.get(table.spec.name)
        return there is not None and there.record.id == table.id

    def close(self) -> None:
        """Flush everything, then let go of the warehouse. If a flush fails, it is still let go of, and the error is raised.

        If this process is not the owner any more, nothing is flushed, and FencedError is raised.
        """
        with self._lock:
            if self._closing:
                return
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
            self.tenure.look()
        except FencedError as e:
            error = e
        finally:
            self._closed = True
            self.tenure.stop()
            if self._leaving is not None:
                self._leaving.join()
            self.flusher.stop()
            for publisher in publishers:
                publisher.log.close()
            if self._ranges is not None:
                self._ranges.close()
            self._let_go()
        if error is not None:
            raise error

    def _let_go(self) -> None:
        if self.tenure.over:  # the catalog of that name may be another's, and so may be the lease in it
            self.catalog.abandon()
            return
        try:
            self._lease.release()
        finally:
            self.catalog.close()


def _remove_as_owner(lock: OwnerLock, files: Store, name: str) -> None:
    """Of a chunk that left its table. In another folder that has the place by now, a file of this name may be needed."""
    if lock.is_in_place:
        files.remove(name)


def _gone(root: Path) -> str:
    return f"the warehouse {root} is gone: its folder was deleted, moved or replaced. Put it back, or open another"


def _check_same(there: TableSpec, wanted: TableSpec) -> None:
    same = there.schema.equals(wanted.schema) and there.layout_json() == wanted.layout_json() and there.partition == wanted.partition
    if not same:
        raise ExistsError(
            f"table {there.name!r} is there with another definition:\n{there.schema}\n{there.layout_json()}\n"
            f"and not\n{wanted.schema}\n{wanted.layout_json()}\nGive the same definition, choose another name, or drop it first."
        )
