"""The write lease on one machine: an operating-system lock that dies with its process, plus the catalog's epoch.

The lock (flock on `owner.lock` in the root) decides who owns; the epoch fences an owner that lost the lock without noticing, say
because somebody deleted the file. What the file says (pid, host, since) is only for the message to the next who asks.
The file is never deleted: a process might lock the deleted one while another makes and locks a new one. If somebody else deletes it,
its owner notices before it acknowledges anything more (catalog/tenure.py).

Order for an owner: `lock(root)`, open the catalog (which may upgrade it), `OwnerLock.take(catalog)`. Call from any thread.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
import weakref
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewheel.errors import OwnedError, StorageError

if TYPE_CHECKING:  # the lock is looked at before anything heavy is loaded
    from tidewheel.catalog.access import CatalogWriter
    from tidewheel.model.records import Lease

FILE = "owner.lock"

# A new owner locks first and writes its name after: give it that long before naming the dead one before it.
_NAMING_SECONDS = 0.5


class OwnerLock:
    """The lock alone, held until `release` or the end of the process. Made by `lock`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        found = os.fstat(fd)
        self.identity = found.st_dev, found.st_ino
        """Of the file that is locked, whatever has its name later."""
        self._fd: int | None = fd
        self._turn = threading.Lock()
        _held.add(self)

    def take(self, catalog: CatalogWriter) -> HeldLease:
        """Record this process as the owner, which fences every owner before. If that fails, the lock is released."""
        try:
            epoch = catalog.acquire(os.getpid(), socket.gethostname(), time.time()).epoch
        except BaseException:
            self.release()
            raise
        return HeldLease(self, catalog, epoch)

    @property
    def is_in_place(self) -> bool:
        """Whether the file that was locked still has its name: the folder around it is the one that was owned."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity

    def release(self) -> None:
        """Let the next process in. May be called twice."""
        with self._turn:
            fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            os.ftruncate(fd, 0)
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone would not do if a child process still has the file open
        finally:
            os.close(fd)

    def _forget(self) -> None:
        """Close this process's copy without unlocking: it is a forked child, and its parent goes on owning."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


class HeldLease:
    """The right to commit with `epoch`."""

    def __init__(self, lock: OwnerLock, catalog: CatalogWriter, epoch: int) -> None:
        self.epoch = epoch
        self.lock = lock
        self._catalog: CatalogWriter | None = catalog

    def release(self) -> None:
        """Give the lease back; call it before the catalog is closed. The lock is free after, whatever the catalog raises."""
        catalog, self._catalog = self._catalog, None
        if catalog is None:
            return
        try:
            catalog.release(self.epoch)
        finally:
            self.lock.release()


def take(root: Path, catalog: CatalogWriter) -> HeldLease:
    """Own the warehouse at `root`, or raise `OwnedError` that names who does. A dead owner's lease is taken over silently."""
    return lock(root).take(catalog)


def lock(root: Path, held: Path | None = None) -> OwnerLock:
    """Take the lock of the warehouse at `root`, or raise `OwnedError` that names its holder.

    `held` is another path to the same folder (`LocalFiles.hold`): if another folder has the root's name by now, ours is locked, and the
    lock is not in place.
    """
    path = Path(root) / FILE
    found = Path(held or root) / FILE
    deadline = time.monotonic() + _NAMING_SECONDS
    while True:
        try:
            fd = _try_lock(found)
        except OSError as e:
            raise StorageError(
                f"could not lock {path}: {e.strerror or e}. What to do: check that the folder is there, that this user may write in it, "
                "and that its file system has locks"
            ) from e
        if fd is not None:
            return OwnerLock(path, fd)
        holder = _holder(found)
        if _alive(holder) or time.monotonic() > deadline:
            raise OwnedError(_owned(path, holder))
        time.sleep(0.01)


def _try_lock(path: Path) -> int | None:
    """A locked descriptor of the file that now has this name and says who we are, or None if another has it locked."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)  # it is emptied: never what a link leads to
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same_file(fd, path):
                me = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()})
                os.ftruncate(fd, 0)
                os.pwrite(fd, me.encode(), 0)
                return fd
            os.close(fd)  # the file was replaced between open and lock: this one guards nothing
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(path: Path) -> dict[str, Any]:
    """What the lock file says of its holder; empty while it says nothing whole."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {"pid": int(found["pid"]), "host": str(found["host"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def may_live(before: Lease | None) -> bool:
    """Whether whoever had the lease before may still be there, without knowing that it is over. (In this process it would know.)"""
    return before is not None and (before.pid, before.host) != (os.getpid(), socket.gethostname()) and _alive(asdict(before))


def _alive(holder: dict[str, Any]) -> bool:
    """Whether the process the file names can be the one that holds the lock. Of other machines we must believe it."""
    if not holder:
        return False
    if holder["host"] != socket.gethostname():
        return True
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _owned(path: Path, holder: dict[str, Any]) -> str:
    root = path.parent
    if not holder:
        return f"another process owns the warehouse {root}, but {path} does not say which; close it there (fuser {path} shows it)"
    pid, host = holder["pid"], holder["host"]
    if pid == os.getpid() and host == socket.gethostname():
        return f"this very process (pid {pid} on {host}) owns the warehouse {root} already; use what it opened first, or close that"
    return f"process {pid} on {host} owns the warehouse {root}; close it there, or stop process {pid} on {host}"


_held: weakref.WeakSet[OwnerLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    # A forked child shares the lock; if it outlived its parent, the warehouse would stay owned by a process that is gone.
    for held in list(_held):
        held._forget()


os.register_at_fork(after_in_child=_forget_in_child)
