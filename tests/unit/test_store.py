"""What every store promises, asked of each that there is: a folder on a disk, the disk that lies, a file system that is read by range."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from tidewheel.env.faults import Fault, FaultPlan, FaultyDisk
from tidewheel.env.local_files import LocalFiles
from tidewheel.env.range_files import RangeFiles
from tidewheel.env.store import RangeReader, Store
from tidewheel.errors import CorruptionError, StorageError

DATA = bytes(range(256))


@pytest.fixture(params=["disk", "faulty"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    root = tmp_path / "wh"
    root.mkdir()
    return LocalFiles(root, FaultyDisk(root) if request.param == "faulty" else None)


@pytest.fixture(params=["disk", "ranges"])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RangeReader]:
    (tmp_path / "a").write_bytes(DATA)
    if request.param == "disk":
        yield LocalFiles(tmp_path)
        return
    files = RangeFiles(fs.LocalFileSystem(), str(tmp_path))
    yield files
    files.close()


def put(store: Store, name: str, data: bytes = DATA) -> int:
    return store.write(name, lambda sink: sink.write(data))


def test_ranges_come_in_the_order_asked(reader: RangeReader) -> None:
    ranges = [(200, 56), (0, 1), (9, 0), (3, 4)]
    assert reader.read_ranges("a", ranges) == [DATA[at : at + size] for at, size in ranges]
    assert reader.read_ranges("a", []) == []


def test_an_object_that_is_missing_or_too_short_is_damage(reader: RangeReader) -> None:
    with pytest.raises(CorruptionError, match="ends at byte 256"):
        reader.read_ranges("a", [(250, 7)])
    with pytest.raises(CorruptionError, match="missing"):
        reader.read_ranges("b", [(0, 1)])
    reader.remove("a")
    reader.remove("a")
    with pytest.raises(CorruptionError, match="missing"):
        reader.read_ranges("a", [(0, 1)])


def test_an_object_appears_whole_and_by_its_name_only_then(store: Store) -> None:
    store.make_folder("f")
    assert put(store, "f/a") == len(DATA)
    assert store.regular_size("f/a") == -1
    assert store.map("f/a", len(DATA), temporary=True).to_pybytes() == DATA
    assert store.appear_each([["f/a"], []]) == [None, None]
    assert list(store.list("f")) == ["f/a"] and store.regular_size("f/a") == len(DATA)
    with pytest.raises(CorruptionError, match="has 256 bytes"):
        store.map("f/a", len(DATA) - 1)


def test_what_cannot_be_written_leaves_nothing(store: Store) -> None:
    def half(sink: Any) -> None:
        sink.write(DATA)
        raise OSError("no more")

    with pytest.raises(StorageError, match="no more"):
        store.write("a", half)
    assert list(store.list("")) == []


def test_a_group_that_cannot_appear_does_not_hold_up_another(tmp_path: Path) -> None:
    store: Store = LocalFiles(tmp_path, FaultyDisk(tmp_path, FaultPlan("rename", 1, Fault.FAIL)))
    put(store, "a")
    put(store, "b")
    failed, fine = store.appear_each([["a"], ["b"]])
    assert isinstance(failed, StorageError) and fine is None
    assert store.regular_size("a") == -1 and store.regular_size("b") == len(DATA)


def test_objects_move_and_folders_go_when_they_are_empty(store: Store) -> None:
    store.make_folder("from")
    put(store, "from/a")
    store.appear_each([["from/a"]])
    assert store.modified("from/a") > 0 and [f.strip("/") for f in store.folders("")] == ["from"]
    store.remove_folder("from")
    store.move("from/a", "to/b")
    assert list(store.list("")) == ["to/b"]
    assert store.rename_folder("from", "ended") and not store.rename_folder("from", "ended")
    store.remove_folder("ended")
    store.sync_folder("to")
    assert [f.strip("/") for f in store.folders("")] == ["to"] and store.modified("from/a") == 0
