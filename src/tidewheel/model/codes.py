"""Codes: the order-preserving int64 that stands for an indexed value. Codes prune, values decide.

A coder turns key columns into codes and a query's bounds into code intervals. `a <= b` always means
`code(a) <= code(b)`; different values may share a code, and then the interval says which rows must still be checked.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.errors import QueryError
from tidewheel.model.arrays import take
from tidewheel.model.schema import ColumnKey, Ip, TableSpec, ZOrder
from tidewheel.model.times import INT64_MAX, INT64_MIN, TimeAxis, nanoseconds

Codes = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Refusal = tuple[Mask, str] | None

EXACT, TIES, ALL = 0, 1, 2
"""Which rows of a code interval are still to be checked by value: none, those on its two end codes, all."""

Z_INTERVALS = 64


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

    def encode(self, batch: pa.RecordBatch) -> Codes: ...
    def refuse(self, batch: pa.RecordBatch) -> Refusal: ...
    def intervals(self, lo: Any, hi: Any) -> KeyIntervals: ...
    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask: ...
    def with_prefix(self, prefix: bytes) -> KeyCoder: ...
    def common_prefix(self, batch: pa.RecordBatch) -> bytes: ...


def key_coder(spec: TableSpec) -> KeyCoder:
    """The coder of a table's key."""
    match spec.key:
        case ZOrder(columns, bounds):
            return ZOrderCoder(columns, bounds)
        case Ip(column):
            return IpCoder(column)
        case ColumnKey(column):
            type_ = spec.schema.field(column).type
            value = type_.value_type if pa.types.is_dictionary(type_) else type_
            t = pa.types
            if t.is_floating(value):
                return FloatCoder(column, value)
            if t.is_decimal(value):
                return DecimalCoder(column, value)
            if t.is_integer(value) or t.is_boolean(value) or t.is_temporal(value):
                return IntegerCoder(column, value)
            return BytesCoder(column, value)
    raise AssertionError(spec.key)


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


def _through_dictionary(array: pa.Array, encode: Any) -> Codes:
    """Encode each entry of a dictionary once, then look the rows up."""
    if not pa.types.is_dictionary(array.type):
        return encode(array)  # type: ignore[no-any-return]
    values = array.dictionary
    if values.null_count:
        values = values.fill_null(values.drop_null()[0]) if len(values.drop_null()) else pa.nulls(len(values)).cast(pa.int64()).fill_null(0)
    return encode(values)[np.asarray(array.indices)]  # type: ignore[no-any-return]


