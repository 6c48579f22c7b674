"""Random tables, batches, flushes, template updates, replaces, reopens and queries: every answer is the oracle's answer."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from collections import Counter
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import tidewheel as tw
from tests.conftest import SOAK, examples
from tidewheel.testing.abandon import abandon
from tidewheel.testing.oracle import OracleTable, difference, frozen, in_order, natural, rows_of, same_rows
from tidewheel.testing.probe import Probe
from tidewheel.testing.strategies import SERIAL, SIGN, TIME, BatchStream, TableCase, table_cases, wheres

seeds = st.integers(0, 2**32)
sizes = st.sampled_from([0, 1, 2, 3, 7, 20, 100, 400, 400, 1500])

tiny = st.builds(
    tw.Settings,
    chunk_bytes=st.sampled_from([4096, 16384, 65536]),
    leaf_rows=st.sampled_from([4, 16]),
    zero_copy_rows=st.sampled_from([1, 8, 4096]),
    batch_rows=st.sampled_from([1, 7, 65536]),
    sealed_trees=st.sampled_from([1, 2]),
    late_after=st.sampled_from([0.0, 60.0]),
    indexing_servers=st.integers(1, 3),
)


ORDERS = [[(SERIAL, True)], [(TIME, False), (SERIAL, True)], [(SIGN, True), (SERIAL, False)], [(TIME, True)], [("k", False)]]


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="tidewheel-machine-")
        self.wh: tw.Warehouse | None = None
        self.pinned: list[tuple[tw.Result, dict[str, Any], int]] = []
        self.packages: list[str] = []

    @initialize(case=table_cases(), options=tiny, seed=seeds)
    def create(self, case: TableCase, options: tw.Settings, seed: int) -> None:
        self.case = case
        self.options = options
        self.stream = BatchStream(case, random.Random(seed))
        self.oracle = OracleTable(case.schema, case.time, case.key)
        self.wh = tw.open(self.root, settings=options)
        self.table = self.wh.create_table("t", case.schema, time=case.time, key=case.key, partition=case.partition)
        self.schema = self.table.schema  # as given, but for wider dictionary indices
        assert self.schema.names == case.schema.names and self.schema.metadata == case.schema.metadata

    # ---- writing ----------------------------------------------------------------------------------------

    @rule(
        rows=sizes,
        late=st.booleans(),
        extreme=st.booleans(),
        hot=st.sampled_from([0.0, 0.9]),
        spare=st.sampled_from([0, 3]),
        shape=st.sampled_from("btp"),
    )
    def insert(self, rows: int, late: bool, extreme: bool, hot: float, spare: int, shape: str) -> None:
        batch = self.stream.batch(rows, late=late, extreme=extreme, hot=hot, spare=spare)
        given: Any = batch
        if shape == "t":
            given = pa.Table.from_batches([batch.slice(0, rows // 2), batch.slice(rows // 2)], batch.schema)
        elif shape == "p":
            given = pa.Table.from_batches([batch]).select(list(reversed(batch.schema.names)))
        ack = self.table.insert(given)
        assert ack.rows == rows
        self.oracle.insert(batch)

    @rule(rows=st.sampled_from([20, 300]), late=st.booleans())
    def insert_one_by_one(self, rows: int, late: bool) -> None:
        batch = self.stream.batch(rows, late=late)
        for i in range(rows):
            self.table.insert(batch.slice(i, 1))
        self.oracle.insert(batch)

    @rule(rows=sizes, late=st.booleans())
    def insert_package(self, rows: int, late: bool) -> None:
        name = f"package {len(self.packages)}"
        self.packages.append(name)
        batch = self.stream.batch(rows, late=late)
        ack = self.table.insert(batch, package=name)
        assert ack.rows == rows and not ack.duplicate
        assert self.table.insert(batch, package=name).duplicate
        self.oracle.insert(batch)

    @precondition(lambda self: self.packages)
    @rule(which=st.integers(0, 100))
    def insert_package_again(self, which: int) -> None:
        assert self.table.insert(self.stream.batch(3), package=self.packages[which % len(self.packages)]).duplicate

    @rule(rows=sizes, seed=seeds)
    def replace(self, rows: int, seed: int) -> None:
        """Rows whose times lie in an interval, for those that were there."""
        rng = random.Random(seed)
        batch = self.stream.batch(rows, late=rng.random() < 0.5, extreme=rng.random() < 0.2)
        times = [row[TIME] for row in rows_of(batch)]
        lo, hi = (min(times), max(times)) if times else (self.stream.now - 5 * self.stream.second, self.stream.now)
        interval = (rng.choice([lo, lo, lo - self.stream.second, None]), rng.choice([hi, hi, hi + self.stream.second, None]))
        ack = self.table.replace(batch, time=interval)
        assert ack.rows == rows
        self.oracle.replace(batch, interval)

    # ---- what must not be seen --------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        self.table.flush()

    @rule()
    def update_templates(self) -> None:
        publisher = Probe(self.table).publisher
        with publisher.lock:
            for server in publisher.servers:
                server.check_at = 0
        with mock.patch.multiple("tidewheel.write.templates", ENOUGH=0, PAYS=-1e9):
            publisher.redivide()

    @rule()
    def divide_servers_anew(self) -> None:
        """As if the servers' shares had drifted apart."""
        with mock.patch("tidewheel.write.publish.is_uneven", lambda *_: True):
            Probe(self.table).publisher.seal()

    @rule(servers=st.integers(1, 3))
    def reopen(self, servers: int) -> None:
        assert self.wh is not None
        self.wh.close()
        self.open_again(servers)
        found = self.wh.recovery
        assert found.owner is None and not found.tables
        assert not found.orphans or self.pinned  # files of chunks that left stay while they are read, also beyond the close

    @rule(servers=st.integers(1, 3), twice=st.booleans())
    def crash(self, servers: int, twice: bool) -> None:
        """The owner dies, perhaps again before what it brought back is flushed: nothing that was acknowledged is lost."""
        for _ in range(1 + twice):
            assert self.wh is not None
            abandon(self.wh)
            self.open_again(servers)

    def open_again(self, servers: int) -> None:
        options = {name: getattr(self.options, name) for name in tw.Settings.__dataclass_fields__} | {"indexing_servers": servers}
        self.wh = tw.open(self.root, settings=tw.Settings(**options))
        self.table = self.wh.table("t")
        assert self.table.schema.equals(self.schema, check_metadata=True)

    # ---- asking -----------------------------------------------------------------------------------------

    def bounds(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same bounds for the engine and for the oracle."""
        rng = self.stream.rng
        self.stream.rng = random.Random(seed)
        asked: dict[str, Any] = {}
        if self.stream.rng.random() < 0.8:
            asked |= self.stream.key_bounds()
        if self.stream.rng.random() < 0.6:
            asked["time"] = self.stream.time_bounds()
        self.stream.rng = rng
        plain = dict(asked)
        if "key" in plain and not isinstance(plain["key"], tuple):
            plain["key"] = (plain["key"], plain["key"])
        note(f"bounds: {asked}")
        return asked, plain

    @rule()
    def replace_everything(self) -> None:
        batch = self.stream.batch(7)
        self.table.replace(batch, time=(None, None))
        self.oracle.replace(batch, (None, None))

    @rule()
    def nothing_is_left_over(self) -> None:
        """What the disk has is what the table has, and what a result still reads."""
        assert self.wh is not None
        report = self.wh.check()
        assert report.ok and not report.problems, report

    @rule()
    def count(self) -> None:
        assert self.table.rows == self.oracle.count()
        same_rows(self.table.query().to_arrow(), self.oracle.query())

    @rule(seed=seeds, form=st.sampled_from(["arrow", "iterate", "stream", "len"]))
    def query(self, seed: int, form: str) -> None:
        asked, plain = self.bounds(seed)
        result = self.table.query(**asked)
        expected = self.oracle.query(**plain)
        if form == "len":
            assert len(result) == len(expected)
        table = (
            result.to_arrow()
            if form in ("arrow", "len")
            else pa.table(result)
            if form == "stream"
            else pa.Table.from_batches(list(result), result.schema)
        )
        assert table.schema.equals(self.schema)
        table.validate(full=True)
        same_rows(table, expected)
        assert len(result) == len(expected)

    @rule(
        seed=seeds,
        which=st.integers(0, 5),
        columns=st.sampled_from([None, [SERIAL], [TIME, SERIAL], [SIGN]]),
        limit=st.sampled_from([None, None, 0, 1, 5]),
    )
    def query_where(self, seed: int, which: int, columns: list[str] | None, limit: int | None) -> None:
        asked, plain = self.bounds(seed)
        where, condition = wheres()[which]
        expected = self.oracle.query(**plain, where=condition, columns=columns)
        result = self.table.query(**asked, where=where, columns=columns, limit=limit)
        self.some_of(result, expected, limit)

    @rule(seed=seeds, limit=st.sampled_from([0, 1, 3, 50, 100_000]))
    def query_limit(self, seed: int, limit: int) -> None:
        asked, plain = self.bounds(seed)
        self.some_of(self.table.query(**asked, limit=limit), self.oracle.query(**plain), limit)

    def some_of(self, result: tw.Result, expected: list[dict[str, Any]], limit: int | None) -> None:
        """Without an order, any `limit` of the rows will do."""
        if limit is None:
            return same_rows(result.to_arrow(), expected)
        found = rows_of(pa.Table.from_batches(list(result), result.schema))
        assert len(found) == len(result) == min(limit, len(expected))
        extra = _counter(found) - _counter(expected)
        assert not extra, difference(_counter(found), _counter(expected))
        return None

    @rule(
        seed=seeds,
        order=st.sampled_from(ORDERS),
        limit=st.sampled_from([None, 0, 1, 10]),
    )
    def query_order(self, seed: int, order: list[tuple[str, bool]], limit: int | None) -> None:
        if any(c not in self.case.schema.names for c, _ in order):
            return
        asked, plain = self.bounds(seed)
        result = self.table.query(
            **asked, order_by=", ".join(f"{c} {'desc' if d else 'asc'}" for c, d in order), limit=limit, columns=[c for c, _ in order]
        )
        expected = self.oracle.query(**plain)
        for column, descending in reversed(order):
            expected = in_order(expected, column, descending)
        want = [tuple(natural(row[c]) for c, _ in order) for row in expected[:limit]]
        assert [tuple(natural(row[c]) for c, _ in order) for row in rows_of(result.to_arrow())] == want

    @rule(seed=seeds)
    def pin(self, seed: int) -> None:
        """Keep a result; it shows what was there when it was asked for, whatever happens after."""
        asked, plain = self.bounds(seed)
        self.pinned.append((self.table.query(**asked), plain, self.oracle.generation))

    @precondition(lambda self: self.pinned)
    @rule(which=st.integers(0, 100))
    def read_pinned(self, which: int) -> None:
        result, plain, at = self.pinned.pop(which % len(self.pinned))
        same_rows(result.to_arrow(), self.oracle.query(**plain, at=at))
        assert len(result) == len(self.oracle.query(**plain, at=at))

    def teardown(self) -> None:
        try:
            if self.wh is not None:
                for result, plain, at in self.pinned:
                    same_rows(list(result), self.oracle.query(**plain, at=at))
                self.count()
                self.wh.close()
        finally:
            with contextlib.suppress(Exception):
                if self.wh is not None:
                    self.wh.close()
            shutil.rmtree(self.root, ignore_errors=True)


def _counter(rows: list[dict[str, Any]]) -> Counter[Any]:
    return Counter(frozen(row) for row in rows)


@pytest.mark.timeout(20 * 300 if SOAK else 300)
def test_machine() -> None:
    with mock.patch("tidewheel.read.scan.MANY_HOLES", 2):  # so that few masks are sieved by
        run_state_machine_as_test(Machine, settings=settings(max_examples=examples(20), stateful_step_count=25))
