"""A derived table, as users hold it: a table that only refreshes write. Thin: everything is done by the engine and by Spark."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidewheel.cluster.current_engine import CurrentEngine
from tidewheel.derive.bounds import EVERYTHING, Bounds
from tidewheel.derive.bounds import declared as bounds
from tidewheel.derive.explanation import Explanation, explained
from tidewheel.derive.lineage import check_bounds
from tidewheel.derive.verifying import Verification
from tidewheel.engine.compute import Compute, SourceRows
from tidewheel.engine.operations import CreateDerived, GetDerived, ListDerived, ListTables
from tidewheel.engine.protocol import Engine
from tidewheel.engine.refresh_loop import RefreshLoop
from tidewheel.engine.refresher import RefreshProgress, refresh
from tidewheel.engine.verifier import verify
from tidewheel.errors import InputError
from tidewheel.model.derived import INCREMENTAL, Definition
from tidewheel.model.refresh_report import RefreshReport
from tidewheel.model.schema import Epoch, KeyRule, TableSpec, check_name, make_spec, with_hidden
from tidewheel.model.times import TimeAxis, parse_duration
from tidewheel.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from tidewheel.spark.spark_sessions import SparkSession

__all__ = ["Derived", "bounds"]


class Derived(Table):
    """A table that is computed from others, its sources, and follows them. Every call may be made from any thread."""

    @property
    def definition(self) -> Explanation:
        """Text, sources, bounds, mode and policy; `print` it: what is read, and why it is refreshed in this mode."""
        state = self._engine.do(GetDerived())
        assert state is not None
        return explained(self._engine.spec, state.definition, {one.source: one.bounds for one in state.dependencies})

    def refresh(
        self, time: Any = None, full: bool = False, *, spark: SparkSession | None = None, progress: RefreshProgress | None = None
    ) -> RefreshReport:
        """Bring it up to date, and first the derived tables that it is made of.

        `time`: only partitions that this interval touches. `full`: all of them, stale or not. `spark`: the session to compute in, else
        the one that runs, or one that is started with a low priority; none is if there is nothing to do. What fails is raised; what was
        committed before stays.
        """
        return refreshed(self._current, [self.name], spark, time, full, progress)

    def verify(self, sample: int = 5, *, spark: SparkSession | None = None) -> Verification:
        """Compute some partitions anew, from all rows that their sources had then, and compare: finds bounds that are wrong.

        `print` what it returns, or ask its `ok`, `partitions` and `differences`. Nothing is changed.
        """
        return verify(self._current.engine(), _Later(spark, self._current), self.name, sample)

    def __repr__(self) -> str:
        return super().__repr__().replace("<Table", "<Derived", 1)


class _Later:
    """Spark, started when something is to be computed."""

    def __init__(self, spark: SparkSession | None, current: CurrentEngine) -> None:
        self._spark = spark
        self._current = current
        self._compute: Compute | None = None

    def run(self, definition: Definition, sources: Mapping[str, SourceRows]) -> pa.Table:
        if self._compute is None:
            self._compute = spark_computer(self._spark, self._current)
        return self._compute.run(definition, sources)


def spark_computer(spark: SparkSession | None, current: CurrentEngine) -> Compute:
    from tidewheel.spark import SparkCompute

    return SparkCompute(spark, current.root)  # type: ignore[no-any-return]


def refreshed(
    current: CurrentEngine,
    names: Sequence[str] | None,
    spark: SparkSession | None,
    time: Any = None,
    full: bool = False,
    progress: RefreshProgress | None = None,
    raises: bool = True,
) -> RefreshReport:
    """A pass. If tables were named, what fails is raised, if it `raises` at all."""
    report = refresh(current.engine(), _Later(spark, current), names, time, full, progress, current.engine)
    failed = next((table for table in report if table.cause is not None), None)
    if raises and names is not None and failed is not None and failed.cause is not None:
        failed.cause.add_note(f"refreshing {failed.name!r}")
        raise failed.cause
    return report


def loop(
    current: CurrentEngine,
    every: str,
    names: Sequence[str] | None,
    spark: SparkSession | None,
    seen: Callable[[RefreshReport], None] | None = None,
) -> RefreshLoop:
    try:
        seconds = parse_duration(every) / 1e9
    except ValueError as e:
        raise InputError(f"every: {e}") from None
    compute = _Later(spark, current)
    return RefreshLoop(lambda without: refresh(current.engine(), compute, names, anew=current.engine, without=without), seconds, seen)


# ---- definitions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planned:
    """A derived table that is not made yet."""

    spec: TableSpec
    definition: Definition
    bounds: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]

    @property
    def explanation(self) -> Explanation:
        return explained(self.spec, self.definition, dict(self.bounds), self.warnings)


def planned(
    engine: Engine,
    name: str,
    definition: Any,
    time: str | Epoch,
    key: str | KeyRule | None,
    partition: str | None,
    bounds: Mapping[str, Any] | None,
    incremental: str,
    begin: Any,
    deterministic: Sequence[str],
    spark: SparkSession | None,
) -> Planned:
    """What Spark makes of a definition, checked as a table. `name`: "", if none is to be made."""
    if incremental not in INCREMENTAL:
        raise InputError(f"incremental is one of {', '.join(INCREMENTAL)}, not {incremental!r}")
    from tidewheel.spark import define

    column = time.column if isinstance(time, Epoch) else time
    axis = TimeAxis(time.column, time.unit) if isinstance(time, Epoch) else time
    by = key if isinstance(key, str) or key is None else key.columns[0] if len(key.columns) == 1 else None
    trusted = frozenset([deterministic] if isinstance(deterministic, str) else deterministic)
    tables, derived = engine.do(ListTables()), engine.do(ListDerived())
    known = declared_bounds(bounds)
    found = define(spark, definition, tables, derived, lambda name: engine.table(name).spec, axis, by, known, incremental, trusted)
    spec = make_spec(name or "derived", found.schema, time=time, key=key or column, partition=partition)
    check_bounds(spec.name, found.bounds)
    spec = replace(spec, name=name or "(not created)")
    spec = with_hidden(spec, found.hidden) if found.hidden else spec
    first = None if begin is None else spec.time.lower(begin)
    return Planned(spec, replace(found.definition, begin=first), found.bounds, found.warnings)


def create(
    current: CurrentEngine,
    engine: Engine,
    name: str,
    definition: Any,
    time: str | Epoch,
    key: str | KeyRule,
    partition: str | None,
    bounds: Mapping[str, Any] | None,
    incremental: str,
    begin: Any,
    if_exists: str,
    deterministic: Sequence[str],
    spark: SparkSession | None,
) -> Derived:
    check_name(name)
    made = planned(engine, name, definition, time, key, partition, bounds, incremental, begin, deterministic, spark)
    for warning in made.warnings:
        warnings.warn(f"{name}: {warning}", stacklevel=3)
    spec = engine.do(CreateDerived(made.spec, made.definition, made.bounds, if_exists))
    return Derived(current, engine.table(spec.name))


def declared_bounds(given: Mapping[str, Any] | None) -> dict[str, Bounds]:
    """What a user says of sources: tw.bounds(…) or "all"."""
    found = {}
    for source, said in (given or {}).items():
        if said != "all" and not isinstance(said, Bounds):
            raise InputError(f"bounds of {source!r} are tw.bounds(before=…, after=…, every=…) or 'all', not {said!r}")
        found[source] = EVERYTHING if isinstance(said, str) else said
    return found
