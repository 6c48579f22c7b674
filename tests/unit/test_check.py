"""`wh.check()`: a healthy warehouse passes, also while it is in use, and every kind of damage is found and named."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

import tidewheel as tw
from tests.chunks import chunks_left
from tests.conftest import examples
from tidewheel.chunk.format import HEADER_KEY, INDEX_KEY, Header, column_checksums, pack_index, unpack_index
from tidewheel.chunk.writer import body_of, frame_checksum
from tidewheel.env.disk import Disk
from tidewheel.maintenance.check import check, closed
from tidewheel.model.report import CheckReport
from tidewheel.surfaces import cli
from tidewheel.testing.probe import owner_of

N = 40_000  # more than two blocks
POINTS = pa.schema([("x", pa.float64()), ("y", pa.int32()), ("ts", pa.timestamp("us")), ("speed", pa.float32())])
PLATES = pa.schema(
    [
        ("plate", pa.string()),
        ("day", pa.date32()),
        ("busy", pa.bool_()),
        ("note", pa.large_string()),
        ("tags", pa.list_(pa.string())),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("fare", pa.decimal128(12, 2)),
    ]
)


def points(n: int = N, start: int = 0) -> pa.Table:
    i = np.arange(start, start + n)
    columns = [i % 97 / 7 - 3, pa.array(i % 89, pa.int32()), pa.array(i * 1_000_000, pa.timestamp("us")), pa.array(i % 90, pa.float32())]
    return pa.table(columns, schema=POINTS)


def plates(n: int = 3000) -> pa.Table:
    columns = [
        pa.array([f"city/taxi-{i * 37 % 400:03d}" for i in range(n)]),
        pa.array([i % 50 for i in range(n)], pa.date32()),
        pa.array([None if i % 13 == 0 else i % 2 == 0 for i in range(n)]),
        pa.array(["é" * (i % 5) for i in range(n)], pa.large_string()),
        pa.array([None if i % 5 == 0 else ["a"] * (i % 3) for i in range(n)], pa.list_(pa.string())),
        pa.array([f"kind {i % 4}" for i in range(n)]).dictionary_encode(),
        pa.array([None if i % 9 == 0 else i for i in range(n)], pa.decimal128(12, 2)),
    ]
    return pa.table(columns, schema=PLATES)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed warehouse with one chunk per table, to be copied and damaged."""
    root = tmp_path_factory.mktemp("check") / "wh"
    with tw.open(root) as wh:
        wh.create_table("points", POINTS, time="ts", key=tw.zorder("x", "y", bounds=(0, 0, 10, 100))).insert(points())
        table = wh.create_table("plates", PLATES, time="day", key="plate", partition="7 days")
        for start, rows in ((0, 1000), (1000, 1), (1001, 1999)):
            table.insert(plates().slice(start, rows))
        wh.create_table("empty", POINTS, time="ts", key="y")
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(template, tmp_path / "wh")
    yield tmp_path / "wh"


def look(root: Path, repair: bool = False) -> CheckReport:
    """Check a warehouse that is not open."""
    with closed(root) as house:
        return check(house, repair)


def kinds(report: CheckReport) -> set[str]:
    return {p.kind for p in report.problems}


def chunk_of(root: Path, table: str) -> Path:
    with closing(sqlite3.connect(root / "catalog.sqlite")) as db:
        (file,) = db.execute("SELECT file FROM chunks JOIN tables ON tables.id = table_id WHERE name = ?", [table]).fetchone()
    return root / file


def sql(root: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(root / "catalog.sqlite")) as db:
        assert db.execute(statement, values).rowcount > 0
        db.commit()


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x10]))


def contents(root: Path) -> dict[str, bytes]:
    ours = (p for p in root.rglob("*") if p.is_file() and not p.name.startswith(("owner.lock", "catalog.sqlite")))
    return {str(p.relative_to(root)): p.read_bytes() for p in ours}


# ---- health ---------------------------------------------------------------------------------------------


