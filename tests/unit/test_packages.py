"""Packages: loaded once under their name, by an insert or by a stream's batch, whichever comes first, and whatever goes wrong meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.engine.operations import CommitBatch, Stage
from tidewheel.engine.protocol import TableEngine
from tidewheel.errors import StorageError
from tidewheel.model.delivery import Ack, RowStream, SliceId
from tidewheel.model.records import PackageRecord
from tidewheel.testing.probe import Probe

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[tw.Warehouse]:
    with tw.open(tmp_path / "wh") as wh:
        wh.create_table("t", SCHEMA, time="ts", key="id")
        yield wh


def rows(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(range(count)), "ts": list(range(count))}, SCHEMA)


def stream(table: TableEngine, batch: int, packages: dict[str, int]) -> Ack:
    """Rows by their package, as one batch of a stream; those of the package "" belong to none."""
    slices = []
    for partition, (package, count) in enumerate(packages.items()):
        slices.append(SliceId("s", "run", batch, partition, 0, package))
        table.give(Stage(slices[-1]), RowStream(SCHEMA, iter([rows(count)])))
    return table.do(CommitBatch("s", "run", batch, tuple(slices)))


def test_an_insert_and_a_stream_know_each_others_packages(warehouse: tw.Warehouse) -> None:
    table = warehouse.table("t")
    engine = Probe(table).local
    assert table.insert(rows(2), package="a").rows == 2
    assert stream(engine, 0, {"a": 5, "b": 3, "": 1}).rows == 4
    assert table.insert(rows(7), package="b").duplicate
    assert table.rows == 6


def test_a_package_without_rows_is_loaded_once_as_well(warehouse: tw.Warehouse) -> None:
    table = warehouse.table("t")
    engine = Probe(table).local
    before = engine.publisher.version.generation
    first = table.insert(rows(0), package="empty")
    assert (first.rows, first.duplicate) == (0, False) and first.generation > before
    second = stream(engine, 0, {"empty": 2, "nothing": 0})
    assert (second.rows, second.duplicate) == (0, False) and second.generation > first.generation
    assert table.insert(rows(2), package="nothing").duplicate and table.rows == 0


def test_a_package_that_failed_can_be_loaded_again(warehouse: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    table = warehouse.table("t")
    probe = Probe(table)

    def refuse(*_: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(probe.local.publisher.log, "append", refuse)
        with pytest.raises(StorageError):
            table.insert(rows(2), package="a")
        with pytest.raises(StorageError):
            stream(probe.local, 0, {"b": 2})
    assert table.rows == 0
    assert table.insert(rows(2), package="a").rows == 2
    assert stream(probe.local, 1, {"b": 2}).rows == 2


@pytest.mark.parametrize("interrupted", [KeyboardInterrupt, StorageError])
def test_a_package_whose_rows_are_visible_is_loaded_whatever_followed(warehouse: tw.Warehouse, interrupted: type[BaseException]) -> None:
    """Rows that are there must not come twice, also if whoever brought them was interrupted right after."""
    table = warehouse.table("t")
    probe = Probe(table)
    record = PackageRecord("a", 0, 2, 0)

    def publish() -> Ack:
        probe.local.publisher.insert([rows(2)], (record,))
        raise interrupted("too late")

    with pytest.raises(interrupted), probe.packages.turn(["a"]) as new:
        assert new == {"a"}
        probe.packages.load([record], 2, publish)
    assert table.insert(rows(2), package="a").duplicate and table.rows == 2
    with probe.packages.turn(["a", "b"]) as new:
        assert new == {"b"}
