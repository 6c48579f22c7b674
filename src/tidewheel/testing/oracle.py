"""The oracle: a table so slow and obvious that it can be believed. A list of rows in Python values, searched from end to end.

It shares no code with the engine: keys are compared as Python compares them, never by codes. Times, dates and durations
are whole numbers of their unit here, because Python has no value for nanoseconds or the year 290,000.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from tidewheel.model.schema import ColumnKey, Epoch, Ip, KeyRule, ZOrder

Where = Callable[[dict[str, Any]], bool | None]

NEVER = 1 << 62
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1, "day": 86_400 * 10**9}


@dataclass(slots=True)
class OracleRow:
    """One row, the generation that brought it and the one that took it away."""

    values: dict[str, Any]
    key: Any
    time: int
    born: int
    died: int = NEVER


@dataclass
class OracleTable:
    schema: pa.Schema
    time: str | Epoch
    key: str | KeyRule
    rows: list[OracleRow] = field(default_factory=list)
    generation: int = 0

    def __post_init__(self) -> None:
        self.rule: KeyRule = ColumnKey(self.key) if isinstance(self.key, str) else self.key
        self.time_column = self.time.column if isinstance(self.time, Epoch) else self.time
        type_ = self.schema.field(self.time_column).type
        self.unit = self.time.unit if isinstance(self.time, Epoch) else _unit(type_)

    # ---- writing ----------------------------------------------------------------------------------------

    def insert(self, data: pa.RecordBatch | pa.Table) -> int:
        """Returns the oracle's generation after it."""
        self.generation += 1
        for values in rows_of(data):
            self.rows.append(OracleRow(values, self._key_of(values), values[self.time_column], self.generation))
        return self.generation

    def replace(self, data: pa.RecordBatch | pa.Table, time: tuple[Any, Any]) -> int:
        lo, hi = (None if t is None else moment(t, self.unit) for t in time)
        for row in self.rows:
            if row.died == NEVER and _between(row.time, lo, hi):
                row.died = self.generation + 1
        return self.insert(data)

    # ---- asking -----------------------------------------------------------------------------------------

    def query(
        self,
        *,
        key: tuple[Any, Any] | None = None,
        box: Sequence[Any] | None = None,
        time: tuple[Any, Any] | None = None,
        ranges: Mapping[str, tuple[Any, Any]] | None = None,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        order_by: Sequence[tuple[str, bool]] = (),
        limit: int | None = None,
        at: int | None = None,
    ) -> list[dict[str, Any]]:
        """All matching rows. `order_by` are (column, descending) pairs; `at` asks for the rows of an earlier generation."""
        now = self.generation if at is None else at
        lo, hi = (None, None) if key is None else (None if k is None else self.bound(k) for k in key)
        t0, t1 = (None, None) if time is None else (None if t is None else moment(t, self.unit) for t in time)
        found = []
        for row in self.rows:
            if not row.born <= now < row.died or not _between(row.time, t0, t1):
                continue
            if box is not None and not _in_box(row.key, box):
                continue
            if key is not None and not _between(row.key, lo, hi):
                continue
            if not all(self._in_range(row.values[column], column, *ends) for column, ends in (ranges or {}).items()):
                continue
            if where is None or where(row.values):
                found.append(row.values)
        for column, descending in reversed(order_by):
            found = in_order(found, column, descending)
        if columns is not None:
            found = [{c: row[c] for c in columns} for row in found]
        return found if limit is None else found[:limit]

    def count(self, at: int | None = None) -> int:
        now = self.generation if at is None else at
        return sum(row.born <= now < row.died for row in self.rows)

    def _in_range(self, value: Any, column: str, lo: Any, hi: Any) -> bool:
        """Null and NaN lie in no range, but in one that is open on both sides."""
        if lo is None and hi is None:
            return True
        if value is None or value != value:
            return False
        if isinstance(self.rule, Ip) and column == self.rule.column:
            value, lo, hi = (None if one is None else address(one) for one in (value, lo, hi))
        type_ = value_type(self.schema.field(column).type)
        if column == self.time_column or pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            unit = self.unit if column == self.time_column else _unit(type_)
            return _between(value, *(None if one is None else moment(one, unit) for one in (lo, hi)))
        return _between(natural(value), natural(lo), natural(hi))

    # ---- keys -------------------------------------------------------------------------------------------

    def _key_of(self, values: dict[str, Any]) -> Any:
        match self.rule:
            case ZOrder(columns=columns):
                return tuple(values[c] for c in columns)
            case Ip(column=column):
                return address(values[column])
            case ColumnKey(column=column):
                return natural(values[column])
        raise AssertionError(self.rule)

    def bound(self, value: Any) -> Any:
        """A query's bound as it compares with keys."""
        if isinstance(self.rule, Ip):
            return address(value)
        assert isinstance(self.rule, ColumnKey)
        type_ = value_type(self.schema.field(self.rule.column).type)
        if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            return moment(value, _unit(type_))
        if pa.types.is_temporal(type_):
            return value if isinstance(value, int) else plain(pa.array([value], type_))[0]
        return natural(value)


# ---- values ---------------------------------------------------------------------------------------------


