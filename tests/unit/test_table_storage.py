"""What the disk can do to us: another process, a folder that is none, damaged and missing files. Never a wrong answer."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.testing.fixed_engine import held

N = 3000
KINDS = pa.array(["red", "green", None, "blue"])
SCHEMA = pa.schema(
    [
        ("plate", pa.string()),
        ("ts", pa.timestamp("ms")),
        ("speed", pa.float64()),
        ("busy", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
    ]
)


def rows() -> pa.Table:
    n = np.arange(N)
    columns = [
        pa.array([f"taxi-{i % 200:04d}" for i in n]),
        pa.array(n * 1000, pa.timestamp("ms")),
        pa.array([None if i % 11 == 0 else i / 3 for i in n]),
        pa.array([None if i % 13 == 0 else bool(i % 2) for i in n]),
        pa.array([None if i % 5 == 0 else ["a"] * (i % 3) for i in n], pa.list_(pa.string())),
        pa.DictionaryArray.from_arrays(pa.array(n % 3, pa.int8()), KINDS.drop_null()),
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed warehouse with one chunk, to be copied and damaged."""
    root = tmp_path_factory.mktemp("storage") / "wh"
    with tw.open(root, settings=tw.Settings(leaf_rows=64)) as wh:
        wh.create_table("taxi", SCHEMA, time="ts", key="plate").insert(rows())
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(template, tmp_path / "wh")
    yield tmp_path / "wh"


def the_chunk(root: Path) -> Path:
    (found,) = root.rglob("*.arrow")
    return found


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x10]))


def ordered(table: pa.Table) -> pa.Table:
    """By time, with the words of a dictionary in the place of its indices: the same words may be numbered otherwise."""
    return table.set_column(5, "kind", table["kind"].cast(pa.string())).sort_by("ts")


