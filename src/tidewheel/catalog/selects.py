"""Records out of the catalog's tables, inside of somebody's transaction. What cannot have been written there is damage."""

from __future__ import annotations

from contextlib import AbstractContextManager

from sqlalchemy import ColumnElement, Connection, select

from tidewheel.catalog import record_rows, whole_reads
from tidewheel.catalog.tables import chunk_partitions, chunks, fields, leases, packages, stream_batches, tables
from tidewheel.model.records import ChunkRecord, Lease, PackageRecord, StreamBatchRecord, TableRecord


def plain(conn: Connection) -> whole_reads.Ask:
    """Answers statements without parameters."""
    return lambda statement: conn.exec_driver_sql(statement).all()


def sound(conn: Connection, part: str, table_id: int | None = None) -> AbstractContextManager[None]:
    return whole_reads.sound(plain(conn), part, table_id)


def table_records(conn: Connection, *where: ColumnElement[bool]) -> list[TableRecord]:
    found = conn.execute(select(tables).where(*where).order_by(tables.c.id)).all()
    query = select(fields.c.table_id, fields.c.field_id).join(tables, tables.c.id == fields.c.table_id)
    query = query.where(fields.c.dropped_generation.is_(None), *where).order_by(fields.c.table_id, fields.c.position)
    return whole_reads.table_records(plain(conn), found, map(tuple, conn.execute(query)))


def chunk_records(conn: Connection, *where: ColumnElement[bool]) -> list[ChunkRecord]:
    part = chunk_partitions.c
    join = chunk_partitions.join(chunks, (chunks.c.table_id == part.table_id) & (chunks.c.id == part.chunk_id))
    parts = conn.execute(select(part.table_id, part.chunk_id, part.partition, part.rows).select_from(join).where(*where)).all()
    found = conn.execute(select(chunks).where(*where)).all()
    with sound(conn, "chunks", found[0].table_id if found else None):
        return record_rows.chunk_records(found, parts)


def package(conn: Connection, table_id: int, name: str) -> PackageRecord | None:
    query = select(packages.c.name, packages.c.generation, packages.c.rows, packages.c.rejected)
    row = conn.execute(query.where(packages.c.table_id == table_id, packages.c.name == name)).first()
    with sound(conn, "packages", table_id):
        return record_rows.package_record(row) if row else None


def stream_batch(conn: Connection, table_id: int, stream: str, batch: int) -> StreamBatchRecord | None:
    b = stream_batches.c
    query = select(b.stream, b.batch, b.generation, b.rows)
    row = conn.execute(query.where(b.table_id == table_id, b.stream == stream, b.batch == batch)).first()
    with sound(conn, "stream_batches", table_id):
        return record_rows.batch_record(row) if row else None


def current_lease(conn: Connection, lock: bool = False) -> tuple[int, Lease | None]:
    """The last epoch that was given, and who holds it, if anybody does."""
    if lock and conn.dialect.name != "sqlite":
        conn.execute(select(leases).with_for_update())
    return whole_reads.lease(plain(conn))
