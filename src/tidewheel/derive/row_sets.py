"""Rows that come out of a node of a plan, as branches of facts, and how nodes put them together: joins, sets, window functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidewheel.derive.facts import Branch, Fact, beside, is_value, same
from tidewheel.derive.time_conditions import Narrow
from tidewheel.derive.time_values import Attr, Value


@dataclass(frozen=True, slots=True)
class Out:
    """A column that comes out; `fields` are those of a struct, None for anything else."""

    name: str
    attr: Attr
    fields: tuple[str, ...] | None = None

    def timed(self) -> list[Attr]:
        """The attributes of it that can be times, or numbers that stand for some."""
        return [self.attr] if self.fields is None else [(*self.attr, name) for name in self.fields]


@dataclass(frozen=True, slots=True)
class Rows:
    outs: tuple[Out, ...]
    branches: tuple[Branch, ...]

    @property
    def plain(self) -> list[Branch]:
        return [branch for branch in self.branches if branch.focus is None]

    @property
    def focused(self) -> list[Branch]:
        return [branch for branch in self.branches if branch.focus is not None]

    def attrs(self) -> list[Attr]:
        return [out.attr for out in self.outs]

    def known_as(self, outs: Sequence[Out], scales: Scales) -> Rows:
        """The same rows, whose columns have other attributes, by place. A column that counts something else says nothing of the other."""
        pairs = [pair for new, old in zip(outs, self.outs, strict=True) for pair in alike(new, old, scales)]
        bases = {i.attr: o.attr for o, i in zip(outs, self.outs, strict=True)}
        facts = [fact for new, old in pairs if new != old for fact in same(new, old)]
        return Rows(tuple(outs), tuple(_renamed(branch, facts, dict(_pairs(pairs)), bases) for branch in self.branches))


Scales = Mapping[Attr, int]
"""What columns of numbers count, in nanoseconds."""


def alike(one: Out, other: Out, scales: Scales) -> list[tuple[Attr, Attr]]:
    """The attributes of two columns that are the same if the columns are: none, if one is a struct and the other is not, or another one,
    or if they count different things."""
    if one.fields != other.fields:
        return []
    return [(a, b) for a, b in zip(one.timed(), other.timed(), strict=True) if scales.get(a) == scales.get(b)]


def _pairs(pairs: Iterable[tuple[Attr, Attr]]) -> Iterator[tuple[Attr, Attr]]:
    return ((old, new) for new, old in pairs)


def _renamed(branch: Branch, facts: list[Fact], timed: dict[Attr, Attr], bases: dict[Attr, Attr]) -> Branch:
    nulls = branch.nulls | {bases[attr] for attr in branch.nulls if attr in bases}
    sure = branch.sure | {timed[attr] for attr in branch.sure if attr in timed}
    return replace(branch, facts=(*branch.facts, *facts), nulls=nulls, sure=sure)


def defined(branches: Iterable[Branch], attr: Attr, known: dict[tuple[str, ...], Value]) -> list[Branch]:
    """An attribute is made, of which this is known: a branch for each arm that its value can be."""
    found = list(branches)
    for path, value in known.items():
        found = [made for branch in found for made in _made(branch, (*attr, *path), value)]
    return found


def _made(branch: Branch, attr: Attr, value: Value) -> Iterator[Branch]:
    seen = branch.seen(value)
    if seen is None or not seen.arms:
        yield replace(branch, nulls=branch.nulls | {attr[:2]})
        return
    sure = branch.sure | {attr} if branch.is_sure(seen) else branch.sure
    for facts in is_value(attr, seen):
        yield replace(branch, facts=(*branch.facts, *facts), sure=sure)


# ---- together -----------------------------------------------------------------------------------------------


def _met(pairs: Iterable[tuple[Branch, Branch]], narrow: Narrow) -> Iterator[Branch]:
    for one, other in pairs:
        if (branch := narrow(beside(one, other))) is not None:
            yield branch


def _crossed(left: Rows, right: Rows) -> Iterator[tuple[Branch, Branch]]:
    """Rows as they are, and those in which one of the two changes."""
    for one in left.branches:
        for other in right.branches:
            if one.focus is None or other.focus is None:
                yield one, other


def _changed_partners(kept: Rows, other: Rows) -> Iterator[tuple[Branch, Branch]]:
    """A row that is there, and one of the other side that comes or goes."""
    return ((one, changed) for one in kept.plain for changed in other.focused)


def joined(left: Rows, right: Rows, kind: str, narrow: Narrow) -> Rows | None:
    """Of a join. None: there is no such kind."""
    both = (*left.outs, *right.outs)
    match kind:
        case "Inner" | "Cross":
            return Rows(both, tuple(_met(_crossed(left, right), narrow)))
        case "LeftSemi":
            return Rows(left.outs, tuple(_met(_crossed(left, right), narrow)))
        case "LeftAnti":
            return Rows(left.outs, (*left.branches, *_met(_changed_partners(left, right), narrow)))
        case "LeftOuter" | "RightOuter" | "FullOuter":
            branches = list(_met(_crossed(left, right), narrow))
            if kind != "RightOuter":
                branches += unmatched(left, right, narrow)
            if kind != "LeftOuter":
                branches += unmatched(right, left, narrow)
            return Rows(both, tuple(branches))
    return None


def unmatched(kept: Rows, other: Rows, narrow: Narrow) -> list[Branch]:
    """Rows of one side that have no partner, or had none, or will have none."""
    changed = _met(_changed_partners(kept, other), narrow)
    return [branch.without(other.attrs()) for branch in (*kept.branches, *changed)]


def nearest_joined(left: Rows, right: Rows, rival: Rows, kind: str, narrow: Narrow, against: Narrow) -> Rows | None:
    """Of a join with the nearest row only. A row of the right side changes what others were joined to: `rival` is that side once more,
    and `against` says what such a row meets."""
    if kind not in ("Inner", "LeftOuter"):
        return None
    there = [branch for one in left.branches for two in right.plain if (branch := narrow(beside(one, two))) is not None]
    plain = [branch for branch in there if branch.focus is None]
    changed = [b for one in plain for two in rival.focused if (b := against(beside(one, two))) is not None]
    branches = [*there, *changed]
    if kind == "LeftOuter":
        alone = [b for one in left.plain for two in rival.focused if (b := against(beside(one, two))) is not None]
        branches += [branch.without(right.attrs()) for branch in (*left.branches, *alone)]
    return Rows((*left.outs, *right.outs), tuple(branches))


def with_peers(rows: Rows, peers: Rows, tie: Callable[[Branch], Branch], what: str, outs: Sequence[Out]) -> Rows:
    """Each row gets something that is computed from others: `peers`, the same rows once more, tied to it."""
    changed = (tie(beside(one, peer)).through(what) for one in rows.plain for peer in peers.focused)
    return Rows((*rows.outs, *outs), (*rows.branches, *changed))


def with_subquery(rows: Rows, inner: Rows, link: Narrow, what: str) -> Rows:
    """Each row depends on what a subquery finds for it."""
    changed = (
        branch.through(what) for one in rows.plain for two in inner.focused if (branch := link(beside(one, two))) is not None
    )  # fmt: skip
    return Rows(rows.outs, (*rows.branches, *changed))


def minus(left: Rows, right: Rows, narrow: Narrow) -> Rows:
    """EXCEPT: rows that the other side has not."""
    return Rows(left.outs, (*left.branches, *_met(_changed_partners(left, right), narrow)))


def common(left: Rows, right: Rows, narrow: Narrow) -> Rows:
    """INTERSECT."""
    return Rows(left.outs, tuple(_met(_crossed(left, right), narrow)))
