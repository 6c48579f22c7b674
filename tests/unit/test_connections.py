"""How Spark's processes ask the owner: if it leaves at that very moment, the next one is asked, wherever that is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidewheel.cluster.owner import OwnedEngine
from tidewheel.engine.operations import LastBatch
from tidewheel.errors import OwnerLostError
from tidewheel.model.schema import make_spec
from tidewheel.settings import Settings
from tidewheel.spark import connections
from tidewheel.spark.bulk_sink import BulkSink
from tidewheel.spark.options import TablePath
from tidewheel.testing.probe import Probe, tables_of

SPEC = make_spec("t", pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))]), time="ts", key="id")
ROWS = pa.record_batch([pa.array([1, 2]), pa.array([1, 2], pa.timestamp("us"))], schema=SPEC.schema)


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[OwnedEngine]:
    """An owner in this process, to which all others of Spark's would attach."""
    engine = OwnedEngine((tmp_path / "wh").resolve(), Settings())
    assert engine.listener is not None and engine.listener.wait(60)
    yield engine
    connections.engine(str(engine.root)).close()
    connections._forget_in_child()
    engine.close()


@pytest.fixture
def place(owned: OwnedEngine) -> TablePath:
    Probe(owned.create(SPEC, "error")).insert(ROWS)
    return TablePath(str(owned.root), "t")


class Leaves:
    """What an owner says once, before it does as it is told."""

    def __init__(self, do: Any, untouched: bool = True, done: bool = False) -> None:
        self.do, self.untouched, self.done = do, untouched, done
        self.times = 0

    def __call__(self, *arguments: Any) -> Any:
        self.times += 1
        if self.times > 1:
            return self.do(*arguments)
        if self.done:
            self.do(*arguments)
        raise OwnerLostError("the owner of the warehouse is closing it", untouched=self.untouched)


def test_a_table_is_made_by_the_next_owner(owned: OwnedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned, "create", leaves := Leaves(owned.create))
    assert connections.create(TablePath(str(owned.root), "t"), SPEC).schema == SPEC.schema
    assert leaves.times == 2 and tables_of(owned) == ["t"]


def test_a_task_gets_its_table_of_the_next_owner(owned: OwnedEngine, place: TablePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owned, "table", leaves := Leaves(owned.table))
    with connections.of(place) as table:
        assert Probe(table).state().rows == 2
    assert leaves.times == 2


def test_a_load_is_committed_by_the_next_owner(owned: OwnedEngine, place: TablePath, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Probe(owned.table("t"))
    load = Probe(connections.table(place)).begin_load()
    monkeypatch.setattr(there.loads, "commit", leaves := Leaves(there.loads.commit))
    BulkSink(place, SPEC, load, True, "error", False).commit([])
    assert leaves.times == 2 and there.state().rows == 0


@pytest.mark.parametrize("done", [False, True])
def test_a_load_that_may_have_been_committed_is_not_committed_again(
    owned: OwnedEngine, place: TablePath, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    there = Probe(owned.table("t"))
    monkeypatch.setattr(there.loads, "commit", leaves := Leaves(there.loads.commit, untouched=False, done=done))
    with pytest.raises(OwnerLostError):
        BulkSink(place, SPEC, Probe(connections.table(place)).begin_load(), True, "error", False).commit([])
    assert leaves.times == 1 and there.state().rows == (0 if done else 2)


def test_what_may_be_asked_twice_is(owned: OwnedEngine, place: TablePath, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = Probe(owned.table("t")).streams
    monkeypatch.setattr(streams, "last", leaves := Leaves(streams.last, untouched=False))
    assert connections.do(place, LastBatch("s")) is None
    assert leaves.times == 2
