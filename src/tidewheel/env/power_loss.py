"""What a power failure would leave of a folder: only what was synced. The memory behind `env.faults`.

The files themselves are real and show what the system was told. Beside them this keeps which names and how many bytes of each
file are on the disk for certain, and a hard link to every file it has seen, so that names can be brought back. Nothing here is
safe to use from several threads at once: the twin calls it one operation after the other.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Loss(StrEnum):
    """What becomes of names and bytes that were not synced: a file system may keep any part of them."""

    ALL = "nothing unsynced stays"
    HALF = "names stay, and the first half of the bytes"
    ZEROS = "names and sizes stay, the bytes are zeros"


@dataclass(slots=True, eq=False)
class DiskFile:
    """One file, whatever its names."""

    kept: str
    """A name of it outside the warehouse."""
    synced: int = 0
    """Its first bytes that are on the disk."""
    cut: bytes = b""
    """What was on the disk behind them until a truncation that is not synced."""
    doomed: list[tuple[int, int]] = field(default_factory=list)
    """Bytes that a failed sync threw away: the next sync says it succeeds, and they are still not on the disk."""

    def size(self) -> int:
        return os.stat(self.kept).st_size


@dataclass(slots=True, eq=False)
class Folder:
    """A folder is a name in another one, and as easily lost."""


class Platter:
    """Which names and bytes are safe. Files that were there before and are never touched are. `attic`: a folder on the same disk."""

    def __init__(self, attic: Path) -> None:
        self.boots = 0
        """How often the power was lost."""
        self._attic = attic
        self._numbers = 0
        self._now: dict[str, DiskFile | Folder] = {}
        self._safe: dict[str, DiskFile | Folder] = {}
        self._lies: set[str] = set()
        """Names whose next sync will not be one."""
        attic.mkdir(parents=True, exist_ok=True)

    # ---- names --------------------------------------------------------------------------------------------

    def file(self, path: str) -> DiskFile:
        """The file of that name; one that is new to us was there before, and is safe."""
        entry = self._now.get(path)
        if isinstance(entry, DiskFile):
            return entry
        stored = self._keep(path)
        stored.synced = stored.size()
        self._now[path] = self._safe[path] = stored
        return stored

    def made(self, path: str) -> DiskFile:
        stored = self._now[path] = self._keep(path)
        return stored

    def _keep(self, path: str) -> DiskFile:
        self._numbers += 1
        kept = str(self._attic / str(self._numbers))
        os.link(path, kept)
        return DiskFile(kept)

    def renamed(self, old: str, new: str, lie: bool = False) -> None:
        self._now[new] = self._now.pop(old)
        if lie:
            self._lies |= {old, new}

    def folder_renamed(self, old: str, new: str, lie: bool = False) -> None:
        for path in [path for path in self._now if path == old or path.startswith(old + os.sep)]:
            self.renamed(path, new + path[len(old) :], lie)

    def linked(self, old: str, new: str) -> None:
        self._now[new] = self.file(old)

    def removed(self, path: str) -> None:
        self._now.pop(path, None)

    def folder_made(self, path: str) -> None:
        self._now[path] = Folder()

    def folder_known(self, path: str) -> None:
        """Call it before a folder is removed: one that is new to us was there before, and is safe."""
        if path not in self._now:
            self._now[path] = self._safe[path] = Folder()

    def folder_synced(self, path: str) -> None:
        for name in [n for n in self._now.keys() | self._safe.keys() if os.path.dirname(n) == path and n not in self._lies]:
            if name in self._now:
                self._safe[name] = self._now[name]
            else:
                del self._safe[name]

    # ---- bytes --------------------------------------------------------------------------------------------

    def truncated(self, stored: DiskFile, size: int) -> None:
        """Call it before the file is truncated."""
        if size < stored.synced:
            with open(stored.kept, "rb") as file:
                file.seek(size)
                stored.cut = file.read(stored.synced - size) + stored.cut
            stored.synced = size
        stored.doomed = [(lo, min(hi, size)) for lo, hi in stored.doomed if lo < size]

    def synced(self, stored: DiskFile) -> None:
        stored.synced, stored.cut = stored.size(), b""

    def sync_failed(self, stored: DiskFile) -> None:
        stored.doomed.append((stored.synced, stored.size()))

    # ---- power --------------------------------------------------------------------------------------------

    def at_risk(self) -> bool:
        """Whether a power failure would change anything now."""
        if self._now != self._safe:
            return True
        files = [entry for entry in self._now.values() if isinstance(entry, DiskFile)]
        return any(f.size() > f.synced or f.cut or f.doomed for f in files)

    def lose(self, loss: Loss) -> None:
        """The power fails and comes back: the folder is now what the disk has."""
        if loss == Loss.ALL:
            self._restore_names()
        for stored in {id(e): e for e in self._now.values() if isinstance(e, DiskFile)}.values():
            _restore_bytes(stored, loss)
        self._safe = dict(self._now)
        self._lies.clear()
        self.boots += 1

    def _restore_names(self) -> None:
        safe = {path: entry for path, entry in self._safe.items() if not self._in_lost_folder(path)}
        for path in sorted(self._now, reverse=True):
            if safe.get(path) is not self._now[path]:
                if isinstance(self._now[path], Folder):
                    shutil.rmtree(path, ignore_errors=True)
                elif os.path.lexists(path):
                    os.unlink(path)
        for path in sorted(safe):
            entry = safe[path]
            if isinstance(entry, Folder):
                os.makedirs(path, exist_ok=True)
            elif not os.path.lexists(path):
                os.link(entry.kept, path)
        self._now = safe

    def _in_lost_folder(self, path: str) -> bool:
        parents = map(str, Path(path).parents)
        return any(parent in self._now and self._safe.get(parent) is not self._now[parent] for parent in parents)


def _restore_bytes(stored: DiskFile, loss: Loss) -> None:
    size, synced = stored.size(), stored.synced
    with open(stored.kept, "r+b") as file:
        for lo, hi in stored.doomed:
            file.seek(lo)
            file.write(bytes(min(hi, size) - lo))
        match loss:
            case Loss.ALL:
                file.truncate(synced)
                file.seek(synced)
                file.write(stored.cut)
            case Loss.HALF:
                file.truncate(synced + (size - synced) // 2)
            case Loss.ZEROS:
                file.seek(synced)
                file.write(bytes(size - synced))
    stored.synced, stored.cut = stored.size(), b""
    stored.doomed.clear()
