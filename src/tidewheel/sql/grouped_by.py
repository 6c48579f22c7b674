"""What a SELECT groups by, seen by its tree alone, and which conditions on its groups are as well conditions on its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tidewheel.duck.nodes import Node, both, walk
from tidewheel.model.schema import TableSpec
from tidewheel.read.groups.aggregates import NAMES
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.order_limit import ordinal, plain_name
from tidewheel.sql.prepared import is_search

_PLAIN = frozenset({"COLUMN_REF", "PARAMETER", "COMPARISON", "CONJUNCTION", "OPERATOR", "BETWEEN", "CAST", "TYPE"})
"""Kinds of nodes that mean the same of a row as of its group. Constants are not walked over."""


def divided(node: Node, columns: Collection[str] = ()) -> Node:
    """The same SELECT, with the parts of its HAVING that name nothing but columns it groups by in its WHERE: there they bound what is
    read. Parts that call a column by an alias stay in HAVING too, where it is found out whether the alias is meant.

    `columns`: of the table in lower case, if they are known.
    """
    having = node.get("having")
    if not having:
        return node
    keys = plain_keys(node, columns)
    parts = having["children"] if having.get("type") == "CONJUNCTION_AND" else [having]
    own, left = list[Node](), list[Node]()
    for one in parts:
        if not is_of_rows(one, keys):
            left.append(one)
        elif any(keys[name] != name for name in _names(one)):
            own.append(renamed(one, keys))
            left.append(one)
        else:
            own.append(one)
    if not own:
        return node
    before = [] if node.get("where_clause") is None else [node["where_clause"]]
    return node | {"having": both(*left) if left else None, "where_clause": both(*before, *own)}


def check_all_keys(node: Node) -> None:
    """Raises NotDirectError if HAVING names a column that GROUP BY ALL would not group by: DuckDB groups by it too."""
    if not node.get("having") or node.get("aggregate_handling") != "FORCE_AGGREGATES":
        return
    known = set[str]()
    for item in node.get("select_list") or []:
        if (column := _column(item)) or not any(True for _ in bare_columns(item)):
            known |= {column, item["alias"].lower()}
    if any(_column(one) not in known for one in bare_columns(node["having"])):
        raise NotDirectError("its HAVING says what else GROUP BY ALL groups by")


def check_aliases(node: Node) -> None:
    """Raises NotDirectError if something names an alias that two things have."""
    aliases = [item["alias"].lower() for item in node.get("select_list") or [] if item.get("alias")]
    twice = {alias for alias in aliases if aliases.count(alias) > 1}
    tree = [node.get(part) for part in ("group_expressions", "having", "qualify", "modifiers")] if twice else []
    if any(plain_name(one) in twice for one in walk(tree)):
        raise NotDirectError("two things in its answer have one name")


def check_names(tree: Any, items: list[Node], spec: TableSpec) -> None:
    """Raises NotDirectError if a name in what stands behind the groups is that of a column and of something else in the answer: which is
    meant depends on whether it stands in HAVING or ORDER BY, in an expression, and on how the groups are written."""
    columns = {name.lower() for name in spec.schema.names}
    others = {item["alias"].lower() for item in items if item.get("alias") and plain_name(item) != item["alias"].lower()}
    if any(plain_name(one) in columns & others for one in walk(tree)):
        raise NotDirectError("a name is both that of a column and of the answer")


def bare_columns(tree: Any) -> Iterator[Node]:
    """The columns that stand in no aggregate."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, list):
            left += node
        elif isinstance(node, dict) and not is_aggregate(node):
            if node.get("class") == "COLUMN_REF":
                yield node
            left += node.values()


def is_aggregate(node: Node) -> bool:
    return (node.get("function_name") or "").lower() in NAMES


def plain_keys(node: Node, columns: Collection[str] = ()) -> dict[str, str]:
    """Names of columns that a SELECT groups by, each with the column: its own name, or an alias that is of nothing else and none of
    `columns`. Without those that could mean something else of its answer. All in lower case."""
    items, groups = node.get("select_list") or [], node.get("group_expressions") or []
    if node.get("aggregate_handling") == "FORCE_AGGREGATES":
        groups = items
    elif len(node.get("group_sets") or []) != 1:
        return {}
    else:
        groups = [_numbered(one, items) for one in groups]
    grouped = {_column(one) for one in groups} - {""}
    aliased = [(item["alias"].lower(), _column(item)) for item in items if item.get("alias")]
    aliases = [alias for alias, _ in aliased]
    keys = {name: name for name in grouped if all(column == name for alias, column in aliased if alias == name)}
    for alias, column in aliased:
        if column and alias != column and aliases.count(alias) == 1 and alias not in columns and not grouped.isdisjoint((alias, column)):
            keys[alias] = column
    return keys


def _numbered(node: Node, items: list[Node]) -> Node:
    """What GROUP BY means by a number."""
    at = ordinal(node)
    return node if at is None else items[at - 1] if 0 < at <= len(items) else {}


def _column(node: Node) -> str:
    """The name of a plain column in lower case; of all else nothing."""
    return str(node["column_names"][-1].lower()) if node.get("class") == "COLUMN_REF" else ""


def _names(tree: Any) -> list[str]:
    return [_column(one) for one in walk(tree) if one.get("class") == "COLUMN_REF"]


def is_of_rows(condition: Node, names: Collection[str]) -> bool:
    """Whether a condition names nothing but these columns, and compares them only with constants or each other."""
    plain = all(one.get("class", "TYPE") in _PLAIN or is_search(one) for one in walk(condition))
    named = _names(condition)
    return plain and bool(named) and all(name in names for name in named)


def renamed(tree: Any, columns: Mapping[str, str]) -> Any:
    """A condition on the columns of an answer, as one on those of its table."""
    if isinstance(tree, list):
        return [renamed(one, columns) for one in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("class") == "COLUMN_REF":
        return tree | {"column_names": [columns[_column(tree)]]}
    return {name: renamed(value, columns) for name, value in tree.items()}
