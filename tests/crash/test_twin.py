"""The disk that lies, itself: it does what it says, before and after a power failure."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from tidewheel.env.faults import FAULTS, Crashed, Fault, FaultPlan, FaultyDisk
from tidewheel.env.power_loss import Loss


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "w").mkdir()
    return tmp_path / "w"


def written(disk: FaultyDisk, name: str, data: bytes = b"0123456789") -> int:
    descriptor = disk.create(str(disk.root / name))
    disk.append(descriptor, [data])
    return descriptor


def content(disk: FaultyDisk) -> dict[str, bytes]:
    return {str(p.relative_to(disk.root)): p.read_bytes() for p in disk.root.rglob("*") if p.is_file()}


def test_a_dead_process_changes_nothing_more(root: Path) -> None:
    disk = FaultyDisk(root, FaultPlan("append", 2, Fault.TORN_HALF))
    descriptor = written(disk, "a")
    with pytest.raises(Crashed):
        disk.append(descriptor, [b"abcd", b"efgh"])
    for call in (
        lambda: disk.append(descriptor, [b"x"]), lambda: disk.rename(str(root / "a"), str(root / "b")),
        lambda: disk.unlink(str(root / "a")), lambda: disk.create(str(root / "c")), lambda: disk.sink(str(root / "d")),
        lambda: disk.copy(str(root / "a"), str(root / "e")), lambda: disk.make_folder(str(root / "f")),
        lambda: disk.truncate(descriptor, 0), lambda: disk.sync(descriptor),
    ):  # fmt: skip
        with pytest.raises(Crashed):
            call()
    assert content(disk) == {"a": b"0123456789abcd"}
    following = disk.next_process()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)
    assert following.boot() == disk.boot()
    following.unlink(str(root / "a"))
    assert content(following) == {}


@pytest.mark.parametrize(
    ("loss", "left"),
    [(Loss.ALL, b"0123456789"), (Loss.HALF, b"0123456789ab"), (Loss.ZEROS, b"0123456789\0\0\0\0")],
)
def test_a_power_failure_takes_bytes_that_were_not_synced(root: Path, loss: Loss, left: bytes) -> None:
    disk = FaultyDisk(root)
    descriptor = written(disk, "a")
    disk.sync(descriptor)
    disk.sync_folder(str(root))
    assert not disk.platter.at_risk()
    disk.append(descriptor, [b"abcd"])
    assert disk.platter.at_risk()
    before = disk.boot()
    disk.lose_power(loss)
    assert content(disk) == {"a": left} and disk.boot() != before
    assert not disk.platter.at_risk()


def test_a_power_failure_undoes_names_that_were_not_synced(root: Path) -> None:
    disk = FaultyDisk(root)
    for name in ("kept", "removed", "renamed", "covered", "linked"):
        disk.sync(written(disk, name, name.encode()))
    disk.make_folder(str(root / "old"))
    disk.sync_folder(f"{root}/")
    disk.unlink(str(root / "removed"))
    disk.rename(str(root / "renamed"), str(root / "covered"))
    disk.link(str(root / "linked"), str(root / "second"))
    disk.remove_folder(str(root / "old"))
    disk.make_folder(str(root / "new" / "inner"))
    disk.sync(written(disk, "new/inner/file"))
    disk.sync_folder(str(root / "new" / "inner"))
    disk.sync(written(disk, "made"))
    assert sorted(content(disk)) == ["covered", "kept", "linked", "made", "new/inner/file", "second"]
    disk.lose_power()
    assert content(disk) == {name: name.encode() for name in ("kept", "removed", "renamed", "covered", "linked")}
    assert (root / "old").is_dir() and not (root / "new").exists()  # a folder is lost with all that was safe in it


def test_a_truncation_that_was_not_synced_is_undone(root: Path) -> None:
    disk = FaultyDisk(root)
    descriptor = written(disk, "a")
    disk.sync(descriptor)
    disk.sync_folder(str(root))
    disk.truncate(descriptor, 4)
    disk.append(descriptor, [b"new"])
    assert content(disk) == {"a": b"0123new"}
    disk.lose_power()
    assert content(disk) == {"a": b"0123456789"}


def test_what_a_failed_sync_threw_away_never_comes_back(root: Path) -> None:
    disk = FaultyDisk(root, FaultPlan("sync", 2, Fault.FAIL))
    descriptor = written(disk, "a")
    disk.sync(descriptor)
    disk.sync_folder(str(root))
    disk.append(descriptor, [b"abc"])
    with pytest.raises(OSError) as error:
        disk.sync(descriptor)
    assert error.value.errno == errno.EIO
    disk.append(descriptor, [b"def"])
    disk.sync(descriptor)  # says that all is well
    disk.lose_power()
    assert content(disk) == {"a": b"0123456789\0\0\0def"}


@pytest.mark.parametrize("kind", ["sync", "sync_file", "rename", "sync_folder"])
def test_what_is_lost_is_missed_only_after_a_power_failure(root: Path, kind: str) -> None:
    disk = FaultyDisk(root, FaultPlan(kind, 1, Fault.LOST))
    descriptor = written(disk, "a.tmp")
    (disk.sync(descriptor) if kind == "sync" else disk.sync_file(str(root / "a.tmp")))
    disk.rename(str(root / "a.tmp"), str(root / "a"))
    disk.sync_folder(str(root))
    assert content(disk) == {"a": b"0123456789"}
    disk.lose_power()
    assert content(disk) == ({} if kind in ("rename", "sync_folder") else {"a": b""})


def test_a_full_disk_takes_a_part(root: Path) -> None:
    disk = FaultyDisk(root)
    descriptor = written(disk, "a")
    disk.full = True
    with pytest.raises(OSError, match="No space"):
        disk.append(descriptor, [b"abcd"])
    with pytest.raises(OSError, match="No space"):
        disk.sink(str(root / "b"))
    disk.truncate(descriptor, 10)
    disk.unlink(str(root / "a"))
    disk.full = False
    assert disk.append(written(disk, "c"), [b"abcd"]) == 4


def test_a_short_write_is_told(root: Path) -> None:
    disk = FaultyDisk(root, FaultPlan("append", 2, Fault.SHORT))
    assert disk.append(written(disk, "a"), [b"abc", b"de"]) == 3
    assert content(disk) == {"a": b"0123456789abc"}


@pytest.mark.parametrize("fault", FAULTS["write"])
def test_arrow_passes_on_what_happens_to_its_file(root: Path, fault: Fault) -> None:
    disk = FaultyDisk(root, FaultPlan("write", 2, fault))
    batch = pa.record_batch([pa.array(range(2000))], names=["k"])
    with pytest.raises(OSError if fault in (Fault.FAIL, Fault.FULL) else Crashed):  # noqa: SIM117
        with disk.sink(str(root / "a")) as sink, pa.ipc.new_file(sink, batch.schema) as out:
            out.write_batch(batch)
    assert disk.met and disk.crashed.is_set() == (fault not in (Fault.FAIL, Fault.FULL))
    disk.next_process()


def test_arrow_writes_what_it_would_write(root: Path) -> None:
    disk = FaultyDisk(root)
    batch = pa.record_batch([pa.array(range(2000))], names=["k"])
    with disk.sink(str(root / "a")) as sink:
        with pa.ipc.new_file(sink, batch.schema) as out:
            out.write_batch(batch)
        size = sink.tell()
    assert size == (root / "a").stat().st_size
    assert pa.ipc.open_file(pa.memory_map(str(root / "a"))).read_all().to_batches() == [batch]
    assert 1 < disk.counts["write"] < 10
