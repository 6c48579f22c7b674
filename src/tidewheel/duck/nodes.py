"""Nodes of the trees that DuckDB makes of statements (`duck/internals.py`): how they are walked, read and made.

Trees are never changed: what is changed is a copy, which has all that stayed in common with the tree it is of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidewheel.model.conditions import AT_LEAST, AT_MOST, EQUAL, LESS, MIRRORED, MORE, UNEQUAL

Node = dict[str, Any]

COMPARISONS = {
    "COMPARE_EQUAL": EQUAL, "COMPARE_NOTEQUAL": UNEQUAL, "COMPARE_LESSTHAN": LESS, "COMPARE_LESSTHANOREQUALTO": AT_MOST,
    "COMPARE_GREATERTHAN": MORE, "COMPARE_GREATERTHANOREQUALTO": AT_LEAST,
}  # fmt: skip
"""What trees call them."""

_PLACELESS = {"alias": "", "query_location": (1 << 64) - 1, "query_location_length": 0}


def walk(tree: Any) -> Iterator[dict[str, Any]]:
    """Every node but constants, of which there may be very many. Without recursion: trees can be deeper than Python goes."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            if node.get("class") != "CONSTANT":
                yield node
                left.extend(value for value in node.values() if value.__class__ in (dict, list))
        elif isinstance(node, list):
            left.extend(node)


def constant(text: str, kind: str) -> Node:
    """`kind`: STRING, INTEGER or NUMERIC."""
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", **_PLACELESS, "literal": {"kind": kind, "text": text}}


def cast(child: Node, type_name: str) -> Node:
    named = {"catalog": "", "schema": "", "type_name": type_name, "children": [], "qualified_name": {"path": [type_name]}}
    type_ = {"class": "TYPE", "type": "TYPE", **_PLACELESS, **named}
    return {"class": "CAST", "type": "OPERATOR_CAST", **_PLACELESS, "child": child, "try_cast": False, "type_expr": type_}


def truth(value: bool) -> Node:
    return cast(constant("t" if value else "f", "STRING"), "BOOLEAN")


def comparison(kind: str, left: Node, right: Node) -> Node:
    return {"class": "COMPARISON", "type": kind, **_PLACELESS, "left": left, "right": right}


def one_of(subject: Node, values: Sequence[Node]) -> Node:
    return {"class": "OPERATOR", "type": "COMPARE_IN", **_PLACELESS, "children": [subject, *values]}


def both(*conditions: Node) -> Node:
    return _joined("CONJUNCTION_AND", conditions)


def either(*conditions: Node) -> Node:
    return _joined("CONJUNCTION_OR", conditions)


def _joined(kind: str, conditions: Sequence[Node]) -> Node:
    if len(conditions) == 1:
        return conditions[0]
    return {"class": "CONJUNCTION", "type": kind, **_PLACELESS, "children": list(conditions)}


def cast_to(node: Node) -> str:
    """The name of the type that something is cast to, in capitals; of anything else, and of a cast that may fail, nothing."""
    if node.get("class") != "CAST" or node.get("try_cast"):
        return ""
    return str(node["type_expr"].get("type_name", "")).upper()


def comparisons_of(node: Node) -> list[tuple[Node, str, Node]]:
    """What a comparison, or BETWEEN, says: that all of these hold, each with a column on the left if it has one. Of all else, nothing."""
    match node:
        case {"type": "COMPARE_BETWEEN", "input": subject, "lower": lower, "upper": upper}:
            return [(subject, AT_LEAST, lower), (subject, AT_MOST, upper)]
        case {"class": "COMPARISON", "type": kind, "left": left, "right": right} if kind in COMPARISONS:
            op = COMPARISONS[kind]
            return [(left, op, right) if left.get("class") == "COLUMN_REF" else (right, MIRRORED[op], left)]
    return []


def arguments(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The arguments of a call."""
    given = node.get("arguments") or node.get("children") or []
    return [one.get("expression", one) for one in given]


def string_of(node: dict[str, Any]) -> str | None:
    """The text that a constant is; None if it is something else."""
    if node.get("class") != "CONSTANT":
        return None
    literal = node.get("literal") or {}
    return str(literal.get("text", "")) if literal.get("kind") == "STRING" else None


def quoted(name: str) -> str:
    """A name as it can always be written."""
    return '"' + name.replace('"', '""') + '"'
