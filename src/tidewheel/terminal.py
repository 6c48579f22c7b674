"""What commands and programs show while they run: in place on a terminal, as plain lines elsewhere. Used by one thread at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

Facts = Iterable[tuple[str, str]]
"""Names and figures."""

LINE_EVERY = 5.0
"""Seconds between two plain lines."""


class Board:
    """A picture that changes at its place; where there is no terminal, a line from time to time.

    A context manager. `every`: seconds between two lines, 0 for one each time; the first comes after so many seconds, or `at_once`.
    With `leaves`, the last picture goes when the board does.
    """

    def __init__(self, console: Console, every: float = LINE_EVERY, *, at_once: bool = False, leaves: bool = False) -> None:
        self._console = console
        self._every = every
        self._next = 0.0 if at_once else every
        self._began = time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=leaves) if console.is_terminal else None

    def __enter__(self) -> Board:
        self._began = time.monotonic()
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, picture: Callable[[], RenderableType], line: Callable[[], RenderableType], at: float | None = None) -> None:
        """Draw the picture, or print the line if it is time; an empty line is not printed. `at`: seconds since the beginning."""
        if self._live is not None:
            self._live.update(picture(), refresh=True)
            return
        at = time.monotonic() - self._began if at is None else at
        if at < self._next:
            return
        self._next = at - at % self._every + self._every if self._every else at
        if found := line():
            say(self._console, found) if isinstance(found, str) else self._console.print(found)


def say(console: Console, text: str, style: str = "") -> None:
    """A sentence, as it is: wrapped where people read, one line where programs do."""
    console.print(text, style=style, markup=False, soft_wrap=not console.is_terminal)


def point(console: Console, text: str) -> None:
    """One of several sentences, with a mark before it."""
    if not console.is_terminal:
        say(console, f"• {text}")
        return
    grid = Grid.grid(padding=(0, 1))
    grid.add_row("•", Text(text))
    console.print(grid)


def facts_grid(facts: Facts) -> Grid:
    """A line for each fact, the figures flush right."""
    grid = Grid(show_header=False, box=None, padding=(0, 2))
    grid.add_column(style="cyan")
    grid.add_column(justify="right")
    for name, value in facts:
        grid.add_row(name, value)
    return grid


def facts_line(facts: Facts) -> str:
    """All facts in one line, for logs."""
    return "  ".join(f"{name} {value}" for name, value in facts)
