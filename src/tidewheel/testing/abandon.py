"""The end of a process, inside a process that goes on: an engine is left as kill -9 would leave it."""

from __future__ import annotations

import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tidewheel.chunk import names
from tidewheel.cluster import current_engine
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.engine.local_engine import LocalEngine
from tidewheel.env.faults import Crashed, FaultyDisk
from tidewheel.testing.probe import owner_of
from tidewheel.warehouse import Warehouse

PATIENCE = 10.0
"""Seconds after which a thread that does not end counts as hung."""


def abandon(abandoned: Warehouse | LocalEngine, callers: Sequence[threading.Thread] = ()) -> None:
    """Stop using a warehouse without flushing, releasing or tidying anything; the next open in this process finds it unowned.

    Its disk should have crashed, or its threads may finish what they are at. `callers` are threads that may be inside a
    call: that call ends with an error, and they are waited for.
    """
    engine = owner_of(abandoned) if isinstance(abandoned, Warehouse) else abandoned
    disk = engine.files.disk
    if isinstance(disk, FaultyDisk):
        disk.kill()
    with current_engine._engines_lock:
        current = current_engine._engines.get(engine.root)
        if current is not None and id(current._engine) == id(engine):
            del current_engine._engines[engine.root]
    if isinstance(engine, OwnedEngine) and engine.listener is not None:
        engine.listener.close()
    engine._closed = engine._closing = True
    engine.tenure.stop()
    _stop_threads(engine, callers)
    if engine._ranges is not None:
        engine._ranges.close()
    with _left_as_it_is(engine.root / names.CATALOG):
        engine.catalog.close()
    engine._lease.lock._forget()  # the lock goes with its descriptor; the file still names its dead owner
    if isinstance(disk, FaultyDisk):
        disk.let_go()


def _stop_threads(engine: LocalEngine, callers: Sequence[threading.Thread]) -> None:
    """Whoever waits for a thread that died would wait for ever: for room, for a flush, for a commit, for a place in the queue."""
    flusher = engine.flusher
    flusher._stop = True
    commits = engine.commits
    threads = [*flusher._threads, commits.thread, *callers]
    give_up = time.monotonic() + PATIENCE
    while any(thread.is_alive() for thread in threads):
        assert time.monotonic() < give_up, f"these threads do not end:\n{stacks(threads)}"
        for table in list(engine._tables.values()):
            publisher = table.publisher
            with publisher.lock:
                publisher.closed, publisher.dropped = "the process died", True
                publisher.jobs.clear()
                publisher.flushed.notify_all()
        flusher.wake()
        with suppress(queue.Empty):
            while True:
                written = commits._written.get_nowait()
                if written is not None and written.job is not None:
                    commits._room.give(written.size)
                if written is not None and written.done is not None:
                    written.done.tell(Crashed())
        commits._written.put(None)
        for thread in threads:
            thread.join(0.002)


def stacks(threads: Sequence[threading.Thread]) -> str:
    """Where these threads are, for a message."""
    frames = sys._current_frames()
    return "\n".join(f"{t.name}\n{''.join(traceback.format_stack(frames[t.ident]))}" for t in threads if t.ident in frames)


@contextmanager
def _left_as_it_is(catalog: Path) -> Iterator[None]:
    """SQLite tidies up when its last connection is closed, which a killed process does not do."""
    before = {path: path.read_bytes() for path in (catalog, Path(f"{catalog}-wal")) if path.exists()}
    yield
    for path, content in before.items():
        path.write_bytes(content)


@contextmanager
def quiet_deaths() -> Iterator[None]:
    """While it lasts, threads may end with `Crashed` without a word, and so may what is done when an object goes."""
    report, report_ignored = threading.excepthook, sys.unraisablehook

    def unless_crashed(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, Crashed):
            report(args)

    def unless_ignored(args: sys.UnraisableHookArgs) -> None:
        if not issubclass(args.exc_type, Crashed):
            report_ignored(args)

    threading.excepthook, sys.unraisablehook = unless_crashed, unless_ignored
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = report, report_ignored
