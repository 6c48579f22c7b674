"""Groups within a statement: sub-selects and common table expressions of its FROM that by themselves are statements over one table, whose
groups are ours. DuckDB joins, filters and shows these groups, and does not see the rows.

What the statement says of the columns that such a part groups by is said of its rows too: otherwise more would be read than DuckDB reads,
which brings such conditions to the scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidewheel.duck.nodes import Node, both, walk
from tidewheel.duck.parser import tree_of
from tidewheel.model.dataclass import dataclass
from tidewheel.model.schema import TableSpec
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.direct import Direct
from tidewheel.sql.having import bare_columns, is_of_rows, plain_keys
from tidewheel.sql.rest_of_groups import NAME, is_grouped, rest_of
from tidewheel.sql.sharpen import is_inner, on_conditions
from tidewheel.sql.small import conjuncts


@dataclass(frozen=True, slots=True)
class InnerGroups:
    """A part of a statement, taken apart."""

    table: str
    """In lower case."""
    groups: Direct
    body: Node
    """The rest of it, over the columns of these groups."""
    parameters: frozenset[str]
    """Those that the groups take, by name or number."""


def parts_of(node: Node, tables: Mapping[str, TableSpec]) -> Iterator[tuple[Node, InnerGroups]]:
    """Each such part of a query, beside the node that it is instead of. `tables`: by their names in lower case."""
    if node.get("type") != "SELECT_NODE":
        return
    common = {one["key"].lower(): one for one in (node.get("cte_map") or {}).get("map") or ()}
    named = [one["table_name"].lower() for one in walk(node) if one.get("type") == "BASE_TABLE"]
    source = node.get("from_table") or {}
    leaves = list(_leaves(source))
    conditions = [*conjuncts(node.get("where_clause")), *on_conditions(source)]
    for leaf in leaves:
        body, alias = _body(leaf, common)
        if body is None or leaf.get("column_name_alias") or leaf.get("sample"):
            continue
        if leaf["type"] == "BASE_TABLE" and named.count(leaf["table_name"].lower()) != 1:
            continue
        table = ((body.get("from_table") or {}).get("table_name") or "").lower()
        if table not in tables or table in common or not is_grouped(body):
            continue
        try:
            yield body, _part(_bounded(body, alias, conditions, len(leaves) == 1, is_inner(source)), table, tables[table])
        except NotDirectError:
            continue


def _leaves(source: Node) -> Iterator[Node]:
    if source.get("type") == "JOIN":
        yield from _leaves(source["left"])
        yield from _leaves(source["right"])
    else:
        yield source


def _body(leaf: Node, common: Mapping[str, Node]) -> tuple[Node | None, str]:
    """The query that stands in a FROM, and by which name."""
    match leaf:
        case {"type": "SUBQUERY", "subquery": {"node": {"type": "SELECT_NODE"} as body}}:
            return body, (leaf.get("alias") or "").lower()
        case {"type": "BASE_TABLE", "table_name": name} if name.lower() in common and not leaf.get("schema_name"):
            one = common[name.lower()]
            body = (one.get("value") or {}).get("query_node") or {}
            plain = body.get("type") == "SELECT_NODE" and not (one["value"].get("aliases") or one["value"].get("key_targets"))
            return body if plain else None, (leaf.get("alias") or name).lower()
    return None, ""


def _part(body: Node, table: str, spec: TableSpec) -> InnerGroups:
    try:
        rest = rest_of(body, spec)
    except NotDirectError:
        if not body.get("having"):
            raise
        rest = rest_of(body, spec, having=False)
    tree: Any = tree_of(rest.text)
    asked = [rest.groups.where, None if rest.groups.grouped is None else rest.groups.grouped.having]
    names = frozenset(one["identifier"] for one in walk(asked) if one.get("class") == "PARAMETER")
    return InnerGroups(table, rest.groups, tree["node"], names)


def _bounded(body: Node, alias: str, conditions: list[Node], alone: bool, inner: bool) -> Node:
    """A part with the conditions on what it groups by. Raises NotDirectError if there is one that cannot be said of its rows."""
    if _is_choosy(body):  # neither does DuckDB bring conditions into it
        return body
    keys, columns = plain_keys(body), dict[str, str]()
    for item in body.get("select_list") or []:
        if item.get("class") == "COLUMN_REF" and item["column_names"][-1].lower() in keys:
            columns[(item.get("alias") or item["column_names"][-1]).lower()] = item["column_names"][-1]
    items = [item for item in body.get("select_list") or [] if item.get("alias")]
    own = {item["alias"].lower() for item in items if any(True for _ in bare_columns(item))}
    more = []
    for one in conditions:
        named = [part["column_names"] for part in walk(one) if part.get("class") == "COLUMN_REF"]
        ours = [names for names in named if (len(names) == 1 and alone) or (len(names) == 2 and names[0].lower() == alias)]
        if len(ours) < len(named) or not named:  # it is of other rows, or compares them with these
            if any(len(names) == 1 and names[0].lower() in own | set(columns) for names in named):
                raise NotDirectError("a condition may be on what it groups by")
            continue
        names = frozenset(columns)
        if is_of_rows(one, names) and inner:
            more.append(_renamed(one, columns))
        elif any(part[-1].lower() in names for part in ours):
            raise NotDirectError("a condition is on what it groups by, and on more")
    if not more:
        return body
    before = [] if body.get("where_clause") is None else [body["where_clause"]]
    return body | {"where_clause": both(*before, *more)}


def _is_choosy(body: Node) -> bool:
    """Whether what becomes of a group depends on the others."""
    if body.get("qualify") or body.get("sample") or any(one.get("type") != "ORDER_MODIFIER" for one in body.get("modifiers") or []):
        return True
    return any(one.get("class") == "WINDOW" for one in walk(body.get("select_list")))


def _renamed(tree: Any, columns: Mapping[str, str]) -> Any:
    """A condition on the columns of a part, as one on those of its table."""
    if isinstance(tree, list):
        return [_renamed(one, columns) for one in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("class") == "COLUMN_REF":
        return tree | {"column_names": [columns[tree["column_names"][-1].lower()]]}
    return {name: _renamed(value, columns) for name, value in tree.items()}


def with_parts(tree: Any, instead: list[tuple[Node, Node]]) -> Any:
    """A tree with other nodes in the places of some, which are known by themselves and not by what they are like."""
    for before, after in instead:
        if tree is before:
            return after
    if isinstance(tree, list):
        return [with_parts(one, instead) for one in tree]
    if isinstance(tree, dict):
        return {name: with_parts(value, instead) for name, value in tree.items()}
    return tree


def over(body: Node, name: str) -> Node:
    """The rest of a part, over groups that are called so."""
    source = body["from_table"]
    assert source["table_name"] == NAME
    return body | {"from_table": source | {"table_name": name, "qualified_name": {"path": [name]}, "alias": NAME}}
