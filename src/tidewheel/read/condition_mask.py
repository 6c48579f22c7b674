"""Conditions, asked of the rows of a batch."""

from __future__ import annotations

import math

import pyarrow as pa

from tidewheel.model.arrays import take_rows
from tidewheel.model.codes import plain
from tidewheel.model.conditions import (
    AT_LEAST,
    AT_MOST,
    EQUAL,
    LESS,
    MORE,
    UNEQUAL,
    AddressRange,
    Both,
    Comparison,
    Condition,
    Either,
    HasText,
    IsNull,
    Negation,
    OneOf,
)
from tidewheel.model.ip_addresses import Address, address_of
from tidewheel.model.loading import pc

_COMPARE = {
    EQUAL: "equal",
    UNEQUAL: "not_equal",
    LESS: "less",
    AT_MOST: "less_equal",
    MORE: "greater",
    AT_LEAST: "greater_equal",
}

_PLACES = {"begin": "starts_with", "end": "ends_with", "inside": "match_substring"}


def kept(batch: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """The rows where a mask is true."""
    if mask.true_count == len(mask):
        return batch
    try:
        return batch.filter(mask)
    except pa.ArrowNotImplementedError:  # Arrow cannot filter every type
        return take_rows(batch, mask.fill_null(False).to_numpy(zero_copy_only=False).nonzero()[0])


def mask(condition: Condition, batch: pa.RecordBatch) -> pa.BooleanArray:
    """The condition's value for every row of a batch: true, false or null."""
    match condition:
        case Comparison(column, op, value):
            return _compared(plain(batch.column(column)), op, value)
        case OneOf(column, values):
            return _member(plain(batch.column(column)), values)
        case HasText(column, place, text):
            return getattr(pc, _PLACES[place])(_texts(plain(batch.column(column))), text)
        case AddressRange(column, first, last):
            return _addressed(plain(batch.column(column)), address_of(first), address_of(last))
        case IsNull(column):
            return plain(batch.column(column)).is_null()
        case Both(left, right):
            return pc.and_kleene(mask(left, batch), mask(right, batch))
        case Either(left, right):
            return pc.or_kleene(mask(left, batch), mask(right, batch))
        case Negation(of):
            return pc.invert(mask(of, batch))
    raise AssertionError(f"{condition} has no mask")


def _compared(array: pa.Array, op: str, value: pa.Scalar) -> pa.BooleanArray:
    if not pa.types.is_floating(array.type):
        return getattr(pc, _COMPARE[op])(array, value)
    array = _wide(array)
    if math.isnan(value.as_py()):
        return _compared_with_nan(pc.is_nan(array), op)
    found = getattr(pc, _COMPARE[op])(array, value)
    return pc.or_kleene(found, pc.is_nan(array)) if op in (MORE, AT_LEAST) else found


def _compared_with_nan(nan: pa.BooleanArray, op: str) -> pa.BooleanArray:
    """`nan`: where the column is NaN, and null where the column is null."""
    if op in (EQUAL, AT_LEAST):
        return nan
    if op in (UNEQUAL, LESS):
        return pc.invert(nan)
    return pc.xor(nan, nan) if op == MORE else pc.or_(nan, pc.invert(nan))


def _member(array: pa.Array, values: pa.Array) -> pa.BooleanArray:
    if pa.types.is_floating(array.type):  # `is_in` compares bits, and so tells -0.0 from 0.0
        array, values = _wide(array), _wide(values)
        array = array if array.type == values.type else array.cast(pa.float64())
        array, values = (pc.if_else(pc.equal(one, 0.0), pa.scalar(0.0, one.type), one) for one in (array, values.cast(array.type)))
    found = pc.is_in(array, values)
    return found if not array.null_count else pc.if_else(array.is_valid(), found, pa.scalar(None, pa.bool_()))


def _addressed(array: pa.Array, first: Address | None, last: Address | None) -> pa.BooleanArray:
    values = array.dictionary_encode()
    found = [
        None if (one := address_of(text)) is None else (first is None or one >= first) and (last is None or one <= last)
        for text in values.dictionary.to_pylist()
    ]
    return pc.take(pa.array(found, pa.bool_()), values.indices)


def _wide(array: pa.Array) -> pa.Array:
    """Arrow compares no floats of 16 bits."""
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array


def _texts(array: pa.Array) -> pa.Array:
    """Arrow searches in no views of text."""
    return array.cast(pa.large_string()) if pa.types.is_string_view(array.type) else array
