"""Groups of all rows of a scan, made where the rows lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from tidewheel.read.aggregate import Aggregation
from tidewheel.read.boxes_decided import box_program
from tidewheel.read.filters.program import NO_PROGRAM, Program
from tidewheel.read.groups.grouping import Grouping
from tidewheel.read.groups.groups_found import Groups
from tidewheel.read.groups.left_to_duck import LeftToDuckError
from tidewheel.read.groups.partitions.dividing import divided
from tidewheel.read.groups.working_room import WorkingRoom
from tidewheel.read.limits import Watch
from tidewheel.read.planner import Scan
from tidewheel.read.rows import halved, parts_of, rows_of
from tidewheel.read.two_threads import cores, halves

if TYPE_CHECKING:
    from tidewheel.read.pipeline import Pipeline

MOST_ROWS = 1 << 20
"""Rows between two looks at the clock."""

SHARED_ROWS = 1 << 20
"""Rows from which on two threads share them."""


def groups(
    scan: Scan, pipeline: Pipeline, of: Grouping, left: Callable[[str], None], size: int, watch: Watch, _: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The groups of a query, as a source of batches: made here, or, if that is not for us after all, by DuckDB from the beginning. `left`
    is told why DuckDB makes them, or nothing."""
    held = watch.held
    found, why = _made_here(scan, pipeline, of, watch)
    left(why)
    if found is not None:
        yield from found
        return
    watch.held = held
    made = Aggregation(scan.planner, pipeline.query, watch)
    rows = rows_of(scan, pipeline.columns, size, watch, program=pipeline.program)
    yield from made.run(_dropped(rows, watch), pipeline.columns.schema, watch).to_batches()


def _made_here(scan: Scan, pipeline: Pipeline, of: Grouping, watch: Watch) -> tuple[list[pa.RecordBatch] | None, str]:
    """The groups; or None, and why they are left to DuckDB. Nothing is left of the attempt then: an error that is still being handled
    would keep its frames, and with them all the memory of the groups."""
    held = watch.held
    boxed = box_program(scan, pipeline.query.condition)
    asked = boxed or pipeline.program or NO_PROGRAM
    order, limit = pipeline.wanted_first
    try:
        found = None if boxed is not None else divided(scan, of, asked, order, limit, watch)
        if found is None:
            found = [of_scan(scan, of, asked, boxed is not None, watch).found(order, limit)]
            watch.held = held + found[0].nbytes
    except LeftToDuckError as why:
        return None, str(why)
    return found, ""


def _dropped(batches: Iterable[pa.RecordBatch], watch: Watch) -> Iterator[pa.RecordBatch]:
    """Batches that are not kept."""
    held = watch.held
    for batch in batches:
        yield batch
        watch.held = held


def of_scan(scan: Scan, of: Grouping, program: Program, open_: bool, watch: Watch) -> Groups:
    if scan.found.rows < SHARED_ROWS or cores() < 2:
        return _gathered(scan, of, program, open_, WorkingRoom(len(of.keys)), watch)
    first, second = (partial(_gathered, half, of, program, open_, WorkingRoom(len(of.keys))) for half in halved(scan))
    one, other = halves(first, second, watch)
    one.join(other)
    return one


def _gathered(scan: Scan, of: Grouping, program: Program, open_: bool, room: WorkingRoom, watch: Watch) -> Groups:
    columns = scan.planner.columns(list(dict.fromkeys([*of.reads, *program.reads])))
    found = Groups(of, watch, program, scan.found.rows, room)
    for here, segments in parts_of(scan, columns, MOST_ROWS, watch, open_=open_):
        found.add(here.pieces, segments)
    return found
