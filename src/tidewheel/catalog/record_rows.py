"""Records to rows of the catalog and back. No I/O.

SQLite keeps any value in any column, and a disk may change it: what is read is checked, and a value that cannot be raises WrongValueError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields as members
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from tidewheel.errors import SchemaError
from tidewheel.model import record_checks as check
from tidewheel.model.derived import Definition
from tidewheel.model.record_checks import WrongValueError
from tidewheel.model.records import (
    BASE,
    DERIVED,
    ChunkRecord,
    Coverage,
    Lease,
    MaskRecord,
    PackageRecord,
    ServerRecord,
    StreamBatchRecord,
    TableRecord,
)
from tidewheel.model.schema import NAME, TableSpec, check_spec, spec_from_layout

T = TypeVar("T")

LAST_EPOCH = (1 << 32) - 1
"""Names of log segments have eight digits for it."""

_NAME = re.compile(rf"{NAME.pattern}(\$[a-z]+)?", re.ASCII)
"""A table's, or that of a table beside it, such as its rejects."""

CHUNK_COLUMNS = tuple(f.name for f in members(ChunkRecord) if f.name not in ("partitions", "latest"))


def table_row(spec: TableSpec, definition: Definition | None) -> dict[str, Any]:
    return {
        "name": spec.name,
        "kind": BASE if definition is None else DERIVED,
        "definition": None if definition is None else definition.to_json(),
        "generation": 0,
        "horizon": 0,
        "arrow_schema": spec.stored.serialize().to_pybytes(),
        "layout": spec.layout_json(),
        "partition": spec.partition,
    }


def field_rows(table_id: int, spec: TableSpec) -> list[dict[str, Any]]:
    return [
        {"table_id": table_id, "field_id": id_, "position": i, "name": field.name, "type": str(field.type), "added_generation": 0}
        for i, (id_, field) in enumerate(zip(spec.field_ids, spec.stored, strict=True))
    ]


def table_record(row: Any, field_ids: Iterable[int]) -> TableRecord:
    """A table, whose definition is one that could have been made."""
    name = check.text("name", row.name)
    if _NAME.fullmatch(name) is None:
        raise WrongValueError("name", name, "the name of a table")
    if check.text("kind", row.kind) not in (BASE, DERIVED):
        raise WrongValueError("kind", row.kind, f"{BASE!r} or {DERIVED!r}, which are all that this Tidewheel knows")
    definition = _definition(row) if row.kind == DERIVED else None
    number, generation = check.whole("id", row.id, 1), check.generation("generation", row.generation)
    packed, layout, partition = check.raw("arrow_schema", row.arrow_schema), check.text("layout", row.layout), row.partition
    ids = tuple(check.whole("field_id", one, 1) for one in field_ids)
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(packed))
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as e:
        raise WrongValueError("arrow_schema", packed, f"an Arrow schema ({e})") from e
    try:
        spec = spec_from_layout(name, schema, layout, check.text("partition", partition), ids)
        check_spec(spec)
    except SchemaError as e:
        raise WrongValueError("layout", layout, f"possible ({e})") from e
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as e:
        raise WrongValueError("layout", layout, f"the layout of a table ({e!r})") from e
    return TableRecord(number, spec, row.kind, generation, check.generation("horizon", row.horizon), definition)


def _definition(row: Any) -> Definition:
    try:
        return Definition.from_json(check.text("definition", row.definition))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise WrongValueError("definition", row.definition, f"the definition of a derived table ({e})") from e


def chunk_row(chunk: ChunkRecord) -> dict[str, Any]:
    return {name: getattr(chunk, name) for name in CHUNK_COLUMNS}


def partition_rows(chunk: ChunkRecord) -> list[dict[str, Any]]:
    return [{"table_id": chunk.table_id, "chunk_id": chunk.id, "partition": p, "rows": rows} for p, rows in chunk.partitions]


def frame_as_stored(value: Any) -> Any:
    """The checksum that a column stands for: it is stored minus 2^63, because databases have only signed numbers. All else is damage."""
    return value + (1 << 63) if type(value) is int else value


def chunk_records(rows: Iterable[Any], partitions: Iterable[Any], frame: Callable[[Any], Any] = lambda value: value) -> list[ChunkRecord]:
    """Chunks in order of generation_hi and id, each with its partitions in ascending order, each checked.

    `frame` makes the checksum of what its column has. Sorted here and not by the database, whose collation may order ids by another rule.
    """
    of_chunk: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for p in partitions:
        pair = check.whole("partition", p.partition), check.whole("rows", p.rows, 0)
        of_chunk.setdefault((p.table_id, p.chunk_id), []).append(pair)
    records = []
    for row in rows:
        parts = tuple(sorted(of_chunk.get((row.table_id, row.id), ())))
        values = {name: getattr(row, name) for name in CHUNK_COLUMNS}
        values["frame"] = frame(values["frame"])
        record = ChunkRecord(**values, partitions=parts)
        try:
            check.check_chunk(record)
            if row.generation_removed is not None:
                check.generation("generation_removed", row.generation_removed)
        except WrongValueError as e:
            e.table_id = row.table_id
            raise
        records.append(record if type(record.late) is bool else replace(record, late=bool(record.late)))
    return sorted(records, key=lambda c: (c.generation_hi, c.id))


def coverage_record(row: Any) -> Coverage:
    lo, hi = check.generation("generation_lo", row.generation_lo), check.generation("generation_hi", row.generation_hi)
    return Coverage(check.whole("server", row.server, 0, check.MOST_SERVERS - 1), check.flag("late", row.late), lo, hi)


def mask_record(row: Any) -> MaskRecord:
    lo, hi = check.whole("time_lo", row.time_lo), check.whole("time_hi", row.time_hi)
    check.rising("time_lo", "time_hi", lo, hi)
    return MaskRecord(lo, hi, check.generation("generation", row.generation), check.text("reason", row.reason))


def package_record(row: Any) -> PackageRecord:
    rows, rejected = check.whole("rows", row.rows, 0), check.whole("rejected", row.rejected, 0)
    return PackageRecord(check.text("name", row.name), check.generation("generation", row.generation), rows, rejected)


def batch_record(row: Any) -> StreamBatchRecord:
    batch, generation = check.whole("batch", row.batch), check.generation("generation", row.generation)
    return StreamBatchRecord(check.text("stream", row.stream), batch, generation, check.whole("rows", row.rows, 0))


def server_record(row: Any) -> ServerRecord:
    number = check.whole("server", row.server, 0, check.MOST_SERVERS - 1)
    return ServerRecord(number, check.whole("key_lo", row.key_lo), check.raw("prefix", row.prefix))


def grouped(make: Callable[[Any], T], rows: Iterable[Any]) -> dict[int, list[T]]:
    """Records made of rows of many tables, by table id."""
    found: dict[int, list[T]] = {}
    for row in rows:
        try:
            found.setdefault(row.table_id, []).append(make(row))
        except WrongValueError as e:
            e.table_id = row.table_id
            raise
    return found


def lease_record(row: Any) -> Lease | None:
    epoch = check.whole("epoch", row.epoch, 0, LAST_EPOCH)
    if row.pid is None:
        return None
    return Lease(epoch, check.whole("pid", row.pid), check.text("host", row.host), time_of("since", row.since))


def time_of(column: str, value: Any) -> float:
    if type(value) not in (int, float):
        raise WrongValueError(column, value, "a time")
    return float(value)
