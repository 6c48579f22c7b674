"""Rows that were replaced cost nothing for ever: their chunks leave the table and the disk, the masks over them go, readers keep theirs."""

from __future__ import annotations

import gc
import shutil
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.chunk import names
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.env.disk import Disk
from tidewheel.errors import FencedError
from tidewheel.index import hidden
from tidewheel.index.hidden import Hidden
from tidewheel.model.query import Query
from tidewheel.model.records import MaskRecord
from tidewheel.model.schema import make_spec
from tidewheel.read.kernels import by_time
from tidewheel.testing.abandon import abandon
from tidewheel.testing.probe import Probe, owner_of, root_of
from tidewheel.write import publish

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("n", pa.int64())])
SMALL = tw.Settings(leaf_rows=16)
SECOND = 1_000_000


def rows(first: int, last: int, mark: int = 0) -> pa.Table:
    """A row for every second from `first` to `last`."""
    seconds = np.arange(first, last + 1, dtype=np.int64)
    return pa.table([seconds * 7919 % 1000, pa.array(seconds * SECOND, pa.timestamp("us")), np.full(len(seconds), mark)], schema=SCHEMA)


def seconds(first: int, last: int) -> tuple[int, int]:
    return first * SECOND, last * SECOND + SECOND - 1


def files(wh: tw.Warehouse) -> set[str]:
    """The files of tables; those of chunks that left go a moment after the swap, in the thread that commits."""
    with owner_of(wh).still():
        gc.collect()
        return {path.name for path in root_of(wh).glob("tables/*/*.arrow*")}


