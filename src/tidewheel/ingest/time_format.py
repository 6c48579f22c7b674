"""Times as sources write them: ISO text and numbers in the column's unit need nothing; a declared format is applied here."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.ingest.rules import EPOCHS
from tidewheel.model.times import TimeAxis

_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ISO = ("2026-01-01", "2026-01-01 00:00:00", "2026-01-01T00:00:00")
Bad = npt.NDArray[np.bool_]


class TimeFormat:
    """Turns the values of a time column into counts of the column's unit."""

    def __init__(self, format_: str, unit: str) -> None:
        self._format = format_
        self._given = EPOCHS.get(format_, "")
        self._axis = TimeAxis("", unit)
        self.is_like_iso = any(map(self._has, _ISO))
        """Whether an ISO time may have this format and mean another day by it."""

    def column(self, values: pa.Array) -> tuple[pa.Array, Bad | None]:
        """The column as int64, null where a value does not have the format; and which those are."""
        try:
            return self._all(values), None
        except (pa.ArrowException, ValueError, OverflowError):
            pass
        counts: list[int | None] = []
        bad = np.zeros(len(values), dtype=bool)
        for i, value in enumerate(values.to_pylist()):
            try:
                counts.append(self.value(value))
            except (ValueError, OverflowError, ArithmeticError):
                bad[i] = True
                counts.append(None)
        return pa.array(counts, pa.int64()), bad

    def value(self, value: Any) -> int | None:
        """One value as a count. ValueError: it does not have the format."""
        if value is None:
            return None
        if isinstance(value, dt.datetime):
            moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        elif self._given:
            if isinstance(value, bool):
                raise ValueError("a truth value")
            return self._fits(round(Decimal(str(value).strip()) * _NANOS[self._given]))
        else:
            moment = dt.datetime.strptime(str(value).strip(), self._format)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        return self._fits((moment - _EPOCH) // dt.timedelta(microseconds=1) * 1000)

    def _has(self, text: str) -> bool:
        try:
            self.value(text)
        except (ValueError, ArithmeticError):
            return False
        return True

    def _fits(self, nanos: int) -> int:
        """The unit's count of so many nanoseconds; what is finer than the unit is cut, as clocks do."""
        count = nanos // self._axis.nanos
        if not -(1 << 63) <= count < 1 << 63:
            raise OverflowError(count)
        return count

    def _all(self, values: pa.Array) -> pa.Array:
        """All at once, if all are well."""
        type_ = values.type
        t = pa.types
        if t.is_null(type_):
            return pa.nulls(len(values), pa.int64())
        if self._given and (t.is_string(type_) or t.is_large_string(type_)):
            values = values.cast(pa.int64())
            type_ = values.type
        if self._given and t.is_integer(type_):
            return self._counted(values.cast(pa.int64()), _NANOS[self._given])
        if self._format and not self._given and (t.is_string(type_) or t.is_large_string(type_)):
            if any(code in self._format for code in ("%f", "%z", "%Z")):  # Arrow knows no fractions, and forgets zones
                raise ValueError("one by one")
            moments = pc.strptime(values, format=self._format, unit="s", error_is_null=False)
            return self._counted(moments.view(pa.int64()), 10**9)
        raise ValueError("one by one")

    def _counted(self, counts: pa.Array, nanos: int) -> pa.Array:
        if nanos >= self._axis.nanos:
            return pc.multiply_checked(counts, nanos // self._axis.nanos)
        step = self._axis.nanos // nanos
        down = pc.divide(counts, step)  # towards zero, but times before 1970 go down as well
        return pc.if_else(pc.greater(pc.multiply(down, step), counts), pc.subtract(down, 1), down)
