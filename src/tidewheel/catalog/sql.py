"""The catalog in a SQL database, through SQLAlchemy Core: one class for SQLite and, later, PostgreSQL.

Every public method is one transaction. Writers of one process take turns by a lock; writers of several by the database: with
SQLite its one write lock, elsewhere the row of the lease, which every write locks first. So what a write checks stays true until
it commits. Readers never wait for writers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from sqlalchemy import Connection, Engine, delete, func, insert, select, update

from tidewheel.catalog import copies, record_rows, whole_reads
from tidewheel.catalog.commit_rows import fence, write_commits
from tidewheel.catalog.derived_rows import add_dependencies, dependents_of, labels_of
from tidewheel.catalog.migrations import upgrade
from tidewheel.catalog.selects import chunk_records, current_lease, package, plain, sound, table_records
from tidewheel.catalog.sqlite_engine import WRITES, database_errors, sqlite_engine
from tidewheel.catalog.sqlite_file import SqliteFile
from tidewheel.catalog.tables import chunk_partitions, chunks, fields, leases, masks, servers, stream_batches, tables, warehouse
from tidewheel.env.memory import keep_for_good
from tidewheel.errors import ClosedError, ExistsError, InputError, NotFoundError
from tidewheel.model import record_checks as check
from tidewheel.model.derived import Definition, Dependency, Label
from tidewheel.model.records import (
    DERIVED,
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


def open_sqlite(path: str | Path) -> SqlCatalog:
    """Open the catalog in the file `path`, making or upgrading it as needed.

    An upgrade would pull the tables from under a live owner of an older version: hold `lease.lock` first.
    """
    file = SqliteFile(Path(path).absolute())
    return SqlCatalog(sqlite_engine(file), file)


class SqlCatalog:
    """A `CatalogWriter`. Owns its engine: `close` disposes of it."""

    def __init__(self, engine: Engine, file: SqliteFile) -> None:
        self.where = where = file.path
        """Names the database in messages."""
        self._engine = engine
        # One snapshot for all statements of a reading transaction: SQLite gives it, PostgreSQL must be asked.
        isolated = engine.dialect.name == "postgresql"
        self._reads = engine.execution_options(isolation_level="REPEATABLE READ") if isolated else engine
        self._writes = engine.execution_options(**{WRITES: True})
        self._turn = threading.Lock()
        self._closed = False
        try:
            with database_errors(where, "open"):
                upgrade(self._reads, self._writes, where)
            self._anchor = engine.raw_connection()
            """Open as long as the catalog: SQLite removes its write-ahead log when the last connection is closed, as an interrupt does."""
        except BaseException:
            engine.dispose()
            raise
        self.identity = file.identity
        """Of the file that is read and written, whatever has its name by now."""

    def close(self) -> None:
        with self._turn:
            self._closed = True
            self._anchor.close()
            self._engine.dispose()

    def abandon(self) -> None:
        """As the end of the process would leave it: SQLite, when its last connection is closed, removes its files by their names."""
        with self._turn:
            if not self._closed:
                self._closed = True
                keep_for_good(self._engine)
                keep_for_good(self._anchor)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._check_open()
        with database_errors(self.where, "read"), self._reads.connect() as conn:
            yield conn

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._turn:
            self._check_open()
            with database_errors(self.where, "write"), self._writes.begin() as conn:
                yield conn

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the catalog {self.where} was closed; open the warehouse again")

    # Reading

    def tables(self) -> list[TableRecord]:
        with self._reading() as conn:
            return table_records(conn)

    def table(self, name: str) -> TableRecord | None:
        with self._reading() as conn:
            return next(iter(table_records(conn, tables.c.name == name)), None)

    def contents(self) -> list[TableContents]:
        with self._reading() as conn:
            return whole_reads.contents(plain(conn))

    def chunks(self, table_id: int) -> list[ChunkRecord]:
        with self._reading() as conn:
            return chunk_records(conn, chunks.c.table_id == table_id, chunks.c.generation_removed.is_(None))

    def coverage(self, table_id: int) -> list[Coverage]:
        c = chunks.c
        query = select(c.server, c.late, c.generation_lo, c.generation_hi).where(c.table_id == table_id)
        with self._reading() as conn, sound(conn, "chunks", table_id):
            return [record_rows.coverage_record(row) for row in conn.execute(query)]

    def masks(self, table_id: int) -> list[MaskRecord]:
        query = select(masks.c.time_lo, masks.c.time_hi, masks.c.generation, masks.c.reason)
        with self._reading() as conn, sound(conn, "masks", table_id):
            return [record_rows.mask_record(row) for row in conn.execute(query.where(masks.c.table_id == table_id).order_by(masks.c.id))]

    def package(self, table_id: int, name: str) -> PackageRecord | None:
        with self._reading() as conn:
            return package(conn, table_id, name)

    def last_batch(self, table_id: int, stream: str) -> StreamBatchRecord | None:
        b = stream_batches.c
        query = select(b.stream, b.batch, b.generation, b.rows).where(b.table_id == table_id, b.stream == stream)
        with self._reading() as conn, sound(conn, "stream_batches", table_id):
            row = conn.execute(query.order_by(b.batch.desc()).limit(1)).first()
            return None if row is None else record_rows.batch_record(row)

    def streams(self, table_id: int) -> list[StreamBatchRecord]:
        b = stream_batches.c
        query = select(b.stream, b.batch, b.generation, b.rows).where(b.table_id == table_id).order_by(b.stream, b.batch)
        with self._reading() as conn, sound(conn, "stream_batches", table_id):
            last = {row.stream: record_rows.batch_record(row) for row in conn.execute(query)}
            return list(last.values())

    def servers(self, table_id: int) -> list[ServerRecord]:
        query = select(servers.c.server, servers.c.key_lo, servers.c.prefix).where(servers.c.table_id == table_id)
        with self._reading() as conn, sound(conn, "servers", table_id):
            return [record_rows.server_record(row) for row in conn.execute(query.order_by(servers.c.server))]

    def partitions(self, table_id: int) -> list[tuple[int, int, int]]:
        part = chunk_partitions.c
        held = (chunks.c.table_id == part.table_id) & (chunks.c.id == part.chunk_id) & chunks.c.generation_removed.is_(None)
        query = select(part.partition, func.sum(part.rows), func.count()).select_from(chunk_partitions.join(chunks, held))
        query = query.where(part.table_id == table_id).group_by(part.partition).order_by(part.partition)
        with self._reading() as conn, sound(conn, "chunk_partitions", table_id):
            return [(check.whole("partition", start), check.whole("rows", n, 0), int(count)) for start, n, count in conn.execute(query)]

    def labels(self, table_id: int) -> list[tuple[Label, float]]:
        with self._reading() as conn:
            return labels_of(conn, table_id)

    def lease(self) -> Lease | None:
        with self._reading() as conn:
            return current_lease(conn)[1]

    def faults(self) -> list[str]:
        with self._reading() as conn:
            return copies.faults(conn)

    def snapshot(self, upto: Mapping[int, int]) -> Snapshot:
        with self._reading() as conn, copies.copy_of(conn, self.where) as copy:
            with copy.begin():
                copies.cut(copy, upto)
                known, held = table_records(copy), chunk_records(copy, chunks.c.generation_removed.is_(None))
                with sound(copy, "warehouse"):
                    uuid = check.text("uuid", copy.execute(select(warehouse.c.uuid)).scalar_one())
            return Snapshot(copies.file_of(copy), uuid, tuple(known), tuple(held))

    # Writing

    def create_table(
        self, spec: TableSpec, epoch: int, definition: Definition | None = None, sources: Sequence[Dependency] = ()
    ) -> TableRecord:
        with self._writing() as conn:
            fence(conn, epoch)
            if conn.execute(select(tables.c.id).where(tables.c.name == spec.name)).first():
                raise ExistsError(f"there is a table {spec.name!r} already; use it, choose another name, or drop it first")
            key = conn.execute(insert(tables).values(record_rows.table_row(spec, definition))).inserted_primary_key
            assert key is not None  # only for statements that are no single insert
            conn.execute(insert(fields), record_rows.field_rows(key[0], spec))
            if definition is None:
                return TableRecord(key[0], spec)
            add_dependencies(conn, key[0], sources)
            return TableRecord(key[0], spec, DERIVED, definition=definition)

    def drop_table(self, name: str, epoch: int) -> list[ChunkRecord]:
        with self._writing() as conn:
            fence(conn, epoch)
            table_id = conn.execute(select(tables.c.id).where(tables.c.name == name)).scalar()
            if table_id is None:
                raise NotFoundError(f"there is no table {name!r} to drop")
            if derived := dependents_of(conn, table_id):
                raise InputError(f"table {name!r} cannot be dropped while others are derived from it: {', '.join(derived)}")
            # read before anything is deleted: a name that is none of ours ends it here
            gone = chunk_records(conn, chunks.c.table_id == table_id)
            conn.execute(delete(tables).where(tables.c.id == table_id))  # takes along all that belongs to it
            return gone

    def commit(self, *commits: Commit) -> None:
        with self._writing() as conn:
            write_commits(conn, commits)

    def acquire(self, pid: int, host: str, now: float) -> Lease:
        with self._writing() as conn:
            last, _ = current_lease(conn, lock=True)
            taken = Lease(last + 1, pid, host, now)
            conn.execute(update(leases).values(asdict(taken)))
            return taken

    def release(self, epoch: int) -> None:
        with self._writing() as conn:
            conn.execute(update(leases).where(leases.c.epoch == epoch).values(pid=None, host=None, since=None))
