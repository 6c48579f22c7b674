"""Whether a definition pairs rows of different partitions that are computed together: then partitions are computed one by one.

A join on equal keys and near times pairs, as Spark does it, all rows of a key with each other: with n partitions in one set, n² as many
as with one. A join on equal buckets of time does not, nor does one with a source that is always read as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidewheel.derive.bounds import Bounds
from tidewheel.derive.plan_tree import UNREADABLE, parse

_JOINS = {"Join", "LateralJoin", "AsOfJoin", "NearestByJoin", "Exists", "InSubquery", "ListQuery", "ScalarSubquery", "LateralSubquery"}


def pairs_partitions(plan_json: str, bounds: Iterable[Bounds]) -> bool:
    """`bounds` are those of its sources. Nothing is known of a plan that cannot be read: then it does."""
    if not any(_reaches_beyond(one) for one in bounds):
        return False
    try:
        return any(tree.kind in _JOINS for tree in parse(plan_json).walk())
    except UNREADABLE:
        return True


def _reaches_beyond(bounds: Bounds) -> bool:
    """Whether a row is made of rows of other times than its own, or its own bucket."""
    cell = bounds.origin, bounds.origin + bounds.every - 1
    return not bounds.is_open and bounds.needs(*cell) != cell
