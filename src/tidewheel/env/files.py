"""Files of a warehouse, by their name relative to the root. Written once, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidewheel.errors import CorruptionError, StorageError

TEMPORARY = ".tmp"

_sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class LocalFiles:
    """A folder on a local disk. Safe to use from several threads; two writers never use the same name."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def make_folder(self, name: str) -> None:
        try:
            os.makedirs(self.path(name), exist_ok=True)
        except OSError as e:
            raise StorageError(f"cannot make folder {self.path(name)}: {e.strerror}") from e

    def write(self, name: str, write: Callable[[Any], None]) -> int:
        """Write a new file under its temporary name; `appear` gives it its own. Returns its size.

        When this raises, nothing of it is left.
        """
        temporary = self.path(name) + TEMPORARY
        try:
            with pa.OSFile(temporary, "wb") as sink:
                write(sink)
                return int(sink.tell())
        except OSError as e:
            self._discard(temporary)
            raise self._cannot_write(name, e) from e
        except BaseException:
            self._discard(temporary)
            raise

    def appear(self, names: Sequence[str]) -> None:
        """Sync written files and give them their names: from here on they survive a crash of the machine.

        When this raises, some may have appeared: the caller removes them all.
        """
        name = ""
        try:
            for name in names:
                temporary = self.path(name) + TEMPORARY
                descriptor = os.open(temporary, os.O_RDONLY)
                try:
                    _sync(descriptor)
                finally:
                    os.close(descriptor)
                os.rename(temporary, self.path(name))
            for folder in {os.path.dirname(name) for name in names}:
                self.sync_folder(folder)
        except OSError as e:
            raise self._cannot_write(name, e) from e

    def _cannot_write(self, name: str, e: OSError) -> StorageError:
        return StorageError(f"cannot write {self.path(name)}: {e}. Nothing was lost; free some space or mend the disk, then try again.")

    def sync_folder(self, name: str) -> None:
        descriptor = os.open(self.path(name), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def map(self, name: str, size: int, temporary: bool = False) -> pa.Buffer:
        """The whole file, mapped. Its size is checked first: reading behind the end of a mapped file kills the process."""
        path = self.path(name) + (TEMPORARY if temporary else "")
        try:
            found = os.stat(path).st_size
            if found != size:
                raise CorruptionError(f"{path} has {found} bytes, the catalog says {size}: restore the file from a backup")
            with pa.memory_map(path) as mapped:  # the mapping outlives the open file, which would cost a descriptor per chunk
                return mapped.read_buffer(size)
        except FileNotFoundError as e:
            raise CorruptionError(f"{path} is missing: restore the file from a backup") from e
        except OSError as e:
            raise StorageError(f"cannot read {path}: {e.strerror}") from e

    def list(self, folder: str) -> Iterator[str]:
        """The names of all files below a folder."""
        for where, _, files in os.walk(self.path(folder)):
            for file in files:
                yield os.path.relpath(os.path.join(where, file), self.root)

    def remove(self, name: str) -> None:
        """Remove a file that nothing points to any more, under either name. It may be gone already."""
        self._discard(self.path(name))
        self._discard(self.path(name) + TEMPORARY)

    def remove_folder(self, name: str) -> None:
        """Remove a folder if it is empty."""
        try:
            os.rmdir(self.path(name))
        except OSError:
            return  # something is still in it, or it was never made: either way there is nothing to do now

    @staticmethod
    def _discard(path: str) -> None:
        try:
            os.unlink(path)
        except OSError:
            return  # it is gone, or cannot be removed now: the next open of the warehouse sweeps it
