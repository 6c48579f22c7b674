"""The last rows of some keys, from the end of the index: as long as the newest regions have all of them, no other is opened.

Tried are the times of the newest 16 regions, then of four times as many, and so on. All rows of these times are read, so that the last row
of a key in there is its last row.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tidewheel.index.version import Version
from tidewheel.model.ip_addresses import is_network
from tidewheel.model.pieces import TMAX, TMIN
from tidewheel.model.query import Query, pair
from tidewheel.read.local_result import LocalResult
from tidewheel.read.planner import Planner

FIRST = 16
"""Regions that are looked into first."""

_STEP = 4


def from_the_end(planner: Planner, version: Version, query: Query) -> Query:
    """A query of fewer times with the same last rows; the query itself if its keys are not so few that they can be counted."""
    keys = _how_many(query.key)
    regions = [version.chunks.matrix[: version.chunks.count], *(tree.matrix[: tree.count] for tree in version.trees)]
    if not keys or sum(map(len, regions)) <= FIRST:
        return query
    first, last = planner.spec.time.interval(*pair(query.time, "time"))
    times = np.concatenate([region[:, (TMIN, TMAX)] for region in regions])
    ends = np.sort(np.minimum(times[times[:, 0] <= last, 1], last))[::-1]
    looks = replace(query, columns=[planner.spec.time.column], order_by=None, limit=None, offset=0, max_rows=math.inf)
    count = FIRST
    while count < len(ends) and ends[count - 1] > first:
        since = int(ends[count - 1]), last
        if len(LocalResult(planner, version, replace(looks, time=since))) >= keys:
            return replace(query, time=since)
        count *= _STEP
    return query


def _how_many(key: Any) -> int:
    """How many keys are asked for, at most; 0 if that is not known."""
    if isinstance(key, list):
        if any(is_network(one) for one in key):
            return 0
        try:
            return len(set(key))
        except TypeError:
            return len(key)
    if isinstance(key, tuple):
        return int(len(key) == 2 and key[0] is not None and type(key[0]) is type(key[1]) and bool(key[0] == key[1]))
    return 0 if key is None or is_network(key) else 1
