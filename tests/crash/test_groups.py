"""Tables that are flushed at once are committed together: whatever operation fails or is the last, each has all of its rows, once."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import SOAK
from tests.flushing import PATIENCE, seal_together
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.engine.local_engine import LocalEngine
from tidewheel.env.faults import CRASHES, Crashed, Fault, FaultPlan, FaultyDisk
from tidewheel.errors import TidewheelError
from tidewheel.testing.abandon import abandon, quiet_deaths
from tidewheel.testing.faulty_catalog import FaultyCatalog
from tidewheel.testing.fixed_engine import held
from tidewheel.write import flush

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))])
TABLES = 4
ROWS = [{"k": n, "ts": n} for n in range(7)]
OPERATIONS = {"sync_file": TABLES, "rename": TABLES, "sync_folder": TABLES, "commit": 1, "unlink": TABLES}
"""How many of each kind the commit of a group has, at least."""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    memory = Path("/dev/shm")
    folder = memory / f"tidewheel-groups-{os.getpid()}" if os.access(memory, os.W_OK) else tmp_path
    yield folder / "wh"
    shutil.rmtree(folder)


def open_(disk: FaultyDisk, durability: str) -> LocalEngine:
    settings = tw.Settings(durability=durability)
    return OwnedEngine(disk.root, settings, disk, lambda path: FaultyCatalog(path, disk), listen=False)


def filled(disk: FaultyDisk, durability: str) -> LocalEngine:
    engine = open_(disk, durability)
    wh = held(engine)
    for n in range(TABLES):
        wh.create_table(f"t{n}", SCHEMA, time="ts", key="k").insert(ROWS[: n + 1])
    return engine


def flush_together(engine: LocalEngine, disk: FaultyDisk) -> None:
    for publisher, jobs in seal_together(engine):
        give_up = time.monotonic() + PATIENCE
        while any(job in publisher.jobs for job in jobs):
            assert time.monotonic() < give_up, "it is never flushed"
            if disk.crashed.is_set():
                raise Crashed
            time.sleep(0.001)


@pytest.mark.parametrize("fault", [*CRASHES, Fault.FAIL])
@pytest.mark.parametrize("durability", ["process", "fsync"])
def test_each_table_has_all_of_its_rows_once(root: Path, durability: str, fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "RETRY_SECONDS", 0.002)
    for kind, count in OPERATIONS.items():
        some = {1, count} if durability == "fsync" else {min(2, count)}
        for nth in range(1, count + 1) if SOAK else some:
            shutil.rmtree(root.parent, ignore_errors=True)
            root.parent.mkdir()
            with quiet_deaths():
                _meets(root, durability, kind, nth, fault)


def _meets(root: Path, durability: str, kind: str, nth: int, fault: Fault) -> None:
    disk = FaultyDisk(root)
    engine = filled(disk, durability)
    disk.plan = plan = FaultPlan(kind, disk.counts[kind] + nth, fault)
    try:
        flush_together(engine, disk)
    except (Crashed, TidewheelError):
        assert disk.crashed.is_set(), plan
    abandon(engine)
    assert disk.met, plan
    if durability == "fsync":
        disk.lose_power()
    disk = disk.next_process()
    engine = open_(disk, durability)
    try:
        wh = held(engine)
        for n in range(TABLES):
            assert sorted(wh.table(f"t{n}").query().to_arrow()["k"].to_pylist()) == list(range(n + 1)), f"t{n}, {kind} {nth}: {fault}"
        assert wh.check().ok
    finally:
        engine.close()
