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
from tidewheel.sql.grouped_by import bare_columns, is_of_rows, plain_keys, renamed
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
            yield body, _part(_bounded(body, alias, conditions, source), table, tables[table])
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


def _bounded(body: Node, alias: str, conditions: list[Node], source: Node) -> Node:
    """A part with the conditions on what it groups by. Raises NotDirectError if there is one that cannot be said of its rows.

    `source`: the FROM that it stands in.
    """
    if _is_choosy(body):  # neither does DuckDB bring conditions into it
        return body
    items = body.get("select_list") or []
    shown = _shown(items)
    if conditions and not _is_certain(shown, len(items)):
        raise NotDirectError("a condition may be on any of several columns of one name")
    keys = plain_keys(body)
    columns = {name: one["column_names"][-1] for name, one in shown if one.get("class") == "COLUMN_REF" and name in keys}
    own = {name for name, one in shown if one.get("alias") and any(True for _ in bare_columns(one))}
    alone, more, joined, others = source.get("type") != "JOIN", list[Node](), _merges(source, columns), False
    for one in conditions:
        named = [part["column_names"] for part in walk(one) if part.get("class") == "COLUMN_REF"]
        ours = [names for names in named if (len(names) == 1 and alone) or (len(names) == 2 and names[0].lower() == alias)]
        if len(ours) < len(named) or not named:  # it is of other rows, or compares them with these
            if any(len(names) == 1 and names[0].lower() in own | set(columns) for names in named):
                raise NotDirectError("a condition may be on what it groups by")
            joined |= any(names[-1].lower() in columns for names in ours)
            others |= bool(named) and not ours and _is_of_another(named, shown)
            continue
        if is_of_rows(one, columns) and is_inner(source):
            more.append(renamed(one, columns))
        elif any(part[-1].lower() in columns for part in ours):
            raise NotDirectError("a condition is on what it groups by, and on more")
    if joined and others:
        raise NotDirectError("a condition may reach what it groups by through a join")
    if not more:
        return body
    before = [] if body.get("where_clause") is None else [body["where_clause"]]
    return body | {"where_clause": both(*before, *more)}


def _shown(items: list[Node]) -> list[tuple[str, Node]]:
    """What a part selects, by its names in lower case; without expressions, which DuckDB finds names for."""
    named = [(one.get("alias") or (one["column_names"][-1] if one.get("class") == "COLUMN_REF" else ""), one) for one in items]
    return [(name.lower(), one) for name, one in named if name]


def _is_certain(shown: list[tuple[str, Node]], items: int) -> bool:
    """Whether each name is that of one column: DuckDB calls the second of a name otherwise."""
    names = {name for name, _ in shown}
    plain = len(shown) == items or all(name.isidentifier() and name != "null" for name in names)  # unlike the names of expressions
    return len(names) == len(shown) and plain


def _merges(source: Node, columns: Mapping[str, str]) -> bool:
    """Whether a join compares one of these columns by its name."""
    joins = [one for one in walk(source) if one.get("type") == "JOIN"]
    named = {name.lower() for one in joins for name in one.get("using_columns") or ()}
    return any(one.get("ref_type") == "NATURAL" for one in joins) or not named.isdisjoint(columns)


def _is_of_another(named: list[list[str]], shown: list[tuple[str, Node]]) -> bool:
    """Whether a condition is on the columns of one relation, which is not this part."""
    if any(len(names) == 1 and any(names[0].lower() == name for name, _ in shown) for names in named):
        return False
    return len({names[0].lower() if len(names) > 1 else "" for names in named}) == 1


def _is_choosy(body: Node) -> bool:
    """Whether what becomes of a group depends on the others."""
    if body.get("qualify") or body.get("sample") or any(one.get("type") != "ORDER_MODIFIER" for one in body.get("modifiers") or []):
        return True
    return any(one.get("class") == "WINDOW" for one in walk(body.get("select_list")))


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
