"""Real threads: writers and readers at once, while trees are sealed, flushed, committed and divided anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import tidewheel as tw
from tests.conftest import SOAK
from tidewheel.testing.probe import Probe

SECONDS = 60.0 if SOAK else 3.0
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us")),
        ("k", pa.string()),
        ("writer", pa.int32()),
        ("batch", pa.int32()),
        ("i", pa.int32()),
        ("text", pa.string()),
    ]
)
ROWS = 40
T0 = 1_770_000_000_000_000


def rows_of(writer: int, batch: int, rows: int = ROWS, at: int | None = None) -> pa.RecordBatch:
    """Batch `batch` of a writer: keys over the whole range, some far behind in time."""
    rng = np.random.default_rng([writer, batch])
    times = np.full(rows, T0 + batch * 1000) if at is None else np.full(rows, at)
    if at is None and batch % 7 == 0:
        times = times - rng.integers(0, 10**9, rows)
    keys = [f"https://example.org/{v:x}" if v % 5 else f"{v:x}" for v in rng.integers(0, 1 << 40, rows).tolist()]
    columns = [times, keys, [writer] * rows, [batch] * rows, list(range(rows)), ["x" * (batch % 50)] * rows]
    return pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


class Crew:
    """Threads that stop together; the first failure is raised in the test."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self.threads: list[threading.Thread] = []

    def start(self, work: Callable[[], Any]) -> None:
        def run() -> None:
            try:
                while not self.stop.is_set():
                    work()
            except BaseException as e:
                self.failures.append(e)
                self.stop.set()

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def finish(self, seconds: float) -> None:
        self.stop.wait(seconds)
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
        if self.failures:
            raise self.failures[0]
        assert not any(t.is_alive() for t in self.threads), "a thread hangs"


def check_batches(found: pa.Table, sure: dict[int, int], what: str) -> None:
    """Whole batches only, each row once, and everything that was acknowledged before the query."""
    writers, batches, numbers = (found.column(c).to_numpy() for c in ("writer", "batch", "i"))
    ids = writers.astype(np.int64) << 32 | batches.astype(np.int64)
    kinds, counts = np.unique(ids, return_counts=True)
    for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
        mine = np.sort(numbers[ids == kind])
        if count != ROWS or not (mine == np.arange(ROWS)).all():
            twice = mine[:-1][mine[1:] == mine[:-1]].tolist()
            lacks = sorted(set(range(ROWS)) - set(mine.tolist()))
            raise AssertionError(
                f"{what}: batch {kind & 0xFFFFFFFF} of writer {kind >> 32} has {count} rows of {ROWS}; twice: {twice}; missing: {lacks}"
            )
    have = set(kinds.tolist())
    for writer, last in sure.items():
        missing = [b for b in range(last + 1) if (writer << 32 | b) not in have]
        assert not missing, f"{what}: batches {missing[:10]} (of {len(missing)}) of writer {writer} were acknowledged and are not there"


@pytest.mark.parametrize("servers", [1, 3])
def test_readers_see_whole_batches_exactly_once(tmp_path: Path, servers: int) -> None:
    options = tw.Settings(chunk_bytes=32768, leaf_rows=8, indexing_servers=servers, zero_copy_rows=16, late_after=10.0)
    acknowledged = {w: -1 for w in range(3)}
    crew = Crew()
    with tw.open(tmp_path, settings=options) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")

        def write(writer: int) -> Callable[[], None]:
            def work() -> None:
                n = acknowledged[writer] + 1
                if n % 11 == 3:
                    assert table.insert(rows_of(writer, n), package=f"{writer}/{n}").rows == ROWS
                    assert table.insert(rows_of(writer, n), package=f"{writer}/{n}").duplicate
                else:
                    table.insert(rows_of(writer, n))
                acknowledged[writer] = n
                time.sleep(0.002)

            return work

        def read() -> None:
            sure = dict(acknowledged)
            result = table.query()
            check_batches(result.to_arrow(), sure, f"generation {result.generation}")

        def read_slowly() -> None:
            sure = dict(acknowledged)
            result = table.query(key=(None, None), time=(None, None))
            time.sleep(0.3)  # what it pins is sealed, written and committed meanwhile
            check_batches(pa.Table.from_batches(list(result), result.schema), sure, f"pinned generation {result.generation}")
            assert len(result) == result.to_arrow().num_rows

        def disturb() -> None:
            publisher = Probe(table).publisher
            for server in publisher.servers:
                server.check_at = 0
            publisher.redivide()
            time.sleep(0.01)

        def flush() -> None:
            table.flush()
            time.sleep(0.2)

        with mock.patch.multiple("tidewheel.write.templates", ENOUGH=1, PAYS=-1e9):
            for work in (write(0), write(1), write(2), read, read_slowly, disturb, flush):
                crew.start(work)
            crew.finish(SECONDS)
        check_batches(table.query().to_arrow(), acknowledged, "at the end")
    with tw.open(tmp_path, settings=options) as wh:
        table = wh.table("t")
        check_batches(table.query().to_arrow(), acknowledged, "after reopening")
        assert table.rows == sum(n + 1 for n in acknowledged.values()) * ROWS
        for writer, last in acknowledged.items():
            for n in range(3, last + 1, 11):
                assert table.insert(rows_of(writer, n), package=f"{writer}/{n}").duplicate, f"package {writer}/{n} was forgotten"


