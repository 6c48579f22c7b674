"""`tidewheel check`, `backup` and `restore`: what they print and their exit codes. The work is done by `tidewheel.maintenance`."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from tidewheel.errors import OwnedError
from tidewheel.maintenance.check import check as check_house
from tidewheel.maintenance.check import closed
from tidewheel.maintenance.restore import restore as restore_folder
from tidewheel.model.report import CheckReport
from tidewheel.surfaces.arguments import there
from tidewheel.surfaces.progress_bar import bar, open_warehouse


def check(root: Path, repair: bool, format_: str) -> int:
    """0: all is well, 1: there are problems."""
    root = root.expanduser().resolve()
    try:
        with closed(root) as house, bar("checking") as progress:
            report = check_house(house, repair, progress)
    except OwnedError:  # whoever has it open does it for us, and goes on meanwhile
        with open_warehouse(root) as wh, bar("checking") as progress:
            report = wh.check(repair=repair, progress=progress)
    if format_ == "json":
        print(json.dumps(report.to_dict(), indent=2))
    else:
        _show(report, Console(highlight=False))
    return 0 if report.ok else 1


def backup(root: Path, folder: Path, verify: str) -> int:
    root = there(root)
    with open_warehouse(root) as wh, bar("backing up") as progress:
        print(wh.backup(folder.expanduser().resolve(), verify=verify, progress=progress))
    return 0


def restore(folder: Path, root: Path) -> int:
    with bar("restoring") as progress:
        print(restore_folder(folder, root, progress=progress))
    return 0


def _show(report: CheckReport, console: Console) -> None:
    """The problems as a table on a terminal, as plain lines elsewhere."""
    if not console.is_terminal or not report.problems:
        console.print(str(report), markup=False, soft_wrap=True)
        return
    grid = Grid("", "where", "what", "what to do", show_lines=True)
    for p in report.problems:
        verdict = "[green]repaired[/]" if p.repaired else f"[red]{p.severity}[/]"
        grid.add_row(f"{verdict}\n{p.kind}", escape(p.where), escape(p.what), escape(p.todo))
    console.print(report.summary, markup=False, soft_wrap=True)
    console.print(grid)
