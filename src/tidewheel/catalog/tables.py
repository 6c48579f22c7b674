"""The catalog's tables as queries see them: the newest version. `migrations.py` makes them; a test keeps the two equal.

Every row below a table hangs on `tables.id` and goes with it (ON DELETE CASCADE), so a drop is one DELETE.
Rows of removed chunks stay, with `generation_removed`, for as long as a log may have their rows: recovery must not bring these back.
`partitions` has the labels of every table: what of it changed, and when. `dependencies`, `refreshes` and `refreshed` are of derived tables.
`markers` has no rows yet; it is here because a format cannot gain it later without a migration.
"""

from __future__ import annotations

import operator
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
)

from tidewheel.catalog.record_rows import frame_as_stored

_BIAS = 1 << 63


class Int64(TypeDecorator[int]):
    """A signed 64-bit number. Takes NumPy integers too, which the drivers refuse; never rounds a float."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> int | None:
        return None if value is None else _within(operator.index(value), -_BIAS)


class UInt64(TypeDecorator[int]):
    """An unsigned 64-bit number (a checksum), stored minus 2^63: databases have only signed ones, and the order stays right."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> int | None:
        return None if value is None else _within(operator.index(value), 0) - _BIAS

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return frame_as_stored(value)


class _AsStored:
    """What a database returns, as it is: SQLite holds any value in any column, and `catalog.record_rows` says which one is wrong."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return None if dialect.name == "sqlite" else super().result_processor(dialect, coltype)  # type: ignore[misc]


class StoredBytes(_AsStored, LargeBinary):
    pass


class StoredFlag(_AsStored, Boolean):
    pass


class StoredFloat(_AsStored, Double[float]):
    pass


def _within(value: int, lowest: int) -> int:
    if not lowest <= value < lowest + 2 * _BIAS:
        raise ValueError(f"{value} does not fit 64 bits")
    return value


metadata = MetaData()


def _int64(name: str, *, key: bool = False, null: bool = False) -> Column[int]:
    return Column(name, Int64, primary_key=key, nullable=null, autoincrement=False)


def _text(name: str, *, key: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=key, nullable=False)


def _table_id(*, key: bool = True) -> Column[int]:
    return Column("table_id", Integer, ForeignKey("tables.id", ondelete="CASCADE"), primary_key=key, nullable=False, autoincrement=False)


schema_version = Table(
    "schema_version",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    _text("made_by"),
    Column("applied", StoredFloat, nullable=False),
)

warehouse = Table(
    "warehouse",
    metadata,
    _text("uuid", key=True),
    Column("format_version", Integer, nullable=False),
    Column("created", StoredFloat, nullable=False),
)

tables = Table(
    "tables",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    _text("kind"),
    _int64("generation"),
    Column("arrow_schema", StoredBytes, nullable=False),
    _text("layout"),
    _text("partition"),
    Column("horizon", Int64, nullable=False, server_default="0"),
    Column("definition", Text, nullable=True),
    sqlite_autoincrement=True,  # ids of dropped tables are never given again: files and lineage name them
)

fields = Table(
    "fields",
    metadata,
    _table_id(),
    Column("field_id", Integer, primary_key=True, autoincrement=False),
    Column("position", Integer, nullable=False),
    _text("name"),
    _text("type"),
    _int64("added_generation"),
    _int64("dropped_generation", null=True),
)

chunks = Table(
    "chunks",
    metadata,
    _table_id(),
    _text("id", key=True),
    Column("server", Integer, nullable=False),
    _text("file"),
    _text("container"),
    Column("format", Integer, nullable=False),
    _int64("rows"),
    _int64("bytes"),
    _int64("key_lo"),
    _int64("key_hi"),
    _int64("time_lo"),
    _int64("time_hi"),
    Column("late", StoredFlag, nullable=False),
    _int64("generation_lo"),
    _int64("generation_hi"),
    _int64("covers"),
    Column("prefix", StoredBytes, nullable=False),
    _int64("body_lo"),
    _int64("body_hi"),
    Column("frame", UInt64, nullable=False),
    _int64("generation_removed", null=True),
)
# This index knows only chunks that are held, so reading a table costs what it holds now.
Index(
    "chunks_held",
    chunks.c.table_id,
    sqlite_where=chunks.c.generation_removed.is_(None),
    postgresql_where=chunks.c.generation_removed.is_(None),
)

chunk_partitions = Table(
    "chunk_partitions",
    metadata,
    Column("table_id", Integer, primary_key=True, autoincrement=False),
    _text("chunk_id", key=True),
    _int64("partition", key=True),
    _int64("rows"),
    ForeignKeyConstraint(["table_id", "chunk_id"], ["chunks.table_id", "chunks.id"], ondelete="CASCADE"),
)

masks = Table(
    "masks",
    metadata,
    Column("id", Integer, primary_key=True),
    _table_id(key=False),
    _int64("time_lo"),
    _int64("time_hi"),
    _int64("generation"),
    _text("reason"),
    sqlite_autoincrement=True,
)
Index("masks_of_table", masks.c.table_id)

packages = Table("packages", metadata, _table_id(), _text("name", key=True), _int64("generation"), _int64("rows"), _int64("rejected"))

stream_batches = Table(
    "stream_batches", metadata, _table_id(), _text("stream", key=True), _int64("batch", key=True), _int64("generation"), _int64("rows")
)

servers = Table(
    "servers",
    metadata,
    _table_id(),
    Column("server", Integer, primary_key=True, autoincrement=False),
    _int64("key_lo"),
    Column("prefix", StoredBytes, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1: there is one lease
    _int64("epoch"),
    _int64("pid", null=True),  # null: released
    Column("host", Text, nullable=True),
    Column("since", StoredFloat, nullable=True),
)

markers = Table("markers", metadata, _table_id(), _int64("partition", key=True), _text("marker"), _int64("generation"), _text("reason"))

partitions = Table(
    "partitions",
    metadata,
    _table_id(),
    _int64("partition", key=True),
    _int64("changed"),
    _int64("undone"),
    Column("changed_at", StoredFloat, nullable=False),
)

dependencies = Table(
    "dependencies",
    metadata,
    _table_id(),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("source_id", Integer, ForeignKey("tables.id"), nullable=False),  # no cascade: a source is not dropped before its dependents
    _text("bounds"),
    _int64("verified"),
)

refreshes = Table(
    "refreshes",
    metadata,
    _table_id(),
    _int64("refresh", key=True),
    _text("job"),
    _text("mode"),
    _text("vector"),
    Column("began", StoredFloat, nullable=False),
    Column("ended", StoredFloat, nullable=False),
    _int64("rows_read"),
    _int64("rows_written"),
    _int64("computed"),
    _int64("changed"),
    _int64("generation"),
    Column("keys", StoredBytes, nullable=True),
)
Index("refreshes_by_job", refreshes.c.table_id, refreshes.c.job, unique=True)

refreshed = Table(
    "refreshed",
    metadata,
    _table_id(),
    _int64("partition", key=True),
    _int64("refresh"),
)
Index("refreshed_by", refreshed.c.table_id, refreshed.c.refresh)
