"""The last row of each key, as people ask for it in SQL: DISTINCT ON (key) … ORDER BY key, time DESC; QUALIFY row_number() OVER (PARTITION
BY key ORDER BY time DESC) = 1; and the same as a condition around a query that has row_number() for a column.

Of rows with the same time DuckDB takes any; the table's own answer is the one that was inserted last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidewheel.duck.nodes import Node
from tidewheel.model.dataclass import dataclass
from tidewheel.model.schema import Ip, TableSpec
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.order_limit import Tail
from tidewheel.sql.totals import column_of

_PARTS = ("where_clause", "modifiers", "group_expressions", "group_sets", "having", "qualify", "sample")
_WINDOW_PARTS = ("arguments", "children", "arg_orders", "filter_expr", "ignore_nulls", "distinct", "schema", "catalog")


@dataclass(frozen=True, slots=True)
class LastRows:
    """Of which columns' values the last row is asked for, and by what it is the last."""

    each: tuple[Any, ...]
    by: Any


def last_rows_of(node: Node, tail: Tail) -> LastRows | None:
    """What a SELECT over one table asks of this kind; None if it asks for other rows."""
    if (qualify := node.get("qualify")) is not None:
        if tail.distinct or tail.distinct_on:
            raise NotDirectError("it has QUALIFY beside DISTINCT")
        return _numbered(_first_of(qualify))
    if not tail.distinct_on:
        return None
    left = [term for term in tail.orders if not any(_same(term.node, one) for one in tail.distinct_on)]
    if len(left) != 1 or not left[0].descending:
        raise NotDirectError("its DISTINCT ON is not ordered by the time from the last on")
    return LastRows(tail.distinct_on, left[0].node)


def unnested(node: Node) -> Node:
    """SELECT columns FROM (SELECT *, row_number() OVER (…) AS n FROM t) WHERE n = 1 as a SELECT with QUALIFY; all else as it is."""
    source = node.get("from_table") or {}
    inner = (source.get("subquery") or {}).get("node") or {}
    if source.get("type") != "SUBQUERY" or inner.get("type") != "SELECT_NODE" or source.get("column_name_alias") or source.get("sample"):
        return node
    windows = [item for item in inner.get("select_list") or [] if item.get("class") == "WINDOW"]
    condition = node.get("where_clause") or {}
    if len(windows) != 1 or any(inner.get(part) for part in _PARTS if part != "where_clause") or (inner.get("cte_map") or {}).get("map"):
        return node
    number, alias = windows[0]["alias"].lower(), (source.get("alias") or "").lower()
    asked = column_of(_first_of(condition), alias) if condition else None
    if not number or asked is None or asked.lower() != number or inner.get("aggregate_handling") != "STANDARD_HANDLING":
        return node
    given = [item for item in inner["select_list"] if item is not windows[0]]
    items = [_outer(item, alias, number, given) for item in node.get("select_list") or []]
    if any(item is None for item in items):
        return node
    modifiers = [_plainly(one, alias) for one in node.get("modifiers") or []]
    qualify = {**condition, "left": {**windows[0], "alias": ""}}
    more = {"where_clause": inner.get("where_clause"), "qualify": qualify, "select_list": items, "modifiers": modifiers}
    return {**node, "from_table": inner["from_table"], **more}


def _outer(item: Node, alias: str, number: str, given: Sequence[Node]) -> Node | None:
    """A column that is selected of the query within; None if it is not one of the table's, as it is called there."""
    name = column_of(item, alias)
    if name is None or name.lower() == number:
        return None
    for one in given:
        plain_star = one.get("class") == "STAR" and not any(
            one.get(part) for part in ("exclude_list", "replace_list", "qualified_exclude_list", "rename_list", "columns", "expr")
        )
        if plain_star or one.get("class") == "COLUMN_REF" and not one["alias"] and one["column_names"][-1].lower() == name.lower():
            return {**item, "column_names": [name]}
    return None


def _plainly(modifier: Node, alias: str) -> Node:
    """ORDER BY with columns that do not name the query within."""
    if modifier.get("type") != "ORDER_MODIFIER":
        return modifier
    orders = []
    for one in modifier["orders"]:
        name = column_of(one["expression"], alias)
        orders.append(one if name is None else {**one, "expression": {**one["expression"], "column_names": [name]}})
    return {**modifier, "orders": orders}


def check_last_rows(last: LastRows, alias: str, spec: TableSpec) -> None:
    """Raises NotDirectError unless these are the last rows of the table's keys."""
    each = [column_of(one, alias) for one in last.each]
    if isinstance(spec.key, Ip) or sorted(map(str, each)) != sorted(spec.key.columns) or column_of(last.by, alias) != spec.time.column:
        raise NotDirectError("it asks for the last rows of something else than the key, or by something else than the time")


def _first_of(condition: Node) -> Node:
    """What is asked to be 1."""
    literal = (condition.get("right") or {}).get("literal") or {}
    if condition.get("type") != "COMPARE_EQUAL" or literal.get("kind") != "INTEGER" or literal.get("text") != "1":
        raise NotDirectError("it has QUALIFY")
    return condition["left"]  # type: ignore[no-any-return]


def _numbered(window: Node) -> LastRows:
    orders = window.get("orders") or []
    if window.get("type") != "WINDOW_ROW_NUMBER" or any(window.get(part) for part in _WINDOW_PARTS) or len(orders) != 1:
        raise NotDirectError("it has QUALIFY")
    if orders[0]["type"] != "DESCENDING" or not window.get("partitions"):
        raise NotDirectError("it asks for other rows than the last ones")
    return LastRows(tuple(window["partitions"]), orders[0]["expression"])


def _same(a: Node, b: Node) -> bool:
    """Whether both are one column."""
    names = [[part.lower() for part in one.get("column_names") or ()] for one in (a, b)]
    return bool(names[0]) and bool(names[1]) and names[0][-1] == names[1][-1]
