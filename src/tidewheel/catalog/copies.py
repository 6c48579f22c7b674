"""The catalog looked at as a whole: a copy for a backup, and what the database finds wrong with itself.

SQLite only. With PostgreSQL, the database's own tools make copies and look after its pages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from sqlalchemy import Connection, StaticPool, create_engine, delete, func, select, update

from tidewheel.catalog.tables import (
    chunk_partitions,
    chunks,
    dependencies,
    leases,
    masks,
    packages,
    partitions,
    stream_batches,
    tables,
)
from tidewheel.errors import StorageError
from tidewheel.model.records import BASE

APART = 1 << 16
"""Between the epochs of a warehouse and those of one that is restored from its backup: no owner of the one passes for one of the other."""

_MOST = 20
"""Damaged pages that are named; one is enough to act on."""


def faults(conn: Connection) -> list[str]:
    """Pages and indexes, rows that belong to nothing, and generations that their table has not reached."""
    found = []
    if conn.dialect.name == "sqlite":
        said = [str(row[0]) for row in conn.exec_driver_sql(f"PRAGMA integrity_check({_MOST})")]
        found += [f"SQLite's integrity check says: {line}" for line in said if line != "ok"]
        for row in conn.exec_driver_sql("PRAGMA foreign_key_check").fetchmany(_MOST):
            found.append(f"row {row[1]} of {row[0]} belongs to a row of {row[2]} that is not there")
    for part, generation in (
        (chunks, chunks.c.generation_hi),
        (chunks, chunks.c.generation_removed),
        (masks, masks.c.generation),
        (partitions, partitions.c.changed),
        (packages, packages.c.generation),
        (stream_batches, stream_batches.c.generation),
    ):
        ahead = select(tables.c.name, tables.c.generation, func.max(generation)).join(tables, tables.c.id == part.c.table_id)
        if part is packages:
            ahead = ahead.where(packages.c.rows > 0)  # the first Tidewheel recorded those without rows one too high
        for name, known, most in conn.execute(ahead.where(generation > tables.c.generation).group_by(tables.c.id)):
            found.append(f"{part.name} of table {name!r} go up to generation {most}, but the table has only reached {known}")
    return found + _derived_faults(conn)


def _derived_faults(conn: Connection) -> list[str]:
    """Partitions with rows and without a label, and derived tables that know more of their sources than there is."""
    found = []
    part, c, p = chunk_partitions.c, chunks.c, partitions.c
    held = chunk_partitions.join(chunks, (c.table_id == part.table_id) & (c.id == part.chunk_id) & c.generation_removed.is_(None))
    held = held.join(tables, tables.c.id == part.table_id)
    labelled = held.outerjoin(partitions, (p.table_id == part.table_id) & (p.partition == part.partition))
    unknown = p.partition.is_(None) | (tables.c.kind == BASE) & (p.changed < c.generation_lo)
    query = select(tables.c.name, func.count(part.partition.distinct())).select_from(labelled).where(unknown).group_by(tables.c.id)
    for name, many in conn.execute(query):
        found.append(f"{many} partitions of table {name!r} have rows that their labels do not know of")
    source = tables.alias()
    ahead = select(tables.c.name, source.c.name, dependencies.c.verified, source.c.generation)
    ahead = ahead.join(dependencies, dependencies.c.table_id == tables.c.id).join(source, source.c.id == dependencies.c.source_id)
    for name, of, verified, generation in conn.execute(ahead.where(dependencies.c.verified > source.c.generation)):
        found.append(f"table {name!r} claims to have generation {verified} of its source {of!r}, which has only reached {generation}")
    return found


@contextmanager
def copy_of(conn: Connection, where: str) -> Iterator[Connection]:
    """All of the catalog in memory, as of this moment; writers are not kept waiting."""
    source = conn.connection.driver_connection
    if not isinstance(source, sqlite3.Connection):
        raise StorageError(f"only a catalog in SQLite can be copied: back {where} up with its database's own tools")
    with closing(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)) as memory:
        source.backup(memory)
        memory.execute("PRAGMA foreign_keys = ON")
        engine = create_engine("sqlite://", creator=lambda: memory, poolclass=StaticPool)
        with engine.connect() as copy:
            yield copy


def cut(copy: Connection, upto: Mapping[int, int]) -> None:
    """Forget what was committed after these generations, tables without one, and who held the lease.

    Batches are committed whole trees at a time, and a backup seals all trees at the generation it asks for: a chunk is
    either wholly before it or wholly after. A `replace` hides what came before its own generation, so its mask is one less.
    Nothing is refreshed between the cut and the copy, so what derived tables are made of is in it.
    """
    copy.execute(delete(tables).where(tables.c.id.not_in(upto)))
    for table_id, generation in upto.items():
        of_table = chunks.c.table_id == table_id
        if copy.execute(select(chunks.c.id).where(of_table, chunks.c.generation_removed > generation)).first():
            raise StorageError(f"a chunk that table {table_id} had at generation {generation} left it since; try again")
        gone = (chunks.c.generation_lo > generation) | chunks.c.generation_removed.is_not(None)  # removed: kept for the log's sake
        copy.execute(delete(chunks).where(of_table, gone))
        if copy.execute(select(chunks.c.id).where(of_table, chunks.c.generation_hi > generation)).first():
            raise StorageError(f"a chunk of table {table_id} holds rows from before and after generation {generation}; try again")
        copy.execute(delete(masks).where(masks.c.table_id == table_id, masks.c.generation >= generation))
        for part in (packages, stream_batches):
            copy.execute(delete(part).where(part.c.table_id == table_id, part.c.generation > generation))
        for label in (partitions.c.changed, partitions.c.undone):  # that it changed before as well is possible, and never wrong to say
            copy.execute(update(partitions).where(partitions.c.table_id == table_id, label > generation).values({label: generation}))
        copy.execute(update(tables).where(tables.c.id == table_id).values(generation=generation))
    copy.execute(update(leases).values(epoch=leases.c.epoch + APART, pid=None, host=None, since=None))


def file_of(copy: Connection) -> bytes:
    """The copy as the bytes of a file, without the room that forgotten rows took."""
    memory = copy.connection.driver_connection
    assert isinstance(memory, sqlite3.Connection)
    memory.execute("VACUUM")
    return memory.serialize()
