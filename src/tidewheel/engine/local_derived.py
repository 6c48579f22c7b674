"""A derived table on its owner's side: plans of what to compute, and the commit of what was computed.

The owner computes nothing: whoever refreshes (`engine/refresher.py`) takes a plan, reads the sources at the generations that it names, and
brings the rows. A plan is a value, and the owner remembers none: a commit compares what the plan saw with what is there, so it does not
matter which owner made it, how long it took, or who else worked on the same partitions.
"""

from __future__ import annotations

import dataclasses
import random
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.derive.bounds import Bounds
from tidewheel.derive.compare import differing, times_of
from tidewheel.derive.lineage import (
    Division,
    Interval,
    Refreshed,
    SourceView,
    StalePartition,
    contains_all,
    first_set,
    joined,
    needed,
    stale_partitions,
)
from tidewheel.env.deadline import holding
from tidewheel.errors import BadRowsError, ConflictError, InputError
from tidewheel.index.version import Version
from tidewheel.model.derived import (
    APPEND,
    KEYS,
    MERGE,
    RECOMPUTE,
    Dependency,
    DerivedContents,
    DerivedState,
    Label,
    Mode,
    RefreshedPartition,
    RefreshOutcome,
    RefreshPlan,
    RefreshRecord,
    SourceRead,
)
from tidewheel.model.partition_labels import Labels
from tidewheel.model.pieces import GENERATION_HI, TMAX, TMIN
from tidewheel.model.query import Query, pair
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.read.local_result import LocalResult
from tidewheel.write.pending import Refresh
from tidewheel.write.refreshes import CHUNK_BYTES, confirm, exchange

if TYPE_CHECKING:
    from tidewheel.engine.local_table import LocalTable
    from tidewheel.engine.operations import CommitRefresh, PlanRefresh

KEPT_BYTES = 64 << 20
"""Of chunks that have rows beside those of a refresh, and are written anew with it. More are only masked."""

REFRESHES = 100
"""That are remembered."""


def check_bounds(name: str, bounds: Sequence[tuple[str, str]]) -> None:
    """Raises InputError if partitions of a table could not be told from its sources."""
    try:
        known = [Bounds.from_json(text) for _, text in bounds]
    except ValueError as e:
        raise InputError(f"table {name!r}: {e}") from None
    if len({source for source, _ in bounds}) < len(bounds):
        raise InputError(f"table {name!r} names a source twice")
    if all(one.is_open for one in known):
        raise InputError(f"table {name!r} needs a source whose rows reach only some of its times: no source says which partitions it has")


