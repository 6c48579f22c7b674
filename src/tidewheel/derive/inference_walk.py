"""The walk through an analysed plan: from its leaves to the rows of the definition, as branches of facts (`facts.py`).

Only nodes that are named here are understood; any other is refused, unless all that it reads has declared bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from tidewheel.derive.conditions import Narrow, conjuncts, narrowing, parts
from tidewheel.derive.ends import IDENTITY
from tidewheel.derive.facts import Branch, Fact, Focus, at_least, equal, moved
from tidewheel.derive.plan_names import timed_fields, view_columns, view_name, window_function
from tidewheel.derive.plan_tree import PlanError, Tree, integer, interval, is_null, subqueries
from tidewheel.derive.row_sets import Out, Rows, alike, common, defined, joined, minus, nearest_joined, unmatched, with_peers, with_subquery
from tidewheel.derive.time_expressions import Evaluator, Resolve
from tidewheel.derive.time_values import MICRO, Arm, Attr, Value, one_of

MOST_BRANCHES = 2000
MOST_NODES = 20_000


class Refused(Exception):
    """The definition cannot be bounded; the message is a sentence for people, without what they can declare instead."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One walk through a part of a plan; a part that is walked twice has two."""

    number: int
    outer: Scope | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A source: its time column, in lower case, what a number in it counts (None: it is a time), and whether its bounds are wanted."""

    name: str
    time: str
    scale: int | None
    wanted: bool


class Walker:
    def __init__(self, leaves: Mapping[str, Leaf]) -> None:
        """By name, in lower case."""
        self.notes: list[str] = []
        self.met: dict[str, None] = {}
        self._leaves = leaves
        self._evaluator = Evaluator(self.notes)
        self._numbers = count()
        self._scales: dict[Attr, int] = {}
        self._common: dict[int, Tree] = {}
        self._nodes = 0

    def rows(self, plan: Tree) -> Rows:
        return self._walk(plan, self._scope())

    def _scope(self, outer: Scope | None = None) -> Scope:
        return Scope(next(self._numbers), outer)

    def _walk(self, tree: Tree, scope: Scope) -> Rows:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise Refused("the definition refers to its own parts too often to be looked through")
        rule = _NODES.get(tree.kind)
        rows = rule(self, tree, scope) if rule is not None else self._opaque(tree, scope)
        if len(rows.branches) > MOST_BRANCHES:
            raise Refused("there are too many ways in which a row can come about (unions, sliding windows and coalesce multiply)")
        return rows

    # ---- expressions ----------------------------------------------------------------------------------------

    def _resolve(self, scope: Scope) -> Resolve:
        def resolve(tree: Tree) -> tuple[Attr, int | None] | None:
            where: Scope | None = scope
            if tree.kind == "OuterReference":
                inner = tree.tree("e")
                if inner is None:
                    return None
                tree, where = inner, scope.outer
            if where is None or tree.id is None:
                return None
            attr: Attr = (where.number, tree.id)
            return attr, self._scales.get(attr)

        return resolve

    def _parts(self, tree: Tree, scope: Scope) -> dict[tuple[str, ...], Value]:
        return parts(self._evaluator, tree, self._resolve(scope))

    def _narrow(self, conditions: list[Tree | None], scope: Scope) -> Narrow:
        return narrowing(self._evaluator, [c for c in conditions if c is not None], self._resolve(scope))

    def _out(self, tree: Tree, scope: Scope) -> Out:
        """The column that a named expression makes."""
        if tree.id is None:
            raise PlanError(f"{tree.kind} makes no column")
        return Out(tree.name, (scope.number, tree.id), timed_fields(tree))

    def _counts(self, attr: Attr, values: list[Value]) -> None:
        """A column of numbers counts what the values in it do."""
        scales = {value.scale for value in values if value.type == "number"}
        if len(scales) == 1 and (scale := scales.pop()) is not None:
            self._scales[attr] = scale

    # ---- leaves ---------------------------------------------------------------------------------------------

    def view(self, tree: Tree, scope: Scope) -> Rows:
        name = view_name(tree)
        leaf = self._leaves.get(name.lower())
        if leaf is None:
            raise Refused(f"it reads {name!r}, which is not one of its sources")
        outs = tuple(self._out(column, scope) for column in view_columns(tree))
        times = [out for out in outs if out.name.lower() == leaf.time]
        if not times:
            raise PlanError(f"source {leaf.name!r} has no column {leaf.time!r}")
        attr = times[0].attr
        if leaf.scale is not None:
            self._scales[attr] = leaf.scale
        self.met[leaf.name] = None
        plain = Branch(sure=frozenset({attr}))
        focused = Branch(sure=frozenset({attr}), focus=Focus(leaf.name, attr))
        return Rows(outs, (plain, focused) if leaf.wanted else (plain,))

    def constant(self, tree: Tree, scope: Scope) -> Rows:
        return Rows(tuple(self._out(column, scope) for column in tree.trees("output")), (Branch(),))

    def foreign(self, tree: Tree, scope: Scope) -> Rows:
        raise Refused(f"it reads rows that are no table's ({tree.kind}): make a table of them, and a source")

    def _opaque(self, tree: Tree, scope: Scope) -> Rows:
        """A node that is not understood: fine, if what it reads has declared bounds."""
        inside = list(tree.walk())
        names = [view_name(one) for one in inside if one.kind == "View"]
        leaves = [self._leaves.get(name.lower()) for name in names]
        if any(leaf is None or leaf.wanted for leaf in leaves) or any(one.kind == "CTERelationRef" for one in inside):
            raise Refused(f"{tree.kind} is not understood")
        self.met.update((leaf.name, None) for leaf in leaves if leaf is not None)
        return Rows(tuple(self._out(column, scope) for column in tree.trees("output")), (Branch(),))

    # ---- one child ------------------------------------------------------------------------------------------

    def same(self, tree: Tree, scope: Scope) -> Rows:
        return self._walk(tree.children[0], scope)

    def filter(self, tree: Tree, scope: Scope) -> Rows:
        condition = tree.tree("condition")
        rows = self._with_subqueries(self._walk(tree.children[0], scope), [condition] if condition else [], scope)
        narrow = self._narrow([condition], scope)
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
            out = self._out(column, scope)
            outs.append(out)
            if column.kind != "AttributeReference":
                known = self._parts(column, scope)
                self._counts(out.attr, [known[()]] if () in known else [])
                if is_null(column):
                    branches = [branch.without([out.attr]) for branch in branches]
                branches = defined(branches, out.attr, known)
        return Rows(tuple(outs), tuple(branches))

    def expand(self, tree: Tree, scope: Scope) -> Rows:
        inner = Scope(next(self._numbers), scope.outer)
        rows = self._walk(tree.children[0], inner)
        branches = list(rows.branches)
        lists = tree.rows("projections")
        outs = [self._out(column, scope) for column in tree.trees("output")]
        for place, out in enumerate(outs):
            cells = [row[place] for row in lists]
            there = [self._parts(cell, inner) for cell in cells if not is_null(cell)]
            if not there:
                branches = [branch.without([out.attr]) for branch in branches]
                continue
            for path in set.intersection(*(set(known) for known in there)):
                value = one_of([known[path] for known in there])
                if value is not None:
                    if len(there) < len(cells):
                        value = Value(value.arms, value.type, value.scale, value.whole, sure=False)
                    self._counts(out.attr, [value] if not path else [])
                    branches = defined(branches, out.attr, {path: value})
        return Rows(tuple(outs), tuple(branches))

    def generate(self, tree: Tree, scope: Scope) -> Rows:
        rows = self._walk(tree.children[0], scope)
        outs = tuple(self._out(column, scope) for column in tree.trees("generatorOutput"))
        generator = tree.tree("generator")
        branches = list(rows.branches)
        if generator is not None and len(outs) == 1 and generator.kind == "Explode":
            known = self._parts(generator, scope)
            if tree.field("outer"):
                known = {path: Value(v.arms, v.type, v.scale, v.whole, sure=False) for path, v in known.items()}
            branches = defined(branches, outs[0].attr, known)
        return Rows((*rows.outs, *outs), tuple(branches))

    def python(self, tree: Tree, scope: Scope) -> Rows:
        """Rows that a Python function makes of others: nothing is known of its columns."""
        what = f"a Python function over rows ({tree.kind})"
        found = [self._walk(child, scope) for child in tree.children]
        branches = (Branch(), *(branch.through(what) for rows in found for branch in rows.focused))
        return Rows(tuple(self._out(column, scope) for column in tree.trees("output")), branches)

    # ---- several --------------------------------------------------------------------------------------------

    def union(self, tree: Tree, scope: Scope) -> Rows:
        found = [self._walk(child, Scope(next(self._numbers), scope.outer)) for child in tree.children]
        outs = [Out(out.name, (scope.number, out.attr[1]), out.fields) for out in found[0].outs]
        for place, out in enumerate(outs):
            scales = {self._scales.get(rows.outs[place].attr) for rows in found}
            if len(scales) == 1 and (scale := scales.pop()) is not None:
                self._scales[out.attr] = scale
        return Rows(tuple(outs), tuple(branch for rows in found for branch in rows.known_as(outs).branches))

    def with_common(self, tree: Tree, scope: Scope) -> Rows:
        for one in tree.trees("cteDefs"):
            if one.field("id") is not None:
                self._common[one.field("id")] = one
        return self._walk(tree.children[tree.field("plan")], scope)

    def common_reference(self, tree: Tree, scope: Scope) -> Rows:
        found = self._common.get(tree.field("cteId"))
        if found is None or tree.field("recursive"):
            raise Refused("a recursive WITH reads its own rows")
        rows = self._walk(found.children[0], Scope(next(self._numbers), scope.outer))
        outs = [self._out(column, scope) for column in tree.trees("output")]
        for new, old in zip(outs, rows.outs, strict=True):
            if old.attr in self._scales:
                self._scales[new.attr] = self._scales[old.attr]
        return rows.known_as(outs)

    def join(self, tree: Tree, scope: Scope) -> Rows:
        left, right = (self._walk(child, scope) for child in tree.children)
        condition = tree.tree("condition")
        if condition is not None and any(True for _ in subqueries(condition)):
            raise Refused("the condition of a join has a subquery in it: put it into WHERE")
        rows = joined(left, right, tree.object_name("joinType"), self._narrow([condition], scope))
        if rows is None:
            raise Refused(f"a join of the kind {tree.object_name('joinType')} is not understood")
        return rows

    def asof_join(self, tree: Tree, scope: Scope) -> Rows:
        left, right = (self._walk(child, scope) for child in tree.children)
        other = Scope(next(self._numbers), scope.outer)
        rival = self._walk(tree.children[1], other)
        conditions = [tree.tree("condition"), tree.tree("asOfCondition")]
        narrow = self._narrow(conditions, scope)
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
        if plan is None or kind not in ("Inner", "Cross", "LeftOuter"):
            raise Refused(f"a lateral join of the kind {kind} is not understood")
        inner = self._scope(scope)
        right = self._walk(plan, inner)
        right = right.known_as([Out(out.name, (scope.number, out.attr[1]), out.fields) for out in right.outs])
        narrow = self._narrow([tree.tree("condition")], scope)
        rows = joined(left, right, "Inner", narrow)
        assert rows is not None
        return Rows(rows.outs, (*rows.branches, *unmatched(left, right, narrow))) if kind == "LeftOuter" else rows

    def set_operation(self, tree: Tree, scope: Scope) -> Rows:
        left, right = (self._walk(child, Scope(next(self._numbers), scope.outer)) for child in tree.children)
        pairs = [pair for a, b in zip(left.outs, right.outs, strict=True) for pair in alike(a, b)]

        def narrow(branch: Branch) -> Branch:
            """Rows are the same if they are equal in every column, and nulls are equal."""
            facts: list[Fact] = []
            for one, other in pairs:
                if one in branch.sure or other in branch.sure:
                    facts += [Fact(one, other, IDENTITY, IDENTITY), Fact(other, one, IDENTITY, IDENTITY)]
            return branch.with_facts(facts)

        rows = minus(left, right, narrow) if tree.kind == "Except" else common(left, right, narrow)
        return rows.known_as([Out(out.name, (scope.number, out.attr[1]), out.fields) for out in left.outs])

    # ---- rows that depend on others -------------------------------------------------------------------------

    def window(self, tree: Tree, scope: Scope) -> Rows:
        rows = self._walk(tree.children[0], scope)
        for made in tree.trees("windowExpressions"):
            spec = next((one for one in made.walk() if one.kind == "WindowSpecDefinition"), None)
            if spec is None:
                raise PlanError("a window function without a window")
            other = Scope(next(self._numbers), scope.outer)
            peers = self._walk(tree.children[0], other)
            tie = self._tie(spec, scope, other)
            rows = with_peers(rows, peers, tie, window_function(made), [self._out(made, scope)])
        return rows

    def _tie(self, spec: Tree, mine: Scope, theirs: Scope) -> Callable[[Branch], Branch]:
        """What a row and a row that its window function looks at have in common."""
        equals = []
        for key in spec.trees("partitionSpec"):
            here, there = self._parts(key, mine), self._parts(key, theirs)
            equals += [(here[path], there[path]) for path in here.keys() & there.keys()]
        ranges = self._frame(spec, mine, theirs)

        def tie(branch: Branch) -> Branch:
            facts: list[Fact] = []
            for here, there in equals:
                if branch.is_sure(here) or branch.is_sure(there):  # nulls are in one partition, too
                    facts += equal(here, there)
            for more, less, amount in ranges:
                if branch.is_sure(more) and branch.is_sure(less):
                    facts += at_least(more, less, amount)
            return branch.with_facts(facts)

        return tie

    def _frame(self, spec: Tree, mine: Scope, theirs: Scope) -> list[tuple[Value, Value, int]]:
        """Of RANGE BETWEEN …: first ≥ second + amount."""
        frame, order = spec.children[spec.field("frameSpecification")], spec.trees("orderSpec")
        if frame.kind != "SpecifiedWindowFrame" or frame.object_name("frameType") != "RangeFrame" or len(order) != 1:
            return []
        here, there = self._parts(order[0].children[0], mine).get(()), self._parts(order[0].children[0], theirs).get(())
        if here is None or there is None or here.scale is None or here.whole is False:
            return []
        low, high = (_offset(end, here) for end in frame.children)
        if order[0].object_name("direction") == "Descending":
            low, high = (None if high is None else -high), (None if low is None else -low)
        found = []
        if low is not None:
            found.append((there, here, low))  # peer ≥ row + low
        if high is not None:
            found.append((here, there, -high))  # row + high ≥ peer
        return found

    def _with_subqueries(self, rows: Rows, expressions: list[Tree], scope: Scope) -> Rows:
        for expression in expressions:
            for one in subqueries(expression):
                plan = one.tree("plan")
                assert plan is not None
                if one.kind not in ("ScalarSubquery", "Exists", "ListQuery"):
                    raise Refused(f"a subquery of the kind {one.kind} is not understood")
                inner = self._walk(plan, self._scope(scope))
                rows = with_subquery(rows, inner, self._link(expression, one, inner, scope), _SUBQUERIES[one.kind])
        return rows

    def _link(self, expression: Tree, query: Tree, inner: Rows, scope: Scope) -> Narrow:
        """x IN (SELECT y …), where it must be true: a row that changes its answer has y = x. Of NOT IN, a null is everybody's."""
        values: list[Value | None] = []
        for one in conjuncts(expression):
            if one.kind == "InSubquery" and one.children[-1].id == query.id:
                values = [self._parts(value, scope).get(()) for value in one.children[:-1]]
        pairs = [
            (value, Value((Arm(out.attr),), value.type, value.scale))
            for value, out in zip(values, inner.outs, strict=False)
            if value is not None and value.type != "number"
        ]
        return lambda branch: branch.with_facts([fact for value, column in pairs for fact in equal(branch.seen(value), column)])


