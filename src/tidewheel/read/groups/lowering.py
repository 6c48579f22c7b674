"""Keys and aggregates as the kernels take them: numbers of kinds and steps, in matrices of int64."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.dataclass import dataclass
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.read.groups.keys import (
    MICROSECONDS,
    MOMENT_UTC,
    MONTHS,
    TYPES,
    Arithmetic,
    Bucketed,
    Converted,
    Floored,
    Key,
    KeyStep,
    TimePart,
    Truncated,
    ends_of,
    type_after,
)

INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT32, FLOAT64, BOOL, TEXT, ANY = range(13)
"""Kinds of columns. ANY: its values are not looked at."""

(
    CHECK, FLOOR_DIVIDE, FLOOR_REST, MULTIPLY, ADD, QUOTIENT, REST, CALENDAR, FROM_MONTHS, FROM_NANOS, TO_REAL, CODE, FLOOR_REAL, ROUND,
    ADD_REAL, MULTIPLY_REAL, DIVIDE_REAL, FLOOR_WHOLE,
) = range(18)  # fmt: skip
"""Steps. CHECK: from a to b, or not sure. FLOOR_DIVIDE: (value - b) by a, rounded down; QUOTIENT rounds to 0. CALENDAR: part a of a day.
FLOOR_WHOLE: the floor of a float as a whole number, nearer to 0 than WHOLE_END; what is not finite has a number of its own behind that."""

WHOLE_END = 1 << 53
WHOLE_NAN = WHOLE_END + 1
"""The number of NaN; the infinite ones are the ends."""

PART_YEAR, PART_MONTH, PART_MONTHS, PART_QUARTER, PART_DAY, PART_DOY, PART_WEEK, PART_ISOYEAR, PART_YEARWEEK = range(9)
"""Parts of a day. PART_MONTHS: months since January of year 0."""

_KINDS = {
    "int8": INT8, "int16": INT16, "int32": INT32, "int64": INT64, "uint8": UINT8, "uint16": UINT16, "uint32": UINT32, "uint64": UINT64,
    "float": FLOAT32, "double": FLOAT64, "bool": BOOL, "string": TEXT, "binary": TEXT,
}  # fmt: skip

_DAY = MICROSECONDS["day"]
_FIRST_YEAR, _LAST_YEAR = -719_162 * _DAY, 2_932_897 * _DAY - 1
"""Microseconds of the years 1 to 9999."""
_GREGORIAN = -135_140 * _DAY
"""1600-01-01: before it, times with a zone are counted by another calendar."""
_ORIGIN = 10_959 * _DAY
"""2000-01-03, where time_bucket counts from; its months count from January 2000."""
_ORIGIN_MONTH = 2000 * 12

_WITHIN_DAY = {"hour": (_DAY, 3600 * 10**6), "minute": (3600 * 10**6, 60 * 10**6), "second": (60 * 10**6, 10**6),
               "millisecond": (60 * 10**6, 1000), "microsecond": (60 * 10**6, 1)}  # fmt: skip
_OF_DAY = {"year": PART_YEAR, "month": PART_MONTH, "quarter": PART_QUARTER, "day": PART_DAY, "doy": PART_DOY, "week": PART_WEEK,
           "isoyear": PART_ISOYEAR, "yearweek": PART_YEARWEEK}  # fmt: skip

Numbers = npt.NDArray[np.int64]
KernelStep = tuple[int, int, int]


def kind_of(type_: pa.DataType) -> int:
    """The kind of a column. What keys cannot be made of, has none but ANY."""
    if pa.types.is_timestamp(type_):
        return INT64
    return INT32 if pa.types.is_date32(type_) else _KINDS.get(str(type_), ANY)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What numbers of a kernel stand for: (number) * width + origin, of months if it says so."""

    width: int
    origin: int
    months: bool
    days: bool
    """It is a date, and not a time."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A key as kernels see it."""

    kind: int
    steps: tuple[KernelStep, ...]
    rises: bool
    """Rises with the value of the column: what both ends come to, all between them come to."""
    real: bool
    """Its numbers are bits of floats, before CODE."""
    pending: Unfinished | None
    whole: bool = False
    """Its numbers are whole ones that floats have been rounded to: near each other if those are."""

    def decoded(self, numbers: Numbers) -> Numbers:
        """The values that numbers of the kernel stand for."""
        if self.whole:
            return _codes(numbers)
        if (late := self.pending) is None:
            return numbers
        values: Numbers = numbers * late.width + late.origin
        if late.months:
            values = (values - 1970 * 12).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
            if not late.days:
                values *= _DAY
        return values