def test_replace_is_atomic_for_readers(tmp_path: Path) -> None:
    """Interval s always holds one whole edition of its rows, never two or none, and editions only rise."""
    options = tw.Settings(chunk_bytes=16384, leaf_rows=8, indexing_servers=2)
    slots = 4
    crew = Crew()
    current = dict.fromkeys(range(slots), 0)
    done = [0]
    with tw.open(tmp_path, settings=options) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        for slot in range(slots):
            table.insert(rows_of(slot, 0, at=T0 + slot * 10**9 + 5))

        def replace(slot: int) -> Callable[[], None]:
            def work() -> None:
                start = T0 + slot * 10**9
                table.replace(rows_of(slot, current[slot] + 1, at=start + 5), time=(start, start + 10**9 - 1))
                current[slot] += 1

            return work

        def others() -> None:
            table.insert(rows_of(99, done[0], at=T0 - 10**9))  # not in any slot
            done[0] += 1
            time.sleep(0.002)

        def read() -> None:
            before, inserted = dict(current), done[0]
            result = table.query()
            found = result.to_arrow()
            after = dict(current)
            writers, editions = found.column("writer").to_numpy(), found.column("batch").to_numpy()
            for slot in range(slots):
                mine = editions[writers == slot]
                kinds = np.unique(mine).tolist()
                assert len(kinds) == 1 and len(mine) == ROWS, (
                    f"slot {slot} shows editions {kinds} with {len(mine)} rows of {ROWS}, generation {result.generation}"
                )
                assert before[slot] <= kinds[0] <= after[slot] + 1, (
                    f"slot {slot}: edition {kinds[0]} not in {before[slot]}..{after[slot] + 1}"
                )
            assert (writers == 99).sum() >= inserted * ROWS, f"{(writers == 99).sum()} other rows, {inserted * ROWS} were acknowledged"

        for work in (*(replace(s) for s in range(slots)), others, read, read):
            crew.start(work)
        crew.finish(SECONDS)
        assert table.rows == slots * ROWS + done[0] * ROWS
    with tw.open(tmp_path, settings=options) as wh:
        found = wh.table("t").query().to_arrow()
        assert found.num_rows == slots * ROWS + done[0] * ROWS
        for slot in range(slots):
            mine = found.column("batch").to_numpy()[found.column("writer").to_numpy() == slot]
            assert set(mine.tolist()) == {current[slot]} and len(mine) == ROWS


def test_a_package_from_many_threads_is_loaded_once(tmp_path: Path) -> None:
    with tw.open(tmp_path, settings=tw.Settings(chunk_bytes=8192, leaf_rows=4, indexing_servers=2)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        together = threading.Barrier(4)
        acks: list[tw.Ack] = []

        def work() -> None:
            for n in range(20):
                together.wait(30)
                acks.append(table.insert(rows_of(0, n), package=f"p{n}"))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sum(not a.duplicate for a in acks) == 20 and len(acks) == 80
        assert table.rows == 20 * ROWS


def test_first_inserts_at_the_same_time(tmp_path: Path) -> None:
    """While one thread makes the first templates, the others must not find some servers ready and others not."""
    from tidewheel.write.indexing_server import IndexingServer

    begin = IndexingServer.begin

    def slowly(self: IndexingServer, *args: Any) -> None:
        begin(self, *args)
        time.sleep(0.05)  # what dividing a large first batch takes

    failures: list[BaseException] = []
    with tw.open(tmp_path, settings=tw.Settings(indexing_servers=3)) as wh, mock.patch.object(IndexingServer, "begin", slowly):
        table = wh.create_table("t", SCHEMA, time="ts", key="k")

        def work(n: int) -> None:
            time.sleep(0.03 * n)
            try:
                table.insert(rows_of(n, 0))
            except BaseException as e:
                failures.append(e)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures, f"{type(failures[0]).__name__}: {failures[0]}"
        assert table.rows == 4 * ROWS
