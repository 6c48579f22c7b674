"""Random DAGs of derived tables under random inserts, replacements, refreshes, deaths and restores, with DuckDB as the computer.

What always holds: every partition of every derived table has the rows of its query over its sources at the generations that its vector
names, whatever was interrupted; vectors only rise. And after a pass, every table has the rows of its query over the sources as they are.

How many DAGs there were is told at the end. TIDEWHEEL_SEED=n draws the same ones again, TIDEWHEEL_EXAMPLES=n so many of them.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import note, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

import tidewheel as tw
from tests.conftest import SOAK, Voice
from tests.property.derived_oracle import DAY, HOUR, SCHEMA, BaseOracle, Recipe, Row, counted, recipe, rows_of, table_of
from tidewheel.engine import refresh_commit, refresher, source_reading
from tidewheel.engine.compute import Compute, SourceRows
from tidewheel.engine.computed_rows import clipped
from tidewheel.engine.operations import CommitRefresh, CreateDerived, PlanRefresh
from tidewheel.engine.refresher import refresh
from tidewheel.engine.source_reading import RefreshReads, SourceGone
from tidewheel.errors import ConflictError
from tidewheel.model.derived import RECOMPUTE, SPARK_SQL, Definition, RefreshPlan
from tidewheel.model.partitions import interval
from tidewheel.model.schema import make_spec
from tidewheel.testing.abandon import abandon
from tidewheel.testing.duck_compute import DuckCompute
from tidewheel.testing.probe import Probe, engine_of
from tidewheel.write import layers, refreshes
from tidewheel.write.chunk_maker import ChunkMaker

BASES = ("a", "b")
SEED = int(os.environ.get("TIDEWHEEL_SEED") or random.randrange(2**32))
seeds = st.integers(0, 2**32)


class InterruptedRefresh(Exception):
    """A computer that dies."""


class DerivedMachine(RuleBasedStateMachine):
    runs = checks = failures = 0
    """Of all machines of this class: examples that came to their end, how often the invariant was looked at, how many examples failed,
    those included that Hypothesis makes of one that failed."""
    aloud: ClassVar[Callable[[str], None]] = print

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="tidewheel-derived-")
        self.roots = 0
        self.duck = DuckCompute()
        self.compute: Compute = self.duck
        self.bases = {name: BaseOracle() for name in BASES}
        self.recipes: dict[str, Recipe] = {}
        self.seen: dict[str, dict[int, list[Row]]] = {}
        """Of derived tables: their rows at each generation."""
        self.vectors: dict[tuple[str, int], list[int]] = {}
        """Of partitions of derived tables, when they were last looked at: they only rise."""
        self.plans: list[RefreshPlan] = []
        """Of a refresher that takes its time."""
        self.wh: tw.Warehouse | None = None

    @initialize(seed=seeds, servers=st.sampled_from([1, 2]), bytes_=st.sampled_from([4096, 1 << 20]))
    def create(self, seed: int, servers: int, bytes_: int) -> None:
        self.rng = random.Random(seed)
        self.settings = tw.Settings(indexing_servers=servers, chunk_bytes=bytes_, leaf_rows=16)
        self.wh = tw.open(self.root, settings=self.settings)
        for name in BASES:
            self.wh.create_table(name, SCHEMA, time="ts", key="k", partition=self.rng.choice(["1 hour", "1 day"]))
        for name in ("d1", "d2", "d3", "d4")[: self.rng.randint(1, 4)]:
            self.derive(name)

    @property
    def root(self) -> str:
        return f"{self.folder}/wh{self.roots}"

    def derive(self, name: str) -> None:
        """A table of those that there are, of the last one more often than not: DAGs are to be deep."""
        known = [*BASES, *self.recipes]
        made = recipe(self.rng, name, known[-2:] if self.recipes and self.rng.random() < 0.4 else known)
        note(f"{name}: {made.sql} in {made.partition}")
        assert self.wh is not None
        spec = make_spec(name, SCHEMA, time="ts", key="k", partition=made.partition)
        definition = Definition(SPARK_SQL, made.sql, "", made.modes)
        bounds = tuple((source, one.to_json()) for source, one in zip(made.sources, made.bounds, strict=True))
        engine_of(self.wh).do(CreateDerived(spec, definition, bounds, "error"))
        self.recipes[name] = made
        self.seen[name] = {0: []}

    # ---- the sources change -----------------------------------------------------------------------------

    def random_rows(self, many: int, lo: int = 0, hi: int = 4 * DAY) -> list[Row]:
        some = [self.rng.randint(lo, hi) for _ in range(max(1, many // 4))]
        times = [self.rng.choice(some) + self.rng.randint(0, HOUR // 4) for _ in range(many)]
        return [(min(max(t, lo), hi), self.rng.randint(0, 4), self.rng.randint(-9, 9)) for t in times]

    @rule(base=st.sampled_from(BASES), many=st.sampled_from([1, 3, 20, 120]), narrow=st.booleans())
    def insert(self, base: str, many: int, narrow: bool) -> None:
        lo = self.rng.randint(0, 4 * DAY) if narrow else 0
        self.bring(base, self.random_rows(many, lo, lo + HOUR if narrow else 4 * DAY))

    def bring(self, base: str, rows: list[Row]) -> None:
        assert self.wh is not None
        ack = self.wh.table(base).insert(table_of(rows))
        self.bases[base].insert(rows, ack.generation)

    @rule(base=st.sampled_from(BASES))
    def insert_a_package_twice(self, base: str) -> None:
        assert self.wh is not None
        rows = self.random_rows(5)
        name = f"package {self.rng.random()}"
        ack = self.wh.table(base).insert(table_of(rows), package=name)
        assert self.wh.table(base).insert(table_of(rows), package=name).duplicate
        self.bases[base].insert(rows, ack.generation)

    @rule(base=st.sampled_from(BASES), many=st.sampled_from([0, 2, 30]), wide=st.booleans())
    def replace(self, base: str, many: int, wide: bool) -> None:
        assert self.wh is not None
        lo = 0 if wide else self.rng.randint(0, 4 * DAY)
        hi = 4 * DAY if wide else lo + self.rng.randint(0, 5 * HOUR)
        rows = self.random_rows(many, lo, hi)
        ack = self.wh.table(base).replace(table_of(rows), time=(lo, hi))
        self.bases[base].replace(rows, lo, hi, ack.generation)

    @rule(base=st.sampled_from(BASES), many=st.sampled_from([0, 3, 60]), overwrite=st.booleans())
    def load(self, base: str, many: int, overwrite: bool) -> None:
        """Chunks that a task wrote, beside all rows or instead of them."""
        assert self.wh is not None
        table, rows = Probe(self.wh.table(base)), self.random_rows(many) if many else []
        begun = table.begin_load()
        with ChunkMaker(self.root, table.spec, begun) as maker:
            for batch in table_of(rows).to_batches():
                assert maker.add(batch, "error") == []
        ack = table.commit_load(begun.job, [maker.written], overwrite)
        if overwrite:
            self.bases[base].replace(rows, 0, 5 * DAY, ack.generation)
        else:
            self.bases[base].insert(rows, ack.generation)

    @rule(base=st.sampled_from(BASES))
    def flush(self, base: str) -> None:
        assert self.wh is not None
        self.wh.table(base).flush()

    # ---- refreshes --------------------------------------------------------------------------------------

    def remember(self) -> None:
        assert self.wh is not None
        for name in self.recipes:
            table = self.wh.table(name)
            self.seen[name][Probe(table).version.generation] = rows_of(table.query().to_arrow())

    @rule()
    def refresh_all(self) -> None:
        """A whole pass, after which nothing is stale and everything is as if it were computed from scratch."""
        assert self.wh is not None
        self.pass_over(self.compute)
        rows = {name: oracle.at(1 << 61) for name, oracle in self.bases.items()}
        for name, made in self.recipes.items():
            rows[name] = made.rows(*(rows[source] for source in made.sources))
            found = rows_of(self.wh.table(name).query().to_arrow())
            assert counted(found) == counted(rows[name]), name
            assert self.plan(name) is None

    def pass_over(self, compute: Compute, names: Sequence[str] | None = None, **how: Any) -> None:
        assert self.wh is not None
        for name in self.recipes if names is None else names:  # one after the other: each generation is to be seen
            report = refresh(engine_of(self.wh), compute, [name], **how)
            self.remember()
            for one in report.tables:
                if one.cause is not None:
                    raise one.cause

    @rule(times=st.integers(1, 3), few=st.sampled_from([1, 4]), taken=st.booleans())
    def follow(self, times: int, few: int, taken: bool) -> None:
        """A pass after each small change: this is what incremental modes are for."""
        self.pass_over(self.compute)
        for _ in range(times):
            base = self.rng.choice(BASES)
            self.insert(base, few, True)
            if taken and self.rng.random() < 0.5:
                self.replace(base, few, False)
                self.insert(base, few, True)
            if self.rng.random() < 0.3:
                self.plan_now(1)
            self.refresh_all()

    @precondition(lambda self: self.recipes)
    @rule(full=st.booleans(), narrow=st.booleans())
    def refresh_one(self, full: bool, narrow: bool) -> None:
        lo = self.rng.randint(0, 4 * DAY)
        self.pass_over(self.compute, [self.rng.choice(list(self.recipes))], full=full, time=(lo, lo + DAY) if narrow else None)

    @rule(base=st.sampled_from(BASES), many=st.sampled_from([1, 30]))
    def refresh_while_rows_come(self, base: str, many: int) -> None:
        def late(definition: Definition, sources: Mapping[str, SourceRows]) -> None:
            for one in sources.values():
                one.arrow()  # read, then there is more
            if self.rng.random() < 0.5:
                self.insert(base, many, True)

        meddling = DuckCompute(late)
        try:
            self.pass_over(meddling)
        finally:
            meddling.close()

    @precondition(lambda self: self.recipes)
    @rule(full=st.booleans(), loaded=st.booleans())
    def refresh_of_another_time(self, full: bool, loaded: bool) -> None:
        """Rows wait, and more of their hour come and come to rest while another time is computed; then there are some more."""
        self.pass_over(self.compute)
        name = self.rng.choice(list(self.recipes))
        base = self.rng.choice([source for source in self.recipes[name].sources if source in BASES] or BASES)
        lo = self.rng.randint(0, 4 * DAY)
        other = (lo + 2 * DAY) % (4 * DAY)

        def some(at: int) -> None:
            self.bring(base, self.random_rows(2, at, at + HOUR // 4))

        def late(definition: Definition, sources: Mapping[str, SourceRows]) -> None:
            for one in sources.values():
                one.arrow()
            some(lo)
            if loaded:
                self.load(base, 3, False)
            else:
                self.flush(base)

        some(lo)
        some(other)
        meddling = DuckCompute(late)
        try:
            self.pass_over(meddling, [name], full=full, time=(other, other + HOUR // 4))
        finally:
            meddling.close()
        some(lo)
        self.refresh_all()

    @rule()
    def refresh_that_fails(self) -> None:
        def fail(definition: Definition, sources: Mapping[str, SourceRows]) -> None:
            if self.rng.random() < 0.5:
                raise InterruptedRefresh

        failing = DuckCompute(fail)
        try:
            with contextlib.suppress(InterruptedRefresh):
                self.pass_over(failing)
        finally:
            failing.close()
            self.remember()

    # ---- a refresher that takes its time ----------------------------------------------------------------

    def plan(self, name: str, mode: str = "", most: int = 1 << 29) -> RefreshPlan | None:
        assert self.wh is not None
        return engine_of(self.wh).table(name).do(PlanRefresh(mode=mode, most_bytes=most))

    @precondition(lambda self: self.recipes)
    @rule(most=st.sampled_from([1, 20_000]))
    def plan_now(self, most: int) -> None:
        plan = self.plan(self.rng.choice(list(self.recipes)), RECOMPUTE, most)
        if plan is not None:
            self.plans.append(plan)

    @precondition(lambda self: self.plans)
    @rule(twice=st.booleans())
    def commit_later(self, twice: bool) -> None:
        self.commit_planned(self.plans.pop(self.rng.randrange(len(self.plans))), twice)

    def commit_planned(self, plan: RefreshPlan, twice: bool) -> None:
        """What was planned is computed now. If somebody was faster, or the sources cannot be read as they were, nothing changes."""
        assert self.wh is not None
        engine = engine_of(self.wh)
        try:
            reading = RefreshReads(engine)
            sources = {read.table: reading.source(read) for read in plan.sources}
            definition = Definition(SPARK_SQL, self.recipes[plan.table].sql, "", (plan.mode,))
            rows = clipped(self.compute.run(definition, sources), engine.table(plan.table).spec, plan.intervals)
            delivery = CommitRefresh(plan, None, rows.num_rows, time.time())
            first = engine.table(plan.table).give(delivery, rows)
            if twice:
                assert engine.table(plan.table).give(delivery, rows).refresh == first.refresh
        except (ConflictError, SourceGone) as e:
            note(f"not committed: {e}")
        self.remember()

    @precondition(lambda self: self.recipes)
    @rule(base=st.sampled_from(BASES), most=st.sampled_from([1, 1 << 29]), twice=st.booleans())
    def be_overtaken(self, base: str, most: int, twice: bool) -> None:
        """A slow refresher plans, rows come, a fast one computes what was planned and more; then the slow one has its rows."""
        self.insert(base, 20, False)
        plan = self.plan(self.rng.choice(list(self.recipes)), RECOMPUTE, most)
        if plan is not None:
            self.insert(base, 120, False)
            self.refresh_all()
            self.commit_planned(plan, twice)
            self.refresh_all()

    # ---- the end of processes ---------------------------------------------------------------------------

    @rule()
    def die(self) -> None:
        """What was acknowledged is there again; what was planned can still be committed to the next owner."""
        assert self.wh is not None
        abandon(self.wh)
        self.wh = tw.open(self.root, settings=self.settings)

    @rule()
    def reopen(self) -> None:
        assert self.wh is not None
        self.wh.close()
        self.wh = tw.open(self.root, settings=self.settings)

    @rule()
    def restore(self) -> None:
        """Go on with a copy."""
        assert self.wh is not None
        self.wh.backup(f"{self.folder}/backup{self.roots}")
        self.wh.close()
        old, self.roots = self.roots, self.roots + 1
        tw.restore(f"{self.folder}/backup{old}", self.root)
        self.wh = tw.open(self.root, settings=self.settings)
        self.plans.clear()

    # ---- what always holds ------------------------------------------------------------------------------

    @invariant()
    def every_partition_is_its_query_at_its_vector(self) -> None:
        if self.wh is None:
            return
        type(self).checks += 1
        for name, made in self.recipes.items():
            probe = Probe(self.wh.table(name))
            found = counted(rows_of(probe.query().to_arrow()))
            expected = counted([])
            derived = probe.local.as_derived().refreshed
            for start, vector in zip(derived.starts.tolist(), derived.vectors.tolist(), strict=True):
                before = self.vectors.setdefault((name, start), vector)
                assert all(old <= new for old, new in zip(before, vector, strict=True)), f"{name}: back from {before} to {vector}"
                self.vectors[name, start] = vector
                lo, hi = interval(probe.spec.partitions, start)
                sources = [self.source_at(source, generation) for source, generation in zip(made.sources, vector, strict=True)]
                expected += counted([row for row in made.rows(*sources) if lo <= row[0] < hi])
            assert found == expected, f"{name}: {found - expected} too much, {expected - found} missing"

    def source_at(self, name: str, generation: int) -> list[Row]:
        if name in self.bases:
            return self.bases[name].at(generation)
        known = self.seen[name]
        return known[max(one for one in known if one <= generation)]

    def teardown(self) -> None:
        self.say(sys.exception())
        try:
            if self.wh is not None:
                assert self.wh.check().ok
                self.wh.close()
        finally:
            self.duck.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def say(self, failed: BaseException | None) -> None:
        """A failure at once, before Hypothesis spends minutes with making it smaller; and from time to time that all is well."""
        mine = type(self)
        if isinstance(failed, Exception | pytest.fail.Exception) and not isinstance(failed, HypothesisException):
            mine.failures += 1
            if mine.failures == 1:
                mine.aloud(f"TIDEWHEEL_SEED={SEED}: after {mine.runs} DAGs one failed, and is being made smaller: {str(failed)[:500]}")
        elif failed is None:  # else Hypothesis itself gave the example up
            mine.runs += 1
            if SOAK and mine.runs % 100 == 0 and not mine.failures:
                mine.aloud(f"TIDEWHEEL_SEED={SEED}: {mine.runs} DAGs")


def campaign(machine: type[DerivedMachine], most: int, steps: int, voice: Voice) -> None:
    """Random DAGs, as many as asked for or until one fails. What was done is told, whatever the end."""
    most = int(os.environ.get("TIDEWHEEL_EXAMPLES") or most)
    machine.runs = machine.checks = machine.failures = 0
    machine.aloud = staticmethod(voice.now)
    began = time.monotonic()
    try:
        run_state_machine_as_test(seed(SEED)(machine), settings=settings(max_examples=most, stateful_step_count=steps))
    finally:
        counts = f"{machine.runs} DAGs of {most}, {machine.checks} checks, {machine.failures} failures"
        voice.at_the_end(f"TIDEWHEEL_SEED={SEED}: {counts}, {time.monotonic() - began:.0f} s")


@pytest.mark.parametrize("patched", [False, True])
@pytest.mark.timeout(0 if SOAK else 300)  # Hypothesis takes the end of the time for a failure of the example, and shrinks it for minutes
def test_every_partition_is_its_query_at_its_vector(patched: bool, voice: Voice, monkeypatch: pytest.MonkeyPatch) -> None:
    """`patched`: chunks of few rows each, patched and added to however small they are; merged rows are looked up by their keys.
    Sets of partitions are small, and new rows looked for without being read."""
    if patched:
        monkeypatch.setattr(source_reading, "KEY_BYTES", 0)
        monkeypatch.setattr(refresh_commit, "PATCHED_BYTES", 0)
        monkeypatch.setattr(refreshes, "CHUNK_BYTES", 1000)
        monkeypatch.setattr(layers, "SMALL", 3500)
        monkeypatch.setattr(layers, "LARGEST", 20_000)
        monkeypatch.setattr(refresher, "PlanRefresh", partial(PlanRefresh, most_bytes=40_000))
        monkeypatch.setattr(source_reading, "AT_ONCE", 3000)
    campaign(DerivedMachine, 2000 if SOAK else 10, 20, voice)
