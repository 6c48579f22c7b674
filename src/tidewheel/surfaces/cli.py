"""The command line: `tidewheel …`. Exit codes: 0 it worked, 1 it failed, 2 the command line was wrong.

Nothing heavy is imported here: `tidewheel --help` answers at once, and each command imports what it needs.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import os
import select
import sys
from collections.abc import Callable, Sequence

from tidewheel.errors import TidewheelError
from tidewheel.surfaces import ingest_command
from tidewheel.surfaces.arguments import Commands, Parser, debug, examples, which
from tidewheel.surfaces.commands import (
    backup,
    check,
    completion,
    create,
    demo,
    describe,
    doctor,
    explain,
    load,
    refresh,
    restore,
    status,
    torture,
)
from tidewheel.surfaces.shell import command_line as sql

Add = Callable[[Commands, list[argparse.ArgumentParser]], None]
Run = Callable[[argparse.Namespace], int]

_COMMANDS: dict[str, tuple[Add, Run]] = {
    "create": (create.add, create.run),
    "load": (load.add, load.run),
    "ingest": (ingest_command.add, ingest_command.run),
    "sql": (sql.add, sql.run),
    "status": (status.add, status.run),
    "describe": (describe.add, describe.run),
    "explain": (explain.add, explain.run),
    "refresh": (refresh.add, refresh.run),
    "check": (check.add, check.run),
    "backup": (backup.add, backup.run),
    "restore": (restore.add, restore.run),
    "demo": (demo.add, demo.run),
    "torture": (torture.add, torture.run),
    "doctor": (doctor.add, doctor.run),
    "completion": (completion.add, completion.run),
}
"""In the order in which they are listed."""

_WITHOUT_WAREHOUSE = {"restore", "demo", "torture", "completion"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if argv is None:
        _be_short()
    _open_streams()
    parser = make_parser()
    try:
        options = parser.parse_args(_as_flags(sys.argv[1:] if argv is None else argv))
        if not getattr(options, "warehouse", True) and not getattr(options, "no_warehouse", False):
            parser.error("which warehouse? Give -w PATH, or set TIDEWHEEL_WAREHOUSE")
    except SystemExit as stop:  # argparse has already said why
        return stop.code if isinstance(stop.code, int) else 2
    if options.version:
        print(f"tidewheel {_version()}")
        return 0
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    options.parser = parser  # of all commands: what can be typed is more than one of them
    try:
        code = _COMMANDS[options.command][1](options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("tidewheel: interrupted", file=sys.stderr)
        return 1
    except (TidewheelError, OSError) as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():  # it has enough, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        if getattr(options, "debug", False):
            raise
        print(f"tidewheel: {_one_line(error)}", file=sys.stderr)
        return 1
    except UnicodeEncodeError:  # a name or a text that was typed, since all that is printed can be
        if getattr(options, "debug", False) or _is_text(sys.argv if argv is None else argv):
            raise
        print("tidewheel: a text of the command line is not UTF-8. If it is right, the locale is not: try LC_ALL=C.UTF-8", file=sys.stderr)
        return 1


def _as_flags(words: Sequence[str]) -> Sequence[str]:
    """`help`, `help load` and `version` are what their flags are."""
    match list(words):
        case ["help", *command]:
            return [*command[:1], "--help"]
        case ["version"]:
            return ["--version"]
    return words


def make_parser() -> Parser:
    """All commands with all their flags."""
    shared = debug()
    parser = Parser(
        prog="tidewheel",
        parents=[shared],
        description="A real-time stream warehouse: rows can be queried the moment they arrive.",
        epilog=examples(
            [
                "tidewheel load taxi 'rides/*.csv' -w data/wh --time ts --key plate",
                'tidewheel sql -w data/wh -c "SELECT count(*) FROM taxi"',
                "tidewheel status -w data/wh --watch",
            ]
        ),
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="command", title="commands", parser_class=Parser)
    for name, (add, _) in _COMMANDS.items():
        add(commands, [shared] if name in _WITHOUT_WAREHOUSE else [shared, which()])
    return parser


def _be_short() -> None:
    """This process is for one command: most of what it makes stays to its end, so there is little to look for again and again, and at the
    end nothing. That saves a sixth of a short one."""
    gc.set_threshold(20_000, 20, 20)
    atexit.register(_end)


def _end() -> None:
    if "duckdb" not in sys.modules:  # which complains about what is left
        gc.freeze()


def _open_streams() -> None:
    """A stream that whoever started us closed is an empty one; what the encoding of a terminal does not have is printed as `\\u2026`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 — as long as the process
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _reader_is_gone() -> bool:
    """Whether nobody reads what this process prints any more."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _is_text(words: Sequence[str]) -> bool:
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        return False
    return True


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("tidewheel")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if not text.isprintable():  # names of columns come from anywhere, and a terminal would obey them
        from tidewheel.model.visible_text import visible

        text = visible(text)
    return text


if __name__ == "__main__":
    sys.exit(main())
