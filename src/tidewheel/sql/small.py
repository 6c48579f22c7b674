"""What is read before a statement, because it is little and tells where in a large table the rows are: (SELECT max(ts) FROM taxi), the
queries of IN, the small side of a join.

Only what gives the same rows whenever it is asked is read here: DuckDB will make them once more, and the two must not differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tidewheel.duck import nodes, statement_time
from tidewheel.duck.nodes import Node, walk
from tidewheel.duck.parser import select
from tidewheel.sql.folding import SAFE
from tidewheel.sql.scopes import Column, Relation, Scope, Tables

MOST_ROWS = 10_000
"""Values that are looked at."""
MOST_READ = 100_000
"""Rows that are read for them."""

_WORTH = 5_000
"""Rows of a table that are worth the trouble."""
_PART = 4
"""What is read before is at most such a part of a table."""

Read = Callable[[Node, int], pa.Table | None]
"""The rows of a query, or None if more than so many rows are to be read for it."""

_CLASSES = frozenset(
    {"COLUMN_REF", "CAST", "COMPARISON", "CONJUNCTION", "OPERATOR", "BETWEEN", "PARAMETER", "STAR", "TYPE", "CASE", "SUBQUERY"}
)
_AGGREGATES = frozenset({"min", "max", "count", "count_star"})
_MORE = frozenset(
    {"unnest", "~~", "!~~", "~~*", "~~~", "^@", "starts_with", "prefix", "suffix", "contains", "length", "coalesce", "nullif"}
)
_EQUAL = "COMPARE_EQUAL"
_SOURCES = frozenset({"BASE_TABLE", "SUBQUERY", "EXPRESSION_LIST", "EMPTY"})


class Small:
    """Answers the small questions of one SELECT."""

    def __init__(self, tables: Tables, read: Read) -> None:
        self._tables = tables
        self._read = read

    def rows(self, query: Node, most: int = MOST_READ) -> pa.Table | None:
        """Of a query that stands anywhere in the SELECT."""
        whole = query | {"cte_map": {"map": [*self._tables.needed(query), *((query.get("cte_map") or {}).get("map") or ())]}}
        return self._read(whole, most) if is_certain(whole) else None

    def scalar(self, query: Node) -> pa.Scalar | None:
        found = self.rows(query)
        return found.column(0)[0] if found is not None and found.shape == (1, 1) else None

    def values(self, query: Node, column: Column) -> pa.Array | None:
        """Each at least once. `column`: whose rows they are to tell; what reads as much as these is not read."""
        modifiers = query.get("modifiers") or []
        if all(one.get("type") in ("ORDER_MODIFIER", "DISTINCT_MODIFIER") and not one.get("distinct_on_targets") for one in modifiers):
            query = query | {"modifiers": []}
        found = self.rows(query, min(MOST_READ, column.table.about // _PART))
        return _only(found) if found is not None and found.num_columns == 1 else None

    def exists(self, query: Node, outside: Scope) -> Iterator[tuple[Node, pa.Array]]:
        """Of EXISTS (SELECT … FROM small WHERE small.id = taxi.id): columns outside, and the values that they must have one of."""
        if query.get("type") != "SELECT_NODE" or any(query.get(part) for part in _NOT_PLAIN):
            return
        if any(item.get("class") not in ("CONSTANT", "STAR", "COLUMN_REF") for item in query["select_list"]):
            return  # a total has a row in any case
        inside = Scope(list(self._tables.within(query).relations(query.get("from_table") or {})))
        conditions = conjuncts(query.get("where_clause"))
        own = [one for one in conditions if _is_within(one, inside)]
        for one in conditions:
            if one.get("type") != _EQUAL or one in own:
                continue
            for subject, expression in ((one["left"], one["right"]), (one["right"], one["left"])):
                # what the query inside may have itself is not the column outside
                column = (
                    outside.column(subject)
                    if subject.get("class") == "COLUMN_REF" and not inside.knows(subject["column_names"][0])
                    else None
                )
                if column is None or not column.indexed or not _is_within(expression, inside):
                    continue
                condition = nodes.both(*own) if own else None
                found = self.values(select([expression | {"alias": ""}], query["from_table"], condition, query["cte_map"]), column)
                if found is not None:
                    yield subject, found

    def of(self, relation: Relation, expression: Node, conditions: list[Node], column: Column) -> pa.Array | None:
        """The values that an expression has over something that stands in a FROM, where conditions hold."""
        condition = nodes.both(*conditions) if conditions else None
        return self.values(select([expression | {"alias": ""}], relation.node, condition, {"map": []}), column)


_NOT_PLAIN = ("group_expressions", "group_sets", "having", "sample", "qualify", "modifiers")


def conjuncts(condition: Node | None) -> list[Node]:
    """Conditions that must all hold."""
    if condition is None:
        return []
    return list(condition["children"]) if condition.get("type") == "CONJUNCTION_AND" else [condition]


def _is_within(expression: Node, scope: Scope) -> bool:
    """Whether it is about columns of a scope alone, and of nothing around it."""
    return all(
        node.get("class") != "SUBQUERY" and (node.get("class") != "COLUMN_REF" or scope.where(node) is not None)
        for node in walk(expression)
    )


def _only(rows: pa.Table) -> pa.Array:
    column = rows.column(0)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


class Joined:
    """Finds the other side of a join for a column."""

    def __init__(self, scope: Scope, small: Small, conditions: list[Node]) -> None:
        """`conditions`: that all rows of all tables must satisfy."""
        self._scope = scope
        self._small = small
        self._conditions = conditions

    def values(self, subject: Node, expression: Node) -> pa.Array | None:
        """What an expression over one other table can be, for the rows that are joined with those of a column's."""
        own = self._scope.where(subject)
        column = self._scope.column(subject)
        if own is None or column is None or column.table.about < _WORTH or self._is_fixed(subject) or self._is_fixed(expression):
            return None
        other = self._of(expression)
        if other is None or other is own:
            return None
        return self._small.of(other, expression, [one for one in self._conditions if self._of(one) is other], column)

    def _is_fixed(self, expression: Node) -> bool:
        """Whether a column is compared with constants anyway: DuckDB then knows it of all that the column is compared with."""
        for one in self._conditions if expression.get("class") == "COLUMN_REF" else ():
            sides = one["children"] if one.get("type") == "COMPARE_IN" else [one["left"], one["right"]] if one.get("type") == _EQUAL else []
            own = [side for side in sides if side.get("class") == "COLUMN_REF" and side["column_names"] == expression["column_names"]]
            if own and len(own) + sum(side.get("class") in ("CONSTANT", "PARAMETER") for side in sides) == len(sides):
                return True
        return False

    def _of(self, expression: Node) -> Relation | None:
        """The one that an expression is about."""
        found: Relation | None = None
        for node in walk(expression):
            if node.get("class") == "SUBQUERY":
                return None
            if node.get("class") == "COLUMN_REF":
                if len(node["column_names"]) == 1 and node["column_names"][0].lower() in statement_time.WORDS:
                    continue
                one = self._scope.where(node)
                if one is None or found is not None and found is not one:
                    return None
                found = one
        return found