def _codes(wholes: Numbers) -> Numbers:
    """Floats by their whole numbers, as their bits in their order."""
    floats = wholes.astype(np.float64)
    floats[wholes == WHOLE_END] = np.inf
    floats[wholes == -WHOLE_END] = -np.inf
    bits = floats.view(np.int64)
    codes: Numbers = np.where(bits >= 0, bits, bits ^ INT64_MAX)
    codes[wholes == WHOLE_NAN] = INT64_MAX
    return codes


def lowered(key: Key, schema: pa.Schema, late: bool = False) -> Lowered:
    """A key that has a type, as kernels see it. With `late`, what its last step would only multiply, or make a float of, is left to
    `decoded`."""
    type_ = schema.field(key.column).type
    made = _Program(kind_of(type_))
    for step in key.steps:
        made.settle()
        made.take(step, type_)
        after = type_after(step, type_)
        assert after is not None
        type_ = after
    whole = late and bool(made.steps) and made.steps[-1][0] == FLOOR_REAL
    if whole:
        made.steps[-1] = (FLOOR_WHOLE, 0, 0)
    if not late:
        made.settle()
    return Lowered(made.kind, tuple(made.steps), made.rises, pa.types.is_floating(type_), made.pending, whole)


class _Program:
    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.steps: list[KernelStep] = []
        self.rises = kind not in (FLOAT32, FLOAT64, BOOL, TEXT)
        self.pending: Unfinished | None = None

    def add(self, what: int, a: int = 0, b: int = 0) -> None:
        self.steps.append((what, a, b))

    def settle(self) -> None:
        """Make steps of what is pending."""
        late, self.pending = self.pending, None
        if late is None:
            return
        if late.width != 1:
            self.add(MULTIPLY, late.width)
        if late.origin:
            self.add(ADD, late.origin)
        if late.months:
            self.add(FROM_MONTHS)
            if not late.days:
                self.add(MULTIPLY, _DAY)

    def take(self, step: KeyStep, type_: pa.DataType) -> None:
        match step:
            case Truncated(unit):
                self._to_microseconds(type_)
                origin = -3 * _DAY if unit == "week" else 0
                self._bucket(MONTHS.get(unit, 0), MICROSECONDS.get(unit, 0), origin, 0, False)
            case Bucketed(months, microseconds) if pa.types.is_date32(type_):
                self.add(CHECK, _FIRST_YEAR // _DAY, _LAST_YEAR // _DAY)
                self._bucket(months, microseconds // _DAY, _ORIGIN // _DAY, _ORIGIN_MONTH, True)
            case Bucketed(months, microseconds):
                self._to_microseconds(type_)
                self._bucket(months, microseconds, _ORIGIN, _ORIGIN_MONTH, False)
            case TimePart(name):
                self._to_microseconds(type_)
                self._part(name)
            case Floored():
                if pa.types.is_integer(type_):
                    self.add(TO_REAL)
                self.add(FLOOR_REAL)
            case Arithmetic():
                self._calculate(step, type_)
            case Converted(to):
                self._convert(type_, TYPES[to])

    def _to_microseconds(self, type_: pa.DataType) -> None:
        if pa.types.is_date32(type_):
            self.add(CHECK, _FIRST_YEAR // _DAY, _LAST_YEAR // _DAY)
            self.add(MULTIPLY, _DAY)
        elif type_.unit == "ns":
            self.add(CHECK, INT64_MIN + 500, INT64_MAX - 500)
            self.add(FROM_NANOS)
        else:
            scale = {"s": 10**6, "ms": 1000, "us": 1}[type_.unit]
            first = _GREGORIAN if type_ == MOMENT_UTC else _FIRST_YEAR
            self.add(CHECK, first // scale, _LAST_YEAR // scale)
            if scale != 1:
                self.add(MULTIPLY, scale)

    def _bucket(self, months: int, width: int, origin: int, origin_month: int, days: bool) -> None:
        if months:
            if not days:
                self.add(FLOOR_DIVIDE, _DAY)
            self.add(CALENDAR, PART_MONTHS)
            width, origin = months, origin_month % months
        if width != 1:
            self.add(FLOOR_DIVIDE, width, origin)
        else:
            origin = 0
        self.pending = Unfinished(width, origin, bool(months), days)

    def _part(self, name: str) -> None:
        self.rises = self.rises and name in ("year", "isoyear", "yearweek")
        if name in _WITHIN_DAY:
            whole, width = _WITHIN_DAY[name]
            self.add(FLOOR_REST, whole)
            if width != 1:
                self.add(FLOOR_DIVIDE, width)
            return
        self.add(FLOOR_DIVIDE, _DAY)
        if name == "dow":  # 1970 began with a Thursday
            self.add(ADD, 4)
            self.add(FLOOR_REST, 7)
        elif name == "isodow":
            self.add(ADD, 3)
            self.add(FLOOR_REST, 7)
            self.add(ADD, 1)
        else:
            self.add(CALENDAR, _OF_DAY[name])

    def _calculate(self, step: Arithmetic, type_: pa.DataType) -> None:
        sign, number = step.sign, step.number
        if sign == "/" or pa.types.is_floating(type_):
            if pa.types.is_integer(type_):
                self.add(TO_REAL)
            real = float(-number if sign == "-" else number)
            what = {"+": ADD_REAL, "-": ADD_REAL, "*": MULTIPLY_REAL, "/": DIVIDE_REAL}[sign]
            self.rises = self.rises and (what == ADD_REAL or real > 0)
            self.add(what, struct.unpack("q", struct.pack("d", real))[0])
            return
        assert isinstance(number, int)
        least, greatest = ends_of(type_after(step, type_))
        match sign:
            case "//":
                self.add(QUOTIENT, number)
            case "%":
                self.rises = False
                self.add(REST, number)
            case "*":
                if number:
                    ends = sorted((-(-least // number), greatest // number) if number > 0 else (-(-greatest // number), least // number))
                    self._check(*ends)
                self.rises = self.rises and number > 0
                self.add(MULTIPLY, number)
            case _:
                more = -number if sign == "-" else number
                self._check(least - more, greatest - more)
                self.add(ADD, more)

    def _check(self, least: int, greatest: int) -> None:
        self.add(CHECK, max(least, INT64_MIN), min(greatest, INT64_MAX))

    def _convert(self, type_: pa.DataType, to: pa.DataType) -> None:
        t = pa.types
        if t.is_float64(to):
            if t.is_integer(type_):
                self.add(TO_REAL)
        elif t.is_date32(to):
            if not t.is_date32(type_):
                self._to_microseconds(type_)
                self.add(FLOOR_DIVIDE, _DAY)
        elif t.is_timestamp(to):
            self._to_microseconds(type_)
        elif t.is_floating(type_):
            least, greatest = ends_of(to)
            self.add(ROUND, least + 1, greatest - 1)  # what lies near the ends is left to DuckDB
        elif t.is_integer(type_) and not (ends_of(to)[0] <= ends_of(type_)[0] and ends_of(type_)[1] <= ends_of(to)[1]):
            self._check(*ends_of(to))
