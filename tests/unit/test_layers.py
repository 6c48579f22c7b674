"""Rows that are added to large partitions of a derived table: little is written for them, and no pile of chunks is left."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.derive.bounds import Bounds
from tidewheel.engine import local_derived, refresh_commit
from tidewheel.engine.operations import CreateDerived, PlanRefresh
from tidewheel.engine.refresher import refresh
from tidewheel.errors import ConflictError
from tidewheel.index.hidden import Hidden
from tidewheel.index.version import Change
from tidewheel.model.derived import APPEND, RECOMPUTE, SPARK_SQL, Definition, Mode
from tidewheel.model.partitions import Widths
from tidewheel.model.pieces import TMAX, TMIN
from tidewheel.model.records import MaskRecord
from tidewheel.model.schema import make_spec
from tidewheel.testing.abandon import abandon
from tidewheel.testing.duck_compute import DuckCompute
from tidewheel.testing.probe import Probe, engine_of
from tidewheel.write import layers, refreshes

START = dt.datetime(2026, 1, 1)
SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("plate", pa.int64()), ("speed", pa.int64())])
SQL = "SELECT ts, plate, speed FROM taxi WHERE speed > 5"


# ---- what is merged with what ---------------------------------------------------------------------------------


def chunks(*three: tuple[int, int, int]) -> Any:
    """(first time, last time, bytes) of each."""
    matrix = np.zeros((len(three), 40), np.int64)
    for n, (lo, hi, _) in enumerate(three):
        matrix[n, [TMIN, TMAX]] = lo, hi
    holders = [SimpleNamespace(record=SimpleNamespace(bytes=size)) for *_, size in three]
    return SimpleNamespace(matrix=matrix, count=len(three), holders=holders)


@pytest.mark.parametrize("new", [3_000, 300_000, 30_000_000])
def test_however_often_rows_come_chunks_are_few_and_rows_are_seldom_written(new: int) -> None:
    """One partition that grows from three megabytes to two gigabytes."""
    rng = random.Random(new)
    sizes, came, written = [3 << 20], 0, 0
    for _ in range(min(10_000, (2 << 30) // new)):
        size = rng.randint(1, 2 * new)
        merged = layers.layers_of(chunks(*((0, 9, one) for one in sizes)), Widths(10), {0: size}).merged
        total = size + sum(sizes[n] for n in merged)
        sizes = [one for n, one in enumerate(sizes) if n not in merged] + [total]
        came += size
        written += total if total >= layers.SMALL else 0  # the others are rows of few commits, and little
        assert total <= layers.LARGEST + layers.SMALL
        assert len(sizes) <= 6 + came // (layers.LARGEST // 8)
    assert written < 20 * came


def test_what_is_large() -> None:
    big, small = 3 << 20, 1 << 10
    # of 10 to 19 there are two chunks, 20 to 39 share one, of 40 to 49 there is little, of 50 to 59 nothing
    there = chunks((10, 12, big), (11, 19, small), (20, 25, big), (26, 31, big), (32, 39, big), (40, 44, small))
    found = layers.layers_of(there, Widths(10), {n: 100 for n in range(1, 6)})
    assert found.partitions == {1} and found.merged == (1,)
    assert layers.layers_of(there, Widths(10), {1: 1 << 20}).merged == (1, 0)  # not much larger than what is new
    assert layers.layers_of(there, Widths(10), {}).partitions == frozenset()


def test_one_commit_writes_only_so_much_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "LARGEST", 10 << 20)
    there = chunks(*((10 * n, 10 * n + 5, 4 << 20) for n in range(5)))
    found = layers.layers_of(there, Widths(10), dict.fromkeys(range(5), 2 << 20))
    assert found.partitions == set(range(5)) and found.merged == (4, 3)  # the newest; the others when rows come again


# ---- in a table -----------------------------------------------------------------------------------------------


class Added:
    """A table, the one that is derived from it by a filter, and the rows that each commit wrote."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: list[int] = []
        exchange = refreshes.exchange

        def counted(publisher: Any, flusher: Any, rows: pa.Table, *more: Any) -> None:
            self.written.append(rows.num_rows)
            exchange(publisher, flusher, rows, *more)

        monkeypatch.setattr(refresh_commit, "exchange", counted)
        monkeypatch.setattr(layers, "SMALL", 6000)
        monkeypatch.setattr(refreshes, "CHUNK_BYTES", 12_000)
        self.root = root
        self.wh = tw.open(root)
        self.wh.create_table("taxi", SCHEMA, time="ts", key="plate")
        self.duck = DuckCompute()
        spec = make_spec("fast", SCHEMA, time="ts", key="plate", partition="1 day")
        definition = Definition(SPARK_SQL, SQL, "", (Mode(APPEND, ""), Mode(RECOMPUTE, "")))
        engine_of(self.wh).do(CreateDerived(spec, definition, (("taxi", Bounds().to_json()),), "error"))
        self.rng = np.random.default_rng(5)

    def insert(self, many: int, first: float, days: float) -> None:
        times = [START + dt.timedelta(days=first + days * at) for at in self.rng.random(many).tolist()]
        taxi = self.wh.table("taxi")
        taxi.insert(pa.table([times, self.rng.integers(0, 20, many), self.rng.integers(0, 100, many)], schema=SCHEMA))

    def refresh(self) -> str:
        report = refresh(engine_of(self.wh), self.duck)
        for one in report.tables:
            if one.cause is not None:
                raise one.cause
        return str(report["fast"].mode)

    def check(self) -> None:
        fast = self.wh.table("fast")
        expected = in_order(self.wh.sql(SQL).to_arrow())
        assert in_order(fast.query().to_arrow()) == expected
        assert in_order(pa.concat_tables([fast.query(key=plate).to_arrow() for plate in range(20)])) == expected
        assert len(fast) == len(expected)

    def chunks_of(self, day: int) -> int:
        lo, hi = (int((START + dt.timedelta(days=n) - dt.datetime(1970, 1, 1)).total_seconds()) * 10**6 for n in (day, day + 1))
        return sum(lo <= one.record.time_hi and one.record.time_lo < hi for one in Probe(self.wh.table("fast")).version.chunks)


