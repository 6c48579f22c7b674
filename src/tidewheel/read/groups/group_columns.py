"""The columns of an answer, from the words of the groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import QueryError
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.read.foremost import OrderTerm, foremost
from tidewheel.read.groups import group_layout as layout
from tidewheel.read.groups.aggregates import DEVIATIONS, HUGE, Aggregate
from tidewheel.read.groups.grouping import Fold, FoldedValue, Grouping, fold_of
from tidewheel.read.groups.left_to_duck import LeftToDuckError, take
from tidewheel.read.groups.lowering import TEXT, Lowered, Numbers
from tidewheel.read.groups.texts_found import Texts
from tidewheel.read.limits import Watch
from tidewheel.read.totals.parse import COUNT, ROWS, SUM

Mask = npt.NDArray[np.bool_]

_TOLD_APART = 1 << 13
"""Groups from which on only those that can be among the first ones become an answer."""


def answer(
    of: Grouping, known: Numbers, words: Numbers, texts: Texts, order: Sequence[OrderTerm], limit: int | None, watch: Watch
) -> pa.RecordBatch:
    """The keys of each group and what it comes to, in any order. Groups that are not among the first `limit` may be left out."""
    if limit is not None:
        known, words = those_first(of, known, words, texts, order, limit, watch)
    take(watch, len(words) * sum(map(_bytes_of, of.schema.types)))
    return pa.RecordBatch.from_arrays([_column(of, n, known, words, texts) for n in range(len(of.schema))], schema=of.schema)


def those_first(
    of: Grouping, known: Numbers, words: Numbers, texts: Texts, order: Sequence[OrderTerm], limit: int, watch: Watch
) -> tuple[Numbers, Numbers]:
    """The groups without those, if they are many, that are not among the first `limit`."""
    if len(words) <= _TOLD_APART + 2 * limit or may_fail(of):
        return known, words
    held, numbers = watch.held, {name: n for n, name in enumerate(of.schema.names)}
    take(watch, len(words) * sum(_bytes_of(of.schema.field(term.column).type) for term in order))
    places = foremost(lambda name: _column(of, numbers[name], known, words, texts), len(words), order, limit)
    watch.held = held
    return (known, words) if places is None else (known[places], words[places])


def _bytes_of(type_: pa.DataType) -> int:
    """Of a value in an array; texts are counted when they are laid out."""
    return 0 if pa.types.is_string(type_) or pa.types.is_binary(type_) else -(-int(type_.bit_width) // 8)


def may_fail(of: Grouping) -> bool:
    """Whether a group that is not shown can be an error, or a reason to leave all of them to DuckDB."""
    return any(aggregate.what in DEVIATIONS or bool(aggregate.cast) for aggregate in of.aggregates)


def _column(of: Grouping, n: int, known: Numbers, words: Numbers, texts: Texts) -> pa.Array:
    type_, keys = of.schema.field(n).type, len(of.keys)
    if n >= keys:
        return _aggregate(of, of.aggregates[n - keys], type_, words, texts)
    valid, form = (known[:, keys] >> n) & 1 == 0, of.key_forms[n]
    if form.kind == TEXT:
        return _texts(known[:, n], type_, valid, texts)
    return _values(form.decoded(known[:, n]), form, type_, valid)


def _texts(numbers: Numbers, type_: pa.DataType, valid: Mask, texts: Texts) -> pa.Array:
    return texts.array(np.where(valid, numbers, 0), type_, _bits(valid))


def _aggregate(of: Grouping, aggregate: Aggregate, type_: pa.DataType, words: Numbers, texts: Texts) -> pa.Array:
    rows = words[:, layout.ROWS_AT]
    if aggregate.what == ROWS:
        return _array(rows, pa.int64())
    assert aggregate.of is not None
    value = of.values[aggregate.of]
    count = rows - words[:, value.nulls_at]
    fold = fold_of(aggregate, value)
    if fold is None:
        return _array(count, pa.int64())
    at = value.folds[fold]
    if fold.what == layout.NEW:
        return _array(words[:, at], pa.int64())
    some, is_text = count > 0, value.form.kind == TEXT
    match aggregate.what:
        case "sum":
            return _sum(value, fold, words, at, count, type_)
        case "avg":
            return _avg(value, fold, words, at, count, _is_divided(of, aggregate, value))
        case "min" | "max" if is_text:
            return _texts(words[:, at], type_, some, texts)
        case "min" | "max" | "bool_and" | "bool_or":
            numbers = np.where(some, words[:, at], 0)
            return _values(numbers, value.form, value.type, some)
        case "first" | "last" | "arg_min" | "arg_max" if is_text:
            return _texts(words[:, at + 2], type_, words[:, at] == 1, texts)
        case "first" | "last" | "arg_min" | "arg_max":
            return _values(words[:, at + 2], value.form, value.type, words[:, at] == 1, coded=False)
    return _deviation(aggregate.what, words, at)


# ---- numbers as arrays ----------------------------------------------------------------------------------------


def _values(numbers: Numbers, form: Lowered, type_: pa.DataType, valid: Mask, coded: bool = True) -> pa.Array:
    """Numbers of a kernel as values of a type. `coded`: those of floats are in their order, and not bits."""
    t = pa.types
    if form.real:
        bits = np.where(numbers >= 0, numbers, numbers ^ INT64_MAX) if coded else numbers
        reals = np.ascontiguousarray(bits).view(np.float64)
        if coded:
            reals = np.where(numbers == INT64_MAX, np.nan, reals)
        return _array(reals.astype(np.float32) if t.is_float32(type_) else reals, type_, valid)
    if t.is_boolean(type_):
        packed = pa.py_buffer(np.packbits(numbers != 0, bitorder="little"))
        return pa.Array.from_buffers(type_, len(numbers), [_bits(valid), packed])
    if t.is_uint64(type_):
        numbers = numbers ^ INT64_MIN
    width = type_.bit_width // 8
    return _array(numbers.astype({1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[width]), type_, valid)


def _array(numbers: npt.NDArray[Any], type_: pa.DataType, valid: Mask | None = None) -> pa.Array:
    return pa.Array.from_buffers(type_, len(numbers), [_bits(valid), pa.py_buffer(np.ascontiguousarray(numbers))])


def _bits(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


# ---- sums -----------------------------------------------------------------------------------------------------


def _wide(value: FoldedValue, fold: Fold, words: Numbers, at: int, count: Numbers) -> tuple[Numbers, npt.NDArray[np.uint64]]:
    """Sums of whole numbers, as higher and lower 64 bits."""
    low = np.ascontiguousarray(words[:, at]).view(np.uint64)
    if fold.what == layout.SUM_NARROW:
        return words[:, at] >> 63, low
    high = words[:, at + 1]
    if pa.types.is_uint64(value.type):  # numbers count from 2^63
        more = count.astype(np.uint64) << np.uint64(63)
        sums = low + more
        return high + (count >> 1) + (sums < low), sums
    return high, low


def _real(high: Numbers, low: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Numbers of 128 bits as floats: those that DuckDB takes."""
    plain = low.astype(np.float64) + high.astype(np.float64) * 2.0**64
    return np.where(high == -1, -(np.uint64(0xFFFFFFFFFFFFFFFF) - low).astype(np.float64) - 1.0, plain)


