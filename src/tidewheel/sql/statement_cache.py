"""Plain statements that differ only in their constants are parsed once: parsing takes longer than reading a few rows.

A statement's shape is its text with a stand-in for each whole number, decimal and quoted text of its WHERE, HAVING, LIMIT and OFFSET; what
stands elsewhere, as in date_trunc('minute', ts), belongs to the shape. If the shape is that of a direct statement, and each stand-in is
found once among its literals, the constants of every statement of this shape belong in the same places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from tidewheel.duck.parser import tree_of
from tidewheel.errors import QueryError
from tidewheel.model.schema import TableSpec
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.direct import Asked, Direct, Prepared, direct_of, prepared_of
from tidewheel.sql.having import constants_of
from tidewheel.sql.parameters import Parameters
from tidewheel.sql.prepared import Given
from tidewheel.sql.statement import Statement, parse

_LONGEST = 2_000
"""Characters of a statement that is looked at."""
_ODD = re.compile(r"--|/\*|\\|''|\$\w*\$")
"""What makes it hard to tell where a quoted text begins: statements with any of these are parsed."""
_PIECES = re.compile(r"""[\w.$?&#@]+|'[^']*'|"[^"]*"|[^\w.$?&#@'"]+|['"]""")
"""Words and numbers, quoted texts, quoted names, what is between them. Together they are the statement."""
_NUMBER = re.compile(r"\d{1,19}(?:\.\d{1,8})?")
_FIRST = 70_000_000


class Known:
    """A shape that is that of a direct statement."""

    def __init__(self, table: str, direct: Direct, places: dict[str, int]) -> None:
        """`places`: the stand-ins as they are found among the literals, each with its number."""
        self.table = table
        self._direct = direct
        self._places = places
        self._last: tuple[TableSpec, Prepared | str] | None = None

    def asked(self, spec: TableSpec, constants: Sequence[str], parameters: Parameters) -> Asked:
        """What a statement of this shape reads of its table. Raises NotDirectError if it goes the long way."""
        last = self._last
        if last is None or last[0] is not spec and last[0] != spec:
            self._last = last = spec, self._prepared(spec)
        if isinstance(last[1], str):
            raise NotDirectError(last[1])
        return last[1].asked(Given(constants, parameters))

    def _prepared(self, spec: TableSpec) -> Prepared | str:
        try:
            return prepared_of(self._direct, spec, self._places)
        except NotDirectError as e:
            return str(e)


def known(text: str) -> tuple[Known, list[str]] | None:
    """The shape of a direct statement and the constants of this one; None if it has to be parsed."""
    if len(text) > _LONGEST or not text.isascii() or "\0" in text or _ODD.search(text):
        return None
    pieces: list[str] = _PIECES.findall(text)
    shape, constants, places = _shape(pieces)
    free = _free("".join(shape), len(constants))
    if free is None:
        return None
    for number, at in enumerate(places):
        if number not in free:
            shape[at] = pieces[at]
    found = _parsed("".join(shape), free)
    return None if found is None else (found, constants)


def _shape(pieces: Sequence[str]) -> tuple[list[str], list[str], list[int]]:
    """The pieces with a stand-in for each constant, the constants, and which pieces they are."""
    shape, constants, places = list(pieces), list[str](), list[int]()
    before = " "
    for at, piece in enumerate(pieces):
        first = piece[0]
        if first == "'" and len(piece) > 1 and not _sticks(before):
            shape[at] = f"'·{len(constants)}'"
            constants.append(piece[1:-1])
            places.append(at)
        elif first.isdigit() and before[-1] not in "'\"" and _NUMBER.fullmatch(piece):
            shape[at] = f"{_FIRST + len(constants)}{'.5' if '.' in piece else ''}"
            constants.append(piece)
            places.append(at)
        before = piece
    return shape, constants, places


def _sticks(piece: str) -> bool:
    """Whether it makes something else of a quoted text that follows it."""
    return piece[-1] in ".$?&#@_'\"" or piece[-1].isalnum()


@lru_cache(maxsize=512)
def _free(shape: str, count: int) -> frozenset[int] | None:
    """The numbers of the stand-ins that stand where any constant may, once; None if it is not the shape of a direct statement."""
    try:
        tree = tree_of(shape)
        direct = direct_of(tree) if isinstance(tree, dict) else None
    except (QueryError, NotDirectError):
        return None
    if direct is None:
        return None
    found = _changing(direct)
    return frozenset(number for number in range(count) if len(_own(number, found)) == 1)


@lru_cache(maxsize=512)
def _parsed(shape: str, free: frozenset[int]) -> Known | None:
    try:
        statement = parse(shape)
    except QueryError:
        return None
    if not isinstance(statement, Statement) or statement.direct is None or len(statement.tables) != 1:
        return None
    if statement.explain or statement.summary is not None:
        return None
    literals = _changing(statement.direct)
    places: dict[str, int] = {}
    for number in free:
        own = _own(number, literals)
        if len(own) != 1:
            return None
        places[own[0]] = number
    return Known(statement.tables[0].name, statement.direct, places)


def _changing(direct: Direct) -> list[str]:
    """The literals that may be others in a statement of the same shape."""
    having = constants_of(None if direct.grouped is None else direct.grouped.having)
    ends = (one for one in (direct.tail.limit, direct.tail.offset) if one is not None)
    return [*_literals(direct.where), *_literals(list(having)), *ends]


def _own(number: int, literals: Sequence[str]) -> list[str]:
    """Those literals that are this stand-in."""
    return [text for text in literals if text.removeprefix("-") in (f"{_FIRST + number}", f"{_FIRST + number}.5", f"·{number}")]


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
