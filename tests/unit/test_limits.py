"""Limits and cancellation: a query that takes too much, or is not wanted any more, ends soon, says why, and leaves nothing behind."""

from __future__ import annotations

import gc
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.chunks import chunks_left
from tests.hand_clock import HandClock
from tidewheel.chunk.reader import Chunk
from tidewheel.duck import evaluator
from tidewheel.duck.lifetime import Kept
from tidewheel.env.disk import Disk
from tidewheel.read import limits, materialise, ordering
from tidewheel.testing.probe import Probe
from tidewheel.write import ahead

N = 300_000
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.float64()), ("text", pa.string())])
DIGEST = "md5(" * 300 + "text || ts" + ")" * 300
SLOW = f"{DIGEST} <> ''"
"""An expression that takes six seconds of a processor over all rows, or more."""
SLOW_ROW = "list_sum(list_transform(range(2000 + id), lambda x: list_reduce(range(2000 + id), lambda a, b: (a + b + x) % 97))) >= 0"
"""One that takes ten over 300 rows."""


@cache
def rows(n: int = N) -> pa.Table:
    """Keys in an order that has nothing to do with time."""
    i = np.arange(n)
    text = pa.array([f"text of row {j % 1000}" for j in range(n)])
    return pa.table([i * 7919 % 1000, pa.array(i, pa.timestamp("us")), (i % 70).astype(float), text], schema=SCHEMA)


COPIED = tw.Settings(zero_copy_rows=10**9, batch_rows=10_000)


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    """Everything is copied, in small batches."""
    with tw.open(tmp_path / "wh", settings=COPIED) as wh:
        yield wh


