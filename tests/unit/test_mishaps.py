"""Mishaps: disks that fail, interrupts, forks, lost catalogs. Nothing acknowledged is lost, and nobody waits for ever."""

from __future__ import annotations

import datetime as dt
import gc
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.hand_clock import HandClock
from tidewheel.catalog.sql import SqlCatalog
from tidewheel.env.local_files import LocalFiles
from tidewheel.index import tree as index_tree
from tidewheel.testing.probe import Probe

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
DAY = dt.datetime(2026, 1, 1)


def table_of(wh: tw.Warehouse, name: str = "t") -> tw.Table:
    return wh.create_table(name, SCHEMA, time="ts", key="k")


def some(n: int, start: int = 0) -> pa.Table:
    times = pa.array(range(start, start + n), pa.int64()).cast(pa.timestamp("us"))
    return pa.table([pa.array(range(start, start + n)), times], schema=SCHEMA)


def test_partitions_at_the_end_of_int64(tmp_path: Path) -> None:
    last = (1 << 63) - 1
    times = pa.array([last, last - 2 * 3_600_000_000, -last - 1, -last + 3_600_000_000], pa.int64()).view(pa.timestamp("us"))
    with tw.open(tmp_path) as wh:
        table = table_of(wh)
        table.insert(pa.record_batch([pa.array([1, 1]), times[:2]], schema=SCHEMA))
        table.flush()
        table.insert(pa.record_batch([pa.array([1, 1]), times[2:]], schema=SCHEMA))
        table.flush()
        assert table.rows == 4


