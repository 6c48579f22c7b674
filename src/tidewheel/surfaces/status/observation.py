"""One look at a warehouse, through its own system tables; and what two looks say together."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.cluster import address
from tidewheel.errors import LimitError, NotFoundError, QueryError, TidewheelError
from tidewheel.model.times import TimeAxis

if TYPE_CHECKING:
    from tidewheel.warehouse import Warehouse

_NEWEST_SECONDS = 1.0
"""The time limit for finding the newest row of a table: the index knows it, unless rows were replaced."""

_UNITS = {"date32[day]": "day", "date64[ms]": "ms"}


@dataclass(frozen=True, slots=True)
class TableLook:
    """A table, as `system.tables` and `system.metrics` tell of it."""

    name: str
    rows: int
    fresh_rows: int
    historical_rows: int
    chunks: int
    trees: int
    memory_bytes: int
    disk_bytes: int
    generation: int
    rejected: int = 0
    """Rows that were refused, since there is the table."""
    newest: float | None = None
    """The time of its newest row, in seconds since 1970."""
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamLook:
    table: str
    stream: str
    last_batch: int
    rows: int
    """The rows of the last batch."""
    flushed: bool


@dataclass(frozen=True, slots=True)
class WarehouseLook:
    """A warehouse at one moment."""

    root: Path
    clock: float
    """Seconds of a clock that only goes forward."""
    at: float
    """Seconds since 1970."""
    owner: int | None
    """The process that owns it; None if it is ours."""
    tables: tuple[TableLook, ...]
    streams: tuple[StreamLook, ...]


def look(warehouse: Warehouse, root: Path) -> WarehouseLook:
    """Look now."""
    counted: dict[str, dict[str, float]] = {}
    for row in warehouse.sql("SELECT table_name, name, value FROM system.metrics").to_pylist():
        counted.setdefault(row["table_name"], {})[row["name"]] = row["value"]
    clock = time.monotonic()  # when it was counted: rates are made of it
    tables = []
    for row in warehouse.sql("SELECT * FROM system.tables ORDER BY name").to_pylist():
        newest = _newest(warehouse, row["name"], row["time"], row["time_unit"]) if row["rows"] else None
        told = {name: row[name] for name in TableLook.__dataclass_fields__ if name in row}
        rejected = _rejected(warehouse, row["name"])
        tables.append(TableLook(**told, rejected=rejected, newest=newest, metrics=counted.get(row["name"], {})))
    return WarehouseLook(root, clock, time.time(), _owner(root), tuple(tables), _streams(warehouse))


def _streams(warehouse: Warehouse) -> tuple[StreamLook, ...]:
    rows = warehouse.sql("SELECT table_name, stream, last_batch, rows, flushed FROM system.streams ORDER BY 1, 2").to_pylist()
    return tuple(StreamLook(row["table_name"], row["stream"], row["last_batch"], row["rows"], row["flushed"]) for row in rows)


def _rejected(warehouse: Warehouse, table: str) -> int:
    """The index knows how many there are."""
    try:
        return len(warehouse.table(table).rejects())
    except NotFoundError:  # dropped just now
        return 0


def _newest(warehouse: Warehouse, table: str, column: str, unit: str) -> float | None:
    quoted = column.replace('"', '""')
    try:
        found = warehouse.sql(f'SELECT max("{quoted}") AS newest FROM "{table}"', timeout=_NEWEST_SECONDS).to_arrow()["newest"][0]
    except (LimitError, NotFoundError, QueryError):  # it takes too long, or was dropped just now
        return None
    return None if not found.is_valid else float(_count(found)) * TimeAxis("", _unit(found.type, unit)).nanos / 1e9


def _count(found: pa.Scalar) -> int:
    """As a number, in the column's unit: not every time is one that Python has a date for."""
    return int(found.value if hasattr(found, "value") else found.as_py())


def _unit(type_: pa.DataType, unit: str) -> str:
    return str(type_.unit) if pa.types.is_timestamp(type_) else _UNITS.get(str(type_), unit)


def _owner(root: Path) -> int | None:
    try:
        door = address.read(root)
    except TidewheelError:
        return None
    return door.pid if door is not None and door.pid != os.getpid() and address.is_owned(root) else None


def picture(now: WarehouseLook, before: WarehouseLook | None) -> dict[str, Any]:
    """The picture as plain values; rates are of the time between the two looks."""
    passed = now.clock - before.clock if before is not None else 0.0
    earlier = {table.name: table for table in before.tables} if before is not None else {}
    tables: list[dict[str, Any]] = []
    for table in now.tables:
        last = earlier.get(table.name)
        tables.append(
            {
                "name": table.name, "rows": table.rows,
                "rows_per_second": _rate(table, last, "rows", passed), "rejected_per_second": _rate(table, last, "rejected", passed),
                "fresh_rows": table.fresh_rows, "historical_rows": table.historical_rows, "chunks": table.chunks, "trees": table.trees,
                "memory_bytes": table.memory_bytes, "disk_bytes": table.disk_bytes, "generation": table.generation,
                "late_rows": int(table.metrics.get("late_rows", 0)), "rejected": table.rejected,
                "waits": int(table.metrics.get("waits", 0)), "flush_failures": int(table.metrics.get("flush_failures", 0)),
                "lag_seconds": None if table.newest is None else round(now.at - table.newest, 3),
            }
        )  # fmt: skip
    summed = ("rows", "fresh_rows", "historical_rows", "chunks", "memory_bytes", "disk_bytes")
    total: dict[str, Any] = {name: sum(getattr(table, name) for table in now.tables) for name in summed}
    rates = [table["rows_per_second"] for table in tables]
    total["rows_per_second"] = None if None in rates else round(sum(rates), 1)
    return {
        "warehouse": str(now.root), "at": round(now.at, 3), "seconds": round(passed, 3), "owner": now.owner, "total": total,
        "tables": tables, "streams": [asdict(one) for one in now.streams],
    }  # fmt: skip


def _rate(table: TableLook, before: TableLook | None, name: str, passed: float) -> float | None:
    """The rate of a counter, a second; None without an earlier look. Another owner counts from 0 again."""
    if before is None or passed <= 0 or name not in table.metrics or name not in before.metrics:
        return None
    counted = table.metrics[name] - before.metrics[name]
    return round((counted if counted >= 0 else table.metrics[name]) / passed, 1)
