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
from typing import TYPE_CHECKING

import numpy as np

from tidewheel.derive.bounds import Bounds
from tidewheel.derive.lineage import (
    Division,
    Interval,
    Refreshed,
    SourceView,
    StalePartition,
    contains_all,
    first_set,
    needed,
    stale_partitions,
)
from tidewheel.errors import InputError
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
    RefreshPlan,
    RefreshRecord,
    SourceRead,
)
from tidewheel.model.partition_labels import Labels
from tidewheel.model.partitions import joined
from tidewheel.model.pieces import GENERATION_HI, TMAX, TMIN
from tidewheel.model.query import pair
from tidewheel.model.times import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from tidewheel.engine.local_table import LocalTable
    from tidewheel.engine.operations import PlanRefresh

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
        self.division = Division(spec.partitions, spec.time.unit, max(begin, INT64_MIN))
        self._bounds = [Bounds.from_json(one.bounds) for one in contents.dependencies]
        self.contents = contents
        """Replaced by the commit thread, together with the next."""
        self.refreshed = Refreshed.of(contents.refreshed, len(contents.dependencies))

    @property
    def bounds(self) -> tuple[tuple[str, str], ...]:
        """(source, JSON of its bounds)."""
        return tuple((one.source, one.bounds) for one in self.contents.dependencies)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(one.source for one in self.contents.dependencies)

    # ---- state ------------------------------------------------------------------------------------------

    def state(self) -> DerivedState:
        contents, refreshed = self.contents, self.refreshed
        stale = stale_partitions(self.division, refreshed, self._views(fresh=True), None)
        since = min((one.since for one in stale if one.since), default=None)
        last = contents.refreshes[-1].ended if contents.refreshes else None
        return DerivedState(self.definition, contents.dependencies, len(refreshed), len(stale), since, last, contents.refreshes)

    def _views(self, fresh: bool) -> list[SourceView]:
        """The sources now; with `fresh`, rows that are in no chunk yet count as changes."""
        views = []
        for one, bounds in zip(self.contents.dependencies, self._bounds, strict=True):
            source = self._table.engine.table(one.source)
            division = Division(source.spec.partitions, source.spec.time.unit)
            labels = source.labels()
            if fresh:
                labels = _with_fresh(labels, source.version(), division)
            views.append(SourceView(division, bounds, labels, one.verified))
        return views

    def sample(self, most: int) -> tuple[RefreshedPartition, ...]:
        known = self.refreshed
        at = sorted(random.sample(range(len(known)), max(0, min(most, len(known)))))
        return tuple(RefreshedPartition(int(known.starts[i]), int(known.numbers[i]), tuple(known.vectors[i].tolist())) for i in at)

    # ---- planning ---------------------------------------------------------------------------------------

    def plan(self, asked: PlanRefresh) -> RefreshPlan | None:
        """The next set of partitions to compute, the newest first; None if there is nothing to do."""
        engine, refreshed = self._table.engine, self.refreshed
        cut = dict(asked.cut)
        cut |= engine.cut([name for name in self.sources if name not in cut])
        views = self._views(fresh=False)
        within = self._table.spec.time.interval(*pair(asked.time, "time")) if asked.time is not None else None
        if within is not None and within[0] > within[1]:
            return None
        if asked.full:
            stale = self._all(refreshed, views, within, asked.since)
        else:
            stale = stale_partitions(self.division, refreshed, views, within)
        upto = [cut[name] for name in self.sources]
        stale = [one for one in stale if self._is_due(one, upto, asked.full)]
        if not stale:
            return None
        mode, alike = self._mode(asked, stale)
        versions = [engine.table(name).version() for name in self.sources]
        chosen = self._chosen(asked, mode, alike, views, versions)
        intervals = joined(self.division.interval(one.start) for one in chosen)
        reads = []
        for i, (name, view, version) in enumerate(zip(self.sources, views, versions, strict=True)):
            times = needed(self.division, intervals, view)
            after = chosen[0].standing[i] if mode.name in (APPEND, MERGE, KEYS) else None
            reads.append(SourceRead(name, upto[i], times, after, _bytes_of(version, times, after), _bytes_of(version, times, None)))
        parts = tuple((one.start, one.refresh) for one in chosen)
        job = f"{self._table.record.id}-{secrets.token_hex(8)}"
        return RefreshPlan(job, self._table.spec.name, mode, parts, intervals, tuple(reads), len(stale) - len(chosen))

    def _is_due(self, one: StalePartition, upto: Sequence[int], full: bool) -> bool:
        """Whether a refresh at these generations brings a partition further. What changed after them stays stale, for the next."""
        at = self.refreshed.place(one.start)
        if at >= 0 and (self.refreshed.vectors[at] > upto).any():
            return False  # another refresh, of a later moment, was here
        return full or any(one.standing[i] < upto[i] for i in one.changed)

    def _all(self, refreshed: Refreshed, views: Sequence[SourceView], within: Interval | None, since: int) -> list[StalePartition]:
        """All partitions, as if none had been computed, but for those that refresh number `since` or a later one did."""
        none = Refreshed.of((), len(views))
        anew = [SourceView(v.division, v.bounds, v.labels, 0) for v in views]
        found = {one.start: one for one in stale_partitions(self.division, none, anew, within)}
        for start in refreshed.starts.tolist():  # perhaps of rows that are gone
            if within is None or (self.division.interval(start)[1] >= within[0] and start <= within[1]):
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
            interval = self.division.interval(alike[i].start)
            pairs = zip(views, versions, strict=True)
            sizes[i] = sum(_bytes_of(version, needed(self.division, [interval], view), None) for view, version in pairs)
            total += sizes[i]
            if total > asked.most_bytes:
                break
        return first_set(alike, sizes, asked.most_bytes, self.definition.apart)

    # ---- what a commit asks and says --------------------------------------------------------------------

    def verified_after(self, plan: RefreshPlan, number: int) -> tuple[tuple[int, int], ...]:
        """(source id, generation) up to which all changes will be contained once this plan is committed; only those that rise."""
        if plan.left:
            return ()
        contents = self.contents
        after = self.refreshed.after((start for start, _ in plan.partitions), number, [read.upto for read in plan.sources])
        return tuple(
            (of.source_id, read.upto)
            for i, (of, view, read) in enumerate(zip(contents.dependencies, self._views(fresh=False), plan.sources, strict=True))
            if read.upto > of.verified and contains_all(self.division, after, view, i, read.upto)
        )

    def done(self, record: RefreshRecord) -> None:
        """The catalog has this refresh. Called by the commit thread."""
        vector = [generation for _, generation in record.vector]
        risen = dict(record.verified)
        contents = self.contents
        sources = tuple(
            Dependency(one.source_id, one.source, one.bounds, risen.get(one.source_id, one.verified)) for one in contents.dependencies
        )
        self.refreshed = self.refreshed.after((start for start, _ in record.partitions), record.refresh, vector)
        bare = dataclasses.replace(record, partitions=(), verified=())
        self.contents = DerivedContents(sources, (), (*contents.refreshes[1 - REFRESHES :], bare))


def _can_grow(one: StalePartition) -> bool:
    """Whether new rows are all that changed for a partition that was computed before."""
    return one.refresh > 0 and not one.undone and one.changed == {0}


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
