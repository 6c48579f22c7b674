"""The walk through an analysed plan: from its leaves to the rows of the definition, as branches of facts (`facts.py`).

Only nodes that are named here are understood; any other is refused, unless all that it reads has declared bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidewheel.derive.conditions import Narrow, conjuncts
from tidewheel.derive.ends import IDENTITY
from tidewheel.derive.facts import Branch, Fact, Focus, equal, moved
from tidewheel.derive.plan_context import PlanContext, Scope
from tidewheel.derive.plan_names import view_columns, view_name, window_function
from tidewheel.derive.plan_tree import PlanError, Tree, is_null, subqueries
from tidewheel.derive.row_sets import Out, Rows, alike, common, defined, joined, minus, nearest_joined, unmatched, with_peers, with_subquery
from tidewheel.derive.time_values import Arm, Value, one_of
from tidewheel.derive.window_ties import tied

MOST_BRANCHES = 2000
MOST_NODES = 20_000
MOST_COPIES = 128
"""Windows that one row is in: each is computed, and written down in the plan, on its own."""


class Refused(Exception):
    """The definition cannot be bounded; the message is a sentence for people, without what they can declare instead."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A source: its time column, in lower case, what a number in it counts (None: it is a time), and whether its bounds are wanted."""

    name: str
    time: str
    scale: int | None
    wanted: bool


