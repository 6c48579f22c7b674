"""What a row and the rows that its window function looks at have in common: their partition, and a RANGE of what they are ordered by."""

from __future__ import annotations

from collections.abc import Callable

from tidewheel.derive.facts import Branch, Fact, at_least, equal
from tidewheel.derive.plan_context import PlanContext, PlanScope
from tidewheel.derive.plan_tree import PlanTree, integer, interval
from tidewheel.derive.time_values import DAY, MICRO, Value
from tidewheel.derive.zones import CHANGE, is_utc


def tied(context: PlanContext, spec: PlanTree, mine: PlanScope, theirs: PlanScope) -> Callable[[Branch], Branch]:
    """Adds to a row of one scope, beside a row of the other, that the second is in the window of the first."""
    equals = []
    for key in spec.trees("partitionSpec"):
        here, there = context.parts(key, mine), context.parts(key, theirs)
        equals += [(here[path], there[path]) for path in here.keys() & there.keys()]
    ranges = _frame(context, spec, mine, theirs)

    def tie(branch: Branch) -> Branch:
        facts: list[Fact] = []
        for here, there in equals:
            if branch.is_sure(here) or branch.is_sure(there):  # rows in which it is null are in one partition, too
                facts += equal(here, there)
        for more, less, amount in ranges:
            if branch.is_sure(more) and branch.is_sure(less):
                facts += at_least(more, less, amount)
        return branch.with_facts(facts)

    return tie


def _frame(context: PlanContext, spec: PlanTree, mine: PlanScope, theirs: PlanScope) -> list[tuple[Value, Value, int]]:
    """Of RANGE BETWEEN …: the first is at least the second and an amount. ROWS say nothing about times."""
    frame, order = spec.children[spec.field("frameSpecification")], spec.trees("orderSpec")
    if frame.kind != "SpecifiedWindowFrame" or frame.object_name("frameType") != "RangeFrame" or len(order) != 1:
        return []
    here, there = (context.parts(order[0].children[0], scope).get(()) for scope in (mine, theirs))
    if here is None or there is None or here.scale is None or not here.whole:
        return []
    spread = CHANGE if here.type == "timestamp" and not is_utc(context.zone) else 0
    low, high = _offset(frame.children[0], here, -spread), _offset(frame.children[1], here, spread)
    if order[0].object_name("direction") == "Descending":
        low, high = (None if high is None else -high), (None if low is None else -low)
    found = []
    if low is not None:
        found.append((there, here, low))  # peer ≥ row + low
    if high is not None:
        found.append((here, there, -high))  # row + high ≥ peer
    return found


def _offset(end: PlanTree, of: Value, spread: int) -> int | None:
    """An end of a frame, in nanoseconds; None: unbounded, or not written down. Days of a time zone are longer or shorter by `spread`."""
    if end.kind == "CurrentRow$":
        return 0
    if of.type == "number" or of.type == "date" and integer(end) is not None:
        number = integer(end)
        return None if number is None or of.scale is None else number * of.scale
    micros = interval(end)
    if micros is None:
        return None
    return micros * MICRO + (spread if abs(micros * MICRO) >= DAY else 0)
