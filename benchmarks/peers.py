"""The systems that are measured, behind one protocol: Tidewheel, DuckDB and chDB, each the fastest documented way we found.

What was tried and left aside, so that nobody has to wonder (2 shared, noisy cores; DuckDB 2.0, chDB 4.4; one to three runs of each, so
differences below a fifth mean little). Layouts were compared without a live stream, by the geometric mean of the grid's cells:
* DuckDB insert: scanning the RecordBatch in autocommit was as fast as or faster than `register`, `from_arrow().insert_into()` and
  `append` (which takes pandas only); the appender takes Python rows. `threads = 1` helps at 1 K a batch, hurts at 100 K.
* DuckDB results: `con.sql(…).to_arrow_table()`; DuckDB itself warns that `con.execute(…).to_arrow_table()` copies once more.
* DuckDB layouts, ms: coarse key then time 7.3 (`z >> 52` 8.0), buckets of 60 s by key 7.8, of 5 s 11.2, key order 13.0, time order 36.8.
  An ART index on the key changed time order little. Row groups of 20,480 or 40,960 were slower except for key order (9.3).
* chDB insert: `Native` blocks were faster than ArrowStream, RowBinary and `Python()` at 10 K, level with `Python()` at 100 K.
* chDB layouts, ms: a partition a minute with 1,024 rows per mark 33, with 8,192 36, 10 s partitions 40, 10 s bucket first 42, no
  partitions 57, a minmax skip index on the time 78, time first 297.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from benchmarks import data

COLUMNS = ", ".join(data.SCHEMA.names)


@dataclass(frozen=True)
class Ask:
    """A query: key range × time range, both ends included. `None` means open. `totals`: not the rows, but what they come to (SQL only)."""

    key: tuple[int, int] | None = None
    time: tuple[int, int] | None = None
    totals: bool = False


class System(Protocol):
    """One system with one table of taxi rows. `insert` may run in one thread while another one queries."""

    name: str
    layout: str
    promise: str

    def open(self, folder: Path) -> None: ...
    def load(self, batch: pa.RecordBatch) -> None:
        """Brings in the history, outside any measurement, in the layout that suits queries best."""

    def insert(self, batch: pa.RecordBatch) -> None:
        """One batch, visible to every query when this returns."""

    def flush(self) -> None:
        """Everything inserted is in files when this returns."""

    def query(self, ask: Ask) -> pa.Table: ...
    def close(self) -> None: ...


def same(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two answers agree: integers exactly, sums of floats but for the order of addition."""
    return one[:4] == other[:4] and all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(one[4:], other[4:], strict=True))


@dataclass
class Tidewheel:
    settings: dict[str, Any] = field(default_factory=dict)
    name: str = "tidewheel"
    layout: str = 'create_table(time="ts", key="z"), default settings'
    promise: str = ""
    root: Path = Path()
    warehouse: Any = None
    table: Any = None

    def __post_init__(self) -> None:
        self.settings = {"durability": "memory"} | self.settings
        self.promise = {
            "memory": 'durability="memory": nothing survives the process until flush',
            "process": 'durability="process": every batch is handed to the OS; survives the process, not the machine',
            "fsync": 'durability="fsync": every batch is synced; survives the machine',
        }[self.settings["durability"]]

    def open(self, folder: Path) -> None:
        import tidewheel as tw

        self.root = folder / "wh"
        self.warehouse = tw.open(self.root, settings=tw.Settings(**self.settings))
        self.table = self.warehouse.create_table("taxi", data.SCHEMA, time="ts", key="z")

    def load(self, batch: pa.RecordBatch) -> None:
        for part in data.batches(batch, 100_000):
            self.table.insert(part)

    def insert(self, batch: pa.RecordBatch) -> None:
        self.table.insert(batch)

    def another_writer(self) -> Callable[[pa.RecordBatch], None]:
        return self.table.insert

    def flush(self) -> None:
        self.table.flush()

    def query(self, ask: Ask) -> pa.Table:
        return self.table.query(key=ask.key, time=ask.time).to_arrow()

    def close(self) -> None:
        if self.warehouse is not None:
            self.warehouse.close()


