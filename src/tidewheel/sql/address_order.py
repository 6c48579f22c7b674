"""The order of addresses in SQL: a key of IP addresses is text there, and texts are not in the order of addresses ('9.0.0.0' is greater
than '10.0.0.0').

So <, >, BETWEEN and the like of such a column are refused, with what to write instead; = and IN mean the same for both. What has the name
of the column is found as far as `sql/scopes.py` sees; the order of texts can be asked for with `address || ''`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidewheel.duck.error_text import pointed
from tidewheel.duck.nodes import COMPARISONS, Node, walk
from tidewheel.errors import QueryError
from tidewheel.model.conditions import EQUAL, UNEQUAL
from tidewheel.model.schema import Ip
from tidewheel.sql.scopes import Scope, TableFacts, Tables

_PARTS = ("select_list", "where_clause", "having", "qualify", "group_expressions")


def check_address_order(query: Node, tables: Mapping[str, TableFacts], text: str | None = None) -> None:
    """Raises QueryError if a query compares addresses as texts. `text`: what it is written as, to point to the place."""
    if not any(isinstance(table.spec.key, Ip) for table in tables.values()):
        return
    nodes = list(walk(query))
    common = tuple(one for node in nodes for one in (node.get("cte_map") or {}).get("map") or ())
    known = Tables({name.lower(): table for name, table in tables.items()}, common)
    for node in nodes:
        if node.get("type") == "SELECT_NODE":
            scope = Scope(list(known.relations(node.get("from_table") or {})))
            for one in _own([node.get(part) for part in _PARTS] + list(_conditions(node.get("from_table") or {}))):
                _check(one, scope, text)


def _conditions(source: Node) -> Iterator[Node]:
    """Those of joins."""
    if source.get("type") == "JOIN":
        if source.get("condition"):
            yield source["condition"]
        yield from _conditions(source["left"])
        yield from _conditions(source["right"])


def _own(parts: Iterable[object]) -> Iterator[Node]:
    """The nodes of some expressions without those of queries within them."""
    left = list(parts)
    while left:
        node = left.pop()
        if isinstance(node, list):
            left.extend(node)
        elif isinstance(node, dict) and node.get("type") != "SELECT_NODE":
            yield node
            left.extend(value for value in node.values() if isinstance(value, (dict, list)))


def _check(node: Node, scope: Scope, text: str | None) -> None:
    between = node.get("type") == "COMPARE_BETWEEN"
    op = COMPARISONS.get(node.get("type", ""))
    if not between and op in (None, EQUAL, UNEQUAL):
        return
    sides = [node.get(side) or {} for side in (("input", "lower", "upper") if between else ("left", "right"))]
    for side in sides:
        column = scope.column(side) if side.get("class") == "COLUMN_REF" else None
        key = None if column is None else column.table.spec.key
        if column is not None and isinstance(key, Ip) and column.name == key.column:
            shown = ".".join(side["column_names"])
            said = (
                f"{shown} is compared as text, and texts are not in the order of addresses: write ip_between({shown}, '10.0.0.0', "
                f"'10.255.255.255') or ip_in({shown}, '10.0.0.0/8'); with two columns, compare ip_order({shown}) with ip_order(…). "
                f"The order of texts is that of {shown} || ''"
            )
            at = node.get("query_location", -1)
            raise QueryError(pointed(said, text, (at, node.get("query_location_length") or 1)) if text is not None else said)
