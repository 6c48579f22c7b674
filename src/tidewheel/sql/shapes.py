"""Plain statements that differ only in their constants are parsed once: parsing takes longer than reading a few rows.

A statement's shape is its text with a stand-in for each whole number, decimal and quoted text. If the shape is that of a direct statement,
and each stand-in is found once among its literals, the constants of every statement of this shape belong in the same places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import duckdb

from tidewheel.errors import QueryError
from tidewheel.sql.direct import Direct
from tidewheel.sql.statement import Statement, parse

_LONGEST = 2_000
"""Characters of a statement that is looked at."""
_NUMBER = re.compile(r"\d{1,19}(?:\.\d{1,8})?(?![\w.])")
_TEXT = re.compile(r"'[^'\\]*'(?!')")
_BEFORE = re.compile(r"[\w.'$?&#@\\]")
"""What makes something else of a constant that follows it."""
_FIRST = 70_000_000

Known = tuple[str, Direct, tuple[str, ...]]
"""A table, a statement with stand-ins, and the texts of these as literals, in the order of the statement."""


def direct_of(text: str) -> tuple[str, Direct] | None:
    """The table and the parts of a direct statement, by its shape; None if it has to be parsed."""
    if len(text) > _LONGEST or not text.isascii() or "\0" in text:
        return None
    shape, constants = _shape(text)
    known = _parsed(shape, len(constants)) if constants else None
    if known is None:
        return None
    table, direct, places = known
    return table, replace(direct, where=_filled(direct.where, dict(zip(places, constants, strict=True))))


def _shape(text: str) -> tuple[str, list[str]]:
    made, constants, after = list[str](), list[str](), 0
    for at, kind in duckdb.tokenize(text):
        pattern = _NUMBER if kind == duckdb.token_type.numeric_const else _TEXT if kind == duckdb.token_type.string_const else None
        found = pattern.match(text, at) if pattern is not None else None
        if found is None or at < after or at and _BEFORE.match(text, at - 1):
            continue
        constants.append(found[0].strip("'"))
        made += [text[after:at], _stand_in(len(constants) - 1, found[0])]
        after = found.end()
    return "".join(made) + text[after:], constants


def _stand_in(number: int, constant: str) -> str:
    if constant.startswith("'"):
        return f"'·{number}'"
    return f"{_FIRST + number}{'.5' if '.' in constant else ''}"


@lru_cache(maxsize=512)
def _parsed(shape: str, count: int) -> Known | None:
    try:
        statement = parse(shape)
    except QueryError:
        return None
    if not isinstance(statement, Statement) or statement.direct is None or len(statement.tables) != 1 or statement.direct.limit is not None:
        return None
    literals = list(_literals(statement.direct.where))
    places = []
    for number in range(count):
        own = [text for text in literals if text.removeprefix("-") in (f"{_FIRST + number}", f"{_FIRST + number}.5", f"·{number}")]
        if len(own) != 1:
            return None
        places.append(own[0])
    return statement.tables[0].name, statement.direct, tuple(places)


def _literals(tree: Any) -> Iterator[str]:
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            if isinstance(node.get("literal"), dict):
                yield node["literal"].get("text", "")
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _filled(tree: Any, constants: dict[str, str]) -> Any:
    if isinstance(tree, dict):
        literal = tree.get("literal")
        if isinstance(literal, dict) and (text := literal.get("text")) in constants:
            return {**tree, "literal": {**literal, "text": ("-" if text.startswith("-") else "") + constants[text]}}
        return {name: _filled(value, constants) if value.__class__ in (dict, list) else value for name, value in tree.items()}
    if isinstance(tree, list):
        return [_filled(one, constants) for one in tree]
    return tree
