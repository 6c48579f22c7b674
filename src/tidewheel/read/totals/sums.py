"""Totals of rows: accumulated batch by batch or part by part, in any order, and returned as one row.

Values are compared as DuckDB does it: text by its bytes, NaN greater than every number. Sums of whole numbers never wrap.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tidewheel.errors import QueryError
from tidewheel.model.loading import pc
from tidewheel.model.plain_values import array_of
from tidewheel.read.totals.folds import folds_of
from tidewheel.read.totals.parse import AVG, COUNT, MAX, MIN, ROWS, SUM, Total, part_name, parts_of, type_of, written


@dataclass(slots=True)
class ColumnTotals:
    """Count, sum and ends of the values of one column, as far as they are wanted. Times are whole numbers here."""

    count: int = 0
    total: Any = None
    """None: there is no value, and so no sum. Likewise the ends."""
    least: Any = None
    greatest: Any = None

    def add(self, other: ColumnTotals) -> None:
        self.count += other.count
        if other.total is not None:
            self.total = other.total if self.total is None else self.total + other.total
        if other.least is not None and (self.least is None or _before(other.least, self.least)):
            self.least = other.least
        if other.greatest is not None and (self.greatest is None or _before(self.greatest, other.greatest)):
            self.greatest = other.greatest


def _before(a: Any, b: Any) -> bool:
    return bool(a < b or b != b and a == a)


class Totals:
    """Totals by their names, over rows of a schema. Nothing in it changes."""

    in_place = False

    def __init__(self, asked: Mapping[str, Total], schema: pa.Schema) -> None:
        """All of them have a type: see `type_of`."""
        self.schema = pa.schema([pa.field(name, type_of(total, schema)) for name, total in asked.items()])
        self.types: list[pa.DataType] = self.schema.types
        self.forms = [_form(type_) for type_ in self.types]
        """Formats of the values in memory, as `struct` has them; empty: Arrow knows."""
        self.asked = [_plainest(total, schema) for total in asked.values()]
        self.wants: dict[str, set[str]] = {}
        """Functions to be known of each column that is read."""
        for total in self.asked:
            if total.what != ROWS:
                self.wants.setdefault(total.column, set()).add(total.what)
        self.expressions = {name: written(total) for name, total in zip(self.schema.names, self.asked, strict=True)}
        """Expressions by which a table is asked for them."""
        self.parts = parts_of(self.asked)
        """Expressions to ask of the parts of a table: `Sums.add_part` takes their answers."""
        self.folds = folds_of(self.wants, schema)
        """Folds that make the totals of values in place, without copying rows; None where a total cannot be made so."""

    @property
    def reads(self) -> list[str]:
        return list(self.wants)

    def run(self, batches: Iterable[pa.RecordBatch], *_: Any) -> pa.Table:
        """The totals of all these rows."""
        sums = Sums(self)
        for batch in batches:
            sums.add(batch)
        return pa.Table.from_batches([sums.answer()])


def _plainest(total: Total, schema: pa.Schema) -> Total:
    """The cheapest total that means the same: where no value can be null, rows are counted."""
    never = total.what == COUNT and not schema.field(total.column).nullable
    return replace(total, what=ROWS, column="") if never else total


@dataclass(slots=True)
class Sums:
    """Totals of the rows that were added so far."""

    of: Totals
    rows: int = 0
    values: dict[str, ColumnTotals] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch, which has at least the columns of `Totals.wants`."""
        self.rows += batch.num_rows
        for column, wants in self.of.wants.items():
            self.add_values(column, _values(batch.column(column), wants))

    def add_values(self, column: str, values: ColumnTotals) -> None:
        if (known := self.values.get(column)) is None:
            self.values[column] = values
        else:
            known.add(values)

    def join(self, other: Sums) -> None:
        """Add those of other rows."""
        self.rows += other.rows
        for column, values in other.values.items():
            self.add_values(column, values)

    def add_part(self, answer: pa.RecordBatch) -> None:
        """Add the totals of a part of the rows: a row of `Totals.parts`."""
        told = {name: _told(array[0]) for name, array in zip(answer.schema.names, answer.columns, strict=True)}
        self.rows += told.get(part_name(ROWS, ""), 0)
        for column in self.of.wants:
            count, total, least, greatest = (told.get(part_name(what, column)) for what in (COUNT, SUM, MIN, MAX))
            self.add_values(column, ColumnTotals(count or 0, total, least, greatest))

    def answer(self) -> pa.RecordBatch:
        """The totals, as one row."""
        of = self.of
        values = [self._value(total, type_) for total, type_ in zip(of.asked, of.types, strict=True)]
        arrays = [_one(value, type_, form) for value, type_, form in zip(values, of.types, of.forms, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=of.schema)

    def _value(self, total: Total, type_: pa.DataType) -> Any:
        values = self.values.get(total.column, _NOTHING)
        match total.what:
            case "count(*)":
                return self.rows
            case "count":
                return values.count
            case "min":
                return values.least
            case "max":
                return values.greatest
        if values.total is None:
            return None
        if total.what == AVG:
            return _double(values.total) / values.count
        return _sum(values.total, type_)


_NOTHING = ColumnTotals()

_FORMS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "double": "d"}


