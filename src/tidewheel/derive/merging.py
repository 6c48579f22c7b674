"""Merging: what new source rows add up to, put together with the sums that a derived table has. Pure: Arrow tables in, one out.

Both sides have at most one row for each group, because both are aggregates by the same columns. Groups are compared as SQL groups them:
null is a value like others. Values are merged as Spark's aggregates would: null is no value, NaN is the greatest number, a sum that its
type cannot hold is an error and never wraps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.model.derived import Mode

_ROW = "$row"
_WIDEST = 76
"""Digits of Arrow's widest decimals."""


class CannotMerge(Exception):
    """These rows, or columns of these types, cannot be merged; computing the partitions anew can."""


def merged(old: pa.Table, new: pa.Table, mode: Mode) -> pa.Table:
    """The rows of both, of which those of one group are one. Both tables have one schema, and so has the outcome.

    `CannotMerge`, if a side has two rows of one group, or a sum is beyond its type.
    """
    if not old.num_rows or not new.num_rows:
        _check_single(old if old.num_rows else new, mode)
        return old if old.num_rows else new
    both = pa.concat_tables([old, new]).combine_chunks()
    first, last, count = _places(both, mode.groups)
    if (count > 2).any() or (last[count == 2] < old.num_rows).any() or (first[count == 2] >= old.num_rows).any():
        raise CannotMerge("there are two rows of one group")
    how = dict(mode.combine)
    single = both.take(pa.array(first[count == 1]))
    left, right = (both.take(pa.array(side[count == 2])) for side in (first, last))
    made: dict[str, pa.Array] = {}
    for field in both.schema:
        one, two = (_plain(side.column(field.name)) for side in (left, right))
        made[field.name] = _combined(one, two, how[field.name], field) if field.name in how and len(one) else one
    for name, dividend, divisor in mode.ratios:
        made[name] = _quotient(made[dividend], made[divisor], both.schema.field(name))
    return pa.concat_tables([single, pa.Table.from_arrays(list(made.values()), schema=both.schema)])


def _plain(array: Any) -> pa.Array:
    if not isinstance(array, pa.ChunkedArray):
        return array
    return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)


def _check_single(table: pa.Table, mode: Mode) -> None:
    if table.num_rows and (_places(table, mode.groups)[2] > 1).any():
        raise CannotMerge("there are two rows of one group")


def _places(table: pa.Table, groups: Sequence[str]) -> tuple[Any, Any, Any]:
    """For each group: its first row, its last, and how many it has."""
    rows = pa.array(np.arange(table.num_rows, dtype=np.int64))
    keys = {f"{i}": _key(table.column(name)) for i, name in enumerate(groups)}
    try:
        found = pa.table({**keys, _ROW: rows}).group_by(list(keys)).aggregate([(_ROW, "min"), (_ROW, "max"), (_ROW, "count")])
    except pa.ArrowNotImplementedError as e:
        raise CannotMerge(str(e)) from e
    first, last, count = (found.column(f"{_ROW}_{what}").to_numpy() for what in ("min", "max", "count"))
    return first, last, count


def _key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column that Arrow can group by: text of any kind as text."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def _combined(old: pa.Array, new: pa.Array, how: str, field: pa.Field) -> pa.Array:
    try:
        match how:
            case "sum":
                return _sum(old, new)
            case "min" | "max":
                return _extreme(old, new, how)
    except pa.ArrowInvalid as e:
        raise CannotMerge(f"column {field.name!r}: a sum is beyond {field.type}") from e
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as e:
        raise CannotMerge(f"column {field.name!r}: {e}") from e
    raise CannotMerge(f"column {field.name!r}: values are not merged by {how}")


def _sum(old: pa.Array, new: pa.Array) -> pa.Array:
    type_ = old.type
    if pa.types.is_decimal(type_):  # Arrow adds to one digit more, which the type may not have
        wide = pa.decimal256(min(type_.precision + 2, _WIDEST), type_.scale)
        total = pc.add_checked(old.cast(wide), new.cast(wide)).cast(type_)
    else:
        total = pc.add_checked(old, new)
    return pc.coalesce(total, old, new)


def _quotient(dividend: pa.Array, divisor: pa.Array, field: pa.Field) -> pa.Array:
    """An average of whole numbers, as Spark divides: in double precision. Of no number at all it is null, as their sum is."""
    known = pc.if_else(pc.equal(divisor, pa.scalar(0, divisor.type)), pa.scalar(None, divisor.type), divisor)
    try:
        return pc.divide(dividend.cast(pa.float64()), known.cast(pa.float64())).cast(field.type)
    except pa.ArrowInvalid as e:  # beyond 2**53: what Spark's own order of adding would give is not known
        raise CannotMerge(f"column {field.name!r}: {e}") from e


def _extreme(old: pa.Array, new: pa.Array, how: str) -> pa.Array:
    type_ = old.type
    if pa.types.is_dictionary(type_):
        return _extreme(old.cast(type_.value_type), new.cast(type_.value_type), how).dictionary_encode().cast(type_)
    if pa.types.is_boolean(type_):
        return _extreme(old.cast(pa.uint8()), new.cast(pa.uint8()), how).cast(type_)
    pick = pc.min_element_wise if how == "min" else pc.max_element_wise
    found = pick(old, new, skip_nulls=True)
    if how == "max" and pa.types.is_floating(type_):  # Arrow prefers any number to NaN
        nan = pc.or_kleene(pc.fill_null(pc.is_nan(old), False), pc.fill_null(pc.is_nan(new), False))
        found = pc.if_else(nan, pa.scalar(float("nan"), type_), found)
    return found.cast(type_) if found.type != type_ else found