def test_a_healthy_warehouse_passes_open_and_closed(root: Path) -> None:
    before = contents(root)
    report = look(root)
    assert report.ok and report.problems == ()
    assert (report.tables, report.chunks, report.rows) == (3, 2, N + 3000)
    assert report.blocks == 5 * 3 + 10  # points: 4 columns and its codes; plates: 7, two of codes and the generations of its rows
    assert report.bytes == sum(map(len, before.values())) and report.segments == 0
    assert str(report).startswith(f"{root}: 3 tables, 2 chunks, 25 blocks, 0 log segments, 43,000 rows checked in 0.")
    assert str(report).endswith("all is well") and repr(report).startswith("<CheckReport ")
    assert contents(root) == before
    with tw.open(root) as wh:
        assert wh.check().ok
        wh.table("points").insert(points(10))
        report = wh.check()
        assert report.ok and report.segments == 1 and report.rows == N + 3010


def test_without_tables(tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        assert wh.check().ok
    assert look(tmp_path / "wh").tables == 0


@pytest.mark.parametrize("settings", [tw.Settings(map_chunks=False), tw.Settings(leaf_rows=3, chunk_bytes=8192, indexing_servers=3)])
def test_other_settings(root: Path, settings: tw.Settings) -> None:
    with tw.open(root, settings=settings) as wh:
        taxi = wh.table("points")
        for start in range(0, 3000, 500):
            taxi.insert(points(500, N + start))
        taxi.insert(points(20, -(10**6)))  # late
        taxi.replace(points(3, 100), time=(100_000_000, 102_000_000))
        wh.table("points").insert([{"x": 1.0, "y": "north", "ts": 5, "speed": 1.0}], on_bad="reject")
        taxi.flush()
        report = wh.check()
        assert report.ok, report
        assert report.chunks > 4
    assert look(root).ok


def test_times_and_keys_at_the_limits(tmp_path: Path) -> None:
    last = (1 << 63) - 1
    schema = pa.schema([("k", pa.uint64()), ("t", pa.timestamp("us"))])
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=1, late_after=1e12)) as wh:
        times = pa.array([last, last - 7_200_000_000, -last - 1, 0], pa.int64()).view(pa.timestamp("us"))
        wh.create_table("t", schema, time="t", key="k").insert(
            pa.table([pa.array([0, (1 << 64) - 1, 1 << 63, 5], pa.uint64()), times], schema=schema)
        )
        wh.table("t").flush()
        report = wh.check()
        assert report.ok, report


def test_every_type_of_the_compatibility_sample(tmp_path: Path) -> None:
    shutil.unpack_archive(Path(__file__).parents[1] / "compat" / "v1" / "warehouse.zip", tmp_path / "wh")
    report = look(tmp_path / "wh")
    assert report.ok, report
    assert report.tables == 6 and report.chunks >= 8


# ---- damaged bytes ---------------------------------------------------------------------------------------


def buffers(path: Path) -> Iterator[tuple[str, int, int]]:
    """(column, offset, size) of everything that has a checksum of its own."""
    with pa.memory_map(str(path)) as file:
        whole = file.read_buffer()
        batch = pa.ipc.open_file(whole).get_batch(0)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for buffer in column.buffers():
                if buffer is not None and buffer.size:
                    yield name, buffer.address - whole.address, buffer.size