def natural(value: Any) -> Any:
    """A value as Python orders it: text by its UTF-8 bytes."""
    return value.encode() if isinstance(value, str) else value


def address(text: str) -> tuple[int, int]:
    found = ipaddress.ip_address(text)
    return found.version, int(found)


def moment(value: Any, unit: str) -> int | Fraction:
    """A time, exactly, in units."""
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if isinstance(value, dt.datetime):
        value = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        micros = (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        return Fraction(micros * 1000, _NANOS[unit])
    if isinstance(value, dt.date):
        return Fraction((value - dt.date(1970, 1, 1)).days * _NANOS["day"], _NANOS[unit])
    raise TypeError(f"{value!r} is no time")


def _unit(type_: pa.DataType) -> str:
    if pa.types.is_timestamp(type_):
        return str(type_.unit)
    return "day" if type_ == pa.date32() else "ms"


def _between(value: Any, lo: Any, hi: Any) -> bool:
    return (lo is None or bool(value >= lo)) and (hi is None or bool(value <= hi))


def _in_box(point: tuple[Any, ...], box: Sequence[Any]) -> bool:
    dims = len(point)
    # through fractions: Python compares int and float exactly, and so do we
    return all(_between(x, box[d], box[dims + d]) for d, x in enumerate(point))


def value_type(type_: pa.DataType) -> pa.DataType:
    if isinstance(type_, pa.BaseExtensionType):
        return value_type(type_.storage_type)
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def rows_of(data: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts of plain values."""
    batches = data.to_batches() if isinstance(data, pa.Table) else [data]
    out: list[dict[str, Any]] = []
    for batch in batches:
        if not batch.num_columns:
            out += [{} for _ in range(batch.num_rows)]
            continue
        names = batch.schema.names
        out += [dict(zip(names, row, strict=True)) for row in zip(*(plain(c) for c in batch.columns), strict=True)]
    return out


def plain(array: pa.Array) -> list[Any]:
    """The values of an array: temporal ones as whole numbers, extension and dictionary types as what they stand for."""
    t, type_ = pa.types, array.type
    if isinstance(type_, pa.BaseExtensionType):
        return plain(array.storage)
    if t.is_dictionary(type_):
        values = plain(array.dictionary)
        return [None if i is None else values[i] for i in array.indices.to_pylist()]
    if t.is_run_end_encoded(type_) or t.is_nested(type_) or t.is_temporal(type_):
        return [_plain_scalar(scalar) for scalar in array]
    return list(array.to_pylist())


def _plain_scalar(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    t, type_ = pa.types, scalar.type
    if isinstance(type_, pa.BaseExtensionType) or t.is_dictionary(type_) or t.is_run_end_encoded(type_):
        inner = scalar.value
        return _plain_scalar(inner) if isinstance(inner, pa.Scalar) else inner
    if t.is_struct(type_):
        return {type_.field(i).name: _plain_scalar(scalar[i]) for i in range(type_.num_fields)}
    if t.is_nested(type_):
        return plain(scalar.values) if hasattr(scalar, "values") else scalar.as_py()
    if t.is_temporal(type_) and not t.is_interval(type_):
        return scalar.value
    return scalar.as_py()


# ---- comparing ------------------------------------------------------------------------------------------


def frozen(value: Any) -> Any:
    """A value that equals another only if they are the same: NaN equals NaN, -0.0 is not 0.0, 1 is not True."""
    match value:
        case bool():
            return ("bool", value)
        case float():
            return "NaN" if math.isnan(value) else (value, math.copysign(1.0, value))
        case list() | tuple():
            return tuple(frozen(v) for v in value)
        case dict():
            return tuple((k, frozen(v)) for k, v in value.items())
        case Decimal():
            return ("decimal", str(value))
    return value


def in_order(rows: list[dict[str, Any]], column: str, descending: bool) -> list[dict[str, Any]]:
    """Sorted by one column, stable, NaN after numbers and nulls last either way."""
    numbers = [r for r in rows if r[column] is not None and r[column] == r[column]]
    nans = [r for r in rows if r[column] is not None and r[column] != r[column]]
    nulls = [r for r in rows if r[column] is None]
    return sorted(numbers, key=lambda r: natural(r[column]), reverse=descending) + nans + nulls


def same_rows(result: pa.Table | pa.RecordBatch | list[pa.RecordBatch], expected: list[dict[str, Any]]) -> None:
    """Raise an AssertionError that shows what is missing and what is too much, unless both hold the same rows."""
    parts = result if isinstance(result, list) else [result]
    found = [row for part in parts for row in rows_of(part)]
    have = Counter(frozen(row) for row in found)
    want = Counter(frozen(row) for row in expected)
    if have != want:
        raise AssertionError(difference(have, want))


def difference(have: Counter[Any], want: Counter[Any]) -> str:
    missing, extra = want - have, have - want
    lines = [f"{have.total()} rows, expected {want.total()}: {missing.total()} missing, {extra.total()} too many"]
    for title, rows in (("missing", missing), ("too many", extra)):
        for row, times in list(rows.items())[:8]:
            lines.append(f"  {title}{f' ×{times}' if times > 1 else ''}: {dict(row)}")
    return "\n".join(lines)
