"""Random Arrow arrays of any type, with the values that break things: limits, zeros of both signs, empty and alike texts.

Driven by a `random.Random`, so that Hypothesis need only draw a seed: batches of thousands of rows stay cheap.
"""

from __future__ import annotations

import decimal
import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

PREFIX = "https://example.org/a/long/common/prefix/"
_EXACT = decimal.Context(prec=200)

TEXTS = [
    "",
    "\x00",
    "a",
    "a\x00",
    "A",
    "ä",
    "zz",
    "\U0010ffff",
    PREFIX,
    PREFIX[:-1],
    PREFIX + "\x00",
    PREFIX + "12345678",
    PREFIX + "123456789",
    PREFIX[:9] + "~",
]
BYTES = [
    b"",
    b"\x00",
    b"\x00\x00",
    b"\xff",
    b"\xff" * 9,
    b"\x7f",
    b"\x80",
    b"prefix--",
    b"prefix--\x00",
    b"prefix--\xff\xff\xff\xff\xff\xff\xff\xff\xff",
]
ADDRESSES = ["0.0.0.0", "255.255.255.255", "10.0.0.1", "9.255.255.255", "::", "::1", "::ffff:10.0.0.1",
             "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db8::1", "2001:db8::2", "2001:db8:0:0:1::", "fe80::1"]  # fmt: skip

_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def limits(type_: pa.DataType) -> tuple[int, int]:
    """The least and greatest whole number that a whole-number or temporal type holds."""
    t = pa.types
    if t.is_unsigned_integer(type_):
        return 0, (1 << type_.bit_width) - 1
    if t.is_time(type_):
        return 0, _DAY[type_.unit] - 1
    if t.is_date64(type_):
        return -(1 << 63) // _DAY["ms"] * _DAY["ms"] + _DAY["ms"], (1 << 63) // _DAY["ms"] * _DAY["ms"]
    return -(1 << (type_.bit_width - 1)), (1 << (type_.bit_width - 1)) - 1


def whole(type_: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_integer(type_) or (t.is_temporal(type_) and not t.is_interval(type_)))


