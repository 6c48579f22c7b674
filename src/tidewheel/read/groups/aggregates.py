"""What a group can come to: counts, sums, ends, means, deviations, and the value that goes with the first or the last of another."""

from __future__ import annotations

import pyarrow as pa

from tidewheel.model.dataclass import dataclass
from tidewheel.read.groups.keys import Key, is_counted, type_of_key, written_key
from tidewheel.read.totals.parse import AVG, CASTS, COUNT, MAX, MIN, ROWS, SUM

DISTINCT = "count(distinct)"
ARG_MIN, ARG_MAX, FIRST, LAST = "arg_min", "arg_max", "first", "last"
ALL_TRUE, ANY_TRUE = "bool_and", "bool_or"
VAR_SAMP, VAR_POP, STDDEV_SAMP, STDDEV_POP = "var_samp", "var_pop", "stddev_samp", "stddev_pop"

NAMES = {
    "count": COUNT, "sum": SUM, "min": MIN, "max": MAX, "avg": AVG, "mean": AVG, "arg_min": ARG_MIN, "argmin": ARG_MIN, "min_by": ARG_MIN,
    "arg_max": ARG_MAX, "argmax": ARG_MAX, "max_by": ARG_MAX, "first": FIRST, "last": LAST, "bool_and": ALL_TRUE, "bool_or": ANY_TRUE,
    "var_samp": VAR_SAMP, "variance": VAR_SAMP, "var_pop": VAR_POP, "stddev_samp": STDDEV_SAMP, "stddev": STDDEV_SAMP,
    "stddev_pop": STDDEV_POP,
}  # fmt: skip
"""Functions of DuckDB, and which aggregate each is."""

DEVIATIONS = (VAR_SAMP, VAR_POP, STDDEV_SAMP, STDDEV_POP)
BY_ANOTHER = (ARG_MIN, ARG_MAX, FIRST, LAST)

HUGE = pa.decimal128(38, 0)
"""The type of sums of whole numbers."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: of all rows (ROWS), or of the values of a key that are not null."""

    what: str
    of: Key | None = None
    by: str = ""
    """The column that decides, of arg_min, arg_max, first and last: of the last two, nulls count as values."""
    cast: str = ""
    """BIGINT or DOUBLE, if it is to be that."""


def type_of_aggregate(aggregate: Aggregate, schema: pa.Schema) -> pa.DataType | None:
    """The type that DuckDB gives to an aggregate; None if it is left to DuckDB."""
    own = _own_type(aggregate, schema)
    if not aggregate.cast or own is None:
        return own
    counts = own == pa.int64() and aggregate.what in (ROWS, COUNT, DISTINCT)
    cast = aggregate.cast
    sure = counts and cast == "BIGINT" or aggregate.what == SUM and own == HUGE or own == pa.float64() and cast == "DOUBLE"
    return CASTS[cast] if sure else None


def _own_type(aggregate: Aggregate, schema: pa.Schema) -> pa.DataType | None:
    if aggregate.of is None:
        return pa.int64() if aggregate.what == ROWS else None
    type_ = type_of_key(aggregate.of, schema)
    if type_ is None:
        return pa.int64() if aggregate.what == COUNT and is_counted(aggregate.of, schema) else None
    t = pa.types
    number = t.is_integer(type_) or t.is_floating(type_)
    match aggregate.what:
        case "count" | "count(distinct)":
            return pa.int64()
        case "sum" if number:
            return HUGE if t.is_integer(type_) else pa.float64()
        case "avg" if number:
            return pa.float64()
        case "min" | "max":
            return type_
        case "bool_and" | "bool_or" if t.is_boolean(type_):
            return type_
        case "var_samp" | "var_pop" | "stddev_samp" | "stddev_pop" if number:
            return pa.float64()
        case "arg_min" | "arg_max" | "first" | "last" if _decides(schema.field(aggregate.by).type):
            return type_
    return None


def _decides(type_: pa.DataType) -> bool:
    """Whether values of a type can say which row is first, or last."""
    t = pa.types
    return bool(t.is_integer(type_) or t.is_date32(type_) or t.is_timestamp(type_) and type_of_key(Key("t"), pa.schema([("t", type_)])))


def written_aggregate(aggregate: Aggregate) -> str:
    """The expression of an aggregate."""
    if aggregate.of is None:
        said = ROWS
    else:
        of, by = written_key(aggregate.of), written_key(Key(aggregate.by))
        match aggregate.what:
            case "count(distinct)":
                said = f"count(DISTINCT {of})"
            case "arg_min" | "arg_max":
                said = f"{aggregate.what}({of}, {by})"
            case "first" | "last":
                said = f"{aggregate.what}({of} ORDER BY {by})"
            case what:
                said = f"{what}({of})"
    return f"CAST({said} AS {aggregate.cast})" if aggregate.cast else said