@pytest.mark.parametrize("where", ["appear_each", "commit"])
def test_a_failing_replace_changes_nothing(tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tw.open(tmp_path) as wh:
        table = table_of(wh)
        table.insert(some(10))
        table.flush()
        target: Any = {"appear_each": LocalFiles, "commit": SqlCatalog}[where]
        real = getattr(target, where)

        def fail(*args: Any, **more: Any) -> Any:
            monkeypatch.setattr(target, where, real)
            raise OSError("the disk is gone")

        monkeypatch.setattr(target, where, fail)
        with pytest.raises((tw.TidewheelError, OSError)):
            table.replace(some(1, 3), time=(0, 5))
        assert table.rows == 10
        table.replace(some(1, 3), time=(0, 5))
        assert table.rows == 5
    with tw.open(tmp_path) as wh:
        assert sorted(wh.table("t").query().to_arrow()["k"].to_pylist()) == [3, 6, 7, 8, 9]


def test_threads_survive_a_disk_that_fails_and_files_that_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tw.open(tmp_path) as wh:
        table = table_of(wh)
        table.insert(some(10))
        with monkeypatch.context() as broken:
            broken.setattr(LocalFiles, "appear_each", lambda *_: (_ for _ in ()).throw(OSError("read-only")))
            broken.setattr(LocalFiles, "remove", lambda *_: (_ for _ in ()).throw(PermissionError("read-only")))
            with pytest.raises(tw.StorageError, match="read-only"):
                table.flush()
            assert table.query().to_arrow().num_rows == 10  # nothing is lost meanwhile
        for _ in range(100):
            try:
                table.flush()
                break
            except tw.StorageError:  # the retry that failed before the disk was mended
                time.sleep(0.1)
        assert table.state().fresh_rows == 0 and table.rows == 10
        assert {t.name for t in threading.enumerate() if t.name.startswith("tidewheel")} >= {"tidewheel-commit", "tidewheel-write-0"}


def test_a_lost_catalog_is_no_reason_to_delete_chunks(tmp_path: Path) -> None:
    with tw.open(tmp_path) as wh:
        table_of(wh).insert(some(10))
    for file in tmp_path.glob("catalog.sqlite*"):
        file.rename(tmp_path / f"away-{file.name}")
    for _ in range(2):  # the second try must not find a lock that the first one forgot
        with pytest.raises(tw.TidewheelError, match="put the catalog back") as error:
            tw.open(tmp_path)
        assert "owner" not in str(error.value)
        for file in tmp_path.glob("catalog.sqlite*"):
            file.unlink()
    for file in tmp_path.glob("away-*"):
        file.rename(tmp_path / file.name.removeprefix("away-"))
    with tw.open(tmp_path) as wh:
        assert wh.table("t").query().to_arrow().num_rows == 10


def test_close_flushes_every_table_though_one_cannot_be(tmp_path: Path) -> None:
    wh = tw.open(tmp_path)
    for name in ("a", "b", "c"):
        table_of(wh, name).insert(some(10))
    shutil.rmtree(tmp_path / "tables" / "1")
    (tmp_path / "tables" / "1").write_text("in the way")
    with pytest.raises(tw.StorageError):
        wh.close()
    (tmp_path / "tables" / "1").unlink()
    (tmp_path / "tables" / "1").mkdir()
    with tw.open(tmp_path) as wh:
        assert wh.recovery.rows == 10
        assert [wh.table(n).rows for n in ("a", "b", "c")] == [10, 10, 10]


def test_a_forked_child_does_not_take_the_warehouse_along(tmp_path: Path) -> None:
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import tidewheel as tw
from test_mishaps import some, table_of
wh = tw.open({str(tmp_path)!r})
table = table_of(wh)
table.insert(some(10))
child = os.fork()
if child == 0:
    try:
        table.insert(some(1))
    except tw.TidewheelError:
        sys.exit(7)
    sys.exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
table.insert(some(10, 10))
wh.close()
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with tw.open(tmp_path) as wh:
        assert wh.table("t").rows == 20


def test_damage_is_found_whatever_the_order_of_what_is_read(tmp_path: Path) -> None:
    """Text keys tie: rows at the ends of the interval are checked by value, and read after the others."""
    schema = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
    n = 60_000
    keys = [f"{i // 20000}xxxxxxxxxx{i % 20000:08d}" for i in range(n)]
    with tw.open(tmp_path) as wh:
        table = wh.create_table("t", schema, time="ts", key="k")
        table.insert(pa.table([keys, pa.array(range(n), pa.int64()).cast(pa.timestamp("us")), pa.array(range(n))], schema=schema))
        table.flush()
    (path,) = tmp_path.rglob("*.arrow")
    whole = pa.memory_map(str(path)).read_buffer()
    batch = pa.ipc.open_file(whole).get_batch(0)
    at = batch.column("v").buffers()[1].address - whole.address + 100 * 8
    first, last = batch.column("k")[0].as_py(), batch.column("k")[n - 1].as_py()
    del batch, whole
    with open(path, "r+b") as file:
        file.seek(at)
        file.write((10**15).to_bytes(8, "little"))
    with tw.open(tmp_path) as wh, pytest.raises(tw.CorruptionError, match="block 0 of column 'v'"):
        wh.table("t").query(key=(first, last)).to_arrow()


def test_a_merge_that_fails_loses_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError

    with tw.open(tmp_path) as wh:
        table = table_of(wh)
        table.insert(some(5000))
        monkeypatch.setattr(index_tree, "coalesce", fail)
        for i in range(40):
            assert table.insert(some(1, 5000 + i)).rows == 1
        monkeypatch.undo()
        for i in range(40, 80):
            table.insert(some(1, 5000 + i))
        assert sorted(table.query().to_arrow()["k"].to_pylist()) == list(range(5080))


def test_the_division_over_servers_settles(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    with tw.open(tmp_path, settings=tw.Settings(indexing_servers=4, chunk_bytes=1 << 20)) as wh:
        table = table_of(wh)
        for i in range(60):
            k = np.where(random.random(20_000) < 0.4, random.integers(0, 1000, 20_000), random.integers(0, 100_000, 20_000))
            t = pa.array(np.arange(20_000) + i * 20_000).cast(pa.timestamp("us"))
            table.insert(pa.record_batch([pa.array(k), t], schema=SCHEMA))
        dispatch = Probe(table).publisher.placing.dispatch
        assert dispatch is not None
        shares = np.bincount(np.searchsorted(dispatch.inner, k, side="right"), minlength=4)
        assert shares.max() < 1.6 * shares.mean(), shares


def test_a_busy_table_does_not_starve_another(tmp_path: Path) -> None:
    with tw.open(tmp_path, settings=tw.Settings(chunk_bytes=64 << 10, flush_after=0.3)) as wh:
        busy, calm = table_of(wh, "busy"), table_of(wh, "calm")
        calm.insert(some(10))
        stop = threading.Event()
        rows = some(20_000)

        def insert() -> None:
            while not stop.is_set():
                busy.insert(rows)

        thread = threading.Thread(target=insert)
        thread.start()
        try:
            for _ in range(100):
                if calm.state().fresh_rows == 0:
                    break
                time.sleep(0.1)
            assert calm.state().fresh_rows == 0
        finally:
            stop.set()
            thread.join()


def test_questions_that_would_be_misunderstood(tmp_path: Path, clock: HandClock) -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("a", pa.int64()), ("A", pa.int64())])
    with tw.open(tmp_path) as wh:
        table = wh.create_table("t", schema, time="ts", key="k")
        table.insert([{"k": 1, "ts": DAY, "a": 1, "A": 9}])
        with pytest.raises(tw.QueryError, match="differ only in case"):
            table.query(where='"A" > 5')
        with pytest.raises(tw.InputError, match="replace needs the interval"):
            table.replace([], time=None)
        late = table.query(timeout=60)
        clock.advance(100)
        assert late.to_arrow().num_rows == 1  # the time is counted while it is read
        with pytest.raises(tw.TidewheelError, match="another definition"):
            wh.create_table("t", schema, time="ts", key="k", partition="1 day", if_exists="open")
        with pytest.raises(tw.InputError, match="dictionary of nested values"):
            wh.create_table("d", schema.append(pa.field("d", pa.dictionary(pa.int32(), pa.list_(pa.int8())))), time="ts", key="k")


