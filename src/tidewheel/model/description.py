"""What `Table.describe` says of a table: a line per column, as plain values and as text."""

from __future__ import annotations

from typing import Any

from tidewheel.model.dataclass import dataclass
from tidewheel.model.html_grid import html_grid

_HEAD = ("column", "type", "nulls", "least", "greatest", "distinct")


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column. `least`, `greatest` and `distinct` are None where there is no value, or no order among values."""

    name: str
    type: str
    nulls: int
    least: Any
    greatest: Any
    distinct: int | None
    """About how many different values there are."""


@dataclass(frozen=True, slots=True)
class TableDescription:
    """Iterate over it for the columns; `print` it for a table of them."""

    table: str
    rows: int
    columns: tuple[ColumnFacts, ...]

    def __iter__(self) -> Any:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __str__(self) -> str:
        lines = [_HEAD, *self._lines()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD))]
        grid = ["  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join([self._size(), *grid])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return html_grid(_HEAD, (), self._lines(), self._size(), (False, False, True, False, False, True))

    def _lines(self) -> list[tuple[str, ...]]:
        return [(c.name, c.type, f"{c.nulls:,}", shown(c.least), shown(c.greatest), _about(c.distinct)) for c in self.columns]

    def _size(self) -> str:
        return f"{self.table}: {self.rows:,} row{'' if self.rows == 1 else 's'}"


_LONGEST = 40
"""Characters of a value that are shown."""


def shown(value: Any) -> str:
    """A value as text, on one line and not too long; empty for none."""
    text = "" if value is None else " ".join(str(value).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _about(distinct: int | None) -> str:
    return "" if distinct is None else f"~{distinct:,}"
