"""Numbered migrations: function n makes version n out of version n - 1. Never change one that was released; append.

Opening a catalog runs those it lacks, all in one transaction, so a crash leaves the old version. A catalog from a newer Tidewheel
is refused untouched. Migrations are written as plain SQL and not from `tables.py`, which changes while old versions may not.
"""

from __future__ import annotations

import importlib.metadata
import time
import uuid
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, Engine, inspect, text

from tidewheel.errors import FormatError

Migration = Callable[[Connection], None]


def upgrade(reads: Engine, writes: Engine, where: str, steps: Sequence[Migration] | None = None) -> None:
    """Bring the catalog to the newest version. `steps` other than MIGRATIONS are for tests."""
    steps = MIGRATIONS if steps is None else steps
    with reads.connect() as conn:
        if _version(conn, where, len(steps)) == len(steps):
            return
    with writes.begin() as conn:
        found = _version(conn, where, len(steps))  # once more: until the transaction began, another process could upgrade it
        for number in range(found + 1, len(steps) + 1):
            steps[number - 1](conn)
            row = {"version": number, "made_by": made_by(), "applied": time.time()}
            conn.execute(text("INSERT INTO schema_version (version, made_by, applied) VALUES (:version, :made_by, :applied)"), row)


def made_by() -> str:
    """The running Tidewheel's version."""
    try:
        return importlib.metadata.version("tidewheel")
    except importlib.metadata.PackageNotFoundError:
        return "development"


def _version(conn: Connection, where: str, newest: int) -> int:
    """The catalog's version, 0 if it is empty; FormatError if it is not ours or newer than `newest`."""
    names = inspect(conn).get_table_names()
    if not names:
        return 0
    if "schema_version" not in names:
        raise FormatError(f"{where} is a database, but not a Tidewheel catalog; choose another folder for the warehouse")
    row = conn.execute(text("SELECT version, made_by FROM schema_version ORDER BY version DESC LIMIT 1")).first()
    if row is None:
        raise FormatError(f"{where} names no schema version, so it is not a whole Tidewheel catalog; restore it from a backup")
    if type(row.version) is not int or row.version < 1:
        raise FormatError(f"{where} says that its schema version is {row.version!r}, which there is not; restore it from a backup")
    if row.version > newest:
        raise FormatError(
            f"the catalog {where} has version {row.version}, made by Tidewheel {row.made_by}; this is Tidewheel {made_by()}, which knows "
            f"versions up to {newest}. Nothing was changed. Install Tidewheel {row.made_by} or newer (pip install -U tidewheel) "
            "and open it again"
        )
    return int(row.version)


_FIRST = """
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, made_by TEXT NOT NULL, applied DOUBLE PRECISION NOT NULL);
CREATE TABLE warehouse (uuid TEXT NOT NULL PRIMARY KEY, format_version INTEGER NOT NULL, created DOUBLE PRECISION NOT NULL);
CREATE TABLE tables (
    id {serial}, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, generation BIGINT NOT NULL, arrow_schema {blob} NOT NULL,
    layout TEXT NOT NULL, partition TEXT NOT NULL);
CREATE TABLE fields (
    table_id INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE, field_id INTEGER NOT NULL, position INTEGER NOT NULL,
    name TEXT NOT NULL, type TEXT NOT NULL, added_generation BIGINT NOT NULL, dropped_generation BIGINT,
    PRIMARY KEY (table_id, field_id));
CREATE TABLE chunks (
    table_id INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE, id TEXT NOT NULL, server INTEGER NOT NULL, file TEXT NOT NULL,
    container TEXT NOT NULL, format INTEGER NOT NULL, rows BIGINT NOT NULL, bytes BIGINT NOT NULL, key_lo BIGINT NOT NULL,
    key_hi BIGINT NOT NULL, time_lo BIGINT NOT NULL, time_hi BIGINT NOT NULL, late BOOLEAN NOT NULL, generation_lo BIGINT NOT NULL,
    generation_hi BIGINT NOT NULL, covers BIGINT NOT NULL, prefix {blob} NOT NULL, body_lo BIGINT NOT NULL, body_hi BIGINT NOT NULL,
    frame BIGINT NOT NULL, generation_removed BIGINT, PRIMARY KEY (table_id, id));
CREATE INDEX chunks_held ON chunks (table_id) WHERE generation_removed IS NULL;
CREATE TABLE chunk_partitions (
    table_id INTEGER NOT NULL, chunk_id TEXT NOT NULL, partition BIGINT NOT NULL, rows BIGINT NOT NULL,
    PRIMARY KEY (table_id, chunk_id, partition),
    FOREIGN KEY (table_id, chunk_id) REFERENCES chunks (table_id, id) ON DELETE CASCADE);
CREATE TABLE masks (
    id {serial}, table_id INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE, time_lo BIGINT NOT NULL, time_hi BIGINT NOT NULL,
    generation BIGINT NOT NULL, reason TEXT NOT NULL);
CREATE INDEX masks_of_table ON masks (table_id);
CREATE TABLE packages (
    table_id INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE, name TEXT NOT NULL, generation BIGINT NOT NULL,
    rows BIGINT NOT NULL, rejected BIGINT NOT NULL, PRIMARY KEY (table_id, name));
CREATE TABLE stream_batches (
    table_id INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE, stream TEXT NOT NULL, batch BIGINT NOT NULL,
    generation BIGINT NOT NULL, rows BIGINT NOT NULL, PRIMARY KEY (table_id, stream, batch));
CREATE TABLE servers (
    table_id INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE, server INTEGER NOT NULL, key_lo BIGINT NOT NULL,
    prefix {blob} NOT NULL, PRIMARY KEY (table_id, server));
CREATE TABLE leases (id INTEGER PRIMARY KEY, epoch BIGINT NOT NULL, pid BIGINT, host TEXT, since DOUBLE PRECISION);
CREATE TABLE markers (
    table_id INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE, partition BIGINT NOT NULL, marker TEXT NOT NULL,
    generation BIGINT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (table_id, partition));
CREATE TABLE sources (
    table_id INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE, partition BIGINT NOT NULL, source_id INTEGER NOT NULL,
    source_partition BIGINT NOT NULL, generation BIGINT NOT NULL, PRIMARY KEY (table_id, partition, source_id, source_partition));
INSERT INTO leases (id, epoch) VALUES (1, 0)
"""

