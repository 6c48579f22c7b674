"""`wh.backup()` and `tw.restore()`: what comes back is what was there, whatever goes on or goes wrong meanwhile."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import SOAK, examples
from tidewheel.cluster import current_engine
from tidewheel.env.disk import Disk
from tidewheel.env.faults import FAULTS, Crashed, Fault, FaultPlan, FaultyDisk
from tidewheel.env.folder_lock import hold
from tidewheel.errors import FormatError
from tidewheel.maintenance import backup as care
from tidewheel.maintenance.manifest import Manifest, Stored
from tidewheel.surfaces import cli
from tidewheel.testing.probe import owner_of

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("note", pa.string())])
SEED = int(os.environ.get("TIDEWHEEL_SEED") or random.randrange(2**32))
SHARE = 1 if SOAK else 3
"""Of how many ways to cut a backup short one is tried."""


def some(n: int, start: int = 0) -> pa.Table:
    i = range(start, start + n)
    return pa.table([pa.array(i), pa.array(i, pa.timestamp("us")), pa.array([f"note {j}" for j in i])], schema=SCHEMA)


@pytest.fixture
def wh(tmp_path: Path) -> Iterator[tw.Warehouse]:
    """Two tables, one of them with chunks, fresh rows, a package, a mask and rejects."""
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=16, indexing_servers=2)) as opened:
        table = opened.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(some(100), package="first")
        table.flush()
        table.replace(some(1, 10), time=(10, 19))
        table.insert([{"k": "no number", "ts": 5, "note": "x"}], on_bad="reject", package="dirty")
        table.insert(some(50, 1000))
        opened.create_table("empty", SCHEMA, time="ts", key="note")
        del table  # or its files would stay when it is dropped
        yield opened


def rows(wh: tw.Warehouse, name: str = "t") -> list[dict[str, object]]:
    return wh.table(name).query().to_arrow().sort_by("k").to_pylist()


def restored(folder: Path, root: Path) -> list[dict[str, object]]:
    """Restore, check, and read all rows."""
    tw.restore(folder, root)
    with tw.open(root) as wh:
        report = wh.check()
        assert report.ok, report
        return rows(wh)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# ---- what comes back -------------------------------------------------------------------------------------


def test_everything_comes_back(wh: tw.Warehouse, tmp_path: Path) -> None:
    report = wh.backup(tmp_path / "b")
    assert (report.tables, report.rows, report.copied, report.kept, report.removed) == (3, 152, 0, 0, 0)
    assert report.files == report.linked + 1 and report.bytes == sum(
        len(v) for k, v in files(tmp_path / "b").items() if k != "manifest.json"
    )
    assert str(report).startswith(f"{tmp_path / 'b'}: 3 tables, 152 rows, ")
    want, rejects = rows(wh), wh.table("t").rejects().to_arrow()
    done = tw.restore(tmp_path / "b", tmp_path / "r")
    assert (done.tables, done.rows, done.files, done.bytes) == (3, 152, report.files, report.bytes)
    assert str(done).startswith(f"{tmp_path / 'r'}: 3 tables, 152 rows")
    with tw.open(tmp_path / "r") as again:
        assert again.recovery.clean
        assert again.tables() == ["empty", "t"] and rows(again) == want and len(want) == 141
        assert again.table("t").rejects().to_arrow().equals(rejects)
        assert again.check().ok and again.table("empty").rows == 0
        assert again.table("t").insert(some(100), package="first").duplicate
        assert again.table("t").insert(some(1), package="dirty").duplicate
        for name in again.tables():  # and they go on
            again.table(name).insert(some(10, 5000))
            again.table(name).flush()
        assert again.table("t").rows == 151 and again.check().ok
        lease = owner_of(again).catalog.lease()
        assert lease is not None and lease.pid == os.getpid()
        assert lease.epoch > owner_of(wh).epoch + 1000  # no later owner of the original has it, too
    with tw.open(tmp_path / "r") as again:
        assert again.table("t").rows == 151


def test_a_warehouse_without_tables(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        assert wh.backup(tmp_path / "b").files == 1
    tw.restore(tmp_path / "b", tmp_path / "r")
    with tw.open(tmp_path / "r") as wh:
        assert wh.tables() == [] and wh.check().ok


def test_restored_files_are_copies(wh: tw.Warehouse, tmp_path: Path) -> None:
    """Links on the way in, since a chunk never changes; but what is restored must not share its bytes with the backup."""
    wh.backup(tmp_path / "b")
    tw.restore(tmp_path / "b", tmp_path / "r")
    for path in (tmp_path / "b").rglob("*.arrow"):
        name = path.relative_to(tmp_path / "b")
        assert os.path.samefile(path, tmp_path / "wh" / name) and not os.path.samefile(path, tmp_path / "r" / name)


def test_the_catalog_of_a_backup_has_no_owner_and_only_what_was_backed_up(wh: tw.Warehouse, tmp_path: Path) -> None:
    wh.backup(tmp_path / "b")
    (catalog,) = (tmp_path / "b").glob("catalog-*.sqlite")
    with closing(sqlite3.connect(catalog)) as db:
        assert db.execute("SELECT pid, host, since FROM leases").fetchall() == [(None, None, None)]
        named = {file for (file,) in db.execute("SELECT file FROM chunks")}
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert named == {name for name in files(tmp_path / "b") if name.startswith("tables/")}


def test_into_an_empty_folder_that_is_there(wh: tw.Warehouse, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "deep").mkdir()
    wh.backup(str(tmp_path / "b"))
    assert len(restored(tmp_path / "b", tmp_path / "deep")) == 141


# ---- again into the same folder --------------------------------------------------------------------------


def test_only_new_files_are_linked(wh: tw.Warehouse, tmp_path: Path) -> None:
    first = wh.backup(tmp_path / "b")
    same = wh.backup(tmp_path / "b")
    assert (same.linked, same.kept, same.removed) == (0, first.linked, 1), "the catalog of before goes"
    wh.table("t").insert(some(10, 2000))
    third = wh.backup(tmp_path / "b")
    assert 1 <= third.linked <= 2 and third.kept == first.linked
    assert len(list((tmp_path / "b").glob("catalog-*"))) == 1
    wh.drop_table("t")
    last = wh.backup(tmp_path / "b")
    assert last.files == 1 and last.removed == third.linked + third.kept + 1
    assert sorted(files(tmp_path / "b")) == sorted(["manifest.json", *[p.name for p in (tmp_path / "b").glob("catalog-*")]])
    tw.restore(tmp_path / "b", tmp_path / "r")
    with tw.open(tmp_path / "r") as again:
        assert again.tables() == ["empty"]


def test_what_is_not_ours_stays(wh: tw.Warehouse, tmp_path: Path) -> None:
    wh.backup(tmp_path / "b")
    (tmp_path / "b" / "notes.txt").write_text("mine")
    (tmp_path / "b" / "tables" / "1" / "notes.txt").write_text("mine")
    wh.drop_table("t")
    wh.backup(tmp_path / "b")
    assert (tmp_path / "b" / "notes.txt").exists() and (tmp_path / "b" / "tables" / "1" / "notes.txt").exists()


class NoLinks(Disk):
    """Another disk: copies only."""

    def link(self, old: str, new: str) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")


def test_copies_where_no_link_can_be_made(wh: tw.Warehouse, tmp_path: Path) -> None:
    report = care.backup(owner_of(wh), tmp_path / "b", disk=NoLinks())
    assert report.linked == 0 and report.copied == report.files - 1
    for path in (tmp_path / "b").rglob("*.arrow"):
        assert not os.path.samefile(path, tmp_path / "wh" / path.relative_to(tmp_path / "b"))
    assert care.backup(owner_of(wh), tmp_path / "b", disk=NoLinks()).copied == 0
    assert len(restored(tmp_path / "b", tmp_path / "r")) == 141


def test_a_damaged_file_of_the_backup_is_made_anew(wh: tw.Warehouse, tmp_path: Path) -> None:
    care.backup(owner_of(wh), tmp_path / "b", disk=NoLinks())
    path = sorted((tmp_path / "b").rglob("*.arrow"))[0]
    flip(path, path.stat().st_size // 2)
    assert wh.backup(tmp_path / "b", verify="new").linked == 0, "it has the right size"
    with pytest.raises(tw.CorruptionError):
        tw.restore(tmp_path / "b", tmp_path / "r")
    again = wh.backup(tmp_path / "b")
    assert again.linked == 1 and len(restored(tmp_path / "b", tmp_path / "r")) == 141
    path.unlink()
    path.write_bytes(b"short")
    assert care.backup(owner_of(wh), tmp_path / "b", disk=NoLinks()).copied == 1
    path.unlink()
    assert wh.backup(tmp_path / "b", verify="new").linked == 1


def test_a_good_copy_outlives_its_damaged_original(wh: tw.Warehouse, tmp_path: Path) -> None:
    """That is what the backup is for: it is not replaced by the damage, and the file can be put back from it."""
    care.backup(owner_of(wh), tmp_path / "b", disk=NoLinks())
    want = rows(wh)
    (path, *_) = sorted((tmp_path / "wh").rglob("*.arrow"))
    flip(path, path.stat().st_size // 2)
    assert not wh.check().ok
    wh.backup(tmp_path / "b")
    assert restored(tmp_path / "b", tmp_path / "r") == want
    shutil.copy(tmp_path / "b" / path.relative_to(tmp_path / "wh"), path)
    assert wh.check().ok


# ---- what is refused -------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x10]))


def test_a_damaged_chunk_is_named_and_not_backed_up(wh: tw.Warehouse, tmp_path: Path) -> None:
    wh.table("t").flush()
    path = max((tmp_path / "wh").rglob("*.arrow"), key=lambda p: p.stat().st_size)
    with pa.memory_map(str(path)) as file:
        whole = file.read_buffer()
        at = pa.ipc.open_file(whole).get_batch(0).column("k").buffers()[1].address - whole.address
    flip(path, at)
    with pytest.raises(tw.CorruptionError, match=rf"{path.name} of table 't' is damaged \(block 0 of column 'k'.*no backup was made"):
        wh.backup(tmp_path / "b")
    with pytest.raises(tw.CorruptionError, match="never completed"):
        tw.restore(tmp_path / "b", tmp_path / "r")
    flip(path, at)
    assert wh.backup(tmp_path / "b").files > 1
    path.rename(tmp_path / "away")
    with pytest.raises(tw.CorruptionError, match=f"{path.name} cannot be read"):
        wh.backup(tmp_path / "c")
    (tmp_path / "away").rename(path)


def test_folders_that_will_not_do(wh: tw.Warehouse, tmp_path: Path) -> None:
    root = tmp_path / "wh"
    for inside in (root, root / "backup", root / "tables" / "1"):
        with pytest.raises(tw.InputError, match="lies in the warehouse"):
            wh.backup(inside)
    with tw.open(tmp_path / "other") as other, pytest.raises(tw.InputError, match="holds a warehouse"):
        wh.backup(tmp_path / "other")
        other.close()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(tw.InputError, match=r"holds letter\.txt and no backup"):
        wh.backup(tmp_path / "full")
    (tmp_path / "file").write_text("hello")
    with pytest.raises(tw.StorageError, match="cannot make folder"):
        wh.backup(tmp_path / "file")
    with pytest.raises(tw.InputError, match="verify is 'all' or 'new', not 'some'"):
        wh.backup(tmp_path / "b", verify="some")
    assert not (root / "manifest.json").exists() and wh.check().ok


def test_the_folder_of_another_warehouse(wh: tw.Warehouse, tmp_path: Path) -> None:
    wh.backup(tmp_path / "b")
    before = files(tmp_path / "b")
    with tw.open(tmp_path / "other") as other, pytest.raises(tw.InputError, match="backup of another warehouse"):
        other.backup(tmp_path / "b")
    assert files(tmp_path / "b") == before


def test_a_restored_warehouse_may_go_on_in_the_same_folder(wh: tw.Warehouse, tmp_path: Path) -> None:
    wh.backup(tmp_path / "b")
    tw.restore(tmp_path / "b", tmp_path / "r")
    with tw.open(tmp_path / "r") as again:
        again.table("t").insert(some(5, 9000))
        report = again.backup(tmp_path / "b")
        assert report.linked >= 1 and report.kept > 1
    assert len(restored(tmp_path / "b", tmp_path / "r2")) == 146


def test_two_at_once(wh: tw.Warehouse, tmp_path: Path) -> None:
    wh.backup(tmp_path / "b")
    with hold(str(tmp_path / "b"), shared=True):
        with pytest.raises(tw.StorageError, match="a backup or restore is at work") as error:
            wh.backup(tmp_path / "b")
        assert error.value.retryable
        tw.restore(tmp_path / "b", tmp_path / "r")  # readers do not mind each other
    with hold(str(tmp_path / "b"), shared=False), pytest.raises(tw.StorageError, match="at work"):
        tw.restore(tmp_path / "b", tmp_path / "r2")
    assert not (tmp_path / "r2").exists()


# ---- in use ----------------------------------------------------------------------------------------------


def test_while_rows_come_in_and_tables_go(tmp_path: Path) -> None:
    """Each backup holds all that was inserted before it began, and of what came later only whole batches, in order."""
    stop = threading.Event()
    errors: list[BaseException] = []
    acknowledged = [0]

    def insert() -> None:
        while not stop.is_set():
            table.insert(some(100, acknowledged[0]))
            acknowledged[0] += 100

    def drop() -> None:
        turn = 0
        while not stop.is_set():
            other = wh.create_table(f"other_{turn}", SCHEMA, time="ts", key="k")
            other.insert(some(500))
            other.flush()
            other.insert(some(500))
            wh.drop_table(other.name)
            turn += 1

    def guarded(job: Any) -> None:
        try:
            job()
        except BaseException as e:
            errors.append(e)

    settings = tw.Settings(chunk_bytes=1 << 14, leaf_rows=16, indexing_servers=3)
    with tw.open(tmp_path / "wh", settings=settings) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        threads = [threading.Thread(target=guarded, args=(job,)) for job in (insert, drop)]
        for thread in threads:
            thread.start()
        try:
            give_up = time.monotonic() + examples(2)
            turn = 0
            while time.monotonic() < give_up or turn < 2:
                before = acknowledged[0]
                wh.backup(tmp_path / "b")
                got = restored(tmp_path / "b", tmp_path / f"r{turn}")
                assert [row["k"] for row in got] == list(range(len(got))) and len(got) % 100 == 0 and len(got) >= before
                turn += 1
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not errors, errors
        assert wh.check().ok


def test_a_table_that_is_dropped_while_it_is_backed_up(wh: tw.Warehouse, tmp_path: Path) -> None:
    """It is in the backup, whole: the files stay until they are linked."""
    want = rows(wh)

    def drop(done: int, total: int) -> None:
        if "t" in wh.tables():
            wh.drop_table("t")

    wh.backup(tmp_path / "b", progress=drop)
    assert not list((tmp_path / "wh" / "tables").rglob("*.arrow"))
    assert restored(tmp_path / "b", tmp_path / "r") == want


def test_what_is_committed_during_the_backup_is_not_in_it(wh: tw.Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the cut and the copy of the catalog: rows, a package, a replace, a table."""
    want = rows(wh)
    real = care._cut

    def later(engine: Any) -> dict[int, int]:
        upto = real(engine)
        table = wh.table("t")
        table.insert(some(10, 7000), package="second")
        table.insert([{"k": "no", "ts": 5, "note": "x"}], on_bad="reject", package="third")
        table.replace(some(1, 50), time=(20, 60))
        table.flush()
        wh.create_table("new", SCHEMA, time="ts", key="k").insert(some(3))
        wh.table("new").flush()
        return upto

    monkeypatch.setattr(care, "_cut", later)
    wh.backup(tmp_path / "b")
    assert restored(tmp_path / "b", tmp_path / "r") == want
    with tw.open(tmp_path / "r") as again:
        assert again.tables() == ["empty", "t"] and len(again.table("t").rejects()) == 1
        for package in ("second", "third"):
            assert not again.table("t").insert(some(1, 7000), package=package).duplicate
        again.table("t").flush()
        assert again.check().ok