class LocalDerived:
    """The derived side of one table. Every method may be called from any thread."""

    def __init__(self, table: LocalTable, contents: DerivedContents) -> None:
        definition = table.record.definition
        assert definition is not None
        self._table = table
        self.definition = definition
        spec = table.spec
        begin = INT64_MIN if definition.begin is None else spec.partitions.start(spec.partitions.number(definition.begin))
        self._division = Division(spec.partitions, spec.time.unit, max(begin, INT64_MIN))
        self._bounds = [Bounds.from_json(one.bounds) for one in contents.dependencies]
        self._contents = contents
        """Replaced by the commit thread, together with the next."""
        self._refreshed = Refreshed.of(contents.refreshed, len(contents.dependencies))

    @property
    def bounds(self) -> tuple[tuple[str, str], ...]:
        """(source, JSON of its bounds)."""
        return tuple((one.source, one.bounds) for one in self._contents.dependencies)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(one.source for one in self._contents.dependencies)

    # ---- state ------------------------------------------------------------------------------------------

    def state(self) -> DerivedState:
        contents, refreshed = self._contents, self._refreshed
        stale = stale_partitions(self._division, refreshed, self._views(fresh=True), None)
        since = min((one.since for one in stale if one.since), default=None)
        last = contents.refreshes[-1].ended if contents.refreshes else None
        return DerivedState(self.definition, contents.dependencies, len(refreshed), len(stale), since, last, contents.refreshes)

    def _views(self, fresh: bool) -> list[SourceView]:
        """The sources now; with `fresh`, rows that are in no chunk yet count as changes."""
        views = []
        for one, bounds in zip(self._contents.dependencies, self._bounds, strict=True):
            source = self._table.engine.table(one.source)
            division = Division(source.spec.partitions, source.spec.time.unit)
            labels = source.labels()
            if fresh:
                labels = _with_fresh(labels, source.version(), division)
            views.append(SourceView(division, bounds, labels, one.verified))
        return views

    def sample(self, most: int) -> tuple[RefreshedPartition, ...]:
        known = self._refreshed
        at = sorted(random.sample(range(len(known)), max(0, min(most, len(known)))))
        return tuple(RefreshedPartition(int(known.starts[i]), int(known.numbers[i]), tuple(known.vectors[i].tolist())) for i in at)

    # ---- planning ---------------------------------------------------------------------------------------

    def plan(self, asked: PlanRefresh) -> RefreshPlan | None:
        """The next set of partitions to compute, the newest first; None if there is nothing to do."""
        engine, refreshed = self._table.engine, self._refreshed
        cut = dict(asked.cut)
        cut |= engine.cut([name for name in self.sources if name not in cut])
        views = self._views(fresh=False)
        within = self._table.spec.time.interval(*pair(asked.time, "time")) if asked.time is not None else None
        if within is not None and within[0] > within[1]:
            return None
        if asked.full:
            stale = self._all(refreshed, views, within, asked.since)
        else:
            stale = stale_partitions(self._division, refreshed, views, within)
        upto = [cut[name] for name in self.sources]
        stale = [one for one in stale if self._is_due(one, upto, asked.full)]
        if not stale:
            return None
        mode, alike = self._mode(asked, stale)
        versions = [engine.table(name).version() for name in self.sources]
        chosen = self._chosen(asked, mode, alike, views, versions)
        intervals = joined(self._division.interval(one.start) for one in chosen)
        reads = []
        for i, (name, view, version) in enumerate(zip(self.sources, views, versions, strict=True)):
            times = needed(self._division, intervals, view)
            after = chosen[0].standing[i] if mode.name in (APPEND, MERGE, KEYS) else None
            size = _bytes_of(version, times, after)
            reads.append(SourceRead(name, upto[i], times, after, size))
        parts = tuple((one.start, one.refresh) for one in chosen)
        job = f"{self._table.record.id}-{secrets.token_hex(8)}"
        return RefreshPlan(job, self._table.spec.name, mode, parts, intervals, tuple(reads), len(stale) - len(chosen))

    def _is_due(self, one: StalePartition, upto: Sequence[int], full: bool) -> bool:
        """Whether a refresh at these generations brings a partition further. What changed after them stays stale, for the next."""
        at = self._refreshed.place(one.start)
        if at >= 0 and (self._refreshed.vectors[at] > upto).any():
            return False  # another refresh, of a later moment, was here
        return full or any(one.standing[i] < upto[i] for i in one.changed)

    def _all(self, refreshed: Refreshed, views: Sequence[SourceView], within: Interval | None, since: int) -> list[StalePartition]:
        """All partitions, as if none had been computed, but for those that refresh number `since` or a later one did."""
        none = Refreshed.of((), len(views))
        anew = [SourceView(v.division, v.bounds, v.labels, 0) for v in views]
        found = {one.start: one for one in stale_partitions(self._division, none, anew, within)}
        for start in refreshed.starts.tolist():  # perhaps of rows that are gone
            if within is None or (self._division.interval(start)[1] >= within[0] and start <= within[1]):
                found.setdefault(start, StalePartition(start, 0, (-1,) * len(views)))
        for one in found.values():
            one.refresh = refreshed.number(one.start)
        return [found[start] for start in sorted(found) if not since or found[start].refresh < since]

    def _mode(self, asked: PlanRefresh, stale: Sequence[StalePartition]) -> tuple[Mode, list[StalePartition]]:
        """The mode for the newest of them, and those that can be computed by it together."""
        modes = self.definition.modes
        recompute = Mode(RECOMPUTE, "nothing of what is there can be kept")
        recompute = next((one for one in modes if one.name == RECOMPUTE), recompute)
        incremental = [one for one in modes if one.name != RECOMPUTE and asked.mode in ("", one.name)]
        source = self._table.engine.table(self.sources[0]) if len(self.sources) == 1 else None
        newest = stale[-1]
        usable = incremental and self.definition.incremental != "never" and source is not None and source.derived is None
        if not usable or not _can_grow(newest) or asked.full:
            alike = [one for one in stale if not usable or not _can_grow(one) or asked.full]
            return recompute, alike
        return incremental[0], [one for one in stale if _can_grow(one) and one.standing == newest.standing]

    def _chosen(
        self, asked: PlanRefresh, mode: Mode, alike: Sequence[StalePartition], views: Sequence[SourceView], versions: Sequence[Version]
    ) -> list[StalePartition]:
        """As many as one set takes. In an incremental mode it is the new rows that count, and there are few."""
        if mode.name != RECOMPUTE:
            return list(alike)
        sizes = [0] * len(alike)
        total = 0
        for i in range(len(alike) - 1, -1, -1):  # the newest first, and no further than one set goes
            interval = self._division.interval(alike[i].start)
            pairs = zip(views, versions, strict=True)
            sizes[i] = sum(_bytes_of(version, needed(self._division, [interval], view), None) for view, version in pairs)
            total += sizes[i]
            if total > asked.most_bytes:
                break
        return first_set(alike, sizes, asked.most_bytes, self.definition.apart)

    # ---- commit -----------------------------------------------------------------------------------------

    def commit(self, asked: CommitRefresh, rows: Any) -> RefreshOutcome:
        plan = asked.plan
        table, publisher = self._table, self._table.publisher
        accepted = table.acceptor.accept(rows, "error")
        new = pa.Table.from_batches(accepted.batches, table.spec.schema)
        self._check_inside(new, plan)
        with holding(table.engine.refreshing, "another refresh is being committed, or a backup begins; nothing was changed"):
            if (done := next((one for one in self._contents.refreshes if one.job == plan.job), None)) is not None:
                return RefreshOutcome(done.refresh, publisher.version.generation, done.computed, done.changed, done.rows_written)
            self._check_plan(plan)
            version = table.version()
            # 1. which partitions have other rows now
            times = [self._division.interval(start) for start, _ in plan.partitions]
            old = self._read(version, plan.intervals)
            if plan.mode.name == APPEND:
                compared = old.slice(0, 0)
            elif asked.keys is not None:
                compared = old.filter(self._of_keys(old, asked.keys))
            else:
                compared = old
            others = differing(compared, new, table.spec.time.column, times)
            changed = [interval for interval, is_other in zip(times, others, strict=True) if is_other]
            number = (self._contents.refreshes[-1].refresh if self._contents.refreshes else 0) + 1
            if not changed:
                record = self._record(asked, number, 0, 0)
                confirm(publisher, table.engine.flusher, Refresh(record, (), self._done))
                return RefreshOutcome(number, publisher.version.generation, len(times), 0, 0)
            # 2. the rows that take the place of all that the chunks of these partitions have
            inside = joined(changed)
            spans = self._spans(version, inside, new.nbytes)
            if plan.mode.name == APPEND:
                stays = self._read(version, spans)
            else:
                beside = self._read(version, _less(spans, inside))
                kept = old.filter(pc.invert(self._of_keys(old, asked.keys))) if asked.keys is not None else old.slice(0, 0)
                stays = pa.concat_tables([beside, _within(kept, table.spec.time.column, inside)])
            fresh = _within(new, table.spec.time.column, inside)
            # 3. one transaction, one swap
            with publisher.reserve() as reserved:
                had = _within(old, table.spec.time.column, inside) if plan.mode.name != APPEND else old.slice(0, 0)
                labels = self._labels(changed, had, reserved.generation)
                record = self._record(asked, number, fresh.num_rows, len(changed))
                refresh = Refresh(record, labels, self._done)
                exchange(publisher, table.engine.flusher, pa.concat_tables([stays, fresh]), spans, reserved, refresh)
            return RefreshOutcome(number, reserved.generation, len(times), len(changed), fresh.num_rows)

    def _check_inside(self, rows: pa.Table, plan: RefreshPlan) -> None:
        """A refresher clips its rows; one that does not would change what nobody said it computed."""
        times = times_of(rows, self._table.spec.time.column)
        inside = np.zeros(len(times), np.bool_)
        for lo, hi in plan.intervals:
            inside |= (times >= lo) & (times <= hi)
        if not inside.all():
            axis = self._table.spec.time
            row = int((~inside).argmax())
            raise BadRowsError(
                f"refresh: row {row} of table {self._table.spec.name!r} has {axis.column} = {axis.show(int(times[row]))}, which is in no "
                "partition of the plan; nothing was changed",
                table=self._table.spec.name, column=axis.column, rows=(row,),
            )  # fmt: skip

    def _check_plan(self, plan: RefreshPlan) -> None:
        """Whether the plan still speaks of what is there. The catalog compares once more, in the transaction."""
        if plan.table != self._table.spec.name or tuple(one.table for one in plan.sources) != self.sources:
            raise InputError(f"this plan is not one of table {self._table.spec.name!r}; nothing was changed")
        refreshed = self._refreshed
        vector = [one.upto for one in plan.sources]
        for start, number in plan.partitions:
            at = refreshed.place(start)
            if (int(refreshed.numbers[at]) if at >= 0 else 0) != number or at >= 0 and (refreshed.vectors[at] > vector).any():
                raise ConflictError(
                    f"partitions of table {self._table.spec.name!r} were refreshed by another refresher meanwhile; nothing was changed, "
                    "and what is still stale can be refreshed again"
                )
        for one in plan.sources:
            version = self._table.engine.table(one.table).version()
            if one.upto > version.settled:
                raise InputError(f"source {one.table!r} has only reached generation {version.settled}, not {one.upto}; nothing was changed")
            if one.after is not None and one.upto < version.horizon:
                raise ConflictError(
                    f"rows of source {one.table!r} were replaced while new ones were read; nothing was changed. Refresh again"
                )

    def _record(self, asked: CommitRefresh, number: int, written: int, changed: int) -> RefreshRecord:
        plan, contents = asked.plan, self._contents
        vector = tuple((of.source_id, read.upto) for of, read in zip(contents.dependencies, plan.sources, strict=True))
        verified: list[tuple[int, int]] = []
        if not plan.left:
            after = self._refreshed.after((start for start, _ in plan.partitions), number, [read.upto for read in plan.sources])
            for i, (of, view, read) in enumerate(zip(contents.dependencies, self._views(fresh=False), plan.sources, strict=True)):
                if read.upto > of.verified and contains_all(self._division, after, view, i, read.upto):
                    verified.append((of.source_id, read.upto))
        return RefreshRecord(
            number, plan.job, plan.mode.name, vector, plan.partitions, tuple(verified), asked.began, self._table.engine.clock.now(),
            asked.rows_read, written, len(plan.partitions), changed,
        )  # fmt: skip

    def _done(self, record: RefreshRecord) -> None:
        """The catalog has this refresh. Called by the commit thread."""
        vector = [generation for _, generation in record.vector]
        risen = dict(record.verified)
        contents = self._contents
        sources = tuple(
            Dependency(one.source_id, one.source, one.bounds, risen.get(one.source_id, one.verified)) for one in contents.dependencies
        )
        self._refreshed = self._refreshed.after((start for start, _ in record.partitions), record.refresh, vector)
        bare = dataclasses.replace(record, partitions=(), verified=())
        self._contents = DerivedContents(sources, (), (*contents.refreshes[1 - REFRESHES :], bare))

    def _labels(self, changed: Sequence[Interval], old: pa.Table, generation: int) -> tuple[Label, ...]:
        """Partitions that had rows have lost some; the others only gained."""
        times = np.sort(times_of(old, self._table.spec.time.column))
        labels = []
        for lo, hi in changed:
            had = np.searchsorted(times, lo) < np.searchsorted(times, hi, side="right")
            labels.append(Label(lo, generation, generation if had else 0))
        return tuple(labels)

    # ---- rows that are there ----------------------------------------------------------------------------

    def _read(self, version: Version, intervals: Sequence[Interval]) -> pa.Table:
        found = [LocalResult(self._table.planner, version, Query(time=interval)).to_arrow() for interval in intervals]
        return pa.concat_tables(found) if found else self._table.spec.schema.empty_table()

    def _of_keys(self, rows: pa.Table, keys: Sequence[Any]) -> pa.ChunkedArray:
        (column,) = self._table.spec.key.columns
        return pc.is_in(rows.column(column), value_set=pa.array(list(keys), rows.schema.field(column).type))

    def _spans(self, version: Version, inside: Sequence[Interval], size: int) -> tuple[Interval, ...]:
        """The times that are written anew: those of the partitions, and of the chunks that have rows on both sides of their ends.

        A small chunk right beside them is taken along, so that tables which grow by a partition at a time do not fall to pieces.
        """
        chunks = version.chunks
        regions = chunks.matrix[: chunks.count][:, [TMIN, TMAX]]
        sizes = np.array([chunk.record.bytes for chunk in chunks], np.int64)
        spans = joined(inside)
        while True:
            met = np.zeros(len(regions), np.bool_)
            for lo, hi in spans:
                met |= (regions[:, 0] <= hi) & (regions[:, 1] >= lo)
            if int(sizes[met].sum()) > KEPT_BYTES:
                return joined(inside)
            if size + int(sizes[met].sum()) < CHUNK_BYTES // 2:
                met |= _beside(regions, sizes, spans)
            wider = joined([*spans, *((int(lo), int(hi)) for lo, hi in regions[met])])
            if wider == spans:
                return spans
            spans = wider
            size += int(sizes[met].sum())


