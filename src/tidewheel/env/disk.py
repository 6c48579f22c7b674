"""The calls to the operating system that change files, one method each: the seam where a test can make them fail.

Everything a warehouse writes, but for its catalog, goes through here. Paths are whole; errors are the `OSError`s that
the system raises. `env.faults` has the twin that lies.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tidewheel.env.writing_out import begin_writing_out

_sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_COPIED = 1 << 20
_MOST_PARTS = 1024
"""Buffers that one call to the system takes (IOV_MAX)."""


Identity = tuple[int, int]
"""Which file it is, whatever its name."""


def identity_of(file: str | os.PathLike[str] | int) -> Identity:
    """Of the file that has a name now, or that a descriptor is of; OSError if there is none."""
    found = os.stat(file)
    return found.st_dev, found.st_ino


def open_regular(path: str) -> int:
    """A descriptor to read a file with; OSError if the name is a link, or that of something else than a file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is not a regular file", path)


class Disk:
    """The real one. Safe to use from several threads, but for one descriptor only one at a time writes."""

    # ---- a file that is written whole ---------------------------------------------------------------------

    def sink(self, path: str) -> pa.NativeFile:
        """A new file for Arrow to write to."""
        return pa.OSFile(path, "wb")

    def begin_writing_out(self, sink: pa.NativeFile) -> None:
        """Of a file that was written whole, and will be synced: the system need not wait until then."""
        with suppress(OSError, ValueError):  # a sink of a twin has no descriptor
            begin_writing_out(sink.fileno())

    def sync_file(self, path: str) -> None:
        """Returns when all bytes of a written file are on the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            _sync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def rename_folder(self, old: str, new: str) -> None:
        """With all that is in it."""
        os.rename(old, new)

    def sync_folder(self, path: str) -> None:
        """Returns when the names in a folder are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # ---- a file that grows --------------------------------------------------------------------------------

    def create(self, path: str) -> int:
        """A descriptor of a new file; one of that name must not be there."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def reopen(self, path: str) -> int:
        """Another descriptor of a file that grows."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)

    def append(self, descriptor: int, parts: Sequence[Any]) -> int:
        """Hand some bytes to the system; returns how many it took, which may be fewer than there are."""
        return os.writev(descriptor, parts[:_MOST_PARTS])

    def sync(self, descriptor: int) -> None:
        _sync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def is_ours(self, descriptor: int) -> bool:
        """Whether a growing file still has a name, and nobody has sealed it."""
        found = os.fstat(descriptor)
        return found.st_nlink > 0 and found.st_mode & stat.S_IWUSR != 0

    def seal(self, path: str) -> None:
        """Mark a file that another process may have open: from here on it finds that it is not its own any more."""
        os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) & ~0o222)

    # ---- names --------------------------------------------------------------------------------------------

    def hold(self, path: str) -> tuple[str, int | None]:
        """A path to this very folder, whatever has its name later, for as long as the descriptor is open.

        Where the system has no such paths it is the one that was given, and there is no descriptor.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held = f"/proc/self/fd/{descriptor}"
        with suppress(OSError):
            if os.path.samestat(os.stat(held), os.fstat(descriptor)):
                return held, descriptor
        os.close(descriptor)
        return path, None

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def link(self, old: str, new: str) -> None:
        """A second name for a file that never changes."""
        os.link(old, new)

    def copy(self, old: str, new: str) -> None:
        """A new file with the same bytes. Neither name may be a link: what lies in a folder leads to nothing outside of it."""
        with open(open_regular(old), "rb") as source, open(os.open(new, _NEW, 0o644), "wb") as target:
            shutil.copyfileobj(source, target, _COPIED)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_folder(self, path: str) -> None:
        """The folder must be empty."""
        os.rmdir(path)

    # ---- looking ------------------------------------------------------------------------------------------

    def boot(self) -> str:
        """Names the time since the machine was started: written bytes that were not synced are still there if it is the same."""
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def walk(self, path: str) -> Iterable[str]:
        """The whole paths of all files below a folder."""
        for where, _, files in os.walk(path):
            for file in files:
                yield os.path.join(where, file)
