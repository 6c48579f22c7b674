"""Times as sources write them: ISO text and numbers in the column's unit need nothing; a declared format is applied here."""

from __future__ import annotations

import datetime as dt
import re
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
_YEAR_1000 = -30_610_224_000
_CODES = re.compile("%[dmYyHMS]")
_ISO = ("2026-01-01", "2026-01-01 00:00:00", "2026-01-01T00:00:00")
Bad = npt.NDArray[np.bool_]


class TimeFormat:
    """Turns the values of a time column into counts of the column's unit."""

    def __init__(self, format_: str, unit: str) -> None:
        self._format = format_
        self._given = EPOCHS.get(format_, "")
        self._axis = TimeAxis("", unit)
        self._most = 1 << (31 if unit == "day" else 63)
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
            text = str(value).strip()
            number = Decimal(int(text, 16) if text[:2] in ("0x", "0X") else text)  # Arrow reads these, too
            return self._fits(round(number * _NANOS[self._given]))
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
        if not -self._most <= count < self._most:
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
            if not self._is_exact(values, moments):
                raise ValueError("one by one")
            return self._counted(moments.view(pa.int64()), 10**9)
        raise ValueError("one by one")

    def _is_exact(self, values: pa.Array, moments: pa.Array) -> bool:
        """Whether these are the times that the texts say. Arrow makes 2 March of 30 February, and 26 AD of the year 26."""
        if (first := pc.min(moments.view(pa.int64())).as_py()) is None or first < _YEAR_1000:
            return first is None
        if not _CODES.sub("", self._format).count("%"):  # only these can have become the first days of a month, or seconds of a minute
            odd = pc.less_equal(pc.day(moments), 3)
            if "%S" in self._format:
                odd = pc.or_(odd, pc.less_equal(pc.second(moments), 1))
            values, moments = values.filter(odd), moments.filter(odd)
        shown = pc.strftime(moments, format=self._format)
        values = values.cast(shown.type)
        return bool(shown.equals(values) or _bare(shown).equals(_bare(values)))

    def _counted(self, counts: pa.Array, nanos: int) -> pa.Array:
        if nanos >= self._axis.nanos:
            return pc.multiply_checked(counts, nanos // self._axis.nanos)
        step = self._axis.nanos // nanos
        down = pc.divide(counts, step)  # towards zero, but times before 1970 go down as well
        down = pc.if_else(pc.greater(pc.multiply(down, step), counts), pc.subtract(down, 1), down)
        if self._axis.unit == "day":
            down.cast(pa.int32())  # days are counted in so many bits
        return down


def _bare(texts: pa.Array) -> pa.Array:
    """Texts without the differences that are none to any parser: zeros before a number, and capitals."""
    return pc.replace_substring_regex(pc.utf8_lower(texts), r"(^|\D)0+(\d)", r"\1\2")
