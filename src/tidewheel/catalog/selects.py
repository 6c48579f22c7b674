"""Records out of the catalog's tables, inside of somebody's transaction. What cannot have been written there is damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import ColumnElement, Connection, select

from tidewheel.catalog import record_rows
from tidewheel.catalog.tables import chunk_partitions, chunks, fields, leases, packages, stream_batches, tables
from tidewheel.errors import CorruptionError
from tidewheel.model.record_checks import WrongValueError
from tidewheel.model.records import ChunkRecord, Lease, PackageRecord, StreamBatchRecord, TableRecord


@contextmanager
def sound(conn: Connection, part: str, table_id: int | None = None) -> Iterator[None]:
    """What is read of this part of the catalog, of this table, is what was written. Where it cannot be, the error says so."""
    try:
        yield
    except WrongValueError as e:
        table_id = table_id if e.table_id is None else e.table_id
        name = None if table_id is None else conn.execute(select(tables.c.name).where(tables.c.id == table_id)).scalar()
        of = "" if table_id is None else f" of table {name if name is not None else table_id!r}"
        raise CorruptionError(f"the catalog is damaged: in {part}{of}, {e}. {_RESTORE}") from e


_RESTORE = "Nothing was changed; restore the warehouse from a backup (tidewheel restore), or put the value back"


def table_records(conn: Connection, *where: ColumnElement[bool]) -> list[TableRecord]:
    found = conn.execute(select(tables).where(*where).order_by(tables.c.id)).all()
    ids: dict[int, list[int]] = {row.id: [] for row in found}
    query = select(fields.c.table_id, fields.c.field_id).join(tables, tables.c.id == fields.c.table_id)
    query = query.where(fields.c.dropped_generation.is_(None), *where).order_by(fields.c.table_id, fields.c.position)
    for table_id, field_id in conn.execute(query):
        ids.setdefault(table_id, []).append(field_id)
    records = []
    for row in found:
        with sound(conn, "tables", row.id):
            records.append(record_rows.table_record(row, ids[row.id]))
    return records


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
    found = conn.execute(select(leases).with_for_update() if lock else select(leases)).all()
    if len(found) != 1:
        raise CorruptionError(f"the catalog is damaged: it has {len(found)} leases, not one. {_RESTORE}")
    with sound(conn, "leases"):
        return found[0].epoch, record_rows.lease_record(found[0])
