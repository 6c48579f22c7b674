"""Describe a version: per column nulls, least, greatest and about how many different values.

The index knows the number of rows and the ends of time and, where codes are the values themselves, of the key; so these are asked of it,
unless rows were replaced: what is hidden still counts in regions. Everything else is one pass over the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel.duck.nodes import quoted
from tidewheel.index.version import Version
from tidewheel.model.description import ColumnFacts, TableDescription
from tidewheel.model.pieces import KMAX, KMIN, ROWS, TMAX, TMIN
from tidewheel.model.query import Query
from tidewheel.model.schema import ColumnKey, TableSpec
from tidewheel.model.times import DATE_UNITS
from tidewheel.read.local_result import LocalResult
from tidewheel.read.planner import Planner


def describe(planner: Planner, version: Version) -> TableDescription:
    spec = planner.spec
    ends = {} if version.hidden else _known_ends(spec, version)
    asked: dict[str, str] = {"rows": "count(*)"}
    for i, field in enumerate(spec.schema):
        name = quoted(field.name)
        if field.nullable and field.name not in (*spec.key.columns, spec.time.column):
            asked[f"values {i}"] = f"count({name})"
        if not pa.types.is_nested(field.type):
            asked[f"distinct {i}"] = f"approx_count_distinct({name})"
            if field.name not in ends:
                asked |= {f"least {i}": f"min({name})", f"greatest {i}": f"max({name})"}
    answer = LocalResult(planner, version, Query(aggregate=asked, max_rows=float("inf"))).to_arrow()
    found = {name: _value(answer[name][0]) for name in answer.schema.names}
    columns = []
    for i, field in enumerate(spec.schema):
        least, greatest = ends.get(field.name) or (found.get(f"least {i}"), found.get(f"greatest {i}"))
        nulls = found["rows"] - found.get(f"values {i}", found["rows"])
        columns.append(ColumnFacts(field.name, str(field.type), nulls, least, greatest, found.get(f"distinct {i}")))
    return TableDescription(spec.name, found["rows"], tuple(columns))


def column_of_codes(spec: TableSpec, name: str) -> bool:
    """Whether the codes of a column, the key or the time, are its values."""
    if name == spec.time.column:
        return True
    if not isinstance(spec.key, ColumnKey) or name != spec.key.column:
        return False
    t, type_ = pa.types, spec.schema.field(name).type
    whole = t.is_signed_integer(type_) or t.is_timestamp(type_) or type_ in DATE_UNITS
    return bool(whole or t.is_unsigned_integer(type_) and type_.bit_width < 64)


def values_of_codes(codes: pa.Array, type_: pa.DataType) -> pa.Array:
    """Codes of such a column as its values."""
    return codes.cast(pa.int32()).cast(type_) if type_ == pa.date32() else codes.cast(type_)


def _known_ends(spec: TableSpec, version: Version) -> dict[str, tuple[Any, Any]]:
    """The least and the greatest value of the columns that regions have, without those of which there is none."""
    regions = [version.chunks.matrix[: version.chunks.count], *(tree.matrix[: tree.count] for tree in version.trees)]
    rows = np.concatenate(regions)
    rows = rows[rows[:, ROWS] > 0]
    found = {}
    for name, lo, hi in ((spec.time.column, TMIN, TMAX), *((column, KMIN, KMAX) for column in spec.key.columns)):
        if len(rows) and column_of_codes(spec, name):
            codes = pa.array([rows[:, lo].min(), rows[:, hi].max()], pa.int64())
            least, greatest = values_of_codes(codes, spec.schema.field(name).type)
            found[name] = _value(least), _value(greatest)
    return found


def _value(value: pa.Scalar) -> Any:
    """For Python; as Arrow writes it, where Python has no such value."""
    try:
        return value.as_py()
    except (ValueError, OverflowError, ImportError):
        return str(value)
