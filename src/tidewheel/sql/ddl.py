"""Statements that change a warehouse: CREATE TABLE, DROP TABLE and INSERT, as plain values.

DuckDB has parsed them, but shows a tree of SELECT alone: here their words are read. What DuckDB knows and a table does not have, such as
constraints, is refused with a mark at its place.
"""

from __future__ import annotations

import pyarrow as pa

from tidewheel.duck.column_types import arrow_type
from tidewheel.duck.error_text import pointed
from tidewheel.duck.tokens import Token, Tokens, blanked
from tidewheel.errors import QueryError
from tidewheel.model.dataclass import dataclass
from tidewheel.sql.refusals import refused_statement

SYSTEM = "system"
"""The schema of the tables that tell about the warehouse."""

_NEEDS_WITH = "a table needs a time column and a key: write WITH (time = 'ts', key = 'id') behind its columns"
_NO_ROWS = "a table is made of columns with types and WITH (time = …, key = …), without rows; fill it with INSERT INTO … SELECT …"
_CONSTRAINTS = ("NOT", "NULL", "DEFAULT", "PRIMARY", "UNIQUE", "CHECK", "REFERENCES", "COLLATE", "GENERATED", "AS", "USING", "CONSTRAINT")
_OPEN, _CLOSE = ("(", "[", "{"), (")", "]", "}")
_OF_THE_TABLE = ("PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "CONSTRAINT")


@dataclass(frozen=True, slots=True)
class Named:
    """A name, and where it stands: first byte and number of bytes."""

    name: str
    place: tuple[int, int]


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    name: str
    type: pa.DataType
    nullable: bool


@dataclass(frozen=True, slots=True)
class Option:
    name: Named
    value: Named
    """Of `time = 'ts'`, ts; of anything but a text or a name, as it was written."""


@dataclass(frozen=True, slots=True)
class CreateStatement:
    text: str
    table: Named
    or_leave: bool
    """IF NOT EXISTS."""
    columns: tuple[DeclaredColumn, ...]
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class DropStatement:
    text: str
    table: Named
    or_leave: bool
    """IF EXISTS."""


@dataclass(frozen=True, slots=True)
class InsertStatement:
    text: str
    table: Named
    columns: tuple[Named, ...]
    """None: all of the table, in its order."""
    by_name: bool
    """The names of the rows' columns say where their values go."""
    is_list: bool
    """The rows are VALUES."""
    texts: frozenset[int]
    """The columns of this list, by number, that have a text without a type in a row."""
    rows: str
    """The statement that makes the rows: `text`, with blanks where the rest stood."""


Change = CreateStatement | DropStatement | InsertStatement


def change_of(kind: str, text: str) -> Change:
    """What a statement changes. Raises QueryError if it is not one of ours, and says what to use instead."""
    words = Tokens(text)
    if kind == "INSERT":
        return _insert(words)
    if kind == "DROP" and words.takes("DROP", "TABLE"):
        return _drop(words)
    if kind == "CREATE":
        return _create(words)
    raise refused_statement(kind, text)


def _table(words: Tokens) -> Named:
    """The table that is to be changed."""
    first = token = words.name()
    while words.takes("."):
        before, token = token, words.name()
        if before is not first or before.name.lower() not in ("main", SYSTEM):
            raise words.wrong("tables have no schema and no catalog before their name", first)
        if before.name.lower() == SYSTEM:
            raise words.wrong(f"the tables of {SYSTEM} tell about the warehouse, and cannot be changed", first)
    return Named(token.name, token.place)


# ---- CREATE and DROP ------------------------------------------------------------------------------------------


def _create(words: Tokens) -> CreateStatement:
    words.needs("CREATE")
    if words.takes("OR", "REPLACE"):
        raise words.wrong("a table is not replaced by another one; DROP TABLE IF EXISTS … first")
    if not words.takes("TABLE"):
        raise refused_statement("CREATE", words.text)
    or_leave = words.takes("IF", "NOT", "EXISTS")
    table = _table(words)
    if words.is_over() or not words.here.says("("):
        raise words.wrong(_NO_ROWS)
    words.needs("(")
    columns = [_column(words)]
    while words.takes(","):
        columns.append(_column(words))
    words.needs(")")
    return CreateStatement(words.text, table, or_leave, tuple(columns), _options(words))


def _column(words: Tokens) -> DeclaredColumn:
    if any(words.here.says(word) for word in _OF_THE_TABLE):
        raise words.wrong("tables have no constraints but NOT NULL of a column")
    name = words.name()
    type_ = words.until(",", *_CONSTRAINTS)
    if not type_:
        raise words.wrong(_NO_ROWS if words.here.text in ",)" else "a column has a type behind its name")
    nullable = True
    while not words.is_over() and words.here.text not in (",", ")"):
        if words.takes("NOT", "NULL"):
            nullable = False
        elif not words.takes("NULL"):
            raise words.wrong("a column has a type and perhaps NOT NULL, nothing else")
    try:
        return DeclaredColumn(name.name, arrow_type(words.written(type_)), nullable)
    except QueryError as e:
        place = type_[0].at, type_[-1].end - type_[0].at
        raise QueryError(pointed(f"column {name.name}: {e}", words.text, place)) from None


def _options(words: Tokens) -> tuple[Option, ...]:
    if words.is_over():
        raise QueryError(_NEEDS_WITH)
    if words.here.says("AS"):
        raise words.wrong(_NO_ROWS)
    if not words.takes("WITH", "("):
        raise words.wrong(_NEEDS_WITH)
    found: list[Option] = []
    while not words.takes(")"):
        name = words.name()
        words.needs("=")
        found.append(Option(Named(name.name.lower(), name.place), _value(words, words.until(","))))
        words.takes(",")
    if not words.is_over():
        raise words.wrong(_NO_ROWS)
    return tuple(found)


def _value(words: Tokens, tokens: list[Token]) -> Named:
    if not tokens:
        raise words.wrong("an option has a value behind its =, as in time = 'ts'")
    place = tokens[0].at, tokens[-1].end - tokens[0].at
    if len(tokens) > 1:
        return Named(words.written(tokens), place)
    (token,) = tokens
    value = token.value if token.is_string else token.name
    if value is None:
        raise words.wrong("write it as a plain text: '…'", token)
    return Named(value, place)


def _drop(words: Tokens) -> DropStatement:
    or_leave = words.takes("IF", "EXISTS")
    table = _table(words)
    if not words.is_over():
        raise words.wrong("DROP TABLE takes the name of one table, and nothing behind it")
    return DropStatement(words.text, table, or_leave)


# ---- INSERT ---------------------------------------------------------------------------------------------------


def _insert(words: Tokens) -> InsertStatement:
    words.until("INSERT")  # common table expressions may come before
    start = words.here.at
    words.needs("INSERT")
    if not words.takes("INTO"):
        raise words.wrong("write INSERT INTO; a row never takes the place of another, and there are no keys that could conflict")
    table = _table(words)
    if words.takes("AS"):
        raise words.wrong("the table of an INSERT has no other name")
    columns = _named_columns(words)
    by_name = words.takes("BY", "NAME")
    if not by_name:
        words.takes("BY", "POSITION")
    if words.is_over() or words.here.says("DEFAULT"):
        raise words.wrong("INSERT takes VALUES or a SELECT; columns have no defaults, those left out are null")
    end = words.here.at
    _refuse_ends(words)
    while words.takes("("):
        pass
    is_list = words.takes("VALUES")
    texts = _texts(words.until()) if is_list else frozenset[int]()
    return InsertStatement(words.text, table, columns, by_name, is_list, texts, blanked(words.text, start, end))


def _named_columns(words: Tokens) -> tuple[Named, ...]:
    """The list of columns, if it is one: a SELECT may be in brackets too."""
    if words.is_over() or not words.takes("("):
        return ()
    if any(words.here.says(word) for word in ("SELECT", "WITH", "FROM", "VALUES", "(", "TABLE")):
        words.back()
        return ()
    found: list[Named] = []
    while not words.takes(")"):
        token = words.name()
        found.append(Named(token.name, token.place))
        if not words.takes(",") and not words.here.says(")"):
            raise words.wrong("a list of columns has names and commas, nothing else")
    return tuple(found)


def _texts(rows: list[Token]) -> frozenset[int]:
    """The columns that have a text in one of these rows, which are in brackets."""
    found, depth, column = set(), 0, 0
    for before, token, after in zip(rows, rows[1:], rows[2:], strict=False):
        depth += (before.text in _OPEN) - (before.text in _CLOSE)
        if depth == 1:
            column = 0 if before.says("(") else column + before.says(",")
            if token.is_string and before.text in ("(", ",") and after.text in (",", ")"):
                found.add(column)
    return frozenset(found)


def _refuse_ends(words: Tokens) -> None:
    """What may stand behind the rows in DuckDB."""
    flat = words.flat()
    for i, token in enumerate(flat):
        if token.says("RETURNING"):
            raise words.wrong("INSERT returns the number of rows; ask for the rows with SELECT", token)
        behind = flat[i + 1 :] if token.says("ON") else []
        if behind and behind[0].says("CONFLICT") and any(word.says("DO") for word in behind):
            raise words.wrong("a table has no unique keys, so no row conflicts with another; INSERT without ON CONFLICT", token)
