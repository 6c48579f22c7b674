"""Few descriptors for many files that grow: those that nobody used of late are closed, and opened again when they are.

A system allows a process so many open files (often 256 or 1,024), and a warehouse may have a log for each of thousands of tables.
What always holds: a descriptor is never closed while it is in use; a file is opened again only if it is the one that was closed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tidewheel.env.disk import Disk, identity_of

MOST = 64
"""Descriptors that stay open although nobody uses them now."""


class Handle:
    """The right to use a file that grows. Made with its first descriptor."""

    __slots__ = ("descriptor", "dirty", "identity", "path", "users")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor: int | None = descriptor
        self.identity = identity_of(descriptor)
        self.users = 0
        self.dirty = False
        """It was written to and must be synced by this very descriptor, which alone hears of an error: it is not closed before."""


class Handles:
    """The descriptors of one folder's files. Every method may be called from any thread."""

    def __init__(self, disk: Disk, most: int = MOST) -> None:
        self.most = most
        self._disk = disk
        self._lock = threading.Lock()
        self._open: OrderedDict[Handle, None] = OrderedDict()
        """Those with a descriptor, the one that was used last at the end."""

    def add(self, path: str, descriptor: int) -> Handle:
        handle = Handle(path, descriptor)
        with self._lock:
            self._open[handle] = None
            self._close_some()
        return handle

    @contextmanager
    def use(self, handle: Handle) -> Iterator[int]:
        """A descriptor of the file, for as long as this is held. OSError if it cannot be had, or is not the same file any more."""
        with self._lock:
            if handle.descriptor is None:
                handle.descriptor = self._again(handle)
            self._open[handle] = None
            self._open.move_to_end(handle)
            handle.users += 1
            descriptor = handle.descriptor
        try:
            yield descriptor
        finally:
            with self._lock:
                handle.users -= 1
                self._close_some()

    def close(self, handle: Handle) -> None:
        """For good. Nobody uses it any more."""
        with self._lock:
            self._close(handle)

    @property
    def count(self) -> int:
        with self._lock:
            return len(self._open)

    def _again(self, handle: Handle) -> int:
        descriptor = self._disk.reopen(handle.path)
        if identity_of(descriptor) != handle.identity:
            self._disk.close(descriptor)
            raise FileNotFoundError(f"{handle.path} is another file by now")
        return descriptor

    def _close_some(self) -> None:
        if len(self._open) > self.most:
            for handle in [one for one in self._open if not one.users and not one.dirty][: len(self._open) - self.most]:
                self._close(handle)

    def _close(self, handle: Handle) -> None:
        descriptor, handle.descriptor = handle.descriptor, None
        self._open.pop(handle, None)
        if descriptor is not None:
            with suppress(OSError):
                self._disk.close(descriptor)
