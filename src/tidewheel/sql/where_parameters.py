"""The parameters of a `where`: their values are written into its text, as literals of their own types.

So everybody who looks at the text, for bounds or to evaluate it, here or in the owner, sees what a user could have written. That a value
is never read as anything but a value is what this module is for.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

from tidewheel.duck.evaluator import ROWS
from tidewheel.duck.nodes import Node, walk
from tidewheel.duck.parser import LONG, tree_of
from tidewheel.errors import QueryError
from tidewheel.model.schema import nearest
from tidewheel.sql.parameters import Parameters, parameters_of, value_of

_BEFORE = f'SELECT 1 FROM "{ROWS}" WHERE ('


def filled(where: Any, params: Any) -> Any:
    """A `where` with values in place of its parameters. Raises QueryError unless there is one value for each, and each is used."""
    if not isinstance(where, str):
        if params is not None:
            raise QueryError('params are the values for ? or $name in where="…", and where is no text')
        return where
    given = parameters_of(params)
    if not (given or "?" in where or "$" in where):
        return where
    if len(where) > LONG:
        raise QueryError(f"where has {len(where):,} characters; with parameters, at most {LONG:,} are taken")
    try:
        tree = tree_of(f"{_BEFORE}{where}\n)")
    except QueryError:
        return where  # what is wrong with it is said where it is evaluated
    found = [node for node in walk(tree) if node.get("class") == "PARAMETER"]
    _check(found, given)
    data = where.encode()
    for node in sorted(found, key=lambda node: node["query_location"], reverse=True):
        start = node["query_location"] - len(_BEFORE.encode())
        value = literal(value_of(node["identifier"], given), node["identifier"])
        data = data[:start] + value.encode() + data[start + node["query_location_length"] :]
    return data.decode()


def _check(found: list[Node], given: Parameters) -> None:
    names = list(dict.fromkeys(node["identifier"] for node in found))
    if given is None:
        if names:
            raise QueryError(f"where has parameters and params= none of their values: give {_shape(names)}")
        return
    if not names and given:
        raise QueryError(f'params gives {_count(len(given), "value")}, but where has no parameter: write ? for each, as in "speed > ?"')
    if isinstance(given, dict):
        missing, more = [n for n in names if n not in given], [n for n in given if n not in names]
        if all(name.isdecimal() for name in names) and missing:
            raise QueryError(f"where has ?, so params is a list: {_shape(names)}. Write $name in where to give a mapping")
        if missing:
            raise QueryError(f"params has no value for ${missing[0]}, which where names.{nearest(missing[0], list(given))}")
        if more:
            raise QueryError(f"params has a value for {more[0]!r}, but where does not name ${more[0]}.{nearest(more[0], names)}")
        return
    if named := [name for name in names if not name.isdecimal()]:
        raise QueryError(f"where names ${named[0]}, so params is a mapping: {_shape(names)}")
    most = max((int(name) for name in names), default=0)
    if most != len(given) or len(names) != most:
        raise QueryError(f"where has {_count(max(most, len(names)), 'parameter')}, and params gives {_count(len(given), 'value')}")


def _shape(names: list[str]) -> str:
    if all(name.isdecimal() for name in names):
        return f"params=[{', '.join('…' for _ in names)}]"
    return "params={" + ", ".join(f"{name!r}: …" for name in names) + "}"


def _count(n: int, of: str) -> str:
    return f"{n} {of}" if n == 1 else f"{n} {of}s"


def literal(value: Any, name: str = "1") -> str:
    """A value as SQL. Raises QueryError if there is no literal for it."""
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(literal(one, name) for one in value) + "]"
    role = f"parameter {name}" if name.isdecimal() else f"parameter ${name}"
    hint = "; give one value for each ?, or a list for IN ?" if hasattr(value, "__len__") else ""
    raise QueryError(f"{role} of where is a {type(value).__name__}, which is no value of SQL{hint}: {value!r:.100}")


def _text(value: str) -> str:
    if "\0" in value:
        return "(" + " || chr(0) || ".join(_text(part) for part in value.split("\0")) + ")"
    try:
        value.encode()
    except UnicodeEncodeError as e:
        raise QueryError(f"a parameter of where has a character in it that is half of one, at {e.start}") from None
    return "'" + value.replace("'", "''") + "'"


def _float(value: float) -> str:
    """With an exponent, it is a DOUBLE and not a DECIMAL."""
    if not math.isfinite(value):
        return f"CAST('{value}' AS DOUBLE)"
    shown = repr(float(value))
    return f"({shown})" if "e" in shown else f"({shown}e0)"


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise QueryError(f"a parameter of where is {value}, which is no number that SQL has")
    shown = f"{value:f}"
    whole, _, fraction = shown.lstrip("-").partition(".")
    if len(whole.lstrip("0")) + len(fraction) > 38:
        raise QueryError(f"a parameter of where has more than the 38 digits of a DECIMAL: {value}")
    return f"CAST('{shown}' AS DECIMAL({max(1, len(whole.lstrip('0')) + len(fraction))}, {len(fraction)}))"


def _datetime(value: dt.datetime) -> str:
    zone = value.tzinfo is not None
    plain = value.astimezone(dt.UTC).replace(tzinfo=None) if zone else value
    if getattr(value, "nanosecond", 0):  # of pandas
        return f"CAST('{plain}' AS TIMESTAMP_NS)"
    return f"TIMESTAMPTZ '{plain}+00'" if zone else f"TIMESTAMP '{plain}'"


def _span(value: dt.timedelta) -> str:
    micros = value // dt.timedelta(microseconds=1)
    return f"to_microseconds({micros})" if micros >= 0 else f"(- to_microseconds({-micros}))"


_WRITERS: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    (type(None), lambda _: "NULL"),
    (bool, lambda value: "TRUE" if value else "FALSE"),
    (int, lambda value: f"{int(value)}" if value >= 0 else f"({int(value)})"),
    (float, _float),
    (str, _text),
    (Decimal, _decimal),
    (dt.datetime, _datetime),
    (dt.date, lambda value: f"DATE '{value.isoformat()}'"),
    (dt.time, lambda value: f"TIME '{value.isoformat()}'"),
    (dt.timedelta, _span),
    ((bytes, bytearray), lambda value: "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"),
    (UUID, lambda value: f"'{value}'::UUID"),
)
