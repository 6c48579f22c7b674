"""Parts of command lines: the parser, the flags that commands share, and the values that flags take.

Nothing heavy is imported here: `--help` answers at once.
"""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

Commands = Any
"""The holder of sub-commands, for which argparse has no public name."""


ELSEWHERE = {
    "tables": "The tables of a warehouse are in: tidewheel status, and tidewheel sql -c 'SHOW TABLES'",
    "drop": "A table is dropped by: tidewheel sql -c 'DROP TABLE name'",
    "insert": "Rows come in by: tidewheel load TABLE FILE, and tidewheel sql -c 'INSERT INTO …'",
    "import": "Files come in by: tidewheel load TABLE FILE",
    "export": "An answer goes to a file by: tidewheel sql -c 'SELECT …' --output FILE",
    "query": "Questions are asked by: tidewheel sql -c 'SELECT …'",
    "select": "Questions are asked by: tidewheel sql -c 'SELECT …'",
    "shell": "The shell is: tidewheel sql",
    "init": "A warehouse is made by the first: tidewheel load or tidewheel create",
    "open": "A warehouse is looked at by: tidewheel status, and tidewheel sql",
    "head": "Some rows of a table are: tidewheel sql -c 'FROM name LIMIT 10'",
}
"""Commands that other tools have, and what does the like."""


class Parser(argparse.ArgumentParser):
    """argparse's, without abbreviations, which would end when a flag is added; what is mistyped is told with the nearest name."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        as_written = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
        super().__init__(*arguments, **{**as_written, **options})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The parsed options, or `SystemExit` after an error was printed."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            told = commands_of(self).get(getattr(options, "command", None) or "", self)
            told.error(f"there is no {unknown[0]!r} here.{_meant(unknown[0], flags_of(told))}")
        return options

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        more = f"{near(str(value), known)} Choose from {', '.join(known)}"
        if isinstance(action, argparse._SubParsersAction):
            more = f" {ELSEWHERE[value]}" if value in ELSEWHERE else more
            raise argparse.ArgumentError(None, f"there is no command {value!r}.{more}")
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}.{more}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\nSee {self.prog} --help\n")


def _meant(unknown: str, flags: list[str]) -> str:
    """What was probably meant by a word that no flag stands before."""
    if "-c" in flags and len(unknown.split()) > 1:
        return " A statement comes behind -c"
    if "-w" in flags and not unknown.startswith("-") and Path(unknown).is_dir():
        return " The warehouse comes behind -w"
    return near(unknown.partition("=")[0], flags)


def near(text: str, known: Iterable[str]) -> str:
    """' Did you mean …?' when something near is known, else the empty string."""
    found = difflib.get_close_matches(text, list(known), n=1, cutoff=0.5)
    return f" Did you mean {found[0]!r}?" if found else ""


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The sub-commands of a parser, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    return [flag for action in parser._actions for flag in action.option_strings]


# ---- flags that commands share ------------------------------------------------------------------------------


def debug() -> argparse.ArgumentParser:
    """The flag of all commands. It may stand before or after the command: SUPPRESS keeps the second parser from undoing the first."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error")
    return shared


def which() -> argparse.ArgumentParser:
    """The flag of the commands that need a warehouse."""
    shared = argparse.ArgumentParser(add_help=False)
    named = os.environ.get("TIDEWHEEL_WAREHOUSE")
    shared.add_argument(
        "-w", "--warehouse", type=Path, metavar="PATH", default=named and Path(named), help="the folder (default: $TIDEWHEEL_WAREHOUSE)"
    )
    return shared


def there(given: Path, otherwise: str = "make one with `tidewheel create`") -> Path:
    """The root of a warehouse that is there: a name that was mistyped should not make a new one."""
    from tidewheel.errors import NotFoundError
    from tidewheel.model.chunk_names import CATALOG

    root = given.expanduser().resolve()
    if not (root / CATALOG).is_file():
        raise NotFoundError(
            f"there is no warehouse in {root}: it has no {CATALOG}. Give the folder that was given to tw.open, or {otherwise}"
        )
    return root


# ---- values -------------------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    value = number(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")
    return value


def count(text: str) -> int:
    value = number(text)
    if not 1 <= value < 1e12 or value != int(value):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(value)


def few(text: str) -> int:
    value = count(text)
    if value > 64:
        raise argparse.ArgumentTypeError(f"must be at most 64, not {text!r}")
    return value


def seed(text: str) -> int:
    value = number(text)
    if not 0 <= value < 2**53 or value != int(value):
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, not {text!r}")
    return int(value)


def number(text: str) -> float:
    try:
        return float(text.replace("_", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}") from None


def name_list(text: str) -> list[str]:
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"must be names with commas between them, not {text!r}")
    return found


def examples(lines: Sequence[str]) -> str:
    """The examples under `--help`."""
    return "\n  ".join(["example:" if len(lines) == 1 else "examples:", *lines])
