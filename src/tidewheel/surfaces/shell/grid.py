"""Rows as a grid of lines, fitted to a terminal: the widest columns give way first, then columns in the middle are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from tidewheel.model.visible_text import visible
from tidewheel.read.fitting import Fit
from tidewheel.read.fitting import fit as fitted
from tidewheel.surfaces.shell.cells import is_number, texts

_NULL, _MORE = "NULL", "…"
_BOLD, _DIM, _END = "\x1b[1m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True)
class GridColumn:
    name: str
    kind: str
    right: bool
    cells: Sequence[str | None]

    @cached_property
    def width(self) -> int:
        """The width that the column would like to have."""
        return max(_width(self.name), _width(self.kind), *(_width(_NULL if cell is None else cell) for cell in self.cells), 1)


def columns_of(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> list[GridColumn]:
    """The columns of some rows, ready to be drawn."""
    found = []
    for i, field in enumerate(schema):
        cells = [None if text is None else visible(text) for batch in batches for text in texts(batch.column(i))]
        if pa.types.is_timestamp(field.type):
            cells = _without_zeros(cells)
        found.append(GridColumn(visible(field.name), str(field.type).partition("<")[0], is_number(field.type), cells))
    return found


def fit(columns: Sequence[GridColumn], width: int | None) -> Fit:
    """The fit of columns into so many characters; with None, every column has the width it wants."""
    return fitted([column.width for column in columns], width, edge=1, each=3)


def draw(columns: Sequence[GridColumn], layout: Fit, colour: bool = False, rows: int | None = None) -> Iterator[str]:
    """The lines, without ends. `rows`: no more rows than so many."""
    widths = [1 if one is None else one[1] for one in layout.shown]
    shown = [None if one is None else columns[one[0]] for one in layout.shown]

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + right

    def row(cells: Sequence[str | None], style: str = "", middle: bool = False) -> str:
        drawn = []
        for cell, column, width in zip(cells, shown, widths, strict=True):
            text = _sized(_NULL if cell is None else cell, width, column is not None and column.right and not middle)
            mark = _DIM if cell is None else style
            drawn.append(f"{mark}{text}{_END}" if colour and mark else text)
        return "│ " + " │ ".join(drawn) + " │"

    yield rule("┌", "┬", "┐")
    yield row([_MORE if column is None else column.name for column in shown], _BOLD, True)
    yield row(["" if column is None else column.kind for column in shown], _DIM, True)
    yield rule("├", "┼", "┤")
    for i in range(min(rows_of(columns), rows if rows is not None else rows_of(columns))):
        yield row([_MORE if column is None else column.cells[i] for column in shown])
    yield rule("└", "┴", "┘")


def rows_of(columns: Sequence[GridColumn]) -> int:
    return len(columns[0].cells) if columns else 0


def _sized(text: str, width: int, right: bool) -> str:
    have = _width(text)
    if have > width:
        return set_cell_size(text, width - 1) + _MORE
    blank = " " * (width - have)
    return blank + text if right else text + blank


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _without_zeros(cells: list[str | None]) -> list[str | None]:
    """Times without fractions of seconds, if none has any."""
    said = [cell for cell in cells if cell is not None]
    _, dot, tail = (said[0] if said else "").rpartition(".")
    zeros = dot + tail
    if not dot or tail.strip("0Z") or not all(cell.endswith(zeros) for cell in said):
        return cells
    ending = "Z" if zeros.endswith("Z") else ""
    return [None if cell is None else cell[: -len(zeros)] + ending for cell in cells]
