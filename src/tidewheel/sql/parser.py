"""DuckDB's parser, by itself: a database with nothing in it, which only looks at statements."""

from __future__ import annotations

import atexit
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

from tidewheel.errors import QueryError
from tidewheel.sql.database import LEAST, connect
from tidewheel.sql.error_text import said_by_duckdb

TOO_DEEP = "the statement has too many levels of brackets or operators within each other; make several steps of it"

_lock = threading.Lock()
_parser: list[duckdb.DuckDBPyConnection] = []
_idle: list[duckdb.DuckDBPyConnection] = []
"""Cursors for the next look: the first look of a new one takes twice as long."""
_of_the_parent: list[duckdb.DuckDBPyConnection] = []
"""In a forked child: kept, so that they are not closed."""


@atexit.register
def _close() -> None:
    """DuckDB complains at the end of the process about connections that are still there."""
    while _idle:
        _idle.pop().close()
    while _parser:
        _parser.pop().close()


def _forget_in_child() -> None:
    """A forked child has none of the threads that DuckDB works with: to close what was the parent's would end it."""
    global _lock
    _lock = threading.Lock()
    _of_the_parent.extend((*_idle, *_parser))
    _idle.clear()
    _parser.clear()


os.register_at_fork(after_in_child=_forget_in_child)


@contextmanager
def parser() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for one look."""
    with _lock:
        if not _parser:
            _parser.append(connect(4 * LEAST, threads=1))
        cursor = _idle.pop() if _idle else _parser[0].cursor()
    try:
        yield cursor
    finally:
        with _lock:
            _idle.append(cursor)


def tree_of(text: str) -> dict[str, Any] | str:
    """The tree of a statement that reads; of any other, what kind it is. Raises QueryError if it is none, or more than one."""
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise QueryError(f"the statement has a character in it that is half of one, at {e.start}") from None
    try:
        with parser() as cursor:
            row = cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()
            assert row is not None
            tree = json.loads(row[0])
            if not tree.get("error") and len(tree["statements"]) == 1:
                return tree["statements"][0]  # type: ignore[no-any-return]
            kinds = _kinds(cursor, text)
    except duckdb.Error as e:
        raise QueryError(said_by_duckdb(str(e))) from None
    except RecursionError:
        raise QueryError(TOO_DEEP) from None
    if len(kinds) > 1:
        raise QueryError(f"one statement at a time: there are {len(kinds)} here, separated by semicolons")
    if not kinds:
        raise QueryError("the statement is empty")
    if kinds == ["SELECT"]:
        raise QueryError(f"this statement cannot be run here: {tree.get('error_message')}")
    return kinds[0]


def _kinds(cursor: duckdb.DuckDBPyConnection, text: str) -> list[str]:
    try:
        return [one.type.name for one in cursor.extract_statements(text)]
    except ValueError:  # a kind that DuckDB has no name for in Python
        return ["OTHER"]
