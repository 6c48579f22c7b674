"""Back a warehouse up while it is in use, into a folder that keeps the last complete backup at every moment.

  1. cut       all trees of all tables are sealed and flushed: what came before is in chunks, and no chunk also holds later rows
  2. pin       a copy of the catalog up to the cut, and the versions that keep its files there, both of one moment
  3. place     each chunk is checked, then linked or copied to its place, unless an earlier backup brought it
  4. appear    files get their names and are synced; the copy of the catalog too, under a name of its own
  5. manifest  replaced at once: from here on this is the backup, until here it was the one before
  6. sweep     files that only the one before needed
A crash at any point leaves the manifest of the one before or of this one, and all files it names.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import time
from contextlib import suppress
from pathlib import Path

from tidewheel.catalog.migrations import made_by
from tidewheel.chunk import names
from tidewheel.engine.local_engine import LocalEngine
from tidewheel.env.deadline import holding
from tidewheel.env.disk import Disk
from tidewheel.env.folder_lock import hold
from tidewheel.env.local_files import LocalFiles
from tidewheel.errors import ClosedError, CorruptionError, InputError, StorageError
from tidewheel.maintenance.manifest import FILE, Manifest, Stored, TableEntry, catalog_file, digest, is_ours
from tidewheel.maintenance.stored import read_chunk
from tidewheel.model.records import ChunkRecord, Snapshot
from tidewheel.model.report import BackupReport, Progress
from tidewheel.model.schema import TableSpec
from tidewheel.write.rejects import SUFFIX

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""What a system says that cannot link here: another disk, or a file system without links."""

_TOGETHER = 256
"""Files that appear together: their folders are synced once."""


def backup(
    engine: LocalEngine, folder: str | os.PathLike[str], verify: str = "all", progress: Progress | None = None, disk: Disk | None = None
) -> BackupReport:
    """Make or renew the backup in a folder. Rows that were inserted before this call are in it, later ones are not.

    `verify="all"` reads every file of the backup, `"new"` trusts those of earlier backups that have the right size.
    """
    if verify not in ("all", "new"):
        raise InputError(f"verify is 'all' or 'new', not {verify!r}")
    began = time.monotonic()
    place = Path(folder).expanduser().resolve()
    _check_place(engine.root, place)
    target = LocalFiles(place, disk or engine.files.disk)
    target.make_root()
    with hold(str(place), shared=False):
        before = _before(target)
        # what a table had at the cut, it has at the pin; and no table is derived from what came after the cut
        with holding(engine.refreshing, "a refresh is being committed; no backup was made"), engine.commits.keeping():
            upto = _cut(engine)
            with engine.still() as tables:
                pinned = [table.publisher.version for table in tables]
                snapshot = engine.catalog.snapshot(upto)
        if before.warehouse not in ("", snapshot.warehouse):
            raise InputError(f"{place} holds a backup of another warehouse; choose another folder")
        work = _Backup(engine.files, target, before, verify)
        work.place(snapshot, progress or (lambda done, total: None))
        manifest = work.manifest(snapshot)
        removed = _sweep(target, manifest)
        del pinned
    return BackupReport(
        str(place), len(manifest.tables), len(manifest.files), manifest.rows, manifest.bytes, work.linked, work.copied, work.kept, removed,
        time.monotonic() - began,
    )  # fmt: skip


def _check_place(root: Path, folder: Path) -> None:
    if folder == root or root in folder.parents:
        raise InputError(f"{folder} lies in the warehouse {root} itself, and would be lost with it; choose a folder outside")
    if (folder / names.CATALOG).exists():
        raise InputError(f"{folder} holds a warehouse; choose an empty folder for the backup, or one that has a backup already")


def _before(target: LocalFiles) -> Manifest:
    """The backup that is there. In a new folder, a manifest that says nothing yet: it marks all files as ours."""
    there = os.listdir(target.root)
    if FILE in there:
        if target.regular_size(FILE) < 0:
            raise InputError(f"{target.path(FILE)} is a link or a folder, not the manifest of a backup; choose another folder")
        return Manifest.from_json(target.read(FILE).to_pybytes(), target.path(FILE))
    foreign = [name for name in there if not name.startswith(".") and name not in ("lost+found", FILE + names.TEMPORARY)]
    if foreign:
        raise InputError(f"{target.root} holds {foreign[0]} and no backup; choose an empty folder, or one that has a backup already")
    empty = Manifest()
    _replace(target, FILE, empty.to_json())
    return empty


def _cut(engine: LocalEngine) -> dict[int, int]:
    """Flush everything; up to which generation each table (by id) is in chunks.

    Rejects come after all others: a batch's rejects are kept before its rows, so what has the rows has the rejects.
    """
    upto: dict[int, int] = {}
    for rejects in (False, True):
        with engine.still() as tables:
            publishers = [table.publisher for table in tables if (SUFFIX in table.spec.name) == rejects]
        for publisher, (generation, jobs) in [(p, p.cut()) for p in publishers]:
            try:
                publisher.wait_flushed(jobs)
            except ClosedError:
                if not publisher.dropped:
                    raise
                continue
            upto[publisher.table.id] = generation
    return upto


