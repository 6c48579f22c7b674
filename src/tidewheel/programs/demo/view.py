"""The demo's screen while it runs: in place on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table as Grid
from rich.text import Text

from tidewheel import terminal
from tidewheel.model.figures import amount, counted
from tidewheel.programs.demo.numbers import DemoRequest, Numbers
from tidewheel.terminal import Board, facts_line

_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDE = 24  # characters of a bar, and seconds that a sparkline shows


class DemoScreen:
    """Used by the main thread only. A context manager, while the numbers are shown."""

    def __init__(self, console: Console, request: DemoRequest) -> None:
        self._console = console
        self._request = request
        self._board = Board(console, 2.0 if request.seconds < 15 else 5.0, at_once=True)

    def say(self, text: str, style: str = "") -> None:
        terminal.say(self._console, text, style)

    def point(self, text: str) -> None:
        terminal.point(self._console, text)

    @contextmanager
    def waiting(self) -> Iterator[WaitDisplay]:
        """While something gets ready: what it is, and for how long already."""
        wait = WaitDisplay(None if self._console.is_terminal else self._console)
        if not self._console.is_terminal:
            yield wait
            return
        with Live(wait, console=self._console, refresh_per_second=10, transient=True):
            yield wait

    def show(self, numbers: Numbers, note: str = "") -> None:
        """The numbers now."""
        if numbers.now is not None:
            picture = partial(panel, self._request, numbers, note, self._console.options.ascii_only)
            self._board.show(picture, partial(line, self._request, numbers), numbers.now.seconds)

    def __enter__(self) -> DemoScreen:
        self._board.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._board.__exit__(kind, error, trace)


class WaitDisplay:
    """The display of a wait. `doing` may be called by any thread; without a terminal it prints a line each time."""

    def __init__(self, plain: Console | None) -> None:
        self._plain = plain
        self._began = time.monotonic()
        self._spinner = Spinner("dots", style="cyan")
        self._text = ""

    def doing(self, text: str) -> None:
        self._text = text
        if self._plain is not None:
            self._plain.print(f"{text}…", markup=False)

    def __rich__(self) -> RenderableType:
        self._spinner.update(text=Text(f"{self._text}…  {time.monotonic() - self._began:.0f} s"))
        return self._spinner


def line(request: DemoRequest, numbers: Numbers) -> str:
    """All of it in one line, for logs."""
    now = numbers.now
    assert now is not None
    lag, lag99 = numbers.lag(recent=True)
    p50, p99 = numbers.latency(recent=True)
    facts = {
        "seconds": f"{min(now.seconds, request.seconds):.0f}/{request.seconds:g}",
        "rows/s": f"{numbers.rate:,.0f}",
        "row to visible s": f"{lag:.2f} (p99 {lag99:.2f})",
        "query ms": f"{p50:.1f} (p99 {p99:.1f})",
        "queries": f"{len(numbers.queries):,}",
        "fresh rows": f"{now.state.fresh_rows:,}",
        "historical rows": f"{now.state.historical_rows:,}",
        "chunks": f"{now.state.chunks:,}",
        "late": f"{now.late:,}",
        "rejected": f"{now.metrics.rejected:,}",
    }
    return facts_line(facts.items())


def panel(request: DemoRequest, numbers: Numbers, note: str = "", ascii_only: bool = False) -> RenderableType:
    """All of it as a picture."""
    now = numbers.now
    if now is None:
        return Text("")
    lag, lag99 = numbers.lag(recent=True)
    p50, p99 = numbers.latency(recent=True)
    grid = Grid.grid(padding=(0, 2))
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column(justify="right", style="bold", no_wrap=True)
    grid.add_column(no_wrap=True, style="green", min_width=_WIDE)
    grid.add_column(style="dim", no_wrap=True, overflow="ellipsis")

    def spark(values: Sequence[float | None]) -> str:
        return "" if ascii_only else sparkline(values[-_WIDE:])

    def bar(part: int) -> str:
        return share_bar(part, now.state.rows, _WIDE, ascii_only)

    chunks = counted(now.state.chunks, "chunk")
    grid.add_row("rows a second", f"{numbers.rate:,.0f}", spark(numbers.rates), f"{request.rows_per_second:,} are sent")
    grid.add_row("row → visible", f"{lag:.2f} s", spark(numbers.lag_medians), f"99 of 100: {lag99:.2f} s")
    grid.add_row("query", f"{p50:.1f} ms", spark(numbers.query_medians), f"99 of 100: {p99:.1f} ms")
    grid.add_row("queries", f"{len(numbers.queries):,}", "", f"{amount(numbers.rows_read)} rows read")
    grid.add_row()
    grid.add_row("fresh rows", f"{now.state.fresh_rows:,}", bar(now.state.fresh_rows), "in memory, indexed")
    grid.add_row(
        "historical rows",
        f"{now.state.historical_rows:,}",
        bar(now.state.historical_rows),
        f"in {chunks} on disk",
    )
    grid.add_row("late rows", f"{now.late:,}", "", "found by their time")
    grid.add_row("rejected rows", f"{now.metrics.rejected:,}", "", "kept with the reason")
    done = min(1.0, now.seconds / request.seconds)
    foot = Text.assemble(
        (share_bar(round(done * 1000), 1000, 40, ascii_only), "cyan"),
        f"  {note or f'{min(now.seconds, request.seconds):.0f} of {request.seconds:g} s'}",
    )
    return Panel(
        Group(flow(request), Text(), grid, Text(), foot), title="Tidewheel", title_align="left", border_style="cyan", padding=(1, 2)
    )


def flow(request: DemoRequest) -> Text:
    """The way of a row."""
    stations = ["taxis", "JSON files", "Spark" if request.spark else "insert", "warehouse"]
    return Text(" → ").join(Text(station, "bold") for station in stations) + Text(" ← ") + Text("queries of another process", "bold")


def sparkline(values: Sequence[float | None]) -> str:
    """One character per value, from 0 to the largest; a gap where there is none."""
    top = max((value for value in values if value is not None), default=0.0) or 1.0
    return "".join(" " if value is None else _BLOCKS[round(value / top * (len(_BLOCKS) - 1))] for value in values)


def share_bar(part: int, whole: int, width: int, ascii_only: bool = False) -> str:
    """A bar that is full to the share that a part is of the whole; something is never nothing."""
    full, empty = ("#", "-") if ascii_only else ("█", "░")
    filled = min(width, max(round(width * part / whole), 1 if part else 0)) if whole else 0
    return full * filled + empty * (width - filled)
