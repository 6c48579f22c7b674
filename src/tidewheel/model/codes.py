"""Codes: the order-preserving int64 that stands for an indexed value. Codes prune, values decide.

A coder turns key columns into codes and a query's bounds into code intervals. `a <= b` always means
`code(a) <= code(b)`; different values may share a code, and then the interval says which rows must still be checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import QueryError
from tidewheel.model.dataclass import dataclass
from tidewheel.model.loading import pc
from tidewheel.model.plain_values import scalar_of
from tidewheel.model.times import INT64_MAX, INT64_MIN, TimeAxis, nanoseconds

Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Refusal = tuple[Mask, str] | None

EXACT, TIES, ALL = 0, 1, 2
"""Which rows of a code interval are still to be checked by value: none, those on its two end codes, all."""


@dataclass(frozen=True, slots=True)
class KeyIntervals:
    """Where a query's keys can be, in rising order and without overlap; `check` is EXACT, TIES or ALL."""

    lo: Codes
    hi: Codes
    check: int


EVERYWHERE = KeyIntervals(np.array([INT64_MIN]), np.array([INT64_MAX]), EXACT)
NOWHERE = KeyIntervals(np.empty(0, np.int64), np.empty(0, np.int64), EXACT)


class KeyCoder(Protocol):
    """Stateless and safe to share between threads. Batches it is given have no null in its columns."""

    columns: tuple[str, ...]
    prefix: bytes
    """What its codes leave out; more generally, the description of how it divides keys (see `learns`)."""
    number: int
    """Which of the table's coders it is: descriptors of pieces name coders by number. The first is 0."""
    learns: bool
    """Its codes are divided by what keys there are, so a table may have several such coders, which differ in `prefix`."""

    def encode(self, batch: pa.RecordBatch) -> Codes: ...
    def refuse(self, batch: pa.RecordBatch) -> Refusal: ...
    def intervals(self, lo: Any, hi: Any) -> KeyIntervals: ...
    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask: ...
    def with_prefix(self, prefix: bytes, number: int = 0) -> KeyCoder: ...
    def learned(self, keys: Sequence[pa.Array], most: int) -> bytes:
        """The `prefix` of a coder that tells these keys apart, but for `most` of them (at most) that may share a code."""
        ...