class _Backup:
    """One backup under way."""

    def __init__(self, source: LocalFiles, target: LocalFiles, before: Manifest, verify: str) -> None:
        self.source = source
        self.target = target
        self.before = before
        self.verify = verify
        self.files: dict[str, Stored] = {}
        self.linked = self.copied = self.kept = 0
        self._waiting: list[str] = []
        """Placed under their temporary names."""

    def place(self, snapshot: Snapshot, progress: Progress) -> None:
        specs = {table.id: table.spec for table in snapshot.tables}
        done, total = 0, sum(chunk.bytes for chunk in snapshot.chunks)
        for folder in (names.TABLES, *map(names.table_folder, specs)):
            if os.path.islink(self.target.path(folder)):
                raise InputError(f"{self.target.path(folder)} is a link: a backup writes nothing outside of its folder; choose another one")
        for table_id in specs:
            self.target.make_folder(names.table_folder(table_id))
        for record in snapshot.chunks:
            self.files[record.file] = self._place(record, specs[record.table_id])
            done += record.bytes
            progress(done, total)
            if len(self._waiting) >= _TOGETHER:
                self._appear()
        self._appear()
        if specs:
            self.target.sync_folder(names.TABLES)

    def _appear(self) -> None:
        self.target.appear(self._waiting)
        self._waiting = []

    def _place(self, record: ChunkRecord, spec: TableSpec) -> Stored:
        name = record.file
        old = self.before.files.get(name)
        there = self.target.regular_size(name) == record.bytes  # a link in its place is replaced
        if old is not None and there and (self.verify == "new" or digest(self.target.read(name)) == old.xxh3):
            self.kept += 1
            return old
        new = Stored(record.bytes, self._checked(record, spec))
        same = there and os.path.samefile(self.source.path(name), self.target.path(name))
        if same or there and digest(self.target.read(name)) == new.xxh3:
            self.kept += 1
        else:
            self._link(name, new)
            self._waiting.append(name)
        return new

    def _checked(self, record: ChunkRecord, spec: TableSpec) -> str:
        """The digest of a chunk whose every checksum is right: a link would only be a second name for the damage."""
        where = self.source.path(record.file)
        if os.path.islink(where):  # or the backup would hold a link to who knows where
            raise CorruptionError(f"chunk {where} is a link, not a file of the warehouse: no backup was made. {_ADVICE}")
        try:
            whole = self.source.read(record.file)
        except StorageError as e:
            raise CorruptionError(f"chunk {where} cannot be read ({e}): no backup was made. {_ADVICE}") from e
        _, findings = read_chunk(record, spec, whole)
        if findings:
            raise CorruptionError(f"chunk {where} of table {spec.name!r} is damaged ({findings[0].what}): no backup was made. {_ADVICE}")
        return digest(whole)

    def _link(self, name: str, new: Stored) -> None:
        """Give the file a place under its temporary name."""
        disk, old, temporary = self.target.disk, self.source.path(name), self.target.path(name) + names.TEMPORARY
        try:
            if os.path.lexists(temporary):
                disk.unlink(temporary)
            try:
                disk.link(old, temporary)
                self.linked += 1
                return
            except OSError as e:
                if e.errno not in _NO_LINKS:
                    raise
            disk.copy(old, temporary)
        except OSError as e:
            raise StorageError(f"cannot back {old} up to {self.target.root}: {e}. Any backup before this one is as it was.") from e
        self.copied += 1
        if digest(self.target.read(name + names.TEMPORARY)) != new.xxh3:
            raise StorageError(f"the copy of {old} in {self.target.root} is not the same: its disk may be failing. Use another one.")

    def manifest(self, snapshot: Snapshot) -> Manifest:
        """Complete the backup: the catalog, then the manifest."""
        catalog = catalog_file(names.new_chunk_id())
        _replace(self.target, catalog, snapshot.data)
        if self.target.read(catalog).to_pybytes() != snapshot.data:
            raise StorageError(f"{self.target.path(catalog)} is not what was written: its disk may be failing. Use another one.")
        self.files[catalog] = Stored(len(snapshot.data), digest(snapshot.data))
        rows = dict.fromkeys((table.id for table in snapshot.tables), 0)
        for chunk in snapshot.chunks:
            rows[chunk.table_id] += chunk.rows
        manifest = Manifest(
            made=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"), made_by=made_by(), warehouse=snapshot.warehouse,
            tables={table.spec.name: TableEntry(table.id, rows[table.id]) for table in snapshot.tables}, catalog=catalog, files=self.files,
        )  # fmt: skip
        _replace(self.target, FILE, manifest.to_json())
        return manifest


_ADVICE = "`tidewheel check` names all that is damaged; put the file back from an older backup, where it has the same name."


def _replace(target: LocalFiles, name: str, data: bytes) -> None:
    """Under its temporary name first; what may lie there, also a link to elsewhere, goes before."""
    if os.path.lexists(temporary := target.path(name) + names.TEMPORARY):
        with suppress(OSError):
            target.disk.unlink(temporary)
    target.write(name, lambda sink: sink.write(data))
    target.appear([name])


def _sweep(target: LocalFiles, manifest: Manifest) -> int:
    """Remove files of ours that the backup does not need. It is complete: what cannot be removed now is removed by the next one."""
    gone = [name for name in target.list("") if is_ours(name) and name not in manifest.files]
    removed = 0
    for name in gone:
        with suppress(OSError):
            target.disk.unlink(target.path(name))
            removed += 1
    kept = {names.table_folder(table.id) for table in manifest.tables.values()}
    for folder in {os.path.dirname(name) for name in gone if names.is_chunk(name)} - kept:
        target.remove_folder(folder)
    return removed
