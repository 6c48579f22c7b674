"""Whether the logs of a warehouse can be replayed: every record of every segment, as recovery would read it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from tidewheel.env.local_files import LocalFiles
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


class HeldLog:
    """The segments of one table's log as they are at this moment, whatever is appended later.

    Make it while nothing is appended or committed; then no record in it is half written. A segment that is gone when it is looked at
    was trimmed meanwhile: chunks have its rows. Read, never mapped: a segment may shrink. None stays open: there may be thousands.
    Holds `write.log_reader.LogFiles`.
    """

    def __init__(self, files: LocalFiles, table: TableRecord) -> None:
        self._files = files
        self.table = table
        self._sizes = {name: files.size(name) for name in segment_names(files, table.id)}
        self._read: dict[str, pa.Buffer] = {}

    @property
    def bytes(self) -> int:
        return sum(self._sizes.values())

    def list(self, folder: str) -> Iterator[str]:
        return iter(self._read)

    def size(self, name: str) -> int:
        return int(self._read[name].size)

    def map(self, name: str, size: int) -> pa.Buffer:
        return self._read[name]

    def shown(self, name: str) -> str:
        return self._files.shown(name)

    def boot(self) -> str:
        return self._files.boot()

    def _take(self) -> None:
        for name, size in self._sizes.items():
            with suppress(FileNotFoundError), open(self._files.path(name), "rb") as file:
                self._read[name] = pa.py_buffer(file.read(size))

    def close(self) -> None:
        self._read = {}

    def look(self, coverage: Iterable[Coverage]) -> LogLook:
        """Read all of it; `coverage` is what chunks have of it.

        What a crash may leave at the end of a log is no damage; what else is wrong is told in words.
        """
        segments = len(self._sizes)
        try:
            self._take()
            found = read_log(self, self.table, fixed_widths(Shape(self.table.spec)) or (), Covered(coverage), skip=True)
        except (TidewheelError, OSError) as e:
            return LogLook(segments, 0, (str(e),))
        finally:
            self.close()
        rows = sum(record.rows for batch in found.batches for record in batch)
        return LogLook(segments, rows, tuple(said.replace(f"{self._files.root}{os.sep}", "") for said in found.damage))
