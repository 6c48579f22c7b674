"""Which rows of a column or more can be among the first ones of an order, told by numbers: only these have to be put in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.dataclass import dataclass
from tidewheel.model.times import INT64_MAX, INT64_MIN

Numbers = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]

_SOME = 1 << 16
"""Rows that a first guess is made of."""

_FEW = 1024
"""Rows that are put in order sooner than they are told apart by one more column."""


class OrderTerm(Protocol):
    @property
    def column(self) -> str: ...
    @property
    def descending(self) -> bool: ...
    @property
    def nulls_first(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Ranked:
    """The values of a column as numbers in their order."""

    numbers: Numbers
    valid: npt.NDArray[np.bool_] | None
    """Where it is false, the value is null and the number says nothing. None: no value is null."""
    exact: bool
    """Different values have different numbers."""


def foremost(column: Callable[[str], pa.Array], rows: int, terms: Sequence[OrderTerm], limit: int) -> Places | None:
    """The places of rows, rising: all that are among the first `limit` are among them, whatever becomes of rows that are alike.

    None if nothing is known of the first term.
    """
    chosen: list[Places] = []
    left: Places | None = None  # None: all rows
    need = limit
    for number, term in enumerate(terms):
        if need <= 0 or left is not None and len(left) <= max(need, _FEW):
            break
        ranked = ranks(column(term.column))
        if ranked is None:
            if not number:
                return None
            break
        numbers, valid = ranked.numbers, ranked.valid
        if left is not None:
            numbers, valid = numbers[left], None if valid is None else valid[left]
        if valid is not None:
            here = np.arange(rows) if left is None else left
            some, nulls = here[valid], here[~valid]
            if term.nulls_first:
                if len(nulls) >= need:
                    left = nulls
                    continue
                chosen.append(nulls)
                need -= len(nulls)
            elif len(some) <= need:
                chosen.append(some)
                need -= len(some)
                left = nulls
                continue
            left, numbers = some, numbers[valid]
        better, alike = _divided(~numbers if term.descending else numbers, need)
        chosen.append(better if left is None else left[better])
        left = alike if left is None else left[alike]
        need -= len(better)
        if not ranked.exact:
            break
    if need > 0:
        chosen.append(np.arange(rows) if left is None else left)
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.intp)


def _divided(numbers: Numbers, need: int) -> tuple[Places, Places]:
    """The places of those that are surely among the least `need` ones, and of those that are like the last of these."""
    if need >= len(numbers):
        return np.arange(len(numbers)), np.zeros(0, np.intp)
    some = numbers[:: max(1, len(numbers) // _SOME)]
    if len(some) > 2 * need:  # as many as that are not behind this one
        near = np.flatnonzero(numbers <= np.partition(some, need - 1)[need - 1])
        kept = numbers[near]
    else:
        near, kept = np.arange(len(numbers)), numbers
    last = np.partition(kept, need - 1)[need - 1]
    return near[kept < last], near[kept == last]


def ranks(values: pa.Array) -> Ranked | None:
    """Numbers in the order of an array's values, with NaN above all numbers and both zeros as one. None for types that have none."""
    type_, t = values.type, pa.types
    valid = None if not values.null_count else values.is_valid().to_numpy(zero_copy_only=False)
    if t.is_decimal128(type_):
        pairs = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values))].reshape(-1, 2)
        reals = pairs[:, 0].view(np.uint64).astype(np.float64) + pairs[:, 1].astype(np.float64) * 2.0**64
        return Ranked(_bits(reals), valid, exact=False)
    if t.is_float32(type_) or t.is_float64(type_):
        return Ranked(_bits(_plain(values, np.dtype(f"f{type_.bit_width // 8}")).astype(np.float64)), valid, exact=True)
    if not (t.is_integer(type_) or t.is_temporal(type_)) or t.is_interval(type_):
        return None
    unsigned = t.is_unsigned_integer(type_)
    numbers = _plain(values, np.dtype(f"{'u' if unsigned else 'i'}{type_.bit_width // 8}"))
    if unsigned and type_.bit_width == 64:
        return Ranked(numbers.view(np.int64) ^ INT64_MIN, valid, exact=True)
    return Ranked(numbers.astype(np.int64, copy=False), valid, exact=True)


def _plain(values: pa.Array, type_: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """What lies in the memory of an array of numbers."""
    return np.frombuffer(values.buffers()[1], type_)[values.offset : values.offset + len(values)]


def _bits(reals: npt.NDArray[np.float64]) -> Numbers:
    bits = (reals + 0.0).view(np.int64)
    numbers = np.where(bits < 0, bits ^ INT64_MAX, bits)
    numbers[np.isnan(reals)] = INT64_MAX
    return numbers
