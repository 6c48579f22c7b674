"""Rows as tuples of Python's values: `fetchall` and its kind."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]


def rows_of_batch(batch: pa.RecordBatch) -> Iterator[Row]:
    return zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
        return list(map(_interval, values)) if pa.types.is_interval(column.type) else values
    except (ValueError, OverflowError, ImportError):  # Python has no such value
        return list(map(_value, column))


def _interval(value: pa.MonthDayNano | None) -> Any:
    """As a timedelta, where that is the same: it has no months, and no nanoseconds."""
    if value is None or value.months or value.nanoseconds % 1000:
        return value
    return dt.timedelta(value.days, microseconds=value.nanoseconds // 1000)


def _value(scalar: pa.Scalar) -> Any:
    """For Python; a time that it has no date for as the number that it is, and what such a time is in as text."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, ImportError):
        number = getattr(scalar, "value", None)
        return number if isinstance(number, int) else repr(scalar.type)


class RowCursor:
    """A place in the rows of a result, for any thread: each row is given out once."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._rows = (row for batch in batches for row in rows_of_batch(batch))
        self._lock = threading.Lock()

    def take(self, most: int | None) -> list[Row]:
        """The next rows; with None, all that are left."""
        with self._lock:
            return list(islice(self._rows, most))
