"""Refreshes that exchange few rows of large chunks: what is there after them is what the query gives, and chunks are as good as new."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.derive.bounds import declared
from tidewheel.engine import refresh_commit
from tidewheel.engine.operations import CreateDerived
from tidewheel.engine.refresher import refresh
from tidewheel.index.version import ChunkSet
from tidewheel.model.derived import KEYS, RECOMPUTE, SPARK_SQL, Definition, Mode
from tidewheel.model.schema import make_spec
from tidewheel.testing.duck_compute import DuckCompute
from tidewheel.testing.probe import Probe, engine_of
from tidewheel.write import patches, refreshes

START = dt.datetime(2026, 1, 1)
SQL = """SELECT hour, plate, n, CASE WHEN s > 0 THEN s END AS total, s % 2 = 0 AS even,
 CASE WHEN s % 3 > 0 THEN repeat('x', CAST(s % 7 + 7 AS INT)) END AS said
 FROM (SELECT date_trunc('hour', ts) AS hour, k AS plate, count(*) AS n, CAST(sum(v) AS BIGINT) AS s FROM taxi GROUP BY 1, 2)
 WHERE s % 11 <> 0"""


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Chunks of some hundred rows, patched however few they are. What became of each attempt."""
    tried: list[bool] = []
    patch = refreshes.patch

    def counted(*given: Any) -> bool:
        tried.append(patch(*given))
        return tried[-1]

    monkeypatch.setattr(refresh_commit, "patch", counted)
    monkeypatch.setattr(refresh_commit, "PATCHED_BYTES", 0)
    monkeypatch.setattr(refresh_commit, "CHUNK_BYTES", 16_000)
    monkeypatch.setattr(refreshes, "CHUNK_BYTES", 16_000)
    return tried


class Fleet:
    """A table and the one that is derived from it by keys, which are numbers or texts."""

    def __init__(self, wh: tw.Warehouse, key: pa.DataType) -> None:
        self.wh, self.text = wh, pa.types.is_string(key)
        schema = pa.schema([("ts", pa.timestamp("us")), ("k", key), ("v", pa.int64())])
        self.taxi = wh.create_table("taxi", schema, time="ts", key="k")
        self.duck = DuckCompute()
        spec = make_spec("hourly", self.duck.schema(SQL, {"taxi": schema}), time="hour", key="plate", partition="1 hour")
        modes = (Mode(KEYS, "", column="plate", source_column="k"), Mode(RECOMPUTE, ""))
        bounds = (("taxi", declared("0", "0", "1 hour").to_json()),)
        engine_of(wh).do(CreateDerived(spec, Definition(SPARK_SQL, SQL, "", modes), bounds, "error"))
        self.hourly = wh.table("hourly")

    def insert(self, hours: Any, keys: Any, values: Any) -> None:
        times = [START + dt.timedelta(hours=float(hour)) for hour in hours]
        names = [f"device {k}" if self.text else k for k in keys]
        self.taxi.insert(pa.table([times, names, values], schema=self.taxi.schema))

    def refresh(self) -> str:
        report = refresh(engine_of(self.wh), self.duck)
        assert report.ok, report
        return str(report["hourly"].mode)

    def check(self) -> None:
        """The oracle is the query. Keys by themselves are found through the leaves, partitions through the catalog's counts."""
        expected = sorted(map(repr, (tuple(row.values()) for row in self.wh.sql(SQL).to_arrow().to_pylist())))
        whole = self.hourly.query().to_arrow()
        assert sorted(repr(tuple(row.values())) for row in whole.to_pylist()) == expected
        by_key = [self.hourly.query(key=key).to_arrow() for key in whole.column("plate").unique().to_pylist()]
        assert sorted(repr(tuple(row.values())) for some in by_key for row in some.to_pylist()) == expected
        hours = [self.hourly.query(time=(hour, hour)).to_arrow() for hour in whole.column("hour").unique().to_pylist()]
        assert sorted(repr(tuple(row.values())) for some in hours for row in some.to_pylist()) == expected


@pytest.fixture(params=[pa.int64(), pa.string()], ids=["numbers", "texts"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=16)) as wh:
        made = Fleet(wh, request.param)
        hours, keys = np.repeat(np.arange(10, 60), 30), np.tile(np.arange(30) * 3, 50)
        made.insert(hours + 0.25, keys, np.random.default_rng(1).integers(1, 1000, len(keys)))
        made.refresh()
        made.check()
        yield made
        assert wh.check().ok
        made.duck.close()


