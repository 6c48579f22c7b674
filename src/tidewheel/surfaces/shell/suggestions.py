"""Candidates for the next word: tables where tables are named, columns of the tables that a statement names, functions, keywords, commands.

`candidates` is a plain function of the text and the names, so that it is tested without a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from tidewheel.errors import TidewheelError
from tidewheel.surfaces.shell.statements import split
from tidewheel.surfaces.shell.words import FUNCTIONS, KEYWORDS, RESERVED, TABLE_PLACES

if TYPE_CHECKING:
    from tidewheel.warehouse import Warehouse

_KNOWN_FOR = 3.0
"""Seconds that names are remembered."""

_LAST = re.compile(r'([\w$"]*)\Z')
_NAME = r'"(?:[^"]|"")+"|[^\W\d]\w*'
_QUALIFIER = re.compile(rf"({_NAME})\s*\.\s*\Z")
_TABLE = re.compile(rf"\b(?:from|join|describe|summarize)\s+(?:system\s*\.\s*)?({_NAME})(?:\s+(?:as\s+)?({_NAME}))?", re.IGNORECASE)
_LISTED = re.compile(rf",\s*({_NAME})(?:\s+(?:as\s+)?({_NAME}))?", re.IGNORECASE)
_OPEN_TEXT = re.compile(r"'[^']*\Z")
_PLAIN = re.compile(r"[^\W\d]\w*\Z")


class Candidate(NamedTuple):
    text: str
    what: str
    """`table`, `column of …`, `keyword`, `function` or `command`."""


Tables = Mapping[str, Sequence[str]]
"""The columns of each table, by its name; names in `system` have their schema."""


def candidates(before: str, after: str, tables: Tables) -> tuple[str, list[Candidate]]:
    """The word that is being typed, and what it may become, the likeliest first."""
    if before.lstrip().startswith("\\"):
        return _commands(before.lstrip(), tables)
    rest = split(before)[1]
    found = _LAST.search(rest)
    word = found[1] if found else ""
    head = rest[: len(rest) - len(word)]
    if _OPEN_TEXT.search(re.sub(r"'[^']*'", "", head)):
        return word, []
    qualifier = _QUALIFIER.search(head)
    if qualifier is not None:
        return word, _fitting(word, _qualified(qualifier[1].strip('"'), rest + after, tables))
    places = re.findall(r"\w+|[^\w\s]", head)
    if _names_a_table(places):
        return word, _fitting(word, [Candidate(_written(name), "table") for name in _table_names(tables)])
    of = _mentioned(rest + after, tables)
    if not of and word:  # no table is named yet: it may be any
        of = [(name, name) for name in tables if not name.startswith("system.")]
    own = list(_columns(of, tables))
    if own and not word:
        return word, _fitting(word, own)
    keywords = [Candidate(one.lower() if word[:1].islower() else one, "keyword") for one in KEYWORDS]
    functions = [Candidate(one, "function") for one in FUNCTIONS] if word else []
    names = [Candidate(_written(name), "table") for name in _table_names(tables)] if word else []
    return word, _fitting(word, [*own, *keywords, *functions, *names])


def _commands(text: str, tables: Tables) -> tuple[str, list[Candidate]]:
    from tidewheel.surfaces.shell.commands import HELP  # here: the prompt need not wait for what commands need
    from tidewheel.surfaces.shell.screen import FORMATS

    name, blank, said = text.partition(" ")
    if not blank:
        return name, [Candidate(one, "command") for one in HELP if one.startswith(name)]
    choices = {"\\timing": ("on", "off"), "\\pager": ("on", "off"), "\\format": FORMATS}.get(name, ())
    if name == "\\d":
        return said, _fitting(said, [Candidate(one, "table") for one in [*_table_names(tables), "system"]])
    if name == "\\explain":
        return candidates(said, "", tables)
    return said, [Candidate(one, "command") for one in choices if one.startswith(said)]


def _names_a_table(places: list[str]) -> bool:
    """Whether a table is named at the end of these words: after FROM and its like, or after a comma in its list."""
    if not places:
        return False
    if places[-1] != ",":
        return places[-1].upper() in TABLE_PLACES
    for one in reversed(places):
        if one in ("(", ")"):
            return False
        if one.upper() in KEYWORDS:
            return one.upper() in TABLE_PLACES or one.upper() == "AS" and "FROM" in map(str.upper, places)
    return False


def _qualified(name: str, statement: str, tables: Tables) -> Iterator[Candidate]:
    """Words that may follow `name.`: the columns of a table or of its alias; the tables of `system`."""
    if name.lower() == "system":
        yield from (Candidate(one.partition(".")[2], "table") for one in tables if one.startswith("system."))
    for table, alias in _mentioned(statement, tables):
        if name.lower() in (alias.lower(), table.lower(), table.rpartition(".")[2].lower()):
            yield from _columns([(table, alias)], tables)
            return
    yield from _columns([(one, one) for one in tables if one.lower() == name.lower()], tables)


def _mentioned(statement: str, tables: Tables) -> list[tuple[str, str]]:
    """The tables that a statement names, with the names it gives them."""
    known = {one.lower(): one for one in tables} | {one.partition(".")[2].lower(): one for one in tables if one.startswith("system.")}
    found = []
    for pattern in (_TABLE, _LISTED):
        for name, alias in pattern.findall(statement):
            table = known.get(name.strip('"').lower())
            if table is not None:
                found.append((table, table if not alias or alias.upper() in KEYWORDS else alias.strip('"')))
    return found


def _columns(of: Iterable[tuple[str, str]], tables: Tables) -> Iterator[Candidate]:
    for table, _ in of:
        yield from (Candidate(_written(name), f"column of {table}") for name in tables[table])


def _table_names(tables: Tables) -> list[str]:
    return sorted(tables, key=lambda name: (name.startswith("system."), name.lower()))


def _fitting(word: str, offered: Iterable[Candidate]) -> list[Candidate]:
    """The candidates that begin with the word, each once."""
    begun = word.strip('"').lower()
    found: dict[str, Candidate] = {}
    for one in offered:
        if one.text.strip('"').lower().startswith(begun):
            found.setdefault(one.text, one)
    return list(found.values())


def _written(name: str) -> str:
    """As SQL takes it."""
    plain = name.removeprefix("system.")
    return name if _PLAIN.match(plain) and plain.upper() not in RESERVED else '"' + name.replace('"', '""') + '"'


class Names:
    """The tables and columns of a warehouse, as they were some seconds ago. May be asked by any thread."""

    def __init__(self, warehouse: Callable[[], Warehouse]) -> None:
        """`warehouse` may have to wait until it is open."""
        self._warehouse = warehouse
        self._known: Tables = {}
        self._until = 0.0

    def tables(self) -> Tables:
        if monotonic() > self._until:
            from tidewheel.sql.system import TABLES

            found: dict[str, Sequence[str]] = {}
            try:
                warehouse = self._warehouse()
                for name in warehouse.tables():
                    found[name] = warehouse.table(name).schema.names
            except TidewheelError:  # a table was dropped just now, or the owner went: what was known must do
                found.update({name: columns for name, columns in self._known.items() if not name.startswith("system.")})
            self._known = found | {f"system.{name}": list(columns) for name, (columns, _) in TABLES.items()}
            self._until = monotonic() + _KNOWN_FOR
        return self._known


class SqlCompleter(Completer):
    """Candidates, as the line editor takes them."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        word, found = candidates(document.text_before_cursor, document.text_after_cursor, self._names.tables())
        for one in found:
            yield Completion(one.text, start_position=-len(word), display_meta=one.what)
