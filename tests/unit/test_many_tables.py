"""Many tables cost what they should: few descriptors, one look at the catalog, nothing for those that are not used."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import examples
from tests.flushing import seal_together
from tidewheel.catalog.sql import SqlCatalog
from tidewheel.engine.local_engine import LocalEngine
from tidewheel.env.disk import Disk
from tidewheel.env.handles import Handles
from tidewheel.env.local_files import LocalFiles
from tidewheel.errors import FencedError, StorageError
from tidewheel.model.records import Commit
from tidewheel.testing.probe import owner_of

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
TABLES = 24


def some(n: int, start: int = 0) -> pa.Table:
    i = range(start, start + n)
    return pa.table([pa.array(i), pa.array(i, pa.timestamp("us"))], schema=SCHEMA)


def test_a_warehouse_is_opened_with_one_look_at_its_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tw.open(tmp_path) as wh:
        for n in range(TABLES):
            wh.create_table(f"t{n}", SCHEMA, time="ts", key="k").insert(some(3, n))
    for name in ("chunks", "masks", "servers", "coverage", "table"):

        def refuse(*given: object, name: str = name) -> None:
            raise AssertionError(f"catalog.{name} was asked for one table")

        monkeypatch.setattr(SqlCatalog, name, refuse)
    with tw.open(tmp_path) as wh:
        assert [wh.table(f"t{n}").rows for n in range(TABLES)] == [3] * TABLES


@pytest.fixture
def many(tmp_path: Path) -> Iterator[tuple[tw.Warehouse, LocalEngine]]:
    with tw.open(tmp_path) as wh:
        for n in range(TABLES):
            wh.create_table(f"t{n}", SCHEMA, time="ts", key="k").insert(some(3, n))
        yield wh, owner_of(wh)


def flushed(wh: tw.Warehouse) -> list[int]:
    """Tables whose rows are in a chunk; all of their rows are there in any case."""
    assert [wh.table(f"t{n}").rows for n in range(TABLES)] == [3] * TABLES
    return [n for n in range(TABLES) if wh.table(f"t{n}").state().chunks]


def test_tables_that_are_flushed_at_once_share_syncs_and_a_transaction(
    many: tuple[tw.Warehouse, LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    wh, engine = many
    safe: set[str] = set()
    commits: list[set[str]] = []
    disk, catalog, threads = engine.files.disk, engine.catalog, set()
    sync_file, rename, sync_folder, commit = disk.sync_file, disk.rename, disk.sync_folder, catalog.commit
    synced: set[str] = set()
    named: set[str] = set()

    def syncs(path: str) -> None:
        sync_file(path)
        threads.add(threading.get_ident())
        synced.add(path.removesuffix(".tmp"))

    def renames(old: str, new: str) -> None:
        assert new in synced, "it has its name before its bytes are safe"
        rename(old, new)
        named.add(new)

    def syncs_folder(path: str) -> None:
        before = {name for name in list(named) if os.path.dirname(name) == path}
        sync_folder(path)
        safe.update(before)

    def registers(*given: Commit) -> None:
        commits.append({engine.files.path(chunk.file) for one in given for chunk in one.add})
        assert commits[-1] <= safe, "the catalog knows it before its name is safe"
        commit(*given)

    monkeypatch.setattr(disk, "sync_file", syncs)
    monkeypatch.setattr(disk, "rename", renames)
    monkeypatch.setattr(disk, "sync_folder", syncs_folder)
    monkeypatch.setattr(catalog, "commit", registers)
    for publisher, jobs in seal_together(engine):
        publisher.wait_flushed(jobs)
    assert len(commits) <= 2 and sum(map(len, commits)) == TABLES
    assert len(threads) > 1, "one sync waits for the other"
    assert flushed(wh) == list(range(TABLES))


@pytest.mark.parametrize("step", ["sync_file", "sync_folder", "commit"])
def test_what_goes_wrong_with_one_table_is_no_others_matter(
    many: tuple[tw.Warehouse, LocalEngine], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    wh, engine = many
    bad = 7
    table = engine.table(f"t{bad}").record.id
    place, name = (engine.catalog, "commit") if step == "commit" else (engine.files.disk, step)
    real, broken = getattr(place, name), True

    def fails(*given: Any) -> None:
        ids = [one.table_id for one in given] if step == "commit" else [int(Path(given[0]).relative_to(engine.files.path("")).parts[1])]
        if broken and table in ids:
            raise StorageError(f"table {table} is refused") if step == "commit" else OSError(5, "input/output error")
        real(*given)

    monkeypatch.setattr(place, name, fails)
    monkeypatch.setattr("tidewheel.write.flush.RETRY_SECONDS", 0.05)
    for publisher, jobs in seal_together(engine):
        if publisher.table.id != table:
            publisher.wait_flushed(jobs)
    assert flushed(wh) == [n for n in range(TABLES) if n != bad]
    with pytest.raises(StorageError, match="refused|input/output"):
        wh.table(f"t{bad}").flush()
    broken = False
    last = engine.table(f"t{bad}").publisher
    with last.lock:
        assert last.flushed.wait_for(lambda: not last.jobs, 30)
    assert flushed(wh) == list(range(TABLES))
    assert wh.check().ok


def test_a_catalog_that_refuses_everything_is_not_asked_for_every_table(
    many: tuple[tw.Warehouse, LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take ten seconds to say that it is locked."""
    wh, engine = many
    commit, commit_group = engine.catalog.commit, engine.commits._commit_group
    asked: list[list[int]] = []

    def begins(group: list[Any]) -> bool:
        asked.append([])
        return commit_group(group)

    def refuses(*given: Commit) -> None:
        asked[-1].append(len(given))
        raise StorageError("could not write the catalog: it is locked")

    monkeypatch.setattr(engine.commits, "_commit_group", begins)
    monkeypatch.setattr(engine.catalog, "commit", refuses)
    monkeypatch.setattr("tidewheel.write.flush.RETRY_SECONDS", 0.01)
    sealed = seal_together(engine)
    for publisher, jobs in sealed:
        with pytest.raises(StorageError, match="locked"):
            publisher.wait_flushed(jobs)
    assert max(sizes[0] for sizes in asked) >= TABLES / 2
    assert all(len(sizes) <= 3 for sizes in asked), asked
    monkeypatch.setattr(engine.catalog, "commit", commit)
    for publisher, _ in sealed:
        with publisher.lock:
            assert publisher.flushed.wait_for(lambda publisher=publisher: not publisher.jobs, 30)
    assert flushed(wh) == list(range(TABLES))


