"""Definitions that are one aggregate whose results can be put together: count, sum, min, max of rows that are only added to, by groups that
come out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidewheel.derive.ends import End
from tidewheel.derive.mode_reasons import Not
from tidewheel.derive.mode_rows import Additive, Sets, check_row_wise, common_parts
from tidewheel.derive.plan_names import function_name, unwrapped
from tidewheel.derive.plan_tree import PlanTree
from tidewheel.derive.time_expressions import Evaluator
from tidewheel.model.derived import average_state

_COMBINE = {"Count": "sum", "CountIf": "sum", "Sum": "sum", "Min": "min", "Max": "max", "BoolAnd": "min", "BoolOr": "max"}
_WHOLE = ("byte", "short", "integer", "long")


@dataclass(frozen=True, slots=True)
class Aggregated:
    sources: Sets
    groups: tuple[str, ...]
    combine: dict[str, str]
    ratios: dict[str, tuple[str, str]]
    hidden: dict[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Call:
    """An aggregate function in a column."""

    function: PlanTree
    where: PlanTree | None

    @property
    def argument(self) -> PlanTree:
        return self.function.children[0]

    def same_rows(self, other: _Call) -> bool:
        return self.argument == other.argument and self.where == other.where


Names = list[tuple[str, int | None]]
"""The columns that come out at the end, each with the attribute further down that it is."""


def aggregated(plan: PlanTree, floats: bool, hidden: bool) -> Aggregated:
    """What there is to merge. Raises Not."""
    names, tree = _below_names(plan)
    additive = Additive(common_parts(plan))
    if tree.kind == "Distinct":
        sources = additive.sets(tree.children[0])
        columns = [column.id for column in _columns(tree.children[0])]
        shown = _shown(names, _columns(tree.children[0]))
        if any(attr not in shown for attr in columns):
            raise Not("not all columns of DISTINCT come out")
        return Aggregated(sources, tuple(name for attr in columns for name in shown[attr]), {}, {}, {})
    if tree.kind == "Filter" and _below_names(tree.children[0])[1].kind == "Aggregate":
        raise Not("HAVING hides groups that may come to be shown")
    if tree.kind != "Aggregate":
        raise Not("it is not one aggregate")
    check_row_wise(tree)
    sources = additive.sets(tree.children[0])
    shown = _shown(names, tree.trees("aggregateExpressions"))
    groups = _groups(tree, shown)
    calls: dict[str, _Call] = {}
    places: dict[str, int] = {}
    for place, column in enumerate(tree.trees("aggregateExpressions")):
        if (call := _call(column)) is not None:
            calls |= dict.fromkeys(shown.get(column.id, ()), call)
            places |= dict.fromkeys(shown.get(column.id, ()), place)
    known = {*groups, *calls}
    for names_of_one in shown.values():
        for name in names_of_one:
            if name not in known:
                raise Not(f"{name} is computed from groups or aggregates: only group columns and plain count, sum, min, max can be merged")
    combine = {name: _how(name, call, floats) for name, call in calls.items() if call.function.kind != "Average"}
    averages = {name: call for name, call in calls.items() if call.function.kind == "Average"}
    ratios = {name: pair for name, call in averages.items() if (pair := _ratio(call, calls)) is not None}
    missing = {name: average_state(places[name]) for name in averages if name not in ratios}
    for name in missing:
        if not hidden or not (floats or _is_exact(averages[name].argument)) or not _has_plain_state(averages[name]):
            raise Not(
                f"avg needs its sum and count, and {name} comes without: add sum(…) and count(…) of the same whole numbers as columns"
            )
    return Aggregated(sources, tuple(groups), combine, ratios, missing)


def _below_names(plan: PlanTree) -> tuple[Names | None, PlanTree]:
    """Past what only orders, renames and passes on columns; None: they come out as they are."""
    names: Names | None = None
    tree = plan
    while True:
        if tree.kind in ("Sort", "SubqueryAlias", "ResolvedHint", "PipeOperator", "Repartition", "RepartitionByExpression"):
            tree = tree.children[0]
        elif tree.kind == "WithCTE":
            tree = tree.children[tree.field("plan")]
        elif tree.kind == "Project" and _reaches_aggregate(tree.children[0]):
            made = {column.id: unwrapped(column) for column in tree.trees("projectList")}
            if names is None:
                names = [(column.name, column.id) for column in tree.trees("projectList")]
            below: Names = []
            for name, attr in names:
                inner = made.get(attr)
                if inner is None or inner.kind != "AttributeReference":
                    raise Not(f"{name} is computed from aggregates: only plain count, sum, min, max can be merged")
                below.append((name, inner.id))
            names, tree = below, tree.children[0]
        else:
            return names, tree


def _reaches_aggregate(tree: PlanTree) -> bool:
    while tree.kind in ("Project", "SubqueryAlias", "Filter", "Sort", "ResolvedHint", "PipeOperator") and tree.children:
        tree = tree.children[0]
    return tree.kind in ("Aggregate", "Distinct")


def _columns(tree: PlanTree) -> list[PlanTree]:
    while tree.kind in ("SubqueryAlias", "Filter", "Sort", "View", "PipeOperator", "Union") and tree.children:
        tree = tree.children[0]
    found = tree.trees({"Project": "projectList", "Aggregate": "aggregateExpressions"}.get(tree.kind, "output"))
    if not found:
        raise Not(f"the columns of {tree.kind} are not known")
    return found


def _shown(names: Names | None, columns: list[PlanTree]) -> dict[int | None, list[str]]:
    """Under which names each column comes out."""
    found: dict[int | None, list[str]] = {}
    for name, attr in names if names is not None else [(column.name, column.id) for column in columns]:
        found.setdefault(attr, []).append(name)
    return found


# ---- groups -------------------------------------------------------------------------------------------------


def _groups(aggregate: PlanTree, shown: dict[int | None, list[str]]) -> list[str]:
    """The columns that tell groups apart. Raises Not, if two groups could look alike in them."""
    columns = aggregate.trees("aggregateExpressions")
    found: list[str] = []
    for expression in aggregate.trees("groupingExpressions"):
        same = [column for column in columns if unwrapped(column) == expression or column.id == expression.id is not None]
        names = [name for column in same for name in shown.get(column.id, ())]
        if not names:
            fields = [column for column in columns if _tells_windows_apart(unwrapped(column), expression, aggregate.children[0])]
            names = [name for column in fields for name in shown.get(column.id, ())]
        if not names:
            raise Not(f"{_said(expression)} is grouped by, but does not come out: groups could not be told apart")
        found += [name for name in names if name not in found]
    return found


def _said(expression: PlanTree) -> str:
    return expression.name if expression.kind == "AttributeReference" else f"{function_name(expression)}(…)"


def _tells_windows_apart(column: PlanTree, group: PlanTree, below: PlanTree) -> bool:
    """window.start or window.end of a group that is a window(): each is the other and a constant."""
    if column.kind != "GetStructField" or column.children[0] != group or group.kind != "AttributeReference":
        return False
    made = list(_definitions(below, group.id))
    lengths = [_length(struct) for struct in made]
    return bool(lengths) and lengths[0] is not None and len(set(lengths)) == 1


def _definitions(tree: PlanTree, attr: int | None) -> Iterator[PlanTree]:
    """What an attribute is made of, in the node that makes it: in several ways by Expand."""
    while True:
        if tree.kind == "Expand":
            places = [place for place, out in enumerate(tree.trees("output")) if out.id == attr]
            for row in tree.rows("projections"):
                yield from (unwrapped(row[place]) for place in places)
            return
        if tree.kind == "Project":
            made = [column for column in tree.trees("projectList") if column.id == attr and column.kind == "Alias"]
            if made:
                yield from (unwrapped(column) for column in made)
                return
        if len(tree.children) != 1:
            return
        tree = tree.children[0]


def _length(struct: PlanTree) -> int | None:
    """How far a window's end is from its start, if that is the same for all rows."""
    if struct.kind != "CreateNamedStruct" or [key.field("value") for key in struct.children[::2]] != ["start", "end"]:
        return None
    evaluator = Evaluator([])
    start, end = (
        evaluator.value(value, lambda tree: ((0, tree.id), None) if tree.id is not None else None) for value in struct.children[1::2]
    )
    if start is None or end is None or len(start.arms) != 1 or len(end.arms) != 1 or start.arms[0].attr != end.arms[0].attr:
        return None
    (a,), (b,) = start.arms, end.arms
    if not isinstance(a.lower, End) or not isinstance(b.lower, End) or a.lower != a.upper or b.lower != b.upper:
        return None
    length = b.lower.b - a.lower.b
    return length if a.lower.plus(length) == b.lower else None


