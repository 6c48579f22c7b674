"""How a derived table may be kept up to date: by appending, merging, recomputing some keys, or recomputing whole partitions.

All four give the same rows; what is said here about a definition holds for every state of its sources, as long as rows are only added to
them, and only to those sources that a mode names. Where rows were taken away, or where nothing else is certain, partitions are recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tidewheel.derive.mode_keys import key_columns
from tidewheel.derive.mode_merge import aggregated
from tidewheel.derive.mode_reasons import Not
from tidewheel.derive.mode_rows import Additive, Sets, common_parts
from tidewheel.derive.plan_names import view_name
from tidewheel.derive.plan_tree import UNREADABLE, PlanTree, parse

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Append:
    """Each derived row is made of one row of a source in one of these sets, and perhaps of rows of sources that are not in it.

    If rows came to sources of one set only: the definition over the new rows of all sources of the set, and all rows of the others, gives
    the rows to add.
    """

    sources: Sets

    def __str__(self) -> str:
        return f"append: every row is made of one row of {_either(self.sources)}, so only new ones are computed, and added"


@dataclass(frozen=True, slots=True)
class Merge:
    """The definition over new rows of the sources of one set, as in `Append`, put together with the rows that are there: one row for each
    value of `groups`, nulls alike.

    `combine` says for each other column how two values become one: sum, min or max, nulls ignored. `ratios` are averages of whole
    numbers, which are then the quotient of two of these columns: {"mean": ("total", "n")}. `hidden` are averages whose sum and count are
    no columns of the definition, and the hidden columns that they are kept in.
    """

    sources: Sets
    groups: tuple[str, ...]
    combine: Mapping[str, str]
    ratios: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    hidden: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def __str__(self) -> str:
        averages = [f"{name} by its sum and count" for name in self.ratios]
        averages += [f"{name} by its sum and count, which are kept in hidden columns" for name in self.hidden]
        how = ", ".join([*(f"{name} by {what}" for name, what in self.combine.items()), *averages]) or "nothing else"
        return (
            f"merge: new rows of {_either(self.sources)} are grouped by {', '.join(self.groups) or 'nothing'}, "
            f"and merged with what is there: {how}"
        )


@dataclass(frozen=True, slots=True)
class Keys:
    """Derived rows with key k depend on a source only through its rows with key k: `sources` has that source's key column, for each of
    which this is so.

    If rows of some of these sources came, with keys K: read of all of them the rows with keys in K, of the others everything, compute,
    keep what has a derived key in K, and replace the rows that have one. For each source by itself that changes no other row, whatever
    the others have, so it may be done for several.
    """

    column: str
    sources: Mapping[str, str]

    def __str__(self) -> str:
        said = ", ".join(f"{source}.{key}" for source, key in self.sources.items())
        return f"keys: {self.column} is {said}, and no row depends on other keys, so only touched keys are recomputed"


@dataclass(frozen=True, slots=True)
class Recompute:
    """Stale partitions are computed anew. It always holds."""

    reason: str

    def __str__(self) -> str:
        return f"recompute: {self.reason}"


def _either(sets: Sets) -> str:
    return "; or of ".join(" or ".join(some) for some in sets)


Mode = Append | Merge | Keys | Recompute


@dataclass(frozen=True, slots=True)
class Modes:
    """Those that hold, the best first, Recompute last; and why the others do not, by their names append, merge and keys."""

    holds: tuple[Mode, ...]
    reasons: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    def __str__(self) -> str:
        return "\n".join([*(str(mode) for mode in self.holds), *(f"not {name}: {reason}" for name, reason in self.reasons.items())])


def decide(
    plan_json: str,
    key: str | None = None,
    source_keys: Mapping[str, str | None] | None = None,
    *,
    floats: bool = False,
    hidden: bool = False,
) -> Modes:
    """The modes of a definition. `key` is the derived table's key column, `source_keys` are its sources'; None: it is no single column,
    or one whose values Spark does not tell apart.

    `floats`: sums of floating-point numbers may be merged, too, though the order in which they are added changes their last digits.
    `hidden`: averages may be merged whose sum and count are kept besides the columns.
    """
    try:
        plan = parse(plan_json)
        return _decided(plan, key, source_keys or {}, floats, hidden)
    except UNREADABLE as e:
        return Modes((Recompute(f"the plan cannot be looked through: {e}"),))


def _decided(plan: PlanTree, key: str | None, source_keys: Mapping[str, str | None], floats: bool, hidden: bool) -> Modes:
    holds: list[Mode] = []
    reasons: dict[str, str] = {}
    try:
        holds.append(Append(Additive(common_parts(plan)).sets(plan)))
    except Not as e:
        reasons["append"] = str(e)
    try:
        found = aggregated(plan, floats, hidden)
        holds.append(Merge(found.sources, found.groups, found.combine, found.ratios, found.hidden))
    except Not as e:
        reasons["merge"] = str(e)
    try:
        holds.append(Keys(*_keys(plan, key, source_keys)))
    except Not as e:
        reasons["keys"] = str(e)
    holds.append(Recompute("stale partitions are computed anew" if holds else "; ".join(dict.fromkeys(reasons.values()))))
    return Modes(tuple(holds), MappingProxyType(reasons))


def _keys(plan: PlanTree, key: str | None, source_keys: Mapping[str, str | None]) -> tuple[str, Mapping[str, str]]:
    if key is None:
        raise Not("the derived table's key is not a single column")
    names = dict.fromkeys(view_name(tree).lower() for tree in plan.walk() if tree.kind == "View")
    found: dict[str, str] = {}
    reasons: list[str] = []
    for source, column in source_keys.items():
        if source.lower() not in names:
            continue
        if column is None:
            reasons.append(f"the key of {source} is not a single column, or of floating-point numbers or nanoseconds")
            continue
        try:
            columns = key_columns(plan, source, column)
            if key.lower() not in columns:
                said = f"; {', '.join(sorted(columns))} would be" if columns else ""
                raise Not(f"{key} is not {source}.{column}, passed on{said}")
            found[source] = column
        except Not as e:
            reasons.append(str(e))
    if not found:
        raise Not("; ".join(reasons) or "it reads no source with a key")
    return key, MappingProxyType(found)
