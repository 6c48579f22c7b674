"""The command line: `tidewheel …`. Exit codes: 0 it worked, 1 it failed, 2 the command line was wrong.

Nothing heavy is imported here: `tidewheel --help` answers at once, and each command imports what it needs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tidewheel.errors import TidewheelError
from tidewheel.surfaces import ingest
from tidewheel.surfaces.shell import options as sql


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = _parser()
    try:
        options = parser.parse_args(argv)
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
    try:
        return _COMMANDS[options.command](options)
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
        help="stream a simulated taxi fleet through Spark and query it at the same time",
        description="Stream a simulated taxi fleet through Spark into a warehouse, while another process queries it. Ctrl-C ends it early, "
        "with the summary.",
    )
    demo.add_argument("--seconds", type=_seconds, default=45.0, metavar="N", help="how long the fleet drives (default: 45)")
    demo.add_argument("--rows-per-second", type=_count, default=20_000, metavar="N", help="how much it sends (default: 20000)")
    demo.add_argument("--keep", type=Path, metavar="DIR", help="make the warehouse in DIR and keep it (default: a temporary folder)")
    demo.add_argument("--seed", type=_seed, default=1, metavar="N", help="another number, another fleet (default: 1)")
    demo.add_argument("--without-spark", action="store_true", help="insert the rows without Spark")
    ingest.add(commands, [shared, _which()])
    sql.add(commands, [shared, _which()])
    _add_care(commands, shared)
    _add_doctor(commands, shared)
    _add_torture(commands, shared)
    return parser


def _which() -> argparse.ArgumentParser:
    """Of the commands that need a warehouse."""
    which = argparse.ArgumentParser(add_help=False)
    named = os.environ.get("TIDEWHEEL_WAREHOUSE")
    which.add_argument(
        "-w", "--warehouse", type=Path, metavar="PATH", default=named and Path(named), help="the folder (default: $TIDEWHEEL_WAREHOUSE)"
    )
    return which


def _add_care(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """The commands that keep a warehouse whole."""
    which = _which()
    check = commands.add_parser(
        "check",
        parents=[shared, which],
        help="read all of a warehouse and say what is damaged",
        description="Read all of a warehouse, and say what is damaged and what to do. Nothing is changed. "
        "Exit code 0: all is well; 1: there are problems.",
    )
    check.add_argument("--repair", action="store_true", help="move files that no table knows into quarantine/; nothing is deleted")
    check.add_argument("--format", choices=("table", "json"), default="table", help="how to print the report (default: table)")
    backup = commands.add_parser(
        "backup",
        parents=[shared, which],
        help="back a warehouse up into a folder",
        description="Back a warehouse up into a folder that is empty, or that has an earlier backup of it: then only what is new is added.",
    )
    backup.add_argument("folder", type=Path, metavar="DIR", help="the folder of the backup")
    backup.add_argument("--verify", choices=("all", "new"), default="all", help="which files of the backup to read (default: all)")
    restore = commands.add_parser(
        "restore",
        parents=[shared],
        help="make a warehouse of a backup",
        description="Make a warehouse of a backup; every byte is compared with what was backed up.",
    )
    restore.add_argument("folder", type=Path, metavar="DIR", help="the folder of the backup")
    restore.add_argument("root", type=Path, metavar="ROOT", help="the folder of the new warehouse: missing or empty")


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    doctor = commands.add_parser(
        "doctor",
        parents=[shared, _which()],
        help="look at this machine and say what to do so that everything works",
        description="Look at Python, packages, Java, memory, disk and, with -w, the folder of a warehouse, and say what to do. Nothing is "
        "changed. Exit code 0: all is well, or nearly; 1: something will not work.",
    )
    doctor.add_argument("--spark", action="store_true", help="also start Spark and run a small job (takes some seconds)")
    doctor.set_defaults(no_warehouse=True)


def _add_torture(commands: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser) -> None:
    """The crash test that users run on their own machine."""
    torture = commands.add_parser(
        "torture",
        parents=[shared],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        help="kill an ingest again and again, and prove that nothing it acknowledged is lost",
        description="Kill an ingest with SIGKILL again and again, at random moments. After every restart all rows are read and\n"
        "compared with what was acknowledged. Ctrl-C ends it early, with the proof. Exit code 0: nothing is wrong; 1: something is.",
        epilog="example:\n  tidewheel torture --seconds 60 --durability fsync --servers 2 --seed 7",
    )
    torture.add_argument("--seconds", type=_seconds, default=60.0, metavar="N", help="how long to go on (default: 60)")
    torture.add_argument("--kills", type=_count, default=sys.maxsize, metavar="N", help="end after so many kills")
    torture.add_argument("--seed", type=_seed, default=1, metavar="N", help="another number, other rows and kills (default: 1)")
    torture.add_argument(
        "--durability", choices=("process", "fsync", "memory"), default="process",
        help="what to prove (default: process); memory promises nothing, and shows that loss is found",
    )  # fmt: skip
    torture.add_argument("--streams", type=_few, default=3, metavar="N", help="threads that insert (default: 3)")
    torture.add_argument("--servers", type=_few, default=1, metavar="N", help="indexing servers (default: 1)")
    torture.add_argument("--keep", type=Path, metavar="DIR", help="work in DIR, and keep the last warehouse and its journal there")


def _doctor(options: argparse.Namespace) -> int:
    from tidewheel.surfaces.doctor import doctor

    return doctor(str(options.warehouse) if options.warehouse else None, options.spark)


def _demo(options: argparse.Namespace) -> int:
    from tidewheel.surfaces.demo import command, numbers

    return command.run(
        numbers.Request(options.seconds, options.rows_per_second, options.keep, options.seed, not options.without_spark)
    )  # fmt: skip


def _check(options: argparse.Namespace) -> int:
    from tidewheel.surfaces import care

    return care.check(options.warehouse, options.repair, options.format)


def _backup(options: argparse.Namespace) -> int:
    from tidewheel.surfaces import care

    return care.backup(options.warehouse, options.folder, options.verify)


def _restore(options: argparse.Namespace) -> int:
    from tidewheel.surfaces import care

    return care.restore(options.folder, options.root)


def _torture(options: argparse.Namespace) -> int:
    from tidewheel.surfaces.torture import command, drive

    request = drive.Request(
        options.seconds, options.kills, options.seed, options.durability, options.streams, options.servers, options.keep
    )  # fmt: skip
    return command.run(request)


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


def _few(text: str) -> int:
    value = _count(text)
    if value > 64:
        raise argparse.ArgumentTypeError(f"must be at most 64, not {text!r}")
    return value


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


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "ingest": ingest.run,
    "sql": sql.run,
    "demo": _demo,
    "check": _check,
    "backup": _backup,
    "restore": _restore,
    "torture": _torture,
    "doctor": _doctor,
}


if __name__ == "__main__":
    sys.exit(main())
