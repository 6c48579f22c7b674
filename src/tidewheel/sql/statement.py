"""What a statement is, before it is run: one that changes the warehouse, or one that reads, then what, and the text that DuckDB gets.

DuckDB parses it; here the tree is looked through. DuckDB runs only what it can show as a tree of a SELECT, so nothing that writes, sets or
loads ever is; functions that reach outside of the statement are refused by name on top of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tidewheel.duck import statement_time
from tidewheel.duck.bounded import is_bounded
from tidewheel.duck.error_text import pointed
from tidewheel.duck.nodes import Node, walk
from tidewheel.duck.parser import LONG, text_of, tree_of
from tidewheel.duck.tokens import Tokens, blanked
from tidewheel.errors import QueryError
from tidewheel.model.dataclass import dataclass
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.ddl import SYSTEM, Change, change_of
from tidewheel.sql.direct import Direct, direct_of
from tidewheel.sql.extra_bounds import Hint, hints_of
from tidewheel.sql.refusals import TABLE_FUNCTIONS, check_words, refused_function, refused_statement, refused_table_function
from tidewheel.sql.table_summary import Summary, summary_of

_NOWHERE = (1 << 64) - 1
_LONGEST = 1 << 20
"""Characters of a statement. DuckDB's parser takes longer ones, but nobody writes them."""
_SHORT = 10_000
"""Characters of a statement that is remembered, so that it is looked at once."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A table that a statement names."""

    name: str
    place: tuple[int, int]
    """Where its name stands: first byte and number of bytes; (-1, 0) if that is not known."""
    optional: bool
    """A common table expression has this name too: perhaps it is meant."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One that reads."""

    original: str
    text: str
    """What DuckDB is given: the names of system tables are single words in it."""
    explain: str
    """`plan`, `analyze`, or nothing: the answer itself."""
    tables: tuple[Reference, ...]
    system: tuple[str, ...]
    shows_tables: bool
    summary: Summary | None
    hints: tuple[Hint, ...]
    """Of tables that it names once."""
    direct: Direct | None
    why_not: str
    """Why it is none that needs nothing of DuckDB but its parser."""
    bounded: bool
    """Whether it may run in this process: no single call of a function in it takes long, or makes much."""
    node: Node
    """Of its query; of a long one nothing, because it is looked at in a process apart."""
    tells_time: bool
    """It asks what time it is."""

    def meaning(self, node: Node) -> Statement:
        """The same statement, from another node that means the same."""
        seen = list(walk(node))
        facts = _Facts(self.original)
        facts.look(seen)
        direct, why_not = _direct({"node": node})
        return replace(
            self, text=text_of(node), summary=None, hints=facts.hints(seen), direct=direct, why_not=why_not, tables=tuple(facts.tables),
            node=node,
        )  # fmt: skip


def parse(text: str) -> Statement | Change:
    """Look at a statement. Raises QueryError if it is not one that can be run here, and says what to do instead."""
    return remembered(text, text) if len(text) <= _SHORT else parsed(text, text)


@lru_cache(maxsize=512)
def remembered(text: str, original: str) -> Statement | Change:
    return parsed(text, original)


def parsed(text: str, original: str) -> Statement | Change:
    """Look at a statement. `original`: the one that it is a part of."""
    if not text.strip():
        raise QueryError(f"a statement is SQL text like 'SELECT count(*) FROM taxi', not {text!r}")
    if len(text) > _LONGEST:
        raise QueryError(f"the statement has {len(text):,} characters; at most {_LONGEST:,} are taken. Give many rows to table.insert(...)")
    if "\0" in text:
        raise QueryError("the statement has a character of code 0 in it, which SQL cannot have")
    check_words(text)
    explain, select, tree = "", text, tree_of(text)
    if tree == "EXPLAIN":
        explain, select = _without_explain(text)
        tree = tree_of(select)
    if isinstance(tree, str):
        if explain or text != original:
            raise refused_statement(tree, text, explained=bool(explain))
        return change_of(tree, text)
    facts = _Facts(original)
    nodes = list(walk(tree))
    facts.look(nodes)
    if facts.shows_tables and (explain or (tree["node"].get("from_table") or {}).get("type") != "SHOW_REF"):
        raise QueryError("SHOW TABLES is a statement of its own; within others, ask system.tables")
    summary = summary_of(tree) if not explain else None
    direct, why_not = _direct(tree) if not facts.system and len(text) <= LONG else (None, "it reads a system table, or is long")
    return Statement(
        original,
        facts.rewritten(select),
        explain,
        tuple(facts.tables),
        tuple(facts.system),
        facts.shows_tables,
        summary,
        facts.hints(nodes),
        direct,
        why_not,
        is_bounded(nodes, text),
        tree["node"] if len(text) <= LONG else {},
        statement_time.is_asked(nodes),
    )


