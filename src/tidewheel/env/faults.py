"""The disk that lies: a twin of `Disk` on real files that fails, tears, forgets and dies where a test says.

Each call that changes something is one *operation*, counted by its kind, so that "the third rename" is the same one in every
run, whatever other threads do meanwhile. Operations run one at a time. A `FaultPlan` names one of them and what happens there.

A crash ends the process that uses this disk: the operation that meets it and all later ones raise `Crashed` and change
nothing. What was handed to the system before stays, as after kill -9; `lose_power` also takes what was not synced.
`next_process` gives the disk to the process that opens the folder again.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pyarrow as pa

from tidewheel.env.disk import Disk, open_regular
from tidewheel.env.power_loss import DiskFile, Loss, Platter

T = TypeVar("T")

BLOCK = 4096
"""Bytes that a sink collects for one operation. Arrow writes dozens of tiny pieces: which of them a crash falls on is no matter."""


class Crashed(BaseException):
    """The process is dead. Not an Exception: no handler may take it for a failure to live with."""


class Fault(StrEnum):
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    TORN_FIRST = "crash after the first byte"
    TORN_HALF = "crash after half the bytes"
    TORN_LAST = "crash before the last byte"
    SHORT = "short write"
    FAIL = "input/output error"
    FULL = "no space left"
    LOST = "lost"
    """Says it is done; a power failure shows that it is not."""


CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)
TEARS = (Fault.TORN_FIRST, Fault.TORN_HALF, Fault.TORN_LAST)
DEADLY = frozenset(CRASHES + TEARS)

FAULTS: dict[str, tuple[Fault, ...]] = {
    "sink": (*CRASHES, Fault.FAIL, Fault.FULL),
    "write": (*CRASHES, Fault.TORN_HALF, Fault.FAIL, Fault.FULL),
    "sync_file": (*CRASHES, Fault.FAIL, Fault.LOST),
    "rename": (*CRASHES, Fault.FAIL, Fault.LOST),
    "sync_folder": (*CRASHES, Fault.FAIL, Fault.LOST),
    "create": (*CRASHES, Fault.FAIL, Fault.FULL),
    "append": (*CRASHES, *TEARS, Fault.SHORT, Fault.FAIL, Fault.FULL),
    "sync": (*CRASHES, Fault.FAIL, Fault.LOST),
    "truncate": (*CRASHES, Fault.FAIL),
    "make_folder": (*CRASHES, Fault.FAIL, Fault.FULL),
    "link": (*CRASHES, Fault.FAIL, Fault.FULL),
    "copy": (*CRASHES, Fault.TORN_HALF, Fault.FAIL, Fault.FULL),
    "unlink": (*CRASHES, Fault.FAIL),
    "remove_folder": (*CRASHES, Fault.FAIL),
}
"""Which faults each kind of operation can meet."""

GROWING = frozenset({"sink", "write", "create", "append", "make_folder", "link", "copy", "commit", "create_table"})
"""What needs room; the last two are the catalog's."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """At the `nth` operation of a kind, counted from 1, this happens."""

    operation: str
    nth: int
    fault: Fault

    def __str__(self) -> str:
        return f"{self.operation} {self.nth}: {self.fault}"


