"""`tidewheel status`: a warehouse on one screen, once or again and again."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewheel.errors import TidewheelError
from tidewheel.surfaces.arguments import Commands, examples, seconds, there

if TYPE_CHECKING:
    from tidewheel.warehouse import Warehouse

_BETWEEN = 0.5
"""Seconds between the two looks of which rates are made."""


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "status",
        parents=parents,
        help="a warehouse on one screen: tables, rows, rates, chunks, memory, streams",
        description="A warehouse on one screen: its tables, how many rows come in, which are fresh and which in chunks, what they take,\n"
        "and the streams. If another process has the warehouse open, it is asked; else the warehouse is opened for a moment.",
        epilog=examples(
            ["tidewheel status -w data/wh", "tidewheel status -w data/wh --watch 2", "tidewheel status -w data/wh --format json"]
        ),
    )
    parser.add_argument(
        "--watch", nargs="?", type=seconds, const=1.0, metavar="SECONDS", help="look again every so many seconds (1), until Ctrl-C"
    )
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="how to print it (default: table); json: a line each time"
    )


def run(options: argparse.Namespace) -> int:
    root = there(options.warehouse)

    from tidewheel.surfaces.ingest_command import ending
    from tidewheel.surfaces.progress_bar import open_warehouse

    with open_warehouse(root) as warehouse, ending() as ended:
        if options.watch is None:
            from tidewheel.surfaces.status.observation import look, picture

            before = look(warehouse, root)
            ended.wait(_BETWEEN)
            _print(picture(look(warehouse, root), before), options.format, _console())
        else:
            _watch(warehouse, root, options, ended)
    return 0


def _watch(warehouse: Warehouse, root: Path, options: argparse.Namespace, ended: threading.Event) -> None:
    """Until Ctrl-C: in place on a terminal, else one after the other."""
    console = _console()
    pictures = _pictures(warehouse, root, options.watch, ended)
    if options.format == "json":
        for found in pictures:
            if isinstance(found, dict):
                _print(found, options.format, console)
        return
    from rich.text import Text

    from tidewheel.surfaces.status.picture import drawn
    from tidewheel.terminal import Board

    note = f"every {options.watch:g} s; Ctrl-C ends it"
    with Board(console, 0.0) as board:
        for found in pictures:
            if isinstance(found, dict):
                board.show(partial(drawn, found, console.width, console.height, note), partial(drawn, found, console.width))
            else:
                board.show(partial(Text, found), str)  # a trouble that may pass: for people only


def _pictures(warehouse: Warehouse, root: Path, every: float, ended: threading.Event) -> Iterator[dict[str, Any] | str]:
    """One each time; or what is wrong, if it may pass."""
    from tidewheel.surfaces.status.observation import look, picture

    before = None
    while not ended.is_set():
        try:
            now = look(warehouse, root)
            if before is None:
                ended.wait(min(_BETWEEN, every))
                before, now = now, look(warehouse, root)
            yield picture(now, before)
            before = now
        except TidewheelError as e:
            if not e.retryable:
                raise
            yield str(e)
        ended.wait(every)


def _print(found: dict[str, Any], format_: str, console: Any) -> None:
    if format_ == "json":
        print(json.dumps(found), flush=True)
        return
    from tidewheel.surfaces.status.picture import drawn

    console.print(drawn(found, console.width))


def _console() -> Any:
    """As wide as it takes where nobody looks at it on a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)
