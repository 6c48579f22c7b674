"""Disks that are full or slow for a while: rows are refused or wait, none is lost, and queries go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tidewheel as tw
from tests.crash.book import SCHEMA, Row, arrow, rows_of
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.env.faults import FaultyDisk
from tidewheel.testing.faulty_catalog import FaultyCatalog
from tidewheel.testing.fixed_engine import held
from tidewheel.testing.probe import Probe
from tidewheel.write import flush

ROWS = 200
"""Per batch: more than a tree of 4 KB takes, so that each batch is flushed at once."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "RETRY_SECONDS", 0.005)


def some(stream: int, number: int) -> list[Row]:
    return [(r, number * 1_000_000 + r, stream, number) for r in range(ROWS)]


@contextmanager
def opened(disk: FaultyDisk, durability: str) -> Iterator[tw.Table]:
    settings = tw.Settings(durability=durability, chunk_bytes=4096, sealed_trees=2)
    with held(OwnedEngine(disk.root, settings, disk, lambda path: FaultyCatalog(path, disk), listen=False)) as wh:
        yield wh.create_table("t", SCHEMA, time="ts", key="k", if_exists="open")


def everything(table: tw.Table) -> list[Row]:
    return sorted(rows_of(table.query().to_arrow()))


@pytest.mark.parametrize("durability", ["memory", "process", "fsync"])
def test_a_full_disk_refuses_rows_until_there_is_room(tmp_path: Path, durability: str) -> None:
    disk = FaultyDisk(tmp_path / "w")
    acked: list[Row] = []
    with opened(disk, durability) as table:
        for number in range(3):
            table.insert(arrow(some(0, number)))
            acked += some(0, number)
        disk.full = True
        refused = 0
        for number in range(3, 20):
            try:
                table.insert(arrow(some(0, number)))
                acked += some(0, number)
            except tw.StorageError as e:
                assert "No space left" in str(e)
                refused += 1
            assert everything(table) == sorted(acked)  # what was acknowledged, and nothing of what was refused
        assert refused >= (10 if durability == "memory" else 17)  # without a log, as many trees as may wait are still taken
        if durability == "memory":
            with pytest.raises(tw.StorageError, match="No space left"):
                table.flush()
        assert table.query(key=(5, 7), time=(0, 999_999)).to_arrow().num_rows == 3
        disk.full = False
        for _ in range(1000):
            try:
                table.insert(arrow(some(1, 0)))
                break
            except tw.StorageError:  # trees that wait are written first
                threading.Event().wait(0.005)
        acked += some(1, 0)
        assert everything(table) == sorted(acked)
        table.flush()
    with opened(disk.next_process(), durability) as table:
        assert everything(table) == sorted(acked)


@pytest.mark.parametrize("durability", ["memory", "process", "fsync"])
def test_a_slow_disk_makes_inserts_wait(tmp_path: Path, durability: str) -> None:
    disk = FaultyDisk(tmp_path / "w")
    with opened(disk, durability) as table:
        table.insert(arrow(some(9, 0)))
        disk.slow = 0.005
        most = 0

        def stream(number: int) -> None:
            nonlocal most
            for n in range(8):
                table.insert(arrow(some(number, n)))
                most = max(most, table.state().sealed)

        threads = [threading.Thread(target=stream, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        publisher = Probe(table).publisher
        assert publisher.metrics.waits > 0 and most <= 2 + len(threads)
        disk.slow = 0.0
    expected = sorted(some(9, 0) + [row for number in range(4) for n in range(8) for row in some(number, n)])
    with opened(disk.next_process(), durability) as table:
        assert everything(table) == expected
