"""What loading files did, as values and as text. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tidewheel.model.figures import counted, duration

_SHOWN = 40
"""Files in the text of a report that did well; all others are in it."""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """What became of one file."""

    file: str
    rows: int = 0
    rejected: int = 0
    """Records that are no rows: they are in the table's rejects, with the reason and their place."""
    duplicate: bool = False
    """It was loaded before; nothing was loaded."""
    seconds: float = 0.0
    error: str = ""
    """Why nothing of it was loaded; empty, if it was."""

    @property
    def ok(self) -> bool:
        return not self.error


@dataclass(frozen=True, slots=True, repr=False)
class LoadReport:
    """What `wh.load` did, file by file. `print` it; `ok` says whether all files are in the table."""

    table: str
    files: tuple[LoadedFile, ...]
    seconds: float
    created: bool = False
    """The table was made for these files."""
    notes: tuple[str, ...] = ()
    """What was concluded from the first file."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def rejected(self) -> int:
        return sum(file.rejected for file in self.files)

    @property
    def duplicates(self) -> int:
        return sum(file.duplicate for file in self.files)

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> dict[str, str]:
        """Why files were not loaded, by their names."""
        return {file.file: file.error for file in self.files if file.error}

    def __iter__(self) -> Iterator[LoadedFile]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values, as for JSON."""
        head = {"table": self.table, "ok": self.ok, "rows": self.rows, "rejected": self.rejected, "seconds": self.seconds}
        return {**head, "created": self.created, "notes": list(self.notes), "files": [asdict(file) for file in self.files]}

    @property
    def summary(self) -> str:
        done = len(self.files) - self.duplicates - len(self.errors)
        said = f"{counted(self.rows, 'row')} of {counted(done, 'file')} loaded into {self.table} in {duration(self.seconds)}"
        said += f", {self.rejected:,} rejected" if self.rejected else ""
        said += f"; {counted(self.duplicates, 'file')} loaded before" if self.duplicates else ""
        return said + (f"; {counted(len(self.errors), 'file')} not loaded" if self.errors else "")

    def __str__(self) -> str:
        head = ("file", "rows", "rejected", "time")
        shown = [file for i, file in enumerate(self.files) if i < _SHOWN or file.error]
        lines = [head, *(_line(file) for file in shown)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        grid = [_aligned(line, widths) for line in lines]
        left = len(self.files) - len(shown)
        more = [f"… and {counted(left, 'file')} more"] if left else []
        errors = [f"  {name}: {error}" for name, error in self.errors.items()]
        return "\n".join([*grid, *more, self.summary, *errors])

    def __repr__(self) -> str:
        return f"<LoadReport {self.summary}>"


def _line(file: LoadedFile) -> tuple[str, ...]:
    if file.error:
        return file.file, "not loaded", "", ""
    if file.duplicate:
        return file.file, "loaded before", "", ""
    return file.file, f"{file.rows:,}", f"{file.rejected:,}", duration(file.seconds)


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    words = zip(line, widths, strict=True)
    return "  ".join(word.rjust(width) if i else word.ljust(width) for i, (word, width) in enumerate(words)).rstrip()
