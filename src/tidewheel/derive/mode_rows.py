"""Definitions that make each row of one row: over more rows they give the old rows and some more."""

from __future__ import annotations

from collections.abc import Mapping

from tidewheel.derive.mode_reasons import Not
from tidewheel.derive.plan_names import view_name
from tidewheel.derive.plan_tree import PlanTree, subqueries

_SAME = ("SubqueryAlias", "Sort", "ResolvedHint", "Repartition", "RepartitionByExpression", "RebalancePartitions", "PipeOperator")
_EXPRESSIONS = ("Project", "Expand", "Filter", "Generate")
_ROWS = {
    "Aggregate": "it groups rows",
    "Distinct": "it leaves out equal rows",
    "Window": "a window function looks at several rows",
    "Join": "it joins rows with others",
    "LateralJoin": "it joins rows with others",
    "AsOfJoin": "it joins rows with others",
    "Except": "it compares rows with others",
    "Intersect": "it compares rows with others",
}


Common = Mapping[object, PlanTree]
"""What WITH names, by its number."""


def common_parts(plan: PlanTree) -> Common:
    return {one.field("id"): one for tree in plan.walk() if tree.kind == "WithCTE" for one in tree.trees("cteDefs")}


def row_wise(plan: PlanTree, common: Common) -> list[str]:
    """The sources, if each row is made of one row of one of them: by projections, filters, explode and UNION ALL. One that is read twice
    is there twice. Else raises Not."""
    found = _look(plan, common)
    if not found:
        raise Not("it reads no source")
    return found


def _look(tree: PlanTree, common: Common) -> list[str]:
    if tree.kind == "View":
        return [view_name(tree)]
    if tree.kind == "CTERelationRef":
        body = common.get(tree.field("cteId"))
        if body is None or tree.field("recursive"):
            raise Not("a recursive WITH reads its own rows")
        return _look(body.children[0], common)
    if tree.kind == "WithCTE":
        return _look(tree.children[tree.field("plan")], common)
    if tree.kind in _EXPRESSIONS:
        check_row_wise(tree)
    elif tree.kind not in _SAME and tree.kind not in ("Union", "LocalRelation", "OneRowRelation", "Range"):
        raise Not(_ROWS.get(tree.kind, f"{tree.kind} is not known to look at each row alone"))
    parts = [_look(child, common) for child in tree.children]
    if tree.kind == "Union" and not all(parts):
        raise Not("a part of the union reads no source, and its rows would be added again each time")
    return [name for part in parts for name in part]


def check_row_wise(tree: PlanTree) -> None:
    """The expressions of a node look at its row alone."""
    for one in tree.fields():
        if any(True for _ in subqueries(one)):
            raise Not("a subquery looks at other rows")
        if any(inner.kind == "PreciseTimestampConversion" and inner.children[0].kind == inner.kind for inner in one.walk()):
            raise Not("session_window() looks at several rows")