@pytest.mark.parametrize("table", ["points", "plates"])
def test_a_flipped_byte_in_every_buffer_of_every_column(root: Path, table: str) -> None:
    path = chunk_of(root, table)
    seen = set()
    for column, offset, size in list(buffers(path)):
        if table == "plates" and column == "kind" and offset < 2000:
            continue
        rows = 3000 if table == "plates" else N
        at = offset + min(size - 1, rows // 8 - 1)  # the last bytes may be padding
        flip(path, at)
        report = look(root)
        flip(path, at)
        assert kinds(report) == {"block"}, (column, report)
        (problem,) = report.problems
        assert problem.severity == "error" and problem.where == str(path.relative_to(root)) and not report.ok
        assert f"table '{table}': block 0 of column '{column}' is damaged" in problem.what
        assert "backup" in problem.todo
        seen.add(column)
    assert len(seen) == (5 if table == "points" else 10)
    assert look(root).ok


def test_several_damaged_blocks_are_one_problem_per_column(root: Path) -> None:
    path = chunk_of(root, "points")
    at = {name: offset for name, offset, _ in buffers(path)}
    for block in (1, 2):
        flip(path, at["speed"] + 4 * 16384 * block)
    flip(path, at["ts"] + 8 * 16384)
    report = look(root)
    assert [p.what.split(": ")[1] for p in report.problems] == [
        "block 1 of column 'ts' is damaged",
        "block 1 of column 'speed' and 1 more of its blocks are damaged",
    ]


@pytest.mark.parametrize("at", [0, 300, 3000, -1, -200, -2000])
def test_a_flipped_byte_in_the_frame(root: Path, at: int) -> None:
    path = chunk_of(root, "points")
    flip(path, at % path.stat().st_size)
    (problem,) = look(root).problems
    assert problem.kind == "frame" and "header or footer is damaged" in problem.what


@pytest.mark.parametrize("size", [0, 10, 5000, -1])
def test_a_truncated_file(root: Path, size: int) -> None:
    path = chunk_of(root, "plates")
    os.truncate(path, path.stat().st_size + size if size < 0 else size)
    (problem,) = look(root).problems
    assert problem.kind == "size" and "the catalog says" in problem.what


def test_a_longer_file(root: Path) -> None:
    with open(chunk_of(root, "plates"), "ab") as f:
        f.write(b"more")
    assert kinds(look(root)) == {"size"}


def test_a_missing_file(root: Path) -> None:
    chunk_of(root, "plates").unlink()
    (problem,) = look(root).problems
    assert problem.kind == "missing" and "3,000 rows" in problem.what
    with tw.open(root) as wh:
        assert kinds(wh.check()) == {"missing"}


def test_a_folder_in_place_of_a_file(root: Path) -> None:
    path = chunk_of(root, "plates")
    path.unlink()
    path.mkdir()
    assert kinds(look(root)) == {"missing"}


def test_damage_is_found_though_the_chunk_was_read_before(root: Path) -> None:
    """A query verifies each block once; a check always."""
    with tw.open(root) as wh:
        table = wh.table("points")
        table.query().to_arrow()
        assert wh.check().ok
        path = chunk_of(root, "points")
        at = {name: offset for name, offset, _ in buffers(path)}
        flip(path, at["speed"])
        assert kinds(wh.check()) == {"block"}


# ---- wrong, with right checksums -------------------------------------------------------------------------

Change = Callable[[dict[str, Any]], None]


def rewrite(root: Path, table: str, change: Change) -> None:
    """Write a chunk anew after a change, with checksums that fit it, and tell the catalog."""
    path = chunk_of(root, table)
    batch = pa.ipc.open_file(path).get_batch(0)
    header = Header.from_json(batch.schema.metadata[HEADER_KEY], "")
    leaves, _ = unpack_index(base64.b64decode(batch.schema.metadata[INDEX_KEY]), header, batch.num_columns, "")
    parts: dict[str, Any] = {f.name: getattr(leaves, f.name) for f in dataclasses.fields(leaves)}
    parts |= {"header": header, "columns": dict(zip(batch.schema.names, batch.columns, strict=True))}
    change(parts)
    header, columns = parts.pop("header"), list(parts.pop("columns").values())
    leaves = dataclasses.replace(leaves, **parts)
    index = pack_index(leaves, np.array([column_checksums(c, header.blocks) for c in columns], np.uint64))
    mask = (leaves.mask_start, leaves.mask_width)
    header = dataclasses.replace(header, index=f"{xxhash.xxh3_64_intdigest(index):016x}", mask=mask)
    meta = {**batch.schema.metadata, HEADER_KEY: header.to_json().encode(), INDEX_KEY: base64.b64encode(index)}
    path.unlink()
    with pa.ipc.new_file(path, batch.schema.with_metadata(meta)) as out:
        out.write_batch(pa.RecordBatch.from_arrays(columns, schema=batch.schema.with_metadata(meta)))
    whole = pa.py_buffer(path.read_bytes())
    lo, hi = body_of(pa.ipc.open_file(whole).get_batch(0), whole)
    frame = frame_checksum(whole, lo, hi) - (1 << 63)
    file = str(path.relative_to(root))
    sql(root, "UPDATE chunks SET bytes = ?, body_lo = ?, body_hi = ?, frame = ? WHERE file = ?", whole.size, lo, hi, frame, file)


def at(name: str, place: Any, plus: int) -> Change:
    def change(parts: dict[str, Any]) -> None:
        parts[name] = parts[name].copy()
        parts[name][place] += plus

    return change


def column(name: str, row: int, plus: int) -> Change:
    def change(parts: dict[str, Any]) -> None:
        values = np.array(parts["columns"][name].view(pa.int64()))
        values[row] += plus
        parts["columns"][name] = pa.array(values).view(parts["columns"][name].type)

    return change


def generations(old: int, new: int) -> Change:
    def change(parts: dict[str, Any]) -> None:
        values = np.array(parts["columns"]["tidewheel.generation"])
        parts["columns"]["tidewheel.generation"] = pa.array(np.where(values == old, np.uint8(new), values))

    return change


def set_to(**values: Any) -> Change:
    return lambda parts: parts.update(values)


def in_header(**values: Any) -> Change:
    return lambda parts: parts.update(header=dataclasses.replace(parts["header"], **values))


def swap_times(parts: dict[str, Any]) -> None:
    """Two rows of the first leaf change places."""
    rows = np.arange(len(parts["columns"]["ts"]))
    rows[[0, 1]] = rows[[1, 0]]
    parts["columns"] = {name: c.take(pa.array(rows)) for name, c in parts["columns"].items()}


@pytest.mark.parametrize(
    "table, change, kind, said",
    [
        ("points", at("zones", (0, 3), -1), "zone map", "zone map of key is wrong for leaf 3: it says"),
        ("points", at("zones", (1, 3), 1), "zone map", "zone map of key"),
        ("points", at("zones", (2, slice(5, 9)), 1), "zone map", "zone map of time is wrong for leaf 5 and 3 more"),
        ("points", at("zones", (3, 0), -1), "zone map", "zone map of time"),
        ("points", at("more_zones", (0, 1, 2), -1), "zone map", "zone map of 'x' is wrong for leaf 2"),
        ("points", at("more_zones", (1, 0, 2), 1), "zone map", "zone map of 'y' is wrong for leaf 2"),
        ("points", at("masks", 4, 1), "time mask", "time mask is wrong for leaf 4"),
        ("points", at("starts", 1, 1), "zone map", "zone map"),
        ("points", at("starts", -1, 1), "leaves", "do not rise from 0"),
        ("points", at("starts", 0, 1), "leaves", "do not rise from 0"),
        ("points", at("bounds", 0, 1), "leaves", "do not rise from the least code"),
        ("points", at("bounds", -1, 1 << 58), "leaves", "keys lie outside the bounds of leaf"),
        ("points", at("bounds", 1, -(1 << 50)), "leaves", "keys lie outside the bounds of leaf 0"),
        ("points", set_to(mask_width=3), "time mask", "no power of two"),
        ("points", set_to(mask_width=1), "time mask", "do not fit into 64"),
        ("points", set_to(mask_start=-(10**9)), "time mask", "the time mask is wrong"),
        ("points", swap_times, "order", "not in time order, though the index says so, in leaf 0"),
        ("points", column("tidewheel.key", 7, 1), "codes", "codes of 1 keys are not those of their values; the first is row 7"),
        ("plates", column("tidewheel.key", 0, 1), "codes", "codes of 1 keys"),
        ("plates", column("tidewheel.time", 9, 1), "codes", "codes of 1 times are not those of their values; the first is row 9"),
        ("plates", generations(2, 3), "generations", "its rows came with generations 1 .. 4, but the header says 1 .. 3"),
        ("plates", generations(0, 1), "generations", "its rows came with generations 2 .. 3, but the header says 1 .. 3"),
        ("plates", in_header(batches=((1, 1), (3, 3))), "generations", "came with generation 2, which is not one of its batches"),
        ("points", in_header(key=(0, 1)), "region", "but the header says 0 .. 1"),
        ("points", in_header(time=(0, 1)), "region", "its rows have times 0 .. 39999000000, but the header says 0 .. 1"),
        ("points", in_header(id="0" * 23), "header", "id is '000"),
        ("points", in_header(fields=(1, 2, 3, 9)), "header", "fields is (1, 2, 3, 9) in the file"),
        ("points", in_header(batches=((1, 5),)), "header", "batches"),
        ("points", in_header(generations=(1, 7)), "header", "generations is (1, 7) in the file, but (1, 1) in the catalog"),
        ("points", in_header(rows=N - 1), "header", f"says {N - 1} rows"),
        ("points", in_header(format=9), "header", "use a newer version"),
        ("plates", in_header(layout='{"key": "x"}'), "header", "layout"),
    ],
)  # fmt: skip
def test_what_is_wrong_though_its_checksums_are_right(root: Path, table: str, change: Change, kind: str, said: str) -> None:
    rewrite(root, table, change)
    report = look(root)
    assert kind in kinds(report), report
    assert any(said in p.what for p in report.problems if p.kind == kind), report
    assert {p.where for p in report.problems} == {str(chunk_of(root, table).relative_to(root))}


def test_rewriting_alone_changes_nothing(root: Path) -> None:
    for table in ("points", "plates"):
        rewrite(root, table, lambda parts: None)
    assert look(root).ok


def test_rows_that_make_no_sense(root: Path) -> None:
    def not_text(parts: dict[str, Any]) -> None:
        old = parts["columns"]["plate"]
        data = b"\xff" + old.buffers()[2].to_pybytes()[1:]
        parts["columns"]["plate"] = pa.Array.from_buffers(old.type, len(old), [None, old.buffers()[1], pa.py_buffer(data)])

    rewrite(root, "plates", not_text)
    (problem,) = look(root).problems
    assert problem.kind == "rows" and "UTF8" in problem.what


# ---- a tampered catalog ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column, value, kind",
    [
        ("key_lo", -5, "region"), ("key_hi", 7, "region"), ("time_lo", 1, "region"), ("time_hi", 1, "region"),
        ("rows", 17, "header"), ("server", 3, "header"), ("late", 1, "header"), ("prefix", b"x", "header"), ("format", 9, "header"),
        ("generation_hi", 2, "header"), ("generation_lo", 0, "header"), ("generation_hi", 2, "catalog"),
        ("bytes", 1 << 60, "size"), ("frame", 5, "frame"), ("body_lo", 8, "frame"), ("bytes", 5, "catalog"), ("body_lo", -8, "catalog"),
        ("body_hi", 1 << 60, "catalog"), ("id", "0066059d98c9ef85a3e9b5f", "catalog"),
        ("file", "tables/1/0066059d98c9ef85a3e9b5f.arrow", "catalog"),
    ],
)  # fmt: skip
def test_a_tampered_catalog_row(root: Path, column: str, value: object, kind: str) -> None:
    sql(root, f"UPDATE chunks SET {column} = ? WHERE table_id = 1", value)
    report = look(root)
    assert kind in kinds(report), report


