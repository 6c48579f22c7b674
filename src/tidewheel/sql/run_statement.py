"""How a statement is asked of a warehouse: parsed, its tables found and pinned together, and bound; or, if it changes something, run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidewheel.duck import statement_time
from tidewheel.duck.error_text import pointed
from tidewheel.duck.parser import LONG
from tidewheel.engine.operations import ListTables
from tidewheel.engine.protocol import Engine, PinnedTable
from tidewheel.errors import NotFoundError, QueryError
from tidewheel.model.query import Query
from tidewheel.read.limits import NEVER, Limits
from tidewheel.read.result import Result
from tidewheel.sql import statement_cache
from tidewheel.sql.answer import answered
from tidewheel.sql.apart_reading import parsed_apart
from tidewheel.sql.asking import Asking
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.ddl import SYSTEM, InsertStatement
from tidewheel.sql.direct_result import DirectResult
from tidewheel.sql.execution import Inputs
from tidewheel.sql.frames import Frames, check_names, frames_of
from tidewheel.sql.identifiers import meant, unknown
from tidewheel.sql.parameters import Parameters, parameters_of
from tidewheel.sql.run_ddl import changed
from tidewheel.sql.statement import Reference, Statement, parse, remembered
from tidewheel.sql.statement_result import StatementResult
from tidewheel.sql.system import system_table


def ask(
    engine: Engine,
    text: str,
    parameters: Any,
    began: float,
    timeout: float | None = None,
    max_rows: float | None = None,
    max_bytes: float | None = None,
    tables: Any = None,
) -> Result:
    """The answer to a statement. All that can be wrong with it before rows are read is found here; what it changes is changed here.

    `began`: when it was asked. `tables`: rows that the statement can name besides those of the warehouse.
    """
    asking = Asking(began)
    if not isinstance(text, str):
        raise QueryError(f"a statement is SQL text like 'SELECT count(*) FROM taxi', not {text!r}")
    values = parameters_of(parameters)
    limits = Limits.of(engine.settings).asked_by(Query(timeout=timeout, max_rows=max_rows, max_bytes=max_bytes))
    frames = frames_of(tables)
    if frames:
        check_names(frames, engine.do(ListTables()))
    found = statement_cache.known(text) if not frames else None  # what is known of a shape is known of a table of ours
    if found is not None and (result := _at_once(engine, text, *found, values, limits, asking)) is not None:
        return result
    statement = parse(text) if len(text) <= LONG else parsed_apart(text, text, limits, asking)
    if isinstance(statement, Statement):
        return _read(engine, statement, values, limits, asking, frames)
    if values and not isinstance(statement, InsertStatement):
        raise QueryError("this statement takes no parameters: names and types are written into it")
    if frames and not isinstance(statement, InsertStatement):
        raise QueryError("this statement reads no rows, so there is nothing for tables= to be")
    unlimited = replace(limits, rows=NEVER)  # of rows that are returned
    return changed(engine, statement, lambda insert: _read(engine, _rows_of(insert, limits, asking), values, unlimited, asking, frames))


def _rows_of(insert: InsertStatement, limits: Limits, asking: Asking) -> Statement:
    """The statement that makes the rows of an INSERT."""
    found = remembered(insert.rows, insert.text) if len(insert.rows) <= LONG else parsed_apart(insert.rows, insert.text, limits, asking)
    assert isinstance(found, Statement)
    return found


def _at_once(
    engine: Engine, text: str, known: statement_cache.Known, constants: list[str], values: Parameters, limits: Limits, asking: Asking
) -> DirectResult | None:
    """The answer to a statement of a known shape; None if anything about it is not as plain as it looks."""
    try:
        (table,) = engine.versions([known.table])
    except NotFoundError:
        return None
    try:
        return DirectResult(engine.root, table, known.asked(table.spec, constants, values), limits, text, asking)
    except NotDirectError:
        return None


def _read(engine: Engine, statement: Statement, values: Parameters, limits: Limits, asking: Asking, frames: Frames) -> StatementResult:
    if statement.shows_tables:
        shown = parse("SELECT name FROM system.tables ORDER BY name")
        assert isinstance(shown, Statement)
        statement = replace(shown, original=statement.original)
    return answered(statement, _inputs(engine, statement, frames), values, limits, statement_time.moment(), asking)


def _inputs(engine: Engine, statement: Statement, frames: Frames) -> Inputs:
    tables = _pinned(engine, statement, frames)
    named = {reference.name.lower() for reference in statement.tables}
    frames = {name: frame for name, frame in frames.items() if name.lower() in named}
    others = {f"{SYSTEM}.{name}": system_table(engine, name) for name in statement.system}
    return Inputs(engine.root, tables, others, frames=frames)


def _pinned(engine: Engine, statement: Statement, frames: Frames) -> dict[str, PinnedTable]:
    """The tables that a statement names, at versions of one moment. Mostly one call of the owner."""
    other = set(map(str.lower, frames))
    references = [reference for reference in statement.tables if reference.name.lower() not in other]
    names = list(dict.fromkeys(reference.name for reference in references))
    if not names:
        return {}
    try:
        if any(reference.optional for reference in references):
            names = _meant(engine, statement, references, frames)
        pinned = engine.versions(names) if names else []
    except NotFoundError:
        names = _meant(engine, statement, references, frames)
        pinned = engine.versions(names) if names else []
    for i, name in enumerate(names):
        twin = next((one for one in names[:i] if one.lower() == name.lower()), None)
        if twin is not None:
            said = f"tables {twin} and {name} differ only in case, which SQL ignores: one statement cannot read both"
            place = next(reference.place for reference in statement.tables if reference.name == name)
            raise QueryError(pointed(said, statement.original, place))
    return dict(zip(names, pinned, strict=True))


def _meant(engine: Engine, statement: Statement, references: list[Reference], frames: Frames) -> list[str]:
    """The names of the tables that there are, without those that are only common table expressions."""
    known = engine.do(ListTables())
    found: dict[str, None] = {}
    for reference in references:
        name = meant(reference.name, known, statement.original, reference.place)
        if name is not None:
            found[name] = None
        elif not reference.optional:
            raise unknown(reference.name, [*known, *frames], statement.original, reference.place, read=True)
    return list(found)
