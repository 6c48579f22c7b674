"""Rejects: the rows that did not fit, kept with their reason in a table of their own. As durable and queryable as any row."""

from __future__ import annotations

import pyarrow as pa

from tidewheel.model.schema import ColumnKey, TableSpec
from tidewheel.model.times import TimeAxis
from tidewheel.write.accept import Rejected

SUFFIX = "$rejects"
"""No table that a user names can contain a $."""

SCHEMA = pa.schema(
    [
        pa.field("rejected_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("column", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("row", pa.string(), nullable=False),
        pa.field("package", pa.string()),
        pa.field("stream", pa.string()),
        pa.field("batch", pa.int64()),
        pa.field("origin", pa.string()),
    ]
)
"""The rejects of older warehouses end with `package`."""


def rejects_spec(table: str) -> TableSpec:
    ids = tuple(range(1, len(SCHEMA) + 1))
    return TableSpec(table + SUFFIX, SCHEMA, TimeAxis("rejected_at", "us"), ColumnKey("position"), "1 day", ids)


def rejects_batch(
    rejected: list[Rejected],
    now: float,
    schema: pa.Schema = SCHEMA,
    package: str | None = None,
    stream: str | None = None,
    batch: int | None = None,
) -> pa.RecordBatch:
    """Rows for a table of rejects that has this schema, perhaps an older one."""
    n = len(rejected)
    columns = [
        pa.array([int(now * 1e6)] * n, pa.int64()).cast(SCHEMA.field("rejected_at").type),
        pa.array([r.position for r in rejected], pa.int64()),
        pa.array([r.column for r in rejected], pa.string()),
        pa.array([r.reason for r in rejected], pa.string()),
        pa.array([r.row for r in rejected], pa.string()),
        pa.array([package] * n, pa.string()),
        pa.array([stream] * n, pa.string()),
        pa.array([batch] * n, pa.int64()),
        pa.array([r.origin for r in rejected], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA).select(schema.names)