class FaultyDisk(Disk):
    """One process's disk below a folder. Safe to use from several threads."""

    def __init__(self, root: Path, plan: FaultPlan | None = None, platter: Platter | None = None) -> None:
        self.root = root
        self.plan = plan
        self.met = False
        """The planned operation was reached."""
        self.crashed = threading.Event()
        self.full = False
        """Everything that needs room fails until this is False again."""
        self.slow = 0.0
        """Seconds that every operation takes longer."""
        self.counts: Counter[str] = Counter()
        self.platter = platter or Platter(root.parent / f".{root.name}.attic")
        self._lock = threading.RLock()
        self._open: dict[int, DiskFile] = {}

    # ---- life and death -----------------------------------------------------------------------------------

    def kill(self) -> None:
        """The process dies between two operations."""
        with self._lock:
            self.crashed.set()

    def lose_power(self, loss: Loss = Loss.ALL) -> None:
        """The machine stops as well: what was not synced is lost."""
        self.kill()
        self.let_go()
        self.platter.lose(loss)

    def next_process(self, plan: FaultPlan | None = None) -> FaultyDisk:
        """The disk of whoever opens the folder after this process is dead."""
        self.kill()
        self.let_go()
        return FaultyDisk(self.root, plan, self.platter)

    def let_go(self) -> None:
        """Close what the dead process had open, as the system does."""
        with self._lock:
            for descriptor in list(self._open):
                self.close(descriptor)

    def boot(self) -> str:
        return f"boot {self.platter.boots}"

    def operation(self, kind: str, act: Callable[[], T], lie: Callable[[], T] | None = None) -> T:
        """Do it, or what the plan says instead; `lie` is what does not last. Also for what is no file, such as a commit."""
        self._dawdle()
        with self._lock:
            match self._meet(kind):
                case None:
                    return act()
                case Fault.LOST if lie is not None:
                    return lie()
                case Fault.FAIL:
                    raise _error(errno.EIO)
                case Fault.FULL:
                    raise _error(errno.ENOSPC)
                case Fault.CRASH_AFTER:
                    act()
            self._crash()

    def write(self, kind: str, descriptor: int, data: bytes) -> int:
        """Hand bytes to the system, as one operation. What a fault leaves of them is there, as it would be."""
        self._dawdle()
        with self._lock:
            fault = self._meet(kind)
            done = os.write(descriptor, data[: _some(fault, len(data))])
            match fault:
                case None | Fault.SHORT:
                    return done
                case Fault.FAIL:
                    raise _error(errno.EIO)
                case Fault.FULL:
                    raise _error(errno.ENOSPC)
            self._crash()

    def _dawdle(self) -> None:
        if self.slow:
            time.sleep(self.slow)

    def _meet(self, kind: str) -> Fault | None:
        """Count an operation; returns what is to go wrong with it."""
        self._check_alive()
        self.counts[kind] += 1
        if self.plan is not None and (kind, self.counts[kind]) == (self.plan.operation, self.plan.nth):
            self.met = True
            return self.plan.fault
        return Fault.FULL if self.full and kind in GROWING else None

    def _check_alive(self) -> None:
        if self.crashed.is_set():
            raise Crashed

    def _crash(self) -> NoReturn:
        self.crashed.set()
        raise Crashed

    # ---- a file that is written whole ---------------------------------------------------------------------

    def sink(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(self.operation("sink", lambda: _Sink(self, self._new(path, os.O_TRUNC))), "w")

    def sync_file(self, path: str) -> None:
        self._sync("sync_file", lambda: self.platter.file(path))

    def rename(self, old: str, new: str) -> None:
        def act(lie: bool = False) -> None:
            self.platter.file(old)
            if os.path.lexists(new):
                self.platter.file(new)
            os.rename(old, new)
            self.platter.renamed(old, new, lie)

        self.operation("rename", act, lambda: act(True))

    def rename_folder(self, old: str, new: str) -> None:
        old, new = os.path.normpath(old), os.path.normpath(new)

        def act(lie: bool = False) -> None:
            self.platter.folder_known(old)
            os.rename(old, new)
            self.platter.folder_renamed(old, new, lie)

        self.operation("rename", act, lambda: act(True))

    def sync_folder(self, path: str) -> None:
        path = os.path.normpath(path)
        self.operation("sync_folder", lambda: self.platter.folder_synced(path), lambda: None)

    # ---- a file that grows --------------------------------------------------------------------------------

    def create(self, path: str) -> int:
        return self.operation("create", lambda: self._new(path, os.O_EXCL | os.O_APPEND))

    def reopen(self, path: str) -> int:
        with self._lock:
            self._check_alive()
            descriptor = super().reopen(path)
            self._open[descriptor] = self.platter.file(path)
            return descriptor

    def append(self, descriptor: int, parts: Sequence[Any]) -> int:
        return self.write("append", descriptor, b"".join(memoryview(part).cast("B") for part in parts))

    def sync(self, descriptor: int) -> None:
        self._sync("sync", lambda: self._open[descriptor])

    def truncate(self, descriptor: int, size: int) -> None:
        def act() -> None:
            self.platter.truncated(self._open[descriptor], size)
            os.ftruncate(descriptor, size)

        self.operation("truncate", act)

    def close(self, descriptor: int) -> None:
        with self._lock:
            if self._open.pop(descriptor, None) is not None:  # else it died with its process, and the number may be another's
                os.close(descriptor)

    def seal(self, path: str) -> None:
        """Its processes never live at the same time: there is nobody to tell. (And it must be able to change what they leave.)"""

    def _new(self, path: str, how: int) -> int:
        if os.path.lexists(path):
            self.platter.file(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o644)
        self._open[descriptor] = self.platter.made(path)
        return descriptor

    def _sync(self, kind: str, stored: Callable[[], DiskFile]) -> None:
        try:
            self.operation(kind, lambda: self.platter.synced(stored()), lambda: None)
        except OSError:
            with self._lock:
                self.platter.sync_failed(stored())
            raise

    # ---- names --------------------------------------------------------------------------------------------

    def hold(self, path: str) -> tuple[str, int | None]:
        """The platter knows files by their paths, and nobody takes this folder away."""
        return path, None

    def make_folder(self, path: str) -> None:
        def act() -> None:
            missing = []
            at = os.path.normpath(path)
            while not os.path.isdir(at):
                missing.append(at)
                at = os.path.dirname(at)
            os.makedirs(path, exist_ok=True)
            for folder in missing:
                self.platter.folder_made(folder)

        self.operation("make_folder", act)

    def link(self, old: str, new: str) -> None:
        def act() -> None:
            os.link(old, new)
            self.platter.linked(old, new)

        self.operation("link", act)

    def copy(self, old: str, new: str) -> None:
        with self._lock:
            self._check_alive()
            with open(open_regular(old), "rb") as source:
                data = source.read()
            descriptor = self._new(new, os.O_EXCL | os.O_NOFOLLOW)
            try:
                self.write("copy", descriptor, data)
            finally:
                self.close(descriptor)

    def unlink(self, path: str) -> None:
        def act() -> None:
            if os.path.lexists(path):
                self.platter.file(path)
            os.unlink(path)
            self.platter.removed(path)

        self.operation("unlink", act)

    def remove_folder(self, path: str) -> None:
        path = os.path.normpath(path)

        def act() -> None:
            if os.path.isdir(path):
                self.platter.folder_known(path)
            os.rmdir(path)
            self.platter.removed(path)

        self.operation("remove_folder", act)


class _Sink:
    """What Arrow writes to: a file that goes to the disk block by block."""

    def __init__(self, disk: FaultyDisk, descriptor: int) -> None:
        self.closed = False
        self._disk = disk
        self._descriptor = descriptor
        self._block = bytearray()
        self._size = 0

    def write(self, data: Any) -> int:
        self._block += data
        self._size += len(data)
        if len(self._block) >= BLOCK:
            self.flush()
        return len(data)

    def flush(self) -> None:
        block, self._block = bytes(self._block), bytearray()  # what failed is not tried again
        if block:
            self._disk.write("write", self._descriptor, block)

    def tell(self) -> int:
        return self._size

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            try:
                self.flush()
            finally:
                self._disk.close(self._descriptor)


def _some(fault: Fault | None, size: int) -> int:
    """How many of so many bytes are written."""
    match fault:
        case Fault.CRASH_BEFORE | Fault.FAIL:
            return 0
        case Fault.TORN_FIRST:
            return min(1, size)
        case Fault.TORN_HALF | Fault.FULL:
            return size // 2
        case Fault.SHORT:
            return (size + 1) // 2
        case Fault.TORN_LAST:
            return max(0, size - 1)
    return size


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
