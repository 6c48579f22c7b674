"""The `where` of a query of one table: what it says about key and time becomes bounds of the query, and its moment is fixed.

Its parts that can be decided where rows lie become the query's condition. If there are others, the text stays, and decides about the rows
that are left; what is wrong with it is found where it is evaluated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from tidewheel.duck import statement_time
from tidewheel.duck.evaluator import ROWS
from tidewheel.duck.nodes import Node, walk
from tidewheel.duck.parser import lone, text_of, tree_of
from tidewheel.errors import QueryError
from tidewheel.model.conditions import Condition, all_of
from tidewheel.model.query import Query
from tidewheel.model.schema import TableSpec
from tidewheel.read.boxes import Box, around
from tidewheel.read.condition_bounds import bounds_of, narrowed, points_of
from tidewheel.read.filters.program import program_of
from tidewheel.sql.address_order import check_address_order
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.prepared import Given, Reader
from tidewheel.sql.sharpen import sharpened
from tidewheel.sql.small import conjuncts
from tidewheel.sql.where_parameters import filled

_LONGEST = 20_000


def bounded(query: Query, spec: TableSpec, params: Any = None) -> Query:
    """A query with the same answer that reads no more than its `where` leaves, with values for its parameters; the query itself if there
    is nothing to add."""
    if (text := filled(query.where, params)) is not query.where:
        query = replace(query, where=text)
    if not isinstance(text, str) or len(text) > _LONGEST or not _may_say(text, spec):
        return query
    try:
        tree = tree_of(f'SELECT 1 FROM "{ROWS}" WHERE ({text}\n)')
    except QueryError:
        return query
    node = tree.get("node", {}) if isinstance(tree, dict) else {}
    if node.get("type") != "SELECT_NODE" or (condition := node.get("where_clause")) is None or _has_more(node):
        return query
    check_address_order(node, {ROWS: _Alone(spec)})
    at = statement_time.moment()
    names = {name.lower() for name in spec.schema.names}
    if statement_time.is_asked(walk(condition)):
        text = text_of(lone(statement_time.fixed(condition, at, names))).removeprefix("SELECT ")
    try:
        found = sharpened(node, {ROWS: _Alone(spec)}, None, at, lambda *_: None)["where_clause"]
        boxes = _boxes(found, spec)
        keys = points_of(boxes, spec) if query.key is None and query.box is None else None
        query = narrowed(query, spec, around(boxes) if boxes else {})
        query = replace(query, where=text, key=query.key if keys is None else keys)
        return _understood(query, found, spec)
    except RecursionError:  # hundreds of conditions: they are evaluated, and bound nothing
        return replace(query, where=text)


def _may_say(text: str, spec: TableSpec) -> bool:
    """Whether it names a column, or what time it is."""
    words = {word.lower() for word in re.findall(r"\w+", text)}
    named = {word for name in spec.schema.names for word in re.findall(r"\w+", name.lower())}
    return not words.isdisjoint(named | statement_time.FUNCTIONS | statement_time.WORDS)


def _has_more(node: Node) -> bool:
    """Whether it is more than a condition, or has a query in it: that is refused later."""
    parts = ("group_expressions", "having", "sample", "qualify", "modifiers")
    return any(node.get(part) for part in parts) or any(one.get("class") == "SUBQUERY" for one in walk(node["where_clause"]))


def _boxes(condition: Node, spec: TableSpec) -> tuple[Box, ...]:
    """Boxes that hold all rows that satisfy it, as far as it is understood."""
    known = [one for one in _parts(condition, spec) if one is not None]
    return bounds_of(all_of(known), spec).boxes


def _understood(query: Query, condition: Node, spec: TableSpec) -> Query:
    """With the parts of its `where` that can be decided where rows lie as a condition; if these are all, there is no `where` any more."""
    parts = _parts(condition, spec)
    ours = [one for one in parts if one is not None and program_of(one, spec.schema) is not None]
    if not ours:
        return query
    more = [] if query.condition is None else [query.condition]
    return replace(query, where=None if len(ours) == len(parts) else query.where, condition=all_of([*more, *ours]))


def _parts(condition: Node, spec: TableSpec) -> list[Condition | None]:
    """The conditions that all have to hold; None for each that is not understood."""
    reader = Reader(ROWS, spec, {})
    found = list[Condition | None]()
    left = [condition]
    while left:
        one = left.pop()
        parts = conjuncts(one)
        if len(parts) > 1:
            left += parts
            continue
        try:
            found.append(reader.condition(one, 0)(Given((), None)))
        except NotDirectError:
            found.append(None)
    return found


@dataclass(frozen=True, slots=True)
class _Alone:
    """The table as a statement sees it, with nothing in it."""

    spec: TableSpec
    about: int = 0
    times: tuple[int, int] | None = None
