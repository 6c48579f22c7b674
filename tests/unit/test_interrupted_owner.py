"""Ctrl-C in the thread that uses an owner: the owner stays the owner, and what it put off for somebody is done when that one is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import event

from tests.interrupt import Interrupt
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.model.schema import make_spec
from tidewheel.settings import Settings
from tidewheel.testing.probe import Probe
from tidewheel.write import commit

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
SPEC = make_spec("t", SCHEMA, time="ts", key="id")


def row(number: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([number]), pa.array([number], pa.timestamp("us"))], schema=SCHEMA)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[OwnedEngine]:
    engine = OwnedEngine((tmp_path / "wh").resolve(), Settings(), listen=False)
    engine.create(SPEC, "error")
    yield engine
    engine.close()


def interrupts(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("moment", ["before_cursor_execute", "after_cursor_execute"])
def test_sqlite_keeps_its_write_ahead_log(engine: OwnedEngine, moment: str) -> None:
    """An interrupt closes the connection that it meets. If that were the last one, SQLite would remove its log, and the owner, which finds
    another one in its place, would take itself for lost."""
    log = engine.root / "catalog.sqlite-wal"
    engine.tenure.stop()  # which has a connection of its own at times
    engine.tenure.look()
    before = log.stat().st_ino
    database = engine.catalog._rest()._engine  # type: ignore[attr-defined]
    event.listen(database, moment, interrupts)
    with pytest.raises(KeyboardInterrupt):
        engine.catalog.tables()
    event.remove(database, moment, interrupts)
    assert log.exists() and log.stat().st_ino == before
    engine.tenure.look()
    Probe(engine.table("t")).insert(row(1))
    Probe(engine.table("t")).flush()
    assert not engine.fenced


KEEPING = commit.Committer.keeping.__wrapped__.__code__  # type: ignore[attr-defined]


def test_what_was_kept_for_somebody_leaves_after_an_interrupt(engine: OwnedEngine) -> None:
    """A backup that was interrupted anywhere, and a replace after it: the chunk that it hides leaves the disk."""
    table = Probe(engine.table("t"))
    at = 0
    while True:
        at += 1
        table.insert(row(1))
        table.flush()
        interrupt = Interrupt(at, KEEPING)

        def backup() -> None:
            with engine.commits.keeping():
                table.replace(row(2), (0, 10))  # hides the row that is there, which must stay for now

        with suppress(KeyboardInterrupt):
            interrupt.run(backup)
        table.replace(row(3), (0, 10))
        assert not engine.commits._committing.locked()
        assert table.query().to_arrow()["id"].to_pylist() == [3]
        with engine.still():  # its files go in the thread that commits
            left = os.listdir(engine.root / "tables" / "1")
        assert len(left) == 1, f"interrupted at {interrupt.where}: {left}"
        if not interrupt.where:
            return
