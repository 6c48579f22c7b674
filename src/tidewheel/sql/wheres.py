"""The `where` of a query of one table: what it says about key and time becomes bounds of the query, and its moment is fixed.

The condition itself stays, and decides about rows. What is wrong with it is found where it is evaluated.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace

from tidewheel.duck import statement_time
from tidewheel.duck.evaluator import ROWS
from tidewheel.duck.nodes import Node, walk
from tidewheel.duck.parser import lone, text_of, tree_of
from tidewheel.errors import QueryError
from tidewheel.model.conditions import all_of
from tidewheel.model.query import Query
from tidewheel.model.schema import TableSpec
from tidewheel.read.boxes import Box, around
from tidewheel.read.condition_bounds import bounds_of, narrowed
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.prepared import Given, Reader
from tidewheel.sql.sharpen import sharpened
from tidewheel.sql.small import conjuncts

_LONGEST = 20_000


def bounded(query: Query, spec: TableSpec) -> Query:
    """A query with the same answer that reads no more than its `where` leaves; the query itself if there is nothing to add."""
    text = query.where
    if not isinstance(text, str) or len(text) > _LONGEST or not _may_say(text, spec):
        return query
    try:
        tree = tree_of(f'SELECT 1 FROM "{ROWS}" WHERE ({text}\n)')
    except QueryError:
        return query
    node = tree.get("node", {}) if isinstance(tree, dict) else {}
    if node.get("type") != "SELECT_NODE" or (condition := node.get("where_clause")) is None or _has_more(node):
        return query
    at = statement_time.moment()
    names = {name.lower() for name in spec.schema.names}
    if statement_time.is_asked(walk(condition)):
        text = text_of(lone(statement_time.fixed(condition, at, names))).removeprefix("SELECT ")
    try:
        found = sharpened(node, {ROWS: _Alone(spec)}, None, at, lambda *_: None)["where_clause"]
        return replace(narrowed(query, spec, _box(found, spec)), where=text)
    except RecursionError:  # hundreds of conditions: they are evaluated, and bound nothing
        return replace(query, where=text)


def _may_say(text: str, spec: TableSpec) -> bool:
    """Whether it names the key, the time, or what time it is."""
    words = {word.lower() for word in re.findall(r"\w+", text)}
    named = {word for name in (*spec.key.columns, spec.time.column) for word in re.findall(r"\w+", name.lower())}
    return not words.isdisjoint(named | statement_time.FUNCTIONS | statement_time.WORDS)


def _has_more(node: Node) -> bool:
    """Whether it is more than a condition, or has a query in it: that is refused later."""
    parts = ("group_expressions", "having", "sample", "qualify", "modifiers")
    return any(node.get(part) for part in parts) or any(one.get("class") == "SUBQUERY" for one in walk(node["where_clause"]))


def _box(condition: Node, spec: TableSpec) -> Box:
    """A box around all rows that satisfy it, as far as it is understood."""
    reader = Reader(ROWS, spec, {})
    known = []
    left = [condition]
    while left:
        one = left.pop()
        parts = conjuncts(one)
        if len(parts) > 1:
            left += parts
            continue
        with suppress(NotDirectError):
            known.append(reader.condition(one, 0)(Given((), None)))
    boxes = bounds_of(all_of(known), spec).boxes
    return around(boxes) if boxes else {}


@dataclass(frozen=True, slots=True)
class _Alone:
    """The table as a statement sees it, with nothing in it."""

    spec: TableSpec
    about: int = 0