def test_a_chunk_from_before_and_after_is_refused(tmp_path: Path) -> None:
    """It cannot happen, since a backup seals all trees; if it does, rather no backup than a wrong one."""
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(some(1))
        table.insert(some(1))
        table.flush()
        catalog = owner_of(wh).catalog
        with pytest.raises(tw.StorageError, match="from before and after generation 1"):
            catalog.snapshot({1: 1})
        assert [c.generation_hi for c in catalog.snapshot({1: 2}).chunks] == [2]
        assert catalog.snapshot({1: 0}).chunks == () and catalog.snapshot({}).tables == ()
        (now,) = catalog.tables()
        assert now.generation == 2, "the catalog itself is as it was"


# ---- crashes and failures --------------------------------------------------------------------------------


class Copying(FaultyDisk):
    """A disk that lies, and on which no link can be made."""

    def link(self, old: str, new: str) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")


def plans(
    counts: Counter[str], faults: tuple[Fault, ...] = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.TORN_HALF, Fault.FAIL)
) -> list[FaultPlan]:
    """Every operation of a run that went well, cut short in every way; but for a disk that only says that it syncs. If this is no soak,
    every third of them, beginning where the seed says."""
    print(f"TIDEWHEEL_SEED={SEED}")
    return [
        FaultPlan(operation, nth, fault)
        for operation, count in sorted(counts.items())
        for nth in range(1, count + 1)
        for fault in FAULTS[operation]
        if fault in faults
    ][SEED % SHARE :: SHARE]


