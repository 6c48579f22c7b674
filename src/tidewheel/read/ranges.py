"""Ranges: closed intervals of any columns, or lists of values, as bounds of key and time and as a condition on all other columns.

None is open. A null lies in no range, and neither does NaN; a range that is open on both sides says nothing. Bounds are compared as exact
numbers: between 0.5 and 2.5 lie the whole numbers 1 and 2, and the decimals from 0.50 to 2.50.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel.errors import QueryError
from tidewheel.model import conditions as where
from tidewheel.model.arrow_types import is_text, value_type
from tidewheel.model.ip_addresses import Address, address_of, address_text, is_network, network_of
from tidewheel.model.plain_values import scalar_of
from tidewheel.model.query import Query, listed, pair
from tidewheel.model.schema import Ip, TableSpec, nearest
from tidewheel.model.times import TimeAxis
from tidewheel.read.condition_bounds import Finder, axis_of, narrowed

_EXACTLY = Context(prec=200)
_BEYOND = 10**80
"""Greater than all whole numbers and decimals that a column can have."""


def with_ranges(query: Query, ranges: Any, spec: TableSpec) -> Query:
    """The query of those of its rows that lie in all ranges. Raises QueryError if they are no ranges of the table's columns."""
    if not isinstance(ranges, Mapping):
        raise QueryError(f"ranges is a mapping like {{'speed': (30, None)}}, not {ranges!r}")
    finder, box, deciding = Finder(spec), dict[str, Any](), list[where.Condition]()
    for column, interval in ranges.items():
        _check_name(column, spec)
        if (values := listed(interval)) is not None:
            if column in spec.key.columns and len(spec.key.columns) == 1 and query.key is None:
                query = replace(query, key=values)
            elif isinstance(spec.key, Ip) and column == spec.key.column:
                deciding.append(where.joined(where.Either, [_addresses(one, spec) for one in values] or [_nothing(column, spec)]))
            else:
                deciding.append(_one_of(column, values, spec))
            continue
        if isinstance(spec.key, Ip) and column == spec.key.column:  # addresses have an order of their own, which is the key's
            addresses = _addresses(interval, spec)
            if query.key is None:
                query = replace(query, key=(addresses.first, addresses.last))
            else:
                deciding.append(addresses)
            continue
        lo, hi = pair(interval, f"ranges: the range of column {column!r}")
        condition = _condition(column, lo, hi, spec)
        if condition is None:
            continue
        free = column == spec.time.column or column in spec.key.columns and query.key is None and query.box is None
        found = finder.bounds_of(condition)
        if free and found.exact and len(found.boxes) == 1:
            box.update(found.boxes[0])
        else:
            deciding.append(condition)
    return replace(narrowed(query, spec, box), condition=where.all_of(deciding))


def _check_name(column: Any, spec: TableSpec) -> None:
    names = spec.schema.names
    if column not in names:
        hint = nearest(column, names) if isinstance(column, str) else ""
        raise QueryError(f"ranges: table {spec.name!r} has no column {column!r}.{hint} Columns: {', '.join(names)}")


def _addresses(interval: Any, spec: TableSpec) -> where.AddressRange:
    ends = network_of(interval) if is_network(interval) else tuple(map(_address, pair(interval, "ranges")))
    return where.AddressRange(spec.key.columns[0], *(None if end is None else address_text(end) for end in ends))


def _address(end: Any) -> Address | None:
    if end is not None and address_of(end) is None:
        raise QueryError(f"ranges: {end!r} is no IPv4 or IPv6 address")
    return None if end is None else address_of(end)


def _nothing(column: str, spec: TableSpec) -> where.Condition:
    return where.OneOf(column, pa.array([], value_type(spec.schema.field(column).type)))


def _one_of(column: str, values: list[Any], spec: TableSpec) -> where.Condition:
    """That a column has one of these values. As in a range of one, a day is all of its moments, and a value that the column cannot have is
    one that no row has."""
    points: list[pa.Scalar] = []
    others: list[where.Condition] = []
    for value in values:
        if value is None or isinstance(value, (list, tuple, dict, set)):
            raise QueryError(f"ranges: a list for column {column!r} of table {spec.name!r} holds single values, not {value!r}")
        match _condition(column, value, value, spec):
            case where.Both(where.Comparison(_, where.AT_LEAST, lo), where.Comparison(_, where.AT_MOST, hi)) if lo.equals(hi):
                points.append(lo)
            case where.OneOf():  # nothing
                pass
            case one if one is not None:
                others.append(one)
    type_ = points[0].type if points else value_type(spec.schema.field(column).type)
    return where.joined(where.Either, [where.OneOf(column, pa.array(points, type_)), *others])