def test_tampered_partitions(root: Path) -> None:
    sql(root, "UPDATE chunk_partitions SET rows = rows - 1 WHERE table_id = 1 AND partition = 3600000000")
    sql(root, "DELETE FROM chunk_partitions WHERE table_id = 1 AND partition = 7200000000")
    (problem,) = look(root).problems
    assert problem.kind == "partitions"
    assert "3,600 rows in the partition from 1970-01-01 01:00:00 on, the catalog says 3,599; 1 more partitions are wrong" in problem.what


def test_a_generation_that_went_back(root: Path) -> None:
    sql(root, "UPDATE tables SET generation = 0 WHERE name = 'plates'")
    problems = look(root).problems
    assert {(problem.kind, problem.where) for problem in problems} == {("catalog", "catalog.sqlite")}
    assert [problem.what for problem in problems] == [
        f"{part} of table 'plates' go up to generation 3, but the table has only reached 0" for part in ("chunks", "partitions")
    ]


def test_rows_that_belong_to_nothing(root: Path) -> None:
    sql(root, "INSERT INTO chunk_partitions VALUES (77, 'none', 0, 1)")
    (problem,) = look(root).problems
    assert problem.kind == "catalog" and "of chunk_partitions belongs to a row of chunks that is not there" in problem.what