def attempt(disk: FaultyDisk, run: Callable[[FaultyDisk], object]) -> bool:
    """True if it went through. Where it died, the power fails as well."""
    try:
        run(disk)
    except Crashed:
        disk.lose_power()
        return False
    except tw.StorageError:
        return False
    return True


@pytest.mark.parametrize("kind", [FaultyDisk, Copying])
def test_a_backup_that_is_cut_short_anywhere_leaves_the_one_before(wh: tw.Warehouse, tmp_path: Path, kind: type[FaultyDisk]) -> None:
    wh.create_table("gone", SCHEMA, time="ts", key="k").insert(some(5))
    wh.backup(tmp_path / "first")
    old, before = rows(wh), files(tmp_path / "first" / "tables")
    wh.drop_table("gone")
    wh.table("t").insert(some(20, 3000))
    wh.table("t").flush()
    new, there = rows(wh), files(tmp_path / "wh" / "tables")
    assert len(new) == len(old) + 20
    folder = tmp_path / "b"

    def again(plan: FaultPlan | None) -> FaultyDisk:
        for path in (folder, tmp_path / ".b.attic", tmp_path / "r"):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(tmp_path / "first", folder)
        return kind(folder, plan)

    def restore() -> dict[str, bytes]:
        shutil.rmtree(tmp_path / "r", ignore_errors=True)
        tw.restore(folder, tmp_path / "r")
        return files(tmp_path / "r" / "tables")

    def run(disk: FaultyDisk) -> object:
        return care.backup(owner_of(wh), folder, disk=disk)

    disk = again(None)
    assert attempt(disk, run) and restore() == there
    for n, plan in enumerate(plans(disk.counts)):
        disk = again(plan)
        whole = attempt(disk, run)
        assert disk.met, plan
        assert restore() in ((there,) if whole else (before, there)), plan
        if n % 16 == 0:
            with tw.open(tmp_path / "r") as opened:
                assert rows(opened) in (old, new) and opened.check().ok
        wh.backup(folder)
        assert restore() == there, plan
        left = {name for name in files(folder) if name != "manifest.json"}
        assert left == set(json.loads((folder / "manifest.json").read_text())["files"]), plan
    assert n > 60 // SHARE


