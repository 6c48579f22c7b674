"""What a pass of refreshes did, as values and as text. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from tidewheel.model.figures import counted, duration

_WORDS = (0, 3)
"""Columns of the table that are no numbers."""


@dataclass(frozen=True, slots=True)
class TableRefresh:
    """What a pass did for one derived table."""

    name: str
    partitions: int = 0
    """That were computed and committed."""
    changed: int = 0
    """Of them, those whose rows are others than before."""
    mode: str = ""
    """How: recompute, append, merge, keys; several, if sets of partitions differed; empty, if nothing was stale."""
    rows_read: int = 0
    rows_written: int = 0
    seconds: float = 0.0
    error: str = ""
    """Why it is not up to date; empty, if it is. What was committed before stays."""
    cause: Exception | None = field(default=None, repr=False, compare=False)
    """What was raised; None, if nothing was, or if it was not tried because of a source."""

    @property
    def ok(self) -> bool:
        return not self.error

    def as_json(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "cause"}


@dataclass(frozen=True, slots=True, repr=False)
class RefreshReport:
    """What `wh.refresh()` did, in the order in which it was done. `print` it; `ok` says whether all tables are up to date.

    One table that fails does not stop the others, except those that are made of it: these say so in their `error`.
    """

    tables: tuple[TableRefresh, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> dict[str, str]:
        """Why tables are not up to date, by their names."""
        return {table.name: table.error for table in self.tables if table.error}

    def __iter__(self) -> Iterator[TableRefresh]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __getitem__(self, name: str) -> TableRefresh:
        return next(table for table in self.tables if table.name == name)

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values, as for JSON."""
        return {"ok": self.ok, "seconds": self.seconds, "tables": [table.as_json() for table in self.tables]}

    @property
    def summary(self) -> str:
        partitions = sum(table.partitions for table in self.tables)
        refreshed = sum(table.partitions > 0 for table in self.tables)
        said = f"{counted(partitions, 'partition')} of {counted(refreshed, 'table')} refreshed in {duration(self.seconds)}"
        if not partitions and self.ok:
            said = "there is no derived table" if not self.tables else f"{counted(len(self.tables), 'table')} up to date"
        return f"{said}: {counted(len(self.errors), 'error')}" if self.errors else said

    def __str__(self) -> str:
        head = ("table", "partitions", "changed", "mode", "rows read", "rows written", "time")
        lines = [head, *(_line(table) for table in self.tables)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        grid = [_aligned(line, widths) for line in lines] if self.tables else []
        errors = [f"  {name}: {error}" for name, error in self.errors.items()]
        return "\n".join([self.summary, *grid, *errors])

    def __repr__(self) -> str:
        return f"<RefreshReport {self.summary}>"


def _line(table: TableRefresh) -> tuple[str, ...]:
    mode = table.mode or ("" if table.error else "up to date")
    return (
        table.name, f"{table.partitions:,}", f"{table.changed:,}", mode, f"{table.rows_read:,}", f"{table.rows_written:,}",
        duration(table.seconds),
    )  # fmt: skip


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    words = zip(line, widths, strict=True)
    return "  ".join(word.ljust(width) if i in _WORDS else word.rjust(width) for i, (word, width) in enumerate(words)).rstrip()