def _condition(column: str, lo: Any, hi: Any, spec: TableSpec) -> where.Condition | None:
    """None: it says nothing."""
    if lo is None and hi is None:
        return None
    type_ = value_type(spec.schema.field(column).type)
    axis = spec.time if column == spec.time.column else axis_of(column, type_)
    try:
        least, most = _ends(_plain(lo), _plain(hi), type_, axis)
        ends = [(op, end) for op, end in ((where.AT_LEAST, least), (where.AT_MOST, most)) if end is not None]
        made: list[where.Condition] = [where.Comparison(column, op, end) for op, end in ends]
        return where.all_of(made) or where.Negation(where.IsNull(column))  # all values lie between bounds beyond the type, and no null
    except _NothingError:
        return where.OneOf(column, pa.array([], type_))
    except _NoValueError as e:
        raise QueryError(f"ranges: column {column!r} of table {spec.name!r} is {type_}, {e}") from None
    except QueryError as e:
        raise QueryError(f"ranges: column {column!r} of table {spec.name!r}: {e}") from None


class _NothingError(Exception):
    """No value lies there."""


class _NoValueError(Exception):
    """A bound that the column cannot be compared with."""


def _plain(value: Any) -> Any:
    if isinstance(value, pa.Scalar) and not pa.types.is_timestamp(value.type):
        return value.as_py()
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in "iufb" else value


def _ends(lo: Any, hi: Any, type_: pa.DataType, axis: TimeAxis | None) -> tuple[pa.Scalar | None, pa.Scalar | None]:
    """The least and the greatest value of a type that lie in an interval; None where it is open."""
    t = pa.types
    if axis is not None:
        first, last = axis.interval(lo, hi)
        if first > last:
            raise _NothingError
        return _scalars(None if lo is None else first, None if hi is None else last, type_)
    for bound in (lo, hi):
        _check(bound, type_)
    if t.is_integer(type_):
        return _scalars(_rounded(lo, math.ceil), _rounded(hi, math.floor), type_)
    if t.is_floating(type_):  # also without an upper end, one is needed: NaN is greater than all numbers
        least, most = _float(-math.inf if lo is None else lo, True), _float(math.inf if hi is None else hi, False)
        return scalar_of(least, pa.float64()), scalar_of(most, pa.float64())
    if t.is_decimal(type_):
        step = Decimal(1).scaleb(-type_.scale)
        up, down = (lambda bound, way=way: Decimal(bound).quantize(step, way, _EXACTLY) for way in (ROUND_CEILING, ROUND_FLOOR))
        return _scalars(_rounded(lo, up), _rounded(hi, down), type_)
    try:
        return None if lo is None else scalar_of(lo, type_), None if hi is None else scalar_of(hi, type_)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as e:
        raise _NoValueError(f"and a bound is not: {e}") from None


def _check(bound: Any, type_: pa.DataType) -> None:
    t = pa.types
    numbers = t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_)
    binary = t.is_binary(type_) or t.is_large_binary(type_) or t.is_binary_view(type_) or t.is_fixed_size_binary(type_)
    if not (numbers or binary or is_text(type_) or t.is_boolean(type_) or t.is_time(type_) or t.is_duration(type_)):
        raise _NoValueError("which has no order")
    if bound is None or t.is_time(type_) or t.is_duration(type_):
        return
    if numbers:
        if isinstance(bound, bool) or not isinstance(bound, (int, float, Decimal)):
            raise _NoValueError(f"and {bound!r} is no number")
        if bound != bound:
            raise _NoValueError("and NaN is no bound")
    elif not isinstance(bound, (bytes, bytearray) if binary else bool if t.is_boolean(type_) else str):
        raise _NoValueError(f"and {bound!r} is not")


def _scalars(lo: Any, hi: Any, type_: pa.DataType) -> tuple[pa.Scalar | None, pa.Scalar | None]:
    """Bounds as values of a type. Beyond the least and the greatest of the type they say nothing, or leave nothing."""
    least, most = _limits(type_)
    if lo is not None and lo > most or hi is not None and hi < least:
        raise _NothingError
    first = None if lo is None or lo < least else scalar_of(lo, type_)
    return first, None if hi is None or hi > most else scalar_of(hi, type_)


def _limits(type_: pa.DataType) -> tuple[Any, Any]:
    if pa.types.is_decimal(type_):
        most = Decimal(10**type_.precision - 1).scaleb(-type_.scale, _EXACTLY)
        return -most, most
    bits = type_.bit_width
    return (0, (1 << bits) - 1) if pa.types.is_unsigned_integer(type_) else (-(1 << bits - 1), (1 << bits - 1) - 1)


def _rounded(bound: Any, how: Callable[[Any], Any]) -> Any:
    if bound is None or abs(bound) <= _BEYOND:
        return None if bound is None else how(bound)
    return math.inf if bound > 0 else -math.inf


def _float(bound: Any, up: bool) -> float:
    """The float that is nearest to a bound, and not beyond it. Python compares floats with all other numbers exactly."""
    try:
        found = float(bound) + 0.0
    except OverflowError:
        found = math.inf if bound > 0 else -math.inf
    if up:
        return found if found >= bound else math.nextafter(found, math.inf)
    return found if found <= bound else math.nextafter(found, -math.inf)
