"""Owners under whom the warehouse is taken away: locks, folders, catalogs and logs that are deleted, moved or replaced, leases that are
taken over. They acknowledge nothing that the next owner does not find, and nothing at all once they know."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.integration.owners import OwnerProcess
from tidewheel.catalog import lease
from tidewheel.catalog.sql import open_sqlite
from tidewheel.cluster.client import attach
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.errors import FencedError, OwnerLostError, StorageError
from tidewheel.model.delivery import SliceId
from tidewheel.model.schema import make_spec
from tidewheel.settings import Settings
from tidewheel.testing.probe import Probe, engine_of

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
SPEC = make_spec("t", SCHEMA, time="ts", key="id")
LEVELS = ["memory", "process", "fsync"]


def row(number: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([number]), pa.array([number], pa.timestamp("us"))], schema=SCHEMA)


def ids(engine: OwnedEngine) -> list[int]:
    found: list[int] = Probe(engine.table("t")).query().to_arrow()["id"].to_pylist()
    return sorted(found)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return (tmp_path / "wh").resolve()


@pytest.fixture
def engines() -> Iterator[Callable[..., OwnedEngine]]:
    """Makes owners, and closes what the test leaves of them."""
    made: list[OwnedEngine] = []

    def make(root: Path, durability: str = "process", listen: bool = False) -> OwnedEngine:
        engine = OwnedEngine(root, Settings(durability=durability), listen=listen)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        try:
            engine.close()
        except FencedError:
            assert engine.fenced


# ---- what is taken away -------------------------------------------------------------------------------------


def lock_deleted(root: Path) -> None:
    (root / lease.FILE).unlink()


def lock_replaced(root: Path) -> None:
    (root / "other").write_text("{}")
    (root / "other").replace(root / lease.FILE)


def folder_deleted(root: Path) -> None:
    shutil.rmtree(root)


def folder_moved(root: Path) -> None:
    root.rename(root.with_name("moved"))


def folder_replaced(root: Path) -> None:
    """By a copy of itself: the same catalog, the same epoch, the same names."""
    shutil.copytree(root, root.with_name("copy"), ignore=shutil.ignore_patterns("*.sock"))
    root.rename(root.with_name("moved"))
    root.with_name("copy").rename(root)


def logs_deleted(root: Path) -> None:
    shutil.rmtree(root / "logs")


def catalog_deleted(root: Path) -> None:
    (root / "catalog.sqlite").unlink()


def catalog_replaced(root: Path) -> None:
    shutil.copy(root / "catalog.sqlite", root / "other")
    (root / "other").replace(root / "catalog.sqlite")


def catalog_log_deleted(root: Path) -> None:
    (root / "catalog.sqlite-wal").unlink()


def lease_taken(root: Path) -> None:
    catalog = open_sqlite(root / "catalog.sqlite")
    catalog.acquire(1, "elsewhere", 0.0)
    catalog.close()


AT_ONCE = [lock_deleted, lock_replaced, folder_deleted, folder_moved, folder_replaced, logs_deleted]
SOON = [catalog_deleted, catalog_replaced, catalog_log_deleted, lease_taken]

ACKNOWLEDGED: dict[str, Callable[[Probe], Any]] = {
    "insert": lambda table: table.insert(row(90)),
    "a package": lambda table: table.insert(row(91), "p"),
    "a package that is there": lambda table: table.insert(row(1), "first"),
    "an empty insert": lambda table: table.insert(row(1).slice(0, 0)),
    "a stream's batch": lambda table: table.commit_batch("s", "r", 1, []),
    "a stream's batch that is there": lambda table: table.commit_batch("s", "r", 0, []),
    "replace": lambda table: table.replace(row(92), (92, 92)),
    "a load": lambda table: table.commit_load(table.begin_load().job, [], True),
    "flush": lambda table: table.flush(),
}


@pytest.mark.parametrize("durability", LEVELS)
@pytest.mark.parametrize("mishap", AT_ONCE + SOON, ids=lambda f: f.__name__)
def test_nothing_is_acknowledged_any_more(
    root: Path, engines: Callable[..., OwnedEngine], mishap: Callable[[Path], None], durability: str
) -> None:
    if mishap is logs_deleted and durability == "memory":
        return  # it has none
    engine = engines(root, durability)
    table = Probe(engine.create(SPEC, "error"))
    table.insert(row(1), "first")
    table.stage(SliceId("s", "r", 0, 0, 0), [row(2)], SCHEMA)
    table.commit_batch("s", "r", 0, [SliceId("s", "r", 0, 0, 0)])
    engine.tenure.look()
    mishap(root)
    if mishap in SOON:  # within the time that the page names
        give_up = time.monotonic() + 30
        with pytest.raises(FencedError):
            while time.monotonic() < give_up:
                table.insert(row(3))
    for name, call in ACKNOWLEDGED.items():
        with pytest.raises(FencedError, match="is not the owner of the warehouse .* any more"):
            call(table)
            pytest.fail(f"{name} was acknowledged")
    with pytest.raises(FencedError):
        engine.table("t")
    with pytest.raises(FencedError):
        engine.create(make_spec("u", SCHEMA, time="ts", key="id"), "error")
    with pytest.raises(FencedError):
        engine.close()


def test_a_lock_that_is_put_back(root: Path, engines: Callable[..., OwnedEngine]) -> None:
    """Once it is over it is over, whatever comes back."""
    engine = engines(root)
    table = Probe(engine.create(SPEC, "error"))
    (root / lease.FILE).rename(root / "aside")
    with pytest.raises(FencedError, match="owner.lock was deleted"):
        table.insert(row(1))
    (root / "aside").rename(root / lease.FILE)
    with pytest.raises(FencedError, match="owner.lock was deleted"):
        table.insert(row(2))
    with pytest.raises(FencedError):
        table.query()


@pytest.mark.parametrize("durability", ["process", "fsync"])
def test_the_next_owner_has_all_that_was_acknowledged(root: Path, engines: Callable[..., OwnedEngine], durability: str) -> None:
    """Threads insert while the lock is deleted and another opens and closes the warehouse, again and again."""
    engine = engines(root, durability)
    engine.create(SPEC, "error")
    acknowledged: list[int] = []
    for turn in range(5):
        threads = [threading.Thread(target=_insert_until_fenced, args=(engine, 10**6 * (4 * turn + n), acknowledged)) for n in range(3)]
        for thread in threads:
            thread.start()
        before = len(acknowledged)
        while len(acknowledged) < before + 20:
            time.sleep(0.001)
        lock_deleted(root)
        engine = engines(root, durability)
        there = set(ids(engine))
        for thread in threads:
            thread.join()
        assert set(acknowledged) <= there
        engine.close()
        engine = engines(root, durability)
        found = ids(engine)
        assert set(acknowledged) <= set(found) and len(found) == len(set(found))


def _insert_until_fenced(engine: OwnedEngine, start: int, acknowledged: list[int]) -> None:
    table = Probe(engine.table("t"))
    number = start
    try:
        while True:
            table.insert(row(number), f"package {number}" if number % 2 else None)
            acknowledged.append(number)
            number += 1
    except FencedError:
        pass


@pytest.mark.parametrize("flushed", [False, True])
def test_a_successor_where_locks_mean_nothing(
    root: Path, engines: Callable[..., OwnedEngine], monkeypatch: pytest.MonkeyPatch, flushed: bool
) -> None:
    """As on a file system without them: the lock is in place, and another owns the warehouse all the same."""
    first = engines(root)
    table = Probe(first.create(SPEC, "error"))
    first.tenure.stop()  # it is the insert that must notice
    table.insert(row(1))
    if flushed:
        table.flush()  # then the next insert begins a segment
    elsewhere = root.with_name("locks")
    elsewhere.mkdir()
    monkeypatch.setattr("tidewheel.engine.local_engine.lock", lambda *_: lease.lock(elsewhere))
    second = engines(root)
    with pytest.raises(FencedError, match="took the lease"):
        table.insert(row(2))
    assert ids(second) == [1]


def test_another_warehouse_in_the_place_of_ours_is_left_alone(root: Path, engines: Callable[..., OwnedEngine]) -> None:
    other = engines(root.with_name("other"))
    Probe(other.create(SPEC, "error")).insert(row(7))
    other.close()
    engine = engines(root)
    table = Probe(engine.create(SPEC, "error"))
    table.insert(row(1))
    root.rename(root.with_name("moved"))
    root.with_name("other").rename(root)
    other = engines(root)
    Probe(other.table("t")).insert(row(8))
    Probe(other.table("t")).flush()
    with other.still():  # the log is trimmed a moment after the flush
        before = {path: path.stat().st_ino for path in root.rglob("*")}
    for call in (lambda: table.insert(row(2)), table.flush, lambda: table.replace(row(3), (3, 3)), engine.close):
        with pytest.raises(FencedError, match="another folder is in the place of its own"):
            call()
    assert {path: path.stat().st_ino for path in root.rglob("*")} == before
    Probe(other.table("t")).insert(row(9))
    other.close()
    assert ids(engines(root)) == [7, 8, 9]
    assert ids(engines(root.with_name("moved"))) in ([1], [1, 2])  # what was not acknowledged may be there


# ---- as users see it ----------------------------------------------------------------------------------------


def test_a_warehouse_is_opened_again_after_it_was_lost(root: Path) -> None:
    wh = tw.open(root)
    table = wh.create_table("t", SCHEMA, time="ts", key="id")
    table.insert(row(1))
    lock_deleted(root)
    for call in (lambda: table.insert(row(2)), lambda: wh.sql("SELECT count(*) FROM t"), wh.tables, table.flush):
        with pytest.raises(FencedError):
            call()
    with tw.open(root) as anew:  # while the lost one is still held
        assert anew.table("t").query().to_arrow()["id"].to_pylist() in ([1], [1, 2])
        with pytest.raises(FencedError, match="open it again"):
            wh.close()
        anew.table("t").insert(row(3))
    with tw.open(root) as anew:
        assert anew.table("t").rows in (2, 3)


@pytest.mark.parametrize("mishap", [lock_deleted, lock_replaced], ids=lambda f: f.__name__)
def test_an_attached_writer_goes_on_with_the_next_owner(root: Path, mishap: Callable[[Path], None]) -> None:
    with OwnerProcess() as owner:
        owner.open(root)
        with tw.open(root) as wh:
            table = wh.create_table("t", SCHEMA, time="ts", key="id")
            assert not engine_of(wh).owns
            table.insert(row(1))
            mishap(root)
            with pytest.raises(OwnerLostError, match="is not the owner of the warehouse .* any more") as error:
                table.insert(row(2), package="second")
            assert error.value.retryable and not error.value.untouched
            table.insert(row(2), package="second")  # recovers what the first owner had, and owns it
            assert engine_of(wh).owns
            assert sorted(table.query().to_arrow()["id"].to_pylist()) == [1, 2]
        owner.kill()


def test_an_idle_owner_lets_nobody_in(root: Path, engines: Callable[..., OwnedEngine]) -> None:
    """It notices without being asked, and stops listening; who is attached finds the next owner."""
    engine = engines(root, listen=True)
    assert engine.listener is not None and engine.listener.wait(60)
    attached = attach(root)
    lock_deleted(root)
    give_up = time.monotonic() + 30
    while not attached.lost and time.monotonic() < give_up:
        time.sleep(0.01)
    assert attached.lost and engine.fenced
    attached.close()
    assert engine._leaving is not None
    engine._leaving.join()
    assert not os.path.exists(root / "owner" / "address.json")
    with pytest.raises(OwnerLostError, match="nobody owns"):
        attach(root)


def test_an_attached_process_makes_no_new_warehouse_where_the_old_one_was(root: Path) -> None:
    with OwnerProcess() as owner:
        owner.open(root)
        with tw.open(root) as wh:
            table = wh.create_table("t", SCHEMA, time="ts", key="id")
            table.insert(row(1))
            folder_moved(root)
            with pytest.raises(OwnerLostError):
                table.insert(row(2))
            with pytest.raises(StorageError, match="is gone: its folder was deleted, moved or replaced") as error:
                table.insert(row(2), timeout=30)
            assert error.value.retryable and not root.exists()
            root.with_name("moved").rename(root)
            assert table.query(timeout=60).to_arrow().num_rows >= 1
        owner.kill()