@pytest.mark.parametrize("index", ["masks_of_table", "sqlite_autoindex_packages_1", "sqlite_autoindex_tables_1"])
def test_a_damaged_page_of_the_catalog(root: Path, index: str) -> None:
    with closing(sqlite3.connect(root / "catalog.sqlite")) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [index]).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with open(root / "catalog.sqlite", "r+b") as f:
        f.seek((page - 1) * size)
        f.write(b"\x55" * size)
    report = look(root)
    assert kinds(report) == {"catalog"} and any("integrity check" in p.what or "malformed" in p.what for p in report.problems)
    assert "Restore the warehouse" in report.problems[0].todo


def test_a_schema_that_cannot_be_read(root: Path) -> None:
    sql(root, "UPDATE tables SET arrow_schema = x'00' WHERE id = 1")
    (problem,) = look(root).problems
    assert problem.kind == "catalog" and "cannot be read" in problem.what


def test_a_catalog_that_changed_behind_its_owner(root: Path) -> None:
    with tw.open(root) as wh:
        sql(root, "UPDATE chunks SET time_hi = time_hi + 1 WHERE table_id = 1")
        report = wh.check()
        assert kinds(report) == {"version", "region"}
        assert "table 'points'" in [p.where for p in report.problems]


# ---- files that mean nothing -----------------------------------------------------------------------------


