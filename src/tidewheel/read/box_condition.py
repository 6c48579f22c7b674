"""The box of a z-order key as a condition on its columns, for many rows that have to be asked."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidewheel.model.conditions import AT_LEAST, AT_MOST, Comparison, Condition, all_of
from tidewheel.model.plain_values import scalar_of
from tidewheel.model.schema import TableSpec


def box_condition(spec: TableSpec, lower: Any, upper: Any) -> Condition | None:
    """True of the rows in a box, whose corners may be open in any column. None: of every row, or not to be said so."""
    parts = list[Condition]()
    for corner, op in ((lower, AT_LEAST), (upper, AT_MOST)):
        for column, bound in zip(spec.key.columns, corner or (), strict=bool(corner)):
            if bound is None:
                continue
            if not isinstance(bound, float) or spec.schema.field(column).type != pa.float64():
                return None
            parts.append(Comparison(column, op, scalar_of(bound, pa.float64())))
    return all_of(parts)
