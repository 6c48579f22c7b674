"""Definitions whose rows of one key depend on a source only through its rows of that key.

For every node of a plan: the attributes that are, in each row, the key of all rows of the source that the row depends on. None of them: the
row may depend on any. A node that does not read the source at all is of no account.
"""

from __future__ import annotations

from tidewheel.derive.mode_reasons import Not
from tidewheel.derive.plan_names import unwrapped, view_columns, view_name
from tidewheel.derive.plan_tree import PlanTree, subqueries
from tidewheel.derive.time_conditions import conjuncts

Keyed = tuple[list[int | None], frozenset[int] | None]
"""The attributes that come out, in order, and those of them, or below them, that are the key; None: the source is not read."""

_SAME = (
    "SubqueryAlias", "Sort", "Distinct", "ResolvedHint", "Repartition", "RepartitionByExpression", "RebalancePartitions", "PipeOperator",
    "Filter", "Generate",
)  # fmt: skip
_LEFT = ("LeftSemi", "LeftAnti")


def key_columns(plan: PlanTree, source: str, key: str) -> frozenset[str]:
    """The columns that come out, in lower case, which are the key of all rows of a source that a row depends on. Raises Not."""
    search = _Search(source.lower(), key.lower(), plan)
    outs, keys = search.look(plan)
    if keys is None:
        raise Not(f"it does not read {source}")
    return frozenset(search.names.get(attr, "").lower() for attr in outs if attr in keys)