def test_a_first_backup_that_is_cut_short_anywhere(wh: tw.Warehouse, tmp_path: Path) -> None:
    """There is no backup then, or all of it; and the next attempt makes it."""
    wh.table("t").flush()
    there = files(tmp_path / "wh" / "tables")
    disk = FaultyDisk(tmp_path / "b")
    care.backup(owner_of(wh), tmp_path / "b", disk=disk)
    for n, plan in enumerate(plans(disk.counts, (Fault.CRASH_BEFORE, Fault.FAIL))):
        folder, root = tmp_path / f"b{n}", tmp_path / f"r{n}"
        if not attempt(FaultyDisk(folder, plan), lambda disk: care.backup(owner_of(wh), folder, disk=disk)):  # noqa: B023
            try:
                tw.restore(folder, root)
            except (tw.NotFoundError, tw.CorruptionError):
                assert not root.exists()
            else:
                assert files(root / "tables") == there
        wh.backup(folder)
        shutil.rmtree(root, ignore_errors=True)
        tw.restore(folder, root)
        assert files(root / "tables") == there, plan
    assert n > 30 // SHARE


def test_a_restore_that_is_cut_short_anywhere(wh: tw.Warehouse, tmp_path: Path) -> None:
    """Killed: nothing that could be taken for a warehouse, or all of it. Failed: nothing at all."""
    wh.backup(tmp_path / "b")
    there = files(tmp_path / "b" / "tables")
    disk = FaultyDisk(tmp_path / "good")
    tw.restore(tmp_path / "b", tmp_path / "good", disk=disk)
    for n, plan in enumerate(plans(disk.counts)):
        root = tmp_path / f"r{n}"
        disk = FaultyDisk(root, plan)
        whole = attempt(disk, lambda disk: tw.restore(tmp_path / "b", root, disk=disk))  # noqa: B023
        if whole or (root / "catalog.sqlite").exists():
            assert files(root / "tables") == there, plan
            assert (root / "catalog.sqlite").read_bytes() == (tmp_path / "good" / "catalog.sqlite").read_bytes()
        elif disk.crashed.is_set() and list(root.rglob("*.arrow*")):
            with pytest.raises(FormatError, match="catalog"):
                tw.open(root)
        elif not disk.crashed.is_set():
            assert not root.exists(), plan
    assert n > 40 // SHARE


