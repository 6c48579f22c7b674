"""Progress of long work, for whoever looks at a terminal: nothing for a second, then a bar on standard error. Elsewhere nothing at all."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewheel.model.report import Progress

if TYPE_CHECKING:
    from tidewheel.warehouse import Warehouse

PATIENCE = 1.0
"""Seconds before a bar is worth looking at."""


class _Bar:
    """Is told how far the work is, as often as one likes."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._show_at = time.monotonic() + PATIENCE if sys.stderr is not None and sys.stderr.isatty() else float("inf")
        self._drawn: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self._drawn is not None:
            self._drawn.update(self._task, completed=done)
        elif time.monotonic() >= self._show_at:
            from rich.console import Console
            from rich.progress import Progress as Drawn

            self._drawn = Drawn(console=Console(stderr=True), transient=True)
            self._task = self._drawn.add_task(self._what, total=total, completed=done)
            self._drawn.start()

    def close(self) -> None:
        if self._drawn is not None:
            self._drawn.stop()


@contextmanager
def bar(what: str) -> Iterator[Progress]:
    """A bar for work that is done in the `with`; the work calls what it gets."""
    drawn = _Bar(what)
    try:
        yield drawn
    finally:
        drawn.close()


def open_warehouse(root: Path) -> Warehouse:
    """A warehouse with the settings of its folder. An owner that did not close it left a log, and replaying it may take long."""
    from tidewheel.cluster.current_engine import open_engine
    from tidewheel.surfaces.configuration import settings_of
    from tidewheel.warehouse import Warehouse

    with bar("recovering") as progress:
        return Warehouse(open_engine(root, settings_of(root), progress))
