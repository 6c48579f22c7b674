"""Partitions of a derived table computed anew at the generations that they were made of, and compared: the guard against wrong bounds."""

from __future__ import annotations

import pyarrow as pa

from tidewheel.derive.verifying import Difference, Verification, difference
from tidewheel.engine.compute import Compute
from tidewheel.engine.operations import GetDerived, GetState, PlanRefresh, SampleRefreshed
from tidewheel.engine.protocol import Engine
from tidewheel.engine.refresher import as_stored, clipped
from tidewheel.engine.source_reading import Reading, SourceGone
from tidewheel.errors import InputError
from tidewheel.model.derived import RECOMPUTE, RefreshedPartition, SourceRead
from tidewheel.model.partitions import interval
from tidewheel.model.times import INT64_MAX, INT64_MIN


def verify(engine: Engine, compute: Compute, name: str, sample: int = 5) -> Verification:
    """Compute some partitions anew, chosen by chance, and compare them with what is there. Nothing is changed.

    All of the sources is read, not only what the bounds say a partition is made of: so rows that wrong bounds leave out are missed.
    """
    table = engine.table(name)
    state = table.do(GetDerived())
    if state is None:
        raise InputError(f"{name!r} is no derived table: there is nothing to compute it from")
    if type(sample) is not int or sample < 1:
        raise InputError(f"sample is a number of partitions, not {sample!r}")
    compared, left_out, found = 0, 0, list[Difference]()
    sources = [one.source for one in state.dependencies]
    for part in table.do(SampleRefreshed(sample)):
        lo, hi = interval(table.spec.partitions, part.partition)
        times = max(lo, INT64_MIN), min(hi - 1, INT64_MAX)
        cut = tuple(zip(sources, part.vector, strict=True))
        plan = table.do(PlanRefresh(cut, times, full=True, mode=RECOMPUTE))
        if plan is None or not _is_of(part, plan.partitions):
            left_out += 1
            continue
        reading = Reading(engine)
        everything = ((INT64_MIN, INT64_MAX),)
        try:
            rows = {
                read.table: reading.source(
                    SourceRead(read.table, read.upto, everything, None, engine.table(read.table).do(GetState()).disk_bytes)
                )
                for read in plan.sources
            }
            computed = clipped(compute.run(state.definition, rows), table.spec, (times,))
            stored = reading.stored(name, (times,), None)
        except SourceGone:
            left_out += 1
            continue
        now = table.do(PlanRefresh(cut, times, full=True, mode=RECOMPUTE))
        if now is None or not _is_of(part, now.partitions):  # refreshed meanwhile
            left_out += 1
            continue
        compared += 1
        spec = table.spec
        anew = pa.table([as_stored(computed.column(one.name), one, spec) for one in spec.schema], schema=spec.schema)
        if (one := difference(spec.time.show(times[0]), stored, anew)) is not None:
            found.append(one)
    return Verification(name, compared, left_out, tuple(found))


def _is_of(part: RefreshedPartition, planned: tuple[tuple[int, int], ...]) -> bool:
    return planned == ((part.partition, part.refresh),)
