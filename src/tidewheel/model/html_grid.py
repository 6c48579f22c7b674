"""A grid for notebooks: `_repr_html_` of what users hold. All that is put into it is text, and is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidewheel.model.visible_text import visible

_LEFT, _RIGHT = ' style="text-align:left"', ' style="text-align:right"'


def html_grid(names: Sequence[str], kinds: Sequence[str], rows: Iterable[Sequence[str]], said: str, numbers: Sequence[bool] = ()) -> str:
    """Columns with their kinds (none: there is no such line) and their cells; `said` stands below. `numbers`: which stand at the right."""
    style = [_RIGHT if i < len(numbers) and numbers[i] else _LEFT for i in range(len(names))]

    def line(mark: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{mark}{how}>{_escaped(cell)}</{mark}>" for cell, how in zip(cells, style, strict=True)) + "</tr>"

    head = line("th", names)
    if kinds:
        told = "".join(f"<th{how}><small><i>{_escaped(kind)}</i></small></th>" for kind, how in zip(kinds, style, strict=True))
        head += f"<tr>{told}</tr>"
    body = "".join(line("td", row) for row in rows)
    return f"<div><table><thead>{head}</thead><tbody>{body}</tbody></table><small>{_escaped(said)}</small></div>"


def html_line(text: str) -> str:
    """One line of plain text."""
    return f"<pre>{_escaped(text)}</pre>"


def _escaped(text: str) -> str:
    from html import escape  # here: all tables and results are of modules that know this one, and few of them are shown in a notebook

    return escape(visible(text))