def test_a_flipped_byte_is_an_error_or_changes_nothing(root: Path, tmp_path: Path) -> None:
    """Bytes all over the file, in a process of its own because a wrong reader might crash rather than raise."""
    code = f"""
import random, shutil, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
import tidewheel as tw
from test_table_storage import flip, ordered, rows, the_chunk
want = ordered(rows())
source, size = Path({str(root)!r}), the_chunk(Path({str(root)!r})).stat().st_size
random.seed(5)
caught = 0
for n, at in enumerate(random.sample(range(size), 150)):
    root = Path({str(tmp_path)!r}) / "copy"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(source, root)
    flip(the_chunk(root), at)
    with tw.open(root) as wh:
        try:
            got = wh.table("taxi").query().to_arrow()
            got.validate(full=True)
            assert ordered(got) == want, f"byte {{at}} of {{size}}: a wrong answer"
            some = wh.table("taxi").query(key=("taxi-0050", "taxi-0060"), time=(0, 10**6), columns=["speed"]).to_arrow()
        except tw.CorruptionError as e:
            assert the_chunk(root).name in str(e), e
            caught += 1
print(caught)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 75


def test_a_damaged_block_names_file_column_and_block_and_spares_the_others(root: Path) -> None:
    path = the_chunk(root)
    # look for the doubles of the speed column: they stand in leaf order, so any one of its values will do
    content = path.read_bytes()
    at = content.index(np.float64(1000 / 3).tobytes())
    flip(path, at + 3)
    with tw.open(root) as wh:
        taxi = wh.table("taxi")
        with pytest.raises(tw.CorruptionError, match=rf"{path.name}.*block \d+ of column 'speed' is damaged") as error:
            taxi.query(columns=["speed"]).to_arrow()
        assert not error.value.retryable
        with pytest.raises(tw.CorruptionError):
            taxi.query(where="speed > 3").to_arrow()
        with pytest.raises(tw.CorruptionError):
            taxi.query(aggregate={"v": "avg(speed)"}).to_arrow()
        with pytest.raises(tw.CorruptionError):
            list(taxi.query())
        assert taxi.query(columns=["plate", "ts"]).to_arrow().num_rows == N
        taxi.insert(rows())  # and the table goes on
        taxi.flush()
        assert taxi.rows == 2 * N


@pytest.mark.parametrize("size", [0, 10, 5000, -1])
def test_a_truncated_file_is_named(root: Path, size: int) -> None:
    path = the_chunk(root)
    os.truncate(path, path.stat().st_size + size if size < 0 else size)
    with tw.open(root) as wh:
        with pytest.raises(tw.CorruptionError, match=rf"{path.name} has \d+ bytes, the catalog says"):
            wh.table("taxi").query().to_arrow()
        wh.table("taxi").insert([]), wh.create_table("other", SCHEMA, time="ts", key="plate").insert(rows())


def test_a_missing_file_is_named(root: Path) -> None:
    path = the_chunk(root)
    path.unlink()
    with tw.open(root) as wh, pytest.raises(tw.CorruptionError, match=rf"{path.name} is missing: restore"):
        wh.table("taxi").query().to_arrow()


def test_inserts_go_on_though_the_last_chunk_is_damaged(root: Path) -> None:
    """The template comes from the last chunk; without it, rows are still taken."""
    the_chunk(root).unlink()
    with tw.open(root) as wh:
        taxi = wh.table("taxi")
        assert taxi.insert(rows()).rows == N
        assert taxi.query(time=(10**9, None)).to_arrow().num_rows == 0


def test_swapped_chunks_are_noticed(tmp_path: Path) -> None:
    """A chunk's file in another's place: both are whole and of one size, but neither is what the catalog says."""
    root = tmp_path / "wh"
    with tw.open(root, settings=tw.Settings(late_after=1e9)) as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="plate")
        for _ in range(2):
            taxi.insert(rows())
            taxi.flush()
    one, two = sorted(root.rglob("*.arrow"))
    assert one.stat().st_size == two.stat().st_size
    other = one.with_suffix(".x")
    one.rename(other), two.rename(one), other.rename(two)
    with tw.open(root) as wh, pytest.raises(tw.CorruptionError, match=r"\.arrow"):
        wh.table("taxi").query().to_arrow()


def test_files_of_a_crash_are_no_rows(root: Path) -> None:
    """What was written and never committed, or half written, means nothing."""
    chunk = the_chunk(root)
    shutil.copy(chunk, chunk.with_name("0000000000000000000aaaa.arrow"))
    shutil.copy(chunk, chunk.with_name("0000000000000000000bbbb.arrow.tmp"))
    with tw.open(root) as wh:
        assert wh.table("taxi").rows == N == len(wh.table("taxi").query())


def test_an_owner_that_nobody_can_reach_is_named_with_pid_and_host(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    code = (
        "import tidewheel.cluster.current_engine, tidewheel as tw\ntidewheel.cluster.current_engine.PATIENCE = 0.1\n"
        f"try:\n    tw.open({str(root)!r})\nexcept tw.OwnedError as e:\n    print(e.retryable, e)"
    )
    with tw.open(root):
        pass
    with held(OwnedEngine(root, tw.Settings(), listen=False)):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("True ") and f"process {os.getpid()} on {socket.gethostname()}" in done.stdout, done.stdout + done.stderr
    done = subprocess.run([sys.executable, "-c", code + "\nelse:\n    print('mine')"], capture_output=True, text=True)
    assert done.stdout == "mine\n", done.stderr


def test_a_dead_owner_is_taken_over(tmp_path: Path) -> None:
    root = tmp_path / "wh"
    code = f"import os, tidewheel as tw; wh = tw.open({str(root)!r}); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    with tw.open(root) as wh:
        assert wh.tables() == []


class TestFolders:
    def test_a_file_in_place_of_the_folder(self, tmp_path: Path) -> None:
        (tmp_path / "wh").write_text("hello")
        with pytest.raises(tw.InputError, match=f"{tmp_path / 'wh'} is a file, and a warehouse is a folder"):
            tw.open(tmp_path / "wh")
        with pytest.raises(tw.StorageError, match="cannot open a warehouse"):
            tw.open(tmp_path / "wh" / "below")

    def test_a_file_in_place_of_the_tables_folder(self, tmp_path: Path) -> None:
        root = tmp_path / "wh"
        tw.open(root).close()
        shutil.rmtree(root / "tables", ignore_errors=True)
        (root / "tables").write_text("hello")
        with tw.open(root) as wh:
            with pytest.raises(tw.StorageError, match="cannot make folder"):
                wh.create_table("taxi", SCHEMA, time="ts", key="plate")
            assert wh.tables() == []
        with tw.open(root) as wh:
            assert wh.tables() == []
            (root / "tables").unlink()
            wh.create_table("taxi", SCHEMA, time="ts", key="plate").insert(rows())

    def test_a_folder_that_vanishes(self, tmp_path: Path) -> None:
        root = tmp_path / "wh"
        with tw.open(root) as wh:
            taxi = wh.create_table("taxi", SCHEMA, time="ts", key="plate")
            taxi.insert(rows())
            (folder,) = (root / "tables").iterdir()
            folder.rename(root / "gone")
            with pytest.raises(tw.StorageError, match=r"cannot write .*No such file"):
                taxi.flush()
            assert taxi.rows == N == len(taxi.query()), "nothing was lost"
            (root / "gone").rename(folder)
            taxi.flush()
        with tw.open(root) as wh:
            assert wh.table("taxi").rows == N

    def test_a_folder_that_is_no_warehouse(self, tmp_path: Path) -> None:
        (tmp_path / "catalog.sqlite").write_bytes(b"this is no database" * 100)
        with pytest.raises(tw.TidewheelError, match=r"catalog\.sqlite"):
            tw.open(tmp_path)

    @pytest.mark.parametrize("path", ["s3://bucket/wh", 5, None])
    def test_what_is_no_path(self, path: object) -> None:
        with pytest.raises(tw.InputError):
            tw.open(path)  # type: ignore[arg-type]

    def test_home_and_relative_paths(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        with tw.open("~/a/wh"), tw.open("b/wh") as wh:
            assert str(tmp_path / "b" / "wh") in repr(wh)
        assert (tmp_path / "a" / "wh").is_dir() and (tmp_path / "b" / "wh").is_dir()

    def test_a_warehouse_can_be_moved(self, root: Path) -> None:
        moved = root.parent / "moved"
        root.rename(moved)
        with tw.open(moved) as wh:
            assert ordered(wh.table("taxi").query().to_arrow()) == ordered(rows())
