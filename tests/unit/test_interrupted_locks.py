"""Ctrl-C at the end of any call inside Python's own locks and queues: none stays held, and the threads behind them go on.

Python raises KeyboardInterrupt behind a call, which may be the one that took the lock of an Event or a Queue. A trace function does the
same here, at every such point that an operation passes, one after the other.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tidewheel.chunk import reader
from tidewheel.env import deadline
from tidewheel.testing.probe import Probe, owner_of
from tidewheel.write import commit

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.float64())])
PYTHON_S = {threading.__file__, queue.__file__, concurrent.futures._base.__file__}
PATIENCE = 30.0


def rows(count: int = 200) -> pa.Table:
    return pa.table([range(count), range(count), [0.5] * count], schema=SCHEMA)


def interrupted(point: int, work: Callable[[], Any]) -> bool:
    """Do it, with an interrupt where call number `point` inside Python's own locks returns. False: there are fewer."""
    passed = 0

    def at_return(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal passed
        if event == "return" and not in_start(frame):
            passed += 1
            if passed == point + 1:
                sys.settrace(None)
                raise KeyboardInterrupt
        return at_return

    def at_call(frame: FrameType, event: str, argument: Any) -> Any:
        return at_return if frame.f_code.co_filename in PYTHON_S else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return passed > point


def in_start(frame: FrameType | None) -> bool:
    """Within the start of a thread, which waits for an Event of Python's: an interrupt there harms that thread alone."""
    while frame is not None:
        if frame.f_code is threading.Thread.start.__code__:
            return True
        frame = frame.f_back
    return False


def ends(work: Callable[[], Any]) -> bool:
    """Whether it comes to an end in another thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return not thread.is_alive()


OPERATIONS: dict[str, Callable[[tw.Warehouse], Any]] = {
    "insert": lambda wh: wh.table("t").insert(rows()),
    "replace": lambda wh: wh.table("t").replace(rows(), time=("1970-01-01", "1970-01-02")),
    "query": lambda wh: wh.table("t").query(where="v > 0.25", aggregate={"n": "count(*)"}, timeout=60).to_arrow(),
    "sql": lambda wh: wh.sql("SELECT count(*) FROM t WHERE v > 0.25", timeout=60).to_arrow(),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("durability", ["process", "fsync"])
def test_no_lock_stays_held(tmp_path: Path, name: str, durability: str) -> None:
    with tw.open(tmp_path, settings=tw.Settings(chunk_bytes=4096, leaf_rows=8, durability=durability)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(rows())
        point = 0
        while interrupted(point, lambda: OPERATIONS[name](wh)):
            done = ends(lambda: (table.insert(rows(1)), table.flush(), wh.sql("SELECT count(*) FROM t").to_arrow()))
            assert done, f"{name} interrupted at point {point}: something hangs"
            point += 1


def test_an_interrupt_at_any_call_keeps_no_chunk_for_good(tmp_path: Path) -> None:
    with tw.open(tmp_path) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        commits = owner_of(wh).commits

        def work() -> None:
            with commits.keeping():
                pass

        point = 0
        while interrupted_at_call(point, work, {contextlib.__file__, commit.__file__}):
            table.replace(rows(), time=(None, None))
            assert table.state().chunks == 1, f"interrupted at point {point}, replaced chunks stay"
            point += 1
        assert point > 5


def test_an_interrupt_leaves_no_lock_held_that_was_waited_for(tmp_path: Path) -> None:
    lock = threading.Lock()

    def work() -> None:
        with deadline.Within(5), deadline.holding(lock, "others hold it"):
            pass

    point = 0
    while interrupted_at_call(point, work, {contextlib.__file__, deadline.__file__}):
        assert not lock.locked() and deadline.left() == math.inf, f"interrupted at point {point}"
        point += 1
    assert point > 5


def test_an_interrupt_leaves_no_chunk_locked(tmp_path: Path) -> None:
    with tw.open(tmp_path) as wh:
        table: Any = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(rows())
        table.flush()
        (chunk,) = Probe(table).chunks
        for point in range(3):
            chunk.enter()
            assert interrupted_at_call(point, chunk.let_go, {reader.__file__})
            assert not chunk._lock.locked(), f"interrupted at point {point}"


def interrupted_at_call(point: int, work: Callable[[], Any], files: set[str]) -> bool:
    """Do it, with an interrupt where function number `point` of these files begins, or a call of what is written in C ends: there
    Python looks for it."""
    passed = 0

    def at_event(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal passed
        if event in ("call", "c_return") and frame.f_code.co_filename in files:
            passed += 1
            if passed == point + 1:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(at_event)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return passed > point
