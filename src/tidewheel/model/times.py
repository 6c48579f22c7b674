"""Time as int64 in a column's unit, UTC everywhere: what people write, turned into codes and back."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pyarrow as pa

from tidewheel.errors import QueryError
from tidewheel.model.dataclass import dataclass

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1

_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1, "day": 86_400 * 10**9}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WORDS = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "sec": 10**9, "second": 10**9, "min": 60 * 10**9, "minute": 60 * 10**9, "m": 60 * 10**9,
    "h": 3600 * 10**9, "hour": 3600 * 10**9, "d": 86_400 * 10**9, "day": 86_400 * 10**9, "week": 7 * 86_400 * 10**9,
    "w": 7 * 86_400 * 10**9,
}  # fmt: skip
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_DURATION = re.compile(r"\s*(\d+)\s*([a-zA-Z]+)\s*")

DATE_UNITS: dict[pa.DataType, str] = {pa.date32(): "day", pa.date64(): "ms"}


def parse_duration(text: str) -> int:
    """'1 hour', '30 s', '7 days' as nanoseconds. Raises ValueError with what is possible."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match:
        word = match[2].lower() if match[2] not in _WORDS else match[2]
        word = word if word in _WORDS else word.removesuffix("s")
        if word in _WORDS and int(match[1]) > 0:
            return int(match[1]) * _WORDS[word]
    raise ValueError(f"a duration looks like '1 hour', '15 minutes', '30 s' or '7 days', not {text!r}")


def parse_months(text: str) -> int | None:
    """'1 month', '3 months', '1 year' as months; None for anything else."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    months = _MONTHS.get(match[2].lower().removesuffix("s"), 0) if match else 0
    return int(match[1]) * months or None if match else None


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """A time column and its unit: s, ms, us, ns or day."""

    column: str
    unit: str

    @property
    def nanos(self) -> int:
        return _NANOS[self.unit]

    def width_of(self, nanoseconds: int) -> int:
        return nanoseconds // self.nanos

    def seconds(self, seconds: float) -> int:
        """A span of seconds in units of the column, rounded up; at most 2^62 of them."""
        return -(-int(min(seconds * 1e9, 4e18)) // self.nanos)

    def lower(self, value: Any) -> int:
        """The first code at or after `value`: the closed lower end of an interval. It may lie beyond int64."""
        return INT64_MIN if value is None else self._code(value, up=True)

    def upper(self, value: Any) -> int:
        """The last code at or before `value`: the closed upper end of an interval. It may lie beyond int64."""
        return INT64_MAX if value is None else self._code(value, up=False)

    def interval(self, lo: Any, hi: Any) -> tuple[int, int]:
        """A closed interval in codes that fit int64; (1, 0) if nothing can lie in it."""
        first, last = self.lower(lo), self.upper(hi)
        if first > last or first > INT64_MAX or last < INT64_MIN:
            return 1, 0
        return max(first, INT64_MIN), min(last, INT64_MAX)

    def _code(self, value: Any, *, up: bool) -> int:
        if type(value) is int:
            return value
        nanos = nanoseconds(value)
        if nanos is None:
            return int(value)
        return -(-nanos // self.nanos) if up else nanos // self.nanos

    def show(self, code: int) -> str:
        """A code as people read it."""
        if code == INT64_MIN:
            return "-∞"
        if code == INT64_MAX:
            return "+∞"
        try:
            micros, rest = divmod(code * self.nanos, 1000)
            text = (_EPOCH + dt.timedelta(microseconds=micros)).replace(tzinfo=None).isoformat(sep=" ")
        except OverflowError:
            return str(code)
        if self.unit == "day":
            return text[:10]
        return text if not rest else f"{text if '.' in text else text + '.000000'}{rest:03d}"


def nanoseconds(value: Any) -> int | None:
    """Exact nanoseconds since 1970 UTC of a datetime, date, ISO text or scalar of NumPy, pandas or Arrow; None for a whole number."""
    if isinstance(value, pa.Scalar):
        if pa.types.is_timestamp(value.type):
            return int(value.value) * _NANOS[value.type.unit]
        value = value.as_py()
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise QueryError(f"{value!r} is not a time; write ISO text like '2026-01-31 12:00:00' or give a datetime") from None
    if value is None or value != value:
        raise QueryError(f"{value!r} is not a time; None leaves an end open")
    if isinstance(value, dt.datetime):
        fine = getattr(value, "nanosecond", 0)  # a pandas Timestamp has what datetime cannot hold
        aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return (aware - _EPOCH) // dt.timedelta(microseconds=1) * 1000 + int(fine)
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days * _NANOS["day"]
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind == "M":
        whole = value.astype("datetime64[s]")
        return int(whole.astype("int64")) * 10**9 + int((value - whole).astype("timedelta64[ns]").astype("int64"))
    if kind in "iu" and kind or isinstance(value, int) and not isinstance(value, bool):
        return None
    raise QueryError(f"{value!r} is not a time; give a datetime, a date, ISO text, or an int in the column's unit")