def _beside(regions: Any, sizes: Any, spans: Sequence[Interval]) -> Any:
    """The nearest chunk before the spans and the nearest after them, if they are small."""
    met = np.zeros(len(regions), np.bool_)
    first, last = spans[0][0], spans[-1][1]
    before, after = np.flatnonzero(regions[:, 1] < first), np.flatnonzero(regions[:, 0] > last)
    for near in (before[regions[before, 1].argmax()] if len(before) else -1, after[regions[after, 0].argmin()] if len(after) else -1):
        if near >= 0 and sizes[near] < CHUNK_BYTES // 2:
            met[near] = True
    return met


def _can_grow(one: StalePartition) -> bool:
    """Whether new rows are all that changed for a partition that was computed before."""
    return one.refresh > 0 and not one.undone and one.changed == {0}


def _less(spans: Sequence[Interval], inside: Sequence[Interval]) -> tuple[Interval, ...]:
    """The times of the spans that are not inside."""
    left = []
    for lo, hi in spans:
        for a, b in inside:
            if b < lo or a > hi:
                continue
            if a > lo:
                left.append((lo, a - 1))
            lo = b + 1
        if lo <= hi:
            left.append((lo, hi))
    return tuple(left)


def _within(rows: pa.Table, time: str, intervals: Sequence[Interval]) -> pa.Table:
    times = times_of(rows, time)
    inside = np.zeros(len(times), np.bool_)
    for lo, hi in intervals:
        inside |= (times >= lo) & (times <= hi)
    return rows if inside.all() else rows.filter(pa.array(inside))


def _bytes_of(version: Version, times: Sequence[Interval], after: int | None) -> int:
    """About how many bytes of chunks have rows of these times, and of generations after one."""
    chunks = version.chunks
    matrix = chunks.matrix[: chunks.count]
    total = 0.0
    for lo, hi in times:
        for i in np.flatnonzero((matrix[:, TMIN] <= hi) & (matrix[:, TMAX] >= lo) & (matrix[:, GENERATION_HI] > (after or 0))).tolist():
            first, last = int(matrix[i, TMIN]), int(matrix[i, TMAX])
            total += chunks.holders[i].record.bytes * (min(hi, last) - max(lo, first) + 1) / (last - first + 1)
    return int(total)


def _with_fresh(labels: Labels, version: Version, division: Division) -> Labels:
    """Labels as they will be when the rows in memory are in chunks."""
    changed: dict[int, int] = {}
    for view in version.trees:
        for generation, lo, hi in view.matrix[: view.count][:, [GENERATION_HI, TMIN, TMAX]].tolist():
            for start in division.touched(lo, min(hi, INT64_MAX)):
                changed[start] = max(changed.get(start, 0), generation)
    return labels.raised([Label(start, generation) for start, generation in changed.items()], (), 0, 0.0)
