"""SELECT … ORDER BY ts DESC LIMIT 10: the part of the time that has these rows, which are counted before the statement is run."""

from __future__ import annotations

from functools import lru_cache

from tidewheel.duck import nodes
from tidewheel.duck.nodes import Node, walk
from tidewheel.duck.parser import select, tree_of
from tidewheel.read.time_order import MOST, WORTH, wide_enough
from tidewheel.sql import spans
from tidewheel.sql.constants import WHOLE
from tidewheel.sql.folding import SAFE
from tidewheel.sql.implied import bounded
from tidewheel.sql.scopes import Column, Scope
from tidewheel.sql.small import Small, conjuncts, is_certain

_OTHER_PARTS = ("group_expressions", "group_sets", "having", "sample", "qualify")
_OF_A_ROW = frozenset({"COLUMN_REF", "STAR", "CAST", "TYPE", "COMPARISON", "CONJUNCTION", "OPERATOR", "BETWEEN", "PARAMETER", "CASE"})
_NO_CTES: Node = {"map": []}


def first_rows(node: Node, scope: Scope, small: Small) -> Node | None:
    """A condition on the time that all rows of the answer satisfy; None if the rows are not the first of one table in the order of time."""
    found = _order(node, scope)
    wanted = _wanted(node)
    if found is None or wanted is None or not 0 < wanted <= MOST:
        return None
    subject, column, descending = found
    source, condition = node["from_table"], node.get("where_clause")
    ends = _ends(subject, column, source, [one for one in conjuncts(condition) if _is_about(one, subject, scope)], small)
    if ends is None:
        return None
    first, last = ends

    def within(width: int) -> Node | None:
        return bounded(subject, column, (last - width, None) if descending else (None, first + width))

    def count(width: int) -> int | None:
        part = within(width)
        if part is None:
            return None
        counted = small.rows(select([_count()], source, nodes.both(part, *conjuncts(condition)), _NO_CTES))
        return None if counted is None else int(counted.column(0)[0].as_py())

    width = wide_enough(last - first, wanted, column.table.about, count)
    return None if width is None else within(width)


def _order(node: Node, scope: Scope) -> tuple[Node, Column, bool] | None:
    """The time column that rows are ordered by, and whether the greatest comes first. None: by another, or an answer is more than rows."""
    modifiers = node.get("modifiers") or []
    if [one.get("type") for one in modifiers] != ["ORDER_MODIFIER", "LIMIT_MODIFIER"] or any(node.get(part) for part in _OTHER_PARTS):
        return None
    if len(scope.relations) != 1 or node["from_table"].get("type") != "BASE_TABLE":
        return None
    items, orders, condition = node.get("select_list") or [], modifiers[0]["orders"], node.get("where_clause")
    subject = orders[0]["expression"]
    column = scope.column(subject)
    if column is None or column.name != column.table.spec.time.column or column.table.about < WORTH:
        return None
    name = subject["column_names"][-1].lower()
    if any(item.get("alias", "").lower() == name for item in items):  # which is what is meant then
        return None
    if not all(_is_of_a_row(one) for one in walk([items, [order["expression"] for order in orders]])):
        return None
    if condition is not None and (not is_certain(condition) or any(one.get("class") == "SUBQUERY" for one in walk(condition))):
        return None
    return subject, column, orders[0]["type"] == "DESCENDING"


def _is_of_a_row(node: Node) -> bool:
    """Whether it tells the same of a row, whatever other rows there are."""
    kind = node.get("class")
    if kind == "FUNCTION":
        return node["function_name"].lower() in SAFE
    return kind is None or kind in _OF_A_ROW


def _wanted(node: Node) -> int | None:
    """The rows up to the last one that is wanted."""
    match (node.get("modifiers") or [None])[-1]:
        case {"limit_type": "ROW_COUNT", "limit": {"class": "CONSTANT", "literal": limit}, "offset": offset}:
            texts = [limit["text"], *([offset["literal"]["text"]] if offset and offset.get("class") == "CONSTANT" else [])]
            if (not offset or len(texts) == 2) and all(WHOLE.fullmatch(text) for text in texts):
                return sum(map(int, texts))
    return None


def _is_about(condition: Node, subject: Node, scope: Scope) -> bool:
    """Whether it compares the time column, and nothing else, with constants."""
    column = scope.column(subject)
    compared = nodes.comparisons_of(condition)
    return bool(compared) and all(
        scope.column(left) == column and all(node.get("class") != "COLUMN_REF" for node in walk(right)) for left, _, right in compared
    )


@lru_cache
def _calls() -> list[Node]:
    tree = tree_of("SELECT min(ts), max(ts), count(*) FROM t")
    assert isinstance(tree, dict)
    return list(tree["node"]["select_list"])


def _ends(subject: Node, column: Column, source: Node, in_time: list[Node], small: Small) -> tuple[int, int] | None:
    """Microseconds between which all times are, where these conditions on them hold; None if that is not known."""
    if not in_time and column.table.times is not None:
        nanos = column.table.spec.time.nanos
        first, last = column.table.times
        return first * nanos // 1000, -(-last * nanos // 1000)
    calls = [call | {"arguments": [{"name": "", "expression": subject | {"alias": ""}}]} for call in _calls()[:2]]
    found = small.rows(select(calls, source, nodes.both(*in_time) if in_time else None, _NO_CTES))
    if found is None or found.num_rows != 1 or found.column(0).null_count:
        return None
    moments = [spans.micros(found.column(i)[0]) for i in range(2)]
    return None if moments[0] is None or moments[1] is None else (moments[0], moments[1])


def _count() -> Node:
    return _calls()[2]
