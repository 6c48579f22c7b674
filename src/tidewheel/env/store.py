"""What a warehouse asks of the place where its chunks lie: objects that are written once, by their names relative to a root.

Four protocols; a caller names the least that it uses:
  RangeReader   the bytes at some places of an object. `env.range_files` has it over every file system that Arrow knows.
  Mapper        also whole objects, mapped into memory
  WriteOnce     new objects, under temporary names
  Store         all of it: objects appear, are listed, measured, moved and removed

`env.local_files.LocalFiles` is a store; over the disk that lies (`env.faults`) it is the twin that fails where a test says. Any other store
has to keep two promises: an object appears whole or not at all, and what has appeared survives a crash of the machine. Files that grow,
locks and the identity of a folder are matters of a local disk, and not in here: logs, leases and backups name `LocalFiles`.

Every method may be called from any thread. Errors are StorageError, and CorruptionError where an object is missing or too short.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from tidewheel.errors import StorageError

Range = tuple[int, int]
"""(offset, size)"""


class NoMappingError(StorageError):
    """The system has no mappings left for this process. The object can still be read by range."""


class RangeReader(Protocol):
    @property
    def root(self) -> object:
        """Where the objects are, for messages."""
        ...

    def read_ranges(self, name: str, ranges: Sequence[Range]) -> list[memoryview]:
        """The bytes of each range."""
        ...

    def remove(self, name: str) -> None:
        """Remove an object that nothing points to any more. It may be gone already."""
        ...


class Mapper(RangeReader, Protocol):
    def map(self, name: str, size: int) -> pa.Buffer:
        """The whole object, which must have this size. Raises NoMappingError where there is no room for it."""
        ...


class WriteOnce(Protocol):
    def write(self, name: str, write: Callable[[Any], None]) -> int:
        """Write a new object under its temporary name; returns its size. When this raises, nothing of it is left."""
        ...

    def map(self, name: str, size: int, temporary: bool = False) -> pa.Buffer:
        """As above; `temporary`: one that has not appeared yet."""
        ...


class Store(WriteOnce, Mapper, Protocol):
    """Two writers never use the same name. A store without folders has prefixes, and nothing to do where they are made or synced."""

    # ---- put --------------------------------------------------------------------------------------------

    def appear_each(self, groups: Sequence[Sequence[str]]) -> list[StorageError | None]:
        """Give written objects their names: from here on they survive a crash of the machine. Returns what went wrong with each group."""
        ...

    def adopt(self, name: str) -> None:
        """Another process wrote this object, under its temporary name."""
        ...

    def move(self, name: str, new: str, sync: bool = True) -> None:
        """Give an object another name. Without `sync` that lasts when the caller has synced both folders."""
        ...

    # ---- look -------------------------------------------------------------------------------------------

    def shown(self, name: str) -> str:
        """The name for people."""
        ...

    def regular_size(self, name: str) -> int:
        """The size of an object; -1 if there is none, or something else has its name."""
        ...

    def list(self, folder: str) -> Iterator[str]:
        """The names of all objects below a folder."""
        ...

    def modified(self, name: str) -> float:
        """When an object or a folder was last written to, in seconds since 1970; 0 if it is gone."""
        ...

    # ---- folders ----------------------------------------------------------------------------------------

    def make_folder(self, name: str) -> None: ...
    def sync_folder(self, name: str) -> None:
        """Returns when the names in a folder last."""
        ...

    def folders(self, name: str) -> Sequence[str]:
        """The names of the folders in a folder."""
        ...

    def rename_folder(self, name: str, new: str) -> bool:
        """Take a folder out of the reach of those who know its name. Returns whether that was done."""
        ...

    def remove_folder(self, name: str) -> None:
        """If it is empty."""
        ...


def remove_with(holder: object, remove: Callable[[str], None], name: str) -> None:
    """Remove an object when nothing holds `holder` any more. A forked child has a copy of it, and removes nothing of its parent's."""
    weakref.finalize(holder, _remove, os.getpid(), remove, name)


def _remove(process: int, remove: Callable[[str], None], name: str) -> None:
    if os.getpid() == process:
        remove(name)
