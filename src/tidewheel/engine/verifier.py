"""Partitions of a derived table computed anew, and compared with what is there: the guard against wrong bounds."""

from __future__ import annotations

import pyarrow as pa

from tidewheel.derive.verifying import Difference, Verification, difference
from tidewheel.engine.compute import Compute
from tidewheel.engine.computed_rows import as_stored, clipped
from tidewheel.engine.operations import GetDerived, GetState, PlanRefresh, SampleRefreshed
from tidewheel.engine.protocol import Engine
from tidewheel.engine.source_reading import RefreshReads, SourceGone
from tidewheel.errors import InputError
from tidewheel.model.derived import RECOMPUTE, Definition, RefreshedPartition, RefreshPlan, SourceRead
from tidewheel.model.partitions import interval
from tidewheel.model.times import INT64_MAX, INT64_MIN

_EVERYTHING = ((INT64_MIN, INT64_MAX),)


def verify(engine: Engine, compute: Compute, name: str, sample: int = 5) -> Verification:
    """Compute some partitions anew, chosen by chance, and compare them with what is there. Nothing is changed.

    A partition that is stale is computed from its sources as they were when it was refreshed; any other from the sources as they are now,
    because nothing that it is made of changed since, if the bounds are right. All of the sources is read, not only what the bounds say.
    """
    table = engine.table(name)
    state = table.do(GetDerived())
    if state is None:
        raise InputError(f"{name!r} is no derived table: there is nothing to compute it from")
    if type(sample) is not int or sample < 1:
        raise InputError(f"sample is a number of partitions, not {sample!r}")
    run = _Verifier(engine, compute, name, state.definition, [one.source for one in state.dependencies])
    compared, found = 0, list[Difference]()
    parts = table.do(SampleRefreshed(sample))
    for part in parts:
        try:
            one = run.compared(part)
        except _NotComparable:
            continue
        compared += 1
        if one is not None:
            found.append(one)
    return Verification(name, compared, len(parts) - compared, tuple(found))


def _cut(plan: RefreshPlan) -> tuple[tuple[str, int], ...]:
    return tuple((read.table, read.upto) for read in plan.sources)


class _NotComparable(Exception):
    """It was refreshed meanwhile, or a source cannot be read any more as it was."""


class _Verifier:
    def __init__(self, engine: Engine, compute: Compute, name: str, definition: Definition, sources: list[str]) -> None:
        self._engine = engine
        self._table = engine.table(name)
        self._compute = compute
        self._definition = definition
        self._sources = sources

    def compared(self, part: RefreshedPartition) -> Difference | None:
        """What is wrong with one partition."""
        spec = self._table.spec
        lo, hi = interval(spec.partitions, part.partition)
        times = max(lo, INT64_MIN), min(hi - 1, INT64_MAX)
        plan = self._planned(part, times, ())
        if self._table.do(PlanRefresh(_cut(plan), times)) is not None:
            plan = self._planned(part, times, tuple(zip(self._sources, part.vector, strict=True)))
        try:
            computed, stored = self._computed(plan, times)
        except SourceGone:
            raise _NotComparable from None
        self._planned(part, times, _cut(plan))  # it is still the same
        anew = pa.table([as_stored(computed.column(one.name), one, spec) for one in spec.schema], schema=spec.schema)
        return difference(spec.time.show(times[0]), stored, anew)

    def _planned(self, part: RefreshedPartition, times: tuple[int, int], cut: tuple[tuple[str, int], ...]) -> RefreshPlan:
        plan = self._table.do(PlanRefresh(cut, times, full=True, mode=RECOMPUTE))
        if plan is None or plan.partitions != ((part.partition, part.refresh),):
            raise _NotComparable
        return plan

    def _computed(self, plan: RefreshPlan, times: tuple[int, int]) -> tuple[pa.Table, pa.Table]:
        """What the definition makes now, and what is there."""
        reading = RefreshReads(self._engine, self._definition)
        rows = {}
        for read in plan.sources:
            size = self._engine.table(read.table).do(GetState()).disk_bytes
            rows[read.table] = reading.source(SourceRead(read.table, read.upto, _EVERYTHING, None, size))
        computed = clipped(self._compute.run(self._definition, rows), self._table.spec, (times,))
        return computed, reading.stored(plan, None).select(self._table.spec.schema.names)
