"""The pieces that can have the last row of a key. Mostly these are the newest ones, and of all others only key and time are looked at."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tidewheel.model.codes import integer_codes
from tidewheel.model.pieces import TMAX, TMIN
from tidewheel.read.filters.program import NO_PROGRAM, Program
from tidewheel.read.groups.aggregates import Aggregate
from tidewheel.read.groups.gathering import of_scan
from tidewheel.read.groups.grouping import Grouping
from tidewheel.read.groups.keys import Key, type_of_key
from tidewheel.read.groups.left_to_duck import LeftToDuckError
from tidewheel.read.limits import Watch
from tidewheel.read.planner import Scan
from tidewheel.read.totals.parse import MAX

_MANY = 1 << 17
"""Rows from which on it pays."""


def with_last_rows(scan: Scan, watch: Watch, program: Program | None = None) -> Scan:
    """The scan without pieces that have no time which is the last one of a key, among the rows where a program is true.

    Keys that groups tell apart and last rows do not (texts of one address) only keep more pieces.
    """
    spec, found = scan.planner.spec, scan.found
    if len(spec.key.columns) > 1 or found.rows < _MANY or found.near < len(found.pieces) or scan.damage is not None:
        return scan
    key, time = Key(spec.key.columns[0]), Key(spec.time.column)
    if any(type_of_key(one, spec.stored) is None for one in (key, time)):
        return scan
    held, grouping = watch.held, Grouping({"key": key}, {"last": Aggregate(MAX, time)}, spec.stored)
    try:
        groups = of_scan(scan, grouping, NO_PROGRAM if program is None else program, False, watch).found((), None)
    except LeftToDuckError:
        return scan
    finally:
        watch.held = held
    last = np.sort(integer_codes(groups.column(1)))
    has_one = np.searchsorted(last, found.pieces[:, TMIN]) < np.searchsorted(last, found.pieces[:, TMAX], "right")
    segments = found.segments[has_one[found.segments[:, 0]]]
    part = replace(found, segments=segments, rows=int(segments[:, 2].sum()), doubtful=int(np.count_nonzero(segments[:, 3])))
    return Scan(scan.planner, part, scan.keys, scan.time, scan.check, None)
