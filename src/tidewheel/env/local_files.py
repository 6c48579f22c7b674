"""Files of a warehouse, by their name relative to the root: written once, whole or not at all. Those that grow are `env.appender`'s."""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidewheel.env.appender import Appender
from tidewheel.env.disk import Disk
from tidewheel.env.handles import Handles
from tidewheel.env.store import NoMappingError, Range
from tidewheel.env.together import together
from tidewheel.errors import CorruptionError, StorageError

TEMPORARY = ".tmp"


def why(e: OSError) -> str:
    """What the system said, and what to do about a limit of its."""
    said = e.strerror or str(e)
    if e.errno in (errno.EMFILE, errno.ENFILE):
        return f"{said}: the limit of open files is reached (ulimit -n says it); raise it, such as with `ulimit -n 4096`, and start again"
    return said


class LocalFiles:
    """A folder on a local disk. Safe to use from several threads; two writers never use the same name."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self._place = str(root)
        self.disk = disk or Disk()
        self.handles = Handles(self.disk)
        self.unfinished: set[str] = set()
        """Files that are written and have neither appeared nor been removed yet; on the disk they have their temporary names."""

    def hold(self) -> None:
        """From here on these are the files of the folder that has the root's name now, also when another folder has it.

        So whoever reads some files and then removes others does both in one folder, or fails. Not on macOS, which has no paths to folders
        that are held open: there a look just before (`Tenure.look`) is all there is.
        """
        try:
            self._place, descriptor = self.disk.hold(str(self.root))
        except OSError as e:
            raise StorageError(f"cannot open the folder {self.root}: {why(e)}") from e
        if descriptor is not None:  # closed with the last who may use it: its number may be another's after, and paths would lead there
            weakref.finalize(self, os.close, descriptor).atexit = False

    def path(self, name: str) -> str:
        """Where a file of that name lies: inside of the root, whoever gave the name. To use, not to show: see `shown`."""
        if name.startswith(os.sep) or ".." in name.split(os.sep) or "\0" in name:
            raise CorruptionError(f"{name!r} is not the name of a file in {self.root}; nothing was read or changed")
        return os.path.join(self._place, name)

    def shown(self, name: str) -> str:
        """The path for people."""
        return os.path.join(self.root, name)

    def make_root(self) -> None:
        """Make the root and what it lies in, so that it survives a crash of the machine."""
        made = [path for path in (self.root, *self.root.parents) if not path.exists()]
        self.make_folder("")
        try:
            for path in made:
                self.disk.sync_folder(str(path.parent))
        except OSError as e:
            raise StorageError(f"cannot make folder {self.root}: {self._why(e)}") from e

    def make_folder(self, name: str) -> None:
        """Below the root, which must be there: one that was deleted or moved is not made anew."""
        if name and not os.path.isdir(self._place):
            raise StorageError(f"cannot make folder {self.shown(name)}: {self.root} is not there any more")
        try:
            self.disk.make_folder(self.path(name))
        except OSError as e:
            raise StorageError(f"cannot make folder {self.shown(name)}: {self._why(e)}") from e

    def write(self, name: str, write: Callable[[Any], None]) -> int:
        """Write a new file under its temporary name; `appear` gives it its own. Returns its size.

        When this raises, nothing of it is left.
        """
        temporary = self.path(name) + TEMPORARY
        self.unfinished.add(name)
        try:
            with self.disk.sink(temporary) as sink:
                write(sink)
                self.disk.begin_writing_out(sink)
                return int(sink.tell())
        except OSError as e:
            self._give_up(name)
            raise self._cannot_write(name, e) from e
        except BaseException:
            self._give_up(name)
            raise

    def _give_up(self, name: str) -> None:
        self._discard(self.path(name) + TEMPORARY)
        self.unfinished.discard(name)

    def appear(self, names: Sequence[str]) -> None:
        """Sync written files and give them their names: from here on they survive a crash of the machine.

        When this raises, some may have appeared: the caller removes them all.
        """
        [failure] = self.appear_each([names])
        if failure is not None:
            raise failure

    def appear_each(self, groups: Sequence[Sequence[str]]) -> list[StorageError | None]:
        """The same for several groups of files, which share what has to be waited for. Returns what went wrong with each group."""
        failures: dict[int, StorageError] = {}
        synced = [(n, name) for n, group in enumerate(groups) for name in group]
        for (n, name), error in zip(synced, together(self._sync_written, [name for _, name in synced]), strict=True):
            if error is not None:
                failures.setdefault(n, self._cannot_write(name, error))
        folders: dict[str, set[int]] = {}
        for n, group in enumerate(groups):
            for name in group if n not in failures else ():
                try:
                    self.disk.rename(self.path(name) + TEMPORARY, self.path(name))
                except OSError as e:
                    failures[n] = self._cannot_write(name, e)
                    break
                self.unfinished.discard(name)
                folders.setdefault(os.path.dirname(name), set()).add(n)
        for folder, error in zip(folders, together(self._sync_names, list(folders)), strict=True):
            if error is not None:
                failures |= {n: self._cannot_write(folder, error) for n in folders[folder]}
        return [failures.get(n) for n in range(len(groups))]

    def _sync_written(self, name: str) -> None:
        self.disk.sync_file(self.path(name) + TEMPORARY)

    def _sync_names(self, folder: str) -> None:
        self.disk.sync_folder(self.path(folder))

    def sync(self, name: str) -> None:
        """Sync a written file before it appears, which then has less to wait for."""
        try:
            self.disk.sync_file(self.path(name) + TEMPORARY)
        except OSError as e:
            raise self._cannot_write(name, e) from e

    def append(self, name: str, head: bytes, durable: bool = False) -> Appender:
        """A new file that starts with `head` and grows. When this raises, nothing of it is left.

        It has a descriptor while it is used, and for a while after. With `durable`, until what was written is synced.
        """
        path = self.path(name)
        try:
            descriptor = self.disk.create(path)
        except OSError as e:
            raise self._cannot_write(name, e) from e
        appender = Appender(self.disk, self.handles, path, descriptor, durable, partial(self._cannot_write, name))
        try:
            appender.write([head], len(head), 0)
        except BaseException:
            appender.close()
            self._discard(path)
            raise
        return appender

    def _why(self, e: OSError) -> str:
        return why(e).replace(self._place, str(self.root))

    def _cannot_write(self, name: str, e: OSError) -> StorageError:
        if e.errno in (errno.EMFILE, errno.ENFILE):
            return StorageError(f"cannot write {self.shown(name)}: {self._why(e)}. Nothing was lost.")
        return StorageError(
            f"cannot write {self.shown(name)}: {self._why(e)}. Nothing was lost; free some space or mend the disk, then try again."
        )

    def boot(self) -> str:
        """Names the time since the machine was started: bytes that were written and not synced are there for as long as it is the same."""
        return self.disk.boot()

    def seal(self, name: str) -> None:
        """Whoever appends to this file, and thinks that it may, finds that it may not before it acknowledges another record.

        So what is read after this is all that was ever acknowledged. Where the file is another user's, or its system has no modes,
        nothing is done: the lock file has to tell then.
        """
        with suppress(OSError):
            self.disk.seal(self.path(name))

    def renew(self, name: str) -> None:
        """Move the bytes of a file to a new one of the same name: whoever still appends to the old one writes where nobody reads.

        Where there is no room for that, nothing is done.
        """
        with suppress(OSError, StorageError):
            self._discard(self.path(name) + TEMPORARY)
            self.disk.copy(self.path(name), self.path(name) + TEMPORARY)
            self.appear([name])

    def sync_folder(self, name: str) -> None:
        try:
            self.disk.sync_folder(self.path(name))
        except OSError as e:
            raise self._cannot_write(name, e) from e

    def size(self, name: str) -> int:
        try:
            return os.stat(self.path(name)).st_size
        except OSError as e:
            raise StorageError(f"cannot read {self.shown(name)}: {self._why(e)}") from e

    def regular_size(self, name: str) -> int:
        """The size of a file that is one: not a link, a folder or a pipe, and in no folder that is a link. Else -1."""
        path = self.path(name)
        try:
            folder = os.path.dirname(name)
            while folder:
                if not stat.S_ISDIR(os.lstat(self.path(folder)).st_mode):
                    return -1
                folder = os.path.dirname(folder)
            found = os.lstat(path)
        except OSError:
            return -1
        return found.st_size if stat.S_ISREG(found.st_mode) else -1

    def read(self, name: str) -> pa.Buffer:
        """The whole file in memory. Unlike `map`, a disk that fails later, or a file that shrinks, cannot end the process."""
        try:
            with pa.OSFile(self.path(name), "rb") as file:
                return file.read_buffer()
        except OSError as e:
            raise StorageError(f"cannot read {self.shown(name)}: {self._why(e)}") from e

    def map(self, name: str, size: int, temporary: bool = False) -> pa.Buffer:
        """The whole file, mapped. Its size is checked first: reading behind the end of a mapped file kills the process."""
        path, shown = (base + (TEMPORARY if temporary else "") for base in (self.path(name), self.shown(name)))
        try:
            found = os.stat(path).st_size
            if found != size:
                raise CorruptionError(f"{shown} has {found} bytes, the catalog says {size}: restore the file from a backup")
            if not size:
                return pa.py_buffer(b"")
            with pa.memory_map(path) as mapped:  # the mapping outlives the open file, which would cost a descriptor per chunk
                return mapped.read_buffer(size)
        except FileNotFoundError as e:
            raise CorruptionError(f"{shown} is missing: restore the file from a backup") from e
        except OSError as e:
            if e.errno == errno.ENOMEM or "cannot allocate memory" in str(e).lower():
                raise NoMappingError(
                    f"cannot map {shown}: the system gives this process no more mappings (on Linux vm.max_map_count, 65530 unless "
                    "changed). Lower Settings(mapped_chunks=…), or raise the limit with `sysctl vm.max_map_count=…`"
                ) from e
            raise StorageError(f"cannot read {shown}: {self._why(e)}") from e

    def read_ranges(self, name: str, ranges: Sequence[Range]) -> list[memoryview]:
        """The bytes at each (offset, size) of a file, without mapping it."""
        path = self.path(name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                parts = [os.pread(descriptor, size, offset) if size else b"" for offset, size in ranges]
            finally:
                os.close(descriptor)
        except FileNotFoundError as e:
            raise CorruptionError(f"{self.shown(name)} is missing: restore the file from a backup") from e
        except OSError as e:
            raise StorageError(f"cannot read {self.shown(name)}: {self._why(e)}") from e
        for part, (offset, size) in zip(parts, ranges, strict=True):
            if len(part) != size:
                raise CorruptionError(
                    f"{self.shown(name)} ends at byte {offset + len(part)}, not behind {offset + size}: restore the file from a backup"
                )
        return [memoryview(part) for part in parts]

    def list(self, folder: str) -> Iterator[str]:
        """The names of all files below a folder."""
        for path in self.disk.walk(self.path(folder)):
            yield os.path.relpath(path, self._place)

    def move(self, name: str, new: str, sync: bool = True) -> None:
        """Give a file another name, in a folder that is made if need be; both names are on the disk as they should be after.

        Without `sync` they are when the caller has synced both folders: once for many files.
        """
        try:
            self.disk.make_folder(os.path.dirname(self.path(new)))
            self.disk.rename(self.path(name), self.path(new))
            for folder in (os.path.dirname(new), os.path.dirname(name)) if sync else ():
                self.disk.sync_folder(self.path(folder))
        except OSError as e:
            raise StorageError(f"cannot move {self.shown(name)} to {self.shown(new)}: {self._why(e)}") from e

    def keep(self, name: str, new: str) -> None:
        """Give a file that nobody writes to any more a second name, in a folder that is made if need be."""
        try:
            self.disk.make_folder(os.path.dirname(self.path(new)))
            self.disk.link(self.path(name), self.path(new))
        except OSError as e:
            raise StorageError(f"cannot keep {self.shown(name)} as {self.shown(new)}: {self._why(e)}") from e

    def adopt(self, name: str) -> None:
        """Another process wrote this file, under its temporary name: from here on it is as if it had been written here."""
        self.unfinished.add(name)

    def identity(self, name: str) -> tuple[int, int] | None:
        """Which file has this name: the same for a file that was moved, another for one that took its place. None if there is none."""
        with suppress(OSError):
            found = os.stat(self.path(name))
            return found.st_dev, found.st_ino
        return None

    def modified(self, name: str) -> float:
        """When a file or folder was last written to, in seconds since 1970; 0 if it is gone."""
        with suppress(OSError):
            return os.stat(self.path(name)).st_mtime
        return 0.0

    def folders(self, name: str) -> Sequence[str]:
        """The names of the folders in a folder, which need not be one, or be there."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path(name)) as entries:
            return [f"{name}/{entry.name}" for entry in entries if entry.is_dir()]
        return []

    def remove(self, name: str) -> None:
        """Remove a file that nothing points to any more, under either name. It may be gone already."""
        self._discard(self.path(name))
        self._give_up(name)

    def rename_folder(self, name: str, new: str) -> bool:
        """Give a folder another name: whoever makes a file by its old one fails from here on. Returns whether that was done."""
        try:
            self.disk.rename_folder(self.path(name), self.path(new))
        except OSError:
            return False
        return True

    def remove_folder(self, name: str) -> None:
        """Remove a folder if it is empty; else there is nothing to do now. The root itself goes by its name."""
        with suppress(OSError):
            self.disk.remove_folder(self.path(name) if name else str(self.root))

    def _discard(self, path: str) -> None:
        """Where this fails, the next open of the warehouse sweeps the file."""
        with suppress(OSError):
            self.disk.unlink(path)
