"""Definitions that are *additive* in some of their sources: over more rows of these they give the old rows and some more.

With the other sources as they are, what a definition makes of the new rows alone is then what is to be added. That is so for each row that
is made of one new row, and perhaps of rows of other sources that it is joined with or compared to. Two sources together are additive if
each row is made of one row of either, as in a UNION ALL; not if they are joined: new rows of both sides belong together with old ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from tidewheel.derive.mode_reasons import Not
from tidewheel.derive.plan_names import view_name
from tidewheel.derive.plan_tree import PlanTree, subqueries

_SAME = ("SubqueryAlias", "Sort", "ResolvedHint", "Repartition", "RepartitionByExpression", "RebalancePartitions", "PipeOperator")
_EXPRESSIONS = ("Project", "Expand", "Filter", "Generate", "LateralJoin")
_ROWS = {
    "Aggregate": "it groups rows",
    "Distinct": "it leaves out equal rows",
    "Window": "a window function looks at several rows",
    "Except": "it compares rows with others",
    "Intersect": "it compares rows with others",
}
_FROM_LEFT = ("Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti")
"""Joins in which each row is made of one of the left side, whatever else comes there."""
_FROM_RIGHT = ("Inner", "Cross", "RightOuter")

MANY = 4
"""Sources up to which all sets of them are tried; of more, all together and each by itself."""


Common = Mapping[object, PlanTree]
"""What WITH names, by its number."""

Sets = tuple[tuple[str, ...], ...]
"""Sets of sources, by the names of their views, none of which is in another."""


def common_parts(plan: PlanTree) -> Common:
    return {one.field("id"): one for tree in plan.walk() if tree.kind == "WithCTE" for one in tree.trees("cteDefs")}


class Additive:
    """Looks for the sources that a plan, or a part of it, is additive in."""

    def __init__(self, common: Common) -> None:
        self._common = common
        self._read: dict[int, tuple[PlanTree, frozenset[str]]] = {}

    def sets(self, tree: PlanTree) -> Sets:
        """The largest sets of sources in which it is additive. Raises Not, if there is none, with the reason for all sources together."""
        names = sorted(self.reads(tree))
        if not names:
            raise Not("it reads no source")
        found: list[tuple[str, ...]] = []
        reason: Not | None = None
        for some in _subsets(names):
            if any(set(some) <= set(one) for one in found):
                continue
            try:
                self._check(tree, frozenset(some))
                found.append(some)
            except Not as e:
                reason = reason or e
        if not found:
            raise reason or Not("it reads no source")
        return tuple(found)

    def reads(self, tree: PlanTree) -> frozenset[str]:
        """The sources below a node, and in its expressions."""
        known = self._read.get(id(tree))
        if known is None:
            if tree.kind == "View":
                found = frozenset({view_name(tree)})
            else:
                found = frozenset(name for one in tree.fields() for inner in one.walk() for name in self._named(inner))
                found = found.union(self._named(tree), *(self.reads(child) for child in tree.children))
            known = self._read[id(tree)] = tree, found  # the tree is held, so that its id stays its own
        return known[1]

    def _named(self, tree: PlanTree) -> frozenset[str]:
        if tree.kind == "View":
            return frozenset({view_name(tree)})
        if tree.kind != "CTERelationRef":
            return frozenset()
        if tree.field("recursive"):
            raise Not("a recursive WITH reads its own rows")
        body = self._common.get(tree.field("cteId"))
        return self.reads(body) if body is not None else frozenset()

    def _check(self, tree: PlanTree, new: frozenset[str]) -> None:
        """Raises Not, unless each row is made of one row of `new`."""
        if tree.kind == "View":
            return
        if tree.kind == "CTERelationRef":
            body = self._common.get(tree.field("cteId"))
            if body is None or tree.field("recursive"):
                raise Not("a recursive WITH reads its own rows")
            return self._check(body.children[0], new)
        if tree.kind == "WithCTE":
            return self._check(tree.children[tree.field("plan")], new)
        if tree.kind in ("Join", "AsOfJoin"):
            return self._check_join(tree, new)
        if tree.kind == "Union":
            if not all(self.reads(child) & new for child in tree.children):
                raise Not("a part of the union reads none of the new rows, and its rows would be added again each time")
        elif tree.kind in _EXPRESSIONS:
            self._check_expressions(tree, new)
        elif tree.kind not in _SAME:
            raise Not(_ROWS.get(tree.kind, f"{tree.kind} is not known to look at each row alone"))
        for child in tree.children:
            if not self.reads(child) & new:
                raise Not("a subquery looks at other rows")
            self._check(child, new)

    def _check_join(self, tree: PlanTree, new: frozenset[str]) -> None:
        self._check_expressions(tree, new)
        left, right = tree.children
        kind = tree.object_name("joinType")
        mine, theirs = bool(self.reads(left) & new), bool(self.reads(right) & new)
        if mine and theirs:
            raise Not("it joins rows with others")
        if mine and kind in _FROM_LEFT:
            return self._check(left, new)
        if theirs and kind in _FROM_RIGHT and tree.kind == "Join":
            return self._check(right, new)
        raise Not("a new row of a side that is joined to another changes rows of that one")

    def _check_expressions(self, tree: PlanTree, new: frozenset[str]) -> None:
        """They look at the row alone, and at rows that are not new."""
        for one in tree.fields():
            if any(self.reads(query) & new for query in subqueries(one)):
                raise Not("a subquery looks at other rows")
            _check_no_session(one)


def _subsets(names: list[str]) -> Iterator[tuple[str, ...]]:
    """The largest first."""
    sizes = range(len(names), 0, -1) if len(names) <= MANY else (len(names), 1)
    return (some for size in sizes for some in combinations(names, size))


def check_row_wise(tree: PlanTree) -> None:
    """The expressions of a node look at its row alone."""
    for one in tree.fields():
        if any(True for _ in subqueries(one)):
            raise Not("a subquery looks at other rows")
        _check_no_session(one)


def _check_no_session(expression: PlanTree) -> None:
    if any(inner.kind == "PreciseTimestampConversion" and inner.children[0].kind == inner.kind for inner in expression.walk()):
        raise Not("session_window() looks at several rows")
