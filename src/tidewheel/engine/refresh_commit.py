"""The commit of a refresh, on the owner's side: what was computed takes the place of what was there, if the plan still holds.

  1. compare    is the plan still about what is there, and which of its partitions have other rows now?
  2. exchange   one transaction, one swap (`write/refreshes.py`)
Where only rows of some keys are exchanged in large chunks, only these are read and compared, and all others are copied as they stand
(`write/patches.py`). Where rows are only added to a large partition, they are written beside its chunks (`write/layers.py`). Else the rows
beside the new ones, in the chunks that are written anew, are read and arranged with them.
If no partition has other rows, only the vector moves, and nothing that depends on the table is stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.derive.compare import differing, inside, times_of
from tidewheel.derive.lineage import Interval, less
from tidewheel.env.deadline import holding
from tidewheel.errors import BadRowsError, ConflictError, InputError
from tidewheel.index.version import Version
from tidewheel.model.derived import APPEND, Label, RefreshOutcome, RefreshPlan, RefreshRecord
from tidewheel.model.partitions import joined
from tidewheel.model.query import Query
from tidewheel.model.schema import ColumnKey
from tidewheel.model.touched_keys import MOST_KEYS, packed
from tidewheel.read.local_result import LocalResult
from tidewheel.write.layers import layers_of
from tidewheel.write.patches import MOST_PIECES, Patch, Spot, spots_of
from tidewheel.write.pending import Refresh
from tidewheel.write.publish import Reservation
from tidewheel.write.refreshes import CHUNK_BYTES, bytes_within, confirm, exchange, patch, spans_of

if TYPE_CHECKING:
    from tidewheel.engine.local_derived import LocalDerived
    from tidewheel.engine.local_table import LocalTable
    from tidewheel.engine.operations import CommitRefresh


def commit_refresh(table: LocalTable, derived: LocalDerived, asked: CommitRefresh, rows: Any) -> RefreshOutcome:
    """May be called from any thread. Refreshes are committed one at a time, whatever tables they are of."""
    plan = asked.plan
    accepted = table.acceptor.accept(rows, "error")
    new = pa.Table.from_batches(accepted.batches, table.spec.stored)
    _check_inside(table, new, plan)
    with holding(table.engine.refreshing, "another refresh is being committed, or a backup begins; nothing was changed"):
        known = derived.contents.refreshes
        if (done := next((one for one in known if one.job == plan.job), None)) is not None:
            return RefreshOutcome(done.refresh, table.version().generation, done.computed, done.changed, done.rows_written)
        _check_plan(table, derived, plan)
        return _Commit(table, derived, asked, new, known[-1].refresh + 1 if known else 1).run()


MOST_ROWS = 200_000
"""Rows that are looked through for the keys that a refresh changes."""

PATCHED_BYTES = CHUNK_BYTES // 2
"""Of chunks that have rows of the partitions: with fewer, all rows are written anew, and small chunks joined."""


class _Commit:
    """One commit, with the lock of refreshes held."""

    def __init__(self, table: LocalTable, derived: LocalDerived, asked: CommitRefresh, new: pa.Table, number: int) -> None:
        self._table = table
        self._derived = derived
        self._asked = asked
        self._new = new
        self._number = number
        self._time = table.spec.time.column
        self._version = table.version()

    def run(self) -> RefreshOutcome:
        table, publisher, plan = self._table, self._table.publisher, self._asked.plan
        # 1. which partitions have other rows now
        times = [self._derived.division.interval(start) for start, _ in plan.partitions]
        adds, spots = plan.mode.name == APPEND, self._spots()
        old = self._read(() if adds else plan.intervals) if spots is None else None
        gone = self._leaving(old) if old is not None else self._rows_of(spots or ())
        others = differing(gone, self._new, self._time, times)
        changed = [interval for interval, is_other in zip(times, others, strict=True) if is_other]
        if not changed:
            confirm(publisher, table.engine.flusher, Refresh(self._record(0, 0), (), self._derived.done))
            return RefreshOutcome(self._number, publisher.version.generation, len(times), 0, 0)
        within = joined(changed)
        fresh = _within(self._new, self._time, within)
        # 2. one transaction, one swap
        with publisher.reserve() as reserved:
            labels = self._labels(changed, gone, reserved.generation)
            record = self._record(fresh.num_rows, len(changed), reserved.generation, self._keys(gone, within))
            refresh = Refresh(record, labels, self._derived.done)
            patches = self._patches(spots, fresh, within) if spots is not None else None
            if adds:
                self._add(fresh, changed, reserved, refresh)
            elif patches is None or not patch(publisher, table.engine.flusher, patches, reserved, refresh):
                self._exchange(self._read(plan.intervals) if old is None else old, fresh, within, reserved, refresh)
        return RefreshOutcome(self._number, reserved.generation, len(times), len(changed), fresh.num_rows)

    def _exchange(self, old: pa.Table, fresh: pa.Table, within: tuple[Interval, ...], reserved: Reservation, refresh: Refresh) -> None:
        """All rows of the chunks that are met are written anew, those beside the new ones included."""
        spans = spans_of(self._version.chunks, within, self._new.nbytes, self._table.spec.partitions)
        stays = [self._read(less(spans, within)), _within(self._staying(old), self._time, within)]
        rows = pa.concat_tables([*stays, fresh])
        exchange(self._table.publisher, self._table.engine.flusher, rows, spans, reserved, refresh)

    def _add(self, fresh: pa.Table, changed: Sequence[Interval], reserved: Reservation, refresh: Refresh) -> None:
        """No row leaves. Large partitions get a layer; the chunks of others are written anew, as ever."""
        chunks, divided = self._version.chunks, self._table.spec.partitions
        numbers, counts = np.unique(divided.numbers(times_of(fresh, self._time)), return_counts=True)
        each = fresh.nbytes / fresh.num_rows
        layers = layers_of(chunks, divided, dict(zip(numbers.tolist(), (counts * each).astype(np.int64).tolist(), strict=True)))
        large = [one for one in changed if divided.number(one[0]) in layers.partitions]
        others = joined(one for one in changed if divided.number(one[0]) not in layers.partitions)
        spans = spans_of(chunks, others, fresh.nbytes, divided) if others else ()
        rows = pa.concat_tables([self._read(spans), self._read_chunks(layers.merged), fresh])
        leaving = frozenset(chunks.holders[n].record.id for n in layers.merged)
        exchange(self._table.publisher, self._table.engine.flusher, rows, spans, reserved, refresh, large, leaving)

    # ---- rows that leave, and rows that stay ------------------------------------------------------------

    def _leaving(self, old: pa.Table) -> pa.Table:
        """The rows of the partitions that new ones take the place of."""
        return old if self._asked.keys is None else old.filter(self._of_keys(old))

    def _staying(self, old: pa.Table) -> pa.Table:
        """All others of the partitions."""
        return old.slice(0, 0) if self._asked.keys is None else old.filter(pc.invert(self._of_keys(old)))

    def _of_keys(self, old: pa.Table) -> pa.ChunkedArray:
        (column,) = self._table.spec.key.columns
        return pc.is_in(old.column(column), value_set=self._asked_keys())

    def _asked_keys(self) -> pa.Array:
        (column,) = self._table.spec.key.columns
        return pa.array(list(self._asked.keys or ()), self._table.spec.schema.field(column).type)

    # ---- patches: few rows among many that stay ---------------------------------------------------------

    def _spots(self) -> list[Spot] | None:
        """The rows of the keys that are exchanged, where they are; None: the partitions are read as a whole."""
        asked, intervals = self._asked, self._asked.plan.intervals
        if asked.keys is None or asked.plan.mode.name == APPEND or not intervals:
            return None
        if self._new.num_rows > MOST_PIECES * self._version.chunks.count or bytes_within(self._version.chunks, intervals) < PATCHED_BYTES:
            return None
        found = spots_of(self._version, self._table.spec, self._table.publisher.shape, self._asked_keys(), intervals)
        return found and [one.only(inside(one.times, intervals)) for one in found]

    def _rows_of(self, spots: Sequence[Spot]) -> pa.Table:
        return pa.Table.from_batches([one.rows() for one in spots], self._table.spec.stored)

    def _patches(self, spots: Sequence[Spot], fresh: pa.Table, within: Sequence[Interval]) -> list[Patch] | None:
        """The chunks whose rows change, each with the new ones; None if one of them should be divided, or joined with another."""
        of = np.searchsorted([one.first for one in spots], times_of(fresh, self._time), side="right") - 1
        found = []
        for n, one in enumerate(spots):
            new = fresh.filter(pa.array(of == n)).combine_chunks()
            leaving = one.only(inside(one.times, within))
            if new.num_rows or len(leaving.positions):
                if one.chunk.record.bytes + new.nbytes > 2 * CHUNK_BYTES and len(one.chunk.record.partitions) > 1:
                    return None
                found.append(Patch(leaving, (new.to_batches() or [pa.RecordBatch.from_pylist([], new.schema)])[0]))
        return found

    def _read(self, intervals: Sequence[Interval]) -> pa.Table:
        version: Version = self._version
        found = [LocalResult(self._table.planner, version, Query(time=interval, hidden=True)).to_arrow() for interval in intervals]
        return pa.concat_tables(found) if found else self._table.spec.stored.empty_table()

    def _read_chunks(self, numbers: Sequence[int]) -> pa.Table:
        """What is seen of the rows of some chunks."""
        if not numbers:
            return self._table.spec.stored.empty_table()
        some = self._version.of_chunks(self._version.chunks.only(numbers), trees=False)
        return LocalResult(self._table.planner, some, Query(hidden=True)).to_arrow()

    def _labels(self, changed: Sequence[Interval], gone: pa.Table, generation: int) -> tuple[Label, ...]:
        """Partitions that had such rows have lost some; the others only gained."""
        times = np.sort(times_of(gone, self._time))
        first, last = (np.array(ends, np.int64) for ends in zip(*changed, strict=True))
        lost = np.searchsorted(times, first) < np.searchsorted(times, last, side="right")
        return tuple(Label(start, generation, generation if had else 0) for (start, _), had in zip(changed, lost.tolist(), strict=True))

    def _keys(self, gone: pa.Table, within: Sequence[Interval]) -> bytes | None:
        """The keys whose rows change, if they are few: what is derived from this table may need only these."""
        key = self._table.spec.key
        if not isinstance(key, ColumnKey) or gone.num_rows + self._new.num_rows > MOST_ROWS:
            return None
        sides = [_within(side, self._time, within).column(key.column) for side in (gone, self._new)]
        keys = pa.chunked_array([chunk for side in sides for chunk in side.chunks], sides[0].type).unique()
        return packed(keys) if len(keys) <= MOST_KEYS else None

    def _record(self, written: int, changed: int, generation: int = 0, keys: bytes | None = None) -> RefreshRecord:
        asked, plan = self._asked, self._asked.plan
        of = self._derived.contents.dependencies
        vector = tuple((one.source_id, read.upto) for one, read in zip(of, plan.sources, strict=True))
        return RefreshRecord(
            self._number, plan.job, plan.mode.name, vector, plan.partitions, self._derived.verified_after(plan), asked.began,
            self._table.engine.clock.now(), asked.rows_read, written, len(plan.partitions), changed,
            generation or self._version.generation, keys,
        )  # fmt: skip


def _check_inside(table: LocalTable, rows: pa.Table, plan: RefreshPlan) -> None:
    """A refresher clips its rows; one that does not would change partitions that nobody computed."""
    times = times_of(rows, table.spec.time.column)
    if not (fits := inside(times, plan.intervals)).all():
        axis = table.spec.time
        row = int((~fits).argmax())
        raise BadRowsError(
            f"refresh: row {row} of table {table.spec.name!r} has {axis.column} = {axis.show(int(times[row]))}, which is in no partition "
            "of the plan; nothing was changed",
            table=table.spec.name, column=axis.column, rows=(row,),
        )  # fmt: skip


def _check_plan(table: LocalTable, derived: LocalDerived, plan: RefreshPlan) -> None:
    """Whether the plan still speaks of what is there. The catalog compares once more, in the transaction."""
    if plan.table != table.spec.name or tuple(one.table for one in plan.sources) != derived.sources:
        raise InputError(f"this plan is not one of table {table.spec.name!r}; nothing was changed")
    refreshed = derived.refreshed
    vector = [one.upto for one in plan.sources]
    for start, number in plan.partitions:
        at = refreshed.place(start)
        if refreshed.number(start) != number or at >= 0 and (refreshed.vectors[at] > vector).any():
            raise ConflictError(
                f"partitions of table {table.spec.name!r} were refreshed by another refresher meanwhile; nothing was changed, and what is "
                "still stale can be refreshed again"
            )
    for one in plan.sources:
        version = table.engine.table(one.table).version()
        if one.upto > version.settled:
            raise InputError(f"source {one.table!r} has only reached generation {version.settled}, not {one.upto}; nothing was changed")
        if one.after is not None and one.upto < version.horizon:
            raise ConflictError(f"rows of {one.table!r} were replaced while new ones were read; nothing was changed. Refresh again")


def _within(rows: pa.Table, time: str, intervals: Sequence[Interval]) -> pa.Table:
    mask = inside(times_of(rows, time), intervals)
    return rows if mask.all() else rows.filter(pa.array(mask))
