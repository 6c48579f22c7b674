"""Rows of the catalog about derived tables: labels of partitions, sources, refreshes. Inside of somebody's transaction.

A refresh commits with a comparison: for each of its partitions, the refresh that made what is there must be the one that its plan saw.
So of two refreshers that computed the same partition, one is told that the other was faster, and nothing of it is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import Connection, bindparam, case, delete, exists, insert, select, update
from sqlalchemy.dialects import sqlite

from tidewheel.catalog.record_rows import time_of
from tidewheel.catalog.selects import sound
from tidewheel.catalog.tables import dependencies, partitions, refreshed, refreshes, tables
from tidewheel.catalog.whole_reads import REFRESHES_KEPT
from tidewheel.errors import ConflictError
from tidewheel.model import record_checks as check
from tidewheel.model.derived import Dependency, Label, RefreshRecord
from tidewheel.model.records import Commit

T = TypeVar("T")

_AT_ONCE = 500
"""Partitions that are looked for by one statement."""


# ---- labels -------------------------------------------------------------------------------------------------


def write_labels(conn: Connection, commits: Sequence[Commit]) -> None:
    """Raise the labels of all partitions that rows came to, or left."""
    rows = [
        {"table_id": c.table_id, "partition": one.partition, "changed": one.changed, "undone": one.undone, "changed_at": c.at}
        for c in commits
        for one in c.labels
    ]
    if rows:
        conn.execute(_raise_labels(conn.dialect.name), rows)
    p = partitions.c
    for commit in commits:
        for first, last in commit.undone:
            mine = (p.table_id == commit.table_id) & p.partition.between(first, last)
            values = {"changed": commit.generation, "undone": commit.generation, "changed_at": commit.at}
            conn.execute(update(partitions).where(mine).values(values))


@cache
def _raise_labels(dialect: str) -> Any:
    """Made once: it takes longer than to execute it."""
    new: Any
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql  # 80 ms, for whoever has such a catalog

        new = postgresql.insert(partitions)
    else:
        new = sqlite.insert(partitions)
    changed, undone = ((case((new.excluded[n] > partitions.c[n], new.excluded[n]), else_=partitions.c[n])) for n in ("changed", "undone"))
    return new.on_conflict_do_update(
        index_elements=["table_id", "partition"], set_={"changed": changed, "undone": undone, "changed_at": new.excluded.changed_at}
    )


def labels_of(conn: Connection, table_id: int) -> list[tuple[Label, float]]:
    """The labels of a table, and when each was raised last, in rising order of the partition."""
    p = partitions.c
    query = select(p.partition, p.changed, p.undone, p.changed_at).where(p.table_id == table_id).order_by(p.partition)
    with sound(conn, "partitions", table_id):
        return [(_label(*row[:3]), time_of("changed_at", row[3])) for row in conn.execute(query)]


def _label(partition: Any, changed: Any, undone: Any) -> Label:
    found = Label(check.whole("partition", partition), check.generation("changed", changed), check.generation("undone", undone))
    check.rising("undone", "changed", found.undone, found.changed)
    return found


# ---- derived tables -----------------------------------------------------------------------------------------


def add_dependencies(conn: Connection, table_id: int, sources: Sequence[Dependency]) -> None:
    rows = [
        {"table_id": table_id, "position": i, "source_id": one.source_id, "bounds": one.bounds, "verified": one.verified}
        for i, one in enumerate(sources)
    ]
    conn.execute(insert(dependencies), rows)


def dependents_of(conn: Connection, table_id: int) -> list[str]:
    """The names of the tables that are derived from this one, directly."""
    query = select(tables.c.name).join(dependencies, dependencies.c.table_id == tables.c.id).where(dependencies.c.source_id == table_id)
    return sorted(conn.execute(query.distinct()).scalars())


def write_refresh(conn: Connection, table_id: int, new: RefreshRecord) -> None:
    """Record a refresh, if no other one was faster: else ConflictError, and nothing was changed."""
    before = _made_by(conn, table_id, [partition for partition, _ in new.partitions])
    if lost := [partition for partition, number in new.partitions if before.get(partition, 0) != number]:
        raise ConflictError(
            f"{len(lost)} of {len(new.partitions)} partitions were refreshed by another refresher meanwhile; nothing was changed, and what "
            "is still stale can be refreshed again"
        )
    row = {
        "table_id": table_id, "refresh": new.refresh, "job": new.job, "mode": new.mode, "vector": json.dumps(dict(new.vector)),
        "began": new.began, "ended": new.ended, "rows_read": new.rows_read, "rows_written": new.rows_written,
        "computed": new.computed, "changed": new.changed, "generation": new.generation, "keys": new.keys,
    }  # fmt: skip
    conn.execute(insert(refreshes), row)
    mine = (refreshed.c.table_id == table_id) & (refreshed.c.partition == bindparam("p"))
    if old := [{"p": partition} for partition in before]:
        conn.execute(update(refreshed).where(mine).values(refresh=new.refresh), old)
    if first := [partition for partition, _ in new.partitions if partition not in before]:
        conn.execute(insert(refreshed), [{"table_id": table_id, "partition": p, "refresh": new.refresh} for p in first])
    for source_id, generation in new.verified:
        of = (dependencies.c.table_id == table_id) & (dependencies.c.source_id == source_id)
        conn.execute(update(dependencies).where(of, dependencies.c.verified < generation).values(verified=generation))
    _forget(conn, table_id, {*before.values(), new.refresh - REFRESHES_KEPT}, new.refresh - REFRESHES_KEPT)


def _made_by(conn: Connection, table_id: int, starts: Sequence[int]) -> Mapping[int, int]:
    found: dict[int, int] = {}
    for some in _portions(starts):
        query = select(refreshed.c.partition, refreshed.c.refresh).where(refreshed.c.table_id == table_id, refreshed.c.partition.in_(some))
        found |= {partition: number for partition, number in conn.execute(query)}
    return found


def _forget(conn: Connection, table_id: int, numbers: set[int], upto: int) -> None:
    """Delete old refreshes of which no partition is left. Only those can be concerned that this commit took partitions from."""
    old = sorted(number for number in numbers if 0 < number <= upto)
    used = exists().where(refreshed.c.table_id == refreshes.c.table_id, refreshed.c.refresh == refreshes.c.refresh)
    for some in _portions(old):
        conn.execute(delete(refreshes).where(refreshes.c.table_id == table_id, refreshes.c.refresh.in_(some), ~used))


def _portions(all_: Sequence[T]) -> Iterator[Sequence[T]]:
    return (all_[start : start + _AT_ONCE] for start in range(0, len(all_), _AT_ONCE))
