"""A few rows as people see them: `repr` of a result, fitted to the terminal, and HTML for notebooks."""

from __future__ import annotations

import shutil
import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel.model.html_grid import html_grid
from tidewheel.model.visible_text import visible
from tidewheel.read.fitting import fit

_LONGEST = 40
"""Characters of a value in `repr`."""
_LONGEST_HTML = 100
_WIDTH = 160
"""Characters of a line where no terminal says how many it has."""
_MOST_COLUMNS = 40
"""Columns of a notebook's table: more are left out in the middle, and counted."""
_MORE = "…"


def rows_text(table: pa.Table, total: int | None, width: int | None = None) -> str:
    """Rows as a table of so many characters, those of the terminal if not given; the last line says how many rows there are."""
    width = shutil.get_terminal_size((_WIDTH, 24)).columns if width is None else width
    cells = [[visible(name), *(_cut(_cell(value), _LONGEST) for value in column)] for name, column in _columns(table)]
    layout = fit([max(map(_width, column)) for column in cells], width, edge=-2, each=2)
    lines = []
    for i in range(table.num_rows + 1):
        parts = [_MORE if one is None else _sized(cells[one[0]][i], one[1]) for one in layout.shown]
        lines.append("  ".join(parts).rstrip())
    return "\n".join([*lines, _said(table, total, layout.left_out)])


def rows_html(table: pa.Table, total: int | None) -> str:
    """The same for a notebook, with the types of the columns."""
    columns = list(_columns(table))
    left_out = max(0, len(columns) - _MOST_COLUMNS)
    head = (len(columns) - left_out + 1) // 2
    cells = [[_cut(_cell(value, "NULL"), _LONGEST_HTML) for value in column] for _, column in columns]
    names, kinds, numbers = [name for name, _ in columns], list(map(str, table.schema.types)), list(map(_is_number, table.schema.types))
    if left_out:
        cells[head : head + left_out] = [[_MORE] * table.num_rows]
        names[head : head + left_out] = kinds[head : head + left_out] = [_MORE]
        numbers[head : head + left_out] = [False]
    rows = zip(*cells, strict=True) if cells else ()
    return html_grid(names, kinds, list(rows), _said(table, total, left_out), numbers)


def _columns(table: pa.Table) -> Any:
    return zip(table.schema.names, table.columns, strict=True)


def _said(table: pa.Table, total: int | None, left_out: int) -> str:
    shown = table.num_rows
    if total is None:
        said = f"the first {shown} rows; len() counts them all" if shown else _MORE
    else:
        said = f"{total:,} row{'' if total == 1 else 's'}" + (f", the first {shown} shown" if total > shown else "")
    return said + (f"; {left_out} of {table.num_columns} columns left out" if left_out else "")


def _cell(scalar: pa.Scalar, null: str = "") -> str:
    try:
        value = scalar.as_py()
    except (OverflowError, ValueError):  # a time that Python has no date for
        value = getattr(scalar, "value", "?")
    if value is not None and pa.types.is_float32(scalar.type):
        value = np.float32(value)  # as short as its own precision
    return null if value is None else visible(str(value))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + _MORE


def _width(text: str) -> int:
    """The places that a text takes on a terminal: two for each letter that is wide there, none for one that is put over another."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _sized(text: str, width: int) -> str:
    if _width(text) > width:
        while _width(text) > width - 1:
            text = text[:-1]
        text += _MORE
    return text + " " * (width - _width(text))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
