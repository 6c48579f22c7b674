"""Merging: what new source rows add up to, put together with the sums that a derived table has. Pure: Arrow tables in, one out.

Both sides have at most one row for each group, because both are aggregates by the same columns. Groups are compared as SQL groups them:
null is a value like others. Values are merged as Spark's aggregates would: null is no value, NaN is the greatest number, a sum that its
type cannot hold is an error and never wraps.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.model.derived import Mode

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
    _check_single(new, mode)
    _check_states(old, mode)
    _check_states(new, mode)
    at_old, at_new = _pairs(old, new, mode.groups)
    if len(np.unique(at_new)) < len(at_new):
        raise CannotMerge("there are two rows of one group")
    how = dict(mode.combine)
    left, right = old.take(pa.array(at_old)), new.take(pa.array(at_new))
    made: dict[str, pa.Array] = {}
    for field in old.schema:
        one, two = (_plain(side.column(field.name)) for side in (left, right))
        made[field.name] = _combined(one, two, how[field.name], field) if field.name in how and len(one) else one
    for name, dividend, divisor in mode.ratios:
        made[name] = _quotient(made[dividend], made[divisor], old.schema.field(name))
    both = pa.Table.from_arrays(list(made.values()), schema=old.schema)
    return pa.concat_tables([_without(old, at_old), _without(new, at_new), both])


def _plain(array: Any) -> pa.Array:
    if not isinstance(array, pa.ChunkedArray):
        return array
    return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)


def _check_single(table: pa.Table, mode: Mode) -> None:
    keys = _keys([table], mode.groups)[0]
    if keys.group_by(keys.column_names).aggregate([]).num_rows < table.num_rows:
        raise CannotMerge("there are two rows of one group")


def _without(table: pa.Table, rows: npt.NDArray[np.int64]) -> pa.Table:
    mask = np.ones(table.num_rows, np.bool_)
    mask[rows] = False
    return table.filter(pa.array(mask))


def _pairs(old: pa.Table, new: pa.Table, groups: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rows of both that are of one group. The new ones are few: a join looks each of the old up among them, and groups nothing."""
    sides = [side.append_column(f"{n}", pa.array(np.arange(len(side)))) for n, side in enumerate(_keys([old, new], groups))]
    keys = sides[0].column_names[:-1]
    try:
        found = sides[0].join(sides[1], keys, join_type="inner")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as e:
        raise CannotMerge(str(e)) from e
    return found.column("0").to_numpy(), found.column("1").to_numpy()


def _keys(tables: Sequence[pa.Table], groups: Sequence[str]) -> list[pa.Table]:
    """The groups of each, in columns that Arrow can join and group by, and in which null is a value like others."""
    made: list[dict[str, pa.ChunkedArray]] = [{} for _ in tables]
    for name in groups:
        columns = [_key(table.column(name)) for table in tables]
        if any(column.null_count for column in columns):
            some = next((column.drop_null()[0] for column in columns if column.null_count < len(column)), None)
            for into, column in zip(made, columns, strict=True):
                into[f"{name} is null"] = column.is_null()
            columns = [] if some is None else [column.fill_null(some) for column in columns]
        for into, column in zip(made, columns, strict=bool(columns)):
            into[f"{name} as key"] = column
    return [pa.table(one) for one in made]


def _key(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column that Arrow can group by: text of any kind as text."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def _check_states(rows: pa.Table, mode: Mode) -> None:
    """A sum that is null though values were counted is one that was too large: it cannot be gone on with."""
    for name, dividend, divisor in mode.ratios:
        counted = pc.greater(rows.column(divisor), pa.scalar(0, rows.schema.field(divisor).type))
        if pc.any(pc.and_kleene(counted, pc.is_null(rows.column(dividend)))).as_py():
            raise CannotMerge(f"column {name!r}: its sum is not known")


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
    """An average as Spark divides: decimals digit by digit, other numbers in double precision. Of no number at all it is null."""
    if pa.types.is_decimal(field.type):
        return _decimal_quotient(dividend, divisor, field)
    known = pc.if_else(pc.equal(divisor, pa.scalar(0, divisor.type)), pa.scalar(None, divisor.type), divisor)
    try:
        return pc.divide(dividend.cast(pa.float64()), known.cast(pa.float64())).cast(field.type)
    except pa.ArrowInvalid as e:  # beyond 2**53: what Spark's own order of adding would give is not known
        raise CannotMerge(f"column {field.name!r}: {e}") from e


_DIGITS = 38
"""Of Spark's decimals: so many behind the point of a quotient, before it is rounded to its type."""


def _decimal_quotient(dividend: pa.Array, divisor: pa.Array, field: pa.Field) -> pa.Array:
    """Sums divided by counts: rounded twice, as Spark does, to 38 digits (a half down) and to those of the type (a half up)."""
    to = field.type.scale
    with localcontext(Context(prec=2 * _WIDEST)):
        found: list[Decimal | None] = []
        for total, count in zip(dividend.to_pylist(), divisor.to_pylist(), strict=True):
            if total is None or not count:
                found.append(None)
                continue
            sign, digits, exponent = total.as_tuple()
            whole = int("".join(map(str, digits))) * 10 ** (_DIGITS + int(exponent))
            quotient, rest = divmod(whole, count)
            quotient += 2 * rest > count
            kept, rest = divmod(quotient, 10 ** (_DIGITS - to))
            kept += 2 * rest >= 10 ** (_DIGITS - to) if to < _DIGITS else 0
            found.append(Decimal(-kept if sign else kept).scaleb(-to))
    try:
        return pa.array(found, field.type)
    except pa.ArrowInvalid as e:
        raise CannotMerge(f"column {field.name!r}: an average is beyond {field.type}") from e


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
