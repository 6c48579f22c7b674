"""Many tables cost what they should: few descriptors, one look at the catalog, nothing for those that are not used."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import examples
from tidewheel.catalog.sql import SqlCatalog
from tidewheel.env.disk import Disk
from tidewheel.env.files import LocalFiles
from tidewheel.env.handles import Handles
from tidewheel.errors import FencedError, StorageError

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


@pytest.mark.parametrize("durability", ["process", "fsync"])
def test_logs_that_rest_have_no_descriptor(tmp_path: Path, durability: str) -> None:
    with tw.open(tmp_path, settings=tw.Settings(durability=durability)) as wh:
        files = wh._seat.engine().files  # type: ignore[attr-defined]
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
    files = wh._seat.engine().files  # type: ignore[attr-defined]
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
    files.disk = files.handles._disk = Taken(str(tmp_path / "a"), how)
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
