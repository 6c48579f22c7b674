"""Bounds from a definition: for each source, which derived times its rows can change, from Spark's analysed plan of the definition.

What cannot be bounded is refused with the place, and with what can be declared instead. Bounds are never too narrow; where a definition is
too clever for the walk, they are wide, or it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidewheel.derive.bounds import Bounds, nearest, words
from tidewheel.derive.ends import End, Side
from tidewheel.derive.facts import Branch, solve
from tidewheel.derive.inference_walk import Leaf, Refused, Walker
from tidewheel.derive.plan_names import view_name
from tidewheel.derive.plan_tree import UNREADABLE, PlanError, PlanTree, parse
from tidewheel.derive.row_sets import Out, Rows
from tidewheel.derive.time_expressions import SessionWindow
from tidewheel.errors import SchemaError
from tidewheel.model.times import TimeAxis


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a definition, or one source of it, cannot be bounded, and what to declare: a sentence for people.

    `found` is what is known of the source all the same: bounds that are open at one end.
    """

    reason: str
    source: str | None = None
    found: Bounds | None = None


@dataclass(frozen=True, slots=True)
class Inference:
    """Bounds of every source that could be bounded, or has declared ones, and refusals of the others."""

    bounds: Mapping[str, Bounds]
    refusals: tuple[Refusal, ...] = ()

    def required(self) -> Mapping[str, Bounds]:
        """The bounds of all sources. SchemaError with every refusal, if there is one."""
        if self.refusals:
            raise SchemaError("\n".join(refusal.reason for refusal in self.refusals))
        return self.bounds


def infer(
    plan_json: str,
    sources: Mapping[str, str | TimeAxis],
    time: str | TimeAxis,
    declared: Mapping[str, Bounds] | None = None,
    zone: str = "UTC",
) -> Inference:
    """The bounds of the sources that a plan reads.

    `sources` has the time column of each, `time` is the derived table's; a TimeAxis says what the numbers in a column of whole numbers
    count. A source with declared bounds has those. `zone` is the time zone that the definition is computed in. Nothing is raised for a plan
    that is not understood: that is a refusal.
    """
    given = {name.lower(): bounds for name, bounds in (declared or {}).items()}
    axes = {name: axis if isinstance(axis, TimeAxis) else TimeAxis(axis, "") for name, axis in sources.items()}
    leaves = {
        name.lower(): Leaf(name, axis.column.lower(), axis.nanos if axis.unit else None, name.lower() not in given)
        for name, axis in axes.items()
    }
    walker = Walker(leaves, zone)
    met = list(sources)
    try:
        plan = parse(plan_json)
        met = _sources(plan, leaves)
        known = {name: given[name.lower()] for name in met if name.lower() in given}
        if len(known) == len(met):
            return Inference(known)
        rows = walker.rows(plan)
        axis = time if isinstance(time, TimeAxis) else TimeAxis(time, "")
        out = _column(rows, axis.column)
        _check_unit(out, walker.counts(out), axis)
    except SessionWindow:
        return _refused("session_window(): where a session begins and ends depends on all of its rows", met)
    except _NoTime as e:
        return Inference({}, (Refusal(str(e)),))
    except (Refused, PlanError) as e:
        return _refused(str(e), met)
    except UNREADABLE as e:
        return _refused(f"Spark's plan of it has an unknown form ({type(e).__name__}: {e})", met)
    return _solved(rows, out, [leaves[name.lower()] for name in met], known, walker.notes)


def _sources(plan: PlanTree, leaves: Mapping[str, Leaf]) -> list[str]:
    """The sources that a plan reads, as they are called, in order."""
    names = dict.fromkeys(view_name(tree) for tree in plan.walk() if tree.kind == "View")
    for name in names:
        if name.lower() not in leaves:
            raise Refused(f"it reads {name!r}, which is not one of its sources ({', '.join(sorted(leaves))})")
    return list(dict.fromkeys(leaves[name.lower()].name for name in names))


class _NoTime(Exception):
    """The time column is not there, or is none: nothing can be declared in its place."""


