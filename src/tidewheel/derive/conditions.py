"""What conditions of filters and joins say about times: as facts, for rows that meet them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidewheel.derive.facts import Branch, Fact, at_least, equal, step
from tidewheel.derive.plan_tree import Tree, integer, interval
from tidewheel.derive.time_expressions import Evaluator, Resolve
from tidewheel.derive.time_values import MICRO, Value
from tidewheel.derive.zones import is_utc

Narrow = Callable[[Branch], Branch | None]
"""The same branch with what its rows must meet; None, if none can."""

_FLIPPED = {"LessThan": "GreaterThan", "LessThanOrEqual": "GreaterThanOrEqual"}
_COMPARED = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", *_FLIPPED)


def conjuncts(condition: Tree | None) -> Iterator[Tree]:
    """Conditions all of which must be true."""
    if condition is None:
        return
    if condition.kind == "And":
        yield from conjuncts(condition.children[0])
        yield from conjuncts(condition.children[1])
    else:
        yield condition


def parts(e: Evaluator, tree: Tree, resolve: Resolve) -> dict[tuple[str, ...], Value]:
    """What is known of a value, by fields if it is a struct: {(): value}, or {("start",): value, …}."""
    while tree.kind in ("Alias", "KnownNullable", "KnownNotNull"):
        tree = tree.children[0]
    found: dict[tuple[str, ...], Value] = {}
    if tree.kind == "CreateNamedStruct":
        for key, value in zip(tree.children[::2], tree.children[1::2], strict=True):
            known = e.value(value, resolve)
            if known is not None and known.scale is not None:
                found[(str(key.field("value")),)] = known
    elif isinstance(tree.type, dict) and tree.type.get("type") == "struct" and tree.kind in ("AttributeReference", "OuterReference"):
        for one in tree.type.get("fields") or ():
            known = e.field(tree, str(one.get("name")), resolve)
            if known is not None and known.scale is not None:
                found[(str(one.get("name")),)] = known
    else:
        known = e.value(tree, resolve)
        if known is not None and known.scale is not None:
            found[()] = known
    return found


def narrowing(e: Evaluator, conditions: list[Tree], resolve: Resolve) -> Narrow:
    """Of rows that meet all of these."""
    compared = [pair for condition in conditions for one in conjuncts(condition) for pair in _comparisons(e, one, resolve)]

    def narrow(branch: Branch) -> Branch | None:
        facts: list[Fact] = []
        for kind, left, right, more in compared:
            x, y = branch.seen(left), branch.seen(right)
            if x is None or y is None:
                continue
            if kind == "EqualNullSafe":
                if branch.is_sure(x) or branch.is_sure(y):
                    facts += equal(x, y)
            elif not x.arms or not y.arms:
                return None  # a comparison with null is not true
            elif kind == "EqualTo":
                facts += equal(x, y)
            else:
                facts += at_least(x, y, more + (step(x, y) if kind == "GreaterThan" else 0))
        return branch.with_facts(facts)

    return narrow


_Comparison = tuple[str, Value, Value, int]
"""left = right, or left ≥ right + more."""


def _comparisons(e: Evaluator, tree: Tree, resolve: Resolve) -> Iterator[_Comparison]:
    if tree.kind == "Between":
        for one in conjuncts(tree.children[0]):
            yield from _within(e, one, resolve)
    elif tree.kind in _COMPARED and len(tree.children) == 2:
        left, right = tree.children
        if tree.kind in _FLIPPED:
            left, right = right, left
        yield from _compared(e, _FLIPPED.get(tree.kind, tree.kind), left, right, resolve)


def _within(e: Evaluator, tree: Tree, resolve: Resolve) -> Iterator[_Comparison]:
    """BETWEEN, as Spark computes it: WITH x AS input, x ≥ lower AND x ≤ upper. Its fields `input`, `lower` and `upper` must not be read:
    where Spark gives the attributes of a table that is read twice other numbers, the old ones stay there."""
    if tree.kind != "With":
        yield from _comparisons(e, tree, resolve)
    elif len(tree.children) == 2 and tree.children[1].kind == "CommonExpressionDef":
        given = tree.children[1].children[0]
        for one in conjuncts(tree.children[0]):
            if one.kind in ("GreaterThanOrEqual", "LessThanOrEqual") and one.children[0].kind == "CommonExpressionRef":
                pair = (given, one.children[1]) if one.kind == "GreaterThanOrEqual" else (one.children[1], given)
                yield from _compared(e, "GreaterThanOrEqual", *pair, resolve)


def _compared(e: Evaluator, kind: str, left: Tree, right: Tree, resolve: Resolve) -> Iterator[_Comparison]:
    difference = _difference(e, kind, left, right, resolve)
    if difference:
        yield from difference
        return
    mine, theirs = parts(e, left, resolve), parts(e, right, resolve)
    for path in mine.keys() & theirs.keys():
        if not path or kind.startswith("Equal"):  # structs are compared field by field only if they are to be equal
            yield kind, mine[path], theirs[path], 0


def _difference(e: Evaluator, kind: str, left: Tree, right: Tree, resolve: Resolve) -> list[_Comparison]:
    """a − b ≥ 90 s, and 90 s ≥ a − b: of timestamps, or of numbers that count the same."""
    for minus, number, is_left in ((left, right, True), (right, left, False)):
        while minus.kind == "Cast" and str(minus.type).startswith("interval"):
            minus = minus.children[0]
        if minus.kind not in ("SubtractTimestamps", "Subtract") or kind == "EqualNullSafe":
            continue
        a, b = e.value(minus.children[0], resolve), e.value(minus.children[1], resolve)
        if a is None or b is None or a.scale is None or a.scale != b.scale or a.type != b.type:
            continue
        if minus.kind == "SubtractTimestamps" and a.type == "timestamp" and not is_utc(minus.field("timeZoneId")):
            continue  # clocks are subtracted, and they may be set in between
        exact = minus.kind == "Subtract"
        raw = integer(number) if exact else interval(number)
        if raw is None or exact != (a.type == "number"):
            continue
        amount = raw * (a.scale if exact else MICRO)
        if kind == "EqualTo":
            return [("GreaterThanOrEqual", a, b, amount), ("GreaterThanOrEqual", b, a, -amount)]
        return [(kind, a, b, amount)] if is_left else [(kind, b, a, -amount)]
    return []
