"""Plain totals as they are written, and their types. Names and types are those of DuckDB."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pyarrow as pa

from tidewheel.model.dataclass import dataclass

ROWS, COUNT, SUM, MIN, MAX, AVG = "count(*)", "count", "sum", "min", "max", "avg"

_FUNCTIONS = (COUNT, SUM, MIN, MAX, AVG)
_EXPRESSION = re.compile(
    r"""\s*(?P<what>\w+)\s*\(\s*(?:(?P<star>\*)|(?P<name>[A-Za-z_]\w*)|"(?P<quoted>(?:[^"]|"")+)")\s*\)\s*(?:::\s*(?P<cast>\w+)\s*)?"""
)
_HUGE = pa.decimal128(38, 0)
"""The type of sums of whole numbers."""
CASTS = {"BIGINT": pa.int64(), "DOUBLE": pa.float64()}


@dataclass(frozen=True, slots=True)
class Total:
    """One total: of all rows (ROWS), or of the values of a column that are not null."""

    what: str
    column: str = ""
    cast: str = ""
    """BIGINT or DOUBLE, if it is to be that."""


def type_of(total: Total, schema: pa.Schema) -> pa.DataType | None:
    """The type of a total; None if it is left to DuckDB."""
    if total.what == ROWS:
        own = pa.int64()
    else:
        own = _own_type(total.what, schema.field(total.column).type)
    if not total.cast or own is None:
        return own
    counts = total.what in (ROWS, COUNT)
    sure = counts and total.cast == "BIGINT" or total.what == SUM and own == _HUGE or own == pa.float64() and total.cast == "DOUBLE"
    return CASTS[total.cast] if sure else None


def _own_type(what: str, type_: pa.DataType) -> pa.DataType | None:
    t = pa.types
    whole, floating = t.is_integer(type_), t.is_float32(type_) or t.is_float64(type_)
    moment = t.is_timestamp(type_) and (type_.tz is None or type_.tz == "UTC" and type_.unit == "us") or t.is_date32(type_)
    if what == COUNT and (whole or floating or moment or t.is_string(type_) or t.is_binary(type_) or t.is_boolean(type_)):
        return pa.int64()
    if what == SUM and (whole or floating):
        return _HUGE if whole else pa.float64()
    if what == AVG and (whole or floating):
        return pa.float64()
    if what in (MIN, MAX) and (whole or floating or moment or t.is_string(type_)):
        return type_
    return None


def read(expression: str, names: Iterable[str]) -> Total | None:
    """An expression that is known to be SQL, if it is one of these over one of the named columns."""
    found = _EXPRESSION.fullmatch(expression)
    if found is None:
        return None
    what, cast = found["what"].lower(), (found["cast"] or "").upper()
    if what not in _FUNCTIONS or cast and cast not in CASTS:
        return None
    if found["star"]:
        return Total(ROWS, cast=cast) if what == COUNT else None
    column = found["name"] or found["quoted"].replace('""', '"')
    if column not in names or sum(name.lower() == column.lower() for name in names) != 1:
        return None
    return Total(what, column, cast)


def written(total: Total) -> str:
    """The expression of a total."""
    column = '"' + total.column.replace('"', '""') + '"'
    said = ROWS if total.what == ROWS else f"{total.what}({column})"
    return f"{said}::{total.cast}" if total.cast else said


def parts_of(totals: Iterable[Total]) -> Mapping[str, str]:
    """Expressions for what has to be known of each part of the rows, so that the totals of the whole can be made of it."""
    needed = [Total(what, total.column) for total in totals for what in ((SUM, COUNT) if total.what == AVG else (total.what,))]
    return {part_name(part.what, part.column): written(part) for part in needed}


def part_name(what: str, column: str) -> str:
    return f"{what} {column}"