_SUBQUERIES = {"ScalarSubquery": "a subquery for a value", "Exists": "EXISTS", "ListQuery": "IN (SELECT …)"}

_NODES: dict[str, Callable[[Walker, Tree, Scope], Rows]] = {
    "View": Walker.view,
    **dict.fromkeys(("LocalRelation", "OneRowRelation", "Range"), Walker.constant),
    **dict.fromkeys(("LogicalRDD", "DataSourceV2Relation", "LogicalRelation", "HiveTableRelation"), Walker.foreign),
    **dict.fromkeys(
        (
            "SubqueryAlias",
            "Sort",
            "Distinct",
            "ResolvedHint",
            "Repartition",
            "RepartitionByExpression",
            "RebalancePartitions",
            "PipeOperator",
        ),
        Walker.same,
    ),
    "Filter": Walker.filter,
    "Project": Walker.project,
    "Aggregate": Walker.aggregate,
    "Expand": Walker.expand,
    "Generate": Walker.generate,
    **dict.fromkeys(
        ("MapInPandas", "MapInArrow", "FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow"),
        Walker.python,
    ),
    "Union": Walker.union,
    "WithCTE": Walker.with_common,
    "CTERelationRef": Walker.common_reference,
    "Join": Walker.join,
    "AsOfJoin": Walker.asof_join,
    "LateralJoin": Walker.lateral_join,
    **dict.fromkeys(("Except", "Intersect"), Walker.set_operation),
    "Window": Walker.window,
}


def _offset(end: Tree, of: Value) -> int | None:
    """An end of a RANGE frame, in nanoseconds; None: unbounded, or not written down."""
    if end.kind == "CurrentRow$":
        return 0
    if of.type == "number" or of.type == "date" and integer(end) is not None:
        number = integer(end)
        return None if number is None or of.scale is None else number * of.scale
    micros = interval(end)
    return None if micros is None else micros * MICRO