# ---- aggregates ---------------------------------------------------------------------------------------------


def _call(column: PlanTree) -> _Call | None:
    """The aggregate that a column is, and nothing around it."""
    tree = unwrapped(column)
    if tree.kind != "AggregateExpression":
        return None
    function = tree.children[0]
    if tree.field("isDistinct") and function.kind not in ("Min", "Max"):
        raise Not(f"{function_name(function)}(DISTINCT …) cannot be merged: values may be in both parts")
    return _Call(function, tree.tree("filter") or (tree.children[1] if len(tree.children) > 1 else None))


def _how(name: str, call: _Call, floats: bool) -> str:
    how = _COMBINE.get(call.function.kind)
    if how is None:
        raise Not(f"{name} is {function_name(call.function)}(…), which cannot be merged: only count, sum, min and max can")
    if call.function.kind == "Sum" and call.function.field("evalContext") == "TRY":
        raise Not("try_sum(…) is null where a sum was too large, and that looks as if there had been no values: use sum")
    if call.function.kind == "Sum" and not floats and not _is_exact(call.argument):
        raise Not(f"{name} is a sum of floating-point numbers, whose last digits depend on the order; sum whole numbers or decimals")
    return how


def _type(tree: PlanTree) -> str:
    tree = unwrapped(tree)
    return str(tree.type) if isinstance(tree.type, str) else ""


def _is_whole(tree: PlanTree) -> bool:
    return _type(tree) in _WHOLE


def _is_exact(tree: PlanTree) -> bool:
    return _is_whole(tree) or _type(tree).startswith("decimal")


def _has_plain_state(average: _Call) -> bool:
    """Whether an average is of numbers; intervals have averages, too."""
    return "interval" not in _type(average.argument)


def _ratio(average: _Call, calls: dict[str, _Call]) -> tuple[str, str] | None:
    """The columns that are the sum and the count of what an average is of."""
    if not _is_whole(average.argument):
        return None
    totals = [name for name, call in calls.items() if call.function.kind == "Sum" and call.same_rows(average)]
    counts = [
        name
        for name, call in calls.items()
        if call.function.kind == "Count" and call.same_rows(average) and len(call.function.children) == 1
    ]
    return (totals[0], counts[0]) if totals and counts else None
