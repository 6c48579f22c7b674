"""A box of a z-order key, decided where the rows lie: with the condition, in one pass."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidewheel.model.conditions import Condition, all_of
from tidewheel.model.schema import ZOrder
from tidewheel.read.box_condition import box_condition
from tidewheel.read.planner import Scan

if TYPE_CHECKING:
    from tidewheel.read.filters.program import Program

_MANY = 1 << 14
"""Rows from which on it takes less time to make a program than to compare."""


def box_program(scan: Scan, condition: Condition | None) -> Program | None:
    """A program that is true of those rows of a scan that are in its box, and satisfy a condition. None: nothing is left open, or it is not
    to be said by a program, or there are few rows."""
    found, spec = scan.found, scan.planner.spec
    if not found.doubtful or found.rows < _MANY or not isinstance(spec.key, ZOrder):
        return None
    from tidewheel.read.filters.program import program_of

    box = box_condition(spec, *scan.keys.corners)
    if box is None:
        return None
    if condition is not None:
        return program_of(all_of([box, condition]), spec.stored)
    made = program_of(box, spec.stored)
    return None if made is None else replace(made, marked=True)
