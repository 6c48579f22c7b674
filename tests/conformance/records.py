"""The sqllogictest format, read and written: records of statements and queries with the answers that are expected. Pure.

    statement ok                       statement error
    CREATE TABLE t(a INTEGER)          SELECT nothing FROM t

    query IT rowsort                   query R nosort
    SELECT a, b FROM t                 SELECT x FROM u ORDER BY x
    ----                               ----
    1                                  1000 values hashing to 5d41402abc4b2a76b9719d911017c592
    one

Records are apart by empty lines. A value is a line: of I a whole number, of R a number with three decimals, of T text; NULL, and `(empty)`
for the empty text. `rowsort` and `valuesort` order rows or values as text before they are compared. From `hash-threshold N` on, answers of
more than N values are told by their MD5. `skipif NAME` and `onlyif NAME` before a record say which system it is for; `halt` ends a file.
Lines that begin with `#` are comments; those before a record belong to it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

SORTS = ("nosort", "rowsort", "valuesort")


@dataclass(frozen=True)
class Record:
    """One of a file. `line` is where it begins; `before` are its comments and conditions, as they are written."""

    line: int
    before: tuple[str, ...]

    def is_for(self, system: str) -> bool:
        words = [line.split() for line in self.before if line.startswith(("skipif ", "onlyif "))]
        return all((word[1] == system) == (word[0] == "onlyif") for word in words)

    @property
    def comments(self) -> list[str]:
        return [line.removeprefix("#").strip() for line in self.before if line.startswith("#")]


@dataclass(frozen=True)
class Statement(Record):
    sql: str
    ok: bool


@dataclass(frozen=True)
class Query(Record):
    sql: str
    types: str
    sort: str
    label: str
    expected: tuple[str, ...]


@dataclass(frozen=True)
class Control(Record):
    """`hash-threshold N`, `halt`, or comments alone."""

    text: str


class Malformed(Exception):
    def __init__(self, line: int, said: str) -> None:
        super().__init__(f"line {line}: {said}")


def parse(text: str) -> list[Record]:
    return [_record(first, lines) for first, lines in _blocks(text)]


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Lines between empty ones, with the number of the first."""
    first, block = 0, list[str]()
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.strip():
            first = first if block else number
            block.append(line)
        elif block:
            yield first, block
            block = []


def _record(first: int, lines: list[str]) -> Record:
    about = next((n for n, line in enumerate(lines) if not line.startswith(("#", "skipif ", "onlyif "))), len(lines))
    before, lines, line = tuple(lines[:about]), lines[about:], first + about
    match lines[0].split() if lines else []:
        case []:
            return Control(first, before, "")
        case ["statement", ("ok" | "error") as how]:
            return Statement(line, before, "\n".join(lines[1:]), how == "ok")
        case ["query", types, *more] if len(more) <= 2:
            sort, label = [*more, *("nosort", "")[len(more) :]]
            if sort not in SORTS:
                raise Malformed(line, f"the order is one of {', '.join(SORTS)}, not {sort!r}")
            end = lines.index("----") if "----" in lines else len(lines)
            return Query(line, before, "\n".join(lines[1:end]), types, sort, label, tuple(lines[end + 1 :]))
        case ["hash-threshold", number] if number.isdigit():
            return Control(line, before, lines[0])
        case ["halt"]:
            return Control(line, before, "halt")
    raise Malformed(line, f"a record begins with statement ok, statement error, query, hash-threshold or halt, not {lines[0]!r}")


def render(records: Iterable[Record]) -> str:
    """The text of a file. What `parse` makes of it is the same again."""
    return "\n\n".join("\n".join(_lines(record)) for record in records) + "\n"


def _lines(record: Record) -> list[str]:
    match record:
        case Statement():
            return [*record.before, f"statement {'ok' if record.ok else 'error'}", record.sql]
        case Query():
            words = ["query", record.types, record.sort, *([record.label] if record.label else [])]
            return [*record.before, " ".join(words), record.sql, "----", *record.expected]
        case Control():
            return [*record.before, *([record.text] if record.text else [])]
    raise TypeError(record)


def meant_for(system: str, records: Iterable[Record]) -> Iterator[Record]:
    """The records that a system is asked, up to `halt`."""
    for record in records:
        if record.is_for(system):
            if isinstance(record, Control) and record.text == "halt":
                return
            yield record


def threshold_of(records: Sequence[Record]) -> int:
    """Values that an answer may have to be written out; one number holds for a whole file here."""
    found = [int(one.text.split()[1]) for one in records if isinstance(one, Control) and one.text.startswith("hash-threshold")]
    return found[0] if found else 0


def answered(query: Query, rows: Sequence[Sequence[Any]], threshold: int) -> Query:
    """The query with these rows as what is expected."""
    lines = [[shown(value, kind) for value, kind in zip(row, query.types, strict=True)] for row in rows]
    if query.sort == "rowsort":
        lines.sort()
    values = [value for row in lines for value in row]
    if query.sort == "valuesort":
        values.sort()
    if threshold and len(values) > threshold:
        digest = hashlib.md5("".join(f"{value}\n" for value in values).encode(), usedforsecurity=False).hexdigest()
        values = [f"{len(values)} values hashing to {digest}"]
    return replace(query, expected=tuple(values))


def shown(value: Any, kind: str) -> str:
    """A value as a line of the format."""
    match value:
        case None:
            return "NULL"
        case int() if kind == "I":
            return str(int(value))
        case int() | float() | Decimal() if kind == "R":
            text = f"{value:.3f}"
            return text.removeprefix("-") if not text.strip("-0.") else text  # there is no -0.000
        case _:
            text = "".join(c if c.isprintable() else "@" for c in _text(value))
            return text if text.strip() else "(empty)"  # an empty line would end the record


def _text(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.6g}"
        case dt.datetime():
            return value.isoformat(sep=" ")
        case bytes():
            return "\\x" + value.hex()
        case list() | tuple():
            return "[" + ", ".join(map(_text, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{name}: {_text(one)}" for name, one in value.items()) + "}"
        case _:
            return str(value)
