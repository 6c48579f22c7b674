"""What a check, a backup or a restore did, as values and as text. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

from tidewheel.model.dataclass import dataclass
from tidewheel.model.figures import counted, size

Progress = Callable[[int, int], None]
"""Told how many bytes are done, and of how many."""

ERROR, WARNING = "error", "warning"
"""Rows are missing, wrong or in danger; something lies about that means nothing."""


class Problem(NamedTuple):
    """One thing that is not as it should be."""

    severity: str
    kind: str
    where: str
    """A file, relative to the root of the warehouse; or a table, or the catalog."""
    what: str
    todo: str
    """What to do about it; or what was done, if it is repaired."""
    repaired: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class CheckReport:
    """What `wh.check()` looked at and what it found. `print` it; `ok` says whether all is well."""

    root: str
    tables: int
    chunks: int
    blocks: int
    """Checksummed blocks of columns."""
    segments: int
    """Segments of logs."""
    rows: int
    bytes: int
    seconds: float
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Nothing is wrong, or all that was is repaired."""
        return all(problem.repaired for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as for JSON."""
        return {**asdict(self), "ok": self.ok, "problems": [problem._asdict() for problem in self.problems]}

    @property
    def summary(self) -> str:
        looked = ", ".join(
            counted(n, word)
            for n, word in (
                (self.tables, "table"), (self.chunks, "chunk"), (self.blocks, "block"), (self.segments, "log segment"), (self.rows, "row"),
            )
        )  # fmt: skip
        return f"{self.root}: {looked} checked in {self.seconds:.1f} s: {self._verdict()}"

    def _verdict(self) -> str:
        left = sum(not problem.repaired for problem in self.problems)
        mended = len(self.problems) - left
        if not self.problems:
            return "all is well"
        said = [counted(left, "problem")] if left else ["all is well now"]
        return ", ".join(said + ([f"{mended:,} repaired"] if mended else []))

    def __str__(self) -> str:
        lines = [self.summary]
        for p in self.problems:
            lines.append(f"  {'repaired' if p.repaired else p.severity}: {p.where}: {p.what} [{p.kind}]")
            lines.append(f"    {p.todo}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<CheckReport {self.summary}>"


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What `wh.backup()` made: a folder that `tw.restore` makes a warehouse of."""

    folder: str
    tables: int
    files: int
    rows: int
    bytes: int
    """Of all files, wherever they were before."""
    linked: int
    copied: int
    kept: int
    """Files that an earlier backup had brought here."""
    removed: int
    seconds: float

    def __str__(self) -> str:
        how = f"{self.linked:,} linked, {self.copied:,} copied, {self.kept:,} there already, {self.removed:,} no longer needed and removed"
        return f"{self.folder}: {_content(self.tables, self.files, self.rows, self.bytes)} backed up in {self.seconds:.1f} s ({how})"


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What `tw.restore()` made: a warehouse that can be opened."""

    root: str
    made: str
    """When the backup was made, UTC."""
    tables: int
    files: int
    rows: int
    bytes: int
    seconds: float

    def __str__(self) -> str:
        content = _content(self.tables, self.files, self.rows, self.bytes)
        return f"{self.root}: {content} restored in {self.seconds:.1f} s, as they were backed up {self.made}"


def _content(tables: int, files: int, rows: int, bytes_: int) -> str:
    return f"{counted(tables, 'table')}, {counted(rows, 'row')}, {counted(files, 'file')} of {size(bytes_)}"
