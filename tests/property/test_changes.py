"""Random inserts, flushes, replaces, reopens and crashes: for any two generations, the rows that came between them are the oracle's."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import tidewheel as tw
from tests.conftest import SOAK, examples
from tidewheel.index.version import Version
from tidewheel.model.query import Query
from tidewheel.read.generation_counts import rows_by_generation
from tidewheel.read.local_result import LocalResult
from tidewheel.testing.abandon import abandon
from tidewheel.testing.oracle import NEVER, OracleTable, rows_of, same_rows
from tidewheel.testing.probe import Probe
from tidewheel.testing.strategies import SERIAL, TIME, BatchStream, TableCase, table_cases, wheres

seeds = st.integers(0, 2**32)
fractions = st.floats(0, 1)

tiny = st.builds(
    tw.Settings,
    chunk_bytes=st.sampled_from([4096, 65536]),
    leaf_rows=st.sampled_from([4, 16]),
    zero_copy_rows=st.sampled_from([1, 4096]),
    sealed_trees=st.sampled_from([1, 2]),
    late_after=st.sampled_from([0.0, 60.0]),
    indexing_servers=st.integers(1, 3),
    map_chunks=st.booleans(),
)


class Changes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="tidewheel-changes-")
        self.wh: tw.Warehouse | None = None

    @initialize(case=table_cases(), options=tiny, seed=seeds)
    def create(self, case: TableCase, options: tw.Settings, seed: int) -> None:
        self.options = options
        self.stream = BatchStream(case, random.Random(seed))
        self.oracle = OracleTable(case.schema, case.time, case.key)
        self.wh = tw.open(self.root, settings=options)
        self.wh.create_table("t", case.schema, time=case.time, key=case.key, partition=case.partition)

    @property
    def table(self) -> Probe:
        assert self.wh is not None
        return Probe(self.wh.table("t"))

    # ---- writing ----------------------------------------------------------------------------------------

    def inserted(self, batch: pa.RecordBatch) -> None:
        generation = self.table.insert(batch).generation
        if batch.num_rows:
            assert generation > self.oracle.generation, "a generation came twice"
            self.oracle.generation = generation - 1
            assert self.oracle.insert(batch) == generation

    @rule(rows=st.sampled_from([0, 1, 3, 20, 100, 400]), late=st.booleans())
    def insert(self, rows: int, late: bool) -> None:
        self.inserted(self.stream.batch(rows, late=late))

    @rule(batches=st.sampled_from([5, 20, 300]), late=st.booleans())
    def insert_one_by_one(self, batches: int, late: bool) -> None:
        batch = self.stream.batch(batches, late=late)
        for i in range(batches):
            self.inserted(batch.slice(i, 1))

    @rule(rows=st.sampled_from([0, 2, 100]), everything=st.booleans())
    def replace(self, rows: int, everything: bool) -> None:
        batch = self.stream.batch(rows)
        times = [row[TIME] for row in rows_of(batch)] or [self.stream.now - 5 * self.stream.second, self.stream.now]
        interval = (None, None) if everything else (min(times), max(times))
        generation = self.table.replace(batch, interval).generation
        assert generation > self.oracle.generation
        self.oracle.generation = generation - 1
        self.oracle.replace(batch, interval)

    @rule()
    def flush(self) -> None:
        self.table.flush()

    @rule(crash=st.booleans(), servers=st.integers(1, 3), mapped=st.booleans())
    def reopen(self, crash: bool, servers: int, mapped: bool) -> None:
        assert self.wh is not None
        if crash:
            abandon(self.wh)
        else:
            self.wh.close()
        self.wh = tw.open(self.root, settings=replace(self.options, indexing_servers=servers, map_chunks=mapped))

    # ---- asking -----------------------------------------------------------------------------------------

    def interval(self, a: float, b: float) -> tuple[int, int]:
        top = self.oracle.generation
        after, upto = sorted((round(a * top), round(b * top)))
        note(f"generations {after} .. {upto} of {top}")
        return after, upto

    @property
    def horizon(self) -> int:
        return self.table.publisher.version.horizon

    def between(self, after: int, upto: int) -> OracleTable:
        """The oracle with no other rows. Of those before the horizon, what was replaced up to it is left out."""
        seen = max(upto, self.horizon)
        rows = [row for row in self.oracle.rows if after < row.born <= upto]
        return OracleTable(self.oracle.schema, self.oracle.time, self.oracle.key, rows, seen)

    def asked(self, ask: Callable[[], tw.Result]) -> tw.Result:
        """The answer to a question, of a moment with one horizon: a flush in the background may raise it."""
        while True:
            before = self.horizon
            result = ask()
            if self.horizon == before:
                return result

    @rule(a=fractions, b=fractions)
    def changes(self, a: float, b: float) -> None:
        after, upto = self.interval(a, b)
        result = self.asked(lambda: self.table.query(Query(after=after, upto=upto)))
        expected = self.between(after, upto).query()
        assert len(result) == len(expected)
        same_rows(result.to_arrow(), expected)

    @rule(a=fractions, b=fractions, seed=seeds, which=st.sampled_from([None, 0, 3]))
    def changes_of_some_rows(self, a: float, b: float, seed: int, which: int | None) -> None:
        after, upto = self.interval(a, b)
        rng, self.stream.rng = self.stream.rng, random.Random(seed)
        asked: dict[str, Any] = self.stream.key_bounds() | ({"time": self.stream.time_bounds()} if seed % 2 else {})
        self.stream.rng = rng
        plain = {n: v if n != "key" or isinstance(v, tuple) else (v, v) for n, v in asked.items()}
        where, condition = (None, None) if which is None else wheres()[which]
        result = self.asked(lambda: self.table.query(Query(after=after, upto=upto, where=where, columns=[SERIAL], **asked)))
        same_rows(result.to_arrow(), self.between(after, upto).query(where=condition, columns=[SERIAL], **plain))

    @rule(a=fractions)
    def as_it_was(self, a: float) -> None:
        upto = round(a * self.oracle.generation)
        try:
            result = self.table.query(Query(upto=upto))
        except tw.QueryError as e:
            assert upto < self.horizon, e
        else:
            same_rows(result.to_arrow(), self.oracle.query(at=upto))

    @rule(a=fractions, most=st.sampled_from([None, 0, 1, 30, 1000]))
    def count(self, a: float, most: int | None) -> None:
        after = round(a * self.oracle.generation)
        version = self.table.publisher.version
        unmasked = Version(version.generation, version.chunks, version.sealed, version.live, (), version.coder)
        stored = LocalResult(self.table.planner, unmasked, Query(columns=[SERIAL])).to_arrow()[SERIAL].to_pylist()
        born = {row.values[SERIAL]: row.born for row in self.oracle.rows}
        assert {row.values[SERIAL] for row in self.oracle.rows if row.died == NEVER} <= set(stored)
        counts = Counter(born[serial] for serial in stored if born[serial] > after)
        want: list[tuple[int, int]] = []
        for generation in sorted(counts):
            want.append((generation, counts[generation] + (want[-1][1] if want else 0)))
        if most is not None:
            want = [pair for pair in want if pair[1] <= most] or want[:1]
        assert rows_by_generation(version, after, None, most) == want

    def teardown(self) -> None:
        try:
            if self.wh is not None:
                self.every_row_once()
                self.table.flush()
                self.every_row_once()
                assert self.wh.check().ok
        finally:
            if self.wh is not None:
                self.wh.close()
            shutil.rmtree(self.root, ignore_errors=True)

    def every_row_once(self) -> None:
        """A reader that takes the changes piece by piece has at the end what the table had, with rows that were replaced later and are
        still there."""
        while any(job for job in self.table.publisher.jobs):
            self.table.flush()
        cuts = sorted(self.stream.rng.choices(range(self.oracle.generation + 1), k=8))
        found: list[pa.RecordBatch] = []
        for after, upto in zip([0, *cuts], [*cuts, self.oracle.generation], strict=True):
            found += self.table.query(Query(after=after, upto=upto)).to_batches()
        ends = [*cuts, self.oracle.generation]
        same_rows(found, [r.values for r in self.oracle.rows if max(self.horizon, next(e for e in ends if e >= r.born)) < r.died])


@pytest.mark.timeout(20 * 300 if SOAK else 300)
def test_changes() -> None:
    run_state_machine_as_test(Changes, settings=settings(max_examples=examples(20), stateful_step_count=25))
