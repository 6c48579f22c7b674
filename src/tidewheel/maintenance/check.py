"""Check a warehouse: everything that can be computed again is, and compared with what is stored.

A warehouse may be in use meanwhile. At one moment, while nothing is committed, its catalog, files and versions are taken together;
from then on the versions keep every chunk there, so a table that is dropped during the check is checked to its end. What looks
like a leftover is looked at once more at such a moment, at the end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tidewheel.catalog.access import CatalogReader
from tidewheel.catalog.lease import lock
from tidewheel.catalog.tenure import check_catalog
from tidewheel.catalog.unchanged import unchanged
from tidewheel.chunk import names
from tidewheel.engine.local_table import LocalTable
from tidewheel.env.local_files import LocalFiles
from tidewheel.env.store import Store
from tidewheel.errors import ClosedError, NotFoundError, StorageError
from tidewheel.index.version import Version
from tidewheel.maintenance.leaves import compare
from tidewheel.maintenance.logs import HeldLog
from tidewheel.maintenance.stored import Finding, read_chunk
from tidewheel.model.records import ChunkRecord, MaskRecord, TableRecord
from tidewheel.model.report import ERROR, WARNING, CheckReport, Problem, Progress
from tidewheel.model.schema import TableSpec

_PUT_BACK = 'Put the file back from a backup, where it has the same name; until then, query with on_corrupt="skip".'
_RESTORE = "Restore the warehouse from a backup (tidewheel restore)."
_REOPEN = "Close the warehouse and open it again; if this stays, restore it from a backup."
_FLUSH = "Flush the table: its rows are still in memory, and once they are in chunks the log is not needed."
_SKIP = 'Restore the warehouse from a backup, or open it with Settings(damaged_log="skip"), which says what is lost.'
_MOVE = "No table knows it. Move it into quarantine with repair=True (tidewheel check --repair); opening the warehouse anew deletes it."

_SETTLE = 0.25
"""Seconds between the two looks at a file that seems left over, in a warehouse that is in use."""


class House(Protocol):
    """A warehouse that can be checked: a protocol, because there are two, `LocalEngine` for one in use and `Closed` for one that is not."""

    @property
    def files(self) -> LocalFiles: ...
    @property
    def catalog(self) -> CatalogReader: ...
    def still(self) -> AbstractContextManager[list[LocalTable]]: ...
    def in_use(self) -> set[str]: ...


@dataclass(frozen=True, slots=True)
class Closed:
    """A warehouse that nobody has open. Nothing is recovered, flushed or swept."""

    files: LocalFiles
    catalog: CatalogReader

    def still(self) -> AbstractContextManager[list[LocalTable]]:
        return nullcontext([])

    def in_use(self) -> set[str]:
        return set()


@contextmanager
def closed(root: Path) -> Iterator[Closed]:
    """The warehouse in a folder, held so that nobody opens it meanwhile. Raises `OwnedError` if somebody has."""
    if not (root / names.CATALOG).is_file():
        raise NotFoundError(f"there is no warehouse in {root}: it has no {names.CATALOG}. Give the folder that was given to tw.open")
    files = LocalFiles(root)
    files.hold()
    owner = lock(root, Path(files.path("")))
    try:
        with unchanged(root / names.CATALOG) as catalog:
            check_catalog(catalog, files, names.CATALOG)
            yield Closed(files, catalog)
    finally:
        owner.release()


def check(house: House, repair: bool = False, progress: Progress | None = None) -> CheckReport:
    """Check all of it. With `repair`, files that mean nothing are moved into quarantine; nothing is ever deleted."""
    look = _Look(house, progress or (lambda done, total: None))
    with ExitStack() as stack:
        look.catalog()
        picture = look.take(stack)
        if picture is not None:
            look.missing(picture)
            look.rows(picture)
            look.logs(picture)
            look.leftovers(picture, repair)
    return look.report()


@dataclass(slots=True)
class _Picture:
    """A warehouse at one moment."""

    tables: list[TableRecord]
    chunks: list[tuple[TableSpec, ChunkRecord]]
    files: set[str]
    """Ours, below the root."""
    strange: list[str]
    """Those that no table knows and nobody uses."""
    logs: list[HeldLog]
    pinned: list[Version] = field(default_factory=list)
    """Nothing they hold is deleted as long as they are held."""


class _Look:
    """One check under way."""

    def __init__(self, house: House, progress: Progress) -> None:
        self.house = house
        self.files = house.files
        self.problems: list[Problem] = []
        self.tables = self.chunks = self.blocks = self.segments = self.rows_seen = self.done = self.total = 0
        self._progress = progress
        self._began = time.monotonic()

    def report(self) -> CheckReport:
        return CheckReport(
            str(self.files.root), self.tables, self.chunks, self.blocks, self.segments, self.rows_seen, self.done,
            time.monotonic() - self._began, tuple(self.problems),
        )  # fmt: skip

    def _error(self, kind: str, where: str, what: str, todo: str) -> None:
        self.problems.append(Problem(ERROR, kind, where, what, todo))

    def _step(self, size: int) -> None:
        self.done += size
        self._progress(self.done, self.total)

    def catalog(self) -> None:
        """What the store finds wrong with itself."""
        try:
            for fault in self.house.catalog.faults():
                self._error("catalog", names.CATALOG, fault, _RESTORE)
        except StorageError as e:
            self._error("catalog", names.CATALOG, str(e), _RESTORE)

    def take(self, stack: ExitStack) -> _Picture | None:
        """The picture that all else is compared with; None if the catalog cannot be read."""
        with self.house.still() as live:
            files = _our_files(self.files)  # before `in_use`: a file that is seen here and not in use there is done with
            used = self.house.in_use()
            try:
                tables = self.house.catalog.tables()
                held = {table.id: self.house.catalog.chunks(table.id) for table in tables}
                masks = {table.id: self.house.catalog.masks(table.id) for table in tables}
            except ClosedError:
                raise
            except Exception as e:  # whatever a damaged catalog leads to
                self._error("catalog", names.CATALOG, f"it cannot be read: {e}", _RESTORE)
                return None
            owned = {one.record.id: one for one in live}
            logs = [stack.enter_context(_held(self.files, table, owned.get(table.id))) for table in tables]
            for one in live:
                self._version(one, held.get(one.record.id, []), masks.get(one.record.id, []))
            pinned = [one.publisher.version for one in live]
        known = {chunk.file for chunks in held.values() for chunk in chunks}
        ids = {table.id for table in tables}
        strange = [file for file in sorted(files) if file not in known and file not in used and not _is_log_of(file, ids)]
        chunks = [(table.spec, chunk) for table in tables for chunk in held[table.id]]
        self.tables = len(tables)
        self.total = sum(chunk.bytes for _, chunk in chunks) + sum(log.bytes for log in logs)
        return _Picture(tables, chunks, files, strange, logs, pinned)

    def _version(self, table: LocalTable, chunks: list[ChunkRecord], masks: list[MaskRecord]) -> None:
        version = table.publisher.version
        if {c.record for c in version.chunks} != set(chunks) or set(version.masks) != set(masks):
            what = "what queries see of it is not what the catalog says"
            self._error("version", f"table {table.spec.name!r}", what, _REOPEN)

    def missing(self, picture: _Picture) -> None:
        for _, chunk in picture.chunks:
            if chunk.file not in picture.files:
                self._error("missing", chunk.file, f"the file is missing, and with it {chunk.rows:,} rows", _PUT_BACK)

    def rows(self, picture: _Picture) -> None:
        """One chunk at a time: its bytes, then what they mean."""
        for spec, record in picture.chunks:
            if record.file in picture.files:
                for finding in self._chunk(spec, record):
                    self._error(finding.kind, record.file, f"table {spec.name!r}: {finding.what}", _PUT_BACK)
            self._step(record.bytes)

    def _chunk(self, spec: TableSpec, record: ChunkRecord) -> list[Finding]:
        self.chunks += 1
        try:
            chunk, findings = read_chunk(record, spec, self.files.read(record.file))
            if chunk is not None:
                self.blocks += chunk.blocks
                self.rows_seen += record.rows
                findings += compare(chunk)
        except StorageError as e:
            return [Finding("unreadable", str(e))]
        except Exception as e:  # a chunk that is damaged in a way nobody thought of is still only damaged
            return [Finding("unreadable", f"it cannot be checked: {e!r}")]
        return findings

    def logs(self, picture: _Picture) -> None:
        for log in picture.logs:
            found = log.look(self.house.catalog.coverage(log.table.id))
            self.segments += found.segments
            self.rows_seen += found.rows
            for damage in found.damage:
                where = names.log_folder(log.table.id)
                self._error("log", where, f"table {log.table.spec.name!r}: {damage}", _FLUSH if picture.pinned else _SKIP)
            self._step(log.bytes)

    def leftovers(self, picture: _Picture, repair: bool) -> None:
        """Files of ours that no table knows. Looked at a second time: what was just being removed is gone by then."""
        if not picture.strange:
            return
        if picture.pinned:
            time.sleep(_SETTLE)  # a commit that fails removes its files a moment after it is over
        when = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + f"-{time.time_ns() % 10**9:09d}"
        with self.house.still():
            used = self.house.in_use()
            for file in picture.strange:
                if file in used or not os.path.exists(self.files.path(file)):
                    continue
                kind, what = ("leftover", "was never finished") if file.endswith(names.TEMPORARY) else ("orphan", "belongs to no table")
                found = Problem(WARNING, kind, file, what, _MOVE)
                self.problems.append(self._quarantine(found, names.quarantined(file, when)) if repair else found)

    def _quarantine(self, found: Problem, to: str) -> Problem:
        try:
            self.files.move(found.where, to)
        except StorageError as e:
            return found._replace(todo=str(e))
        return found._replace(todo=f"It was moved to {to}.", repaired=True)


@contextmanager
def _held(files: LocalFiles, table: TableRecord, live: LocalTable | None) -> Iterator[HeldLog]:
    with live.publisher.lock if live is not None else nullcontext():
        log = HeldLog(files, table)
    try:
        yield log
    finally:
        log.close()


def _our_files(files: Store) -> set[str]:
    chunks = {file for file in files.list(names.TABLES) if names.is_chunk(file)}
    return chunks | {file for file in files.list(names.LOGS) if names.segment_of(file) is not None}


def _is_log_of(file: str, ids: set[int]) -> bool:
    found = names.segment_of(file)
    return found is not None and found[0] in ids
