"""The groups of a query, read from its texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidewheel.duck.evaluator import ROWS
from tidewheel.duck.expressions import tree_of_expression
from tidewheel.model.query import Query
from tidewheel.read.groups.aggregates import Aggregate
from tidewheel.read.groups.group_nodes import aggregate_of, key_of
from tidewheel.read.groups.grouping import Grouping
from tidewheel.read.groups.keys import Key, type_of_key
from tidewheel.read.limits import Watch
from tidewheel.read.projection import items_of
from tidewheel.read.row_expressions import looked_at_within

if TYPE_CHECKING:
    from tidewheel.read.planner import Planner

_REMEMBERED = 256
"""Choices of groups of a table."""


def grouping_of(planner: Planner, query: Query, watch: Watch) -> Grouping | None:
    """The groups that a query asks for; None if something about them is left to DuckDB, or is wrong."""
    wanted = {} if query.aggregate is None else query.aggregate
    by = [query.group_by] if isinstance(query.group_by, str) else [] if query.group_by is None else query.group_by
    if query.columns is not None or not isinstance(wanted, Mapping) or not isinstance(by, (list, tuple)) or not (by or wanted):
        return None
    pairs = tuple(wanted.items())
    if not all(isinstance(text, str) for text in (*by, *(part for pair in pairs for part in pair))):
        return None
    asked: Any = ("groups", pairs, tuple(by))
    known = planner.remembered
    if asked in known:
        found: Grouping | None = known[asked]
        return found
    made = _grouping(planner, dict(pairs), list(by), watch)
    if len(known) < _REMEMBERED:
        known[asked] = made
    return made


def _grouping(planner: Planner, wanted: dict[str, str], by: list[str], watch: Watch) -> Grouping | None:
    spec, names = planner.spec, tuple(planner.names)
    keys: dict[str, Key] = {}
    aggregates: dict[str, Aggregate] = {}
    for item in items_of(by, "group_by", planner, watch) if by else ():
        if item.column is not None:
            key = Key(item.column) if type_of_key(Key(item.column), spec.schema) is not None else None
        else:
            assert item.expression is not None
            key = key_of(tree_of_expression(item.expression.text), spec, ROWS)
        if key is None or item.name in keys:
            return None
        keys[item.name] = key
    for name, text in wanted.items():
        looked_at_within(text, names, True, watch)  # what is wrong with it is said here
        aggregate = aggregate_of(tree_of_expression(text), spec, ROWS)
        if aggregate is None:
            return None
        aggregates[name] = aggregate
    if len({name.lower() for name in (*keys, *aggregates)}) < len(keys) + len(aggregates) or len(keys) > _MOST_KEYS:
        return None
    return Grouping(keys, aggregates, spec.schema)


_MOST_KEYS = 8
"""Kernels have a byte of bits that say which are null."""
