"""A derived table on its owner's side: plans of what to compute, and the commit of what was computed.

The owner computes nothing: whoever refreshes (`engine/refresher.py`) takes a plan, reads the sources at the generations that it names, and
brings the rows. A plan is a value, and the owner remembers none: a commit compares what the plan saw with what is there, so it does not
matter which owner made it, how long it took, or who else worked on the same partitions.
"""

from __future__ import annotations

import dataclasses
import math
import random
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidewheel.derive.bounds import Bounds
from tidewheel.derive.lineage import (
    Division,
    Interval,
    Refreshed,
    SourceView,
    StalePartition,
    contained,
    first_set,
    needed,
    stale_partitions,
)
from tidewheel.errors import ConflictError
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
from tidewheel.model.schema import ColumnKey, is_exact_in_spark
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.model.touched_keys import MOST_KEYS, unpacked
from tidewheel.write.layers import BESIDE, large_of

if TYPE_CHECKING:
    from tidewheel.engine.local_table import LocalTable
    from tidewheel.engine.operations import PlanRefresh

REFRESHES = 100
"""That are remembered."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    """How partitions are computed. Sources are meant by their numbers."""

    mode: Mode
    new: frozenset[int] = frozenset()
    """The sources of which the new rows are read: to compute them, or for their keys."""
    touched: frozenset[int] = frozenset()
    """The derived sources that say which keys they changed."""
    few: frozenset[int] = frozenset()
    """The sources that are not read as a whole."""


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
        self._touched: tuple[tuple[int, int], pa.Array | None] = (-1, -1), None
        """What was asked of `touched_since` last, and its answer."""

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
        views = self._views(fresh=True)
        stale = stale_partitions(self.division, refreshed, views, None)
        least: dict[int, int] = {}
        for one in stale:
            for i in one.changed:
                least[i] = min(least.get(i, INT64_MAX), max(one.standing[i], views[i].verified))
        since = min((at for i, generation in least.items() if (at := self._changed_since(i, generation)) is not None), default=None)
        last = contents.refreshes[-1].ended if contents.refreshes else None
        done = tuple(dataclasses.replace(one, keys=None) for one in contents.refreshes)
        return DerivedState(self.definition, contents.dependencies, len(refreshed), len(stale), since, last, done)

    def _changed_since(self, source: int, generation: int) -> float | None:
        """When the first change of a source after a generation came. Where that is not known, because it was before this owner began, when
        the refresh began that read this generation: until its pass took the cut there was none."""
        table = self._table.engine.table(self.sources[source])
        trees, labels = table.version().trees, table.labels()  # in this order: rows that leave the one are in the other
        if labels.last <= generation:
            born = min((view.tree.born for view in trees), default=None)
            return None if born is None else self._table.engine.clock.wall(born)
        if (at := labels.first_after(generation)) is not None:
            return at
        id_ = self.contents.dependencies[source].source_id
        later = (one.began for one in self.contents.refreshes if dict(one.vector)[id_] >= generation)
        return min(float(labels.at[labels.changed > generation].min()), next(later, math.inf))

    def touched_since(self, generation: int) -> pa.Array | None:
        """The keys whose rows changed after a generation, and perhaps others; None if that is not known, or there are too many."""
        known = self.contents.refreshes
        asked = generation, known[-1].refresh if known else 0
        if self._touched[0] != asked:  # many partitions ask the same
            self._touched = asked, _keys_after(known, generation)
        return self._touched[1]

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
        way, alike = self._way(asked, stale)
        versions = [engine.table(name).version() for name in self.sources]
        chosen = self._chosen(asked, way, alike, views, versions)
        intervals = joined(self.division.interval(one.start) for one in chosen)
        left = len(stale) - len(chosen)
        after = refreshed if left else refreshed.after((one.start for one in chosen), 0, upto)
        reads = []
        for i, (name, view, version) in enumerate(zip(self.sources, views, versions, strict=True)):
            times = needed(self.division, intervals, view)
            new = chosen[0].standing[i] if i in way.new else None
            sizes = _bytes_of(version, times, new), _bytes_of(version, times, None)
            reads.append(SourceRead(name, upto[i], times, new, *sizes, 0 if left else contained(self.division, after, view, i, upto[i])))
        parts = tuple((one.start, one.refresh) for one in chosen)
        job = f"{self._table.record.id}-{secrets.token_hex(8)}"
        keys = self._touched_keys(way, chosen[0]) if way.touched else None
        stored = _bytes_of(self._table.version(), intervals, None)
        return RefreshPlan(job, self._table.spec.name, way.mode, parts, intervals, tuple(reads), left, keys, stored)

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

    def _way(self, asked: PlanRefresh, stale: Sequence[StalePartition]) -> tuple[_Way, list[StalePartition]]:
        """How the newest of them is computed, and those that can be computed so together with it."""
        recompute = _Way(next((one for one in self.definition.modes if one.name == RECOMPUTE), Mode(RECOMPUTE, "always right")))
        newest = stale[-1]
        way = None if asked.full else self._incremental(asked.mode, newest)
        if way is None:  # others that could be computed in part wait for their own plan
            return recompute, [one for one in stale if asked.full or one is newest or self._incremental(asked.mode, one) is None]
        return way, [one for one in stale if one.standing == newest.standing and self._incremental(asked.mode, one) == way]

    def _incremental(self, wanted: str, one: StalePartition) -> _Way | None:
        """How a part of a partition that was computed before can stay; None: all of it is to be computed."""
        if one.refresh == 0 or self.definition.incremental == "never":
            return None
        tables = [self._table.engine.table(name) for name in self.sources]
        derived = frozenset(i for i, table in enumerate(tables) if table.derived is not None)
        ways = (self._by_mode(mode, one, derived) for mode in self.definition.modes if mode.name != RECOMPUTE and wanted in ("", mode.name))
        return next((way for way in ways if way is not None), None)

    def _by_mode(self, mode: Mode, one: StalePartition, derived: frozenset[int]) -> _Way | None:
        if mode.name == KEYS:
            by = mode.keys_by(self.sources)
            if not all(self._is_exact(source, column) for source, column in by.items()):
                return None  # it was defined before that was asked
            keyed = frozenset(i for i, name in enumerate(self.sources) if name in by)
            # rows of a derived table are exchanged: what is new is not known, but perhaps the keys that changed
            touched = frozenset(one.changed & derived)
            known = all(self._tells_keys(i, by[self.sources[i]], one.standing[i]) for i in touched & keyed)
            fits = one.changed <= keyed and one.undone <= derived and known
            return _Way(mode, keyed - derived, touched, keyed) if fits else None
        if one.undone or one.changed & derived:
            return None
        if mode.name == MERGE and "try_sum" in self.definition.text.lower():
            return None  # it was defined before that was known: its nulls may be sums that were too large
        for few in mode.grown_by(self.sources):
            new = frozenset(i for i, name in enumerate(self.sources) if name in few)
            if one.changed <= new:
                return _Way(mode, new, few=new)
        return None

    def _is_exact(self, source: str, column: str) -> bool:
        return is_exact_in_spark(self._table.engine.table(source).spec.schema.field(column).type)

    def _tells_keys(self, source: int, column: str, generation: int) -> bool:
        table = self._table.engine.table(self.sources[source])
        derived = table.derived
        return derived is not None and table.spec.key == ColumnKey(column) and derived.touched_since(generation) is not None

    def _touched_keys(self, way: _Way, one: StalePartition) -> tuple[Any, ...]:
        """What derived sources say they changed; all that they have said to `_tells_keys`."""
        found: dict[Any, None] = {}
        for i in sorted(way.touched):
            derived = self._table.engine.table(self.sources[i]).derived
            keys = None if derived is None else derived.touched_since(one.standing[i])
            if keys is None:
                raise ConflictError(f"{self.sources[i]!r} was refreshed while a plan was made of it: plan again")
            found |= dict.fromkeys(keys.to_pylist())
        return tuple(found)

    def _chosen(
        self, asked: PlanRefresh, way: _Way, alike: Sequence[StalePartition], views: Sequence[SourceView], versions: Sequence[Version]
    ) -> list[StalePartition]:
        """As many as one set takes, by the bytes that it reads of sources; in incremental modes also by those that it reads of the table
        itself and writes anew. Rows of some keys do not count where they are read for their keys: they are few."""
        standing = alike[-1].standing
        read = [
            (view, version, standing[i] if i in way.few else None)
            for i, (view, version) in enumerate(zip(views, versions, strict=True))
            if i not in way.few or i in way.new
        ]
        partly = way.mode.name != RECOMPUTE
        mine = self._table.version()
        if len(way.few) == len(views) and _all_bytes(mine, 0) + sum(_all_bytes(v, after or 0) for _, v, after in read) <= asked.most_bytes:
            return list(alike)
        divided = self.division.partitions
        numbers = [divided.number(one.start) for one in alike]
        large = large_of(mine.chunks, divided, numbers) if way.mode.name == APPEND else {}
        sizes = [0] * len(alike)
        total = 0
        for i in range(len(alike) - 1, -1, -1):  # the newest first, and no further than one set goes
            interval = self.division.interval(alike[i].start)
            sizes[i] = sum(_bytes_of(version, needed(self.division, [interval], view), after) for view, version, after in read)
            if partly:
                stored = _bytes_of(mine, [interval], None)
                sizes[i] += min(stored, BESIDE) if numbers[i] in large else stored
            total += sizes[i]
            if total > asked.most_bytes:
                break
        return first_set(alike, sizes, asked.most_bytes, self.definition.apart and len(way.few) < len(views))

    # ---- what a commit asks and says --------------------------------------------------------------------

    def verified_after(self, plan: RefreshPlan) -> tuple[tuple[int, int], ...]:
        """(source id, generation) up to which all changes will be contained once this plan is committed; only those that rise.

        As the plan has it: it was made right after the cut, and what came later came with later generations. Partitions only rise.
        """
        sources = zip(self.contents.dependencies, plan.sources, strict=True)
        return tuple((of.source_id, read.contained) for of, read in sources if read.contained > of.verified)

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


def _keys_after(known: Sequence[RefreshRecord], generation: int) -> pa.Array | None:
    if not known or known[0].refresh > 1 and known[0].generation > generation:
        return None
    later = [one for one in known if one.generation > generation and one.changed]
    found = [unpacked(one.keys) for one in later if one.keys is not None]
    if len(found) < len(later) or not found:
        return None
    keys = pa.chunked_array(found).unique()
    return keys if len(keys) <= MOST_KEYS else None


def _all_bytes(version: Version, after: int) -> int:
    """Of the chunks with rows of generations after one."""
    chunks = version.chunks
    late = np.flatnonzero(chunks.matrix[: chunks.count, GENERATION_HI] > after)
    return sum(chunks.holders[i].record.bytes for i in late.tolist())


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
