"""Any value in any cell of the catalog: the warehouse says what is wrong, or answers rightly; nothing beside it is touched.

A value that could have been written (another key_lo, another name) cannot be told from the right one; such values are not drawn here.
"""

from __future__ import annotations

import shutil
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidewheel as tw
from tests.conftest import examples
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.maintenance.check import check, closed
from tidewheel.model.schema import make_spec
from tidewheel.testing.probe import Probe

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us")), ("v", pa.float64())])
PLAIN = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", pa.float64())])
ROWS = 40

CELLS = {
    "tables": ("id", "name", "kind", "generation", "arrow_schema", "layout", "partition"),
    "fields": ("table_id", "field_id", "position", "name", "type", "added_generation", "dropped_generation"),
    "chunks": (
        "table_id", "id", "server", "file", "container", "format", "rows", "bytes", "key_lo", "key_hi", "time_lo", "time_hi", "late",
        "generation_lo", "generation_hi", "covers", "prefix", "body_lo", "body_hi", "frame", "generation_removed",
    ),
    "chunk_partitions": ("table_id", "chunk_id", "partition", "rows"),
    "masks": ("table_id", "time_lo", "time_hi", "generation", "reason"),
    "packages": ("table_id", "name", "generation", "rows", "rejected"),
    "stream_batches": ("table_id", "stream", "batch", "generation", "rows"),
    "servers": ("table_id", "server", "key_lo", "prefix"),
    "leases": ("id", "epoch", "pid", "host", "since"),
    "schema_version": ("version", "made_by", "applied"),
    "warehouse": ("uuid", "format_version", "created"),
}  # fmt: skip

SILENT = {
    ("chunks", "generation_removed"), ("chunks", "table_id"), ("chunks", "key_lo"), ("chunks", "key_hi"), ("chunks", "time_lo"),
    ("chunks", "time_hi"), ("masks", "time_lo"), ("masks", "time_hi"), ("masks", "generation"), ("masks", "table_id"), ("masks", "reason"),
    ("tables", "name"), ("tables", "id"), ("chunks", "generation_lo"), ("chunks", "generation_hi"),
}  # fmt: skip
"""Cells in which another whole number or text can be a possible one: no error is asked for, and no answer."""

VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-3, 3), st.floats(allow_nan=False), st.text(max_size=12),
    st.binary(max_size=40),
    st.sampled_from([
        "../canary/victim", "tables/1/../../../canary/victim", "tables/1/00000000000000000000000.arrow", "{}", "[]", "null", '{"key": 5}',
        '{"key": {"rule": "zorder", "columns": ["v"], "bounds": "x"}, "time": {"column": "ts", "unit": "us"}}', "1 century", "x" * 5000,
        '{"key": {"rule": "column", "column": "v"}, "time": {"column": "ts", "unit": "us"}}', "0 s", "99999999999999999999 days",
        '{"key": {"rule": "ip", "column": "k"}, "time": {"column": "k", "unit": "us"}}', "'; DROP TABLE chunks; --", 1 << 62, -1, 1e300,
        pa.schema([("k", pa.int8())]).serialize().to_pybytes(), b"",
        pa.schema([("k", pa.string()), ("ts", pa.int64()), ("v", pa.string())]).serialize().to_pybytes(),
    ]),
)  # fmt: skip