def _column(rows: Rows, name: str) -> Out:
    found = [out for out in rows.outs if out.name.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise _NoTime(f"the definition has {len(found)} columns {name!r}: give them different names")
    raise _NoTime(
        f"the definition has no column {name!r} for the time of its rows (it has {', '.join(out.name for out in rows.outs)}): name it with "
        "time=, or add one, as date_trunc('hour', …) in SELECT and GROUP BY"
    )


def _check_unit(out: Out, counted: int | None, axis: TimeAxis) -> None:
    """A time that is a number counts what the derived table's does."""
    if counted is not None and (not axis.unit or counted != axis.nanos):
        raise _NoTime(f"`{out.name}` is a number that counts {words(counted)} each, which is not the unit of the derived table's time")


def _refused(reason: str, met: list[str]) -> Inference:
    return Inference(
        {}, (Refusal(f"the bounds of this definition cannot be inferred: {reason}. Declare them: {_declaration_of_all(met)}"),)
    )


# ---- what the branches say ----------------------------------------------------------------------------------


def _solved(rows: Rows, out: Out, met: list[Leaf], known: dict[str, Bounds], notes: list[str]) -> Inference:
    bounds, refusals = dict(known), []
    ends: dict[str, list[tuple[Branch, End | None, End | None]]] = {leaf.name: [] for leaf in met if leaf.wanted}
    for branch in rows.focused:
        if branch.focus is not None and out.attr not in branch.nulls:  # a row without a time cannot be a derived one
            ends[branch.focus.source].append((branch, *solve(branch, out.attr)))
    timeless = not any(lower or upper for found in ends.values() for _, lower, upper in found) and not known
    unbounded: list[tuple[Leaf, Bounds | None]] = []
    for leaf in met:
        if not leaf.wanted:
            continue
        found = ends[leaf.name]
        one = nearest([lower for _, lower, _ in found], [upper for _, _, upper in found]) if found else None
        if one is not None and not one.is_open:
            bounds[leaf.name] = one
        else:
            unbounded.append((leaf, one))
    others = any(not one.is_open for one in bounds.values())
    for leaf, one in unbounded:
        found = ends[leaf.name]
        if timeless and not any(branch.focus and branch.focus.via for branch, _, _ in found):
            refusals.append(_no_time(out.name, leaf, notes))
            break
        refusals.append(_not_bounded(out.name, leaf, one, found, notes, others))
    return Inference(bounds, tuple(refusals))


def _no_time(name: str, leaf: Leaf, notes: list[str]) -> Refusal:
    because = f" ({'; '.join(notes)})" if notes else ""
    return Refusal(
        f"`{name}` has no time{because}: group by date_trunc, time_bucket or window of {leaf.name}.{leaf.time}, or pass that column on; "
        f"or declare the bounds: {_declaration(leaf.name, False)}",
        leaf.name,
    )


def _not_bounded(
    name: str, leaf: Leaf, one: Bounds | None, found: list[tuple[Branch, End | None, End | None]], notes: list[str], others: bool
) -> Refusal:
    """`others`: some other source has bounds, so that this one may do without."""
    if not found:
        return Refusal(f"`{name}` is null in all rows made of {leaf.name}: give them a time, or leave the source out", leaf.name)
    worst = next((b for b, lower, upper in found if lower is None and upper is None), None) or next(
        b for b, lower, upper in found if lower is None or upper is None
    )
    via = worst.focus.via if worst.focus is not None else ()
    place = via[0] if via else ""
    where = f" in {place}" if place else ""
    because = f" ({'; '.join(notes)})" if notes else ""
    if one is not None and (one.bl is not None or one.bh is not None):
        side = "later" if one.bh is None else "earlier"
        if others:
            declare = f"declare it, if that is what you want: bounds={{{leaf.name!r}: {_open_ended(one)}}}"
        else:
            declare = f"declare how far that is to count: {_declaration(leaf.name, False)}"
        said = f"a row of {leaf.name} can change all {side} rows{where}{because}: limit how far its {leaf.time} may lie from `{name}`"
        return Refusal(f"{said}, or {declare}", leaf.name, one)
    if place.endswith("OVER (…)"):
        said = f"{place} looks back or ahead without limit: add a bucket of {leaf.name}.{leaf.time} to PARTITION BY, or a RANGE of time"
    elif place.startswith("a Python function"):
        said = f"{leaf.name} is read by {place}: nothing is known of the columns that it makes; compute the time outside of it"
    elif place:
        said = f"{leaf.name} is read{where} without its time{because}: compare its {leaf.time} with a time of the other rows"
    else:
        said = f"{leaf.name} is joined without its time{because}: join on {leaf.name}.{leaf.time}, within a bucket or an interval"
    return Refusal(f"{said}, or declare: {_declaration(leaf.name, others)}", leaf.name)


def _open_ended(one: Bounds) -> str:
    """How to declare what is open at one end."""
    lower, upper = one.lower, one.upper
    ahead = "all" if lower is None else words(-lower.flat(Side.LOWER))
    back = "all" if upper is None else words(upper.flat(Side.UPPER))
    return f"tw.bounds(before={back!r}, after={ahead!r})"


def _declaration(name: str, others: bool) -> str:
    """What to say of one source. 'all' is for those beside others that have bounds: some source must say which times there are."""
    band = f"bounds={{{name!r}: tw.bounds(before='1 hour')}}"
    return f"bounds={{{name!r}: 'all'}} (any change makes everything stale), or a band like {band}" if others else f"a band, like {band}"


def _declaration_of_all(names: list[str]) -> str:
    if not names:
        return "bounds=tw.bounds(…)"
    if len(names) == 1:
        return _declaration(names[0], False)
    said = ", ".join(f"{name!r}: 'all'" for name in names[1:])
    return f"bounds={{{names[0]!r}: tw.bounds(before='1 hour'), {said}}} ('all': any change makes everything stale; not of every source)"
