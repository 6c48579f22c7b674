"""Minutes at full speed: memory stays flat, and nothing is left at the end: no files, threads, handles or mappings.

Only with TIDEWHEEL_SOAK=1; TIDEWHEEL_SOAK_SECONDS says how long (default 600). Readers read in full, give up half-way,
hold on to results of tables that are gone, and are cancelled by exceptions, as real ones are.
"""

from __future__ import annotations

import gc
import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import SOAK

SECONDS = float(os.environ.get("TIDEWHEEL_SOAK_SECONDS", "600"))
SCHEMA = pa.schema([("key", pa.int64()), ("ts", pa.timestamp("us")), ("value", pa.float64()), ("text", pa.string())])
ROWS = 10_000
TABLE_ROWS = 10_000_000  # then it is dropped and the next one made: the disk is finite, and drops are part of the story
GROWTH = 1.10  # of the median memory, from the second quarter of the time to the last
SLACK = 32 << 20  # bytes: what allocators keep back differs from run to run

pytestmark = pytest.mark.skipif(not SOAK or not Path("/proc/self/status").exists(), reason="TIDEWHEEL_SOAK=1, on Linux")


class Cancelled(Exception):
    """What a reader raises in the middle of its own query."""


class Soak:
    """Tables that come and go, and the threads that use them. The first failure ends it."""

    def __init__(self, warehouse: tw.Warehouse) -> None:
        self.warehouse = warehouse
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self.inserted = 0
        self.tables = 0
        self.answers = 0
        self.abandoned = 0
        self._turn = threading.Lock()
        self._held: deque[object] = deque(maxlen=4)
        rng = np.random.default_rng(1)
        text = pa.array([f"taxi {i}" for i in rng.integers(0, 10**6, ROWS)])
        self._parts = [(pa.array(rng.integers(-(2**62), 2**62, ROWS)), pa.array(rng.random(ROWS)), text) for _ in range(16)]
        self._tick = np.arange(ROWS)
        self.table = self._make()

    def _make(self) -> tw.Table:
        self.tables += 1
        return self.warehouse.create_table(f"t{self.tables}", SCHEMA, time="ts", key="key")

    def insert(self) -> None:
        """One batch; whoever finds the table full makes the next one."""
        n = self.inserted // ROWS
        keys, values, text = self._parts[n % len(self._parts)]
        times = pa.array(n * ROWS + self._tick).cast(pa.timestamp("us"))
        self.table.insert(pa.RecordBatch.from_arrays([keys, times, values, text], schema=SCHEMA))
        with self._turn:
            self.inserted += ROWS
            if self.inserted // TABLE_ROWS >= self.tables:
                old, self.table = self.table, self._make()
                self.warehouse.drop_table(old.name)

    def read(self) -> None:
        low = int(np.random.default_rng().integers(-(2**62), 2**62))
        assert all(part.num_rows for part in self.table.query(key=(low, low + 2**58)))
        assert len(self.table.query()) % ROWS == 0
        self.answers += 1

    def ask_sql(self) -> None:
        answer = self.table.query(where="value > 0.999", aggregate={"n": "count(*)", "v": "avg(value)"}).to_arrow()
        assert answer.num_rows == 1
        self.answers += 1
        time.sleep(0.1)

    def abandon(self) -> None:
        """Read a little of a result, and hold on to it until others have come."""
        batches = iter(self.table.query())
        next(batches, None)
        self._held.append(batches)
        self.abandoned += 1
        time.sleep(0.05)

    def cancel(self) -> None:
        """An exception out of the middle of a query: the reader's own, or the clock's."""

        def enough(batch: pa.RecordBatch) -> pa.Array:
            raise Cancelled

        table = self.table  # one for all: a new table has no rows yet
        table.insert([{"key": 0, "ts": 0, "value": 0.0, "text": ""}] * ROWS)
        with pytest.raises(Cancelled):
            table.query(where=enough).to_arrow()
        with self._turn:
            self.inserted += ROWS
        try:
            table.query(timeout=1e-6).to_arrow()
        except tw.LimitError:
            self.abandoned += 1
        time.sleep(0.5)

    def start(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            while not self.stop.is_set():
                table = self.table
                try:
                    work()
                except tw.TidewheelError as error:
                    if self.table is table:  # otherwise it was dropped under our hands, and the error says so
                        self.failures.append(error)
                        self.stop.set()
                except BaseException as error:
                    self.failures.append(error)
                    self.stop.set()

        thread = threading.Thread(target=run, name=f"soak-{work.__name__}", daemon=True)
        thread.start()
        return thread

    def let_go(self) -> None:
        self._held.clear()


def private_bytes() -> int:
    """Memory of this process without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def soak(root: Path, seconds: float) -> list[int]:
    """So many seconds with all threads at work; the memory after each of them. Nothing is open when it returns."""
    memory: list[int] = []
    with tw.open(root) as warehouse:
        soak = Soak(warehouse)
        crew = [soak.start(work) for work in (soak.insert, soak.insert, soak.read, soak.ask_sql, soak.abandon, soak.cancel)]
        until = time.monotonic() + seconds
        while time.monotonic() < until and not soak.stop.wait(min(1.0, seconds / 100)):
            memory.append(private_bytes())
        soak.stop.set()
        for thread in crew:
            thread.join(60)
        assert not any(thread.is_alive() for thread in crew), "a thread hangs"
        if soak.failures:
            raise soak.failures[0]
        soak.let_go()
        soak.table.flush()
        rows, chunks = soak.table.rows, soak.table.state().chunks
        print(f"{soak.inserted:,} rows, {soak.tables} tables, {soak.answers:,} answers, {soak.abandoned:,} abandoned")
    gc.collect()  # files of dropped tables go when the last version that has them goes
    files = [path.name for path in root.rglob("*") if path.is_file()]
    assert len([name for name in files if name.endswith(".arrow")]) == chunks, "files of dropped tables are left, or files nobody knows"
    assert not [name for name in files if name.endswith(".tmp")]
    with tw.open(root) as warehouse:
        (name,) = warehouse.tables()
        assert warehouse.table(name).rows == rows
    return memory


def test_minutes_at_full_speed_leave_nothing_behind(tmp_path: Path) -> None:
    me = psutil.Process()
    soak(tmp_path / "first", SECONDS / 20)  # what is started once and for all, such as Arrow's threads, is there now
    gc.collect()
    handles, threads, ours = me.num_fds(), me.num_threads(), threading.active_count()
    memory = soak(tmp_path / "second", SECONDS)
    gc.collect()
    assert not [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line], "chunks are still mapped"
    assert me.num_fds() <= handles, f"{me.num_fds()} handles, {handles} before"
    assert threading.active_count() <= ours and me.num_threads() <= threads + 2, f"{me.num_threads()} threads, {threads} before"
    second, last = (statistics.median(memory[len(memory) * q // 4 : len(memory) * (q + 1) // 4]) for q in (1, 3))
    print(f"memory {second / 1e6:,.0f} MB, then {last / 1e6:,.0f} MB")
    assert last <= second * GROWTH + SLACK, f"memory grew from {second / 1e6:,.0f} MB to {last / 1e6:,.0f} MB"