def test_files_of_a_crash_are_swept(tmp_path: Path) -> None:
    with tw.open(tmp_path) as wh:
        table_of(wh).insert(some(10))
    folder = tmp_path / "tables" / "1"
    (known,) = folder.glob("*.arrow")
    orphan, half, foreign = folder / f"{'0' * 23}.arrow", folder / f"{'1' * 23}.arrow.tmp", folder / "notes.txt"
    for file in (orphan, half, foreign):
        file.write_bytes(b"x")
    with tw.open(tmp_path) as wh:
        assert wh.table("t").rows == 10
    assert not orphan.exists() and not half.exists() and foreign.exists() and known.exists()


def test_the_region_index_serves_text_keys_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidewheel.index import version

    monkeypatch.setattr(version, "WORTH", 8)
    schema = pa.schema([("k", pa.string()), ("ts", pa.timestamp("s"))])
    with tw.open(tmp_path) as wh:
        table = wh.create_table("t", schema, time="ts", key="k")
        for i in range(30):
            table.insert([{"k": f"plate-{j:04d}", "ts": i * 100 + j} for j in range(50)])
            table.flush()
        chunks = Probe(table).version.chunks
        assert len(chunks.coders) == 1 and chunks.index is not None
        found = table.query(key=("plate-0010", "plate-0012"), time=(1000, 1199))
        assert len(found.to_arrow()) == 6 and found.stats.regions_read <= 3


def test_nothing_is_left_of_dropped_tables(tmp_path: Path) -> None:
    gc.disable()  # nothing may wait for it
    try:
        with tw.open(tmp_path, settings=tw.Settings(chunk_bytes=1 << 16)) as wh:
            for n in range(5):
                table = table_of(wh, f"t{n}")
                for start in range(0, 40_000, 4000):
                    table.insert(some(4000, start))
                wh.drop_table(f"t{n}")
                del table
            give_up = time.monotonic() + 10
            while any((tmp_path / "tables").rglob("*.arrow*")) and time.monotonic() < give_up:
                time.sleep(0.02)
            assert not list((tmp_path / "tables").rglob("*.arrow*"))
    finally:
        gc.enable()
    with tw.open(tmp_path):
        assert not list((tmp_path / "tables").iterdir())
        assert not list((tmp_path / "logs").iterdir())
