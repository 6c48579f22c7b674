"""DuckDB's parser, by itself: a database with nothing in it, which turns statements into trees, and trees into statements."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.duck import statement_time
from tidewheel.duck.connect import LEAST, connect_for_statements
from tidewheel.duck.error_text import of_another_dialect, said_by_duckdb
from tidewheel.duck.failures import DuckError
from tidewheel.duck.internals import text_of_tree, tree_of_text
from tidewheel.duck.lifetime import Kept
from tidewheel.duck.nodes import Node
from tidewheel.errors import QueryError

if TYPE_CHECKING:
    from tidewheel.duck.connect import Connection

LONG = 1 << 16
"""Characters of a statement or an expression that is parsed in this process; longer ones are in a process apart."""

TOO_DEEP = "the statement has too many levels of brackets or operators within each other; make several steps of it"

_LONGEST_CONSTANT = 5_000
"""Characters."""

_parser: Kept[Connection] = Kept()
"""The database, and behind it cursors for the next look: the first look of a new one takes twice as long."""


@contextmanager
def parser() -> Iterator[Connection]:
    """A connection for one look."""
    with _parser.lock:
        if not _parser.items:
            _parser.items.append(connect_for_statements(4 * LEAST, threads=1))
        cursor = _parser.items.pop() if len(_parser.items) > 1 else _parser.items[0].cursor()
    try:
        yield cursor
    finally:
        with _parser.lock:
            _parser.items.append(cursor)


def tree_of(text: str) -> dict[str, Any] | str:
    """The tree of a statement that reads; of any other, what kind it is. Raises QueryError if it is none, or more than one."""
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise QueryError(f"the statement has a character in it that is half of one, at {e.start}") from None
    try:
        with parser() as cursor:
            tree = tree_of_text(cursor, text)
            if not tree.get("error") and len(tree["statements"]) == 1:
                return tree["statements"][0]  # type: ignore[no-any-return]
            kinds = _kinds(cursor, text)
    except DuckError as e:
        raise QueryError(of_another_dialect(said_by_duckdb(str(e)), text)) from None
    except RecursionError:
        raise QueryError(TOO_DEEP) from None
    if len(kinds) > 1:
        raise QueryError(f"one statement at a time: there are {len(kinds)} here, separated by semicolons")
    if not kinds:
        raise QueryError("the statement is empty")
    if kinds == ["SELECT"]:
        raise QueryError(f"this statement cannot be run here: {tree.get('error_message')}")
    return kinds[0]


def _kinds(cursor: Connection, text: str) -> list[str]:
    try:
        return [one.type.name for one in cursor.extract_statements(text)]
    except ValueError:  # a kind that DuckDB has no name for in Python
        return ["OTHER"]


def text_of(node: Node) -> str:
    """The text of a statement that reads, from the node of its query."""
    with parser() as cursor:
        return text_of_tree(cursor, {"error": False, "statements": [{"node": node, "named_param_map": []}]})


def select(items: list[Node], source: Node, condition: Node | None, ctes: Node) -> Node:
    """SELECT items FROM source WHERE condition."""
    return _query("SELECT 1 FROM nothing") | {"select_list": items, "from_table": source, "where_clause": condition, "cte_map": ctes}


@lru_cache
def _query(text: str) -> Node:
    found = tree_of(text)
    assert isinstance(found, dict)
    return found["node"]  # type: ignore[no-any-return]


def lone(item: Node) -> Node:
    """SELECT item."""
    return _query("SELECT 1") | {"select_list": [item]}


def value_of_constant(item: Node, parameters: dict[str, Any], at: dt.datetime) -> pa.Scalar | None:
    """What SELECT item gives when the time is `at`; None if that is null, an error, or long once it is written out."""
    try:
        text = text_of(lone(item))
        if len(text) > _LONGEST_CONSTANT:
            return None
        with parser() as cursor:
            statement_time.stop(cursor, at)
            found = cursor.sql(text, params=parameters or None).to_arrow_table().column(0)[0]
    except (DuckError, pa.ArrowException):
        return None
    return found if found.is_valid else None
