"""Backups, catalogs and messages name files: none of them can make us read, write or delete anything that is not ours."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.chunk import names
from tidewheel.cluster import address
from tidewheel.env.local_files import LocalFiles
from tidewheel.errors import CorruptionError, InputError, StorageError, TidewheelError
from tidewheel.maintenance.check import check, closed
from tidewheel.maintenance.manifest import Manifest, Stored, TableEntry, digest
from tidewheel.model.delivery import Written
from tidewheel.testing.probe import Probe
from tidewheel.write.chunk_maker import ChunkMaker

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("note", pa.string())])

Damage = Callable[[Path, Manifest], Manifest]


def some(n: int, start: int = 0) -> pa.Table:
    i = range(start, start + n)
    return pa.table([pa.array(i), pa.array(i, pa.timestamp("us")), pa.array([f"note {j}" for j in i])], schema=SCHEMA)


def tree(folder: Path) -> dict[str, bytes | str]:
    """All that lies below a folder: bytes of files, targets of links."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = os.readlink(path)
        elif path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
        else:
            found[str(path.relative_to(folder))] = "folder"
    return found


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A folder beside everything else that must stay as it is."""
    folder = tmp_path / "canary"
    folder.mkdir()
    (folder / "victim").write_bytes(b"precious")
    (folder / "victim.tmp").write_bytes(b"precious too")
    before = tree(folder)
    yield folder
    assert tree(folder) == before


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(some(100))
        wh.backup(tmp_path / "b")
    return tmp_path / "b"


def manifest_of(folder: Path) -> Manifest:
    return Manifest.from_json((folder / "manifest.json").read_bytes(), "there")


def a_chunk(manifest: Manifest) -> str:
    return next(name for name in manifest.files if names.is_chunk(name))


# ---- restore -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../canary/new", "../canary/victim", "{root}/canary/new", "tables/1/../../../canary/new", "tables/1/x.arrow", "owner.lock",
        "catalog.sqlite", "tables/1/{chunk}.arrow.tmp", "tables/99/{chunk}.arrow", "tables/01/{chunk}.arrow", "tables/1/{chunk}.arrow\n",
        "logs/1/00000001-00000001.log", "",
        "TABLES/1/{chunk}.arrow", "tables//1/{chunk}.arrow", "./tables/1/{chunk}.arrow", "tables/\u0661/{chunk}.arrow",
    ],
)  # fmt: skip
def test_a_manifest_names_only_files_of_a_backup(backup: Path, tmp_path: Path, canary: Path, name: str) -> None:
    manifest = manifest_of(backup)
    name = name.format(root=tmp_path, chunk="0" * 23)
    data = b"planted"
    for place in (backup / name, canary / "new"):
        if name and place.parent.is_dir() and not place.is_dir() and canary not in place.resolve().parents:
            place.write_bytes(data)
    more = dataclasses.replace(manifest, files={**manifest.files, name: Stored(len(data), digest(data))})
    (backup / "manifest.json").write_bytes(more.to_json())
    before = tree(backup)
    with pytest.raises(CorruptionError, match="no name of a file in a backup"):
        tw.restore(backup, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert tree(backup) == before


def _other_id(value: object) -> Damage:
    return lambda folder, m: dataclasses.replace(m, tables={"t": TableEntry(value, 5)})  # type: ignore[arg-type]


def _other_stored(**values: object) -> Damage:
    def damage(folder: Path, manifest: Manifest) -> Manifest:
        chunk = a_chunk(manifest)
        stored = dataclasses.replace(manifest.files[chunk], **values)  # type: ignore[arg-type]
        return dataclasses.replace(manifest, files={**manifest.files, chunk: stored})

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        _other_id("../../canary"), _other_id(-1), _other_id(1.5), _other_id(None), _other_id(True), _other_stored(bytes="x"),
        _other_stored(bytes=-1), _other_stored(xxh3=7), _other_stored(xxh3="zz"),
        lambda f, m: dataclasses.replace(m, catalog="../canary/victim"),
        lambda f, m: dataclasses.replace(m, catalog=a_chunk(m)), lambda f, m: dataclasses.replace(m, catalog=3),
        lambda f, m: dataclasses.replace(m, made=[]),
    ],
)  # fmt: skip
def test_every_value_of_a_manifest_is_checked(backup: Path, tmp_path: Path, canary: Path, damage: Damage) -> None:
    (backup / "manifest.json").write_bytes(damage(backup, manifest_of(backup)).to_json())
    with pytest.raises(CorruptionError, match=r"manifest\.json is damaged"):
        tw.restore(backup, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_links_in_a_backup_are_not_followed(backup: Path, tmp_path: Path, canary: Path) -> None:
    chunk = backup / a_chunk(manifest_of(backup))
    (tmp_path / "elsewhere").mkdir()
    places = [chunk, chunk.parent, backup / "tables", backup / manifest_of(backup).catalog, backup / "manifest.json"]
    for n, place in enumerate(places):
        away = tmp_path / "elsewhere" / str(n)
        place.rename(away)
        place.symlink_to(away)
        with pytest.raises(TidewheelError, match="link|no backup"):
            tw.restore(backup, tmp_path / "back")
        assert not (tmp_path / "back").exists()
        place.unlink()
        away.rename(place)
    tw.restore(backup, tmp_path / "back")


def test_a_target_whose_lock_is_a_link_is_refused(backup: Path, tmp_path: Path, canary: Path) -> None:
    target = tmp_path / "back"
    target.mkdir()
    (target / "owner.lock").symlink_to(canary / "victim")
    with pytest.raises(InputError, match="not empty"):
        tw.restore(backup, target)
    with pytest.raises(StorageError, match=r"owner\.lock"):
        tw.open(target)


def test_a_failed_restore_removes_only_what_it_made(backup: Path, tmp_path: Path, canary: Path) -> None:
    manifest = manifest_of(backup)
    chunk = backup / a_chunk(manifest)
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.unlink()
    chunk.write_bytes(data)
    target = tmp_path / "deep" / "back"
    target.mkdir(parents=True)
    with pytest.raises(CorruptionError, match="damaged"):
        tw.restore(backup, target)
    assert tree(target) == {}


# ---- backup ------------------------------------------------------------------------------------------------


def test_links_in_the_folder_of_a_backup_are_never_written_through(backup: Path, tmp_path: Path, canary: Path) -> None:
    chunk = backup / a_chunk(manifest_of(backup))
    with tw.open(tmp_path / "wh") as wh:
        (backup / "manifest.json.tmp").symlink_to(canary / "victim")
        chunk.unlink()
        chunk.symlink_to(canary / "victim")
        Path(str(chunk) + ".tmp").symlink_to(canary / "victim.tmp")
        wh.backup(backup)
        assert not chunk.is_symlink()

        for place in (chunk.parent, backup / "tables"):
            away = tmp_path / "away"
            place.rename(away)
            place.symlink_to(canary)
            with pytest.raises(InputError, match="is a link"):
                wh.backup(backup)
            place.unlink()
            away.rename(place)

        manifest = backup / "manifest.json"
        manifest.rename(tmp_path / "m")
        manifest.symlink_to(tmp_path / "m")
        with pytest.raises(InputError, match=r"manifest\.json is a link"):
            wh.backup(backup)


def test_a_chunk_that_is_a_link_is_not_backed_up(tmp_path: Path, canary: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(some(10))
        table.flush()
        [chunk] = (tmp_path / "wh" / "tables").rglob("*.arrow")
        chunk.rename(tmp_path / "chunk")
        chunk.symlink_to(tmp_path / "chunk")
        with pytest.raises(CorruptionError, match="is a link"):
            wh.backup(tmp_path / "b")


# ---- the catalog -------------------------------------------------------------------------------------------


def change(root: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(root / "catalog.sqlite")) as conn, conn:
        conn.execute(statement, values)


@pytest.mark.parametrize("file", ["../canary/victim", "../../canary/victim", "{canary}/victim", "tables/2/{chunk}.arrow", "catalog.sqlite"])
def test_a_catalog_names_only_chunks_of_its_tables(tmp_path: Path, canary: Path, file: str) -> None:
    root = tmp_path / "wh"
    with tw.open(root) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        wh.create_table("u", SCHEMA, time="ts", key="k")
        table.insert(some(10))
        table.flush()
        [chunk] = (root / "tables").rglob("*.arrow")
        change(root, "UPDATE chunks SET file = ?", file.format(canary=canary, chunk=chunk.stem))
        with pytest.raises(CorruptionError, match=r"chunks of table 't', file is .*restore"):
            wh.drop_table("t")
        assert wh.table("t").rows == 10
        report = wh.check()
        assert "file is" in str(report) and not report.ok
        with pytest.raises(CorruptionError, match="file is"):
            wh.backup(tmp_path / "b")
    with pytest.raises(CorruptionError, match="chunks of table 't', file is"):
        tw.open(root)
    assert chunk.exists()
    with closed(root) as house:
        assert not check(house).ok
    change(root, "UPDATE chunks SET file = ?", f"tables/1/{chunk.name}")
    with tw.open(root) as wh:
        assert wh.table("t").rows == 10
        wh.drop_table("t")


def test_names_that_leave_the_root_are_no_names(tmp_path: Path, canary: Path) -> None:
    files = LocalFiles(tmp_path / "wh")
    for name in ("../canary/victim", str(canary / "victim"), "tables/../../canary/victim", "a\0b"):
        for use in (
            files.remove,
            files.read,
            files.size,
            files.remove_folder,
            files.modified,
            lambda n: files.map(n, 8),
            lambda n: list(files.list(n)),
        ):
            with pytest.raises(CorruptionError, match="nothing was read or changed"):
                use(name)


# ---- loads: tasks name what they wrote ----------------------------------------------------------------------


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Probe]:
    with tw.open(tmp_path / "wh") as wh:
        yield Probe(wh.create_table("t", SCHEMA, time="ts", key="k"))


def written(table: Probe, tmp_path: Path) -> Written:
    with ChunkMaker(tmp_path / "wh", table.spec, table.begin_load()) as maker:
        maker.add(some(50).to_batches()[0], "error")
    return maker.written


@pytest.mark.parametrize(
    "wrong",
    [
        {"file": "../canary/victim"}, {"file": "tables/1/00000000000000000000000.arrow"}, {"id": "../../canary/victim"}, {"id": "x"},
        {"rows": -1}, {"rows": 51}, {"rows": "50"}, {"bytes": 7}, {"body_lo": -5}, {"key_lo": 99}, {"time_hi": None}, {"prefix": "text"},
        {"server": 1 << 20}, {"partitions": [(0, 5)]}, {"partitions": ((0, "5"),)}, {"container": "parquet"}, {"frame": -1},
        {"format": "2"},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_task_says_it_wrote_is_checked(table: Probe, tmp_path: Path, canary: Path, wrong: dict[str, object]) -> None:
    good = written(table, tmp_path)
    bad = dataclasses.replace(good, chunks=(dataclasses.replace(good.chunks[0], **wrong),))  # type: ignore[arg-type]
    with pytest.raises(InputError):
        table.commit_load(good.job, [bad], overwrite=False)
    with pytest.raises(InputError):
        table.commit_batch("s", "r", 1, [], [bad])
    assert table.state().rows == 0
    assert table.commit_load(good.job, [good], overwrite=False).rows == 50
    assert table.state().rows == 50


def test_a_staged_file_that_is_a_link_is_refused(table: Probe, tmp_path: Path) -> None:
    good = written(table, tmp_path)
    staged = tmp_path / "wh" / (good.chunks[0].file + ".tmp")
    staged.rename(tmp_path / "away")
    staged.symlink_to(tmp_path / "away")
    with pytest.raises(InputError, match="not the file that its task wrote"):
        table.commit_load(good.job, [good], overwrite=False)


@pytest.mark.parametrize("job", ["../tables", "..", "1-../../canary", "", "1-0123456789abcdef/../../tables", 7, None, "/"])
def test_a_load_has_a_name_of_ours(table: Probe, tmp_path: Path, canary: Path, job: str) -> None:
    before = tree(tmp_path / "wh" / "tables")
    with pytest.raises(InputError, match="not the name of a load"):
        table.abort_load(job)
    with pytest.raises(TidewheelError, match="has ended"):
        table.commit_load(job, [], overwrite=True)
    with pytest.raises(TidewheelError, match="has ended"):
        table.commit_batch("s", "r", 1, [], [Written(job)])
    assert tree(tmp_path / "wh" / "tables") == before


def test_a_load_of_another_table_is_left_alone(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        table, other = (Probe(wh.create_table(name, SCHEMA, time="ts", key="k")) for name in ("t", "u"))
        load = table.begin_load()
        other.abort_load(load.job)
        assert (tmp_path / "wh" / load.folder).is_dir()
        table.abort_load(load.job)
        assert not (tmp_path / "wh" / load.folder).exists()


# ---- the owner's address ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [{"location": 5}, {"token": None}, {"pid": "1"}, {"epoch": 1.5}, {"protocol": []}, {"failure": {}}], ids=str
)
def test_an_address_that_nobody_of_ours_wrote_says_nothing(tmp_path: Path, wrong: dict[str, object]) -> None:
    address.make_folder(tmp_path)
    door = address.Door("grpc+tcp://127.0.0.1:1", "token", 1, 1, 1)
    address.publish(tmp_path, door)
    assert address.read(tmp_path) == door
    (address.folder(tmp_path) / address.FILE).write_text(json.dumps({**dataclasses.asdict(door), **wrong}))
    assert address.read(tmp_path) is None
    shutil.rmtree(address.folder(tmp_path))
