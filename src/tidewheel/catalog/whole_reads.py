"""What every opening of a warehouse reads of its catalog, in plain SQL: all tables with what they are made of, and the lease.

Whoever has a transaction passes `ask`, which answers a statement by its rows, whose columns have names. So this serves SQLAlchemy and the
bare driver alike, and needs neither. What cannot have been written is damage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tidewheel.catalog import record_rows
from tidewheel.errors import CorruptionError
from tidewheel.model import record_checks as check
from tidewheel.model.derived import MODES, Dependency, DerivedContents, RefreshedPartition, RefreshRecord
from tidewheel.model.record_checks import WrongValueError
from tidewheel.model.records import Lease, TableContents, TableRecord

Ask = Callable[[str], Iterable[Any]]

T = TypeVar("T")

VERSION = 3
"""Of the catalogs that these statements are for, the newest that `migrations` knows."""

REFRESHES_KEPT = 100
"""Of a table: older ones are forgotten, unless they made a partition that is still there."""

RESTORE = "Nothing was changed; restore the warehouse from a backup (tidewheel restore), or put the value back"

_TABLES = "SELECT id, name, kind, generation, arrow_schema, layout, partition, horizon, definition FROM tables ORDER BY id"
_FIELDS = "SELECT table_id, field_id FROM fields WHERE dropped_generation IS NULL ORDER BY table_id, position"
_CHUNKS = f"SELECT {', '.join(record_rows.CHUNK_COLUMNS)}, generation_removed FROM chunks WHERE generation_removed IS NULL"
_CHUNK_PARTITIONS = """
    SELECT p.table_id, p.chunk_id, p.partition, p.rows FROM chunk_partitions p
    JOIN chunks c ON c.table_id = p.table_id AND c.id = p.chunk_id WHERE c.generation_removed IS NULL"""
_COVERAGE = "SELECT table_id, server, late, generation_lo, generation_hi FROM chunks"
_MASKS = "SELECT table_id, time_lo, time_hi, generation, reason FROM masks ORDER BY id"
_SERVERS = "SELECT table_id, server, key_lo, prefix FROM servers ORDER BY table_id, server"
_LEASES = "SELECT epoch, pid, host, since FROM leases"
_DEPENDENCIES = """
    SELECT d.table_id, d.source_id, t.name, d.bounds, d.verified FROM dependencies d
    JOIN tables t ON t.id = d.source_id ORDER BY d.table_id, d.position"""
_REFRESHES = """
    SELECT table_id, refresh, job, mode, vector, began, ended, rows_read, rows_written, computed, changed, generation, keys
    FROM refreshes ORDER BY refresh"""
_REFRESHED = "SELECT table_id, partition, refresh FROM refreshed ORDER BY table_id, partition"


@contextmanager
def sound(ask: Ask, part: str, table_id: int | None = None) -> Iterator[None]:
    """What is read of this part of the catalog, of this table, is what was written. Where it cannot be, the error says so."""
    try:
        yield
    except WrongValueError as e:
        table_id = table_id if e.table_id is None else e.table_id
        name = None if table_id is None else next((row.name for row in ask("SELECT id, name FROM tables") if row.id == table_id), None)
        of = "" if table_id is None else f" of table {name if name is not None else table_id!r}"
        raise CorruptionError(f"the catalog is damaged: in {part}{of}, {e}. {RESTORE}") from e


def contents(ask: Ask) -> list[TableContents]:
    """Every table and what it is made of, in the order of creation."""
    known = table_records(ask, list(ask(_TABLES)), ask(_FIELDS))
    found = list(ask(_CHUNKS))
    with sound(ask, "chunks", found[0].table_id if found else None):
        records = record_rows.chunk_records(found, ask(_CHUNK_PARTITIONS), record_rows.frame_as_stored)
    held = record_rows.grouped(lambda record: record, records)
    with sound(ask, "chunks"):
        covered = record_rows.grouped(record_rows.coverage_record, ask(_COVERAGE))
    with sound(ask, "masks"):
        hidden = record_rows.grouped(record_rows.mask_record, ask(_MASKS))
    with sound(ask, "servers"):
        divided = record_rows.grouped(record_rows.server_record, ask(_SERVERS))
    derived = _derived_contents(ask)

    def of(part: dict[int, list[T]], table: TableRecord) -> tuple[T, ...]:
        return tuple(part.get(table.id, ()))

    return [TableContents(one, of(held, one), of(covered, one), of(hidden, one), of(divided, one), derived.get(one.id)) for one in known]


def table_records(ask: Ask, found: Sequence[Any], fields: Iterable[Any]) -> list[TableRecord]:
    """Of rows of `tables`, and (table id, field id) of their columns in order."""
    ids: dict[int, list[int]] = {row.id: [] for row in found}
    for table_id, field_id in fields:
        ids.setdefault(table_id, []).append(field_id)
    records = []
    for row in found:
        with sound(ask, "tables", row.id):
            records.append(record_rows.table_record(row, ids[row.id]))
    return records


def lease(ask: Ask) -> tuple[int, Lease | None]:
    """The last epoch that was given, and who holds it, if anybody does."""
    found = list(ask(_LEASES))
    if len(found) != 1:
        raise CorruptionError(f"the catalog is damaged: it has {len(found)} leases, not one. {RESTORE}")
    with sound(ask, "leases"):
        return found[0].epoch, record_rows.lease_record(found[0])


# ---- derived tables -----------------------------------------------------------------------------------------


def _derived_contents(ask: Ask) -> dict[int, DerivedContents]:
    """What all derived tables are made of, by table id."""
    sources: dict[int, list[Dependency]] = {}
    with sound(ask, "dependencies"):
        for table_id, source_id, name, bounds, verified in ask(_DEPENDENCIES):
            one = Dependency(source_id, name, check.text("bounds", bounds), check.generation("verified", verified))
            sources.setdefault(table_id, []).append(one)
    if not sources:
        return {}
    done: dict[int, dict[int, RefreshRecord]] = {}
    with sound(ask, "refreshes"):
        for row in ask(_REFRESHES):
            done.setdefault(row.table_id, {})[row.refresh] = _refresh_record(row)
    vectors: dict[tuple[int, int], tuple[int, ...]] = {}
    made: dict[int, list[RefreshedPartition]] = {}
    with sound(ask, "refreshed"):
        for table_id, partition, number in ask(_REFRESHED):
            if (table_id, number) not in vectors:
                vectors[table_id, number] = _vector(done.get(table_id, {}).get(number), sources.get(table_id, []), number)
            one_made = RefreshedPartition(check.whole("partition", partition), number, vectors[table_id, number])
            made.setdefault(table_id, []).append(one_made)
    return {
        table_id: DerivedContents(tuple(of), tuple(made.get(table_id, ())), tuple(done.get(table_id, {}).values())[-REFRESHES_KEPT:])
        for table_id, of in sources.items()
    }


def _vector(made_by: RefreshRecord | None, sources: Sequence[Dependency], number: Any) -> tuple[int, ...]:
    if made_by is None:
        raise WrongValueError("refresh", number, "one of the refreshes that are known")
    generations = dict(made_by.vector)
    if generations.keys() != {one.source_id for one in sources}:
        raise WrongValueError("vector", made_by.vector, "one generation for each source")
    return tuple(generations[one.source_id] for one in sources)


def _refresh_record(row: Any) -> RefreshRecord:
    if row.mode not in MODES:
        raise WrongValueError("mode", row.mode, f"one of {', '.join(MODES)}")
    try:
        vector = {int(source): check.generation("vector", generation) for source, generation in json.loads(row.vector).items()}
    except (ValueError, TypeError, AttributeError) as e:
        raise WrongValueError("vector", row.vector, "generations by source") from e
    read, written, computed, changed = (
        check.whole(name, getattr(row, name), 0) for name in ("rows_read", "rows_written", "computed", "changed")
    )
    began, ended = record_rows.time_of("began", row.began), record_rows.time_of("ended", row.ended)
    keys = None if row.keys is None else check.raw("keys", row.keys)
    return RefreshRecord(
        check.whole("refresh", row.refresh, 1), check.text("job", row.job), row.mode, tuple(vector.items()), (), (), began, ended,
        read, written, computed, changed, check.generation("generation", row.generation), keys,
    )  # fmt: skip
