"""The picture of a warehouse on a screen."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from tidewheel.model.figures import age, amount, rate, size
from tidewheel.model.visible_text import visible

_COLUMNS = ("table", "rows", "rows/s", "fresh", "historical", "chunks", "memory", "disk", "late", "rejected", "lag")
_GIVE_WAY = ("chunks", "historical", "late", "memory", "fresh", "disk", "rejected", "lag", "rows/s")
"""Which columns are left out where the terminal is narrow, the first one first: half a number would be a wrong one."""
_GAP = 2


def drawn(picture: dict[str, Any], width: int, height: int | None = None, note: str = "") -> RenderableType:
    """All of it that fits into a width; with no more lines than fit, the busiest tables first."""
    parts: list[RenderableType] = [_head(picture, note), Text()]
    tables, streams = picture["tables"], picture["streams"]
    room = None if height is None else max(3, height - 6 - (min(len(streams), 6) + 2 if streams else 0))
    shown = tables
    if room is not None and len(tables) > room:
        shown = sorted(tables, key=lambda t: (t["rows_per_second"] or 0, t["rows"]), reverse=True)[: room - 1]
    parts.append(
        _tables(shown, picture["total"], len(tables), width) if tables else Text("no tables yet: tidewheel create TABLE --from FILE")
    )
    if len(shown) < len(tables):
        parts.append(Text(f"… and {len(tables) - len(shown)} more tables", "dim"))
    troubles = [text for table in tables for text in _troubles(table)]
    parts += [Text(text, "yellow") for text in troubles[:5]]
    if streams:
        parts += [Text(), _streams(streams if height is None else streams[:6])]
        if height is not None and len(streams) > 6:
            parts.append(Text(f"… and {len(streams) - 6} more streams", "dim"))
    return Group(*parts)


def _head(picture: dict[str, Any], note: str) -> Text:
    owner = f"owned by process {picture['owner']}" if picture["owner"] is not None else "opened by this command: no other process owns it"
    at = time.strftime("%H:%M:%S", time.gmtime(picture["at"]))
    return Text.assemble((picture["warehouse"], "bold"), f"  {owner}  {at} UTC", f"  {note}" if note else "", overflow="ellipsis")


def _tables(tables: list[dict[str, Any]], total: dict[str, Any], known: int, width: int) -> Grid:
    rows = [
        (
            t["name"], amount(t["rows"]), rate(t["rows_per_second"]), amount(t["fresh_rows"]), amount(t["historical_rows"]),
            amount(t["chunks"]), size(t["memory_bytes"]), size(t["disk_bytes"]), amount(t["late_rows"]), amount(t["rejected"]),
            age(t["lag_seconds"]),
        )
        for t in tables
    ]  # fmt: skip
    if known > 1:
        rows.append(
            (
                "all", amount(total["rows"]), rate(total["rows_per_second"]), amount(total["fresh_rows"]),
                amount(total["historical_rows"]), amount(total["chunks"]), size(total["memory_bytes"]), size(total["disk_bytes"]),
                "", "", "",
            )
        )  # fmt: skip
    shown = _fitting(rows, width)
    grid = Grid(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="cyan")
    for i in shown:
        grid.add_column(_COLUMNS[i], justify="left" if i == 0 else "right", no_wrap=True)
    for n, row in enumerate(rows):
        grid.add_row(*(row[i] for i in shown), style="bold" if n == len(tables) else None)
    return grid


def _fitting(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that can be shown whole, by number."""
    wide = [max(len(name), *(len(row[i]) for row in rows)) + _GAP for i, name in enumerate(_COLUMNS)]
    shown = list(range(len(_COLUMNS)))
    for name in _GIVE_WAY:
        if sum(wide[i] for i in shown) - _GAP > width:
            shown.remove(_COLUMNS.index(name))
    return shown


def _streams(streams: list[dict[str, Any]]) -> Grid:
    grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="cyan")
    for name in ("stream", "into", "last batch", "rows in it", ""):
        grid.add_column(name, justify="right" if name in ("last batch", "rows in it") else "left", no_wrap=True, overflow="ellipsis")
    for s in streams:
        grid.add_row(
            Text(visible(s["stream"])), s["table"], f"{s['last_batch']:,}", amount(s["rows"]), "in chunks" if s["flushed"] else "fresh"
        )
    return grid


def _troubles(table: dict[str, Any]) -> list[str]:
    found = []
    if table["flush_failures"]:
        found.append(f"{table['name']}: {table['flush_failures']:,} flushes failed and were tried again; is the disk full?")
    if table["waits"]:
        found.append(f"{table['name']}: {table['waits']:,} inserts had to wait for the disk")
    return found