def one(type_: pa.DataType, rng: random.Random) -> Any:
    """One raw value, extreme in a good part of all cases. Temporal values are whole numbers; see `build`."""
    t = pa.types
    if t.is_boolean(type_):
        return rng.random() < 0.5
    if whole(type_):
        least, most = limits(type_)
        step = _DAY["ms"] if t.is_date64(type_) else 1
        value = rng.choice(
            [
                rng.randint(-20, 20) * step,
                rng.randint(-20, 20) * step,
                rng.choice([least, least + step, most - step, most, 0]),
                rng.randint(least, most),
            ]
        )
        return min(max(value // step * step, least), most)
    if t.is_floating(type_):
        special = [0.0, -0.0, float("inf"), float("-inf"), 5e-324, 1.0, -1.0, 65504.0, 3.4028234663852886e38, -1.7976931348623157e308]
        return _narrow(rng.choice([rng.choice(special), rng.uniform(-10, 10), float(rng.randint(-5, 5))]), type_)
    if t.is_decimal(type_):
        most = 10**type_.precision - 1
        number = rng.choice(
            [rng.randint(-20, 20), rng.choice([most, -most, 0, min(most, (1 << 63) - 1), -min(most, 1 << 63)]), rng.randint(-most, most)]
        )
        return Decimal(number).scaleb(-type_.scale, _EXACT)
    if t.is_fixed_size_binary(type_):
        return rng.choice([rng.choice(BYTES), rng.randbytes(3)]).ljust(type_.byte_width, b"\x00")[: type_.byte_width]
    if t.is_binary(type_) or t.is_large_binary(type_) or t.is_binary_view(type_):
        return rng.choice([rng.choice(BYTES), rng.randbytes(rng.randint(0, 12)), b"prefix--" + rng.randbytes(rng.randint(0, 10))])
    if t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_):
        return rng.choice(
            [
                rng.choice(TEXTS),
                PREFIX + str(rng.randint(0, 10 ** rng.randint(1, 10))),
                PREFIX[: rng.randint(0, len(PREFIX))] + str(rng.randint(0, 99)),
                chr(rng.randint(32, 1000)) * rng.randint(0, 3),
            ]
        )
    raise AssertionError(type_)


def _narrow(value: float, type_: pa.DataType) -> float:
    if type_.bit_width == 64:
        return value
    with np.errstate(over="ignore"):
        return float((np.float16 if type_.bit_width == 16 else np.float32)(value))


def build(raw: list[Any], type_: pa.DataType) -> pa.Array:
    """An array of raw values; temporal ones are given as whole numbers."""
    t = pa.types
    if t.is_dictionary(type_):
        alike = list(dict.fromkeys(v for v in raw if v is not None))
        random.Random(len(raw)).shuffle(alike)
        where = {v: i for i, v in enumerate(alike)}
        indices = pa.array([None if v is None else where[v] for v in raw], type_.index_type)
        return pa.DictionaryArray.from_arrays(indices, build(alike, type_.value_type))
    if whole(type_) and not t.is_integer(type_):
        return pa.array(raw, pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)
    if t.is_float16(type_):
        mask = np.array([v is None for v in raw], bool)
        return pa.array(np.array([0.0 if v is None else v for v in raw], np.float16), mask=mask)
    return pa.array(raw, type_)


def column(type_: pa.DataType, rng: random.Random, n: int, nulls: float = 0.25) -> pa.Array:
    """A payload column of any type, nested ones included."""
    t = pa.types
    valid = [rng.random() >= nulls for _ in range(n)]
    mask = pa.array([not v for v in valid], pa.bool_())
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, _storage(type_, rng, valid))
    if t.is_null(type_):
        return pa.nulls(n)
    if t.is_struct(type_):
        fields = [column(type_.field(i).type, rng, n) for i in range(type_.num_fields)]
        return (
            pa.StructArray.from_arrays(fields, fields=list(type_), mask=mask)
            if fields
            else pa.array([{} if v else None for v in valid], type_)
        )
    if t.is_fixed_size_list(type_):
        return pa.FixedSizeListArray.from_arrays(column(type_.value_type, rng, n * type_.list_size), type=type_, mask=mask)
    if t.is_list(type_) or t.is_large_list(type_) or t.is_map(type_):
        sizes = [rng.randint(0, 3) if v else 0 for v in valid]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        width = pa.int64() if t.is_large_list(type_) else pa.int32()
        offsets = pa.array(ends, width)
        if t.is_map(type_):
            keys, items = column(type_.key_type, rng, int(ends[-1]), 0.0), column(type_.item_type, rng, int(ends[-1]))
            return pa.MapArray.from_arrays(offsets, keys, items, type=type_, mask=mask)
        maker = pa.LargeListArray if t.is_large_list(type_) else pa.ListArray
        return maker.from_arrays(offsets, column(type_.value_type, rng, int(ends[-1])), type=type_, mask=mask)
    if t.is_interval(type_):
        return pa.array([pa.MonthDayNano([rng.randint(-9, 9)] * 3) if v else None for v in valid], type_)
    if t.is_dictionary(type_):
        pool = [one(type_.value_type, rng) for _ in range(rng.randint(1, 9))]
        return build([rng.choice(pool) if v else None for v in valid], type_)
    if t.is_floating(type_) and rng.random() < 0.5:
        return build([rng.choice([float("nan"), one(type_, rng)]) if v else None for v in valid], type_)
    return build([one(type_, rng) if v else None for v in valid], type_)


def _storage(type_: Any, rng: random.Random, valid: list[bool]) -> pa.Array:
    if type_.extension_name == "arrow.json":
        return pa.array([f'{{"a":{rng.randint(0, 9)}}}' if v else None for v in valid], type_.storage_type)
    if type_.extension_name == "arrow.uuid":
        return pa.array([rng.randbytes(16) if v else None for v in valid], type_.storage_type)
    return column(type_.storage_type, rng, len(valid))


def next_to(value: float) -> tuple[float, float]:
    """The two floats beside a float."""
    return math.nextafter(value, -math.inf), math.nextafter(value, math.inf)
