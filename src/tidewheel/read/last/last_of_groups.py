"""SELECT key, arg_max(x, time), max(time) … GROUP BY key: groups that are nothing but the last row of each key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from tidewheel.read.groups.aggregates import ARG_MAX
from tidewheel.read.groups.keys import Key
from tidewheel.read.last.newest_first import can_walk, last_by_key
from tidewheel.read.limits import Watch
from tidewheel.read.planner import Scan
from tidewheel.read.totals.parse import MAX

if TYPE_CHECKING:
    from tidewheel.read.filters.program import Program
    from tidewheel.read.groups.grouping import Grouping


def last_columns(scan: Scan, grouping: Grouping) -> list[str] | None:
    """The table's columns that the groups of a scan are, if they are those of last rows; None if they are something else.

    Of a column with nulls, arg_max is the last value that is none: so there must be no nulls in what is read.
    """
    spec, nulls = scan.planner.spec, scan.found.nulls()
    key, time = Key(spec.key.columns[0]), Key(spec.time.column)
    if grouping.keys != [key] or not grouping.aggregates:
        return None
    names = [key.column]
    for one in grouping.aggregates:
        if one.of is None or one.cast or one.of.steps:
            return None
        of_last = one.what == ARG_MAX and one.by == time.column and not nulls[scan.planner.number(one.of.column, "aggregate")]
        if not of_last and not (one.what == MAX and one.of == time):
            return None
        names.append(one.of.column)
    same = [spec.schema.field(name).type for name in names] == grouping.schema.types
    return names if same and can_walk(scan) else None


def last_of_groups(
    scan: Scan, names: list[str], schema: pa.Schema, program: Program | None, size: int, watch: Watch, enough: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The groups, from the last row of each key."""
    columns = scan.planner.columns(list(dict.fromkeys(names)))
    for batch in last_by_key(scan, columns, size, watch, enough, program):
        yield pa.record_batch([batch.column(name) for name in names], schema=schema)