def _plain(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


class _OneColumn:
    """What the coders of a single column share; values decide through Arrow's own comparison."""

    prefix = b""

    def __init__(self, column: str, type_: pa.DataType) -> None:
        self.columns: tuple[str, ...] = (column,)
        self.type = type_

    def refuse(self, batch: pa.RecordBatch) -> Refusal:
        return None

    def with_prefix(self, prefix: bytes) -> Any:
        return self

    def common_prefix(self, batch: pa.RecordBatch) -> bytes:
        return b""

    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask:
        array = _plain(batch.column(self.columns[0]))
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
            return pa.scalar(value, self.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            raise QueryError(f"{value!r} is no {self.type}, the type of key column {self.columns[0]!r}: {e}") from None


class IntegerCoder(_OneColumn):
    """Whole numbers and whatever Arrow stores as one: exact."""

    def encode(self, batch: pa.RecordBatch) -> Codes:
        return _through_dictionary(batch.column(self.columns[0]), integer_codes)

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


class FloatCoder(_OneColumn):
    """Floats by their bits, which rise with their value once the sign is folded in. -0.0 is 0.0, NaN is refused."""

    def encode(self, batch: pa.RecordBatch) -> Codes:
        return _through_dictionary(batch.column(self.columns[0]), self._codes)

    def _codes(self, array: pa.Array) -> Codes:
        values = fixed(array, {16: np.float16, 32: np.float32, 64: np.float64}[array.type.bit_width])
        bits = (values.astype(np.float64) + 0.0).view(np.int64)
        return bits ^ ((bits >> 63) & INT64_MAX)

    def refuse(self, batch: pa.RecordBatch) -> Refusal:
        bad = np.isnan(np.asarray(_plain(batch.column(self.columns[0])), np.float64))
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


class DecimalCoder(_OneColumn):
    """Decimals by their unscaled number, clamped to int64: exact but at the two clamps."""

    def encode(self, batch: pa.RecordBatch) -> Codes:
        return _through_dictionary(batch.column(self.columns[0]), self._codes)

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
        exact = self._decimal(value).scaleb(self.type.scale)
        whole = math.ceil(exact) if up else math.floor(exact)
        return min(max(whole, INT64_MIN), INT64_MAX)

    def _decimal(self, value: Any) -> Decimal:
        value = value.as_py() if isinstance(value, pa.Scalar) else value
        try:
            number = Decimal(value)
        except (TypeError, ValueError, ArithmeticError):
            raise QueryError(f"{value!r} is no number, and key column {self.columns[0]!r} is {self.type}") from None
        if not number.is_finite():
            raise QueryError(f"{value!r} is no bound for key column {self.columns[0]!r}")
        return number

    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask:
        a = None if lo is None else self._decimal(lo)
        b = None if hi is None else self._decimal(hi)
        values = _plain(batch.column(self.columns[0])).to_pylist()
        return np.array([(a is None or a <= v) and (b is None or v <= b) for v in values], bool)


class BytesCoder(_OneColumn):
    """Text and binary by the eight bytes after a common prefix, in the order of their bytes."""

    def __init__(self, column: str, type_: pa.DataType, prefix: bytes = b"") -> None:
        super().__init__(column, type_)
        self.prefix = prefix
        self._prefix = np.frombuffer(prefix, np.uint8).copy()

    def with_prefix(self, prefix: bytes) -> KeyCoder:
        return self if prefix == self.prefix else BytesCoder(self.columns[0], self.type, prefix)

    def encode(self, batch: pa.RecordBatch) -> Codes:
        return _through_dictionary(batch.column(self.columns[0]), self._codes)

    def _codes(self, array: pa.Array) -> Codes:
        from tidewheel.model.kernels import byte_codes

        out = np.empty(len(array), np.int64)
        if len(array):
            offsets, wide, data, _keep = byte_addresses(array)
            byte_codes(offsets, wide, data, len(array), self._prefix, out)
        return out

    def common_prefix(self, batch: pa.RecordBatch) -> bytes:
        """What nearly all of a sample of the keys begin with; the few others will be clamped."""
        array = batch.column(self.columns[0])
        sample = _plain(take(array, np.linspace(0, len(array) - 1, min(len(array), 512)).astype(np.int64)))
        texts = sorted(t.encode() if isinstance(t, str) else t for t in sample.to_pylist())
        first, last = texts[len(texts) // 64], texts[-1 - len(texts) // 64]
        same = 0
        while same < min(len(first), len(last), 255) and first[same] == last[same]:
            same += 1
        return bytes(first[:same])

    def intervals(self, lo: Any, hi: Any) -> KeyIntervals:
        a = INT64_MIN if lo is None else int(self._codes(pa.array([self._scalar(lo).as_py()], self._narrow()))[0])
        b = INT64_MAX if hi is None else int(self._codes(pa.array([self._scalar(hi).as_py()], self._narrow()))[0])
        return NOWHERE if a > b else KeyIntervals(np.array([a]), np.array([b]), TIES)

    def _narrow(self) -> pa.DataType:
        t = pa.types
        return pa.string() if t.is_string(self.type) or t.is_large_string(self.type) or t.is_string_view(self.type) else pa.binary()

    def _scalar(self, value: Any) -> pa.Scalar:
        value = value.as_py() if isinstance(value, pa.Scalar) else value
        try:
            return pa.scalar(value, self._narrow())
        except (pa.ArrowException, TypeError, ValueError) as e:
            raise QueryError(f"{value!r} is no {self.type}, the type of key column {self.columns[0]!r}: {e}") from None

    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask:
        array = _plain(batch.column(self.columns[0]))
        wide = pa.large_string() if self._narrow() == pa.string() else pa.large_binary()
        plain = pa.RecordBatch.from_arrays([array.cast(wide)], [self.columns[0]])
        return super().matches(
            plain, None if lo is None else _wide(self._scalar(lo), wide), None if hi is None else _wide(self._scalar(hi), wide)
        )


def _wide(scalar: pa.Scalar, wide: pa.DataType) -> pa.Scalar:
    return scalar.cast(wide)


def byte_addresses(array: pa.Array) -> tuple[int, int, int, pa.Array]:
    """(address of the offsets, wide flag, address of the bytes, what to keep alive) for `byte_codes`."""
    t = array.type
    if pa.types.is_fixed_size_binary(t):
        return 0, -t.byte_width, array.buffers()[1].address + array.offset * t.byte_width, array
    if pa.types.is_string_view(t) or pa.types.is_binary_view(t):
        array = array.cast(pa.binary())
    wide = int(pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type))
    _, offsets, data = array.buffers()
    return offsets.address + array.offset * (8 if wide else 4), wide, data.address if data is not None else 0, array


class ZOrderCoder:
    """Two or more coordinates, quantised within declared bounds and interleaved."""

    prefix = b""

    def __init__(self, columns: tuple[str, ...], bounds: tuple[float, ...]) -> None:
        self.columns = columns
        self.bits = 62 // len(columns)
        self._lo = np.array(bounds[: len(columns)])
        with np.errstate(over="ignore"):  # bounds nearly alike or without end: all points share few cells, which is right
            self._scale = float(1 << self.bits) / (np.array(bounds[len(columns) :]) - self._lo)

    def with_prefix(self, prefix: bytes) -> KeyCoder:
        return self

    def common_prefix(self, batch: pa.RecordBatch) -> bytes:
        return b""

    def _points(self, batch: pa.RecordBatch) -> npt.NDArray[np.float64]:
        return np.array([np.asarray(batch.column(c), np.float64) for c in self.columns])

    def encode(self, batch: pa.RecordBatch) -> Codes:
        from tidewheel.model.kernels import zorder_codes

        out = np.empty(batch.num_rows, np.int64)
        zorder_codes(self._points(batch), self._lo, self._scale, self.bits, out)
        return out

    def refuse(self, batch: pa.RecordBatch) -> Refusal:
        bad: Mask = np.logical_or.reduce(np.isnan(self._points(batch)))
        return (bad, f"a coordinate of the key ({', '.join(self.columns)}) is NaN") if bad.any() else None

    def intervals(self, lo: Any, hi: Any) -> KeyIntervals:
        """`lo` and `hi` are the two corners of a box."""
        from tidewheel.model.kernels import quantise, zorder_intervals

        dims = len(self.columns)
        cells = np.empty((2, dims), np.int64)
        for d in range(dims):
            a = -math.inf if lo is None or lo[d] is None else _number(lo[d])
            b = math.inf if hi is None or hi[d] is None else _number(hi[d])
            if a > b:
                return NOWHERE
            cells[0, d] = quantise(a, self._lo[d], self._scale[d], self.bits)
            cells[1, d] = quantise(b, self._lo[d], self._scale[d], self.bits)
        out = np.empty((2, Z_INTERVALS), np.int64)
        n = zorder_intervals(cells[0], cells[1], self.bits, out[0], out[1])
        return KeyIntervals(out[0, :n].copy(), out[1, :n].copy(), ALL)

    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask:
        keep = np.ones(batch.num_rows, bool)
        for d, column in enumerate(self.columns):
            values = np.asarray(batch.column(column))
            if values.dtype.kind == "f":
                values = values.astype(np.float64)  # or NumPy would round the bound to the column's width
            if lo is not None and lo[d] is not None:
                keep &= _at_least(values, lo[d])
            if hi is not None and hi[d] is not None:
                keep &= _at_most(values, hi[d])
        return keep


def _at_least(values: npt.NDArray[Any], bound: Any) -> Mask:
    """values >= bound, exactly: integers are compared with integers."""
    if values.dtype.kind == "f":
        return np.asarray(values >= _float_up(bound))
    least = math.ceil(bound) if not math.isinf(bound) else bound
    info = np.iinfo(values.dtype)
    return np.full(len(values), least <= info.min) if least <= info.min or least > info.max else np.asarray(values >= least)


def _at_most(values: npt.NDArray[Any], bound: Any) -> Mask:
    if values.dtype.kind == "f":
        return np.asarray(values <= _float_down(bound))
    most = math.floor(bound) if not math.isinf(bound) else bound
    info = np.iinfo(values.dtype)
    return np.full(len(values), most >= info.max) if most >= info.max or most < info.min else np.asarray(values <= most)


def _float_up(value: Any) -> float:
    """The least float at or above a number."""
    number = float(value)
    return math.nextafter(number, math.inf) if number < value else number


def _float_down(value: Any) -> float:
    number = float(value)
    return math.nextafter(number, -math.inf) if number > value else number


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise QueryError(f"{value!r} is no coordinate of a box") from None
    if math.isnan(number):
        raise QueryError("NaN is no coordinate of a box")
    return number


class IpCoder(_OneColumn):
    """Text addresses in numeric order: v4 exactly, then v6 by its upper 62 bits."""

    def __init__(self, column: str) -> None:
        super().__init__(column, pa.string())

    def encode(self, batch: pa.RecordBatch) -> Codes:
        return _through_dictionary(batch.column(self.columns[0]), self._codes)

    def _codes(self, array: pa.Array) -> Codes:
        from tidewheel.model.kernels import ipv4_codes

        out = np.empty(len(array), np.int64)
        if len(array):
            offsets, wide, data, keep = byte_addresses(array)
            ipv4_codes(offsets, wide, data, len(array), out)
            for i in np.flatnonzero(out < 0).tolist():
                out[i] = _ip_code(_address(keep[i].as_py()))
        return out

    def refuse(self, batch: pa.RecordBatch) -> Refusal:
        bad = self.encode(batch) < 0
        return (bad, "the key is no IPv4 or IPv6 address") if bad.any() else None

    def intervals(self, lo: Any, hi: Any) -> KeyIntervals:
        a = INT64_MIN if lo is None else _ip_code(self._parse(lo))
        b = INT64_MAX if hi is None else _ip_code(self._parse(hi))
        return NOWHERE if a > b else KeyIntervals(np.array([a]), np.array([b]), TIES)

    def _parse(self, value: Any) -> tuple[int, int]:
        found = _address(value.as_py() if isinstance(value, pa.Scalar) else value)
        if found is None:
            raise QueryError(f"{value!r} is no IPv4 or IPv6 address, as key column {self.columns[0]!r} holds them")
        return found

    def matches(self, batch: pa.RecordBatch, lo: Any, hi: Any) -> Mask:
        a = (0, 0) if lo is None else self._parse(lo)
        b = (7, 0) if hi is None else self._parse(hi)
        return np.array([a <= (_address(v) or (9, 0)) <= b for v in _plain(batch.column(self.columns[0])).to_pylist()], bool)


def _address(value: Any) -> tuple[int, int] | None:
    """(version, number) of an address, None if it is none. A sortable pair: v4 before v6."""
    try:
        found = ipaddress.ip_address(value.decode() if isinstance(value, bytes) else value)
    except (ValueError, AttributeError):
        return None
    return (found.version, int(found))


def _ip_code(address: tuple[int, int] | None) -> int:
    if address is None:
        return -1
    version, number = address
    return number if version == 4 else (1 << 33) + (number >> 66)
