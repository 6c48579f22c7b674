"""A statement that shows more of what it needs: its conditions on key and time in a form that reaches the scans.

The tree of the statement is gone through, and every WHERE and ON gets what it implies (`implied`). It is the same statement, with the same
answer; DuckDB brings the conditions to the scans, through joins, groups and whatever is between.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tidewheel.duck import nodes
from tidewheel.duck.nodes import Node
from tidewheel.sql.first_rows import first_rows
from tidewheel.sql.folding import ConstantFolder
from tidewheel.sql.implied import ImpliedFinder
from tidewheel.sql.parameters import Parameters
from tidewheel.sql.scopes import Scope, TableFacts, Tables
from tidewheel.sql.small import Joined, Read, Small, conjuncts

_DEEPEST = 60


def sharpened(
    query: Node,
    tables: Mapping[str, TableFacts],
    parameters: Parameters,
    at: dt.datetime,
    read: Read,
    frames: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Node:
    """The node of a query that has the same rows; the same object if there is nothing to add. `read`: answers small queries.

    `frames`: the columns of other rows, by their names in lower case.
    """
    known = Tables({name.lower(): table for name, table in tables.items()}, frames=frames)
    return _Sharpening(parameters, at, read).query(query, known, 0)


class _Sharpening:
    def __init__(self, parameters: Parameters, at: dt.datetime, read: Read) -> None:
        self._parameters = parameters
        self._at = at
        self._read = read

    def query(self, node: Node, tables: Tables, depth: int) -> Node:
        if depth > _DEEPEST:
            return node
        if node.get("type") != "SELECT_NODE":
            return self._parts(node, tables, depth)
        changed: Node = {}
        inside = tables.within(node)
        if (ctes := (node.get("cte_map") or {}).get("map")) and (made := self._common(ctes, tables, depth)) is not ctes:
            changed["cte_map"] = node["cte_map"] | {"map": made}
        source, condition = node.get("from_table") or {}, node.get("where_clause")
        inner = is_inner(source)
        scope = Scope(list(inside.relations(source)), frozenset(_merged(source)) if inner else frozenset())
        small = Small(inside, self._read)
        joined = Joined(scope, small, [*conjuncts(condition), *on_conditions(source)] if inner else [])
        finder = ImpliedFinder(
            scope, ConstantFolder(self._parameters, self._at, small.scalar, scope.knows), small.values, joined.values, small.exists
        )
        if condition is not None:
            changed["where_clause"] = self._within(finder.sharpened(condition), inside, depth)
        changed["from_table"] = self._source(source, finder, inside, depth)
        if inner and (more := _using(source, finder)):
            before = changed.get("where_clause")
            changed["where_clause"] = nodes.both(*([before] if before is not None else []), *more)
        if (part := first_rows(node | changed, scope, small)) is not None:
            changed["where_clause"] = nodes.both(part, *conjuncts((node | changed).get("where_clause")))
        changed = {name: value for name, value in changed.items() if value is not node.get(name)}
        return node | changed if changed else node

    def _common(self, ctes: list[Node], tables: Tables, depth: int) -> list[Node]:
        """Common table expressions: each knows those before it."""
        made = []
        for i, one in enumerate(ctes):
            body = one["value"]["query_node"]
            inner = self.query(body, replace(tables, common=(*tables.common, *ctes[:i])), depth + 1)
            made.append(one if inner is body else one | {"value": one["value"] | {"query_node": inner}})
        return ctes if all(a is b for a, b in zip(made, ctes, strict=True)) else made

    def _parts(self, node: Node, tables: Tables, depth: int) -> Node:
        """Queries within a query of another kind, such as UNION."""
        inside = tables.within(node)
        changed: Node = {}
        for name, value in node.items():
            if name == "cte_map":
                ctes = (value or {}).get("map")
                made: Any = value if not ctes or (new := self._common(ctes, tables, depth)) is ctes else value | {"map": new}
            elif name in ("left", "right", "query", "child") and isinstance(value, dict):
                made = self.query(value, inside, depth + 1)
            elif name == "children" and isinstance(value, list):
                made = [self.query(one, inside, depth + 1) if isinstance(one, dict) else one for one in value]
                made = value if all(a is b for a, b in zip(made, value, strict=True)) else made
            else:
                continue
            if made is not value:
                changed[name] = made
        return node | changed if changed else node

    def _source(self, source: Node, finder: ImpliedFinder, tables: Tables, depth: int) -> Node:
        """What stands in a FROM."""
        changed: Node = {}
        match source:
            case {"type": "JOIN", "left": left, "right": right, "condition": condition}:
                changed = {"left": self._source(left, finder, tables, depth + 1), "right": self._source(right, finder, tables, depth + 1)}
                if condition is not None and source.get("ref_type") == "REGULAR":
                    changed["condition"] = self._within(finder.sharpened(condition), tables, depth)
            case {"type": "SUBQUERY", "subquery": {"node": node} as query}:
                inner = self.query(node, tables, depth + 1)
                changed = {"subquery": query if inner is node else query | {"node": inner}}
        changed = {name: value for name, value in changed.items() if value is not source.get(name)}
        return source | changed if changed else source

    def _within(self, condition: Node, tables: Tables, depth: int) -> Node:
        """A condition with its queries sharpened."""
        match condition:
            case {"class": "SUBQUERY", "subquery": {"node": node} as query}:
                inner = self.query(node, tables, depth + 1)
                return condition if inner is node else condition | {"subquery": query | {"node": inner}}
            case {"type": "CONJUNCTION_AND" | "CONJUNCTION_OR" | "OPERATOR_NOT", "children": children} if depth < _DEEPEST:
                made = [self._within(child, tables, depth + 1) for child in children]
                return condition if all(a is b for a, b in zip(made, children, strict=True)) else condition | {"children": made}
            case {"class": "COMPARISON", "left": left, "right": right}:
                new = {"left": self._within(left, tables, depth + 1), "right": self._within(right, tables, depth + 1)}
                return condition if new["left"] is left and new["right"] is right else condition | new
        return condition


def is_inner(source: Node) -> bool:
    """Whether every row of every table must satisfy the WHERE."""
    if source.get("type") != "JOIN":
        return True
    plain = source.get("join_type") == "INNER" and source.get("ref_type") in ("REGULAR", "CROSS", "NATURAL")
    return plain and is_inner(source["left"]) and is_inner(source["right"])


def _merged(source: Node) -> Iterator[str]:
    if source.get("type") == "JOIN":
        yield from (name.lower() for name in source.get("using_columns") or ())
        yield from _merged(source["left"])
        yield from _merged(source["right"])


def on_conditions(source: Node) -> Iterator[Node]:
    """The conditions of joins."""
    if source.get("type") == "JOIN":
        yield from conjuncts(source.get("condition"))
        yield from on_conditions(source["left"])
        yield from on_conditions(source["right"])


def _using(source: Node, finder: ImpliedFinder) -> list[Node]:
    """What the columns of USING imply: each is a comparison of two tables."""
    if source.get("type") != "JOIN":
        return []
    found = [*_using(source["left"], finder), *_using(source["right"], finder)]
    sides = [source[side] for side in ("left", "right")]
    for name in source.get("using_columns") or ():
        aliases = [(one.get("alias") or one.get("table_name") or "") for one in sides]
        if all(one.get("type") != "JOIN" for one in sides) and all(aliases):
            left, right = ({**_REFERENCE, "column_names": [alias, name]} for alias in aliases)
            made = finder.implied(nodes.comparison("COMPARE_EQUAL", left, right))
            if made is not None:
                found.append(made)
    return found


_REFERENCE = {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "query_location": (1 << 64) - 1, "query_location_length": 0}
