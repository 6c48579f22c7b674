"""Facts about the attributes of a row and of the rows that it is made of, and what follows from them.

A fact x ← y says: x lies between two ends of y. The facts of a `Branch` hold together, for a row that comes out of a plan and the rows
further down that it was made of; other ways to make a row (the parts of a union, an outer join without a match) are other branches.

A branch without a focus is about rows as they are. One with a focus is about a change: where a row of the focus's source comes or goes,
every row that this changes, in its old or its new form, has the facts of one of the branches with that focus. So facts may be used that
only hold for rows that do change: of a NOT EXISTS, that the row of the subquery would match.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tidewheel.derive.ends import IDENTITY, End, Side, inverse, tighter
from tidewheel.derive.time_values import Attr, Value


@dataclass(frozen=True, slots=True)
class Fact:
    """lower(given) ≤ about ≤ upper(given), where both are not null."""

    about: Attr
    given: Attr
    lower: End | None
    upper: End | None


@dataclass(frozen=True, slots=True)
class Focus:
    """A row of a source. `via`: how what it changes is not made of it alone, for people; the last one is the innermost."""

    source: str
    time: Attr
    via: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Branch:
    facts: tuple[Fact, ...] = ()
    nulls: frozenset[Attr] = field(default_factory=frozenset)
    """Attributes that are null in every such row; facts about them are about the row that is missing."""
    sure: frozenset[Attr] = field(default_factory=frozenset)
    """Attributes that never are."""
    focus: Focus | None = None

    def with_facts(self, facts: Iterable[Fact]) -> Branch:
        return replace(self, facts=(*self.facts, *facts))

    def without(self, missing: Iterable[Attr]) -> Branch:
        """In which these attributes are null."""
        gone = frozenset(missing)
        return replace(self, nulls=self.nulls | gone, sure=self.sure - gone)

    def through(self, what: str) -> Branch:
        """Its focus now changes other rows than those made of it."""
        return self if self.focus is None else replace(self, focus=replace(self.focus, via=(what, *self.focus.via)))

    def seen(self, value: Value | None) -> Value | None:
        """A value without the arms that are null here. None, if nothing is known of it; without arms, if it is null."""
        if value is None or not any(arm.attr[:2] in self.nulls for arm in value.arms):
            return value
        return replace(value, arms=tuple(arm for arm in value.arms if arm.attr[:2] not in self.nulls), sure=False)

    def is_sure(self, value: Value) -> bool:
        return value.sure and all(arm.attr in self.sure for arm in value.arms)


def beside(one: Branch, other: Branch) -> Branch:
    """A row of each, together; at most one of them has a focus."""
    return Branch((*one.facts, *other.facts), one.nulls | other.nulls, one.sure | other.sure, one.focus or other.focus)


def same(one: Attr, other: Attr) -> list[Fact]:
    return [Fact(one, other, IDENTITY, IDENTITY), Fact(other, one, IDENTITY, IDENTITY)]


def is_value(attr: Attr, value: Value) -> list[list[Fact]]:
    """That an attribute has a value: one list of facts for each arm that it can be."""
    found = []
    for arm in value.arms:
        facts = [Fact(attr, arm.attr, arm.lower, arm.upper)]
        back = (arm.upper and inverse(arm.upper, Side.UPPER), arm.lower and inverse(arm.lower, Side.LOWER))
        facts.append(Fact(arm.attr, attr, back[0], back[1]))
        found.append(facts)
    return found


def at_least(left: Value | None, right: Value | None, more: int = 0) -> list[Fact]:
    """What follows from left ≥ right + more. Nothing, unless both are of one attribute each and count the same thing."""
    if left is None or right is None or len(left.arms) != 1 or len(right.arms) != 1 or left.scale is None or left.scale != right.scale:
        return []
    (x,), (y,) = left.arms, right.arms
    if x.upper is None or y.lower is None or x.attr == y.attr:
        return []
    # x.upper(x) ≥ left ≥ right + more ≥ y.lower(y) + more, and an end is nowhere farther than its flat form
    return [
        Fact(x.attr, y.attr, y.lower.plus(more - x.upper.flat(Side.UPPER)), None),
        Fact(y.attr, x.attr, None, x.upper.plus(-more - y.lower.flat(Side.LOWER))),
    ]


def equal(left: Value | None, right: Value | None) -> list[Fact]:
    return [*at_least(left, right), *at_least(right, left)]


def step(left: Value | None, right: Value | None) -> int:
    """By how much one is greater than the other, at least, if it is greater."""
    if left is None or right is None or not (left.whole and right.whole) or left.scale != right.scale:
        return 0
    return left.scale or 0


Reach = tuple[End | None, End | None]


def solve(branch: Branch, wanted: Attr) -> Reach:
    """Between which ends of the focus's time an attribute lies: along the tightest path of facts, each end on its own."""
    assert branch.focus is not None
    source = branch.focus.time
    known: dict[Attr, Reach] = {source: (IDENTITY, IDENTITY)}
    by_given: dict[Attr, list[Fact]] = {}
    for fact in branch.facts:
        if fact.about != source:
            by_given.setdefault(fact.given, []).append(fact)
    fresh = [source]
    for _ in range(len(by_given) + 1):  # what contradicts itself would tighten for ever
        changed: dict[Attr, None] = {}
        for given in fresh:
            lower, upper = known[given]
            for fact in by_given.get(given, ()):
                low = fact.lower.after(lower, Side.LOWER) if fact.lower and lower else None
                high = fact.upper.after(upper, Side.UPPER) if fact.upper and upper else None
                old = known.get(fact.about, (None, None))
                new = tighter(old[0], low, Side.LOWER), tighter(old[1], high, Side.UPPER)
                if new != old:
                    known[fact.about] = new
                    changed[fact.about] = None
        if not changed:
            break
        fresh = list(changed)
    return known.get(wanted, (None, None))


def moved(facts: Sequence[Fact], where: dict[Attr, Attr]) -> list[Fact]:
    """The same facts about other attributes."""
    return [replace(fact, about=where.get(fact.about, fact.about), given=where.get(fact.given, fact.given)) for fact in facts]
