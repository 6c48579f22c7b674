"""HAVING as a condition on the columns of a query's groups: comparisons of keys and aggregates with constants, joined by AND, OR and NOT.

It is read as the condition of a statement is, and asked of the groups once they are made; aggregates that only HAVING names become columns
that the answer does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidewheel.duck.nodes import Node, arguments, both, comparisons_of, walk
from tidewheel.model.conditions import MIRRORED
from tidewheel.model.schema import TableSpec
from tidewheel.read.groups.aggregates import NAMES
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.prepared import Form, Reader, is_search

Find = Callable[[Node], tuple[str, pa.DataType]]
"""The column of the groups that a node is, and its type. Raises NotDirectError if it is none."""


_PLAIN = frozenset({"COLUMN_REF", "PARAMETER", "COMPARISON", "CONJUNCTION", "OPERATOR", "BETWEEN", "CAST", "TYPE"})


class HavingReader(Reader):
    """Reads the HAVING of one statement."""

    def __init__(self, find: Find, spec: TableSpec, places: Mapping[str, int]) -> None:
        super().__init__("", spec, places)
        self._find = find

    def _column(self, node: Any) -> tuple[str, pa.DataType]:
        if _is_constant(node):
            raise NotDirectError("its HAVING compares something else than keys and aggregates with constants")
        return self._find(node)

    def condition(self, node: Any, depth: int) -> Form:
        if node.get("type") == "COMPARE_BETWEEN" and _is_constant(node["input"]):  # both ends say together what it is compared as
            raise NotDirectError("its HAVING compares something else than keys and aggregates with constants")
        return super().condition(node, depth)

    def _comparison(self, child: Any, op: str, value: Any) -> Form:
        if _is_constant(child):
            child, op, value = value, MIRRORED[op], child
        return super()._comparison(child, op, value)


def divided(node: Node) -> Node:
    """The same SELECT, with the parts of its HAVING that name nothing but columns it groups by in its WHERE: there they bound what is
    read."""
    having = node.get("having")
    if not having:
        return node
    names = plain_keys(node)
    parts = having["children"] if having.get("type") == "CONJUNCTION_AND" else [having]
    own = [one for one in parts if names and is_of_rows(one, names)]
    if not own:
        return node
    left = [one for one in parts if not any(one is other for other in own)]
    before = [] if node.get("where_clause") is None else [node["where_clause"]]
    return node | {"having": both(*left) if left else None, "where_clause": both(*before, *own)}


def check_all_keys(node: Node) -> None:
    """Raises NotDirectError if HAVING names a column that GROUP BY ALL would not group by: DuckDB groups by it too."""
    if not node.get("having") or node.get("aggregate_handling") != "FORCE_AGGREGATES":
        return
    known = set[str]()
    for item in node.get("select_list") or []:
        if item.get("class") == "COLUMN_REF":
            known |= {item["column_names"][-1].lower(), item["alias"].lower()}
        elif not any(True for _ in bare_columns(item)):
            known.add(item["alias"].lower())
    if any(one["column_names"][-1].lower() not in known for one in bare_columns(node["having"])):
        raise NotDirectError("its HAVING says what else GROUP BY ALL groups by")


def bare_columns(tree: Any) -> Iterator[Node]:
    """The columns that stand in no aggregate."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left += node
        elif isinstance(node, dict) and (node.get("function_name") or "").lower() not in NAMES:
            if node.get("class") == "COLUMN_REF":
                yield node
            left += node.values()


def plain_keys(node: Node) -> frozenset[str]:
    """The names of columns that a SELECT groups by, without those that could mean something else of its answer."""
    items, groups = node.get("select_list") or [], node.get("group_expressions") or []
    if node.get("aggregate_handling") == "FORCE_AGGREGATES":
        groups = items
    elif len(node.get("group_sets") or []) != 1:
        return frozenset()
    columns = [one["column_names"] for one in groups if one.get("class") == "COLUMN_REF"]
    aliases = {one["alias"].lower() for one in items if one.get("alias")}
    return frozenset(names[-1].lower() for names in columns if names[-1].lower() not in aliases)


def is_of_rows(condition: Node, names: frozenset[str]) -> bool:
    """Whether a condition names nothing but these columns, and compares them only with constants or each other."""
    seen = list(walk(condition))
    columns = [one["column_names"] for one in seen if one.get("class") == "COLUMN_REF"]
    plain = all(one.get("class", "TYPE") in _PLAIN or is_search(one) for one in seen)
    return plain and bool(columns) and all(one[-1].lower() in names for one in columns)


def constants_of(having: Node | None) -> Iterator[Node]:
    """The constants that keys and aggregates are compared with: those that may be others in a statement of the same shape."""
    left = [] if having is None else [having]
    while left:
        node = left.pop()
        match node:
            case {"class": "CONJUNCTION", "children": children} | {"type": "OPERATOR_NOT", "children": children}:
                left += children
                continue
            case {"type": "COMPARE_IN", "children": [_, *values]}:
                sides = values
            case {"class": "COMPARISON", "left": left_side, "right": right_side}:
                sides = [left_side, right_side]
            case _ if said := comparisons_of(node):
                sides = [side for one, _, other in said for side in (one, other)]
            case _ if is_search(node):
                sides = arguments(node)[1:]
            case _:
                continue
        once = {id(side): side for side in sides}  # the subject of a BETWEEN stands in both of its comparisons
        for side in once.values():
            constant = side["child"] if side.get("class") == "CAST" else side
            if constant.get("class") == "CONSTANT":
                yield constant


def _is_constant(node: Node) -> bool:
    plain = node["child"] if node.get("class") == "CAST" else node
    return plain.get("class") in ("CONSTANT", "PARAMETER")