def marks(result: tw.Result) -> dict[int, int]:
    """How many rows there are of each mark."""
    found, counts = np.unique(result.to_arrow()["n"].to_numpy(), return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


@pytest.fixture
def wh(tmp_path: Path) -> tw.Warehouse:
    made = tw.open(tmp_path / "wh", settings=SMALL)
    made.create_table("t", SCHEMA, time="ts", key="k", partition="1 hour")
    return made


def settled(table: tw.Table) -> Probe:
    """The table, once nothing waits to be flushed."""
    table.flush()
    return Probe(table)


# ---- chunks ---------------------------------------------------------------------------------------------------


def test_what_is_overwritten_leaves_the_table_and_the_disk(wh: tw.Warehouse) -> None:
    with wh:
        table = wh.table("t")
        table.insert(rows(0, 999))
        table.flush()
        once = table.state()
        for mark in range(1, 5):
            ack = table.replace(rows(0, 999, mark), time=(None, None))
        state = table.state()
        assert (state.chunks, state.rows, state.historical_rows) == (1, 1000, 1000) and state.disk_bytes < 1.2 * once.disk_bytes
        assert len(files(wh)) == 1 and Probe(table).version.masks == ()
        assert marks(table.query()) == {4: 1000}
        assert wh.check().ok and len(wh.sql("SELECT * FROM system.chunks")) == 1
        with pytest.raises(tw.QueryError, match=f"generation {ack.generation - 1}.*earliest generation.* is {ack.generation}"):
            Probe(table).query(Query(upto=ack.generation - 1))
        assert marks(Probe(table).query(Query(upto=ack.generation))) == {4: 1000}


def test_rows_that_were_replaced_before_they_were_written(wh: tw.Warehouse) -> None:
    """Their tree is flushed, which the log asks for, and leaves with the same commit."""
    with wh:
        table = wh.table("t")
        table.insert(rows(0, 99))
        table.replace(rows(0, 9, 1), time=(None, None))
        version = settled(table).publisher.version
        assert version.chunks.count == 1 and version.masks == () and len(files(wh)) == 1
        assert marks(table.query()) == {1: 10} and table.rows == 10 and wh.check().ok


@pytest.mark.parametrize("crash", [False, True])
def test_what_left_stays_away(wh: tw.Warehouse, crash: bool) -> None:
    table = wh.table("t")
    table.insert(rows(0, 99))
    table.flush()
    table.insert(rows(100, 199))
    table.replace(rows(0, 9, 1), time=seconds(0, 150))
    table.insert(rows(200, 209, 2))
    if crash:
        abandon(wh)
    else:
        wh.close()
    with tw.open(root_of(wh), settings=SMALL) as again:
        table = again.table("t")
        assert marks(table.query()) == {0: 49, 1: 10, 2: 10} and table.rows == 69
        table.flush()
        assert marks(table.query()) == {0: 49, 1: 10, 2: 10} and table.rows == 69
        assert len(files(again)) == table.state().chunks
        assert again.check().ok


def test_a_warehouse_of_before_is_tidied_when_it_is_opened(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before, wh:
        before.setattr("tidewheel.write.commit.Committer._is_keeping", lambda _: True)
        before.setattr("tidewheel.write.commit.Committer.tidy", lambda *_: None)
        table = wh.table("t")
        for mark in range(4):
            table.replace(rows(0, 99, mark), time=(None, None))
        assert table.state().chunks == 4 and table.rows == 100
    with tw.open(root_of(wh), settings=SMALL) as again:
        table = again.table("t")
        assert (table.state().chunks, table.rows, len(files(again))) == (1, 100, 1)
        assert Probe(table).version.masks == () and again.check().ok
    with tw.open(root_of(wh)) as again, pytest.raises(tw.QueryError, match="earliest generation"):
        Probe(again.table("t")).query(Query(upto=2))


def test_who_still_reads_keeps_the_files(wh: tw.Warehouse) -> None:
    with wh:
        table = wh.table("t")
        table.insert(rows(0, 999))
        table.flush()
        (first,) = files(wh)
        result = table.query()
        pin = Probe(table).pin()
        table.replace(rows(0, 9, 1), time=(None, None))
        assert first in files(wh) and wh.check().problems == ()
        assert marks(result) == {0: 1000}
        del result
        assert first in files(wh)
        Probe(table).unpin(pin.id)
        assert first not in files(wh) and len(files(wh)) == 1


def test_a_dropped_table_takes_no_file_from_a_reader(wh: tw.Warehouse) -> None:
    with wh:
        table = wh.table("t")
        table.insert(rows(0, 999))
        table.flush()
        result = table.query()
        table.replace(rows(0, 9, 1), time=(None, None))
        wh.drop_table("t")
        del table
        assert len(files(wh)) == 1
        assert marks(result) == {0: 1000}
        del result
        assert not files(wh)


def test_a_chunk_that_is_seen_in_part_stays_whole(wh: tw.Warehouse) -> None:
    with wh:
        table = wh.table("t")
        table.insert(rows(0, 999))
        table.flush()
        before = Probe(table).version.generation
        table.replace(rows(0, 99, 1), time=seconds(0, 499))
        version = Probe(table).version
        assert version.chunks.count == 2 and len(version.masks) == 1 and version.horizon == 0
        assert marks(Probe(table).query(Query(upto=before))) == {0: 1000}
        assert marks(table.query()) == {0: 500, 1: 100} and table.rows == 600
        table.replace(rows(500, 599, 2), time=seconds(500, 999))  # now the two of them hide all of it
        version = Probe(table).version
        assert version.chunks.count == 2 and version.masks == () and version.horizon == version.generation
        assert marks(table.query()) == {1: 100, 2: 100} and len(files(wh)) == 2


def test_a_backup_has_what_left_meanwhile(wh: tw.Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replacement between the moment that is backed up and the copy of the catalog."""
    from tidewheel.maintenance import backup

    with wh:
        table = wh.table("t")
        table.insert(rows(0, 99))
        table.flush()
        cut = backup._cut

        def cut_and_replace(of: object) -> dict[int, int]:
            upto = cut(of)  # type: ignore[arg-type]
            table.replace(rows(0, 9, 1), time=(None, None))
            assert table.state().chunks == 2
            return upto

        monkeypatch.setattr(backup, "_cut", cut_and_replace)
        wh.backup(tmp_path / "backup")
        give_up = time.monotonic() + 60
        while table.state().chunks > 1 and time.monotonic() < give_up:  # the commit thread tidies a moment after the backup
            time.sleep(0.01)
        assert table.state().chunks == 1 and len(files(wh)) == 1 and marks(table.query()) == {1: 10}
        tw.restore(tmp_path / "backup", tmp_path / "restored")
        with tw.open(tmp_path / "restored") as restored:
            assert marks(restored.table("t").query()) == {0: 100} and restored.check().ok


# ---- what is remembered of it ---------------------------------------------------------------------------------


def counts(wh: tw.Warehouse) -> tuple[int, int]:
    """Rows of chunks and of masks in the catalog."""
    with sqlite3.connect(root_of(wh) / names.CATALOG) as conn:
        found = [conn.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("chunks", "masks")]
    conn.close()
    return found[0], found[1]


@pytest.mark.parametrize("durability", ["memory", "process", "fsync"])
def test_the_catalog_does_not_grow_with_what_was_replaced(tmp_path: Path, durability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "MANY_REMOVED", 4)
    settings = tw.Settings(leaf_rows=16, durability=durability)
    with tw.open(tmp_path / "wh", settings=settings) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(rows(0, 999))
        table.flush()
        for mark in range(30):
            table.replace(rows(100, 199, mark), time=seconds(100, 199))  # the first chunk is seen before and behind it
            table.insert(rows(100, 101, 1000 + mark))
        table.flush()
        # rows of removed chunks are forgotten by a commit that finds them covered: flushes may have lagged behind until here
        table.replace(rows(100, 199, 99), time=seconds(100, 199))
        table.flush()
        chunks, masks = counts(wh)
        assert masks == len(Probe(table).version.masks) == 1 and chunks <= 2 + 2 * 4
        assert marks(table.query()) == {0: 900, 99: 100} and table.rows == 1000
    with tw.open(tmp_path / "wh", settings=settings) as wh:
        assert marks(wh.table("t").query()) == {0: 900, 99: 100} and wh.check().ok


def test_a_log_that_could_not_be_removed_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a power failure, which brings removed segments back: their rows are still covered."""
    monkeypatch.setattr(publish, "MANY_REMOVED", 1)
    wh = tw.open(tmp_path / "wh", settings=SMALL)
    table = wh.create_table("t", SCHEMA, time="ts", key="k")
    monkeypatch.setattr(Probe(table).log._files, "remove", lambda name: None)
    for mark in range(8):
        table.insert(rows(0, 9, mark))
        table.replace(rows(0, 0, 100), time=(None, None))
        table.flush()
    abandon(wh)
    with tw.open(tmp_path / "wh", settings=SMALL) as again:
        assert marks(again.table("t").query()) == {100: 1}


class Syncing(Disk):
    """Knows which folders were synced."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync_folder(self, path: str) -> None:
        super().sync_folder(path)
        self.synced.append("/".join(path.split("/")[-2:]))


def test_the_log_of_an_owner_before_is_gone_for_good_before_chunks_are_forgotten(tmp_path: Path) -> None:
    """It removed its last segment and died. Until the folder is synced the segment may come back, with rows that only the catalog's
    memory of removed chunks tells to be old."""
    root = tmp_path / "wh"
    first = OwnedEngine(root, SMALL, listen=False)
    table = Probe(first.create(make_spec("t", SCHEMA, time="ts", key="k"), "error"))
    table.insert(rows(0, 99, 1))
    table.flush()
    with first.still():
        assert not list((root / "logs/1").iterdir())
    abandon(first)
    disk = Syncing()
    second = OwnedEngine(root, SMALL, disk, listen=False)
    disk.synced.clear()
    assert Probe(second.table("t")).log.gone(7) == 7
    assert disk.synced == ["logs/1"]
    second.close()


def test_packages_of_rows_that_left_are_still_known(wh: tw.Warehouse) -> None:
    with wh:
        table = wh.table("t")
        table.insert(rows(0, 99), package="p")
        table.replace(rows(0, 9, 1), time=(None, None))
        table.flush()
        assert table.insert(rows(0, 99), package="p").duplicate
    with tw.open(root_of(wh)) as again:
        assert again.table("t").insert(rows(0, 99), package="p").duplicate


# ---- reading --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [True, False])
def test_many_masks_over_one_chunk(tmp_path: Path, mapped: bool) -> None:
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=16, map_chunks=mapped)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(rows(0, 1199))
        table.flush()
        for start in range(0, 1200, 10):
            table.replace(rows(start, start, 1), time=seconds(start, start + 4))
        assert len(Probe(table).version.masks) == 120
        assert marks(table.query()) == {0: 600, 1: 120} and table.rows == 720
        assert marks(table.query(time=seconds(1000, 1012))) == {0: 5, 1: 2}
        assert marks(table.query(time=seconds(200, 1199), on_corrupt="skip")) == {0: 500, 1: 100}
        assert table.query(aggregate={"n": "sum(n)", "c": "count(*)"}).to_pylist() == [{"n": 120, "c": 720}]
        assert len(table.query(key=(0, 500), where="n = 0", time=seconds(0, 999))) == sum(
            s % 10 >= 5 and s * 7919 % 1000 <= 500 for s in range(1000)
        )
        assert wh.sql("SELECT count(*) AS c, min(ts) AS a, max(n) AS n FROM t").to_arrow().to_pylist()[0]["c"] == 720
        pin = Probe(table).pin()
        assert len({chunk.id for chunk in pin.chunks}) == len(pin.chunks) == 121
        Probe(table).unpin(pin.id)


def test_planning_minds_the_clock(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden, "_AT_ONCE", 8)
    with wh:
        table = wh.table("t")
        table.insert(rows(0, 299))
        table.flush()
        for start in range(0, 300, 10):
            table.replace(rows(start, start, 1), time=seconds(start, start + 4))
        with pytest.raises(tw.LimitError):
            table.query(timeout=1e-9).to_arrow()
        assert marks(table.query()) == {0: 150, 1: 30}


def test_ends_of_a_table_some_of_whose_rows_were_replaced(wh: tw.Warehouse) -> None:
    with wh:
        table = wh.table("t")
        for start in (0, 1000, 2000):
            table.insert(rows(start, start + 999))
            table.flush()
        table.replace(rows(0, 0, 1).slice(1), time=seconds(0, 499))
        (found,) = wh.sql("SELECT count(*) AS c, min(ts) AS a, max(ts) AS b FROM t").to_arrow().cast(
            pa.schema([("c", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
        ).to_pylist()  # fmt: skip
        assert found == {"c": 2500, "a": 500 * SECOND, "b": 2999 * SECOND}


@pytest.mark.parametrize("mapped", [1000, 1])
def test_many_holes_in_chunks_that_are_mapped_or_not(tmp_path: Path, mapped: int) -> None:
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=32, mapped_chunks=mapped)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        for chunk in range(3):
            table.insert(rows(0, 999, chunk))
            table.flush()
        for hole in range(60):
            table.replace([], time=seconds(hole * 10, hole * 10 + 5))
        assert marks(table.query()) == {0: 640, 1: 640, 2: 640}
        assert marks(table.query(time=seconds(0, 599))) == {0: 240, 1: 240, 2: 240}
        assert wh.sql("SELECT count(n + 1) AS n FROM t").to_pylist() == [{"n": 1920}]


def test_many_holes_are_sieved_in_one_pass(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    with wh:
        table = wh.table("t")
        table.insert(rows(0, 4999))
        table.flush()
        publisher = Probe(table).publisher
        holes = [MaskRecord(n * SECOND, n * SECOND, publisher.version.generation, "replace") for n in range(0, 5000, 2)]
        with publisher.lock:
            publisher._swap(masks=Hidden(holes))
        passes = []

        def counted(*given: Any) -> int:
            passes.append(given)
            return int(by_time(*given))

        monkeypatch.setattr("tidewheel.read.scan.k.by_time", counted)
        assert len(table.query().to_arrow()) == 2500
        assert len(passes) == 1


def test_who_is_not_the_owner_any_more_removes_no_chunk_of_the_next(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    engine = OwnedEngine(root, SMALL, listen=False)
    table = Probe(engine.create(make_spec("t", SCHEMA, time="ts", key="k"), "error"))
    table.insert(rows(0, 99, 1))
    table.flush()
    before = {path.name for path in root.glob("tables/*/*.arrow")}
    read = table.query()
    table.replace(rows(0, 99, 2), (None, None))  # its chunk leaves the table; the result keeps the file
    root.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", root)  # as if a backup of before was restored
    with pytest.raises(FencedError):
        table.insert(rows(0, 0, 3))
    del read
    gc.collect()
    assert before < {path.name for path in root.glob("tables/*/*.arrow")}
    with pytest.raises(FencedError):
        engine.close()


def test_a_generation_stays_open_until_its_own_commit_ends(wh: tw.Warehouse) -> None:
    """Also if the caller of the commit before gave up: a reader of changes would miss its rows for ever."""
    with wh:
        table = wh.table("t")
        table.insert(rows(0, 99, 1))
        table.flush()
        local = Probe(table)
        before = local.generation()
        flusher = local.owner.flusher
        gate, writing, write = threading.Event(), threading.Event(), flusher.write

        def slowly(*args: Any) -> Any:
            writing.set()
            assert gate.wait(60)
            return write(*args)

        with local.owner.commits._committing, pytest.raises(tw.LimitError):  # a slow disk
            table.replace(rows(0, 9, 2), time=seconds(0, 9), timeout=0.3)
        flusher.write = slowly  # type: ignore[method-assign]
        second = threading.Thread(target=lambda: table.replace(rows(20, 29, 3), time=seconds(20, 29)))
        second.start()
        assert writing.wait(60)
        give_up = time.monotonic() + 60
        while local.generation() == before:  # the first commit goes on by itself, and ends a moment after its rows are seen
            assert time.monotonic() < give_up
            time.sleep(0.01)
        settled = local.generation()
        assert marks(table.query()) == {1: 90, 2: 10}
        gate.set()
        second.join()
        assert marks(local.changes(settled, local.generation())) == {3: 10}
