"""The moment of a statement: now(), current_date and the like tell the same moment in all of it, however often it is read.

DuckDB takes the time anew whenever it runs something. So macros of the same names stand before its functions: they tell the moment that a
session was given, or else DuckDB's own.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from tidewheel.duck.nodes import Node, cast, constant

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

_VARIABLE = '"·now"'
_NOW = "coalesce(getvariable('·now'), system.main.get_current_timestamp())"
_LOCAL = f"CAST({_NOW} AS TIMESTAMP)"
"""Sessions are in UTC."""

_MACROS = {
    "now": _NOW,
    "get_current_timestamp": _NOW,
    "transaction_timestamp": _NOW,
    "current_date": f"CAST({_LOCAL} AS DATE)",
    "today": f"CAST({_LOCAL} AS DATE)",
    "current_localtimestamp": _LOCAL,
    "current_localtime": f"CAST({_LOCAL} AS TIME)",
    "get_current_time": f"CAST({_NOW} AS TIMETZ)",
}

FUNCTIONS = frozenset(_MACROS)
WORDS = frozenset({"current_timestamp", "current_date", "current_time", "localtimestamp", "localtime"})
"""What is written without brackets: to the parser they are columns."""


def moment() -> dt.datetime:
    """Now."""
    return dt.datetime.now(dt.UTC)


def install(connection: Connection) -> None:
    """Put the macros into a new database."""
    for name, body in _MACROS.items():
        connection.execute(f"CREATE MACRO {name}() AS {body}")


def stop(connection: Connection, at: dt.datetime) -> None:
    """From now on it is this moment, for all that this connection runs."""
    connection.execute(f"SET VARIABLE {_VARIABLE} = TIMESTAMPTZ '{at.astimezone(dt.UTC).replace(tzinfo=None)}+00'")


def go_on(connection: Connection) -> None:
    connection.execute(f"RESET VARIABLE {_VARIABLE}")


def fixed(tree: Any, at: dt.datetime, columns: Container[str] = ()) -> Any:
    """A tree with constants in place of all that tells the time. `columns`: names that are no words for it."""
    match tree:
        case {"class": "FUNCTION", "function_name": name, "arguments": []} if name.lower() in FUNCTIONS:
            return _constant(name.lower(), at)
        case {"class": "COLUMN_REF", "column_names": [name]} if name.lower() in WORDS and name.lower() not in columns:
            return _constant(name.lower(), at)
        case dict():
            return {key: fixed(value, at, columns) if value.__class__ in (dict, list) else value for key, value in tree.items()}
        case list():
            return [fixed(value, at, columns) for value in tree]
    return tree


def _constant(name: str, at: dt.datetime) -> Node:
    utc = at.astimezone(dt.UTC).replace(tzinfo=None)
    match name:
        case "current_date" | "today":
            return cast(constant(utc.date().isoformat(), "STRING"), "DATE")
        case "current_localtimestamp" | "localtimestamp":
            return cast(constant(str(utc), "STRING"), "TIMESTAMP")
        case "current_localtime" | "localtime":
            return cast(constant(str(utc.time()), "STRING"), "TIME")
        case "get_current_time" | "current_time":
            return cast(constant(f"{utc.time()}+00", "STRING"), "TIMETZ")
    return cast(constant(f"{utc}+00", "STRING"), "TIMESTAMPTZ")


def is_asked(nodes: Iterable[dict[str, Any]]) -> bool:
    """Whether the nodes of a statement's tree tell the time."""
    for node in nodes:
        kind = node.get("class")
        if kind == "FUNCTION" and node["function_name"].lower() in FUNCTIONS:
            return True
        if kind == "COLUMN_REF" and len(node["column_names"]) == 1 and node["column_names"][0].lower() in WORDS:
            return True
    return False
