"""Owners that hang: they live and answer nothing. Calls end in time, and go on when the owner does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.integration.owners import OwnerProcess
from tidewheel.cluster import pulse
from tidewheel.env.deadline import Within
from tidewheel.errors import InputError, LimitError, OwnedError, OwnerLostError
from tidewheel.testing.probe import Probe, engine_of

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
TIMEOUT = 0.5
LATE = 1.0
"""Seconds that a call may take beyond its timeout."""
TASKS = Path("/proc/self/task")
BUSY = 0.0 if TASKS.exists() else 3.0
"""Seconds that are forgiven where the system does not say how long threads waited for a processor."""


def rows(n: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(n)), pa.array(range(n), pa.timestamp("us"))], schema=SCHEMA)


@pytest.fixture(scope="module")
def owner() -> Iterator[OwnerProcess]:
    with OwnerProcess() as process:
        yield process


@pytest.fixture
def wh(owner: OwnerProcess, tmp_path: Path) -> Iterator[tw.Warehouse]:
    owner.open(tmp_path / "wh")
    with tw.open(tmp_path / "wh") as found:
        table = found.create_table("t", SCHEMA, time="ts", key="id")
        table.insert(rows(500_000))  # more than is sent at once
        found.sql("SELECT sum(id) FROM t").to_arrow()  # all is loaded
        yield found
        owner.go_on()
    owner.close(tmp_path / "wh")


def waited() -> float:
    """Seconds that threads of this process have waited for a processor so far, because others had them: no matter of ours."""
    total = 0
    for task in TASKS.glob("*/schedstat"):
        with suppress(OSError):  # a thread that has ended
            total += int(task.read_text().split()[1])
    return total / 1e9


def ends_in_time(call: Callable[[], Any], timeout: float = TIMEOUT) -> tw.TidewheelError:
    began, before = time.monotonic(), waited()
    with pytest.raises(tw.TidewheelError) as error:
        call()
    took, busy = time.monotonic() - began, max(0.0, waited() - before)
    assert took - busy < timeout + LATE + BUSY, f"it took {took:.2f} s, of which {busy:.2f} s were spent waiting for a processor"
    assert error.value.retryable, error.value
    return error.value


def test_every_call_with_a_timeout_ends_in_time(owner: OwnerProcess, wh: tw.Warehouse) -> None:
    table = wh.table("t")
    unread = table.query(timeout=TIMEOUT)
    begun = iter(table.query(timeout=TIMEOUT))
    next(begun)
    owner.stop()
    calls: dict[str, Callable[[], Any]] = {
        "query": lambda: table.query(key=1, timeout=TIMEOUT),
        "insert": lambda: table.insert(rows(1), timeout=TIMEOUT),
        "replace": lambda: table.replace(rows(1), time=(0, 0), timeout=TIMEOUT),
        "to_arrow": unread.to_arrow,
        "iterating": lambda: list(begun),
        "sql": lambda: wh.sql("SELECT sum(id) FROM t WHERE id % 3 = 1", timeout=TIMEOUT).to_arrow(),
        "INSERT": lambda: wh.sql("INSERT INTO t VALUES (1, '2020-01-01')", timeout=TIMEOUT),
        "a function": lambda: table.query(where=lambda batch: batch["id"], timeout=TIMEOUT).to_arrow(),
        "a large insert": lambda: table.insert(rows(200_000), timeout=TIMEOUT),
    }
    for name, call in calls.items():
        error = ends_in_time(call)
        assert isinstance(error, LimitError) and "took longer than its timeout of 0.5 s" in str(error), name
        if name == "insert":
            assert "the rows may be there or not" in str(error) and "package" in str(error)
    del calls["iterating"]  # which has ended
    threads = [threading.Thread(target=ends_in_time, args=(call,)) for call in calls.values() for _ in range(2)]
    for thread in threads:  # more than there are lines
        thread.start()
    for thread in threads:
        thread.join()
    owner.go_on()
    assert table.query(key=1, timeout=60).to_arrow().num_rows >= 1
    assert table.insert(rows(3), package="p", timeout=60).rows == 3
    assert table.insert(rows(3), package="p").duplicate


def test_calls_without_a_timeout_notice_an_owner_that_hangs(owner: OwnerProcess, wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "SILENT", 2.0)
    monkeypatch.setattr("tidewheel.cluster.current_engine.PATIENCE", 1.0)
    table = wh.table("t")
    owner.stop()
    errors: list[BaseException] = []

    def call(work: Callable[[], Any]) -> None:
        try:
            work()
        except BaseException as e:
            errors.append(e)

    works = [table.flush, lambda: table.insert(rows(1)), lambda: table.insert(rows(200_000)), lambda: table.query().to_arrow(), wh.check]
    threads = [threading.Thread(target=call, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(errors) == len(works) and all(isinstance(e, OwnerLostError) and e.retryable for e in errors), errors
    assert any("it has not been heard of for 2 s" in str(e) for e in errors)
    with pytest.raises(OwnedError, match="process .* owns the warehouse") as error:  # nobody can take its place: it lives
        table.state()
    assert error.value.retryable
    ends_in_time(lambda: table.query(timeout=TIMEOUT))
    owner.go_on()
    assert table.query(key=1).to_arrow().num_rows >= 1


def test_an_owner_that_is_silent_but_well(owner: OwnerProcess, wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked for longer than an owner may be silent: its beats keep it."""
    monkeypatch.setattr(pulse, "SILENT", 2.5)
    engine = engine_of(wh)
    time.sleep(4.0)
    assert engine_of(wh) is engine and not engine.lost


def test_to_close_does_not_wait_for_an_owner_that_hangs(owner: OwnerProcess, tmp_path: Path) -> None:
    owner.open(tmp_path / "wh")
    wh = tw.open(tmp_path / "wh")
    table = wh.create_table("t", SCHEMA, time="ts", key="id")
    table.insert(rows(200_000))
    held = table.query()
    owner.stop()
    try:
        del held  # which the owner is told of
        began = time.monotonic()
        wh.close()
        assert time.monotonic() - began < 10
    finally:
        owner.go_on()


@pytest.mark.parametrize("timeout", ["1", -1, float("nan"), True])
def test_what_is_no_timeout(tmp_path: Path, timeout: Any) -> None:
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        for call in (lambda: table.insert(rows(1), timeout=timeout), lambda: table.replace(rows(1), time=(0, 0), timeout=timeout)):
            with pytest.raises(InputError, match="timeout is a number of seconds"):
                call()
        assert table.rows == 0


def test_an_owner_whose_own_calls_wait(tmp_path: Path) -> None:
    """For others who load a package, for others who replace, for room: nothing was done."""
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="id")
        inner = Probe(table)
        with inner.packages.lock, pytest.raises(LimitError, match="other packages .* nothing was inserted"):
            table.insert(rows(1), package="p", timeout=0.05)
        with inner.replacing, pytest.raises(LimitError, match="another replace .* nothing was changed"):
            table.replace(rows(1), time=(0, 0), timeout=0.05)
        table.insert(rows(1))
        with Within(0.0), inner.owner.commits.still(), pytest.raises(LimitError, match="flush of table 't' goes on"):
            table.flush()
        assert table.insert(rows(2), package="p", timeout=0).rows == 2
        assert table.rows == 3