class Walker:
    def __init__(self, leaves: Mapping[str, Leaf], zone: str = "UTC") -> None:
        """Sources by name, in lower case; the time zone of the session in which the definition is computed."""
        self._in = PlanContext(zone)
        self._leaves = leaves
        self._common: dict[int, Tree] = {}
        self._nodes = 0

    @property
    def notes(self) -> list[str]:
        """Why something that looks like a time is not known."""
        return self._in.notes

    def rows(self, plan: Tree) -> Rows:
        return self._walk(plan, self._in.scope())

    def counts(self, out: Out) -> int | None:
        """What a column of numbers counts; None, if it is none of them, or nobody knows."""
        return self._in.scales.get(out.attr)

    def _walk(self, tree: Tree, scope: Scope) -> Rows:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise Refused("the definition refers to its own parts too often to be looked through")
        if tree.kind not in _WITH_SUBQUERIES and any(True for one in tree.fields() if one.is_expression for _ in subqueries(one)):
            raise Refused(f"a subquery stands in a {tree.kind}: put it into WHERE")
        rule = _NODES.get(tree.kind)
        rows = rule(self, tree, scope) if rule is not None else self._opaque(tree, scope)
        if len(rows.branches) > MOST_BRANCHES:
            raise Refused("there are too many ways in which a row can come about (unions, sliding windows and coalesce multiply)")
        return rows

    # ---- leaves ---------------------------------------------------------------------------------------------

    def view(self, tree: Tree, scope: Scope) -> Rows:
        name = view_name(tree)
        leaf = self._leaves.get(name.lower())
        if leaf is None:
            raise Refused(f"it reads {name!r}, which is not one of its sources")
        columns = view_columns(tree)
        outs = tuple(self._in.out(column, scope) for column in columns)
        times = [(out, column) for out, column in zip(outs, columns, strict=True) if out.name.lower() == leaf.time]
        if not times:
            raise PlanError(f"source {leaf.name!r} has no column {leaf.time!r}")
        attr = times[0][0].attr
        if leaf.scale is not None and times[0][1].type in ("long", "integer"):  # a time of Spark's counts what Spark's do
            self._in.scales[attr] = leaf.scale
        plain = Branch(sure=frozenset({attr}))
        focused = Branch(sure=frozenset({attr}), focus=Focus(leaf.name, attr))
        return Rows(outs, (plain, focused) if leaf.wanted else (plain,))

    def constant(self, tree: Tree, scope: Scope) -> Rows:
        return Rows(tuple(self._in.out(column, scope) for column in tree.trees("output")), (Branch(),))

    def foreign(self, tree: Tree, scope: Scope) -> Rows:
        raise Refused(f"it reads rows that are no table's ({tree.kind}): make a table of them, and a source")

    def _opaque(self, tree: Tree, scope: Scope) -> Rows:
        """A node that is not understood: fine, if what it reads has declared bounds."""
        inside = list(tree.walk())
        names = [view_name(one) for one in inside if one.kind == "View"]
        leaves = [self._leaves.get(name.lower()) for name in names]
        if any(leaf is None or leaf.wanted for leaf in leaves) or any(one.kind == "CTERelationRef" for one in inside):
            raise Refused(f"{tree.kind} is not understood")
        return Rows(tuple(self._in.out(column, scope) for column in tree.trees("output")), (Branch(),))

    # ---- one child ------------------------------------------------------------------------------------------

    def same(self, tree: Tree, scope: Scope) -> Rows:
        return self._walk(tree.children[0], scope)

    def filter(self, tree: Tree, scope: Scope) -> Rows:
        condition = tree.tree("condition")
        rows = self._with_subqueries(self._walk(tree.children[0], scope), [condition] if condition else [], scope)
        narrow = self._in.narrow([condition], scope)
        return Rows(rows.outs, tuple(met for branch in rows.branches if (met := narrow(branch)) is not None))

    def project(self, tree: Tree, scope: Scope) -> Rows:
        return self._made(self._walk(tree.children[0], scope), tree.trees("projectList"), scope)

    def aggregate(self, tree: Tree, scope: Scope) -> Rows:
        rows = self._walk(tree.children[0], scope)
        if not tree.trees("groupingExpressions"):  # its one row is there even if no other is: nothing follows from its being there
            rows = Rows(rows.outs, (Branch(), *(branch.through("an aggregate without GROUP BY") for branch in rows.focused)))
        return self._made(rows, tree.trees("aggregateExpressions"), scope)

    def _made(self, rows: Rows, columns: list[Tree], scope: Scope) -> Rows:
        rows = self._with_subqueries(rows, columns, scope)
        branches = list(rows.branches)
        outs = []
        for column in columns:
            out = self._in.out(column, scope)
            outs.append(out)
            if column.kind != "AttributeReference":
                known = self._in.parts(column, scope)
                self._in.counts(out, known)
                if is_null(column):
                    branches = [branch.without([out.attr]) for branch in branches]
                branches = defined(branches, out.attr, known)
        return Rows(tuple(outs), tuple(branches))

    def expand(self, tree: Tree, scope: Scope) -> Rows:
        inner = self._in.scope(scope.outer)
        rows = self._walk(tree.children[0], inner)
        branches = list(rows.branches)
        lists = tree.rows("projections")
        if len(lists) > MOST_COPIES:
            raise Refused(f"it makes {len(lists)} rows of each, as sliding windows of so many steps do: lengthen the slide")
        outs = [self._in.out(column, scope) for column in tree.trees("output")]
        for place, out in enumerate(outs):
            cells = [row[place] for row in lists]
            there = [self._in.parts(cell, inner) for cell in cells if not is_null(cell)]
            if not there:
                branches = [branch.without([out.attr]) for branch in branches]
                continue
            for path in set.intersection(*(set(known) for known in there)):
                value = one_of([known[path] for known in there])
                if value is not None:
                    if len(there) < len(cells):
                        value = Value(value.arms, value.type, value.scale, value.whole, sure=False)
                    self._in.counts(out, {path: value})
                    branches = defined(branches, out.attr, {path: value})
        return Rows(tuple(outs), tuple(branches))

    def generate(self, tree: Tree, scope: Scope) -> Rows:
        rows = self._walk(tree.children[0], scope)
        outs = tuple(self._in.out(column, scope) for column in tree.trees("generatorOutput"))
        generator = tree.tree("generator")
        branches = list(rows.branches)
        if generator is not None and len(outs) == 1 and generator.kind == "Explode":
            known = self._in.parts(generator, scope)
            if tree.field("outer"):
                known = {path: Value(v.arms, v.type, v.scale, v.whole, sure=False) for path, v in known.items()}
            self._in.counts(outs[0], known)
            branches = defined(branches, outs[0].attr, known)
        return Rows((*rows.outs, *outs), tuple(branches))

    def deduplicate(self, tree: Tree, scope: Scope) -> Rows:
        rows = self._walk(tree.children[0], scope)
        if {out.attr for out in rows.outs} - {(scope.number, key.id) for key in tree.trees("keys")}:
            raise Refused("dropDuplicates() of some columns keeps whichever row comes first")
        return rows

    def python(self, tree: Tree, scope: Scope) -> Rows:
        """Rows that a Python function makes of others: nothing is known of its columns."""
        what = f"a Python function over rows ({tree.kind})"
        found = [self._walk(child, scope) for child in tree.children]
        branches = (Branch(), *(branch.through(what) for rows in found for branch in rows.focused))
        return Rows(tuple(self._in.out(column, scope) for column in tree.trees("output")), branches)

    # ---- several --------------------------------------------------------------------------------------------

    def union(self, tree: Tree, scope: Scope) -> Rows:
        found = [self._walk(child, self._in.scope(scope.outer)) for child in tree.children]
        outs = [Out(out.name, (scope.number, out.attr[1]), out.fields) for out in found[0].outs]
        for place, out in enumerate(outs):
            scales = {self._in.scales.get(rows.outs[place].attr) for rows in found}
            if len(scales) == 1 and (scale := scales.pop()) is not None:
                self._in.scales[out.attr] = scale
        return Rows(tuple(outs), tuple(branch for rows in found for branch in rows.known_as(outs, self._in.scales).branches))

    def with_common(self, tree: Tree, scope: Scope) -> Rows:
        for one in tree.trees("cteDefs"):
            if one.field("id") is not None:
                self._common[one.field("id")] = one
        return self._walk(tree.children[tree.field("plan")], scope)

    def common_reference(self, tree: Tree, scope: Scope) -> Rows:
        found = self._common.get(tree.field("cteId"))
        if found is None or tree.field("recursive"):
            raise Refused("a recursive WITH reads its own rows")
        rows = self._walk(found.children[0], self._in.scope(scope.outer))
        outs = [self._in.out(column, scope) for column in tree.trees("output")]
        return self._in.known_as(rows, outs)

    def join(self, tree: Tree, scope: Scope) -> Rows:
        left, right = (self._walk(child, scope) for child in tree.children)
        rows = joined(left, right, tree.object_name("joinType"), self._in.narrow([tree.tree("condition")], scope))
        if rows is None:
            raise Refused(f"a join of the kind {tree.object_name('joinType')} is not understood")
        return rows

    def asof_join(self, tree: Tree, scope: Scope) -> Rows:
        left, right = (self._walk(child, scope) for child in tree.children)
        other = self._in.scope(scope.outer)
        rival = self._walk(tree.children[1], other)
        conditions = [tree.tree("condition"), tree.tree("asOfCondition")]
        narrow = self._in.narrow(conditions, scope)
        there = {attr: (other.number, *attr[1:]) for out in right.outs for attr in (out.attr, *out.timed())}

        def against(branch: Branch) -> Branch | None:
            """The same conditions, about the rival in place of the row that was joined."""
            facts = narrow(Branch(sure=branch.sure))
            return None if facts is None else branch.with_facts(moved(facts.facts, there))

        rows = nearest_joined(left, right, rival, tree.object_name("joinType"), narrow, against)
        if rows is None:
            raise Refused(f"an AS OF join of the kind {tree.object_name('joinType')} is not understood")
        return rows

    def lateral_join(self, tree: Tree, scope: Scope) -> Rows:
        left = self._walk(tree.children[0], scope)
        lateral = tree.tree("right")
        plan = lateral.tree("plan") if lateral is not None else None
        kind = tree.object_name("joinType")
        condition = tree.tree("condition")
        if condition is not None and any(True for _ in subqueries(condition)):
            raise Refused("a subquery stands in a LateralJoin: put it into WHERE")
        if plan is None or kind not in ("Inner", "Cross", "LeftOuter"):
            raise Refused(f"a lateral join of the kind {kind} is not understood")
        right = self._in.moved(self._walk(plan, self._in.scope(scope)), scope)
        narrow = self._in.narrow([condition], scope)
        rows = joined(left, right, "Inner", narrow)
        assert rows is not None
        return Rows(rows.outs, (*rows.branches, *unmatched(left, right, narrow))) if kind == "LeftOuter" else rows

    def set_operation(self, tree: Tree, scope: Scope) -> Rows:
        left, right = (self._walk(child, self._in.scope(scope.outer)) for child in tree.children)
        pairs = [pair for a, b in zip(left.outs, right.outs, strict=True) for pair in alike(a, b, self._in.scales)]

        def narrow(branch: Branch) -> Branch:
            """Rows are the same if they are equal in every column, and nulls are equal."""
            facts: list[Fact] = []
            for one, other in pairs:
                if one in branch.sure or other in branch.sure:
                    facts += [Fact(one, other, IDENTITY, IDENTITY), Fact(other, one, IDENTITY, IDENTITY)]
            return branch.with_facts(facts)

        rows = minus(left, right, narrow) if tree.kind == "Except" else common(left, right, narrow)
        return self._in.moved(rows, scope)

    # ---- rows that depend on others -------------------------------------------------------------------------

    def window(self, tree: Tree, scope: Scope) -> Rows:
        rows = self._walk(tree.children[0], scope)
        specs: list[Tree] = []
        for made in tree.trees("windowExpressions"):
            spec = next((one for one in made.below() if one.kind == "WindowSpecDefinition"), None)
            if spec is None:
                raise PlanError("a window function without a window")
            out = self._in.out(made, scope)
            if spec in specs:
                rows = Rows((*rows.outs, out), rows.branches)
                continue
            specs.append(spec)
            other = self._in.scope(scope.outer)
            peers = self._walk(tree.children[0], other)
            rows = with_peers(rows, peers, tied(self._in, spec, scope, other), window_function(made), [out])
        return rows

    def _with_subqueries(self, rows: Rows, expressions: list[Tree], scope: Scope) -> Rows:
        for expression in expressions:
            for one in subqueries(expression):
                plan = one.tree("plan")
                assert plan is not None
                if one.kind not in ("ScalarSubquery", "Exists", "ListQuery"):
                    raise Refused(f"a subquery of the kind {one.kind} is not understood")
                inner = self._walk(plan, self._in.scope(scope))
                rows = with_subquery(rows, inner, self._link(expression, one, inner, scope), _SUBQUERIES[one.kind])
        return rows

    def _link(self, expression: Tree, query: Tree, inner: Rows, scope: Scope) -> Narrow:
        """x IN (SELECT y …), where it must be true: a row that changes its answer has y = x. Of NOT IN, a null is everybody's."""
        values: list[Value | None] = []
        for one in conjuncts(expression):
            if one.kind == "InSubquery" and one.children[-1].id == query.id:
                values = [self._in.parts(value, scope).get(()) for value in one.children[:-1]]
        pairs = [
            (value, Value((Arm(out.attr),), value.type, value.scale))
            for value, out in zip(values, inner.outs, strict=False)
            if value is not None and value.type != "number"
        ]
        return lambda branch: branch.with_facts([fact for value, column in pairs for fact in equal(branch.seen(value), column)])