@pytest.fixture
def table(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> tw.Table:
    """One chunk, whose blocks are left to the queries to verify."""
    monkeypatch.setattr(ahead, "LEAST_ROWS", N + 1)
    table = wh.create_table("t", SCHEMA, time="ts", key="id")
    table.insert(rows())
    table.flush()
    return table


class Soon:
    """Asserts that work which would take six seconds of a processor ends long before. A busy machine makes no difference: the time of
    the processor is taken, here and in processes apart."""

    def __enter__(self) -> None:
        self.began = sum(os.times()[:4])

    def __exit__(self, *_: object) -> None:
        took = sum(os.times()[:4]) - self.began
        assert took < 3, f"took {took:.2f} s"


def slow_function(batch: pa.RecordBatch) -> Any:
    """Nine seconds over all rows."""
    time.sleep(0.3)
    return np.ones(batch.num_rows, bool)


class Takes:
    """A function that takes so many seconds of a clock; counts its calls."""

    def __init__(self, clock: HandClock, seconds: float, real: Callable[..., Any]) -> None:
        self.clock, self.seconds, self.real = clock, seconds, real
        self.calls = 0

    def __call__(self, *args: Any, **more: Any) -> Any:
        self.calls += 1
        self.clock.advance(self.seconds)
        return self.real(*args, **more)


def every(batch: pa.RecordBatch) -> Any:
    return np.ones(batch.num_rows, bool)


READS: dict[str, Callable[[tw.Table, Any], Any]] = {
    "where": lambda t, more: t.query(where=SLOW, **more).to_arrow(),
    "iterated": lambda t, more: list(t.query(where=SLOW, **more)),
    "few rows": lambda t, more: t.query(key=5, where=SLOW_ROW, **more).to_arrow(),
    "counted": lambda t, more: len(t.query(where=SLOW, **more)),
    "aggregate": lambda t, more: t.query(aggregate={"n": f"max({DIGEST})"}, **more).to_arrow(),
    "function": lambda t, more: list(t.query(where=slow_function, **more)),
    "function, grouped": lambda t, more: list(t.query(where=slow_function, group_by=["id"], **more)),
    "sorted": lambda t, more: t.query(order_by="x desc, ts", **more).to_arrow(),
}


@pytest.fixture
def everything_slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A sort takes no time here and would take long with more rows: this one takes until the test is over, in a thread of its own."""
    over, sort = threading.Event(), ordering.sort
    monkeypatch.setattr(ordering, "sort", lambda *args, **more: (over.wait(60), sort(*args, **more))[1])
    yield
    over.set()


class TestTimeout:
    @pytest.mark.parametrize("read", READS)
    def test_it_ends_every_long_step(self, table: tw.Table, read: str, everything_slow: None) -> None:
        with Soon(), pytest.raises(tw.LimitError, match=r"longer than its timeout of 0\.2 s; narrow it, or give it more time"):
            READS[read](table, {"timeout": 0.2})
        assert len(table.query(where="x >= 0", limit=10).to_arrow()) == 10  # the evaluator goes on
        assert table.query(aggregate={"n": "count(*)"}).to_arrow().to_pylist() == [{"n": N}]

    def test_planning_counts(self, table: tw.Table, monkeypatch: pytest.MonkeyPatch, clock: HandClock) -> None:
        verify = Takes(clock, 10, Chunk.verify)
        monkeypatch.setattr(Chunk, "verify", lambda *given: verify(*given))
        with pytest.raises(tw.LimitError, match=r"timeout of 25 s"):
            table.query(key=(5, 6), time=(1000, 200_000), timeout=25).to_arrow()
        assert verify.calls == 3

    def test_planning_is_part_of_the_time(self, table: tw.Table, wh: tw.Warehouse, tmp_path: Path, clock: HandClock) -> None:
        wh.close()  # so that a query has to open the chunk
        for timeout in (60, 100):
            with tw.open(tmp_path / "wh", settings=COPIED) as again, pytest.MonkeyPatch.context() as slow:
                opened, where = Takes(clock, 50, Chunk._map), Takes(clock, 1, every)
                slow.setattr(Chunk, "_map", lambda *given, opened=opened: opened(*given))
                result = again.table("t").query(key=(0, 998), timeout=timeout, where=where)
                assert opened.calls == 1
                if timeout == 60:
                    with pytest.raises(tw.LimitError, match="timeout"):
                        list(result)
                    assert where.calls == 11
                else:
                    assert sum(batch.num_rows for batch in result) == N - 300

    def test_an_expression_that_is_slow_to_plan(self, table: tw.Table) -> None:
        """What is constant in it is worked out before the first row."""
        slow = SLOW_ROW.replace("id", "300")
        with Soon(), pytest.raises(tw.LimitError, match="timeout"):
            table.query(where=f"x > 0 and {slow}", timeout=0.2).to_arrow()

    def test_one_large_copy(self, table: tw.Table, monkeypatch: pytest.MonkeyPatch, clock: HandClock) -> None:
        schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), *((f"t{c}", pa.string()) for c in range(10))])
        monkeypatch.setattr(materialise, "_LARGE", 100)
        column = Takes(clock, 5, materialise._column)
        monkeypatch.setattr(materialise, "_column", column)
        with tw.open(Path(str(Probe(table).owner.files.root) + "-2")) as other:
            wide = other.create_table("w", schema, time="ts", key="id")
            some = rows(2000)
            wide.insert(pa.table([some["id"], some["ts"], *([some["text"]] * 10)], schema=schema))
            with pytest.raises(tw.LimitError, match="timeout"):
                wide.query(timeout=12).to_arrow()
            assert column.calls == 3

    def test_a_default_for_all_queries(self, tmp_path: Path, clock: HandClock) -> None:
        with tw.open(tmp_path, settings=tw.Settings(query_seconds=25, batch_rows=1000)) as wh:
            table = wh.create_table("t", SCHEMA, time="ts", key="id")
            table.insert(rows(5000))
            where = Takes(clock, 10, every)
            with pytest.raises(tw.LimitError, match=r"timeout of 25 s"):
                list(table.query(where=where))
            assert where.calls == 3
            assert sum(b.num_rows for b in table.query(where=where, timeout=60)) == 5000
            assert sum(b.num_rows for b in table.query(where=where, timeout=math.inf)) == 5000

    def test_what_the_caller_does_between_two_batches_does_not_count(self, table: tw.Table, clock: HandClock) -> None:
        seen = 0
        for batch in table.query(timeout=60, columns=["id"]):
            seen += batch.num_rows
            clock.advance(100)
        assert seen == N

    @pytest.mark.parametrize("limit", ["timeout", "max_rows", "max_bytes"])
    @pytest.mark.parametrize("wrong", ["soon", -1, True, float("nan")])
    def test_what_is_no_limit(self, table: tw.Table, limit: str, wrong: Any) -> None:
        with pytest.raises(tw.QueryError, match=f"{limit} is a number of"):
            table.query(**{limit: wrong})


class TestRows:
    def test_as_many_as_allowed_and_one_more(self, table: tw.Table) -> None:
        there = len(table.query(key=5))
        for more in ({}, {"where": "x >= 0"}, {"order_by": "ts"}, {"columns": ["id"]}):
            assert len(table.query(key=5, max_rows=there, **more).to_arrow()) == there
            with pytest.raises(tw.LimitError, match=rf"more than {there - 1:,} rows, its max_rows; narrow it, say limit="):
                table.query(key=5, max_rows=there - 1, **more).to_arrow()

    def test_nothing_is_read_if_it_is_known_before(self, table: tw.Table, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tidewheel.read.local_result.rows_of", lambda *_: pytest.fail("a row was read"))
        with pytest.raises(tw.LimitError, match="max_rows"):
            next(iter(table.query(max_rows=1000)))

    def test_a_limit_within_it(self, table: tw.Table) -> None:
        assert len(table.query(max_rows=100, limit=100).to_arrow()) == 100
        assert len(table.query(max_rows=100, group_by=["text"], limit=100).to_arrow()) == 100
        with pytest.raises(tw.LimitError, match="max_rows"):
            table.query(max_rows=100, group_by=["text"]).to_arrow()

    def test_counting_and_looking_are_no_reading(self, table: tw.Table) -> None:
        assert len(table.query(max_rows=10)) == N
        assert len(table.query(max_rows=10, where="x >= 0")) == N
        assert "max_rows" in repr(table.query(max_rows=10))

    def test_a_default_for_all_queries(self, tmp_path: Path) -> None:
        with tw.open(tmp_path, settings=tw.Settings(query_rows=100)) as wh:
            table = wh.create_table("t", SCHEMA, time="ts", key="id")
            table.insert(rows(1000))
            with pytest.raises(tw.LimitError, match=r"Settings\.query_rows"):
                table.query().to_arrow()
            assert len(table.query(max_rows=1000).to_arrow()) == len(table.query(max_rows=math.inf).to_arrow()) == 1000


class TestBytes:
    @pytest.mark.parametrize(
        "query",
        [
            {},
            {"columns": ["text"]},
            {"columns": ["id"], "time": (1, N - 2)},
            {"where": "x >= 0"},
            {"where": lambda b: np.ones(b.num_rows, bool)},
            {"order_by": "x"},
            {"group_by": ["ts", "text"]},
        ],
    )
    def test_a_result_taken_whole(self, table: tw.Table, query: dict[str, Any]) -> None:
        before = pa.total_allocated_bytes()
        with pytest.raises(tw.LimitError, match=r"more than (2|64) MB of memory.*max_bytes") as error:
            table.query(max_bytes=2 << 20, **query).to_arrow()
        del error
        assert pa.total_allocated_bytes() - before < 1 << 20
        assert len(table.query(max_bytes=1 << 30, **query).to_arrow()) >= N - 2

    def test_iterated_it_needs_a_batch_at_a_time(self, tmp_path: Path) -> None:
        with tw.open(tmp_path, settings=tw.Settings(batch_rows=1000)) as wh:
            table = wh.create_table("t", SCHEMA, time="ts", key="id")
            table.insert(rows(20_000))
            for query in ({}, {"where": "x >= 0"}, {"columns": ["text", "id"]}, {"time": (3, 15_000)}):
                assert sum(b.num_rows for b in table.query(max_bytes=1 << 17, **query)) > 10_000
                with pytest.raises(tw.LimitError, match="128 KB"):
                    table.query(max_bytes=1 << 17, **query).to_arrow()

    def test_what_is_mapped_takes_none(self, table: tw.Table, wh: tw.Warehouse, tmp_path: Path) -> None:
        wh.close()
        with tw.open(tmp_path / "wh") as wh:
            assert len(wh.table("t").query(max_bytes=1000).to_arrow()) == N
            with pytest.raises(tw.LimitError, match="more than 1000 bytes of memory"):
                wh.table("t").query(max_bytes=1000, where="x >= 0").to_arrow()

    def test_what_is_fetched_does(self, table: tw.Table, wh: tw.Warehouse, tmp_path: Path) -> None:
        wh.close()
        with tw.open(tmp_path / "wh", settings=tw.Settings(map_chunks=False, batch_rows=1000)) as wh:
            with pytest.raises(tw.LimitError, match="2 MB"):
                wh.table("t").query(max_bytes=2 << 20).to_arrow()
            assert len(wh.table("t").query(max_bytes=1 << 30).to_arrow()) == N

    def test_the_best_few_need_little(self, table: tw.Table) -> None:
        best = table.query(order_by="ts desc", limit=5, columns=["ts"], max_bytes=16 << 20).to_arrow()
        assert best["ts"].cast(pa.int64()).to_pylist() == list(range(N - 1, N - 6, -1))

    def test_few_groups_need_little(self, table: tw.Table) -> None:
        assert len(table.query(group_by=["id"], aggregate={"n": "count(*)"}, max_bytes=16 << 20).to_arrow()) == 1000

    def test_the_default_is_half_of_the_memory(self, table: tw.Table) -> None:
        assert Probe(table).planner.limits.bytes == 0.5 * limits.machine_memory() > 1 << 27
        assert limits.Limits.of(tw.Settings(query_bytes=None)).bytes == math.inf
        assert limits.Limits.of(tw.Settings(query_bytes=1 << 20)).bytes == 1 << 20


class TestCancel:
    @pytest.mark.parametrize("read", ["where", "iterated", "counted", "aggregate", "function", "function, grouped", "sorted"])
    def test_from_another_thread(self, wh: tw.Warehouse, tmp_path: Path, read: str, everything_slow: None) -> None:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        table.insert(rows())
        table.flush()
        made: list[tw.Result] = []

        class Asked:
            """A table that keeps the result it made."""

            def __init__(self, table: tw.Table) -> None:
                self.table = table

            def query(self, **query: Any) -> tw.Result:
                made.append(self.table.query(**query))
                threading.Timer(0.3, made[0].cancel).start()  # not before: the first query of a process may take longer to make
                return made[0]

        gc.disable()  # what is let go of is let go of at once
        try:
            with Soon(), pytest.raises(tw.CancelledError, match="cancelled"):
                READS[read](Asked(table), {})  # type: ignore[arg-type]
            with pytest.raises(tw.LimitError, match="ask it again"):
                made[0].to_arrow()
            assert len(table.query(where="x >= 0", limit=10).to_arrow()) == 10
            # the result is still there, and pins nothing
            wh.drop_table("t")
            del table
            assert not chunks_left(tmp_path)
        finally:
            gc.enable()

    def test_before_it_is_read(self, table: tw.Table) -> None:
        result = table.query()
        result.cancel()
        result.cancel()
        for read in (len, list, repr, lambda r: r.plan, lambda r: r.generation, lambda r: r.to_arrow()):
            if read is repr:
                assert "cancelled" in repr(result)
                continue
            with pytest.raises(tw.CancelledError):
                read(result)

    def test_between_two_batches(self, table: tw.Table) -> None:
        result = table.query(time=(1, N - 2))
        batches = iter(result)
        next(batches)
        result.cancel()
        with pytest.raises(tw.CancelledError):
            next(batches)


@pytest.mark.usefixtures("interruptible")
class TestInterrupt:
    @pytest.mark.parametrize("read", READS)
    def test_ctrl_c(self, wh: tw.Warehouse, tmp_path: Path, read: str, everything_slow: None) -> None:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        table.insert(rows())
        table.flush()
        gc.disable()
        try:
            timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
            with Soon(), pytest.raises(KeyboardInterrupt):
                timer.start()
                READS[read](table, {"timeout": 60} if read == "few rows" else {})
            assert len(table.query(where="x >= 0", limit=10).to_arrow()) == 10
            assert table.query(aggregate={"n": "count(*)"}).to_arrow().to_pylist() == [{"n": N}]
            wh.drop_table("t")
            del table
            assert not chunks_left(tmp_path)
        finally:
            gc.enable()


class TestBatchSize:
    def test_a_batch_that_is_too_large(self, tmp_path: Path) -> None:
        some = rows(10_000)
        size = sum(b.nbytes for b in some.to_batches())
        with tw.open(tmp_path, settings=tw.Settings(max_batch_bytes=size)) as wh:
            table = wh.create_table("t", SCHEMA, time="ts", key="id")
            assert table.insert(some).rows == 10_000
            said = rf"table 't': this batch has [\d,]+ bytes of rows, and one insert takes at most {size:,}.*in 2 or more parts"
            for data in (pa.concat_tables([some, some.slice(0, 500)]), pa.concat_tables([some, some.slice(0, 500)]).combine_chunks()):
                for wanted in (data, data.to_batches()[0] if data["id"].num_chunks == 1 else data, data.to_pylist()):
                    with pytest.raises(tw.InputError, match=said):
                        table.insert(wanted)
            with pytest.raises(tw.InputError, match=said):
                table.replace(pa.concat_tables([some, some.slice(0, 500)]), time=(None, None))
            with pytest.raises(tw.InputError, match=said):
                table.insert(pa.concat_tables([some, some.slice(0, 500)]), package="a")
            assert table.rows == 10_000
            assert table.insert(some, package="a").rows == 10_000  # the refused one does not count as loaded

    def test_rows_of_one_size_are_only_counted(self, tmp_path: Path) -> None:
        schema = SCHEMA.remove(3)
        some = rows(1000).select(schema.names).combine_chunks().to_batches()[0]
        with tw.open(tmp_path, settings=tw.Settings(max_batch_bytes=24_000)) as wh:
            table = wh.create_table("t", schema, time="ts", key="id")
            assert table.insert(some).rows == 1000
            with pytest.raises(tw.InputError, match="24,024 bytes"):
                table.insert(rows(1001).select(schema.names).combine_chunks().to_batches()[0])

    def test_a_small_part_of_something_large(self, tmp_path: Path) -> None:
        """The size is that of the rows, not of the memory they lie in."""
        with tw.open(tmp_path, settings=tw.Settings(max_batch_bytes=4096)) as wh:
            table = wh.create_table("t", SCHEMA, time="ts", key="id")
            assert table.insert(rows(10_000).combine_chunks().to_batches()[0].slice(5000, 20)).rows == 20


def test_back_pressure_shows_in_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Disk.sync_file
    monkeypatch.setattr(Disk, "sync_file", lambda *a: (time.sleep(0.2), real(*a))[1])
    with tw.open(tmp_path, settings=tw.Settings(chunk_bytes=64 << 10, sealed_trees=1, durability="memory")) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        before = table.metrics()
        assert before.waits == before.wait_seconds == before.rows == 0
        for _ in range(8):
            table.insert(rows(2000))
        after = table.metrics()
        assert after.rows == 16_000 and after.batches == 8
        assert after.waits >= 3 and after.wait_seconds > 0.3
        assert after.flushes >= 3 and after.flush_seconds > 0.5
        assert before.rows == 0, "a copy"
    assert after.wait_seconds < 10


def test_the_evaluator_is_locked_however_its_start_ends(monkeypatch: pytest.MonkeyPatch, table: tw.Table) -> None:
    """An interrupt while the evaluator is set up must not leave one behind that can read files."""
    monkeypatch.setattr(evaluator, "_evaluator", Kept())
    real = evaluator.connect
    monkeypatch.setattr(evaluator, "connect", lambda memory: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        table.query(where="x + 1 > 3 and id > -1")
    assert not evaluator._evaluator.items
    monkeypatch.setattr(evaluator, "connect", real)
    with pytest.raises(tw.QueryError):
        table.query(where="(read_text('/etc/hostname')).content = 'x'").to_arrow()