def _form(type_: pa.DataType) -> str:
    return "q" if pa.types.is_timestamp(type_) else "i" if pa.types.is_date32(type_) else _FORMS.get(str(type_), "")


def _one(value: Any, type_: pa.DataType, form: str) -> pa.Array:
    """An array of one value. For plain ones there is a shorter way than to let Arrow find out what they are."""
    if value is None:
        return pa.nulls(1, type_)
    if not form:
        return array_of((value,), type_)
    return pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(struct.pack(form, value))])


def _sum(total: int | float, type_: pa.DataType) -> Any:
    if type_ == pa.int64():
        if not -(1 << 63) <= total < 1 << 63:
            raise QueryError(f"the sum {total} is too large for a BIGINT; leave out the cast, or make it one to DOUBLE")
        return total
    return _double(total) if type_ == pa.float64() else Decimal(total)


def _double(total: int | float) -> float:
    """A sum as a float. Of whole numbers beyond 2^53 it is the one that DuckDB takes, which is not always the nearest."""
    if isinstance(total, float):
        return total
    high, low = total >> 64, total & 0xFFFFFFFFFFFFFFFF
    if high == -1:
        return -float(0xFFFFFFFFFFFFFFFF - low) - 1.0
    return float(low) + float(high) * 2.0**64


def _told(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if pa.types.is_temporal(value.type):
        return value.value
    return int(value.as_py()) if pa.types.is_decimal(value.type) else value.as_py()


# ---- of an Arrow array ----------------------------------------------------------------------------------------


def _values(array: pa.Array, wants: set[str]) -> ColumnTotals:
    count = len(array) - array.null_count
    if not count:
        return ColumnTotals()
    found = ColumnTotals(count)
    if SUM in wants or AVG in wants:
        found.total = _added_up(array)
    if MIN in wants or MAX in wants:
        found.least, found.greatest = _ends(array)
    return found


def _added_up(array: pa.Array) -> int | float:
    if pa.types.is_floating(array.type):
        return float(pc.sum(array).as_py()) + 0.0  # from 0.0 on, as every sum: that of -0.0 is 0.0
    if array.type.bit_width < 64:
        return int(pc.sum(array).as_py())
    values = array.drop_null().to_numpy(zero_copy_only=False)
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _ends(array: pa.Array) -> tuple[Any, Any]:
    if pa.types.is_floating(array.type) and (nan := pc.is_nan(array)).true_count:
        rest = pc.min_max(array.filter(pc.invert(nan)))["min"].as_py()
        return math.nan if rest is None else rest, math.nan
    ends = pc.min_max(array)
    return _told(ends["min"]), _told(ends["max"])
