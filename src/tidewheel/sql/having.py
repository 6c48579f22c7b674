"""HAVING as a condition on the columns of a query's groups: comparisons of keys and aggregates with constants, joined by AND, OR and NOT.

It is read as the condition of a statement is, and asked of the groups once they are made; aggregates that only HAVING names become columns
that the answer does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidewheel.duck.nodes import Node, arguments, comparisons_of
from tidewheel.model.conditions import MIRRORED
from tidewheel.model.schema import TableSpec
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.prepared import Form, Reader, is_search

Find = Callable[[Node], tuple[str, pa.DataType]]
"""The column of the groups that a node is, and its type. Raises NotDirectError if it is none."""


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