@pytest.mark.parametrize("durability", ["process", "fsync"])
def test_logs_that_rest_have_no_descriptor(tmp_path: Path, durability: str) -> None:
    with tw.open(tmp_path, settings=tw.Settings(durability=durability)) as wh:
        files = owner_of(wh).files
        files.handles.most = 4
        tables = [wh.create_table(f"t{n}", SCHEMA, time="ts", key="k") for n in range(TABLES)]
        for round_ in range(3):
            for n, table in enumerate(tables):
                table.insert(some(2, 10 * n + 2 * round_))
                assert files.handles.count <= 5
        assert wh.check().ok
        subprocess.run(["cp", "-r", str(tmp_path), str(tmp_path) + "-copy"], check=True)
    with tw.open(str(tmp_path) + "-copy") as wh:  # as a crash would have left it
        assert [wh.table(f"t{n}").rows for n in range(TABLES)] == [6] * TABLES


def test_a_log_that_was_deleted_while_it_rested_fences(tmp_path: Path) -> None:
    wh = tw.open(tmp_path)
    files = owner_of(wh).files
    files.handles.most = 1
    tables = [wh.create_table(f"t{n}", SCHEMA, time="ts", key="k") for n in range(3)]
    for table in tables:
        table.insert(some(2))
    [segment] = (tmp_path / "logs" / "1").iterdir()
    data = segment.read_bytes()
    segment.rename(tmp_path / "away")
    segment.write_bytes(data)  # another file of the same name
    with pytest.raises(FencedError):
        tables[0].insert(some(2, 5))
    with pytest.raises(FencedError):
        wh.close()


class Taken(Disk):
    """Somebody deletes or seals a file in the moment after it was written to."""

    def __init__(self, path: str, how: str) -> None:
        self.path, self.how = path, how
        self.written = False

    def append(self, descriptor: int, parts: Sequence[Any]) -> int:
        done = super().append(descriptor, parts)
        self.written = True
        if self.how == "deleted":
            os.unlink(self.path)
        elif self.how == "sealed":
            self.seal(self.path)
        return done

    def reopen(self, path: str) -> int:
        if self.written:
            raise PermissionError(errno.EACCES, "a file that is sealed cannot be opened for writing")
        return super().reopen(path)


@pytest.mark.parametrize("how", ["deleted", "sealed", ""])
def test_a_log_is_looked_at_while_it_is_held(tmp_path: Path, how: str) -> None:
    """Of few descriptors, its own may be closed as soon as it has written."""
    files = LocalFiles(tmp_path)
    one = files.append("a", b"head")
    files.disk = files.handles._disk = one._disk = Taken(str(tmp_path / "a"), how)
    files.handles.most = 0
    one.write([b"x"], 1, 4)
    assert files.handles.count == 0
    assert one.is_ours == (not how)


def test_a_file_waits_for_its_sync_with_an_open_descriptor(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    files.handles.most = 1
    one, two = files.append("a", b"head", durable=True), files.append("b", b"head", durable=True)
    one.write([b"x"], 1, 4)
    two.write([b"x"], 1, 4)
    assert files.handles.count == 2
    one.sync()
    two.sync()
    assert files.handles.count == 1
    one.write([b"y"], 1, 5)
    assert (tmp_path / "a").read_bytes() == b"headxy"
    one.close()
    two.close()
    assert files.handles.count == 0


def test_a_descriptor_in_use_stays_open(tmp_path: Path) -> None:
    handles = Handles(Disk(), most=0)
    path = str(tmp_path / "f")
    handle = handles.add(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    with handles.use(handle) as outer, handles.use(handle) as inner:
        assert outer == inner and handles.count == 1
    assert handles.count == 0
    os.unlink(path)
    with pytest.raises(FileNotFoundError), handles.use(handle):
        pass


def test_without_descriptors_the_message_names_the_limit(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = LocalFiles(tmp_path)
    (tmp_path / "f").write_bytes(b"x")
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        try:
            while True:
                held.append(os.open(tmp_path, os.O_RDONLY))
        except OSError:
            pass
        with pytest.raises(StorageError, match="ulimit -n") as told:
            files.append("log", b"head")
        for descriptor in held[:1]:
            os.close(descriptor)
        assert "free some space" not in str(told.value)
    finally:
        for descriptor in held[1:]:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_tables_under_a_low_limit_of_open_files(tmp_path: Path) -> None:
    tables = examples(150)
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
import pyarrow as pa
import tidewheel as tw
schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
for turn in range(2):
    with tw.open({str(tmp_path / "wh")!r}) as wh:
        for n in range({tables}):
            table = wh.create_table(f"t{{n}}", schema, time="ts", key="k", if_exists="open")
            table.insert([{{"k": n, "ts": turn}}])
            assert table.query(key=n).to_arrow().num_rows == turn + 1
        assert wh.check().ok
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