_TYPES = {
    "sqlite": {"serial": "INTEGER PRIMARY KEY AUTOINCREMENT", "blob": "BLOB"},
    "postgresql": {"serial": "INTEGER GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", "blob": "BYTEA"},
}


def first_version(conn: Connection) -> None:
    for statement in _FIRST.format(**_TYPES[conn.dialect.name]).split(";"):
        conn.exec_driver_sql(statement)
    row = {"uuid": str(uuid.uuid4()), "created": time.time()}
    conn.execute(text("INSERT INTO warehouse (uuid, format_version, created) VALUES (:uuid, 1, :created)"), row)


def with_horizon(conn: Connection) -> None:
    """Chunks leave their tables: from which generation on a table can be read is remembered. Until now, none ever left."""
    conn.exec_driver_sql("ALTER TABLE tables ADD COLUMN horizon BIGINT NOT NULL DEFAULT 0")


_DERIVED = """
ALTER TABLE tables ADD COLUMN definition TEXT;
CREATE TABLE partitions (
    table_id INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE, partition BIGINT NOT NULL, changed BIGINT NOT NULL,
    undone BIGINT NOT NULL, changed_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (table_id, partition));
CREATE TABLE dependencies (
    table_id INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE, position INTEGER NOT NULL,
    source_id INTEGER NOT NULL REFERENCES tables (id), bounds TEXT NOT NULL, verified BIGINT NOT NULL, PRIMARY KEY (table_id, position));
CREATE TABLE refreshes (
    table_id INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE, refresh BIGINT NOT NULL, job TEXT NOT NULL, mode TEXT NOT NULL,
    vector TEXT NOT NULL, began DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION NOT NULL, rows_read BIGINT NOT NULL,
    rows_written BIGINT NOT NULL, computed BIGINT NOT NULL, changed BIGINT NOT NULL,
    generation BIGINT NOT NULL, keys {blob}, PRIMARY KEY (table_id, refresh));
CREATE UNIQUE INDEX refreshes_by_job ON refreshes (table_id, job);
CREATE TABLE refreshed (
    table_id INTEGER NOT NULL REFERENCES tables (id) ON DELETE CASCADE, partition BIGINT NOT NULL, refresh BIGINT NOT NULL,
    PRIMARY KEY (table_id, partition));
CREATE INDEX refreshed_by ON refreshed (table_id, refresh);
INSERT INTO partitions
    SELECT p.table_id, p.partition, max(c.generation_hi), 0, 0
    FROM chunk_partitions p JOIN chunks c ON c.table_id = p.table_id AND c.id = p.chunk_id
    WHERE c.generation_removed IS NULL GROUP BY p.table_id, p.partition;
DROP TABLE sources
"""


def with_derived(conn: Connection) -> None:
    """Derived tables. Every partition gets its label: no table was derived before, so all that counts is that it changed."""
    for statement in _DERIVED.format(**_TYPES[conn.dialect.name]).split(";"):
        conn.exec_driver_sql(statement)


MIGRATIONS: tuple[Migration, ...] = (first_version, with_horizon, with_derived)
