"""One name, one thing: no two modules of the house share a name, and no two classes do."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import tidewheel

HOUSE = Path(tidewheel.__file__).parent
FILES = sorted(HOUSE.rglob("*.py"))

MODULES = {
    "__init__": "every package has one",
    "kernels": "Numba may be imported by modules of this name alone: an import contract",
}

COMMANDS = HOUSE / "surfaces" / "commands"
"""A module in here is named after its command, whatever else has that name."""

CLASSES: dict[str, str] = {}
"""Names that two classes may share, each with the reason."""


def shared(names: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """The names that several files have, with the files."""
    found = defaultdict(list)
    for name, file in names:
        found[name].append(str(file.relative_to(HOUSE)))
    return {name: files for name, files in found.items() if len(files) > 1}


def check(found: dict[str, list[str]], exceptions: dict[str, str]) -> None:
    assert {name: files for name, files in found.items() if name not in exceptions} == {}, "give one of them another name"
    assert [name for name in exceptions if name not in found] == [], "no exceptions any more: take them off the list"


def test_no_two_modules_share_a_name() -> None:
    check(shared((file.stem, file) for file in FILES if file.parent != COMMANDS), MODULES)


def test_no_two_classes_share_a_name() -> None:
    """Those that begin with an underscore are known to their own module alone."""
    defined = ((node.name, file) for file in FILES for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef))
    check(shared((name, file) for name, file in defined if not name.startswith("_")), CLASSES)