def _direct(tree: Any) -> tuple[Direct | None, str]:
    try:
        return direct_of(tree), ""
    except NotDirectError as e:
        return None, str(e)


def _without_explain(text: str) -> tuple[str, str]:
    """Whether the statement is only to be planned, or also run; and the statement, with blanks before it."""
    words = Tokens(text)
    words.needs("EXPLAIN")
    explain = "analyze" if words.takes("ANALYZE") else "plan"
    start = words.here.at
    if words.takes("(") and (words.here.says("FORMAT") or words.here.says("ANALYZE")):
        raise words.wrong("EXPLAIN and EXPLAIN ANALYZE have no options")
    return explain, blanked(text, 0, start)


class _Facts:
    """What is found in the tree of a statement."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.tables: list[Reference] = []
        self.system: list[str] = []
        self.shows_tables = False
        self._replace: list[tuple[int, str, str, bool]] = []

    def look(self, nodes: list[dict[str, Any]]) -> None:
        common: set[str] = set()
        found: list[dict[str, Any]] = []
        for node in nodes:
            common.update(_common_names(node))
            kind = node.get("type")
            if kind == "BASE_TABLE":
                found.append(node)
            elif kind == "SHOW_REF":
                self._show(node)
            elif kind == "TABLE_FUNCTION":
                self._table_function(node)
            elif node.get("class") == "FUNCTION":
                refused_function(node, self._text, _place(node))
        for node in found:
            self._table(node, common)

    def _table(self, node: dict[str, Any], common: set[str]) -> None:
        name, schema, place = node["table_name"], node["schema_name"], _place(node)
        if node.get("catalog_name"):
            raise QueryError(pointed(f"{node['catalog_name']}.{schema}.{name}: a statement reads one warehouse", self._text, place))
        if schema.lower() == SYSTEM:
            self.system.append(name.lower())
            self._replace.append((place[0], schema, name, not node["alias"]))
            return
        if schema and schema.lower() != "main":
            said = f"there is no schema {schema!r}: tables have none, or are in {SYSTEM!r}; {SYSTEM}.tables lists them"
            raise QueryError(pointed(said, self._text, place))
        if schema:
            self._replace.append((place[0], schema, name, False))
        if len(name) > 128 or "·" in name:
            raise QueryError(pointed(f"{name[:40]!r} is no name of a table", self._text, place))
        self.tables.append(Reference(name, place, not schema and name.lower() in common))

    def _show(self, node: dict[str, Any]) -> None:
        if node["show_type"] in ("DESCRIBE", "SUMMARY"):
            return
        if node["table_name"].strip('"').lower() != "tables":
            raise QueryError("SHOW TABLES lists the tables, DESCRIBE name the columns of one; there is no other SHOW")
        self.shows_tables = True

    def _table_function(self, node: dict[str, Any]) -> None:
        name = node["function"]["function_name"]
        if name.lower() not in TABLE_FUNCTIONS or node["function"].get("schema") or node["function"].get("catalog"):
            raise refused_table_function(name, self._text, _place(node))

    def hints(self, nodes: list[dict[str, Any]]) -> tuple[Hint, ...]:
        """Those of tables that are named once: which scan they belong to could not be told otherwise."""
        named = [reference.name.lower() for reference in self.tables]
        once = {reference.name for reference in self.tables if named.count(reference.name.lower()) == 1 and not reference.optional}
        return tuple(hint for hint in hints_of(nodes) if hint.table in once)

    def rewritten(self, text: str) -> str:
        """The text with one word for each table that is named with its schema."""
        data = text.encode()
        for at, schema, name, alias in sorted(self._replace, reverse=True):
            pattern = rf'(?i)(?:"{re.escape(schema)}"|\b{re.escape(schema)})\s*\.\s*(?:"{re.escape(name)}"|{re.escape(name)}\b)'.encode()
            found = re.compile(pattern).search(data, max(at, 0))
            if found is None or at >= 0 and found.start() != at:
                raise QueryError(pointed(f"write {schema}.{name} in one piece", self._text, (at, 1)))
            word = (
                f'"{SYSTEM}.{name.lower()}"' + (f' AS "{name}"' if alias and at >= 0 else "") if schema.lower() == SYSTEM else f'"{name}"'
            )
            data = data[: found.start()] + word.encode() + data[found.end() :]
        return data.decode()


def _common_names(node: dict[str, Any]) -> Iterator[str]:
    """Names that common table expressions give at this node."""
    for one in (node.get("cte_map") or {}).get("map", ()):
        yield one["key"].lower()
    for field in ("cte_name", "ctename"):
        if isinstance(node.get(field), str):
            yield node[field].lower()


def _place(node: dict[str, Any]) -> tuple[int, int]:
    at = node.get("query_location", _NOWHERE)
    return (at, node.get("query_location_length") or 1) if isinstance(at, int) and at < _NOWHERE else (-1, 0)
