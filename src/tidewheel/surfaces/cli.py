"""The command line: `tidewheel …`. Exit codes: 0 it worked, 1 it failed, 2 the command line was wrong.

Nothing heavy is imported here: `tidewheel --help` answers at once, and each command imports what it needs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tidewheel.errors import TidewheelError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = _parser()
    try:
        options = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has already said why
        return stop.code if isinstance(stop.code, int) else 2
    if options.version:
        print(f"tidewheel {_version()}")
        return 0
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        return _demo(options)
    except KeyboardInterrupt:
        print("tidewheel: interrupted", file=sys.stderr)
        return 1
    except (TidewheelError, OSError) as error:
        if getattr(options, "debug", False):
            raise
        print(f"tidewheel: {_one_line(error)}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    # `--debug` may stand before or after the command: SUPPRESS keeps the second parser from undoing the first.
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error")
    parser = argparse.ArgumentParser(
        prog="tidewheel", parents=[shared], description="A real-time stream warehouse: rows can be queried the moment they arrive."
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="command", title="commands")
    demo = commands.add_parser(
        "demo",
        parents=[shared],
        help="insert a simulated taxi fleet and query it at the same time",
        description="Insert a simulated taxi fleet and query it at the same time. Ctrl-C ends it early, with the summary.",
    )
    demo.add_argument("--seconds", type=_seconds, default=20.0, metavar="N", help="how long to insert (default: 20)")
    demo.add_argument("--rows-per-second", type=_count, default=200_000, metavar="N", help="how fast to insert (default: 200000)")
    demo.add_argument("--keep", type=Path, metavar="DIR", help="make the warehouse in DIR and keep it (default: a temporary folder)")
    demo.add_argument("--seed", type=_seed, default=1, metavar="N", help="another number, another fleet (default: 1)")
    return parser


def _demo(options: argparse.Namespace) -> int:
    from tidewheel.surfaces import demo

    return demo.run(demo.Request(options.seconds, options.rows_per_second, options.keep, options.seed))


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("tidewheel")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _seconds(text: str) -> float:
    value = _number(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")
    return value


def _count(text: str) -> int:
    value = _number(text)
    if not 1 <= value < 1e12 or value != int(value):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(value)


def _seed(text: str) -> int:
    value = _number(text)
    if not 0 <= value < 2**53 or value != int(value):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, not {text!r}")
    return int(value)


def _number(text: str) -> float:
    try:
        return float(text.replace("_", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None


if __name__ == "__main__":
    sys.exit(main())
