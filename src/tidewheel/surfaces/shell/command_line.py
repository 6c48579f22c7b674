"""`tidewheel sql`: what can be said on the command line, and which way the statements come."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tidewheel.errors import InputError, TidewheelError
from tidewheel.surfaces.arguments import Commands, seconds, there

if TYPE_CHECKING:
    from tidewheel.surfaces.shell.opening import AwaitedWarehouse
    from tidewheel.surfaces.shell.session import ShellSession
    from tidewheel.surfaces.shell.statements import Piece

EXAMPLES = """\
examples:
  tidewheel sql -w data/wh
  tidewheel sql -w data/wh -c "SELECT plate, avg(speed) FROM taxi WHERE plate < 9 GROUP BY 1" --format csv
  tidewheel sql -w data/wh -f report.sql --output report.parquet
  echo "SHOW TABLES" | tidewheel sql -w data/wh --format json

In the shell, \\? lists what else there is: \\d, \\watch, \\explain …"""


def add(commands: Commands, parents: list[argparse.ArgumentParser]) -> None:
    """The command's options."""
    parser = commands.add_parser(
        "sql",
        parents=parents,
        help="ask in SQL: in a shell, or from the command line, a file or a pipe",
        description="Ask a warehouse in SQL, also while other processes write to it. Without -c and -f, on a terminal, it is a shell with\n"
        "history and completion; from a pipe, statements are read from standard input. The first error ends what is not typed.",
        epilog=EXAMPLES,
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("-c", dest="statements", action="append", metavar="STATEMENT", help="run this, and end; may be repeated")
    source.add_argument("-f", dest="file", type=Path, metavar="FILE", help="run the statements of a file (-: standard input), and end")
    parser.add_argument(
        "--format", choices=("table", "json", "csv", "arrow", "markdown"), default="table", help="how to print answers (default: table)"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the answer into a file: .parquet, .csv, .json, .jsonl, .arrow or .md"
    )
    parser.add_argument("--timeout", type=seconds, metavar="N", help="end a statement that takes longer than so many seconds")
    parser.add_argument("--timing", action="store_true", help="also without a terminal: how long each took, and what was read")


def run(options: argparse.Namespace) -> int:
    """Run what was given, or what is typed."""
    typed = not options.statements and options.file is None and sys.stdin.isatty() and sys.stdout.isatty()
    if options.output is not None:
        from tidewheel.surfaces.shell.answer_file import format_of

        if typed:
            print("tidewheel: --output is for -c, -f and standard input; in the shell, say \\o FILE", file=sys.stderr)
            return 2
        format_of(options.output)
    source = None if typed else _pieces(options)
    root = there(options.warehouse)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of NumPy's, which makes a thread for each core, and needs none of them here
    debug = bool(getattr(options, "debug", False))
    if source is None:
        return _shell(root, options, debug)

    from tidewheel.surfaces.progress_bar import open_warehouse
    from tidewheel.surfaces.shell.screen import Look, Screen
    from tidewheel.surfaces.shell.session import ShellSession

    screen = Screen(Look(options.format, options.timing), interactive=False)
    with open_warehouse(root) as warehouse:
        return _batch(ShellSession(lambda: warehouse, screen, options.timeout), source, options, debug)


def _batch(session: ShellSession, source: Iterator[Piece], options: argparse.Namespace, debug: bool) -> int:
    """One after the other, until the first error."""
    asked = False
    for piece in source:
        try:
            if options.output is not None and not piece.is_command:
                if asked:
                    raise InputError(f"--output takes the answer to one statement, and there is another: {piece.text[:60]}")
                session.output, asked = options.output, True
            session.run(piece)
        except BrokenPipeError:  # whoever reads it has enough: cli knows what to do
            raise
        except (TidewheelError, OSError) as e:
            if debug:
                raise
            place = f"{options.file}, line {piece.line}: " if options.file is not None else ""
            session.screen.wrong(f"tidewheel: {place}{e}")
            return 1
        if session.over:
            break
    return 0


def _shell(root: Path, options: argparse.Namespace, debug: bool) -> int:
    """The loop over typed lines, until \\q or Ctrl-D. Errors and Ctrl-C end the statement, not the shell.

    The warehouse is opened while the first line is typed.
    """
    from tidewheel.surfaces.shell.editor import Editor, NotOpenError
    from tidewheel.surfaces.shell.opening import AwaitedWarehouse
    from tidewheel.surfaces.shell.statements import typed
    from tidewheel.surfaces.shell.suggestions import Names

    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started us may ignore it, and we would too
    editor = Editor(Names(lambda: opening.warehouse()))
    opening = AwaitedWarehouse(root, editor.leave)
    session: ShellSession | None = None
    try:
        print(f"Tidewheel: {root}. \\? for help, \\q to leave.", flush=True)
        while session is None or not session.over:
            running = False
            try:
                pieces = typed(editor.ask())
                running = True
                session = session or _session(opening, options)
                for piece in pieces:
                    session.run(piece)
            except KeyboardInterrupt:
                if running:
                    print("cancelled", file=sys.stderr) if session is None else session.screen.wrong("cancelled")
            except EOFError:
                break
            except (TidewheelError, OSError) as e:
                if session is None or opening.error is not None:
                    raise
                if debug:
                    traceback.print_exc()
                session.screen.wrong(f"error: {e}")
    except NotOpenError:
        opening.warehouse()  # which says why
    finally:
        opening.close()
    return 0


def _session(opening: AwaitedWarehouse, options: argparse.Namespace) -> ShellSession:
    from tidewheel.surfaces.shell.screen import Look, Screen
    from tidewheel.surfaces.shell.session import ShellSession

    return ShellSession(opening.warehouse, Screen(Look(options.format, True), interactive=True), options.timeout)


def _pieces(options: argparse.Namespace) -> Iterator[Piece]:
    from tidewheel.surfaces.shell.statements import pieces_of

    if options.statements:
        return (piece for text in options.statements for piece in pieces_of(text.splitlines(keepends=True)))
    if options.file is None or str(options.file) == "-":
        return pieces_of(_lines(sys.stdin))
    try:
        return pieces_of(options.file.read_text(encoding="utf-8").splitlines(keepends=True))
    except UnicodeDecodeError as e:
        raise InputError(f"{options.file} is not a file of statements: it is not UTF-8 text, at byte {e.start:,}") from None


def _lines(stream: TextIO) -> Iterator[str]:
    try:
        yield from stream
    except UnicodeDecodeError:
        raise InputError("standard input is not UTF-8 text") from None
