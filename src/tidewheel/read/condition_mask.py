"""Which rows of a batch satisfy a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.model.arrays import take_rows
from tidewheel.model.codes import plain
from tidewheel.model.conditions import (
    AT_LEAST,
    AT_MOST,
    EQUAL,
    LESS,
    MORE,
    UNEQUAL,
    Both,
    Comparison,
    Condition,
    Either,
    IsNull,
    Negation,
    OneOf,
)

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    EQUAL: pc.equal,
    UNEQUAL: pc.not_equal,
    LESS: pc.less,
    AT_MOST: pc.less_equal,
    MORE: pc.greater,
    AT_LEAST: pc.greater_equal,
}


def kept(batch: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """The rows where a mask is true."""
    if mask.true_count == len(mask):
        return batch
    try:
        return batch.filter(mask)
    except pa.ArrowNotImplementedError:  # Arrow cannot filter every type
        return take_rows(batch, mask.fill_null(False).to_numpy(zero_copy_only=False).nonzero()[0])


def mask(condition: Condition, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Of every row of a batch, whether the condition holds: true, false or null."""
    match condition:
        case Comparison(column, op, value):
            return _compared(plain(batch.column(column)), op, value)
        case OneOf(column, values):
            return _member(plain(batch.column(column)), values)
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
    found = _COMPARE[op](array, value)
    if op in (MORE, AT_LEAST) and pa.types.is_floating(array.type):
        return pc.or_kleene(found, pc.is_nan(array))
    return found


def _member(array: pa.Array, values: pa.Array) -> pa.BooleanArray:
    if pa.types.is_floating(array.type):  # `is_in` compares bits, and so tells -0.0 from 0.0
        array, values = (pc.if_else(pc.equal(one, 0.0), pa.scalar(0.0, one.type), one) for one in (array, values))
    found = pc.is_in(array, values)
    return found if not array.null_count else pc.if_else(array.is_valid(), found, pa.scalar(None, pa.bool_()))
