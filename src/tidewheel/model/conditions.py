"""Conditions on rows, as plain values: they are compared, pickled and sent, and whoever holds a row can tell whether it satisfies one.

A condition is true, false or null for a row, as in SQL; rows are kept where it is true. Comparisons are those of DuckDB: text by its
bytes, NaN equal to itself and greater than every number, -0.0 equal to 0.0. `read/condition_mask.py` evaluates them over rows, and
`read/condition_bounds.py` tells where in key and time their rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tidewheel.model.dataclass import dataclass

EQUAL, UNEQUAL, LESS, AT_MOST, MORE, AT_LEAST = "=", "!=", "<", "<=", ">", ">="

INVERSE = {EQUAL: UNEQUAL, UNEQUAL: EQUAL, LESS: AT_LEAST, AT_LEAST: LESS, MORE: AT_MOST, AT_MOST: MORE}
"""What is true where a comparison is false."""

MIRRORED = {EQUAL: EQUAL, UNEQUAL: UNEQUAL, LESS: MORE, MORE: LESS, AT_MOST: AT_LEAST, AT_LEAST: AT_MOST}
"""A comparison read from right to left."""


@dataclass(frozen=True, slots=True)
class Comparison:
    column: str
    op: str
    value: pa.Scalar
    """Never null."""

    def __reduce__(self) -> tuple[Any, ...]:
        """By an array: a scalar is pickled as Python's value, and Python has no year 10,000, also not in another zone."""
        return _comparison, (self.column, self.op, packed(pa.array([self.value], self.value.type)))


def _comparison(column: str, op: str, value: bytes) -> Comparison:
    return Comparison(column, op, unpacked(value)[0])


@dataclass(frozen=True, slots=True)
class OneOf:
    """Whether a column has one of these values; null where the column is."""

    column: str
    values: pa.Array
    """None of them null."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _one_of, (self.column, packed(self.values))


def _one_of(column: str, values: bytes) -> OneOf:
    return OneOf(column, unpacked(values))


@dataclass(frozen=True, slots=True)
class HasText:
    """Whether a column's text begins with another, ends with it or contains it, byte by byte; null where the column is."""

    column: str
    place: str
    """`begin`, `end` or `inside`."""
    text: str


@dataclass(frozen=True, slots=True)
class AddressRange:
    """Whether a column's text is an IP address from one to another, in the order of addresses; null where the column is."""

    column: str
    first: str | None
    last: str | None
    """Addresses; None is open."""


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


Condition = Comparison | OneOf | HasText | AddressRange | IsNull | Both | Either | Negation | Unknown


MAKERS: tuple[Callable[..., Any], ...] = (_comparison, _one_of, HasText, AddressRange, IsNull, Both, Either, Negation)
"""What an unpickler has to call to make conditions."""


def all_of(conditions: Sequence[Condition]) -> Condition | None:
    """Their conjunction; None if there are none."""
    return joined(Both, conditions) if conditions else None


def joined(how: type[Both] | type[Either], conditions: Sequence[Condition]) -> Condition:
    """One or more conditions as one. They are halved again and again, so that thousands of them are no deep tree."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return how(joined(how, conditions[:half]), joined(how, conditions[half:]))


def conjuncts(condition: Condition | None) -> list[Condition]:
    """The conditions that all have to hold for it to hold, none of which is a conjunction itself."""
    if isinstance(condition, Both):
        return [*conjuncts(condition.left), *conjuncts(condition.right)]
    return [] if condition is None else [condition]


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


def _leaves(condition: Condition) -> Iterator[Comparison | OneOf | HasText | AddressRange | IsNull | Unknown]:
    match condition:
        case Both(left, right) | Either(left, right):
            yield from _leaves(left)
            yield from _leaves(right)
        case Negation(of):
            yield from _leaves(of)
        case _:
            yield condition


_LAST = "\U0010ffff"


def after(prefix: str) -> str | None:
    """The least text that is greater than all that begin so, in the order of UTF-8's bytes; None if there is none."""
    kept = prefix.rstrip(_LAST)
    if not kept:
        return None
    code = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)


# ---- values as bytes ----------------------------------------------------------------------------------------


def packed(values: pa.Array) -> bytes:
    """Values with their type, as a stream of Arrow's."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("", values.type)])) as writer:
        writer.write_batch(pa.record_batch([values], [""]))
    return bytes(sink.getvalue())


def unpacked(data: bytes) -> pa.Array:
    """The inverse of `packed`. Looks at all of it: bytes that come from elsewhere may say anything."""
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
    batch.validate(full=True)
    return batch.column(0)
