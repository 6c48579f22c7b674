"""Whether a definition gives the same rows each time it is computed over the same rows; if not, where, and what to write instead.

Spark's own flag is not enough: it calls now(), first(), and every Python function deterministic. So the flag is asked for elsewhere, and
here is a list of what Spark's expressions and nodes do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidewheel.derive.plan_names import function_name
from tidewheel.derive.plan_tree import UNREADABLE, PlanTree, parse

_CLOCK = "the moment at which it is computed, so a refresh would not give the same rows: put it into the queries that read the table"
_CHANCE = "chance: leave it out, or derive the value from columns, as xxhash64(…) does"
_PLACE = "where a row happens to be computed: leave it out"
_WHO = "who computes it, or where: write the value down"
_ORDER = "the order of rows, which Spark does not keep"

_BY_CLOCK = ("Now", "CurrentTimestamp", "CurrentTimestampLike", "CurrentBatchTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp")
_REASONS: dict[str, str] = {
    **dict.fromkeys(_BY_CLOCK, _CLOCK),
    **dict.fromkeys(("Rand", "Randn", "Uuid", "RandStr", "Uniform", "Shuffle", "Random"), _CHANCE),
    **dict.fromkeys(
        (
            "MonotonicallyIncreasingID", "SparkPartitionID", "InputFileName", "InputFileBlockStart", "InputFileBlockLength",
            "FileSourceMetadataAttribute",
        ), _PLACE),
    **dict.fromkeys(("CurrentUser", "CurrentTimeZone", "CurrentDatabase", "CurrentCatalog", "SparkVersion", "SessionUser"), _WHO),
    **dict.fromkeys(("First", "Last", "AnyValue"), f"{_ORDER}: write min(…), max(…), or min_by(…, a column that has no two rows alike)"),
    **dict.fromkeys(("CollectList",), f"{_ORDER}: write sort_array(collect_list(…)), or collect_set with it"),
    **dict.fromkeys(("CollectSet",), f"{_ORDER}: write sort_array(collect_set(…))"),
    **dict.fromkeys(("ListAgg",), f"{_ORDER}: say WITHIN GROUP (ORDER BY …)"),
    **dict.fromkeys(("Mode",), "the order of rows, where two values are equally frequent: say WITHIN GROUP (ORDER BY …)"),
    **dict.fromkeys(
        ("CallMethodViaReflection", "TryReflect", "StaticInvoke", "Invoke"), "code in Java, of which nothing is known: leave it out"),
}  # fmt: skip
_SORTED = ("SortArray", "ArraySort", "ArraySize", "Size", "Cardinality")
"""Around a collected list, they make its order of no account."""

_COLLECTED = ("CollectList", "CollectSet", "ListAgg", "Mode")

_NODES: dict[str, str] = {
    **dict.fromkeys(("GlobalLimit", "LocalLimit", "Tail", "Offset"), "LIMIT and OFFSET: which rows remain depends on all others; filter by "
                    "a condition, or number rows with row_number() OVER (PARTITION BY a bucket of time ORDER BY …)"),
    **dict.fromkeys(("Sample",), "TABLESAMPLE and sample(): which rows remain is up to chance; filter by pmod(xxhash64(…), 100) < 10"),
    **dict.fromkeys(("UnionLoop", "UnionLoopRef"), "a recursive WITH: its rows depend on each other without limit"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judgement:
    """Sentences for people: refusals, with what to write instead; warnings about what was dropped, or is only sometimes the same."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def judge(plan_json: str, deterministic: bool = True, trusted: frozenset[str] = frozenset()) -> Judgement:
    """`deterministic` is Spark's flag. `trusted` are the names of Python functions whose author says that they give the same each time;
    "*" means all."""
    try:
        plan = parse(plan_json)
        refusals, warnings = _looked_through(plan, trusted)
    except UNREADABLE as e:
        return Judgement((f"the definition cannot be looked through: {e}",))
    if not deterministic and not refusals:
        refusals[
            "the definition is not deterministic, Spark says: an expression or Python function in it may give another value each time"
        ] = None
    return Judgement(tuple(refusals), tuple(warnings))


