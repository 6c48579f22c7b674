"""Old and new rows of a derived table compared, partition by partition: where they are the same, nothing that depends on them is stale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.model.codes import integer_codes

Interval = tuple[int, int]


def differing(old: pa.Table, new: pa.Table, time: str, intervals: Sequence[Interval]) -> list[bool]:
    """For each closed interval of times, in rising order: whether the rows differ, however they are ordered.

    Values that cannot be ordered are not compared: such rows count as others. So do NaN, and floats that differ in their last bit.
    """
    if not old.num_rows and not new.num_rows:
        return [False] * len(intervals)
    ordered = [_ordered(side, time) for side in (old, new)]
    sides = [side for side in ordered if side is not None]
    comparable = len(sides) == len(ordered)
    if not comparable:
        sides = [side.take(np.argsort(times_of(side, time), kind="stable")) for side in (old, new)]
    places = []
    for side in sides:
        times = times_of(side, time)
        places.append([(int(np.searchsorted(times, lo)), int(np.searchsorted(times, hi, side="right"))) for lo, hi in intervals])
    out = []
    for (a, b), (c, d) in zip(*places, strict=True):
        if b - a != d - c:
            out.append(True)
        elif a == b:
            out.append(False)
        else:
            out.append(not comparable or not sides[0].slice(a, b - a).equals(sides[1].slice(c, d - c)))
    return out


def times_of(rows: pa.Table, time: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The times of rows as int64."""
    if not rows.num_rows:
        return np.empty(0, np.int64)
    column = rows.column(time).combine_chunks()
    return integer_codes(column.chunk(0) if isinstance(column, pa.ChunkedArray) else column)


def _ordered(rows: pa.Table, time: str) -> pa.Table | None:
    """Rows in the one order that rows of these values have; None if a type has no order."""
    keys = [(time, "ascending"), *((name, "ascending") for name in rows.column_names if name != time)]
    try:
        return rows.take(pc.sort_indices(rows, sort_keys=keys)).combine_chunks()
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid):
        return None
