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
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, bindparam, delete, func, insert, select, update

from tidewheel.catalog import copies, record_rows
from tidewheel.catalog.migrations import upgrade
from tidewheel.catalog.sqlite_file import WRITES, SqliteFile, sqlite_engine, storage_errors
from tidewheel.catalog.tables import chunk_partitions, chunks, fields, leases, masks, packages, servers, stream_batches, tables, warehouse
from tidewheel.env.memory import keep_for_good
from tidewheel.errors import ClosedError, CorruptionError, ExistsError, FencedError, NotFoundError, StorageError
from tidewheel.model import record_checks as check
from tidewheel.model.record_checks import WrongValueError
from tidewheel.model.records import (
    BASE,
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

T = TypeVar("T")


def open_sqlite(path: str | Path) -> SqlCatalog:
    """Open the catalog in the file `path`, making or upgrading it as needed.

    An upgrade would pull the tables from under a live owner of an older version: hold `lease.lock` first.
    """
    file = SqliteFile(Path(path).absolute())
    return SqlCatalog(sqlite_engine(file), file)


_AT_ONCE = 500
"""Names that are looked for by one statement."""

BATCHES_KEPT = 1000
"""Of a stream: the last says all, but a backup may need the one that was the last at its generation."""


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
            with storage_errors(where, "open"):
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
        with storage_errors(self.where, "read"), self._reads.connect() as conn:
            yield conn

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._turn:
            self._check_open()
            with storage_errors(self.where, "write"), self._writes.begin() as conn:
                yield conn

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the catalog {self.where} was closed; open the warehouse again")

    # Reading

    def tables(self) -> list[TableRecord]:
        with self._reading() as conn:
            return _tables(conn)

    def table(self, name: str) -> TableRecord | None:
        with self._reading() as conn:
            return next(iter(_tables(conn, tables.c.name == name)), None)

    def contents(self) -> list[TableContents]:
        c, m, s = chunks.c, masks.c, servers.c
        with self._reading() as conn:
            known = _tables(conn)
            held = record_rows.grouped(lambda record: record, _chunks(conn, c.generation_removed.is_(None)))
            with _sound(conn, "chunks"):
                query = select(c.table_id, c.server, c.late, c.generation_lo, c.generation_hi)
                covered = record_rows.grouped(record_rows.coverage_record, conn.execute(query))
            with _sound(conn, "masks"):
                query = select(m.table_id, m.time_lo, m.time_hi, m.generation, m.reason).order_by(m.id)
                hidden = record_rows.grouped(record_rows.mask_record, conn.execute(query))
            with _sound(conn, "servers"):
                query = select(s.table_id, s.server, s.key_lo, s.prefix).order_by(s.table_id, s.server)
                divided = record_rows.grouped(record_rows.server_record, conn.execute(query))
        return [TableContents(one, *(tuple(part.get(one.id, ())) for part in (held, covered, hidden, divided))) for one in known]

    def chunks(self, table_id: int) -> list[ChunkRecord]:
        with self._reading() as conn:
            return _chunks(conn, chunks.c.table_id == table_id, chunks.c.generation_removed.is_(None))

    def coverage(self, table_id: int) -> list[Coverage]:
        c = chunks.c
        query = select(c.server, c.late, c.generation_lo, c.generation_hi).where(c.table_id == table_id)
        with self._reading() as conn, _sound(conn, "chunks", table_id):
            return [record_rows.coverage_record(row) for row in conn.execute(query)]

    def masks(self, table_id: int) -> list[MaskRecord]:
        query = select(masks.c.time_lo, masks.c.time_hi, masks.c.generation, masks.c.reason)
        with self._reading() as conn, _sound(conn, "masks", table_id):
            return [record_rows.mask_record(row) for row in conn.execute(query.where(masks.c.table_id == table_id).order_by(masks.c.id))]

    def package(self, table_id: int, name: str) -> PackageRecord | None:
        with self._reading() as conn:
            return _package(conn, table_id, name)

    def last_batch(self, table_id: int, stream: str) -> StreamBatchRecord | None:
        b = stream_batches.c
        query = select(b.stream, b.batch, b.generation, b.rows).where(b.table_id == table_id, b.stream == stream)
        with self._reading() as conn, _sound(conn, "stream_batches", table_id):
            row = conn.execute(query.order_by(b.batch.desc()).limit(1)).first()
            return None if row is None else record_rows.batch_record(row)

    def streams(self, table_id: int) -> list[StreamBatchRecord]:
        b = stream_batches.c
        query = select(b.stream, b.batch, b.generation, b.rows).where(b.table_id == table_id).order_by(b.stream, b.batch)
        with self._reading() as conn, _sound(conn, "stream_batches", table_id):
            last = {row.stream: record_rows.batch_record(row) for row in conn.execute(query)}
            return list(last.values())

    def servers(self, table_id: int) -> list[ServerRecord]:
        query = select(servers.c.server, servers.c.key_lo, servers.c.prefix).where(servers.c.table_id == table_id)
        with self._reading() as conn, _sound(conn, "servers", table_id):
            return [record_rows.server_record(row) for row in conn.execute(query.order_by(servers.c.server))]

    def partitions(self, table_id: int) -> list[tuple[int, int, int]]:
        part = chunk_partitions.c
        held = (chunks.c.table_id == part.table_id) & (chunks.c.id == part.chunk_id) & chunks.c.generation_removed.is_(None)
        query = select(part.partition, func.sum(part.rows), func.count()).select_from(chunk_partitions.join(chunks, held))
        query = query.where(part.table_id == table_id).group_by(part.partition).order_by(part.partition)
        with self._reading() as conn, _sound(conn, "chunk_partitions", table_id):
            return [(check.whole("partition", start), check.whole("rows", n, 0), int(count)) for start, n, count in conn.execute(query)]

    def lease(self) -> Lease | None:
        with self._reading() as conn:
            return _lease(conn)[1]

    def faults(self) -> list[str]:
        with self._reading() as conn:
            return copies.faults(conn)

    def snapshot(self, upto: Mapping[int, int]) -> Snapshot:
        with self._reading() as conn, copies.copy_of(conn, self.where) as copy:
            with copy.begin():
                copies.cut(copy, upto)
                known, held = _tables(copy), _chunks(copy, chunks.c.generation_removed.is_(None))
                with _sound(copy, "warehouse"):
                    uuid = check.text("uuid", copy.execute(select(warehouse.c.uuid)).scalar_one())
            return Snapshot(copies.file_of(copy), uuid, tuple(known), tuple(held))

    # Writing

    def create_table(self, spec: TableSpec, epoch: int) -> TableRecord:
        with self._writing() as conn:
            _fence(conn, epoch)
            if conn.execute(select(tables.c.id).where(tables.c.name == spec.name)).first():
                raise ExistsError(f"there is a table {spec.name!r} already; use it, choose another name, or drop it first")
            key = conn.execute(insert(tables).values(record_rows.table_row(spec, BASE))).inserted_primary_key
            assert key is not None  # only for statements that are no single insert
            conn.execute(insert(fields), record_rows.field_rows(key[0], spec))
            return TableRecord(key[0], spec)

    def drop_table(self, name: str, epoch: int) -> list[ChunkRecord]:
        with self._writing() as conn:
            _fence(conn, epoch)
            table_id = conn.execute(select(tables.c.id).where(tables.c.name == name)).scalar()
            if table_id is None:
                raise NotFoundError(f"there is no table {name!r} to drop")
            # read before anything is deleted: a name that is none of ours ends it here
            gone = _chunks(conn, chunks.c.table_id == table_id)
            conn.execute(delete(tables).where(tables.c.id == table_id))  # takes along all that belongs to it
            return gone

    def commit(self, *commits: Commit) -> None:
        with self._writing() as conn:
            for epoch in {commit.epoch for commit in commits}:
                _fence(conn, epoch)
            _grow(conn, commits)
            _add_chunks(conn, commits)
            _replace_servers(conn, commits)
            for commit in commits:
                _remove_chunks(conn, commit)
                _add_packages(conn, commit)
                _add_batches(conn, commit)
                _change_masks(conn, commit)

    def acquire(self, pid: int, host: str, now: float) -> Lease:
        with self._writing() as conn:
            last, _ = _lease(conn, lock=True)
            taken = Lease(last + 1, pid, host, now)
            conn.execute(update(leases).values(asdict(taken)))
            return taken

    def release(self, epoch: int) -> None:
        with self._writing() as conn:
            conn.execute(update(leases).where(leases.c.epoch == epoch).values(pid=None, host=None, since=None))


@contextmanager
def _sound(conn: Connection, part: str, table_id: int | None = None) -> Iterator[None]:
    """What is read of this part of the catalog, of this table, is what was written. Where it cannot be, the error says so."""
    try:
        yield
    except WrongValueError as e:
        table_id = table_id if e.table_id is None else e.table_id
        name = None if table_id is None else conn.execute(select(tables.c.name).where(tables.c.id == table_id)).scalar()
        of = "" if table_id is None else f" of table {name if name is not None else table_id!r}"
        raise CorruptionError(f"the catalog is damaged: in {part}{of}, {e}. {_RESTORE}") from e


_RESTORE = "Nothing was changed; restore the warehouse from a backup (tidewheel restore), or put the value back"


def _tables(conn: Connection, *where: ColumnElement[bool]) -> list[TableRecord]:
    found = conn.execute(select(tables).where(*where).order_by(tables.c.id)).all()
    ids: dict[int, list[int]] = {row.id: [] for row in found}
    query = select(fields.c.table_id, fields.c.field_id).join(tables, tables.c.id == fields.c.table_id)
    query = query.where(fields.c.dropped_generation.is_(None), *where).order_by(fields.c.table_id, fields.c.position)
    for table_id, field_id in conn.execute(query):
        ids.setdefault(table_id, []).append(field_id)
    records = []
    for row in found:
        with _sound(conn, "tables", row.id):
            records.append(record_rows.table_record(row, ids[row.id]))
    return records


def _chunks(conn: Connection, *where: ColumnElement[bool]) -> list[ChunkRecord]:
    part = chunk_partitions.c
    join = chunk_partitions.join(chunks, (chunks.c.table_id == part.table_id) & (chunks.c.id == part.chunk_id))
    parts = conn.execute(select(part.table_id, part.chunk_id, part.partition, part.rows).select_from(join).where(*where)).all()
    found = conn.execute(select(chunks).where(*where)).all()
    with _sound(conn, "chunks", found[0].table_id if found else None):
        return record_rows.chunk_records(found, parts)


def _package(conn: Connection, table_id: int, name: str) -> PackageRecord | None:
    query = select(packages.c.name, packages.c.generation, packages.c.rows, packages.c.rejected)
    row = conn.execute(query.where(packages.c.table_id == table_id, packages.c.name == name)).first()
    with _sound(conn, "packages", table_id):
        return record_rows.package_record(row) if row else None


def _stream_batch(conn: Connection, table_id: int, stream: str, batch: int) -> StreamBatchRecord | None:
    b = stream_batches.c
    query = select(b.stream, b.batch, b.generation, b.rows)
    row = conn.execute(query.where(b.table_id == table_id, b.stream == stream, b.batch == batch)).first()
    with _sound(conn, "stream_batches", table_id):
        return record_rows.batch_record(row) if row else None


def _lease(conn: Connection, lock: bool = False) -> tuple[int, Lease | None]:
    """The last epoch that was given, and who holds it, if anybody does."""
    found = conn.execute(select(leases).with_for_update() if lock else select(leases)).all()
    if len(found) != 1:
        raise CorruptionError(f"the catalog is damaged: it has {len(found)} leases, not one. {_RESTORE}")
    with _sound(conn, "leases"):
        return found[0].epoch, record_rows.lease_record(found[0])


def _fence(conn: Connection, epoch: int) -> None:
    """Refuse an owner whose lease is over; else hold the lease's row, so that none can take it before this transaction ends."""
    last, holder = _lease(conn, lock=True)
    if last == epoch and holder is not None:
        return
    since = "it was released" if holder is None else f"process {holder.pid} on {holder.host} took it with epoch {last}"
    raise FencedError(f"this owner's lease (epoch {epoch}) is over: {since}. Nothing was changed; open the warehouse again")


def _grow(conn: Connection, commits: Sequence[Commit]) -> None:
    known: dict[int, int] = {}
    for some in _portions([commit.table_id for commit in commits]):
        known |= {row.id: row.generation for row in conn.execute(select(tables.c.id, tables.c.generation).where(tables.c.id.in_(some)))}
    for commit in commits:
        if commit.table_id not in known:
            raise NotFoundError(f"there is no table with id {commit.table_id}; it was dropped, so nothing can be committed to it")
        with _sound(conn, "tables", commit.table_id):
            check.generation("generation", known[commit.table_id])
        if commit.generation < known[commit.table_id]:
            raise StorageError(
                f"generation {commit.generation} is behind generation {known[commit.table_id]} of table {commit.table_id}; nothing was "
                "changed. The owner's picture of the table is out of date: open the warehouse again"
            )
    mine = tables.c.id == bindparam("mine")
    conn.execute(
        update(tables).where(mine).values(generation=bindparam("g")), [{"mine": one.table_id, "g": one.generation} for one in commits]
    )
    if risen := [{"mine": one.table_id, "h": one.horizon} for one in commits if one.horizon]:
        conn.execute(update(tables).where(mine, tables.c.horizon < bindparam("h")).values(horizon=bindparam("h")), risen)


def _add_chunks(conn: Connection, commits: Sequence[Commit]) -> None:
    for commit in commits:
        for chunk in commit.add:
            if chunk.table_id != commit.table_id:
                raise StorageError(f"chunk {chunk.id} belongs to table {chunk.table_id}, but the commit is to table {commit.table_id}")
    if added := [chunk for commit in commits for chunk in commit.add]:
        conn.execute(insert(chunks), [record_rows.chunk_row(c) for c in added])
    if parts := [row for c in added for row in record_rows.partition_rows(c)]:
        conn.execute(insert(chunk_partitions), parts)


def _replace_servers(conn: Connection, commits: Sequence[Commit]) -> None:
    if given := [commit for commit in commits if commit.servers]:
        conn.execute(delete(servers).where(servers.c.table_id == bindparam("mine")), [{"mine": one.table_id} for one in given])
        conn.execute(insert(servers), [{"table_id": one.table_id, **asdict(server)} for one in given for server in one.servers])


def _remove_chunks(conn: Connection, commit: Commit) -> None:
    for id_ in commit.remove:
        held = (chunks.c.table_id == commit.table_id) & chunks.c.generation_removed.is_(None)
        done = conn.execute(update(chunks).where(held, chunks.c.id == id_).values(generation_removed=commit.generation))
        if done.rowcount != 1:
            raise StorageError(f"chunk {id_} is to leave table {commit.table_id}, which does not hold it; nothing was changed")
    if commit.forget:
        gone = (chunks.c.table_id == commit.table_id) & chunks.c.generation_removed.is_not(None)
        conn.execute(delete(chunks).where(gone, chunks.c.generation_hi <= commit.forget))


def _change_masks(conn: Connection, commit: Commit) -> None:
    if commit.masks:
        conn.execute(insert(masks), [{"table_id": commit.table_id, **asdict(m)} for m in commit.masks])
    if commit.drop_masks:  # by their values: no two are alike, because each is of a generation that was reserved for it alone
        m = masks.c
        named = [m.table_id == commit.table_id, m.time_lo == bindparam("lo"), m.time_hi == bindparam("hi")]
        named += [m.generation == bindparam("g"), m.reason == bindparam("why")]
        gone = [{"lo": one.time_lo, "hi": one.time_hi, "g": one.generation, "why": one.reason} for one in commit.drop_masks]
        conn.execute(delete(masks).where(*named), gone)


def _portions(all_: Sequence[T]) -> Iterator[Sequence[T]]:
    """So many at once as one statement takes."""
    return (all_[start : start + _AT_ONCE] for start in range(0, len(all_), _AT_ONCE))


def _add_packages(conn: Connection, commit: Commit) -> None:
    for new in _portions(commit.packages):
        names = [one.name for one in new]
        query = select(packages.c.name, packages.c.generation, packages.c.rows, packages.c.rejected)
        old = conn.execute(query.where(packages.c.table_id == commit.table_id, packages.c.name.in_(names)))
        there = {row.name: PackageRecord(*row) for row in old}
        for one in new:
            if known := there.get(one.name):
                before = f"with generation {known.generation} and {known.rows} rows"
                raise ExistsError(f"package {one.name!r} was loaded before, {before}; skip it")
            there[one.name] = one  # a name twice in one commit is found as well
        conn.execute(insert(packages), [{"table_id": commit.table_id, **asdict(one)} for one in new])


def _add_batches(conn: Connection, commit: Commit) -> None:
    for new in commit.batches:
        if old := _stream_batch(conn, commit.table_id, new.stream, new.batch):
            raise ExistsError(f"batch {new.batch} of stream {new.stream!r} was published before, with generation {old.generation}; skip it")
        conn.execute(insert(stream_batches).values(table_id=commit.table_id, **asdict(new)))
    b = stream_batches.c
    for stream in {new.stream for new in commit.batches}:
        mine = (b.table_id == commit.table_id) & (b.stream == stream)
        last = conn.execute(select(func.max(b.batch)).where(mine)).scalar_one()
        conn.execute(delete(stream_batches).where(mine, b.batch <= last - BATCHES_KEPT))