# ---- restore refuses -------------------------------------------------------------------------------------


def test_what_cannot_be_restored(wh: tw.Warehouse, tmp_path: Path) -> None:
    wh.backup(tmp_path / "b")
    with pytest.raises(tw.NotFoundError, match="there is no backup in"):
        tw.restore(tmp_path / "nowhere", tmp_path / "r")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    for root in (tmp_path / "full", tmp_path / "wh", tmp_path / "b", tmp_path / "full" / "letter.txt"):
        with pytest.raises(tw.InputError, match="is not empty"):
            tw.restore(tmp_path / "b", root)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("which", ["chunk", "catalog"])
@pytest.mark.parametrize("how", ["flip", "truncate", "remove"])
def test_a_damaged_backup_is_named_and_not_restored(wh: tw.Warehouse, tmp_path: Path, which: str, how: str) -> None:
    wh.backup(tmp_path / "b")
    (path, *_) = sorted((tmp_path / "b").rglob("*.arrow" if which == "chunk" else "catalog-*"))
    data = path.read_bytes()
    path.unlink()  # it is a link: the warehouse's own file must stay as it is
    if how != "remove":
        path.write_bytes(data if how == "flip" else data[:-1])
    if how == "flip":
        flip(path, len(data) // 2)
    said = {"flip": "is damaged", "truncate": f"has {len(data) - 1} bytes, not {len(data)}", "remove": "is missing from the backup"}[how]
    with pytest.raises(tw.CorruptionError, match=f"{path.name} {said}"):
        tw.restore(tmp_path / "b", tmp_path / "r")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "change, error",
    [
        (lambda text: text.replace('"format": 1', '"format": 2'), "has format 2, this Tidewheel reads 1: use a newer version"),
        (lambda text: text.replace('"bytes": 1', '"bytes": 2', 1), "checksum is wrong"),
        (lambda text: text[: len(text) // 2], "manifest.json is damaged"),
        (lambda text: "[]", "manifest.json is damaged"),
        (lambda text: "{}", "manifest.json is damaged"),
    ],
)
def test_a_damaged_manifest(wh: tw.Warehouse, tmp_path: Path, change: Any, error: str) -> None:
    wh.backup(tmp_path / "b")
    path = tmp_path / "b" / "manifest.json"
    changed = change(path.read_text())
    assert changed != path.read_text()
    path.write_text(changed)
    with pytest.raises(tw.TidewheelError, match=error):
        tw.restore(tmp_path / "b", tmp_path / "r")
    with pytest.raises(tw.TidewheelError, match=error):
        wh.backup(tmp_path / "b")


def test_a_manifest_comes_back_as_it_was() -> None:
    for given in (Manifest(), Manifest("now", "0", "id–é", {}, "catalog-0.sqlite", {"catalog-0.sqlite": Stored(5, "0" * 16)})):
        assert Manifest.from_json(given.to_json(), "") == given


def test_a_disk_that_writes_something_else(wh: tw.Warehouse, tmp_path: Path) -> None:
    class Wrong(NoLinks):
        def copy(self, old: str, new: str) -> None:
            super().copy(old, new)
            flip(Path(new), 100)

    with pytest.raises(tw.StorageError, match="its disk may be failing"):
        care.backup(owner_of(wh), tmp_path / "b", disk=Wrong())
    wh.backup(tmp_path / "b")
    with pytest.raises(tw.StorageError, match="its disk may be failing"):
        tw.restore(tmp_path / "b", tmp_path / "r", disk=Wrong())
    assert not (tmp_path / "r").exists()


def test_nobody_opens_it_before_it_is_whole(wh: tw.Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current_engine, "PATIENCE", 0.1)  # no owner will answer
    wh.backup(tmp_path / "b")
    refused = []

    def intrude(done: int, total: int) -> None:
        if done < total:
            with pytest.raises(tw.OwnedError):
                tw.open(tmp_path / "r")
            with pytest.raises(tw.InputError, match="is not empty"):
                tw.restore(tmp_path / "b", tmp_path / "r")
            refused.append(done)

    tw.restore(tmp_path / "b", tmp_path / "r", progress=intrude)
    assert refused
    with tw.open(tmp_path / "r") as again:
        assert len(rows(again)) == 141


# ---- the commands ----------------------------------------------------------------------------------------


def test_the_commands(wh: tw.Warehouse, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wh.close()
    root, folder = str(tmp_path / "wh"), str(tmp_path / "b")
    assert cli.main(["backup", folder, "-w", root]) == 0
    assert capsys.readouterr().out.startswith(f"{folder}: 3 tables, 152 rows, ")
    assert cli.main(["backup", folder, "-w", root, "--verify", "new"]) == 0
    assert ", 1 no longer needed and removed)" in capsys.readouterr().out
    assert cli.main(["restore", folder, str(tmp_path / "r")]) == 0
    assert "restored in" in capsys.readouterr().out
    assert cli.main(["check", "-w", str(tmp_path / "r")]) == 0
    capsys.readouterr()
    assert cli.main(["restore", folder, str(tmp_path / "r")]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert cli.main(["restore", str(tmp_path / "none"), str(tmp_path / "r2")]) == 1
    assert "there is no backup in" in capsys.readouterr().err
    for wrong in (["restore", folder], ["backup", "-w", root], ["backup", folder, "-w", root, "--verify", "some"]):
        assert cli.main(wrong) == 2
    capsys.readouterr()
