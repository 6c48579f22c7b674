"""The columns of an answer: columns of the table as they are, nested fields of them, and expressions, which DuckDB evaluates.

A text that is the name of a column is that column, whatever else it could mean. Everything else is read as SQL reads what stands in a
SELECT: `pos.lon`, `speed * 3.6 AS kmh`, `*`; what has no name of its own is named as DuckDB names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.duck.evaluator import ROWS, evaluator
from tidewheel.duck.expressions import Expression, at_one_moment
from tidewheel.duck.failures import DuckError
from tidewheel.duck.internals import tree_of_text
from tidewheel.duck.nodes import quoted, walk
from tidewheel.duck.parser import LONG
from tidewheel.duck.tokens import Tokens
from tidewheel.errors import QueryError
from tidewheel.model.schema import HIDDEN
from tidewheel.read.limits import NEVER, Watch
from tidewheel.read.row_expressions import looked_at_within, run

if TYPE_CHECKING:
    from tidewheel.read.planner import Planner

_FEW = 4096
"""Rows up to which an expression is evaluated without a look at the clock."""


@dataclass(frozen=True, slots=True)
class Item:
    """One column of an answer."""

    name: str
    """Empty, until DuckDB has named it."""
    column: str | None
    """The column that it is; None: it is made of an expression."""
    expression: Expression | None


def items_of(names: Sequence[str], role: str, planner: Planner, watch: Watch) -> list[Item]:
    """What the texts of `columns` or `group_by` mean, each with its name. Raises QueryError if one means nothing, or two have one name."""
    check_texts(names, role, planner)
    found = [item for text in names for item in _items(text, role, planner, watch)]
    unnamed = [item for item in found if not item.name]
    if unnamed:
        given = iter(_named_by_duckdb([item.expression for item in unnamed if item.expression is not None], role, planner, watch))
        found = [item if item.name else replace(item, name=next(given)) for item in found]
    seen: set[str] = set()
    for item in found:
        if item.name in seen:
            raise QueryError(f"{role}: two columns are named {item.name!r}; give one another name: '… AS other_name'")
        seen.add(item.name)
    return found


def check_texts(names: Sequence[Any], role: str, planner: Planner) -> None:
    for name in names:
        if not isinstance(name, str):
            planner.number(name, role)  # says that there is no such column


def _items(text: str, role: str, planner: Planner, watch: Watch) -> list[Item]:
    if text in planner.names:
        return [Item(text, text, None)]
    if text.strip() == "*":
        return [Item(name, name, None) for name in planner.names]
    if text.isidentifier() or text.startswith(HIDDEN) or not text.strip() or len(text) > LONG:
        planner.number(text, role)  # says that there is no such column
    node = _node(text, role, planner)
    alias = node.get("alias") or ""
    written = _without(alias, text, role) if alias else text
    names = node.get("column_names") if node.get("class") == "COLUMN_REF" else None
    if names is not None and len(names) == 1:
        planner.number(text if names[0] not in planner.names and alias else names[0], role)
        return [Item(alias or names[0], names[0], None)]
    if any(one.get("class") == "PARAMETER" for one in walk(node)):
        raise QueryError(f"{role}: {text!r} has a parameter; params are for where alone")
    try:
        looked = looked_at_within(written, tuple(planner.names), False, watch)
    except QueryError as e:
        said, is_aggregate, _ = str(e).removeprefix("where: ").partition("; it must say of every row by itself")
        hint = ". Give it a name in aggregate={…}" if is_aggregate else ""
        raise QueryError(f"{role}: {said}{hint}") from None
    own = names[-1] if names is not None else ""
    return [Item(alias or own, None, looked)]


def _node(text: str, role: str, planner: Planner) -> dict[str, Any]:
    try:
        with evaluator() as cursor:
            tree = tree_of_text(cursor, f'SELECT {text}\n FROM "{ROWS}"')
    except (DuckError, RecursionError) as e:
        raise QueryError(f"{role}: {text!r} is neither a column nor an expression: {e}") from None
    nodes = [] if tree.get("error") else [one["node"] for one in tree["statements"]]
    if len(nodes) == 1 and len(nodes[0].get("select_list") or ()) == 1 and not nodes[0].get("where_clause"):
        return nodes[0]["select_list"][0]  # type: ignore[no-any-return]
    why = f": {tree['error_message']}" if tree.get("error") else ": it is more than one"
    raise QueryError(
        f"{role}: table {planner.spec.name!r} has no column {text!r}, and it is no expression{why}. Columns: {', '.join(planner.names)}"
    )


def _without(alias: str, text: str, role: str) -> str:
    """An expression without the name behind it."""
    tokens = Tokens(text)
    found = []
    while not tokens.is_over():
        found.append(tokens.take())
    if len(found) < 2 or found[-1].name != alias:
        raise QueryError(f"{role}: the name of an expression stands behind it: write '… AS {alias}', not {text!r}")
    *rest, before, _ = found
    return tokens.written([*rest, before] if not before.says("AS") else rest)


def _named_by_duckdb(expressions: list[Expression], role: str, planner: Planner, watch: Watch) -> list[str]:
    texts = "\n, ".join(one.text for one in expressions)
    empty = pa.Table.from_batches([], planner.spec.schema)
    found = _run(f'SELECT {texts}\n FROM "{ROWS}"', empty, role, planner, watch, all(one.bounded for one in expressions)).schema.names
    if len(found) != len(expressions):
        raise QueryError(f"{role}: an expression is one column, and {texts!r} has {len(found)}; write '*' by itself for all columns")
    return [str(name) for name in found]


def _run(sql: str, rows: pa.Table, role: str, planner: Planner, watch: Watch, bounded: bool) -> pa.Table:
    """A first time, over no rows: what is wrong is said with its place."""
    try:
        return run(sql, rows, planner.names, watch, watch.limits.seconds != NEVER, bounded)
    except QueryError as e:
        raise QueryError(f"{role}: {e}") from None


_REMEMBERED = 256
"""Choices of columns of a table."""


def projection(names: Sequence[str], planner: Planner, watch: Watch) -> Projection:
    """The maker of these columns: they are often asked for again, and to look at an expression takes longer than to evaluate it."""
    check_texts(names, "columns", planner)
    asked = ("columns", *names)
    known: Projection | None = planner.remembered.get(asked)
    if known is None:
        known = Projection(names, planner, watch)
        if not known.tells_time and len(planner.remembered) < _REMEMBERED:
            planner.remembered[asked] = known
    return known


class Projection:
    """Makes the columns of an answer. `reads` are the table's columns that it needs, `schema` is that of the answer. Nothing in it
    changes."""

    def __init__(self, names: Sequence[str], planner: Planner, watch: Watch) -> None:
        items = items_of(names, "columns", planner, watch)
        if not items:
            raise QueryError("columns: name at least one")
        made = [item for item in items if item.expression is not None]
        looked = [item.expression for item in made if item.expression is not None]
        self.tells_time = any(one.moments for one in looked)
        self._names = planner.names
        self._bounded = all(one.bounded for one in looked)
        self._used = list(dict.fromkeys(name for one in looked for name in one.columns)) or [planner.spec.time.column]
        parts = [f"({text}\n) AS {quoted(item.name)}" for item, text in zip(made, at_one_moment(looked), strict=True)]
        self._sql = f"SELECT {', '.join(parts)} FROM {quoted(ROWS)}" if parts else ""
        self._items = [(item.name, item.column) for item in items]
        plain = [item.column for item in items if item.column is not None]
        self.reads: list[str] = list(dict.fromkeys([*plain, *(self._used if made else ())]))
        schema = planner.spec.schema
        empty = pa.Table.from_batches([], pa.schema([schema.field(name) for name in self.reads]))
        none = empty.select(self._used) if made else empty
        made_schema = _run(self._sql, none, "columns", planner, watch, self._bounded).schema if made else pa.schema([])
        if len(made_schema) != len(made):
            raise QueryError("columns: an expression is one column; write '*' by itself for all columns")
        fields = [made_schema.field(name) if column is None else schema.field(column).with_name(name) for name, column in self._items]
        self.schema = pa.schema(fields)

    def _evaluated(self, rows: pa.Table, watch: Watch, watched: bool) -> pa.Table:
        return run(self._sql, rows.select(self._used), self._names, watch, watched, self._bounded)

    def run(self, batch: pa.RecordBatch, beside: Sequence[str], watch: Watch) -> pa.RecordBatch:
        """The columns for a batch of rows, and some of the table's behind them."""
        made: dict[str, pa.Array] = {}
        if self._sql:
            watched = batch.num_rows > _FEW or watch.limits.seconds != NEVER
            found = self._evaluated(pa.Table.from_batches([batch.select(self._used)]), watch, watched)
            made = {name: column.combine_chunks() for name, column in zip(found.schema.names, found.columns, strict=True)}
        arrays = [made[name] if column is None else batch.column(column) for name, column in self._items]
        more = [batch.column(name) for name in beside]
        fields = [*self.schema, *(batch.schema.field(name) for name in beside)]
        return pa.record_batch([_array(one) for one in (*arrays, *more)], schema=pa.schema(fields))


def _array(found: pa.Array | pa.ChunkedArray) -> pa.Array:
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
