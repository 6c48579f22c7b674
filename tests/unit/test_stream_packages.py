"""Slices that are packages: a file that a stream delivers is loaded once under its name, whatever stream brings it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.model.dead_letters import DeadLetter, letters_batch, rows_batch
from tidewheel.model.delivery import SliceId
from tidewheel.testing.abandon import abandon
from tidewheel.testing.probe import Probe

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def rows(*keys: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.int64()), pa.array(keys, pa.timestamp("us", "UTC"))], schema=SCHEMA)


def bad(origin: str) -> pa.RecordBatch:
    return letters_batch(SCHEMA, [DeadLetter(0, "broken", "", "raw", origin)])


def deliver(table: Any, stream: str, batch: int, files: dict[str, list[pa.RecordBatch]]) -> tw.Ack:
    slices = [SliceId(stream, "run", batch, 0, 0, name) for name in files]
    for one in slices:
        table.stage(one, iter([b if "_tw_bad" in b.schema.names else rows_batch(b) for b in files[one.package]]), SCHEMA)
    ack: tw.Ack = table.commit_batch(stream, "run", batch, slices)
    return ack


def keys(wh: tw.Warehouse) -> list[int]:
    return sorted(wh.table("t").query(columns=["k"]).to_arrow()["k"].to_pylist())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with tw.open(tmp_path / "wh") as wh:
        wh.create_table("t", SCHEMA, time="ts", key="k")
    return tmp_path / "wh"


@pytest.mark.parametrize("flush", [False, True])
def test_no_file_twice(root: Path, flush: bool) -> None:
    with tw.open(root) as wh:
        table = wh.table("t")
        t = Probe(table)
        assert deliver(t, "first", 0, {"a.csv": [rows(1, 2)], "b.csv": [rows(3), bad("b.csv:7")]}).rows == 3
        if flush:
            table.flush()
        # another stream, because somebody deleted the checkpoint: it cuts its batches differently, too
        ack = deliver(t, "second", 0, {"a.csv": [rows(1, 2)]})
        assert (ack.rows, ack.rejected) == (0, 0)
        ack = deliver(t, "second", 1, {"b.csv": [rows(3), bad("b.csv:7")], "c.csv": [rows(4)]})
        assert (ack.rows, ack.rejected) == (1, 0)
        assert table.insert(rows(4), package="c.csv").duplicate
        assert table.insert(rows(5), package="d.csv").rows == 1
        assert deliver(t, "second", 2, {"d.csv": [rows(5)]}).rows == 0
        assert keys(wh) == [1, 2, 3, 4, 5]
        [reject] = table.rejects().to_arrow().to_pylist()
        assert (reject["package"], reject["stream"], reject["batch"], reject["origin"]) == ("b.csv", "first", 0, "b.csv:7")


def test_a_file_without_a_good_row_is_remembered(root: Path) -> None:
    with tw.open(root) as wh:
        t = Probe(wh.table("t"))
        assert deliver(t, "first", 0, {"broken": [bad("x.csv")], "also": [bad("y.csv")]}).rejected == 2
    with tw.open(root) as wh:
        t = Probe(wh.table("t"))
        assert deliver(t, "second", 0, {"broken": [bad("x.csv")], "good": [rows(1)]}).rejected == 0
        assert keys(wh) == [1] and len(wh.table("t").rejects()) == 2


def test_a_crash_forgets_neither_rows_nor_names(root: Path) -> None:
    wh = tw.open(root)
    t = Probe(wh.table("t"))
    deliver(t, "first", 0, {"a.csv": [rows(1, 2)]})
    t.stage(SliceId("first", "run", 1, 0, 0, "b.csv"), iter([rows(3)]), SCHEMA)  # never committed
    abandon(wh)
    with tw.open(root) as wh:
        t = Probe(wh.table("t"))
        assert keys(wh) == [1, 2]
        deliver(t, "second", 0, {"a.csv": [rows(1, 2)], "b.csv": [rows(3)]})
        assert keys(wh) == [1, 2, 3]