def in_order(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Added]:
    made = Added(tmp_path / "wh", monkeypatch)
    made.insert(6000, 0, 2)
    made.refresh()
    yield made
    assert made.wh.check().ok
    made.wh.close()
    made.duck.close()


def test_what_comes_to_a_large_partition_is_written_beside_it(added: Added) -> None:
    for turn in range(20):
        added.insert(40, turn % 2, 1)
        assert added.refresh() == APPEND
        assert not Probe(added.wh.table("fast")).version.hidden, "a mask is left"
        assert added.chunks_of(turn % 2) <= 5, turn
    added.check()
    assert sum(added.written[1:]) < 20 * 600 and min(added.written[1:]) < 80  # of 3,000 rows of each day, and more
    assert added.wh.table("fast").state().chunks <= 10


def test_small_partitions_and_large_ones_at_once(added: Added) -> None:
    for turn in range(7):
        added.insert(50, 0, 5)  # days two to four are new, and small at first
        assert APPEND in added.refresh()
        added.check()
        assert not Probe(added.wh.table("fast")).version.hidden, turn
    added.insert(2000, 3, 1)
    added.insert(10, 4.99, 0.02)
    added.refresh()
    added.check()


def test_only_of_large_partitions_little_is_counted(added: Added, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are read and written as a whole, and a set of partitions is only so large."""
    added.insert(200, 2, 3)
    added.refresh()
    added.insert(50, 0, 5)
    added.wh.table("taxi").flush()
    monkeypatch.setattr(local_derived, "BESIDE", 0)
    fast: Any = engine_of(added.wh).table("fast")
    (new,) = (one.bytes for one in fast.do(PlanRefresh()).sources)
    small = min(Probe(added.wh.table("fast")).version.chunks, key=lambda one: one.record.bytes).record
    assert small.bytes > new and len(small.partitions) == 3
    assert len(fast.do(PlanRefresh(most_bytes=new + small.bytes + 9)).partitions) == 5
    assert len(fast.do(PlanRefresh(most_bytes=small.bytes)).partitions) < 3


def test_it_goes_on_after_deaths_and_in_copies(added: Added, tmp_path: Path) -> None:
    for turn in range(4):
        added.insert(40, 0, 1)
        added.refresh()
        if turn % 2:
            abandon(added.wh)
        else:
            added.wh.backup(tmp_path / f"backup{turn}")
            added.wh.close()
            tw.restore(tmp_path / f"backup{turn}", tmp_path / f"wh{turn}")
            added.root = tmp_path / f"wh{turn}"
        added.wh = tw.open(added.root)
        added.check()


def test_a_partition_that_is_computed_anew_is_as_new(added: Added) -> None:
    for _ in range(4):
        added.insert(400, 0, 1)
        added.refresh()
    assert added.chunks_of(0) > 1
    taxi = added.wh.table("taxi")
    taxi.replace(taxi.query(limit=10).to_arrow().slice(0, 0), time=(START, START + dt.timedelta(minutes=10)))
    assert added.refresh() == RECOMPUTE
    added.check()
    assert added.chunks_of(0) == 1 and not Probe(added.wh.table("fast")).version.hidden


def test_rows_read_at_an_earlier_generation_are_those_of_then_or_an_error(added: Added) -> None:
    """Chunks that left are not read any more; what was only added to can be."""
    probe = Probe(added.wh.table("fast"))
    for turn in range(6):
        before, rows = probe.version.generation, in_order(probe.query().to_arrow())
        added.insert(40, 0, 1)
        added.refresh()
        if before >= probe.version.horizon:
            assert in_order(probe.query(tw_query(upto=before)).to_arrow()) == rows, turn


def test_rows_outside_of_all_spans_are_not_lost_in_silence(added: Added) -> None:
    table: Any = engine_of(added.wh).table("fast")
    rows, reserved = added.wh.table("fast").query(limit=7).to_arrow(), SimpleNamespace(generation=99, handed_over=False)
    with pytest.raises(AssertionError, match="0 rows of 7 lie"):
        refreshes.exchange(table.publisher, table.engine.flusher, rows, [(0, 9)], cast(Any, reserved), cast(Any, None))


def tw_query(**how: Any) -> Any:
    from tidewheel.model.query import Query

    return Query(**how)


def test_masks_that_only_leaving_chunks_needed_are_looked_for_again(added: Added) -> None:
    """Also where this commit looked for such masks everywhere: then these chunks were still there."""
    commits = cast(Any, engine_of(added.wh)).commits
    publisher = SimpleNamespace(untidy=True, version=SimpleNamespace(hidden=Hidden([MaskRecord(0, 1, 1, "refresh")]), generation=9))
    change = commits._without(publisher, Change(everywhere=True), frozenset({"one"}))
    assert publisher.untidy and not change.everywhere and change.remove == {"one"} and change.horizon == 9
    with pytest.raises(AssertionError, match="a generation of their own"):
        commits.load(publisher, [], (), None, leaving=frozenset({"one"}))


def test_a_backup_lets_no_chunk_go(added: Added) -> None:
    added.insert(40, 0, 1)
    added.refresh()
    added.insert(40, 0, 1)
    engine: Any = engine_of(added.wh)
    with engine.commits.keeping(), pytest.raises(ConflictError, match="a backup has begun"):
        added.refresh()
    assert added.refresh() == APPEND
    added.check()
