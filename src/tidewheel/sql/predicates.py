"""Conditions on rows, as plain values: what other engines push down to a scan, and the mask that it makes of a batch.

A condition is true, false or null for a row, as in SQL; rows are kept where it is true. Comparisons are those of DuckDB: text by its
bytes, NaN greater than every number, -0.0 equal to 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.model.codes import plain

EQUAL, UNEQUAL, LESS, AT_MOST, MORE, AT_LEAST = "=", "!=", "<", "<=", ">", ">="

INVERSE = {EQUAL: UNEQUAL, UNEQUAL: EQUAL, LESS: AT_LEAST, AT_LEAST: LESS, MORE: AT_MOST, AT_MOST: MORE}
"""What is true where a comparison is false."""

MIRRORED = {EQUAL: EQUAL, UNEQUAL: UNEQUAL, LESS: MORE, MORE: LESS, AT_MOST: AT_LEAST, AT_LEAST: AT_MOST}
"""A comparison read from right to left."""

OF_TREE = {
    "COMPARE_EQUAL": EQUAL, "COMPARE_NOTEQUAL": UNEQUAL, "COMPARE_LESSTHAN": LESS, "COMPARE_LESSTHANOREQUALTO": AT_MOST,
    "COMPARE_GREATERTHAN": MORE, "COMPARE_GREATERTHANOREQUALTO": AT_LEAST,
}  # fmt: skip
"""What the tree of a statement calls them."""

OF_ARROW = {"equal": EQUAL, "not_equal": UNEQUAL, "less": LESS, "less_equal": AT_MOST, "greater": MORE, "greater_equal": AT_LEAST}
"""What Arrow's functions are called."""


@dataclass(frozen=True, slots=True)
class Comparison:
    column: str
    op: str
    value: pa.Scalar
    """Never null."""

    def __reduce__(self) -> tuple[Any, ...]:
        """By an array: a scalar is pickled as Python's value, and Python has no year 10,000, also not in another zone."""
        return _comparison, (self.column, self.op, pa.array([self.value], self.value.type))


def _comparison(column: str, op: str, values: pa.Array) -> Comparison:
    return Comparison(column, op, values[0])


@dataclass(frozen=True, slots=True)
class OneOf:
    """Whether a column has one of these values; null where the column is."""

    column: str
    values: pa.Array
    """None of them null."""


@dataclass(frozen=True, slots=True)
class IsNull:
    column: str


@dataclass(frozen=True, slots=True)
class Both:
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Either:
    left: Condition
    right: Condition


@dataclass(frozen=True, slots=True)
class Negation:
    of: Condition


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that is not understood here. It says nothing about a row, and has no mask."""

    columns: tuple[str, ...] | None
    """What it reads; None: perhaps everything."""


Condition = Comparison | OneOf | IsNull | Both | Either | Negation | Unknown

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    EQUAL: pc.equal,
    UNEQUAL: pc.not_equal,
    LESS: pc.less,
    AT_MOST: pc.less_equal,
    MORE: pc.greater,
    AT_LEAST: pc.greater_equal,
}


def all_of(conditions: list[Condition]) -> Condition | None:
    """Their conjunction; None if there are none."""
    both: Condition | None = None
    for one in conditions:
        both = one if both is None else Both(both, one)
    return both


def columns_of(condition: Condition) -> tuple[str, ...] | None:
    """The columns that a condition reads, each once; None if that is not known."""
    names: dict[str, None] = {}
    for part in _leaves(condition):
        if isinstance(part, Unknown):
            if part.columns is None:
                return None
            names.update(dict.fromkeys(part.columns))
        else:
            names[part.column] = None
    return tuple(names)


def _leaves(condition: Condition) -> Iterator[Comparison | OneOf | IsNull | Unknown]:
    match condition:
        case Both(left, right) | Either(left, right):
            yield from _leaves(left)
            yield from _leaves(right)
        case Negation(of):
            yield from _leaves(of)
        case _:
            yield condition


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