def some(schema: pa.Schema) -> pa.Table:
    keys = [f"key {i:03}" for i in range(ROWS)] if schema is SCHEMA else list(range(ROWS))
    return pa.table(
        [pa.array(keys), pa.array(range(ROWS), schema.field("ts").type), pa.array([float(i) for i in range(ROWS)])], schema=schema
    )


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A warehouse with something in every table of its catalog, left by an owner that did not close: its last rows are in a log."""
    folder = tmp_path_factory.mktemp("origin")
    engine = OwnedEngine(folder / "wh", tw.Settings(indexing_servers=2, leaf_rows=8), listen=False)
    texts = Probe(engine.create(make_spec("texts", SCHEMA, time="ts", key="k"), "error"))
    plain = Probe(engine.create(make_spec("plain", PLAIN, time=tw.epoch("ts", "ms"), key="k"), "error"))
    for table, schema in ((texts, SCHEMA), (plain, PLAIN)):
        table.insert(some(schema), "package")
        table.flush()
        table.replace(some(schema), (None, None))
        table.insert(some(schema))
    plain.insert([{"k": "no number", "ts": 1, "v": 1.0}], on_bad="reject")
    shutil.copytree(folder / "wh", folder / "left")
    engine.close()
    with closing(sqlite3.connect(folder / "left" / "catalog.sqlite")) as conn, conn:
        conn.execute("INSERT INTO stream_batches VALUES (1, 's', 3, 1, 5)")
        conn.execute("INSERT INTO masks (table_id, time_lo, time_hi, generation, reason) VALUES (1, 0, 5, 0, 'replace')")  # hides nothing
        conn.execute("INSERT OR REPLACE INTO servers VALUES (1, 0, 5, x''), (1, 1, 9, x'')")
        conn.execute("INSERT OR REPLACE INTO fields SELECT table_id, 9, 9, 'old', 'int64', 0, 1 FROM fields LIMIT 1")
    yield folder


def use(root: Path) -> dict[str, list[Any]]:
    """Open, ask, write, drop: the rows of each table as they were found."""
    found: dict[str, list[Any]] = {}
    with tw.open(root) as wh:
        for name in wh.tables():
            table = wh.table(name)
            found[name] = table.query().to_arrow().sort_by("k").to_pylist()
            keys = [row["k"] for row in found[name][:1]]
            assert not keys or table.query(key=keys[0]).to_arrow().num_rows >= 1
            table.query(time=(0, 5)).to_arrow()
            table.rejects().to_arrow()
            table.insert(some(table.schema), package="package")
            table.flush()
        wh.sql("SELECT * FROM system.tables").to_arrow()
        wh.check()
        wh.backup(root.parent / "backup")
        for name in wh.tables():
            wh.drop_table(name)
    return found


@settings(max_examples=examples(25))
@given(data=st.data())
def test_any_value_in_any_cell(origin: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    part = data.draw(st.sampled_from(sorted(CELLS)))
    column, value = data.draw(st.sampled_from(CELLS[part])), data.draw(VALUES)
    folder = tmp_path_factory.mktemp("damage")
    try:
        canary = folder / "canary"
        canary.mkdir()
        (canary / "victim").write_bytes(b"precious")
        root = folder / "wh"
        shutil.copytree(origin / "left", root)
        with closing(sqlite3.connect(root / "catalog.sqlite")) as conn:
            try:
                with conn:
                    number = data.draw(st.sampled_from([row[0] for row in conn.execute(f"SELECT rowid FROM {part}")]))
                    conn.execute("PRAGMA ignore_check_constraints = ON")
                    conn.execute(f"UPDATE {part} SET {column} = ? WHERE rowid = ?", (value, number))
            except (sqlite3.IntegrityError, UnicodeEncodeError):
                return  # the database itself refuses it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = use(root)
            except tw.TidewheelError as e:
                assert str(e)
            else:
                if (part, column) not in SILENT:
                    assert found == right(origin), (part, column, value)
            try:
                with closed(root) as house:
                    check(house)
            except tw.TidewheelError as e:
                assert str(e)
        assert [p.name for p in canary.iterdir()] == ["victim"] and (canary / "victim").read_bytes() == b"precious"
    finally:
        shutil.rmtree(folder)


_right: dict[Path, dict[str, list[Any]]] = {}


def right(origin: Path) -> dict[str, list[Any]]:
    if origin not in _right:
        copy = origin / "right" / "wh"
        shutil.copytree(origin / "left", copy)
        _right[origin] = use(copy)
    return _right[origin]
