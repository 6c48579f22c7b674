"""Late rows: visible at once like all others, kept apart on disk so that ordinary regions stay tight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.testing.probe import Probe

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("n", pa.int64())])
SECOND = 1_000_000
PER_CHUNK = 5_000
CHUNKS = 20


def rows(ids: np.ndarray, seconds: np.ndarray, first: int) -> pa.Table:
    n = np.arange(first, first + len(ids))
    return pa.table([ids, pa.array((seconds * SECOND).astype(np.int64), pa.timestamp("us")), n], schema=SCHEMA)


def stream(table: tw.Table, late_share: float = 0.01) -> int:
    """Twenty chunks of 100 s each; of every chunk's rows, one in a hundred is up to an hour late."""
    rng = np.random.default_rng(1)
    total = 0
    for c in range(CHUNKS):
        seconds = 10_000 + 100 * c + np.sort(rng.uniform(0, 100, PER_CHUNK))
        late = rng.random(PER_CHUNK) < late_share
        seconds[late] -= rng.uniform(100, 3600, late.sum())
        table.insert(rows(rng.integers(0, 1000, PER_CHUNK), seconds, total))
        total += PER_CHUNK
        table.flush()
    return total


def test_late_rows_are_visible_at_once_and_stay(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh", settings=tw.Settings(late_after=60)) as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id")
        taxi.insert(rows(np.arange(1000), np.linspace(10_000, 10_100, 1000), 0))
        taxi.flush()
        taxi.insert(rows(np.array([1, 2, 3]), np.array([5.0, 6.0, 10_200.0]), 1000))
        old = taxi.query(time=(0, 100 * SECOND))
        assert sorted(old.to_arrow()["n"].to_pylist()) == [1000, 1001]
        assert taxi.state().trees == 2
        taxi.insert(rows(np.array([4]), np.array([10_050.0]), 1003))  # late by less than late_after: an ordinary row
        assert taxi.metrics().late_rows == 2
        taxi.flush()
        chunks = {c.record.late: c.record for c in Probe(taxi).chunks}
        assert chunks[True].rows == 2 and chunks[True].time_hi == 6 * SECOND
        assert chunks[False].time_lo == 10_050 * SECOND
        assert len(taxi.query(time=(0, 100 * SECOND))) == 2
    with tw.open(tmp_path / "wh") as wh:
        assert wh.table("taxi").rows == 1004 and len(wh.table("taxi").query(time=(0, 100 * SECOND))) == 2


def test_what_is_late_is_known_after_opening_again(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id")
        taxi.insert(rows(np.arange(1000), np.linspace(10_000, 10_100, 1000), 0))
    with tw.open(tmp_path / "wh") as wh:
        taxi = wh.table("taxi")
        taxi.insert(rows(np.array([1, 2]), np.array([5.0, 10_200.0]), 1000))
        assert taxi.metrics().late_rows == 1


def test_the_late_tree_keeps_regions_tight(tmp_path: Path) -> None:
    """The same stream with and without a late tree: the same answers, and far fewer ordinary regions that a short time meets."""
    met: dict[bool, list[int]] = {}
    answers: dict[bool, list[list[int]]] = {}
    for apart, late_after in ((True, 60.0), (False, 1e9)):
        with tw.open(tmp_path / str(apart), settings=tw.Settings(late_after=late_after)) as wh:
            taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id")
            total = stream(taxi)
            assert taxi.rows == total
            met[apart], answers[apart] = [], []
            for c in range(0, CHUNKS, 2):
                first = (10_000 + 100 * c + 30) * SECOND
                last = first + 10 * SECOND
                answers[apart].append(sorted(taxi.query(time=(first, last)).to_arrow()["n"].to_pylist()))
                ordinary = [chunk for chunk in Probe(taxi).chunk_records if not chunk.late]
                met[apart].append(sum(chunk.time_lo <= last and chunk.time_hi >= first for chunk in ordinary))
    assert answers[True] == answers[False]
    # Without it nearly every later chunk reaches back over the queried time. With it, only late chunks do: one row in a hundred.
    assert max(met[True]) <= 2 and sum(met[False]) > 4 * sum(met[True]), met
    with tw.open(tmp_path / "True") as wh:
        chunks = sorted((c.record for c in Probe(wh.table("taxi")).chunks), key=lambda c: c.time_hi)
        # the table's very first chunk has none before it to be late for
        assert all(c.time_hi - c.time_lo <= 200 * SECOND for c in chunks if not c.late and c.time_hi > 10_100 * SECOND)
        assert sum(c.rows for c in chunks if c.late) < 0.03 * total
    with tw.open(tmp_path / "False") as wh:
        chunks = [c.record for c in Probe(wh.table("taxi")).chunks]
        assert not any(c.late for c in chunks) and np.mean([c.time_hi - c.time_lo for c in chunks]) > 2000 * SECOND


def test_rows_read_in_vain(tmp_path: Path) -> None:
    """What the tight regions are worth: rows in the regions that a query has to enter."""
    entered: dict[bool, int] = {}
    for apart, late_after in ((True, 60.0), (False, 1e9)):
        with tw.open(tmp_path / str(apart), settings=tw.Settings(late_after=late_after)) as wh:
            taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id")
            stream(taxi)
            version = Probe(taxi).version
            start = (10_000 + 130) * SECOND
            entered[apart] = sum(c.record.rows for c in version.chunks if c.record.time_lo <= start <= c.record.time_hi)
    assert entered[False] > 5 * entered[True], entered


@pytest.mark.parametrize("late_after", [1e12, float("inf")])
def test_late_after_may_be_for_ever(tmp_path: Path, late_after: float) -> None:
    with tw.open(tmp_path / "wh", settings=tw.Settings(late_after=late_after)) as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id")
        for seconds in (10_000.0, 5.0, 20_000.0, 1.0):
            taxi.insert(rows(np.array([1]), np.array([seconds]), 0))
            taxi.flush()
        assert taxi.metrics().late_rows == 0 and taxi.rows == 4


def test_a_clock_that_runs_ahead_does_not_make_all_others_late(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="id")
        seconds = np.linspace(10_000, 10_100, 1000)
        seconds[500] = 9e9  # the year 2255
        taxi.insert(rows(np.arange(1000), seconds, 0))
        taxi.flush()
        taxi.insert(rows(np.arange(1000), np.linspace(10_100, 10_200, 1000), 1000))
        assert taxi.metrics().late_rows == 0
