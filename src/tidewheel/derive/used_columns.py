"""The columns of its sources that a definition looks at, from its plan. Pure.

A column is used if an expression refers to it, or if it comes out. One that projections only pass on, to where nobody refers to it, is not:
`window()` and joins carry along all columns of a source. Where a node is met that compares or hands on whole rows (UNION, DISTINCT, or any
that is not known here), all columns below it are used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidewheel.derive.plan_names import view_columns, view_name
from tidewheel.derive.plan_tree import UNREADABLE, PlanTree, parse

_PASSES = (
    "SubqueryAlias", "Filter", "Sort", "Join", "AsOfJoin", "LateralJoin", "Window", "Generate", "ResolvedHint", "Repartition",
    "RepartitionByExpression", "RebalancePartitions", "PipeOperator",
)  # fmt: skip


def used_columns(plan_json: str, sources: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    """Those of `sources`, which has all columns of each, that a plan uses; all, if it cannot be looked through. It may use none."""
    try:
        search = _Search()
        search.look(parse(plan_json), whole=True)
        used: dict[str, set[str]] = {}
        for view, whole in search.views:
            found = {column.name for column in view_columns(view) if whole or column.id in search.referred}
            used.setdefault(view_name(view).lower(), set()).update(found)
    except UNREADABLE:
        return sources
    return {name: tuple(one for one in columns if one in used.get(name.lower(), ())) for name, columns in sources.items()}


def narrowed(plan_json: str, kept: Mapping[str, tuple[str, ...]]) -> str:
    """The same plan, if its sources had only these columns, none of which it uses besides. UNREADABLE, if it cannot be looked through."""
    names = {name.lower(): columns for name, columns in kept.items()}
    gone = {
        column.id
        for view in parse(plan_json).walk()
        if view.kind == "View" and view_name(view).lower() in names
        for column in view_columns(view)
        if column.name not in names[view_name(view).lower()]
    }
    return json.dumps(_without(json.loads(plan_json), gone))


def _without(value: Any, gone: set[int | None]) -> Any:
    if isinstance(value, list):
        return [_without(one, gone) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: _without(one, gone) for name, one in value.items()}
    kind = str(value.get("class", "")).rsplit(".", 1)[-1]
    for name in {"Project": ("projectList",), "LocalRelation": ("output",)}.get(kind, ()):
        found[name] = [one for one in found[name] if not (_passed_on(tree := PlanTree(iter(one))) and tree.id in gone)]
    return found


def _passed_on(column: PlanTree) -> bool:
    return column.kind == "AttributeReference"


class _Search:
    def __init__(self) -> None:
        self.referred: set[int | None] = set()
        self.views: list[tuple[PlanTree, bool]] = []
        """The sources where they are read, and whether all of their columns are used there."""

    def look(self, tree: PlanTree, whole: bool) -> None:
        """`whole`: all columns that come out of this node are used."""
        if tree.is_expression:  # a child of an expression of another package
            self._refer(tree)
            return
        if tree.kind == "View":
            self.views.append((tree, whole))
            return
        for one in tree.fields():
            if whole or tree.kind != "Project" or not _passed_on(one):
                self._refer(one)
        for child in tree.children:
            self.look(child, whole if tree.kind in _PASSES else tree.kind not in ("Project", "Aggregate", "Expand"))

    def _refer(self, tree: PlanTree) -> None:
        """What an expression refers to; the rows of a subquery are used as they are."""
        if not tree.is_expression:
            self.look(tree, whole=True)
            return
        if tree.kind == "AttributeReference":
            self.referred.add(tree.id)
        for one in (*tree.fields(), *tree.children):
            self._refer(one)