class _Search:
    def __init__(self, source: str, key: str, plan: PlanTree) -> None:
        self.source, self.key = source, key
        self.names: dict[int | None, str] = {}
        self.common = {one.field("id"): one for tree in plan.walk() if tree.kind == "WithCTE" for one in tree.trees("cteDefs")}

    def look(self, tree: PlanTree) -> Keyed:
        if any(self._reads(query) for one in tree.fields() if one.is_expression for query in subqueries(one)):
            raise Not(f"a subquery reads {self.source} for rows of other keys, too")
        match tree.kind:
            case "View":
                return self._leaf(tree)
            case "Project":
                outs, keys = self.look(tree.children[0])
                return self._made(tree.trees("projectList"), keys)
            case "Aggregate":
                outs, keys = self.look(tree.children[0])
                by = {unwrapped(one).id for one in tree.trees("groupingExpressions") if unwrapped(one).kind == "AttributeReference"}
                if keys is not None and not keys & by:
                    raise Not(f"it groups rows of several {self.source}.{self.key} together")
                return self._made(tree.trees("aggregateExpressions"), None if keys is None else keys & by)
            case "Window":
                return self._window(tree)
            case "Expand":
                return self._expand(tree)
            case "Join" | "AsOfJoin":
                return self._join(tree)
            case "Union" | "Except" | "Intersect":
                return self._by_place(tree)
            case "WithCTE":
                return self.look(tree.children[tree.field("plan")])
            case "CTERelationRef":
                return self._common(tree)
        if tree.kind in _SAME:
            outs, keys = self.look(tree.children[0])
            outs = [*outs, *self._named(tree.trees("generatorOutput"))] if tree.kind == "Generate" else outs
            return outs, self._equals(tree.tree("condition"), keys) if tree.kind == "Filter" else keys
        if not self._reads(tree):
            return self._named(tree.trees("output")), None
        raise Not(f"{tree.kind} may look at rows of several {self.source}.{self.key}")

    def _reads(self, tree: PlanTree) -> bool:
        views = any(one.kind == "View" and view_name(one).lower() == self.source for one in tree.walk())
        refs = {one.field("cteId") for one in tree.walk() if one.kind == "CTERelationRef"}
        return views or any(ref in self.common and self._reads(self.common[ref]) for ref in refs)

    def _named(self, columns: list[PlanTree]) -> list[int | None]:
        for column in columns:
            self.names[column.id] = column.name
        return [column.id for column in columns]

    def _leaf(self, tree: PlanTree) -> Keyed:
        columns = view_columns(tree)
        outs = self._named(columns)
        if view_name(tree).lower() != self.source:
            return outs, None
        found = frozenset(column.id for column in columns if column.name.lower() == self.key and column.id is not None)
        if not found:
            raise Not(f"{self.source} has no column {self.key}")
        return outs, found

    def _made(self, columns: list[PlanTree], keys: frozenset[int] | None) -> Keyed:
        """Columns that pass on the key are it."""
        outs = self._named(columns)
        if keys is None:
            return outs, None
        passed = frozenset(
            c.id for c in columns if c.id is not None and unwrapped(c).kind == "AttributeReference" and unwrapped(c).id in keys
        )
        if not passed:
            raise Not(f"{self.source}.{self.key} does not come through")
        return outs, passed

    def _window(self, tree: PlanTree) -> Keyed:
        outs, keys = self.look(tree.children[0])
        by = {unwrapped(one).id for one in tree.trees("partitionSpec") if unwrapped(one).kind == "AttributeReference"}
        if keys is not None and not keys & by:
            raise Not(f"a window function looks at rows of several {self.source}.{self.key}: add it to PARTITION BY")
        return [*outs, *self._named(tree.trees("windowExpressions"))], keys

    def _expand(self, tree: PlanTree) -> Keyed:
        _, keys = self.look(tree.children[0])
        outs = self._named(tree.trees("output"))
        if keys is None:
            return outs, None
        rows = tree.rows("projections")
        passed = frozenset(
            attr
            for place, attr in enumerate(outs)
            if attr is not None
            and all(unwrapped(row[place]).kind == "AttributeReference" and unwrapped(row[place]).id in keys for row in rows)
        )
        if not passed:
            raise Not(f"{self.source}.{self.key} does not come through")
        return outs, passed

    def _join(self, tree: PlanTree) -> Keyed:
        (left, mine), (right, theirs) = (self.look(child) for child in tree.children)
        kind = tree.object_name("joinType")
        outs = left if kind in _LEFT else [*left, *right]
        if mine is None and theirs is None:
            return outs, None
        equal = [*self._pairs(tree.tree("condition")), *self._pairs(tree.tree("asOfCondition"))]
        across = [(a, b) if a in left else (b, a) for a, b in equal if (a in left and b in right) or (a in right and b in left)]
        if mine is not None and theirs is not None and not any(a in mine and b in theirs for a, b in across):
            raise Not(f"rows of {self.source} are joined with those of another {self.key}")
        # What a row of each side tells about the key: by itself, or through what it must equal.
        here = (mine or frozenset()) | {a for a, b in across if theirs is not None and b in theirs}
        there = (theirs or frozenset()) | {b for a, b in across if mine is not None and a in mine}
        match kind:
            case "Inner" | "Cross":
                found = here | there
            case "LeftOuter" | "LeftSemi" | "LeftAnti":
                found = here
            case "RightOuter":
                found = there
            case _:
                found = frozenset()
        if not found:
            raise Not(f"rows of {self.source} are joined to others without its {self.key}")
        return outs, frozenset(found)

    def _pairs(self, condition: PlanTree | None) -> list[tuple[int, int]]:
        found = []
        for one in conjuncts(condition):
            if one.kind == "EqualTo" and all(child.kind == "AttributeReference" for child in one.children):
                a, b = (child.id for child in one.children)
                if a is not None and b is not None:
                    found.append((a, b))
        return found

    def _equals(self, condition: PlanTree | None, keys: frozenset[int] | None) -> frozenset[int] | None:
        if keys is None:
            return None
        return keys | {b if a in keys else a for a, b in self._pairs(condition) if a in keys or b in keys}

    def _by_place(self, tree: PlanTree) -> Keyed:
        parts = [self.look(child) for child in tree.children]
        outs = parts[0][0]
        read = [(columns, keys) for columns, keys in parts if keys is not None]
        if not read:
            return outs, None
        places = set.intersection(*({place for place, attr in enumerate(columns) if attr in keys} for columns, keys in read))
        if not places:
            raise Not(f"{self.source}.{self.key} is not in the same column of all parts")
        # A column of the first part may come out under the same attribute elsewhere: only places count.
        found = frozenset(attr for place in places if (attr := outs[place]) is not None and outs.count(attr) == 1)
        if not found:
            raise Not(f"{self.source}.{self.key} is in several columns")
        return outs, found

    def _common(self, tree: PlanTree) -> Keyed:
        body = self.common.get(tree.field("cteId"))
        if body is None or tree.field("recursive"):
            raise Not("a recursive WITH reads its own rows")
        inner, keys = self.look(body.children[0])
        outs = self._named(tree.trees("output"))
        if keys is None:
            return outs, None
        found = frozenset(new for new, old in zip(outs, inner, strict=True) if old in keys and new is not None)
        if not found:
            raise Not(f"{self.source}.{self.key} does not come through")
        return outs, found
