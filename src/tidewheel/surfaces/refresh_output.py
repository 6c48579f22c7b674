"""`tidewheel refresh`: what it prints, and its exit code. The work is done by `tidewheel.derived_table`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewheel.model.refresh_report import RefreshReport
from tidewheel.surfaces.arguments import there
from tidewheel.surfaces.progress_bar import open_warehouse

if TYPE_CHECKING:
    from tidewheel.engine.refresher import RefreshProgress
    from tidewheel.warehouse import Warehouse


def refresh(root: Path, names: Sequence[str], full: bool, watch: bool, every: str, master: str | None, format_: str) -> int:
    """0: all are up to date, 1: one is not."""
    if os.getcwd() not in sys.path:  # modules of definitions lie where people work
        sys.path.insert(0, os.getcwd())
    with open_warehouse(there(root)) as wh:
        if watch:
            return _watch(wh, list(names) or None, every, master, format_)
        with _status() as told:
            report = _once(wh, list(names) or None, full, _session(master), told)
    _show(report, format_)
    return 0 if report.ok else 1


def _once(wh: Warehouse, names: list[str] | None, full: bool, spark: Any, told: RefreshProgress) -> RefreshReport:
    from tidewheel.derived_table import refreshed

    return refreshed(wh._current, names, spark, None, full, told, raises=False)


def _watch(wh: Warehouse, names: list[str] | None, every: str, master: str | None, format_: str) -> int:
    """The owner, and whoever inserts and queries, go before: Java has a low priority."""
    from tidewheel.derived_table import loop
    from tidewheel.spark import background_session

    background_session(master)  # the one that runs from now on; started anew, with this master, should its Java die
    with loop(wh._current, every, names, None, lambda report: _show(report, format_)) as running:
        try:
            running.wait()
        except KeyboardInterrupt:
            running.stop()
            return 1 if running.errors else 0
    return 1


def _session(master: str | None) -> Any:
    """A session on a master that was named; else one is made when it is needed."""
    if master is None:
        return None
    from tidewheel.spark import background_session

    return background_session(master)


def _show(report: RefreshReport, format_: str) -> None:
    print(json.dumps(report.as_json(), default=str) if format_ == "json" else report, flush=True)


@contextmanager
def _status() -> Iterator[RefreshProgress]:
    """A line that says how far it is, for whoever looks at a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda name, done, of: None
        return
    from rich.console import Console

    with Console(stderr=True).status("refreshing …") as status:
        yield lambda name, done, of: status.update(f"refreshing {name}: {done:,} of {of:,} partitions")
