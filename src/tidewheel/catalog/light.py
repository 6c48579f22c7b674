"""The catalog of a warehouse that may only be read: by the driver alone, as long as that will do.

Every owner reads all tables and takes and gives back the lease; many do no more, because they answer a question and end. That takes plain
SQL. Whatever else is asked goes to a `SqlCatalog` over the same file, made when it is first needed: to load SQLAlchemy takes longer than
to read a catalog.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidewheel.catalog import whole_reads
from tidewheel.catalog.sqlite_file import SqliteFile, storage_errors
from tidewheel.env.memory import keep_for_good
from tidewheel.errors import ClosedError
from tidewheel.model.derived import Definition, Dependency, Label
from tidewheel.model.loading import loaded
from tidewheel.model.records import (
    ChunkRecord,
    Commit,
    Coverage,
    Lease,
    MaskRecord,
    PackageRecord,
    ServerRecord,
    Snapshot,
    StreamBatchRecord,
    TableContents,
    TableRecord,
)
from tidewheel.model.schema import TableSpec

if TYPE_CHECKING:
    from tidewheel.catalog.sql import SqlCatalog

T = TypeVar("T")


def open_light(path: str | Path) -> LightCatalog:
    """Open the catalog in the file `path`, making or upgrading it as needed. Hold `lease.lock` first."""
    return LightCatalog(SqliteFile(Path(path).absolute()))


class LightCatalog:
    """A `CatalogWriter`."""

    def __init__(self, file: SqliteFile) -> None:
        self.where = file.path
        """Names the database in messages."""
        self._file = file
        self._turn = threading.Lock()
        """Of the one connection, and of opening the other catalog."""
        self._closed = False
        self._other: SqlCatalog | None = None
        with storage_errors(self.where, "open"):
            self._own = file.connect()
            """Open as long as the catalog: SQLite removes its write-ahead log when the last connection is closed."""
        self._own.row_factory = _named
        try:
            if not _is_newest(self._own):  # it is new, old, or none at all
                self._rest()
        except BaseException:
            self._own.close()
            raise
        self.identity = file.identity
        """Of the file that is read and written, whatever has its name by now."""

    def close(self) -> None:
        with self._turn:
            self._closed = True
            if self._other is not None:
                self._other.close()
            self._own.close()

    def abandon(self) -> None:
        """As the end of the process would leave it: SQLite, when its last connection is closed, removes its files by their names."""
        with self._turn:
            if not self._closed:
                self._closed = True
                keep_for_good(self._own)
                if self._other is not None:
                    self._other.abandon()

    def _rest(self) -> SqlCatalog:
        """The catalog for all else."""
        with self._turn:
            self._check_open()
            if self._other is None:
                loaded("tidewheel.catalog.sql")
                from tidewheel.catalog.sql import SqlCatalog
                from tidewheel.catalog.sqlite_engine import sqlite_engine

                self._other = SqlCatalog(sqlite_engine(self._file), self._file)
            return self._other

    def _do(self, doing: str, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """By a transaction. The lock is entered by a plain `with`: an interrupt behind it must not leave it held (env/interrupts.py)."""
        with self._turn:
            self._check_open()
            with storage_errors(self.where, doing):
                try:
                    self._own.execute(begin)
                    done = work(self._own)
                    self._own.execute("COMMIT")
                    return done
                finally:
                    if self._own.in_transaction:
                        self._own.execute("ROLLBACK")

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the catalog {self.where} was closed; open the warehouse again")

    # ---- what every owner needs ---------------------------------------------------------------------------

    def contents(self) -> list[TableContents]:
        return self._do("read", "BEGIN", lambda conn: whole_reads.contents(conn.execute))

    def lease(self) -> Lease | None:
        return self._do("read", "BEGIN", lambda conn: whole_reads.lease(conn.execute)[1])

    def acquire(self, pid: int, host: str, now: float) -> Lease:
        def take(conn: sqlite3.Connection) -> Lease:
            taken = Lease(whole_reads.lease(conn.execute)[0] + 1, pid, host, now)
            conn.execute("UPDATE leases SET epoch = ?, pid = ?, host = ?, since = ?", (taken.epoch, pid, host, now))
            return taken

        return self._do("write", "BEGIN IMMEDIATE", take)

    def release(self, epoch: int) -> None:
        given = "UPDATE leases SET pid = NULL, host = NULL, since = NULL WHERE epoch = ?"
        self._do("write", "BEGIN IMMEDIATE", lambda conn: conn.execute(given, (epoch,)))

    # ---- all else -----------------------------------------------------------------------------------------

    def tables(self) -> list[TableRecord]:
        return self._rest().tables()

    def table(self, name: str) -> TableRecord | None:
        return self._rest().table(name)

    def chunks(self, table_id: int) -> list[ChunkRecord]:
        return self._rest().chunks(table_id)

    def coverage(self, table_id: int) -> list[Coverage]:
        return self._rest().coverage(table_id)

    def masks(self, table_id: int) -> list[MaskRecord]:
        return self._rest().masks(table_id)

    def package(self, table_id: int, name: str) -> PackageRecord | None:
        return self._rest().package(table_id, name)

    def last_batch(self, table_id: int, stream: str) -> StreamBatchRecord | None:
        return self._rest().last_batch(table_id, stream)

    def streams(self, table_id: int) -> list[StreamBatchRecord]:
        return self._rest().streams(table_id)

    def servers(self, table_id: int) -> list[ServerRecord]:
        return self._rest().servers(table_id)

    def partitions(self, table_id: int) -> list[tuple[int, int, int]]:
        return self._rest().partitions(table_id)

    def labels(self, table_id: int) -> list[tuple[Label, float]]:
        return self._rest().labels(table_id)

    def faults(self) -> list[str]:
        return self._rest().faults()

    def snapshot(self, upto: Mapping[int, int]) -> Snapshot:
        return self._rest().snapshot(upto)

    def create_table(
        self, spec: TableSpec, epoch: int, definition: Definition | None = None, sources: Sequence[Dependency] = ()
    ) -> TableRecord:
        return self._rest().create_table(spec, epoch, definition, sources)

    def drop_table(self, name: str, epoch: int) -> list[ChunkRecord]:
        return self._rest().drop_table(name, epoch)

    def commit(self, *commits: Commit) -> None:
        self._rest().commit(*commits)


def _is_newest(connection: sqlite3.Connection) -> bool:
    """Whether it has the tables that are read here. Of all else `SqlCatalog` says what it is, or upgrades it."""
    try:
        found = connection.execute("SELECT version FROM schema_version ORDER BY version DESC LIMIT 1").fetchone()
    except sqlite3.Error:
        return False
    return found is not None and found.version == whole_reads.VERSION


def _named(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Any:
    return _row(tuple(column[0] for column in cursor.description))(*row)


@lru_cache(maxsize=64)
def _row(names: tuple[str, ...]) -> Any:
    return namedtuple("_Row", names)
