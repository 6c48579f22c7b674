"""Ctrl-C at any moment of an insert: every batch is there as a whole or not at all, and once; what was acknowledged is there."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import examples
from tidewheel.testing.abandon import abandon

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("batch", pa.int32())])
ROWS = 24


def batch(number: int, rng: random.Random) -> pa.RecordBatch:
    """Rows for every server; some are late."""
    keys = [rng.randrange(1000) for _ in range(ROWS)]
    times = [number * 1_000_000 - (10**10 if rng.random() < 0.1 else 0) + i for i in range(ROWS)]
    return pa.record_batch([pa.array(keys), pa.array(times, pa.timestamp("us")), pa.array([number] * ROWS, pa.int32())], schema=SCHEMA)


class Pest:
    """Interrupts the main thread again and again while it is `on`."""

    def __init__(self, seed: int) -> None:
        self.on = threading.Event()
        self._stop = False
        self._rng = random.Random(seed)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        while not self._stop:
            if self.on.wait(0.01):
                time.sleep(self._rng.uniform(0, 0.003))
                if self.on.is_set():
                    self.on.clear()
                    signal.pthread_kill(main, signal.SIGINT)

    def stop(self) -> None:
        self._stop = True
        self._thread.join()


def check(table: tw.Table, acknowledged: set[int]) -> None:
    found = Counter(table.query(columns=["batch"]).to_arrow()["batch"].to_pylist())
    assert set(found.values()) <= {ROWS}, [number for number, rows in found.items() if rows != ROWS]
    assert acknowledged <= set(found)
    assert len(table.query()) == table.rows == sum(found.values())


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("servers", [1, 3])
def test_a_batch_is_whole_or_not_there(tmp_path: Path, servers: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    options = tw.Settings(indexing_servers=servers, chunk_bytes=8192, leaf_rows=8, late_after=1.0, sealed_trees=8)
    wh = tw.open(tmp_path, settings=options)
    table = wh.create_table("t", SCHEMA, time="ts", key="k")
    table.insert(batch(0, rng))
    acknowledged, interrupts, number = {0}, 0, 0
    pest = Pest(seed)
    try:
        while interrupts < examples(150):
            number += 1
            rows = batch(number, rng)
            try:
                pest.on.set()
                while pest.on.is_set():
                    table.insert(rows)
                    acknowledged.add(number)
                    number += 1
                    rows = batch(number, rng)
            except KeyboardInterrupt:
                interrupts += 1
            if interrupts % 10 == 0:
                check(table, acknowledged)
    finally:
        pest.stop()
    check(table, acknowledged)
    abandon(wh)
    with tw.open(tmp_path, settings=options) as wh:
        check(wh.table("t"), acknowledged)
