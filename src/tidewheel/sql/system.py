"""The tables of the schema `system`: what a warehouse tells about itself, as rows of the moment when a statement begins.

Names and columns are a promise: columns may be added at the end, none is renamed or removed. They have the same rows in the process that
owns the warehouse and in those that are attached to it, except `queries`, which are those of the process that asks.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, TypeVar

import pyarrow as pa

from tidewheel.engine.operations import (
    DescribeTable,
    GetDerived,
    GetMetrics,
    GetServers,
    GetState,
    GetStreams,
    ListTables,
    ReadRejects,
    TakePin,
    Unpin,
)
from tidewheel.engine.protocol import Engine, TableEngine
from tidewheel.errors import ClosedError, NotFoundError, QueryError
from tidewheel.model.delivery import Pin
from tidewheel.model.partitions import interval
from tidewheel.model.query import Query
from tidewheel.model.records import ChunkRecord
from tidewheel.model.schema import Ip, TableSpec, ZOrder, nearest
from tidewheel.model.text.division import parsed
from tidewheel.model.times import TimeAxis
from tidewheel.read.result import Result
from tidewheel.sql.queries import queries
from tidewheel.sql.streamed import Streamed

T = TypeVar("T")

Rows = Iterator[tuple[Any, ...]]

_MOMENT = pa.timestamp("us")
_INT, _TEXT, _FLOAT, _BOOL = pa.int64(), pa.string(), pa.float64(), pa.bool_()


def system_table(engine: Engine, name: str) -> pa.Table | Streamed:
    """The rows of a system table now."""
    found = TABLES.get(name)
    if found is None:
        raise QueryError(f"there is no table system.{name}.{nearest(name, list(TABLES))} Tables of system: {', '.join(TABLES)}")
    columns, rows = found
    schema = pa.schema(list(columns.items()))
    if rows is _rejects:
        kept = list(_each(engine, lambda table: table.ask(ReadRejects(ordered=False))))  # of this moment, and read when they are asked for
        return Streamed(schema, lambda: _rejected(kept, schema))
    values: list[list[Any]] = [[] for _ in columns]
    for row in rows(engine):
        for column, value in zip(values, row, strict=True):
            column.append(value)
    return pa.table([pa.array(column, field.type) for column, field in zip(values, schema, strict=True)], schema=schema)


def _each(engine: Engine, tell: Callable[[TableEngine], T]) -> Iterator[tuple[TableSpec, T]]:
    """What each table tells."""
    for name in engine.do(ListTables()):
        try:
            table = engine.table(name)
            told = tell(table)
        except NotFoundError:  # it was dropped just now
            continue
        except ClosedError:
            engine.do(ListTables())  # raises if it was the warehouse that was closed
            continue
        yield table.spec, told


def _moment(axis: TimeAxis, code: int) -> dt.datetime | None:
    """None for a time that Python has no date for."""
    try:
        return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=code * axis.nanos // 1000)
    except OverflowError:
        return None


def _rule(spec: TableSpec) -> str:
    return "zorder" if isinstance(spec.key, ZOrder) else "ip" if isinstance(spec.key, Ip) else "column"


def _tables(engine: Engine) -> Rows:
    for spec, state in _each(engine, lambda table: table.do(GetState())):
        yield (
            spec.name, ", ".join(spec.key.columns), _rule(spec), spec.time.column, spec.time.unit, spec.partition, len(spec.schema),
            state.rows, state.fresh_rows, state.historical_rows, state.chunks, state.trees, state.sealed, state.memory_bytes,
            state.disk_bytes, state.generation,
        )  # fmt: skip


def _columns(engine: Engine) -> Rows:
    for spec, _ in _each(engine, lambda table: None):
        for i, column in enumerate(spec.schema):
            key, time = column.name in spec.key.columns, column.name == spec.time.column
            yield spec.name, column.name, i + 1, str(column.type), column.nullable and not key and not time, key, time, spec.field_ids[i]


def _statistics(engine: Engine) -> Rows:
    for _, described in _each(engine, lambda table: table.do(DescribeTable())):
        for c in described.columns:
            least, greatest = (None if value is None else str(value) for value in (c.least, c.greatest))
            yield described.table, c.name, c.type, described.rows, c.nulls, least, greatest, c.distinct


def _records(engine: Engine) -> Iterator[tuple[TableSpec, ChunkRecord]]:
    for spec, pin in _each(engine, _pin):
        yield from ((spec, chunk) for chunk in pin.chunks)


def _pin(table: TableEngine) -> Pin:
    pin = table.do(TakePin(Query()))
    table.do(Unpin(pin.id))
    return pin


def _chunks(engine: Engine) -> Rows:
    for spec, c in _records(engine):
        yield (
            spec.name, c.id, c.file, c.container, c.format, c.server, c.late, c.rows, c.bytes, c.key_lo, c.key_hi, c.time_lo, c.time_hi,
            _moment(spec.time, c.time_lo), _moment(spec.time, c.time_hi), c.generation_lo, c.generation_hi,
        )  # fmt: skip


def _partitions(engine: Engine) -> Rows:
    found: dict[tuple[str, int], list[int]] = {}
    specs: dict[str, TableSpec] = {}
    for spec, chunk in _records(engine):
        specs[spec.name] = spec
        for start, rows in chunk.partitions:
            counted = found.setdefault((spec.name, start), [0, 0])
            counted[0] += rows
            counted[1] += 1
    for (name, start), (rows, chunks) in sorted(found.items()):
        spec = specs[name]
        lo, hi = interval(spec.partitions, start)
        yield name, _moment(spec.time, lo), _moment(spec.time, hi), rows, chunks


def _servers(engine: Engine) -> Rows:
    for spec, servers in _each(engine, lambda table: table.do(GetServers())):
        for s in servers:
            yield spec.name, s.server, s.key_lo, parsed(s.prefix).shared, s.fresh_rows, s.late_rows, s.memory_bytes


def _streams(engine: Engine) -> Rows:
    for spec, streams in _each(engine, lambda table: table.do(GetStreams())):
        for s in streams:
            yield spec.name, s.stream, s.batch, s.rows, s.flushed


def _derived(engine: Engine) -> Rows:
    for spec, state in _each(engine, lambda table: table.do(GetDerived())):
        if state is not None:
            what = state.definition
            begin = None if what.begin is None else _moment(spec.time, what.begin)
            since, at = _clock(state.stale_since), _clock(state.refreshed_at)
            age = None if state.stale_since is None else max(0.0, time.time() - state.stale_since)
            yield (
                spec.name, ", ".join(one.source for one in state.dependencies), what.modes[0].name, what.incremental, state.partitions,
                state.stale, since, age, at, begin, what.language, what.text, what.made_with or None,
            )  # fmt: skip


def _refreshes(engine: Engine) -> Rows:
    for spec, state in _each(engine, lambda table: table.do(GetDerived())):
        names = {} if state is None else {one.source_id: one.source for one in state.dependencies}
        for one in () if state is None else state.refreshes:
            vector = ", ".join(f"{names.get(id_, id_)} {generation}" for id_, generation in one.vector)
            yield (
                spec.name, one.refresh, one.mode, _clock(one.began), (one.ended - one.began) * 1e3, one.computed, one.changed,
                one.rows_read, one.rows_written, vector,
            )  # fmt: skip


def _clock(seconds: float | None) -> dt.datetime | None:
    return None if seconds is None else dt.datetime.fromtimestamp(seconds, dt.UTC).replace(tzinfo=None)


def _metrics(engine: Engine) -> Rows:
    for spec, counted in _each(engine, lambda table: table.do(GetMetrics())):
        for field in fields(counted):
            yield spec.name, field.name, float(getattr(counted, field.name))


def _rejects(engine: Engine) -> Rows:
    raise AssertionError("there may be millions of them: they are streamed")


def _rejected(kept: list[tuple[TableSpec, Result]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rejects of all tables. Those of older warehouses lack the last columns."""
    for spec, result in kept:
        for batch in result:
            name = pa.repeat(pa.scalar(spec.name, _TEXT), batch.num_rows)
            own = [
                batch.column(stored) if stored in batch.schema.names else pa.nulls(batch.num_rows)
                for stored in ("column" if field.name == "column_name" else field.name for field in schema.remove(0))
            ]
            yield pa.RecordBatch.from_arrays(
                [name, *(column.cast(type_) for column, type_ in zip(own, schema.types[1:], strict=True))], schema=schema
            )