def strangers(root: Path) -> list[str]:
    """Put files of ours that no table knows into a warehouse, beside some that are not ours."""
    chunk = chunk_of(root, "points")
    ours = {
        "tables/1/0000000000000000000aaaa.arrow": chunk.read_bytes(),
        "tables/1/0000000000000000000bbbb.arrow.tmp": b"half",
        "tables/99/0000000000000000000cccc.arrow": b"of a table that is gone",
        "logs/99/00000001-00000001.log": b"its log",
    }
    others = {"tables/1/notes.txt": b"mine", "readme": b"mine", "tables/1/0000000000000000000aaaa.arrow.bak": b"mine"}
    for name, data in {**ours, **others}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return sorted(ours)


def test_files_that_no_table_knows_are_named_and_left(root: Path) -> None:
    ours = strangers(root)
    before = contents(root)
    report = look(root)
    assert sorted(p.where for p in report.problems) == ours
    assert [p.kind for p in sorted(report.problems, key=lambda p: p.where)] == ["orphan", "orphan", "leftover", "orphan"]
    assert {p.severity for p in report.problems} == {"warning"} and not report.ok
    assert all("--repair" in p.todo for p in report.problems)
    assert contents(root) == before


@pytest.mark.parametrize("live", [False, True])
def test_repair_moves_them_into_quarantine_and_touches_nothing_else(root: Path, live: bool) -> None:
    if live:
        with tw.open(root) as wh:
            ours, before = strangers(root), contents(root)
            report = wh.check(repair=True)
            assert wh.check().problems == ()
    else:
        ours, before = strangers(root), contents(root)
        report = look(root, repair=True)
        assert look(root).problems == ()
    assert report.ok and len(report.problems) == 4 and all(p.repaired for p in report.problems)
    assert "all is well now, 4 repaired" in str(report)
    after = contents(root)
    moved = {name: data for name, data in after.items() if name.startswith("quarantine/")}
    assert sorted(name.split("/", 2)[2] for name in moved) == ours
    for problem in report.problems:
        (to,) = [name for name in moved if name.endswith("/" + problem.where)]
        assert moved[to] == before[problem.where] and problem.todo == f"It was moved to {to}."
    assert {k: v for k, v in after.items() if k not in moved} == {k: v for k, v in before.items() if k not in ours}
    with tw.open(root) as wh:
        assert wh.table("points").rows == N