def is_certain(query: Node) -> bool:
    """Whether a query gives the same rows whenever it is asked, and takes no longer than to read its tables once."""
    return all(_certain(node) for node in walk(query))


def _certain(node: Node) -> bool:
    kind: Any = node.get("class")
    if kind == "FUNCTION":
        name = node["function_name"].lower()
        return name in SAFE or name in _AGGREGATES or name in _MORE
    if kind is not None:
        return kind in _CLASSES
    if node.get("sample") or node.get("qualify"):
        return False
    if node.get("type") == "RECURSIVE_CTE_NODE":  # which may go on for ever
        return False
    if "modifiers" in node:
        return _picks_certainly(node)
    if node.get("type") == "TABLE_FUNCTION":
        return bool(node["function"]["function_name"].lower() == "unnest")
    if "type" in node and "query_location" in node:  # what stands in a FROM
        return node["type"] in _SOURCES
    return True


def _picks_certainly(node: Node) -> bool:
    """Of a LIMIT: only if what is picked is what it is picked by."""
    modifiers = node.get("modifiers") or []
    if any(one.get("type") == "DISTINCT_MODIFIER" and one.get("distinct_on_targets") for one in modifiers):
        return False
    if all(one.get("type") in ("ORDER_MODIFIER", "DISTINCT_MODIFIER") for one in modifiers):
        return True
    orders = [order for one in modifiers if one.get("type") == "ORDER_MODIFIER" for order in one["orders"]]
    items = node.get("select_list") or []
    if len(modifiers) != 2 or len(orders) != 1 or len(items) != 1 or modifiers[-1].get("type") != "LIMIT_MODIFIER":
        return False
    by, picked = orders[0]["expression"], items[0]
    return bool(picked.get("class") == by.get("class") == "COLUMN_REF" and picked["column_names"][-1:] == by["column_names"][-1:])
