"""From the node of a query to the text of a statement, and queries that are made of nodes."""

from __future__ import annotations

import json
from functools import lru_cache

from tidewheel.sql.nodes import Node
from tidewheel.sql.parser import parser, tree_of


def select(items: list[Node], source: Node, condition: Node | None, ctes: Node) -> Node:
    """SELECT items FROM source WHERE condition."""
    return _query("SELECT 1 FROM nothing") | {"select_list": items, "from_table": source, "where_clause": condition, "cte_map": ctes}


@lru_cache
def _query(text: str) -> Node:
    found = tree_of(text)
    assert isinstance(found, dict)
    return found["node"]  # type: ignore[no-any-return]


def lone(item: Node) -> Node:
    """SELECT item."""
    return _query("SELECT 1") | {"select_list": [item]}


def text_of(node: Node) -> str:
    """The text of a statement that reads, from the node of its query."""
    tree = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
    with parser() as cursor:
        row = cursor.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchone()
    assert row is not None
    return str(row[0])