def _long(high: Numbers, low: npt.NDArray[np.uint64]) -> npt.NDArray[np.longdouble]:
    """The same as the longest floats of the machine, of which DuckDB makes means."""
    found: npt.NDArray[np.longdouble] = low.astype(np.longdouble) + high.astype(np.longdouble) * np.longdouble(2) ** 64
    return found


def _sum(value: FoldedValue, fold: Fold, words: Numbers, at: int, count: Numbers, type_: pa.DataType) -> pa.Array:
    some = count > 0
    if fold.what == layout.SUM_REAL:
        return _array(words[:, at].copy().view(np.float64), type_, some)
    high, low = _wide(value, fold, words, at, count)
    if type_ == HUGE:
        pairs = np.empty((len(words), 2), np.int64)
        pairs[:, 0], pairs[:, 1] = low.view(np.int64), high
        return pa.Array.from_buffers(type_, len(words), [_bits(some), pa.py_buffer(pairs)])
    if type_ == pa.float64():
        return _array(_real(high, low), type_, some)
    whole = low.view(np.int64)
    if ((whole >> 63) != high).any():
        raise QueryError("a sum is too large for a BIGINT; leave out the cast, or make it one to DOUBLE")
    return _array(whole, type_, some)


def _is_divided(of: Grouping, aggregate: Aggregate, value: FoldedValue) -> bool:
    """Whether DuckDB makes a mean of a sum and a count, as it does without groups, or where it has both: it rounds once more then."""
    if not of.keys:
        return True
    beside = {other.what for other in of.aggregates if other.of == aggregate.of}
    return SUM in beside or COUNT in beside and not pa.types.is_uint64(value.type)


def _avg(value: FoldedValue, fold: Fold, words: Numbers, at: int, count: Numbers, divided: bool) -> pa.Array:
    sums: npt.NDArray[Any]
    if fold.what == layout.SUM_REAL:
        sums = words[:, at].copy().view(np.float64)
    elif divided or fold.what == layout.SUM_NARROW:
        sums = _real(*_wide(value, fold, words, at, count))
    else:
        sums = _long(*_wide(value, fold, words, at, count))
    with np.errstate(divide="ignore", invalid="ignore"):
        return _array((sums / count).astype(np.float64), pa.float64(), count > 0)


def _deviation(what: str, words: Numbers, at: int) -> pa.Array:
    count = words[:, at]
    squares = words[:, at + 2].copy().view(np.float64)
    sample = what.endswith("samp")
    some = count > 1 if sample else count > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(count > 1, squares / (count - sample), 0.0)
    if not np.isfinite(found).all():  # DuckDB calls some of them errors
        raise LeftToDuckError("a deviation of theirs is infinite, or not a number")
    return _array(np.sqrt(found) if what.startswith("stddev") else found, pa.float64(), some)
