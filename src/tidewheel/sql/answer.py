"""The answer to a statement whose tables are pinned, in the shortest of three ways: from the index, as a query of one table, by DuckDB."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from functools import partial

import pyarrow as pa

from tidewheel.duck.nodes import Node, walk
from tidewheel.duck.parser import text_of
from tidewheel.engine.protocol import PinnedTable
from tidewheel.errors import QueryError
from tidewheel.model.dataclass import dataclass
from tidewheel.model.loading import pc
from tidewheel.read.limits import NEVER, Cancellable, Limits
from tidewheel.read.pinned import PinnedVersion
from tidewheel.sql.address_order import check_address_order
from tidewheel.sql.apart_reading import ApartReading
from tidewheel.sql.asking import Asking
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.database import database
from tidewheel.sql.describing import described
from tidewheel.sql.direct import Asked, asked_of
from tidewheel.sql.direct_result import DirectResult
from tidewheel.sql.execution import Inputs, StatementReading
from tidewheel.sql.explain_direct import DirectExplainResult
from tidewheel.sql.explain_statement import ExplainResult
from tidewheel.sql.extra_bounds import narrowed
from tidewheel.sql.frames import columns_of_frame
from tidewheel.sql.groups_within import over, parts_of, with_parts
from tidewheel.sql.parameters import Parameters, value_of
from tidewheel.sql.rest_of_groups import NAME as NAME_OF_GROUPS
from tidewheel.sql.rest_of_groups import is_grouped, rest_of
from tidewheel.sql.sharpen import sharpened
from tidewheel.sql.small import MOST_ROWS
from tidewheel.sql.sql_result import Makes, SqlResult, Text
from tidewheel.sql.statement import Statement, parse
from tidewheel.sql.statement_result import StatementResult
from tidewheel.sql.streamed import Streamed
from tidewheel.sql.table_scan import TableScan
from tidewheel.sql.table_summary import NAME, rewritten, standing_for

_MOST_ASKED = 8
"""Small queries that are answered before a statement."""

_WORTH = 100_000
"""Rows whose groups are made here if they are a part of a statement: of fewer, DuckDB makes them before a part of it is taken out."""


def answered(
    statement: Statement, inputs: Inputs, values: Parameters, limits: Limits, at: dt.datetime, asking: Asking, before: _Before | None = None
) -> StatementResult:
    """`at`: what time it is for the statement. `before`: what else is answered before the statement that this one is a part of."""
    inputs.at = at if statement.tells_time else None
    if (summary := _summary(statement, inputs, values, limits, asking)) is not None:
        return summary
    whole = before is None
    if (short := _shortly(statement, inputs, values, limits, asking, whole)) is not None:
        return short
    if whole:
        check_address_order(statement.node, inputs.tables, statement.original)
    first = before or _Before(inputs, values, limits, at, asking)
    better = _sharpened(statement, inputs, values, first)
    if better is not statement:
        try:
            found = _shortly(better, inputs, values, limits, asking, whole)
            result = _long(better, inputs, values, limits, asking, whole) if found is None else found
            result.before = (*first.scans, *result.before) if whole else ()
            return result
        except QueryError:
            pass  # what is wrong is said of the statement as it was written
    return _long(statement, inputs, values, limits, asking, whole)


@dataclass(frozen=True, slots=True)
class _Way:
    """How a statement is answered by one query of a table."""

    made: DirectResult
    asked: Asked
    rest: str = ""
    """What DuckDB makes of the groups of that query, if it makes the answer."""
    why: str = ""
    """Why it does."""


def _way(statement: Statement, inputs: Inputs, values: Parameters, limits: Limits, asking: Asking, whole: bool = True) -> _Way:
    """Raises NotDirectError, which says why there is none. `whole`: it is no part of another statement."""
    try:
        table, asked = _asked(statement, inputs, values)
        return _Way(DirectResult(inputs.root, table, asked, limits, statement.original, asking), asked)
    except NotDirectError as e:
        why = str(e)
    if not whole or not is_grouped(statement.node):
        raise NotDirectError(why or "DuckDB gives other types to its answer, or puts so many rows in order faster")
    try:
        table, asked, rest = _groups(statement, inputs, values)
    except RecursionError:
        raise NotDirectError("it has hundreds of expressions within each other") from None
    return _Way(DirectResult(inputs.root, table, asked, replace(limits, rows=NEVER), statement.original, asking), asked, rest, why)


def _shortly(
    statement: Statement, inputs: Inputs, values: Parameters, limits: Limits, asking: Asking, whole: bool
) -> StatementResult | None:
    """The answer by one query of a table, or how that is made; None if there is none."""
    try:
        way = _way(statement, inputs, values, limits, asking, whole)
    except NotDirectError:
        return None
    if statement.explain:
        return DirectExplainResult(way.made, way.asked, statement.original, statement.explain == "analyze", way.why if way.rest else "")
    return _over_groups(statement, inputs, limits, asking, way) if way.rest else way.made


def _over_groups(statement: Statement, inputs: Inputs, limits: Limits, asking: Asking, way: _Way) -> SqlResult:
    """The answer by DuckDB, over groups that a query of one table makes."""
    made = way.made
    made.is_listed = False
    reader = _Reader()
    groups = Streamed(made.schema, partial(made._batches, False, reader))
    stands = Inputs(inputs.root, {}, {NAME_OF_GROUPS: groups}, inputs.generations)
    stands.at = inputs.at
    makes = partial(StatementReading, database(limits.bytes))
    result = SqlResult(makes, stands, limits, Text(statement.original, way.rest), None, asking)
    reader.life = result.life
    result.before = made.scans
    return result


def _groups(statement: Statement, inputs: Inputs, values: Parameters) -> tuple[PinnedTable, Asked, str]:
    """What makes the groups of a statement, and the rest of it. Raises NotDirectError if they are not ours."""
    if not statement.bounded or not statement.node:
        raise NotDirectError("it has a function that may take long")
    table = _only_table(statement, inputs)
    check_address_order(statement.node, inputs.tables, statement.original)
    having = list(walk(statement.node.get("having")))
    try:
        rest = rest_of(statement.node, table.spec)
        return table, asked_of(rest.groups, table.spec, values), rest.text
    except NotDirectError:
        if not having or any(one.get("class") == "PARAMETER" for one in having):
            raise
    rest = rest_of(statement.node, table.spec, having=False)
    return table, asked_of(rest.groups, table.spec, values), rest.text


def _why_not(statement: Statement, inputs: Inputs, values: Parameters, limits: Limits, asking: Asking) -> str:
    """Why DuckDB answers it."""
    try:
        _way(statement, inputs, values, limits, asking)
    except NotDirectError as e:
        return str(e)
    return "it is a part of another statement"


def _asked(statement: Statement, inputs: Inputs, values: Parameters) -> tuple[PinnedTable, Asked]:
    """What a statement reads of its table, if it needs nothing of DuckDB. Raises NotDirectError, which says why it does."""
    if statement.direct is None:
        raise NotDirectError(statement.why_not)
    table = _only_table(statement, inputs)
    return table, asked_of(statement.direct, table.spec, values)


def _only_table(statement: Statement, inputs: Inputs) -> PinnedTable:
    named = {one.name.lower() for one in statement.tables}
    table = next((table for name, table in inputs.tables.items() if name.lower() in named), None)
    if len(statement.tables) != 1 or table is None:
        raise NotDirectError("it reads something else than one table")
    return table


def _long(statement: Statement, inputs: Inputs, values: Parameters, limits: Limits, asking: Asking, whole: bool) -> StatementResult:
    """The answer by DuckDB."""
    try:
        if whole and (made := _with_groups(statement, inputs, values, limits, asking)) is not None:
            return made
    except RecursionError:  # hundreds of expressions within each other
        pass
    _take_hints(statement, inputs, values)
    makes: Makes = partial(StatementReading, database(limits.bytes)) if statement.bounded else ApartReading
    text = Text(statement.original, described(statement.node, inputs.tables) or statement.text)
    if statement.explain:
        why = _why_not(statement, inputs, values, limits, asking)
        return ExplainResult(makes, inputs, limits, text, values, asking, statement.explain == "analyze", why)
    return SqlResult(makes, inputs, limits, text, values, asking)


def _with_groups(statement: Statement, inputs: Inputs, values: Parameters, limits: Limits, asking: Asking) -> StatementResult | None:
    """The answer by DuckDB, with the groups of parts of the statement that queries of single tables make; None if it has no such part."""
    if not statement.bounded or not inputs.tables or len(values or ()) != len(_parameters_of(statement.node)):
        return None
    tables = {name.lower(): table for name, table in inputs.tables.items() if table.about >= _WORTH}
    analyze = statement.explain == "analyze"
    instead, groups, told = list[tuple[Node, Node]](), dict[str, DirectResult](), list[DirectExplainResult]()
    for body, part in parts_of(statement.node, {name: table.spec for name, table in tables.items()}):
        table = tables[part.table]
        try:
            asked = asked_of(part.groups, table.spec, _those(part.parameters, values))
            made = DirectResult(inputs.root, table, asked, replace(limits, rows=NEVER), statement.original, asking)
        except NotDirectError:
            continue
        if made.most_rows() < _WORTH:
            continue
        made.is_listed = False
        name = f"{NAME_OF_GROUPS}{len(groups)}"
        instead.append((body, over(part.body, name)))
        groups[name] = made
        told.append(DirectExplainResult(made, asked, statement.original, analyze, "they are a part of the statement"))
        told[-1].is_listed = False
    if not groups:
        return None
    node = with_parts(statement.node, instead)
    named = {one["table_name"].lower() for one in walk(node) if one.get("type") == "BASE_TABLE"}
    kept = {name: table for name, table in inputs.tables.items() if name.lower() in named}
    reader = _Reader()
    streams = {name: Streamed(made.schema, partial(made._batches, False, reader)) for name, made in groups.items()}
    stands = Inputs(inputs.root, kept, {**inputs.others, **streams}, inputs.generations, inputs.frames)
    stands.at = inputs.at
    _take_hints(statement, stands, values)
    makes = partial(StatementReading, database(limits.bytes))
    text, given = Text(statement.original, text_of(node)), _those(_parameters_of(node), values)
    if statement.explain:
        why = "the groups of a part of it are there already"
        return ExplainResult(makes, stands, limits, text, given, asking, analyze, why, told)
    result = SqlResult(makes, stands, limits, text, given, asking)
    reader.life = result.life
    result.before = [scan for made in groups.values() for scan in made.scans]
    return result


class _Reader:
    """Whoever reads groups, and cancels that: the life of a result, and not the result itself, which holds the groups."""

    life: Cancellable | None = None

    @property
    def cancelled(self) -> bool:
        return self.life is not None and self.life.cancelled


def _parameters_of(node: Node) -> frozenset[str]:
    return frozenset(one["identifier"] for one in walk(node) if one.get("class") == "PARAMETER")


def _those(names: frozenset[str], values: Parameters) -> Parameters:
    """Of the parameters those with these names."""
    try:
        return {name: value_of(name, values) for name in names} or None
    except LookupError:
        return values


def _take_hints(statement: Statement, inputs: Inputs, values: Parameters) -> None:
    inputs.narrow.clear()
    for name, table in inputs.tables.items() if statement.hints else ():
        narrow = narrowed((hint for hint in statement.hints if hint.table.lower() == name.lower()), table.spec, values)
        if narrow is not None:
            inputs.narrow[name] = narrow


def _summary(statement: Statement, inputs: Inputs, values: Parameters, limits: Limits, asking: Asking) -> SqlResult | None:
    """The answer from what chunks know of themselves, if that is all that is asked."""
    asked, tables = statement.summary, list(inputs.tables.values())
    if asked is None or len(tables) != 1 or not isinstance(tables[0], PinnedVersion):
        return None
    table = tables[0]
    found = standing_for(table.version, table.spec, asked.columns, table.query_at)
    if found is None or (run := rewritten(statement.text, asked, found[1])) is None:
        return None
    stands = Inputs(inputs.root, {}, {NAME: found[0]}, inputs.generations)
    return SqlResult(partial(StatementReading, database(limits.bytes)), stands, limits, Text(statement.original, run), values, asking)


# ---- with more conditions -------------------------------------------------------------------------------------


def _sharpened(statement: Statement, inputs: Inputs, values: Parameters, before: _Before) -> Statement:
    """The statement with conditions that reach its scans, or itself."""
    if not inputs.tables or any(node.get("schema_name") for node in walk(statement.node) if node.get("type") == "BASE_TABLE"):
        return statement
    frames = {name.lower(): columns_of_frame(frame) for name, frame in inputs.frames.items()}
    node = sharpened(statement.node, inputs.tables, values, before.at, before.rows, frames)
    return statement if node is statement.node else statement.meaning(node)


class _Before:
    """Answers small queries before the statement that they are a part of, from the same versions of its tables."""

    def __init__(self, inputs: Inputs, values: Parameters, limits: Limits, at: dt.datetime, asking: Asking) -> None:
        self._inputs = inputs
        self._values = values
        self._limits = replace(limits, rows=NEVER)
        self.at = at
        self._asking = asking
        self._left = _MOST_ASKED
        self._known: dict[str, pa.Table | None] = {}
        self.scans: list[TableScan] = []

    def rows(self, query: Node, most: int) -> pa.Table | None:
        """None if more rows are read for it, or it cannot be answered by itself."""
        text = text_of(query)
        if text not in self._known:
            if not self._left:
                return None
            self._left -= 1
            self._known[text] = None  # also for a query within itself
            self._known[text] = self._answer(text, most)
        return self._known[text]

    def _answer(self, text: str, most: int) -> pa.Table | None:
        try:
            statement = parse(text)
            if not isinstance(statement, Statement) or not statement.bounded:
                return None
            named = {one.name.lower() for one in statement.tables}
            tables = {name: table for name, table in self._inputs.tables.items() if name.lower() in named}
            frames = {name: frame for name, frame in self._inputs.frames.items() if name.lower() in named}
            inputs = Inputs(self._inputs.root, tables, {}, frames=frames)
            result = answered(statement, inputs, self._given(statement), self._limits, self.at, self._asking, self)
        except (QueryError, LookupError):  # it needs the rest of the statement, or is wrong
            return None
        result.is_listed = False
        if not _is_small(result, most):
            return None
        try:
            rows = _taken(result)
        except QueryError:  # DuckDB may never come to it; if it does, it is said of the whole statement
            return None
        self.scans += result.scans
        return rows

    def _given(self, statement: Statement) -> Parameters:
        """Those of the parameters that are asked for."""
        names = {node["identifier"] for node in walk(statement.node) if node.get("class") == "PARAMETER"}
        return {name: value_of(name, self._values) for name in names} or None


def _is_small(result: StatementResult, most: int) -> bool:
    """Whether little is read for it. A total is read at the speed of memory, and takes the place of what DuckDB would do."""
    if isinstance(result, DirectResult):
        return result.is_total or result.most_rows() <= most
    return isinstance(result, SqlResult) and result.about <= most


def _taken(result: StatementResult) -> pa.Table | None:
    """Its rows, values of one column each at least once; None if they are many."""
    rows = result.to_arrow()
    if rows.num_columns == 1 and rows.num_rows > 1:
        once = pa.table([pc.unique(rows.column(0))], rows.schema.names)
        rows = once if once.num_rows > 1 else rows.slice(0, 2)  # several that are alike are no scalar: DuckDB refuses them
    return rows if rows.num_rows <= MOST_ROWS else None
