"""A pass over derived tables: what is stale is planned, read, computed and committed, one set of partitions at a time.

It runs wherever a computer is: in the owner's process or in one that is attached. All it does is ask the engine, so it holds nothing that
others wait for, and may die at any moment: what was committed stays, what was not is stale as before.

A pass reads all base tables at one *cut*, and derived tables as this pass, going from sources to what is made of them, has left them. So
two tables that it made of one base table agree. If a source cannot be read at the cut any more, or another refresh was faster, the next
plan is made with a new cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tidewheel.derive.merging import CannotMerge, merged
from tidewheel.engine.compute import Compute, SourceRows
from tidewheel.engine.computed_rows import as_stored, check_values, clipped
from tidewheel.engine.operations import CommitRefresh, CutTables, GetDerived, ListDerived, ListTables, PlanRefresh
from tidewheel.engine.protocol import Engine
from tidewheel.engine.source_reading import KEY_BYTES, RefreshReads, SourceGone, distinct, near, of_keys, plain_type
from tidewheel.errors import ClosedError, ConflictError, FencedError, InputError, NotFoundError, OwnerLostError, SchemaError
from tidewheel.model.derived import APPEND, KEYS, MERGE, RECOMPUTE, Definition, DerivedState, RefreshOutcome, RefreshPlan
from tidewheel.model.refresh_report import RefreshReport, TableRefresh
from tidewheel.model.schema import ColumnKey, TableSpec, nearest
from tidewheel.model.touched_keys import MOST_KEYS

TRIES = 5
"""Plans for one set of partitions, if others are faster each time, or the owner is lost."""

FEW_KEYS = 16
"""Keys that are always looked up one by one."""

RefreshProgress = Callable[[str, int, int], None]
"""Told of a table how many of its partitions are done, and of how many."""


def refresh(
    engine: Engine,
    compute: Compute,
    names: Sequence[str] | None = None,
    time: Any = None,
    full: bool = False,
    progress: RefreshProgress | None = None,
    anew: Callable[[], Engine] | None = None,
    without: Collection[str] = (),
) -> RefreshReport:
    """Bring derived tables up to date: all, or these and the derived tables that they are made of.

    `time`: only partitions of the named tables that the interval touches; `full`: all of these, stale or not. `anew` gives the engine to
    use after its owner was lost; without it, that ends the pass. `without`: tables that are left alone this time, and so is what is made
    of them. A table that fails does not stop those that do not need it: the report
    has its error. What ends the whole pass (a closed warehouse, an interrupt) is raised.
    """
    began = _now()
    run = _Pass(engine, compute, anew, progress)
    done: list[TableRefresh] = []
    failed, left = set[str](), set(without)
    for one in run.tables(names, full):
        asked = names is None or one.name in names
        broken = [source for source in one.sources if source in failed]
        if one.name in left or left & set(one.sources):
            left.add(one.name)
            continue
        if broken:
            outcome = TableRefresh(one.name, error=f"{broken[0]!r}, which it is made of, is not up to date: see there")
        elif run.idle:
            outcome = TableRefresh(one.name)
        else:
            outcome = run.table(one, time if asked else None, full and asked)
        if outcome.error:
            failed.add(one.name)
        done.append(outcome)
    return RefreshReport(tuple(done), _now() - began)


@dataclass(frozen=True, slots=True)
class _Derived:
    name: str
    definition: Definition
    sources: tuple[str, ...]
    last: int
    """Number of the last refresh."""
    stale: int


@dataclass(slots=True)
class _Pass:
    engine: Engine
    compute: Compute
    anew: Callable[[], Engine] | None
    progress: RefreshProgress | None
    cut: dict[str, int] = field(default_factory=dict)
    idle: bool = False
    """Nothing is stale."""

    def tables(self, names: Sequence[str] | None, full: bool) -> list[_Derived]:
        """The tables of the pass, each after those that it is made of. Takes the cut, if there is something to do."""
        order = self.engine.do(ListDerived())
        if names is not None:
            self._check_names(names, order)
        found: dict[str, _Derived] = {}
        wanted = set(order if names is None else names)
        for name in reversed(order):
            if name not in wanted:
                continue
            try:
                state = self.engine.table(name).do(GetDerived())
            except (NotFoundError, ClosedError):  # it was dropped just now
                self.engine.do(ListTables())  # raises if it was the warehouse that was closed
                continue
            if state is not None:
                found[name] = _known(name, state)
                wanted |= set(found[name].sources) & set(order)
        derived = set(order)
        if not full and not any(one.stale for one in found.values()):  # nothing is brought to rest for nothing
            self.idle = True
            return [found[name] for name in order if name in found]
        self._take_cut(sorted({source for one in found.values() for source in one.sources if source not in derived}))
        return [found[name] for name in order if name in found]

    def _check_names(self, names: Sequence[str], order: list[str]) -> None:
        for name in names:
            if name not in order:
                self.engine.table(name)  # raises NotFoundError with what is near
                raise InputError(f"{name!r} is no derived table: it has nothing to be refreshed from.{nearest(name, order)}")

    def _take_cut(self, names: Sequence[str]) -> None:
        if names:
            cut = self.engine.do(CutTables(tuple(names)))
            self.cut.update(cut)

    def table(self, one: _Derived, times: Any, full: bool) -> TableRefresh:
        """Refresh one table to the end, or to its error."""
        began = _now()
        done = TableRefresh(one.name)
        error: Exception | None = None
        try:
            for plan, outcome, read in self._sets(one, times, full):
                modes = [mode for mode in done.mode.split(", ") if mode]
                done = replace(
                    done,
                    partitions=done.partitions + outcome.partitions,
                    changed=done.changed + outcome.changed,
                    mode=", ".join(modes if plan.mode.name in modes else [*modes, plan.mode.name]),
                    rows_read=done.rows_read + read,
                    rows_written=done.rows_written + outcome.rows,
                )
                if self.progress is not None:
                    self.progress(one.name, done.partitions, done.partitions + plan.left)
        except (FencedError, OwnerLostError):
            raise
        except (ClosedError, NotFoundError) as e:
            self.engine.do(ListTables())  # raises if it was the warehouse that was closed
            error = e
        except Exception as e:  # of a computer: it runs what users wrote
            error = e
        said = "" if error is None else " ".join(str(error).split()) or type(error).__name__
        return replace(done, seconds=_now() - began, error=said, cause=error)

    def _sets(self, one: _Derived, times: Any, full: bool) -> Iterator[tuple[RefreshPlan, RefreshOutcome, int]]:
        """Sets of partitions, until nothing is stale: (plan, outcome, rows read)."""
        mode, tries, since = "", 0, one.last + 1
        while True:
            try:
                asked = PlanRefresh(tuple(sorted(self.cut.items())), times, full, since if full else 0, mode=mode)
                plan = self.engine.table(one.name).do(asked)
                if plan is None:
                    return
                outcome, read = self._one_set(one, plan)
            except CannotMerge:
                if mode == RECOMPUTE:
                    raise
                mode = RECOMPUTE
                continue
            except (ConflictError, SourceGone, OwnerLostError) as e:
                tries += 1
                if tries >= TRIES:
                    raise ConflictError(f"{one.name!r} was planned {TRIES} times, and never came to an end: {e}") from e
                if isinstance(e, OwnerLostError):
                    self._find_owner(e)
                self._take_cut([source for source in one.sources if source in self.cut])
                continue
            yield plan, outcome, read
            mode, tries = "", 0

    def _find_owner(self, lost: OwnerLostError) -> None:
        if self.anew is None:
            raise lost
        self.engine = self.anew()

    # ---- one set of partitions ----------------------------------------------------------------------------

    def _one_set(self, one: _Derived, plan: RefreshPlan) -> tuple[RefreshOutcome, int]:
        began = time.time()
        spec = self.engine.table(plan.table).spec
        reading = RefreshReads(self.engine, one.definition)
        keys: pa.Array | None = None
        if plan.mode.name == KEYS:
            keys = _changed_keys(reading, plan, self.engine)
            rows = self._computed(one, plan, spec, _sourcesof_keys(reading, plan, keys), len(keys) == 0)
            rows = of_keys(rows, plan.mode.column, keys)
            check_values(rows, spec)
        else:
            sources = {read.table: reading.source(read) for read in plan.sources}
            nothing = plan.mode.name in (APPEND, MERGE) and not _has_new_rows(reading, sources)
            rows = self._computed(one, plan, spec, sources, nothing)
            check_values(rows, spec)
            if plan.mode.name == MERGE:
                rows, keys = _merged(reading, plan, spec, rows)
        values = None if keys is None else tuple(keys.to_pylist())
        read = reading.rows()
        return self._commit(CommitRefresh(plan, values, read, began), rows), read

    def _computed(self, one: _Derived, plan: RefreshPlan, spec: TableSpec, sources: dict[str, SourceRows], nothing: bool) -> pa.Table:
        """What the definition makes of its sources, inside the partitions of the plan."""
        if nothing:
            return spec.stored.empty_table()
        return clipped(self.compute.run(one.definition, sources), spec, plan.intervals)

    def _commit(self, delivery: CommitRefresh, rows: pa.Table) -> RefreshOutcome:
        """The same job is committed at most once, so a commit whose owner was lost is simply repeated."""
        for _ in range(TRIES - 1):
            try:
                return self.engine.table(delivery.plan.table).give(delivery, rows)
            except OwnerLostError as e:
                self._find_owner(e)
        return self.engine.table(delivery.plan.table).give(delivery, rows)


def _known(name: str, state: DerivedState) -> _Derived:
    last = state.refreshes[-1].refresh if state.refreshes else 0
    return _Derived(name, state.definition, tuple(one.source for one in state.dependencies), last, state.stale)


def _now() -> float:
    return time.perf_counter()


# ---- modes ------------------------------------------------------------------------------------------------


def _has_new_rows(reading: RefreshReads, sources: dict[str, SourceRows]) -> bool:
    return any(reading.brings_rows(one) for one in sources.values() if one.read.after is not None)


def _changed_keys(reading: RefreshReads, plan: RefreshPlan, engine: Engine) -> pa.Array:
    """keys: those of the rows that came to sources since, and those that derived sources say they changed."""
    by = plan.mode.keys_by([read.table for read in plan.sources])
    source, column = next(iter(by.items()))
    type_ = plain_type(engine.table(source).spec.schema.field(column).type)
    try:
        found = [reading.new_keys(read, by[read.table]).cast(type_) for read in plan.sources if read.after is not None]
        keys = pa.chunked_array([*found, pa.array(plan.keys or (), type_)]).unique()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as e:
        raise CannotMerge(f"keys of one source are none of another: {e}") from e
    looked_up = len(keys) * sum(len(near(read.times)) for read in plan.sources if read.table in by) * KEY_BYTES
    if len(keys) > MOST_KEYS or len(keys) > FEW_KEYS and looked_up > sum(read.whole for read in plan.sources if read.table in by):
        raise CannotMerge(f"{len(keys):,} keys changed")
    return keys


def _sourcesof_keys(reading: RefreshReads, plan: RefreshPlan, keys: pa.Array) -> dict[str, SourceRows]:
    by = plan.mode.keys_by([read.table for read in plan.sources])
    return {read.table: reading.source(replace(read, after=None), keys if read.table in by else None) for read in plan.sources}


def _merged(reading: RefreshReads, plan: RefreshPlan, spec: TableSpec, new: pa.Table) -> tuple[pa.Table, pa.Array | None]:
    """merge: the table's rows and the new ones, and the keys that are exchanged; None: all rows of the partitions are."""
    fields = spec.stored
    given = set(new.column_names)
    if given != set(fields.names):
        raise SchemaError(f"the definition of {spec.name!r} gave other columns now: {', '.join(new.column_names)}; make it anew")
    partial = pa.table([as_stored(new.column(one.name), one, spec) for one in fields], schema=fields)
    keys: pa.Array | None = None
    if isinstance(spec.key, ColumnKey) and not partial.column(spec.key.column).null_count:
        keys = distinct(partial, spec.key.column)
        keys = keys if len(keys) <= MOST_KEYS else None
    old = reading.stored(plan, keys)
    return merged(old, partial, plan.mode), keys