def test_rows_of_few_keys_are_exchanged_where_they_stand(patched: list[bool], fleet: Fleet) -> None:
    assert fleet.hourly.state().chunks > 3
    rng = random.Random(7)
    for turn in range(25):
        few = [rng.choice([3 * rng.randrange(30), rng.randrange(-5, 95)]) for _ in range(rng.choice([1, 1, 4]))]
        many = rng.choice([1, 5, 60])
        hours = [rng.choice([rng.uniform(10, 60), rng.uniform(10, 11), rng.uniform(59, 60)]) for _ in range(many)]
        fleet.insert(hours, [rng.choice(few) for _ in hours], [rng.randint(-500, 500) for _ in hours])
        before = fleet.hourly.state().chunks
        assert fleet.refresh() == KEYS
        fleet.check()
        assert fleet.hourly.state().chunks <= before + 2, turn
        assert not Probe(fleet.hourly).version.hidden
    assert sum(patched) >= 15


def test_a_chunk_whose_last_row_leaves_is_gone(patched: list[bool], fleet: Fleet) -> None:
    fleet.insert([100.5], [1], [1])
    fleet.refresh()
    fleet.insert([100.6], [1], [10])  # eleven: the query leaves the hour out
    assert fleet.refresh() == KEYS
    fleet.check()
    assert patched == [True]


def test_no_keys_have_no_rows_in_any_chunk(patched: list[bool], fleet: Fleet) -> None:
    """As after a merge of new rows that make none."""
    table: Any = engine_of(fleet.wh).table("hourly")
    hours = (np.datetime64(START, "us").astype(int), np.datetime64(START, "us").astype(int) + 60 * 3_600_000_000)
    spots = patches.spots_of(table.version(), table.spec, table.publisher.shape, pa.array([], fleet.taxi.schema.field("k").type), [hours])
    assert spots is not None and len(spots) == fleet.hourly.state().chunks
    assert all(one.rows().num_rows == 0 for one in spots)


def test_chunks_that_share_a_partition_are_no_matter_of_others(patched: list[bool], fleet: Fleet) -> None:
    """Layers, or chunks of several servers: only where one of them is met, there is no patch."""
    table: Any = engine_of(fleet.wh).table("hourly")
    version, key = table.version(), fleet.taxi.schema.field("k").type
    chunks = sorted(version.chunks, key=lambda one: one.record.time_lo)
    times = [(one.record.time_lo, one.record.time_hi) for one in chunks]
    twice = version.of_chunks(ChunkSet(version.chunks.matrix.shape[1], [*chunks, chunks[2]]), trees=False)  # a layer of its partitions

    def met(*numbers: int) -> list[Any] | None:
        spots = patches.spots_of(twice, table.spec, table.publisher.shape, pa.array([], key), [times[n] for n in numbers])
        return None if spots is None else [one.chunk for one in spots]

    assert len(chunks) > 3
    assert met(0, 3) == [chunks[0], chunks[3]]
    assert met(2) is None and met(1, 2) is None and met(2, 3) is None


def test_too_many_rows_and_crowded_leaves_are_written_anew(patched: list[bool], fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "MOST_PIECES", 3)
    fleet.insert(np.arange(10, 60), [3] * 50, [1] * 50)
    assert fleet.refresh() == KEYS
    fleet.check()
    assert patched == [False]


def test_damage_is_not_copied_under_a_new_checksum(tmp_path: Path, patched: list[bool]) -> None:
    root = tmp_path / "wh"
    with tw.open(root) as wh:
        fleet = Fleet(wh, pa.int64())
        fleet.insert(np.repeat(np.arange(10), 50) + 0.5, np.tile(np.arange(50), 10), np.arange(500))
        fleet.refresh()
        chunk = min(Probe(fleet.hourly).version.chunks, key=lambda one: one.record.time_lo)
        fleet.duck.close()
    file = root / chunk.record.file
    whole = bytearray(file.read_bytes())
    whole[chunk.record.body_hi - 20] ^= 1
    file.write_bytes(whole)
    with tw.open(root) as wh:
        wh.table("taxi").insert(pa.table([[START], [7], [5]], schema=wh.table("taxi").schema))
        duck = DuckCompute()
        report = refresh(engine_of(wh), duck)
        duck.close()
        assert isinstance(report["hourly"].cause, tw.CorruptionError)
        assert not patched
