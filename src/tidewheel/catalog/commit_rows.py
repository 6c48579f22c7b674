"""What a commit changes in the catalog's tables, inside of one transaction: all of it, or by an error nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TypeVar

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from tidewheel.catalog import record_rows
from tidewheel.catalog.derived_rows import write_labels, write_refresh
from tidewheel.catalog.selects import current_lease, sound, stream_batch
from tidewheel.catalog.tables import chunk_partitions, chunks, masks, packages, servers, stream_batches, tables
from tidewheel.errors import ExistsError, FencedError, NotFoundError, StorageError
from tidewheel.model import record_checks as check
from tidewheel.model.records import Commit, PackageRecord

T = TypeVar("T")

_AT_ONCE = 500
"""Names that are looked for by one statement."""

BATCHES_KEPT = 1000
"""Of a stream: the last says all, but a backup may need the one that was the last at its generation."""


def write_commits(conn: Connection, commits: Sequence[Commit]) -> None:
    """All of these, each to a table of its own. Owners whose lease is over are refused first, then tables that are not there."""
    for epoch in {commit.epoch for commit in commits}:
        fence(conn, epoch)
    _grow(conn, commits)
    _add_chunks(conn, commits)
    _replace_servers(conn, commits)
    write_labels(conn, commits)
    for commit in commits:
        _remove_chunks(conn, commit)
        _add_packages(conn, commit)
        _add_batches(conn, commit)
        _change_masks(conn, commit)
        if commit.refresh is not None:
            write_refresh(conn, commit.table_id, commit.refresh)


def fence(conn: Connection, epoch: int) -> None:
    """Refuse an owner whose lease is over; else hold the lease's row, so that none can take it before this transaction ends."""
    last, holder = current_lease(conn, lock=True)
    if last == epoch and holder is not None:
        return
    since = "it was released" if holder is None else f"process {holder.pid} on {holder.host} took it with epoch {last}"
    raise FencedError(f"this owner's lease (epoch {epoch}) is over: {since}. Nothing was changed; open the warehouse again")


# Made once: it takes longer than to execute them.
_MINE = tables.c.id == bindparam("mine")
_SET_GENERATION = update(tables).where(_MINE).values(generation=bindparam("g"))
_RAISE_HORIZON = update(tables).where(_MINE, tables.c.horizon < bindparam("h")).values(horizon=bindparam("h"))


def _grow(conn: Connection, commits: Sequence[Commit]) -> None:
    known: dict[int, int] = {}
    for some in _portions([commit.table_id for commit in commits]):
        known |= {row.id: row.generation for row in conn.execute(select(tables.c.id, tables.c.generation).where(tables.c.id.in_(some)))}
    for commit in commits:
        if commit.table_id not in known:
            raise NotFoundError(f"there is no table with id {commit.table_id}; it was dropped, so nothing can be committed to it")
        with sound(conn, "tables", commit.table_id):
            check.generation("generation", known[commit.table_id])
        if commit.generation < known[commit.table_id]:
            raise StorageError(
                f"generation {commit.generation} is behind generation {known[commit.table_id]} of table {commit.table_id}; nothing was "
                "changed. The owner's picture of the table is out of date: open the warehouse again"
            )
    conn.execute(_SET_GENERATION, [{"mine": one.table_id, "g": one.generation} for one in commits])
    if risen := [{"mine": one.table_id, "h": one.horizon} for one in commits if one.horizon]:
        conn.execute(_RAISE_HORIZON, risen)


def _add_chunks(conn: Connection, commits: Sequence[Commit]) -> None:
    for commit in commits:
        for chunk in commit.add:
            if chunk.table_id != commit.table_id:
                raise StorageError(f"chunk {chunk.id} belongs to table {chunk.table_id}, but the commit is to table {commit.table_id}")
    if added := [chunk for commit in commits for chunk in commit.add]:
        conn.execute(insert(chunks), [record_rows.chunk_row(c) for c in added])
    if parts := [row for c in added for row in record_rows.partition_rows(c)]:
        conn.execute(insert(chunk_partitions), parts)


def _replace_servers(conn: Connection, commits: Sequence[Commit]) -> None:
    if given := [commit for commit in commits if commit.servers]:
        conn.execute(delete(servers).where(servers.c.table_id == bindparam("mine")), [{"mine": one.table_id} for one in given])
        conn.execute(insert(servers), [{"table_id": one.table_id, **asdict(server)} for one in given for server in one.servers])


def _remove_chunks(conn: Connection, commit: Commit) -> None:
    for id_ in commit.remove:
        held = (chunks.c.table_id == commit.table_id) & chunks.c.generation_removed.is_(None)
        done = conn.execute(update(chunks).where(held, chunks.c.id == id_).values(generation_removed=commit.generation))
        if done.rowcount != 1:
            raise StorageError(f"chunk {id_} is to leave table {commit.table_id}, which does not hold it; nothing was changed")
    if commit.forget:
        gone = (chunks.c.table_id == commit.table_id) & chunks.c.generation_removed.is_not(None)
        conn.execute(delete(chunks).where(gone, chunks.c.generation_hi <= commit.forget))


def _change_masks(conn: Connection, commit: Commit) -> None:
    if commit.masks:
        conn.execute(insert(masks), [{"table_id": commit.table_id, **asdict(m)} for m in commit.masks])
    if commit.drop_masks:  # by their values: no two are alike, because each is of a generation that was reserved for it alone
        m = masks.c
        named = [m.table_id == commit.table_id, m.time_lo == bindparam("lo"), m.time_hi == bindparam("hi")]
        named += [m.generation == bindparam("g"), m.reason == bindparam("why")]
        gone = [{"lo": one.time_lo, "hi": one.time_hi, "g": one.generation, "why": one.reason} for one in commit.drop_masks]
        conn.execute(delete(masks).where(*named), gone)


def _portions(all_: Sequence[T]) -> Iterator[Sequence[T]]:
    """So many at once as one statement takes."""
    return (all_[start : start + _AT_ONCE] for start in range(0, len(all_), _AT_ONCE))


def _add_packages(conn: Connection, commit: Commit) -> None:
    for new in _portions(commit.packages):
        names = [one.name for one in new]
        query = select(packages.c.name, packages.c.generation, packages.c.rows, packages.c.rejected)
        old = conn.execute(query.where(packages.c.table_id == commit.table_id, packages.c.name.in_(names)))
        there = {row.name: PackageRecord(*row) for row in old}
        for one in new:
            if known := there.get(one.name):
                before = f"with generation {known.generation} and {known.rows} rows"
                raise ExistsError(f"package {one.name!r} was loaded before, {before}; skip it")
            there[one.name] = one  # a name twice in one commit is found as well
        conn.execute(insert(packages), [{"table_id": commit.table_id, **asdict(one)} for one in new])


def _add_batches(conn: Connection, commit: Commit) -> None:
    for new in commit.batches:
        if old := stream_batch(conn, commit.table_id, new.stream, new.batch):
            raise ExistsError(f"batch {new.batch} of stream {new.stream!r} was published before, with generation {old.generation}; skip it")
        conn.execute(insert(stream_batches).values(table_id=commit.table_id, **asdict(new)))
    b = stream_batches.c
    for stream in {new.stream for new in commit.batches}:
        mine = (b.table_id == commit.table_id) & (b.stream == stream)
        last = conn.execute(select(func.max(b.batch)).where(mine)).scalar_one()
        conn.execute(delete(stream_batches).where(mine, b.batch <= last - BATCHES_KEPT))
