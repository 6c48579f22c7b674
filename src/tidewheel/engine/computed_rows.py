"""What a computer gave, looked at by the refresher before it is brought to the owner: inside the plan, in the table's types, with keys."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidewheel.engine.source_reading import times_of, within
from tidewheel.errors import BadRowsError, SchemaError
from tidewheel.model.schema import TableSpec
from tidewheel.write.casts import UNFIT, NeverFits, convert


def clipped(rows: pa.Table, spec: TableSpec, intervals: Sequence[tuple[int, int]]) -> pa.Table:
    """The rows whose times lie in one of the intervals; all, if one has no time: `check_values` says so."""
    column = spec.time.column
    if column not in rows.column_names:
        raise SchemaError(
            f"the definition of {spec.name!r} gave no column {column!r} now, but {', '.join(rows.column_names)}: make it anew"
        )
    if not rows.num_rows:
        return rows
    times = as_stored(rows.column(column), spec.schema.field(column), spec)
    if times.null_count:
        return rows
    mask = within(times_of(times), intervals)
    return rows if mask.all() else rows.filter(pa.array(mask))


def check_values(rows: pa.Table, spec: TableSpec) -> None:
    """Times and keys are never null, though SQL groups nulls, and outer joins make them. BadRowsError, with what to write instead."""
    for role, columns in (("time", (spec.time.column,)), ("key", spec.key.columns)):
        for column in columns:
            missing = rows.column(column).null_count if column in rows.column_names else 0
            if missing:
                raise BadRowsError(
                    f"the definition of {spec.name!r} gave {missing:,} of {rows.num_rows:,} rows without {column!r}, their {role}: leave "
                    f"these out with WHERE {column} IS NOT NULL (HAVING, if it is grouped), or write coalesce({column}, …)",
                    table=spec.name, column=column,
                )  # fmt: skip


def as_stored(column: pa.ChunkedArray, to: pa.Field, spec: TableSpec) -> pa.ChunkedArray:
    """A computed column in the type of the table's."""
    if column.type == to.type:
        return column
    unit = spec.time.unit if to.name == spec.time.column and pa.types.is_integer(to.type) else ""
    try:
        return pa.chunked_array([convert(part, to.type, unit) for part in column.chunks], to.type)
    except (*UNFIT, NeverFits) as e:
        raise SchemaError(f"column {to.name!r} of {spec.name!r} was computed as {column.type}, which is no {to.type}: {e}") from e