def fixed(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The values of a fixed-width array without nulls, as they lie in memory."""
    size = np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * size) if len(array) else np.empty(0, dtype)


def integer_codes(array: pa.Array) -> Codes:
    """Integers, booleans, dates, times and timestamps as int64: views where they are int64 already."""
    t = array.type
    if pa.types.is_boolean(t):
        return np.asarray(array.cast(pa.uint8())).astype(np.int64)
    if pa.types.is_uint64(t):
        return (fixed(array, np.uint64) ^ np.uint64(1 << 63)).view(np.int64)
    if pa.types.is_integer(t) and t.bit_width < 64:
        return fixed(array, np.dtype(str(t))).astype(np.int64)
    return fixed(array, np.int64) if t.bit_width == 64 else fixed(array, np.int32).astype(np.int64)


def through_dictionary(array: pa.Array, encode: Any) -> Codes:
    """Encode each entry of a dictionary once, then look the rows up."""
    if not pa.types.is_dictionary(array.type):
        return encode(array)  # type: ignore[no-any-return]
    values = array.dictionary
    if values.null_count:
        values = values.fill_null(values.drop_null()[0]) if len(values.drop_null()) else pa.nulls(len(values)).cast(pa.int64()).fill_null(0)
    return encode(values)[np.asarray(array.indices)]  # type: ignore[no-any-return]


def plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


class OneColumn:
    """What the coders of a single column share; values decide through Arrow's own comparison."""

    prefix = b""
    number = 0
    learns = False

    def __init__(self, column: str, type_: pa.DataType) -> None:
        self.columns: tuple[str, ...] = (column,)
        self.type = type_

    def refuse(self, batch: pa.RecordBatch) -> Refusal:
        return None

    def with_prefix(self, prefix: bytes, number: int = 0) -> Any:
        return self

    def learned(self, keys: Sequence[pa.Array], most: int) -> bytes:
        return b""

    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask:
        array = plain(batch.column(self.columns[0]))
        keep = np.ones(len(array), bool)
        if lo is not None:
            keep &= np.asarray(pc.greater_equal(array, self._scalar(lo)))
        if hi is not None:
            keep &= np.asarray(pc.less_equal(array, self._scalar(hi)))
        return keep

    def _scalar(self, value: Any) -> pa.Scalar:
        if isinstance(value, pa.Scalar):
            value = value.as_py()
        try:
            return scalar_of(value, self.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            raise QueryError(f"{value!r} is no {self.type}, the type of key column {self.columns[0]!r}: {e}") from None


class IntegerCoder(OneColumn):
    """Whole numbers and whatever Arrow stores as one: exact."""

    def encode(self, batch: pa.RecordBatch) -> Codes:
        return through_dictionary(batch.column(self.columns[0]), integer_codes)

    def intervals(self, lo: Any, hi: Any) -> KeyIntervals:
        a = INT64_MIN if lo is None else self._bound(lo, up=True)
        b = INT64_MAX if hi is None else self._bound(hi, up=False)
        if a > b or a > INT64_MAX or b < INT64_MIN:
            return NOWHERE
        return KeyIntervals(np.array([max(a, INT64_MIN)]), np.array([min(b, INT64_MAX)]), EXACT)

    def _bound(self, value: Any, *, up: bool) -> int:
        t = self.type
        if isinstance(value, pa.Scalar):
            if value.type == t and not pa.types.is_boolean(t):
                return int(integer_codes(pa.array([value], t))[0])
            value = value.as_py() if not pa.types.is_timestamp(value.type) else value
        if isinstance(value, np.generic) and value.dtype.kind in "iufb":
            value = value.item()
        if pa.types.is_timestamp(t) or pa.types.is_date(t):
            if isinstance(value, (bool, float)):
                raise QueryError(f"{value!r} is no time, and key column {self.columns[0]!r} is {t}")
            unit = t.unit if pa.types.is_timestamp(t) else "day" if t == pa.date32() else "ms"
            axis = TimeAxis(self.columns[0], unit)
            if type(value) is int or nanoseconds(value) is None:
                return int(value)
            return axis.lower(value) if up else axis.upper(value)
        if not isinstance(value, (int, float, Decimal)):
            if not pa.types.is_integer(t) or isinstance(value, str):
                return int(integer_codes(pa.array([self._scalar(value).as_py()], t))[0])
            raise QueryError(f"{value!r} is no number, and key column {self.columns[0]!r} is {t}")
        if isinstance(value, float) and math.isinf(value):
            code = (INT64_MAX + 1 if value > 0 else INT64_MIN - 1) + (1 << 63 if pa.types.is_uint64(t) and value > 0 else 0)
        elif isinstance(value, float) and math.isnan(value):
            raise QueryError(f"NaN is no bound for key column {self.columns[0]!r}")
        else:
            code = math.ceil(value) if up else math.floor(value)
        return code - (1 << 63) if pa.types.is_uint64(t) else code


class FloatCoder(OneColumn):
    """Floats by their bits, which rise with their value once the sign is folded in. -0.0 is 0.0, NaN is refused."""

    def encode(self, batch: pa.RecordBatch) -> Codes:
        return through_dictionary(batch.column(self.columns[0]), self._codes)

    def _codes(self, array: pa.Array) -> Codes:
        values = fixed(array, {16: np.float16, 32: np.float32, 64: np.float64}[array.type.bit_width])
        bits = (values.astype(np.float64) + 0.0).view(np.int64)
        return bits ^ ((bits >> 63) & INT64_MAX)

    def refuse(self, batch: pa.RecordBatch) -> Refusal:
        bad = np.isnan(np.asarray(plain(batch.column(self.columns[0])), np.float64))
        return (bad, "the key is NaN") if bad.any() else None

    def intervals(self, lo: Any, hi: Any) -> KeyIntervals:
        a = INT64_MIN if lo is None else self._bound(lo, up=True)
        b = INT64_MAX if hi is None else self._bound(hi, up=False)
        return NOWHERE if a > b else KeyIntervals(np.array([a]), np.array([b]), EXACT)

    def _bound(self, value: Any, *, up: bool) -> int:
        try:
            number = float(value.as_py() if isinstance(value, pa.Scalar) else value)
        except (TypeError, ValueError, OverflowError):
            raise QueryError(f"{value!r} is no number, and key column {self.columns[0]!r} is {self.type}") from None
        if math.isnan(number):
            raise QueryError(f"NaN is no bound for key column {self.columns[0]!r}")
        if isinstance(value, (int, Decimal)) and math.isfinite(number) and number != value and (number < value) == up:
            number = math.nextafter(number, math.inf if up else -math.inf)
        bits = int(np.float64(number + 0.0).view(np.int64))
        return bits ^ ((bits >> 63) & INT64_MAX)


class DecimalCoder(OneColumn):
    """Decimals by their unscaled number, clamped to int64: exact but at the two clamps."""

    def encode(self, batch: pa.RecordBatch) -> Codes:
        return through_dictionary(batch.column(self.columns[0]), self._codes)

    def _codes(self, array: pa.Array) -> Codes:
        width = array.type.bit_width // 8
        if width < 16:
            return fixed(array, np.dtype(f"<i{width}")).astype(np.int64)
        words = np.frombuffer(array.buffers()[1], np.int64, len(array) * (width // 8), array.offset * width).reshape(len(array), -1)
        low, high = words[:, 0], words[:, 1:]
        sign = words[:, -1] >> 63
        fits = (high == sign[:, None]).all(axis=1) & ((low < 0) == (sign < 0))
        return np.where(fits, low, np.where(sign < 0, INT64_MIN, INT64_MAX))

    def intervals(self, lo: Any, hi: Any) -> KeyIntervals:
        a = INT64_MIN if lo is None else self._bound(lo, up=True)
        b = INT64_MAX if hi is None else self._bound(hi, up=False)
        return NOWHERE if a > b else KeyIntervals(np.array([a]), np.array([b]), TIES)

    def _bound(self, value: Any, *, up: bool) -> int:
        exact = self.number_of(value).scaleb(self.type.scale)
        whole = math.ceil(exact) if up else math.floor(exact)
        return min(max(whole, INT64_MIN), INT64_MAX)

    def number_of(self, value: Any) -> Decimal:
        """Raises QueryError if a value is no number."""
        value = value.as_py() if isinstance(value, pa.Scalar) else value
        try:
            number = Decimal(value)
        except (TypeError, ValueError, ArithmeticError):
            raise QueryError(f"{value!r} is no number, and key column {self.columns[0]!r} is {self.type}") from None
        if not number.is_finite():
            raise QueryError(f"{value!r} is no bound for key column {self.columns[0]!r}")
        return number

    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask:
        a = None if lo is None else self.number_of(lo)
        b = None if hi is None else self.number_of(hi)
        values = plain(batch.column(self.columns[0])).to_pylist()
        return np.array([(a is None or a <= v) and (b is None or v <= b) for v in values], bool)
