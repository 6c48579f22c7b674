"""A catalog whose writes are operations of a `FaultyDisk`: the process can die before or after each, and each can fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tidewheel.catalog.light import LightCatalog
from tidewheel.catalog.sqlite_file import SqliteFile
from tidewheel.env.faults import CRASHES, Fault, FaultyDisk
from tidewheel.errors import StorageError
from tidewheel.model.derived import Definition, Dependency
from tidewheel.model.records import ChunkRecord, Commit, Lease, TableRecord
from tidewheel.model.schema import TableSpec

T = TypeVar("T")

CATALOG_FAULTS = {kind: (*CRASHES, Fault.FAIL) for kind in ("commit", "create_table", "drop_table", "acquire", "release")}


class FaultyCatalog(LightCatalog):
    """The real one, but for what its disk does to it. A write that fails has changed nothing."""

    def __init__(self, path: Path, disk: FaultyDisk) -> None:
        self._disk = disk
        super().__init__(SqliteFile(path))

    def create_table(
        self, spec: TableSpec, epoch: int, definition: Definition | None = None, sources: Sequence[Dependency] = ()
    ) -> TableRecord:
        create = super().create_table
        return self._operation("create_table", lambda: create(spec, epoch, definition, sources))

    def drop_table(self, name: str, epoch: int) -> list[ChunkRecord]:
        return self._operation("drop_table", lambda: super(FaultyCatalog, self).drop_table(name, epoch))

    def commit(self, *commits: Commit) -> None:
        return self._operation("commit", lambda: super(FaultyCatalog, self).commit(*commits))

    def acquire(self, pid: int, host: str, now: float) -> Lease:
        return self._operation("acquire", lambda: super(FaultyCatalog, self).acquire(pid, host, now))

    def release(self, epoch: int) -> None:
        return self._operation("release", lambda: super(FaultyCatalog, self).release(epoch))

    def _operation(self, kind: str, act: Callable[[], T]) -> T:
        try:
            return self._disk.operation(kind, act)
        except OSError as e:
            raise StorageError(f"could not write the catalog {self.where}: {e}. What to do: check its disk, then try again") from e
