"""The catalog looked at as a whole: a copy for a backup, and what the database finds wrong with itself.

SQLite only. With PostgreSQL, the database's own tools make copies and look after its pages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from sqlalchemy import Connection, StaticPool, create_engine, delete, func, select, update

from tidewheel.catalog.tables import chunks, leases, masks, packages, stream_batches, tables
from tidewheel.errors import StorageError

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
        (packages, packages.c.generation),
        (stream_batches, stream_batches.c.generation),
    ):
        ahead = select(tables.c.name, tables.c.generation, func.max(generation)).join(tables, tables.c.id == part.c.table_id)
        if part is packages:
            ahead = ahead.where(packages.c.rows > 0)  # the first Tidewheel recorded those without rows one too high
        for name, known, most in conn.execute(ahead.where(generation > tables.c.generation).group_by(tables.c.id)):
            found.append(f"{part.name} of table {name!r} go up to generation {most}, but the table has only reached {known}")
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
        copy.execute(update(tables).where(tables.c.id == table_id).values(generation=generation))
    copy.execute(update(leases).values(epoch=leases.c.epoch + APART, pid=None, host=None, since=None))


def file_of(copy: Connection) -> bytes:
    """The copy as the bytes of a file, without the room that forgotten rows took."""
    memory = copy.connection.driver_connection
    assert isinstance(memory, sqlite3.Connection)
    memory.execute("VACUUM")
    return memory.serialize()
