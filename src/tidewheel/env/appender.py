"""A file that grows by whole records, as a log does. Where a record cannot be written whole, nothing of it is left."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

from tidewheel.env.disk import Disk
from tidewheel.env.handles import Handles
from tidewheel.errors import StorageError


class Appender:
    """A file that grows by whole records. One thread at a time writes; another may sync meanwhile."""

    def __init__(
        self, disk: Disk, handles: Handles, path: str, descriptor: int, durable: bool, cannot_write: Callable[[OSError], StorageError]
    ) -> None:
        self.torn = False
        """A record could be neither written whole nor taken back: nothing may be appended any more."""
        self.is_ours = True
        """Whether what was written can be found by the next owner: after the last write the file had a name, and none had read it."""
        self.gone = False
        """The file was closed for a while, and was not there or another one when it was needed again."""
        self._disk = disk
        self._handles = handles
        self._durable = durable
        self._cannot_write = cannot_write
        self._handle = handles.add(path, descriptor)
        self._end = 0
        self._writes = 0

    def write(self, parts: Sequence[Any], size: int, at: int) -> None:
        """Append one record, whose parts have `size` bytes in all, behind the first `at` bytes.

        The caller counts the bytes, so that an interrupt at any moment leaves one truth: what it did not count is cut off
        by the next write. When this raises, the file has `at` bytes as before, or is `torn`.
        """
        opened = False
        try:
            with self._handles.use(self._handle) as descriptor:
                opened = True
                self._to_sync()
                try:
                    self._write(descriptor, parts, size, at)
                finally:
                    self._to_sync()  # once more: a sync may have ended meanwhile, and not have seen all of it
                self.is_ours = self._disk.is_ours(descriptor)
        except OSError as e:
            self.gone = not opened and e.errno not in (errno.EMFILE, errno.ENFILE)
            raise self._cannot_write(e) from e

    def _to_sync(self) -> None:
        self._handle.dirty = self._durable
        self._writes += 1

    def _write(self, descriptor: int, parts: Sequence[Any], size: int, at: int) -> None:
        disk = self._disk
        try:
            if self._end != at:
                disk.truncate(descriptor, at)
            self._end = -1
            done = disk.append(descriptor, parts)
            while done < size:
                more = disk.append(descriptor, _after(parts, done))
                if more <= 0:
                    raise OSError("the system takes no more bytes")
                done += more
        except OSError:
            try:
                disk.truncate(descriptor, at)
                self._end = at
            except OSError:
                self.torn = True
            raise
        self._end = at + size

    def sync(self) -> None:
        """Returns when all that was written before is on the disk; raises OSError."""
        before = self._writes
        with self._handles.use(self._handle) as descriptor:
            self._disk.sync(descriptor)
            self._handle.dirty = self._handle.dirty and self._writes != before

    def close(self) -> None:
        self._handles.close(self._handle)


def _after(parts: Sequence[Any], done: int) -> list[memoryview]:
    """What is left of some parts when so many bytes are done."""
    rest = []
    for part in parts:
        view = memoryview(part).cast("B")
        if done >= len(view):
            done -= len(view)
            continue
        rest.append(view[done:])
        done = 0
    return rest