def test_repair_leaves_a_damaged_chunk_alone(root: Path) -> None:
    path = chunk_of(root, "points")
    flip(path, path.stat().st_size // 2)
    before = contents(root)
    report = look(root, repair=True)
    assert not report.ok and not report.problems[0].repaired
    assert contents(root) == before


def test_what_cannot_be_moved_stays_a_problem(root: Path) -> None:
    strangers(root)
    (root / "quarantine").write_text("in the way")
    report = look(root, repair=True)
    assert not report.ok and all("cannot move" in p.todo for p in report.problems)


# ---- in use ----------------------------------------------------------------------------------------------


def test_while_rows_are_inserted_flushed_replaced_and_dropped(tmp_path: Path) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []
    settings = tw.Settings(chunk_bytes=1 << 16, leaf_rows=32, indexing_servers=2, late_after=0.001)

    def work(job: Callable[[int], None]) -> None:
        turn = 0
        while not stop.is_set():
            try:
                job(turn)
            except BaseException as e:
                errors.append(e)
                return
            turn += 1

    with tw.open(tmp_path / "wh", settings=settings) as wh:
        table = wh.create_table("points", POINTS, time="ts", key="y")

        def insert(turn: int) -> None:
            table.insert(points(500, turn * 400))

        def replace(turn: int) -> None:
            table.replace(points(5, 10), time=(10_000_000, 14_000_000))
            time.sleep(0.01)

        def drop(turn: int) -> None:
            other = wh.create_table(f"other_{turn}", POINTS, time="ts", key=tw.zorder("x", "y", bounds=(0, 0, 10, 100)))
            other.insert(points(2000))
            other.flush()
            result = other.query()
            wh.drop_table(other.name)
            assert len(result.to_arrow()) == 2000

        threads = [threading.Thread(target=work, args=(job,)) for job in (insert, replace, drop)]
        for thread in threads:
            thread.start()
        try:
            give_up = time.monotonic() + examples(2)
            rounds = 0
            while rounds < 3 or time.monotonic() < give_up:
                report = wh.check(repair=rounds % 2 == 0)
                assert report.problems == (), report
                rounds += 1
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not errors and rounds > 2
        assert not (tmp_path / "wh" / "quarantine").exists()
        rows = table.rows
    with tw.open(tmp_path / "wh") as wh:
        assert wh.table("points").rows == rows and wh.check().ok


def test_files_of_a_dropped_table_that_are_still_read_are_no_orphans(root: Path) -> None:
    with tw.open(root) as wh:
        result = wh.table("points").query()
        path = chunk_of(root, "points")
        wh.drop_table("points")
        assert path.exists() and wh.check(repair=True).problems == () and path.exists()
        assert result.to_arrow().num_rows == N
        del result
        assert not chunks_left(path.parent) and wh.check().ok


def test_a_table_that_is_dropped_during_the_check(root: Path) -> None:
    with tw.open(root) as wh:
        seen = []

        def drop(done: int, total: int) -> None:
            if not seen:
                wh.drop_table("plates")
                wh.drop_table("points")
            seen.append((done, total))

        report = wh.check(progress=drop)
        assert report.problems == () and report.chunks == 2
        assert seen[-1][0] == seen[-1][1] > 0
        assert not chunks_left(root / "tables")


def test_a_file_that_is_being_written_is_no_leftover(root: Path) -> None:
    go, waits = threading.Event(), threading.Event()

    class Slow(Disk):
        def sink(self, path: str) -> pa.NativeFile:
            sink = super().sink(path)
            waits.set()
            go.wait(20)
            return sink

    with tw.open(root) as wh:
        owner_of(wh).files.disk = Slow()
        table = wh.table("points")
        table.insert(points(100))
        flush = threading.Thread(target=table.flush)
        flush.start()
        try:
            assert waits.wait(20)
            assert list((root / "tables").rglob("*.arrow.tmp"))
            report = wh.check(repair=True)
            assert report.problems == (), report
        finally:
            go.set()
            flush.join()
        assert table.rows == N + 100 and wh.check().ok


# ---- logs ------------------------------------------------------------------------------------------------


@pytest.fixture
def crashed(root: Path) -> Path:
    """A warehouse whose owner died with rows in the log only."""
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import tidewheel as tw
from test_check import points
wh = tw.open({str(root)!r})
for n in range(20):
    wh.table("points").insert(points(50, 50 * n))
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    return root


def segment(root: Path) -> Path:
    (found,) = (root / "logs").rglob("*.log")
    return found


def test_a_log_that_waits_for_recovery_is_no_problem(crashed: Path) -> None:
    before = contents(crashed)
    report = look(crashed)
    assert report.ok, report
    assert report.segments == 1 and report.rows == N + 3000 + 1000
    assert contents(crashed) == before, "nothing was recovered or swept"
    with open(segment(crashed), "ab") as f:
        f.write(b"TWR1 half a record")  # the process died while it wrote
    assert look(crashed).ok


def test_a_damaged_record(crashed: Path) -> None:
    path = segment(crashed)
    flip(path, path.stat().st_size // 2)
    (problem,) = look(crashed).problems
    assert problem.kind == "log" and problem.where == "logs/1" and 'damaged_log="skip"' in problem.todo
    assert f"log segment {path.relative_to(crashed)} is damaged at byte" in problem.what


def test_a_damaged_log_of_an_open_warehouse_is_mended_by_a_flush(root: Path) -> None:
    with tw.open(root) as wh:
        table = wh.table("points")
        for n in range(20):
            table.insert(points(50, 50 * n))
        path = segment(root)
        flip(path, path.stat().st_size // 2)
        (problem,) = wh.check().problems
        assert problem.kind == "log" and "Flush the table" in problem.todo
        table.flush()
        assert wh.check().ok and table.rows == N + 1000


# ---- the command -----------------------------------------------------------------------------------------


def test_the_command(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["check", "-w", str(root)]) == 0
    out = capsys.readouterr()
    assert out.out.endswith("all is well\n") and out.err == ""
    monkeypatch.setenv("TIDEWHEEL_WAREHOUSE", str(root))
    assert cli.main(["check", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True and report["problems"] == [] and report["rows"] == N + 3000
    strangers(root)
    flip(chunk_of(root, "points"), 300)
    assert cli.main(["check"]) == 1
    out = capsys.readouterr()
    assert "5 problems" in out.out and "error: tables/1/" in out.out and "[frame]" in out.out and out.err == ""
    assert cli.main(["check", "--repair", "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert sorted((p["kind"], p["repaired"]) for p in report["problems"])[0] == ("frame", False)
    assert sum(p["repaired"] for p in report["problems"]) == 4
    flip(chunk_of(root, "points"), 300)
    assert cli.main(["check"]) == 0


def test_the_command_line_must_say_which_warehouse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEWHEEL_WAREHOUSE", raising=False)
    for argv in (["check"], ["backup", "there"]):
        assert cli.main(argv) == 2
        assert "Give -w PATH, or set TIDEWHEEL_WAREHOUSE" in capsys.readouterr().err
    assert cli.main(["check", "--format", "xml", "-w", "x"]) == 2
    capsys.readouterr()
    for argv in (["check", "-w", str(tmp_path / "none")], ["backup", str(tmp_path / "b"), "-w", str(tmp_path / "none")]):
        assert cli.main(argv) == 1
        assert f"there is no warehouse in {tmp_path / 'none'}" in capsys.readouterr().err
        assert not (tmp_path / "none").exists()


def test_a_warehouse_that_another_process_owns_is_looked_at_there(root: Path) -> None:
    argv = [sys.executable, "-m", "tidewheel.surfaces.cli"]
    with tw.open(root):
        done = subprocess.run([*argv, "check", "-w", str(root)], capture_output=True, text=True)
        assert done.returncode == 0 and "all is well" in done.stdout, done.stdout + done.stderr
        done = subprocess.run([*argv, "backup", "b", "-w", str(root)], capture_output=True, text=True, cwd=root.parent)
        assert done.returncode == 0, done.stderr
    tw.restore(root.parent / "b", root.parent / "again")


def test_problems_on_a_terminal_are_a_table(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from tidewheel.surfaces import maintenance_output

    strangers(root)
    console = Console(force_terminal=True, width=160, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        maintenance_output._show(look(root), console)
        shown = console.export_text()
    assert "what to do" in shown and "orphan" in shown and "--repair" in shown


def test_a_bar_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from tidewheel.surfaces import progress_bar

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(progress_bar, "PATIENCE", 0.0)
    for stream in (Screen(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar.bar("checking") as step:
            for done in range(0, 101, 10):
                step(done, 100)
        assert ("checking" in stream.getvalue()) == isinstance(stream, Screen)
    with progress_bar.bar("nothing to do"):
        pass
