"""The types of columns, judged by some of their values. What a person would say on seeing them, and no cleverer."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.(\d{1,9}))?)?\s?(Z|[+-]\d\d(:?\d\d)?)?", re.IGNORECASE)
DAY = re.compile(r"\d{4}-\d\d-\d\d")
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")  # 007 is a name, not a number
_DIGITS = re.compile(r"-?\d+")
_PADDED = re.compile(r"-?0\d")
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|-?inf", re.IGNORECASE)
_UTC = "UTC"


MOST = 0.9
"""The share of a column's values that decides its type; the remaining values may be of other types, since streams have bad values."""


def type_of(values: Sequence[Any]) -> pa.DataType:
    """The type of Python values, as JSON and Avro give them."""
    given = [v for v in values if v is not None]
    for kind in (bool, (int, float), str, dict, list, dt.datetime, dt.date, Decimal, bytes, dt.time):
        some = [v for v in given if isinstance(v, kind) and (kind is bool or not isinstance(v, bool))]
        if given and len(some) >= MOST * len(given):
            return _type_of_kind(some)
    return pa.string()


def _type_of_kind(values: list[Any]) -> pa.DataType:
    match values[0]:
        case bool():
            return pa.bool_()
        case int() | float():
            if any(isinstance(v, float) for v in values):
                return pa.float64()
            return pa.int64() if all(-(1 << 63) <= v < 1 << 63 for v in values) else pa.string()
        case str():
            moments = [v for v in values if MOMENT.fullmatch(v)]
            return moment_type(moments) if len(moments) >= MOST * len(values) else pa.string()
        case dict():
            names = dict.fromkeys(str(name) for v in values for name in v)
            return pa.struct([(name, type_of([v.get(name) for v in values])) for name in names]) if names else pa.string()
        case list():
            return pa.list_(type_of([one for v in values for one in v]))
        case dt.datetime():
            return pa.timestamp("us", _UTC)
    return pa.array(values).type


def type_of_texts(texts: Sequence[str | None]) -> pa.DataType:
    """The type of a CSV field, by its texts."""
    found = [t.strip() for t in texts if t is not None]

    def mostly(right: Callable[[str], Any]) -> bool:
        return bool(found) and sum(bool(right(t)) for t in found) >= MOST * len(found)

    def plain(text: str) -> Any:
        return _NUMBER.fullmatch(text) and not _PADDED.match(text)

    # a few fractions among whole numbers, or times of day among days, are no bad values: the type has room for them
    fractions = any(plain(t) and not _DIGITS.fullmatch(t) for t in found)
    if mostly(_WHOLE.fullmatch) and not fractions:
        return pa.int64()
    if mostly(plain):
        return pa.float64()
    if mostly(lambda t: t.lower() in ("true", "false")):
        return pa.bool_()
    if mostly(lambda t: DAY.fullmatch(t) or MOMENT.fullmatch(t)):
        return moment_type(found) if any(map(MOMENT.fullmatch, found)) else pa.date32()
    return pa.string()


def moment_type(texts: Sequence[str]) -> pa.DataType:
    """Microseconds, or nanoseconds if any of these ISO times has them."""
    fine = any((m := MOMENT.fullmatch(t)) and len(m[3] or "") > 6 for t in texts)
    return pa.timestamp("ns" if fine else "us", _UTC)


def epoch_unit(values: Sequence[float]) -> str:
    """The unit of numbers that count time since 1970, judged by their size; empty if they are no times of 1973 and later."""
    middle = sorted(abs(v) for v in values)[len(values) // 2] if values else 0
    for unit, least in (("ns", 1e17), ("us", 1e14), ("ms", 1e11), ("s", 1e8)):
        if least <= middle < least * 1e3 * (90 if unit == "ns" else 1):
            return unit
    return ""