def _looked_through(plan: PlanTree, trusted: frozenset[str]) -> tuple[dict[str, None], dict[str, None]]:
    refusals: dict[str, None] = {}
    warnings: dict[str, None] = {}
    if _top(plan).kind == "Sort":
        warnings["ORDER BY at the end was dropped: a table has no order of its rows; put it into the queries that read it"] = None
    for tree, ordered in _with_order(plan):
        if tree.kind in _REASONS and not (ordered and tree.kind in _COLLECTED):
            refusals[f"{function_name(tree)}() depends on {_REASONS[tree.kind]}"] = None
        elif tree.kind in _NODES:
            refusals[_NODES[tree.kind]] = None
        elif tree.kind in ("MaxBy", "MinBy", "MaxMinByK") and not _orders_by_itself(tree):
            name = function_name(tree)
            refusals[f"{name}(x, y) may choose either of two rows with the same y: write {name}(x, struct(y, x)), which orders by both"] = (
                None
            )
        elif tree.kind == "AsOfJoin":
            warnings["ASOF JOIN may choose either of two rows with the same time: have no two of one key, or aggregate them first"] = None
        elif tree.kind == "Deduplicate" and not _by_all_columns(tree):
            refusals[
                "dropDuplicates() of some columns keeps whichever row comes first: group by them, with min() or max() of the others"
            ] = None
        elif tree.kind == "PreciseTimestampConversion" and tree.children and tree.children[0].kind == tree.kind:
            refusals["session_window(): where a session begins and ends depends on all of its rows; use window() or time_bucket()"] = None
        elif "PythonUD" in tree.kind or tree.kind == "ScalaUDF":
            _judge_function(tree, trusted, refusals)
        elif tree.kind == "Window":
            warnings.update(_ties(tree))
    return refusals, warnings


def _judge_function(tree: PlanTree, trusted: frozenset[str], refusals: dict[str, None]) -> None:
    name = tree.name or "a function"
    if tree.field("udfDeterministic") is False:
        refusals[f"{name}() is a function that says itself that it is not deterministic: a refresh would not give the same rows"] = None
    elif name not in trusted and "*" not in trusted:
        refusals[
            f"{name}() is code that Spark cannot look into: declare that it always gives the same for the same arguments, "
            f"deterministic=[{name!r}], or write it in SQL"
        ] = None


def _orders_by_itself(tree: PlanTree) -> bool:
    """Of max_by(x, struct(y, x)): rows that are alike in the order are alike in the value."""
    value, order = tree.children[0], tree.children[1]
    return order.kind == "CreateNamedStruct" and any(part == value for part in order.children[1::2]) or order == value


def _top(plan: PlanTree) -> PlanTree:
    tree = plan
    while tree.kind in ("SubqueryAlias", "ResolvedHint", "WithCTE", "PipeOperator"):
        tree = tree.children[tree.field("plan")] if tree.kind == "WithCTE" else tree.children[0]
    return tree


def _with_order(plan: PlanTree) -> Iterator[tuple[PlanTree, bool]]:
    """All trees of a plan, and whether the order of what each collects is of no account, or said."""
    todo = [(plan, False)]
    while todo:
        tree, ordered = todo.pop()
        said = tree.kind in ("ListAgg", "Mode") and bool(tree.field("orderExpressions") or tree.field("reverseOpt") is not None)
        yield tree, ordered or said
        inside = tree.kind in _SORTED or ordered and tree.kind in ("AggregateExpression", "Cast")
        todo.extend((one, inside) for one in reversed([*tree.fields(), *tree.children]))


def _by_all_columns(tree: PlanTree) -> bool:
    columns = {key.id for key in tree.trees("keys")}
    child = tree.children[0]
    while child.kind in ("SubqueryAlias", "Filter", "View") and child.children:
        child = child.children[0]
    made = child.trees("projectList") or child.trees("output") or child.trees("aggregateExpressions")
    return bool(made) and {one.id for one in made} <= columns


def _ties(window: PlanTree) -> dict[str, None]:
    """Functions that count rows, where rows may be alike in what they are ordered by."""
    found: dict[str, None] = {}
    for made in window.trees("windowExpressions"):
        one = next((tree for tree in made.walk() if tree.kind == "WindowExpression"), None)
        if one is None:
            continue
        function, spec = one.children
        frame = spec.children[spec.field("frameSpecification")] if spec.field("frameSpecification") is not None else None
        rows = frame is not None and frame.kind == "SpecifiedWindowFrame" and frame.object_name("frameType") == "RowFrame"
        if rows and function.kind not in ("Rank", "DenseRank", "PercentRank", "CumeDist"):
            order = ", ".join(_said(key) for key in spec.trees("orderSpec")) or "nothing"
            found[
                f"{function_name(function)}() OVER (… ORDER BY {order}) may swap rows that are alike in it: order by what no two rows share"
            ] = None
    return found


def _said(key: PlanTree) -> str:
    tree = key.children[0]
    return tree.name if tree.kind == "AttributeReference" else f"{function_name(tree)}(…)"
