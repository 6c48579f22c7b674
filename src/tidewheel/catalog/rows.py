"""Records to rows of the catalog and back. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields as members
from typing import Any

import pyarrow as pa

from tidewheel.errors import CorruptionError
from tidewheel.model.records import ChunkRecord, TableRecord
from tidewheel.model.schema import TableSpec, spec_from_layout

_CHUNK_COLUMNS = tuple(f.name for f in members(ChunkRecord) if f.name != "partitions")


def table_row(spec: TableSpec, kind: str) -> dict[str, Any]:
    return {
        "name": spec.name,
        "kind": kind,
        "generation": 0,
        "arrow_schema": spec.schema.serialize().to_pybytes(),
        "layout": spec.layout_json(),
        "partition": spec.partition,
    }


def field_rows(table_id: int, spec: TableSpec) -> list[dict[str, Any]]:
    return [
        {"table_id": table_id, "field_id": id_, "position": i, "name": field.name, "type": str(field.type), "added_generation": 0}
        for i, (id_, field) in enumerate(zip(spec.field_ids, spec.schema, strict=True))
    ]


def table_record(row: Any, field_ids: Iterable[int]) -> TableRecord:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(row.arrow_schema))
    except (pa.ArrowException, OSError) as e:
        raise CorruptionError(f"the catalog's schema of table {row.name!r} cannot be read ({e}); restore the catalog from a backup") from e
    spec = spec_from_layout(row.name, schema, row.layout, row.partition, tuple(field_ids))
    return TableRecord(row.id, spec, row.kind, row.generation)


def chunk_row(chunk: ChunkRecord) -> dict[str, Any]:
    return {name: getattr(chunk, name) for name in _CHUNK_COLUMNS}


def partition_rows(chunk: ChunkRecord) -> list[dict[str, Any]]:
    return [{"table_id": chunk.table_id, "chunk_id": chunk.id, "partition": p, "rows": rows} for p, rows in chunk.partitions]


def chunk_records(rows: Iterable[Any], partitions: Iterable[Any]) -> list[ChunkRecord]:
    """Chunks in order of generation_hi and id, each with its partitions in ascending order.

    Sorted here and not by the database, whose collation may order ids by another rule.
    """
    of_chunk: dict[str, list[tuple[int, int]]] = {}
    for p in partitions:
        of_chunk.setdefault(p.chunk_id, []).append((p.partition, p.rows))
    records = [
        ChunkRecord(**{name: getattr(row, name) for name in _CHUNK_COLUMNS}, partitions=tuple(sorted(of_chunk.get(row.id, ()))))
        for row in rows
    ]
    return sorted(records, key=lambda c: (c.generation_hi, c.id))
