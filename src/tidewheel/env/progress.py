"""Progress of long work, for whoever looks at a terminal: nothing for a second, then a bar. Elsewhere nothing at all."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

PATIENCE = 1.0
"""Seconds before a bar is worth looking at."""


class Progress:
    """A context manager; `step` may be called as often as one likes. Writes to standard error."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._show_at = time.monotonic() + PATIENCE if sys.stderr is not None and sys.stderr.isatty() else float("inf")
        self._bar: Any = None
        self._task: Any = None

    def step(self, amount: int = 1) -> None:
        self._done += amount
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        elif time.monotonic() >= self._show_at:
            self._show()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bar

        self._bar = Bar(console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._what, total=self._total, completed=self._done)
        self._bar.start()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