_WITH_SUBQUERIES = ("Project", "Filter", "Aggregate", "LateralJoin")
_SUBQUERIES = {"ScalarSubquery": "a subquery for a value", "Exists": "EXISTS", "ListQuery": "IN (SELECT …)"}

_SAME = (
    "SubqueryAlias",
    "Sort",
    "Distinct",
    "ResolvedHint",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "PipeOperator",
)
_PYTHON = (
    "MapInPandas", "MapInArrow", "FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow",
)  # fmt: skip
_NODES: dict[str, Callable[[Walker, Tree, Scope], Rows]] = {
    "View": Walker.view,
    **dict.fromkeys(("LocalRelation", "OneRowRelation", "Range"), Walker.constant),
    **dict.fromkeys(("LogicalRDD", "DataSourceV2Relation", "LogicalRelation", "HiveTableRelation"), Walker.foreign),
    **dict.fromkeys(_SAME, Walker.same),
    "Filter": Walker.filter,
    "Project": Walker.project,
    "Aggregate": Walker.aggregate,
    "Expand": Walker.expand,
    "Generate": Walker.generate,
    "Deduplicate": Walker.deduplicate,
    **dict.fromkeys(_PYTHON, Walker.python),
    "Union": Walker.union,
    "WithCTE": Walker.with_common,
    "CTERelationRef": Walker.common_reference,
    "Join": Walker.join,
    "AsOfJoin": Walker.asof_join,
    "LateralJoin": Walker.lateral_join,
    **dict.fromkeys(("Except", "Intersect"), Walker.set_operation),
    "Window": Walker.window,
}
