"""The template at work: re-divided when that pays, left alone when it does not, and nobody waits for it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidewheel as tw
from tidewheel.index.template import PAYS, divide, paper_skew, skew
from tidewheel.programs.fleet import BEIJING, CENTRE
from tidewheel.testing.probe import Probe

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.float64())])


def rows(ids: np.ndarray, first: int) -> pa.RecordBatch:
    ts = np.arange(first, first + len(ids))
    return pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ts, pa.timestamp("us")), pa.array(ids * 0.5)], schema=SCHEMA)


def updates(table: tw.Table) -> int:
    return table.metrics().template_updates


def test_a_shift_of_the_keys_is_noticed_and_answers_stay_right(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    with tw.open(tmp_path / "wh", settings=tw.Settings(chunk_bytes=1 << 20, leaf_rows=128)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        ids = []
        for i in range(60):
            middle = 0 if i < 20 else 1_000_000  # all keys move at once
            batch = rng.integers(middle, middle + 50_000, 5000)
            ids.append(batch)
            table.insert(rows(batch, i * 5000))
        table.flush()
        everything = np.concatenate(ids)
        assert updates(table) >= 1
        assert updates(table) <= 8, "and then it is left alone"
        for lo in (0, 40_000, 999_990, 1_020_000):
            got = table.query(key=(lo, lo + 500), columns=["id"]).to_arrow()["id"].to_numpy()
            assert (np.sort(got) == np.sort(everything[(everything >= lo) & (everything <= lo + 500)])).all()
        # it paid: a narrow query of the newest chunk reads few of its leaves
        result = table.query(key=(1_020_000, 1_020_500), time=(299_000, None))
        assert result.stats.leaves_read <= 0.1 * (result.stats.leaves_read + result.stats.leaves_skipped) + 2


def test_keys_that_grow_for_ever(tmp_path: Path) -> None:
    """Every batch has new, larger keys: the template follows, no leaf swallows everything."""
    with tw.open(tmp_path / "wh", settings=tw.Settings(chunk_bytes=1 << 20, leaf_rows=128)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        for i in range(60):
            table.insert(rows(np.arange(i * 5000, i * 5000 + 5000), i * 5000))
        table.flush()
        assert updates(table) >= 1 and table.rows == 300_000
        for lo in range(0, 300_000, 37_000):
            assert len(table.query(key=(lo, lo + 99))) == 100
        assert table.query(key=(299_000, 299_099)).stats.leaves_read < 10


def test_parked_taxis_do_not_trigger_it(tmp_path: Path) -> None:
    """A quarter of all reports repeat forty places: the paper's rule would fire on every chunk and gain nothing."""
    rng = np.random.default_rng(4)
    stands = rng.normal(CENTRE, 0.08, (40, 2))
    schema = pa.schema([("lon", pa.float64()), ("lat", pa.float64()), ("ts", pa.timestamp("us"))])

    def reports(first: int) -> pa.RecordBatch:
        places = rng.normal(CENTRE, 0.12, (5000, 2))
        parked = rng.random(5000) < 0.25
        places[parked] = stands[rng.integers(0, len(stands), parked.sum())]
        ts = pa.array(np.arange(first, first + 5000), pa.timestamp("us"))
        return pa.RecordBatch.from_arrays([pa.array(places[:, 0]), pa.array(places[:, 1]), ts], schema=schema)

    with tw.open(tmp_path / "wh", settings=tw.Settings(chunk_bytes=1 << 20, leaf_rows=128)) as wh:
        taxi = wh.create_table("taxi", schema, time="ts", key=tw.zorder("lon", "lat", bounds=BEIJING))
        for i in range(20):
            taxi.insert(reports(i * 5000))
        taxi.flush()
        settled = updates(taxi)
        for i in range(20, 80):
            taxi.insert(reports(i * 5000))
        taxi.flush()
        assert taxi.state().chunks >= 8
        assert updates(taxi) == settled
        codes = np.array(list(Probe(taxi).chunks)[-1].codes())
        bounds = divide(codes, 256)
        counts = np.bincount(np.searchsorted(bounds, codes, side="right") - 1, minlength=256)
        assert paper_skew(counts) > 0.2, "even an exact division is skewed by the paper's measure"
        assert skew(counts, bounds) < PAYS


def test_one_hot_key_is_found_quickly(tmp_path: Path) -> None:
    """A third of all rows have one key: its leaf is cut by time, and its neighbours are not dragged along."""
    rng = np.random.default_rng(2)
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=128)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        ids = rng.integers(0, 10_000, 100_000)
        ids[::3] = 5_000
        for i in range(10):
            table.insert(rows(ids[i * 10_000 : i * 10_000 + 10_000], i * 10_000))
        table.flush()
        result = table.query(key=5_000, time=(50_000, 50_299))
        assert len(result.to_arrow()) == (ids[50_000:50_300] == 5_000).sum()
        assert result.stats.leaves_read <= 5
        assert len(table.query(key=5_001).to_arrow()) == (ids == 5_001).sum()
        assert table.query(key=5_001).stats.rows_scanned < 2_000


def test_queries_and_inserts_go_on_during_an_update(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    with tw.open(tmp_path / "wh", settings=tw.Settings(chunk_bytes=4 << 20, leaf_rows=64)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        stop, wrong, asked = threading.Event(), [], [0]

        def read() -> None:
            while not stop.is_set():
                n = len(table.query(columns=["id"]).to_arrow())
                asked[0] += 1
                if n % 2000:
                    wrong.append(n)

        reader = threading.Thread(target=read)
        reader.start()
        slowest = 0.0
        for i in range(300):
            base = (i // 30) * 10_000_000  # the keys move ten times
            batch = rows(rng.integers(base, base + 100_000, 2000), i * 2000)
            began = time.perf_counter()
            table.insert(batch)
            slowest = max(slowest, time.perf_counter() - began)
        stop.set()
        reader.join()
        assert updates(table) >= 3 and wrong == [] and asked[0] > 5
        assert table.rows == 600_000
        assert slowest < 5.0  # a busy machine, or disk, takes its time