def _settings(engine: Engine) -> Rows:
    for field in fields(engine.settings):
        value, default = getattr(engine.settings, field.name), field.default
        yield field.name, None if value is None else str(value), None if default is None else str(default), value != default


def _recovery(engine: Engine) -> Rows:
    recovery = engine.recovery
    owner = recovery.owner
    for t in recovery.tables:
        yield (
            t.table, recovery.seconds, None if owner is None else owner.pid, t.segments, t.log_bytes, t.batches, t.rows, t.cut_bytes,
            t.dropped, "; ".join(t.damage) or None,
        )  # fmt: skip


def _queries(engine: Engine) -> Rows:
    for q in queries.of(engine.root):
        started = dt.datetime.fromtimestamp(q.started, dt.UTC).replace(tzinfo=None)
        s = q.stats
        yield (
            q.id, q.statement, q.state, started, q.milliseconds, s.rows_returned, s.bytes, s.regions_considered, s.regions_read,
            s.leaves_read, s.leaves_skipped, s.rows_scanned, q.error or None,
        )  # fmt: skip


TABLES: dict[str, tuple[dict[str, pa.DataType], Callable[[Engine], Rows]]] = {
    "tables": (
        {
            "name": _TEXT, "key": _TEXT, "key_rule": _TEXT, "time": _TEXT, "time_unit": _TEXT, "partition": _TEXT, "columns": _INT,
            "rows": _INT, "fresh_rows": _INT, "historical_rows": _INT, "chunks": _INT, "trees": _INT, "sealed_trees": _INT,
            "memory_bytes": _INT, "disk_bytes": _INT, "generation": _INT,
        },
        _tables,
    ),
    "columns": (
        {
            "table_name": _TEXT, "column_name": _TEXT, "position": _INT, "type": _TEXT, "nullable": _BOOL, "is_key": _BOOL,
            "is_time": _BOOL, "field_id": _INT,
        },
        _columns,
    ),
    "statistics": (
        {
            "table_name": _TEXT, "column_name": _TEXT, "type": _TEXT, "rows": _INT, "nulls": _INT, "least": _TEXT, "greatest": _TEXT,
            "distinct_estimate": _INT,
        },
        _statistics,
    ),
    "chunks": (
        {
            "table_name": _TEXT, "id": _TEXT, "file": _TEXT, "container": _TEXT, "format": _INT, "server": _INT, "late": _BOOL,
            "rows": _INT, "bytes": _INT, "key_lo": _INT, "key_hi": _INT, "time_lo": _INT, "time_hi": _INT, "first_time": _MOMENT,
            "last_time": _MOMENT,
            "generation_lo": _INT, "generation_hi": _INT,
        },
        _chunks,
    ),
    "partitions": (
        {"table_name": _TEXT, "partition_start": _MOMENT, "partition_end": _MOMENT, "historical_rows": _INT, "chunks": _INT},
        _partitions,
    ),
    "servers": (
        {
            "table_name": _TEXT, "server": _INT, "key_lo": _INT, "key_prefix": pa.binary(), "fresh_rows": _INT, "late_rows": _INT,
            "memory_bytes": _INT,
        },
        _servers,
    ),
    "streams": ({"table_name": _TEXT, "stream": _TEXT, "last_batch": _INT, "rows": _INT, "flushed": _BOOL}, _streams),
    "derived": (
        {
            "table_name": _TEXT, "sources": _TEXT, "mode": _TEXT, "incremental": _TEXT, "partitions": _INT, "stale": _INT,
            "stale_since": _MOMENT, "stale_seconds": _FLOAT, "refreshed_at": _MOMENT, "begin_at": _MOMENT, "language": _TEXT,
            "definition": _TEXT, "made_with": _TEXT,
        },
        _derived,
    ),
    "refreshes": (
        {
            "table_name": _TEXT, "refresh": _INT, "mode": _TEXT, "began": _MOMENT, "milliseconds": _FLOAT, "partitions": _INT,
            "changed": _INT, "rows_read": _INT, "rows_written": _INT, "vector": _TEXT,
        },
        _refreshes,
    ),
    "metrics": ({"table_name": _TEXT, "name": _TEXT, "value": _FLOAT}, _metrics),
    "queries": (
        {
            "id": _INT, "statement": _TEXT, "state": _TEXT, "started": _MOMENT, "milliseconds": _FLOAT, "rows": _INT, "bytes": _INT,
            "regions_considered": _INT, "regions_read": _INT, "leaves_read": _INT, "leaves_skipped": _INT, "rows_scanned": _INT,
            "error": _TEXT,
        },
        _queries,
    ),
    "rejects": (
        {
            "table_name": _TEXT, "rejected_at": _MOMENT, "position": _INT, "column_name": _TEXT, "reason": _TEXT, "row": _TEXT,
            "package": _TEXT, "stream": _TEXT, "batch": _INT, "origin": _TEXT,
        },
        _rejects,
    ),
    "settings": ({"name": _TEXT, "value": _TEXT, "default_value": _TEXT, "changed": _BOOL}, _settings),
    "recovery": (
        {
            "table_name": _TEXT, "seconds": _FLOAT, "owner_pid": _INT, "segments": _INT, "log_bytes": _INT, "batches": _INT, "rows": _INT,
            "cut_bytes": _INT, "dropped": _INT, "damage": _TEXT,
        },
        _recovery,
    ),
}  # fmt: skip
