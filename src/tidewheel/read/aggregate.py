"""Aggregates and groups: SQL aggregate expressions over the rows a query finds, streamed through DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.duck.evaluator import ROWS
from tidewheel.duck.expressions import Expression, at_one_moment, referenced
from tidewheel.duck.nodes import quoted
from tidewheel.errors import QueryError
from tidewheel.model.query import Query
from tidewheel.read.groups.group_texts import grouping_of
from tidewheel.read.groups.grouping import Grouping
from tidewheel.read.limits import NEVER, Watch
from tidewheel.read.projection import Item, items_of
from tidewheel.read.row_expressions import looked_at_within, run
from tidewheel.read.totals.parse import Total, read, type_of
from tidewheel.read.totals.sums import Totals

if TYPE_CHECKING:
    from tidewheel.read.planner import Planner

_REMEMBERED = 256
"""Choices of totals of a table."""


def aggregation(planner: Planner, query: Query, watch: Watch, in_place: bool) -> Aggregation | Grouping | Totals:
    """The maker of a query's aggregates and groups: DuckDB, unless they are plain totals; or, `in_place`, groups of which all is
    understood."""
    grouping = None
    if (totals := _totals(planner, query)) is None and in_place:
        grouping = grouping_of(planner, query, watch)
    return totals or grouping or Aggregation(planner, query, watch)


def _totals(planner: Planner, query: Query) -> Totals | None:
    if query.group_by or query.columns is not None or not isinstance(query.aggregate, Mapping) or not query.aggregate:
        return None
    pairs = tuple(query.aggregate.items())
    if not all(isinstance(part, str) for pair in pairs for part in pair):
        return None
    known = planner.remembered
    if pairs not in known:
        made = _plain(dict(pairs), planner.spec.schema)
        if len(known) >= _REMEMBERED:
            return made
        known[pairs] = made
    found: Totals | None = known[pairs]
    return found


def _plain(aggregate: dict[str, str], schema: pa.Schema) -> Totals | None:
    asked: dict[str, Total] = {}
    for name, expression in aggregate.items():
        total = read(expression, schema.names)
        if total is None or type_of(total, schema) is None:
            return None
        referenced(expression, tuple(schema.names))  # what only looks like an expression is refused here
        asked[name] = total
    return Totals(asked, schema)


def _groups(texts: list[Any], planner: Planner, watch: Watch) -> list[Item]:
    """What rows are grouped by."""
    if planner.are_columns(texts):
        for text in texts:
            planner.number(text, "group_by")
        return [Item(text, text, None) for text in texts]
    return items_of(texts, "group_by", planner, watch)


class Aggregation:
    """`reads` are the columns it needs; `schema` is that of its answer."""

    folds = None
    in_place = False

    def __init__(self, planner: Planner, query: Query, watch: Watch) -> None:
        names = planner.names
        if query.group_by is not None and not isinstance(query.group_by, (str, list, tuple)):
            raise QueryError(f"group_by is a list of columns, not {query.group_by!r}")
        texts = [query.group_by] if isinstance(query.group_by, str) else list(query.group_by or ())
        if query.aggregate is not None and not isinstance(query.aggregate, Mapping):
            raise QueryError(f"aggregate is a mapping like {{'n': 'count(*)', 'v': 'avg(speed)'}}, not {query.aggregate!r}")
        wanted = dict(query.aggregate or {})
        if query.columns is not None:
            raise QueryError("columns cannot be given together with aggregate or group_by: the answer has the groups and the aggregates")
        if not wanted and not texts:
            raise QueryError("aggregate is a mapping like {'n': 'count(*)', 'v': 'avg(speed)'}")
        groups = _groups(texts, planner, watch)
        looked: list[Expression] = [one.expression for one in groups if one.expression is not None]
        reads = dict.fromkeys([one.column for one in groups if one.column is not None])
        reads.update(dict.fromkeys(name for one in looked for name in one.columns))
        self._bounded = all(one.bounded for one in looked)
        for expression in wanted.values():
            if not isinstance(expression, str):
                raise QueryError(f"an aggregate is SQL text like 'avg(speed)', not {expression!r}")
            found = looked_at_within(expression, tuple(names), True, watch)
            reads.update(dict.fromkeys(found.columns))
            self._bounded = self._bounded and found.bounded
            looked.append(found)
        self.reads: list[str] = list(reads) or [planner.spec.time.column]
        made = iter(at_one_moment(looked))
        by = [f"({next(made)}\n)" if one.column is None else quoted(one.column) for one in groups]
        parts = [text if one.name == one.column else f"{text} AS {quoted(one.name)}" for one, text in zip(groups, by, strict=True)]
        parts += [f"({text}\n) AS {quoted(name)}" for name, text in zip(wanted, made, strict=True)]
        self._sql = f"SELECT {', '.join(parts)} FROM {quoted(ROWS)}" + (f" GROUP BY {', '.join(by)}" if groups else "")
        self._names = names
        empty = pa.Table.from_batches([], pa.schema([planner.spec.schema.field(n) for n in self.reads]))
        slow = watch.limits.seconds != NEVER  # what is constant in an expression is worked out even without a row
        # with a count beside them, expressions that do not aggregate are refused
        run(self._sql.replace("SELECT ", "SELECT count(*), ", 1), empty, names, watch, slow, self._bounded)
        self.schema = run(self._sql, empty, names, watch, slow, self._bounded).schema

    def run(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, watch: Watch) -> pa.Table:
        picked = pa.schema([schema.field(n) for n in self.reads])
        failure: list[BaseException] = []

        def stream() -> Iterator[pa.RecordBatch]:
            try:
                for batch in batches:
                    yield batch.select(self.reads)
            except GeneratorExit:  # nobody wants more
                raise
            except BaseException as e:  # DuckDB would wrap it into an error of its own
                failure.append(e)
                raise

        try:
            return run(self._sql, pa.RecordBatchReader.from_batches(picked, stream()), self._names, watch, bounded=self._bounded)
        except QueryError:
            if failure:
                raise failure.pop() from None
            raise
        finally:
            failure.clear()  # an error that is reached from its own traceback would stay, and all its frames with it