@dataclass
class DuckDB:
    threads: int | None = None
    in_memory: bool = False
    as_it_came: bool = False
    synced: bool = False
    name: str = "duckdb"
    layout: str = "history rewritten offline, ORDER BY z >> 50, ts (zone maps on both); new rows in time order"
    promise: str = "file database, fsync_mode=NONE: a commit is in the log file, not synced; survives the process, not the machine"
    connection: Any = None
    writer: Any = None
    target: str = "taxi"

    def __post_init__(self) -> None:
        if self.in_memory:
            self.name = "duckdb mem"
            self.promise = "in-memory table, copied to a file database at the end: nothing survives the process until then"
            self.target = "recent.taxi"
        if self.synced:
            self.name = "duckdb synced"
            self.promise = "file database, default settings: a commit is in the log file and synced; survives the machine"
        if self.as_it_came:
            self.name = "duckdb as it came"
            self.layout = "all rows in time order, as a live stream leaves them (zone maps on the time)"

    def open(self, folder: Path) -> None:
        import duckdb

        settings: dict[str, Any] = {} if self.synced else {"fsync_mode": "NONE"}
        if self.threads is not None:
            settings["threads"] = self.threads
        self.connection = duckdb.connect(str(folder / "taxi.duckdb"), config=settings)
        columns = "z BIGINT NOT NULL, ts TIMESTAMP NOT NULL, taxi INTEGER NOT NULL, lon DOUBLE NOT NULL, lat DOUBLE NOT NULL"
        self.connection.execute(f"CREATE TABLE taxi ({columns})")
        if self.in_memory:
            self.connection.execute("ATTACH ':memory:' AS recent")
            self.connection.execute(f"CREATE TABLE recent.taxi ({columns})")
        self.writer = self.connection.cursor()

    def load(self, batch: pa.RecordBatch) -> None:
        order = "" if self.as_it_came else " ORDER BY z >> 50, ts"
        self.connection.execute(f"INSERT INTO taxi SELECT * FROM batch{order}")
        self.connection.execute("CHECKPOINT")

    def insert(self, batch: pa.RecordBatch) -> None:
        self.writer.execute(f"INSERT INTO {self.target} SELECT * FROM batch")

    def another_writer(self) -> Callable[[pa.RecordBatch], None]:
        """`insert` for one more thread."""
        cursor = self.connection.cursor()
        return lambda batch: cursor.execute(f"INSERT INTO {self.target} SELECT * FROM batch")

    def flush(self) -> None:
        if self.in_memory:
            self.connection.execute("INSERT INTO taxi FROM recent.taxi")
            self.target = "taxi"
        self.connection.execute("CHECKPOINT")

    def query(self, ask: Ask) -> pa.Table:
        where = _where(ask, "make_timestamp({})")
        return self.connection.sql(f"SELECT {COLUMNS} FROM {self.target}{where}").to_arrow_table()

    def close(self) -> None:
        if self.connection is not None:
            self.writer.close()
            self.connection.close()


@dataclass
class ChDB:
    """chDB allows one data folder per process at a time: close one before opening the next."""

    for_queries: bool = False
    name: str = "chdb"
    layout: str = "MergeTree ORDER BY (z, ts)"
    promise: str = "every insert is a part on disk, not synced; survives the process, not the machine; merges go on in the background"
    reader: Any = None
    writer: Any = None

    def __post_init__(self) -> None:
        if self.for_queries:
            self.layout = "MergeTree ORDER BY (z, ts) PARTITION BY minute, 1,024 rows per mark; history optimised"

    def open(self, folder: Path) -> None:
        from chdb.session import Session

        self.reader = Session(str(folder / "chdb"))
        self.reader.query("CREATE DATABASE bench ENGINE = Atomic")
        layout = "ORDER BY (z, ts)"
        if self.for_queries:
            layout = f"PARTITION BY toStartOfMinute(ts) {layout} SETTINGS index_granularity = 1024"
        columns = "z Int64, ts DateTime64(6, 'UTC'), taxi Int32, lon Float64, lat Float64"
        self.reader.query(f"CREATE TABLE bench.taxi ({columns}) ENGINE = MergeTree {layout}")
        self.writer = Session(str(folder / "chdb"))

    def load(self, batch: pa.RecordBatch) -> None:
        for part in data.batches(batch, 500_000):
            self.insert(part)
        self.reader.query("OPTIMIZE TABLE bench.taxi FINAL")

    def insert(self, batch: pa.RecordBatch) -> None:
        stream = self.writer.send_insert("INSERT INTO bench.taxi SETTINGS max_threads = 1, input_format_parallel_parsing = 0", "Native")
        stream.append(native_block(batch))
        stream.finish()

    def flush(self) -> None:
        """Nothing to do: every insert is already in files."""

    def query(self, ask: Ask) -> pa.Table:
        where = _where(ask, "fromUnixTimestamp64Micro({}, 'UTC')")
        return self.reader.query(f"SELECT {COLUMNS} FROM bench.taxi{where}", "ArrowTable")

    def close(self) -> None:
        for session in (self.writer, self.reader):
            if session is not None:
                session.close()


def native_block(batch: pa.RecordBatch) -> bytes:
    """Taxi rows in ClickHouse's Native format: counts, then per column its name, its type and its values as they lie in memory."""
    types = ("Int64", "DateTime64(6, 'UTC')", "Int32", "Float64", "Float64")
    parts: list[bytes | memoryview] = [_varint(batch.num_columns), _varint(batch.num_rows)]
    for name, kind, column in zip(batch.schema.names, types, batch.columns, strict=True):
        width = column.type.bit_width // 8
        values = memoryview(column.buffers()[1])[column.offset * width : (column.offset + len(column)) * width]
        parts += [_text(name), _text(kind), values]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _varint(len(encoded)) + encoded


def _where(ask: Ask, timestamp: str) -> str:
    terms = []
    if ask.key is not None:
        terms.append(f"z BETWEEN {ask.key[0]} AND {ask.key[1]}")
    if ask.time is not None:
        terms.append(f"ts BETWEEN {timestamp.format(ask.time[0])} AND {timestamp.format(ask.time[1])}")
    return " WHERE " + " AND ".join(terms) if terms else ""
