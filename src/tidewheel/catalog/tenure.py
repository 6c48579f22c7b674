"""The time for which this process owns a warehouse, and how it notices that it is over: before it acknowledges anything.

The lock and the lease say who owns a warehouse (catalog/lease.py), but files can be deleted, moved and replaced under a living owner, and
then another process opens what has its name. So an owner looks:

    confirm  before every acknowledgement: whether the lock file that has the name now is the one it holds. That tells of a lock, or a
             folder, that was deleted, moved or replaced. A microsecond.
    look     before and after every commit, before a log segment is begun, and twice a second: also whether the catalog is the file it
             was, and whether the lease in it is still ours. A fraction of a millisecond.

Rows are in the log before `confirm` is called, and a successor opens the log after it has made a lock of its own. So what was acknowledged
is found by the successor, and what is found to be over is not acknowledged. (A successor that gets hold of the warehouse with the lock
in place seals the log before it reads it, see `LocalFiles.seal`: that is looked at with every record.)

It ends once and for good, whatever is put back. Every method may be called from any thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tidewheel.catalog.access import CatalogReader
from tidewheel.catalog.lease import OwnerLock
from tidewheel.env.disk import Identity, identity_of
from tidewheel.env.interrupts import Flag
from tidewheel.env.local_files import LocalFiles
from tidewheel.errors import FencedError, TidewheelError

EVERY = 0.5
"""Seconds between two looks when nobody writes."""


class Tenure:
    """`on_end` is called once, when it has ended, by the thread that noticed, whatever locks it holds. `on_watch` is called by the thread
    that looks from time to time, after each look, while it lasts; what it raises is nobody's matter."""

    def __init__(
        self,
        root: Path,
        lock: OwnerLock,
        catalog_file: str,
        catalog: CatalogReader,
        epoch: int,
        on_end: Callable[[], None],
        on_watch: Callable[[], None] = lambda: None,
    ) -> None:
        self.over = ""
        """Why it has ended; empty while it lasts."""
        self._root = root
        self._lock = lock
        self._lock_path = str(lock.path)
        self._held = lock.identity
        self._folder = _identity(str(root))
        self._catalog = catalog
        self._epoch = epoch
        self._on_end = on_end
        self._on_watch = on_watch
        name = str(root / catalog_file)
        self._files: dict[str, Identity | None] = {name: catalog.identity, f"{name}-wal": None}
        """The catalog; what SQLite writes first to is there when something was written, and then for as long as the catalog is open."""
        self._turn = threading.Lock()
        self._stop = Flag()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look from time to time, until `stop`."""
        self._thread = threading.Thread(target=self._watch, name="tidewheel-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """May be called twice."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(EVERY) and not self.over:
            with suppress(Exception):  # FencedError: it is over
                self.look()
                self._on_watch()

    # ---- looking ----------------------------------------------------------------------------------------

    def confirm(self) -> None:
        """Raises FencedError if it has ended, or the lock is not the one that is held."""
        if self.over:
            raise self.error()
        try:
            found = os.stat(self._lock_path)
        except OSError:
            raise self.end(self._misplaced()) from None
        if (found.st_dev, found.st_ino) != self._held:
            raise self.end(self._misplaced())

    def look(self) -> None:
        """The same for all that it rests on."""
        self.confirm()
        for name, known in self._files.items():
            found = _identity(name)
            if known is None:
                self._files[name] = found
            elif found != known:
                raise self.end(f"{name} was {'deleted' if found is None else 'replaced'}")
        with suppress(TidewheelError):  # a catalog that cannot be read just now says nothing about its owner
            lease = self._catalog.lease()
            if lease is None:
                raise self.end("its lease was released")
            if lease.epoch != self._epoch:
                raise self.end(f"process {lease.pid} on {lease.host} took the lease with epoch {lease.epoch}")
        if self.over:
            raise self.error()

    def _misplaced(self) -> str:
        """In words: what has become of the lock."""
        folder = _identity(str(self._root))
        if folder is None:
            return "its folder was deleted or moved"
        if folder != self._folder:
            return "another folder is in the place of its own"
        return f"{self._lock_path} was {'deleted' if _identity(self._lock_path) is None else 'replaced'}"

    # ---- the end ----------------------------------------------------------------------------------------

    def end(self, why: str) -> FencedError:
        """It is over; the first reason stays. Lets the next process in, and returns what to raise."""
        with self._turn:
            first, self.over = not self.over, self.over or why
        if first:
            self._lock.release()
            self._on_end()
        return self.error()

    def ended_by(self, error: FencedError) -> FencedError:
        """Something was refused because it is over; returns what to raise instead."""
        with suppress(FencedError):
            self.look()  # which knows better why
        return self.end(str(error))

    def error(self) -> FencedError:
        return FencedError(
            f"this process is not the owner of the warehouse {self._root} any more: {self.over}. What it acknowledged before is in that "
            "folder, if anything is; what this call was to do may be done or not. Close the warehouse here and open it again"
        )


def check_catalog(catalog: CatalogReader, files: LocalFiles, name: str) -> None:
    """Raises FencedError if the catalog is not the one in the folder that is held: it was opened by its name, which leads to another folder
    if that was moved meanwhile."""
    if catalog.identity not in (None, files.identity(name)):
        raise FencedError(f"another folder took the place of {files.root} while it was opened; nothing was changed. Open it again")


def _identity(path: str) -> Identity | None:
    with suppress(OSError):
        return identity_of(path)
    return None
