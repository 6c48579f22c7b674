"""Whether the logs of a warehouse can be replayed: every record of every segment, as recovery would read it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidewheel.env.files import LocalFiles
from tidewheel.errors import TidewheelError
from tidewheel.model.pieces import Shape
from tidewheel.model.records import Coverage, TableRecord
from tidewheel.write.log import fixed_widths
from tidewheel.write.log_reader import Covered, read_log, segment_names


@dataclass(frozen=True, slots=True)
class LogLook:
    """What was found in one table's log."""

    segments: int
    rows: int
    damage: tuple[str, ...]


class HeldLog(LocalFiles):
    """The segments of one table's log as they are at this moment, whatever is appended or trimmed later.

    Make it while nothing is appended or committed; then no record in it is half written. Read, never mapped: a segment may shrink.
    """

    def __init__(self, files: LocalFiles, table: TableRecord) -> None:
        super().__init__(files.root, files.disk)
        self.table = table
        self._open: dict[str, tuple[int, int]] = {}
        try:
            for name in segment_names(files, table.id):
                descriptor = os.open(files.path(name), os.O_RDONLY | os.O_CLOEXEC)
                self._open[name] = descriptor, os.fstat(descriptor).st_size
        except BaseException:
            self.close()
            raise

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self._open.values())

    def list(self, folder: str) -> Iterator[str]:
        return iter(self._open)

    def size(self, name: str) -> int:
        return self._open[name][1]

    def map(self, name: str, size: int, temporary: bool = False) -> pa.Buffer:
        with os.fdopen(self._open[name][0], "rb", closefd=False) as file:
            file.seek(0)
            return pa.py_buffer(file.read(size))

    def close(self) -> None:
        for descriptor, _ in self._open.values():
            os.close(descriptor)
        self._open = {}

    def look(self, coverage: Iterable[Coverage]) -> LogLook:
        """Read all of it; `coverage` is what chunks have of it.

        What a crash may leave at the end of a log is no damage; what else is wrong is told in words.
        """
        segments = len(self._open)
        try:
            found = read_log(self, self.table, fixed_widths(Shape(self.table.spec)) or (), Covered(coverage), skip=True)
        except (TidewheelError, OSError) as e:
            return LogLook(segments, 0, (str(e),))
        rows = sum(record.rows for batch in found.batches for record in batch)
        return LogLook(segments, rows, tuple(said.replace(f"{self.root}{os.sep}", "") for said in found.damage))
