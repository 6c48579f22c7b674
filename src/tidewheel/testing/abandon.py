"""The end of a process, inside a process that goes on: an engine is left as kill -9 would leave it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidewheel import engine as engines
from tidewheel.chunk import names
from tidewheel.engine import LocalEngine
from tidewheel.env.faults import Crashed, FaultyDisk


def abandon(engine: LocalEngine) -> None:
    """Stop using a warehouse without flushing, releasing or tidying anything; the next open in this process finds it unowned.

    Its disk should have crashed, or its threads may finish what they are at. Calls that other threads have under way end
    with an error.
    """
    disk = engine.files.disk
    if isinstance(disk, FaultyDisk):
        disk.kill()
    with engines._registry_lock:
        if engines._registry.get(engine.root) is engine:
            del engines._registry[engine.root]
    engine._closed = engine._closing = True
    for table in list(engine._tables.values()):
        publisher = table.publisher
        with publisher.lock:  # whoever waits for room or for a flush would wait for ever
            publisher.closed, publisher.dropped = "the process died", True
            publisher.jobs.clear()
            publisher.flushed.notify_all()
    _stop_threads(engine)
    if engine._ranges is not None:
        engine._ranges.close()
    with _left_as_it_is(engine.root / names.CATALOG):
        engine.catalog.close()
    engine._lease._lock._forget()  # the lock goes with its descriptor; the file still names its dead owner
    if isinstance(disk, FaultyDisk):
        disk.let_go()


def _stop_threads(engine: LocalEngine) -> None:
    flusher = engine.flusher
    flusher._stop = True
    while any(thread.is_alive() for thread in flusher._threads):
        flusher.wake()
        with suppress(queue.Empty):  # a thread that hands on what it wrote may find nobody there to take it
            while True:
                flusher._written.get_nowait()
        with suppress(queue.Full):
            flusher._written.put_nowait(None)
        for thread in flusher._threads:
            thread.join(0.002)


@contextmanager
def _left_as_it_is(catalog: Path) -> Iterator[None]:
    """SQLite tidies up when its last connection is closed, which a killed process does not do."""
    before = {path: path.read_bytes() for path in (catalog, Path(f"{catalog}-wal")) if path.exists()}
    yield
    for path, content in before.items():
        path.write_bytes(content)


@contextmanager
def quiet_deaths() -> Iterator[None]:
    """While it lasts, threads may end with `Crashed` without a word."""
    report = threading.excepthook

    def unless_crashed(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, Crashed):
            report(args)

    threading.excepthook = unless_crashed
    try:
        yield
    finally:
        threading.excepthook = report
