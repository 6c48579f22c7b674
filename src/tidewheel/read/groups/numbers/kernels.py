"""Kernels that bring the values of a block into one form, 64 bits each, and take them through the steps of a key.

Whole numbers are themselves (those of 64 bits without a sign count from 2^63), floats are their bits, booleans are 0 and 1. A step that
meets a value it is not sure about says so: the query is then begun again by somebody who is.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import view
from tidewheel.model.pieces import BIT_OFFSET, VALIDITY, VALUES
from tidewheel.read.groups.group_layout import COLUMN, KIND
from tidewheel.read.groups.lowering import (
    ADD,
    ADD_REAL,
    BOOL,
    CALENDAR,
    CHECK,
    CODE,
    DIVIDE_REAL,
    FLOAT32,
    FLOAT64,
    FLOOR_DIVIDE,
    FLOOR_REAL,
    FLOOR_REST,
    FLOOR_WHOLE,
    FROM_MONTHS,
    FROM_NANOS,
    INT8,
    INT16,
    INT32,
    MULTIPLY,
    MULTIPLY_REAL,
    PART_DAY,
    PART_DOY,
    PART_ISOYEAR,
    PART_MONTH,
    PART_MONTHS,
    PART_QUARTER,
    PART_WEEK,
    PART_YEAR,
    QUOTIENT,
    REST,
    ROUND,
    TO_REAL,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    WHOLE_END,
    WHOLE_NAN,
)

_MOST = np.int64(9223372036854775807)
_LEAST = np.int64(-9223372036854775808)
_NAN = np.int64(9223372036854775807)
"""The number of NaN: above those of all floats."""


@nb.njit(inline="always")
def _bring_whole(source, dtype, size, straight, first, places, n, out):
    if straight:
        some = view(source + size * first, n, dtype)  # from there on: an index that may be negative is looked at for each row
        for i in range(n):
            out[i] = np.int64(some[i])
    else:
        values = view(source, _MOST, dtype)
        for i in range(n):
            out[i] = np.int64(values[places[i]])


@kernel("void(int64, int64, int64, int64, int64, uint32[::1], int64, int64[::1])")
def bring(source, bit_offset, kind, straight, first, places, n, out):
    """The values of n rows: those from `first` on, or those with the numbers in `places`."""
    if kind == FLOAT64:
        _bring_whole(source, np.int64, 8, straight, first, places, n, out)
    elif kind == FLOAT32:
        reals = out.view(np.float64)
        if straight:
            some = view(source + 4 * first, n, np.float32)
            for i in range(n):
                reals[i] = np.float64(some[i])
        else:
            narrow = view(source, _MOST, np.float32)
            for i in range(n):
                reals[i] = np.float64(narrow[places[i]])
    elif kind == INT32:
        _bring_whole(source, np.int32, 4, straight, first, places, n, out)
    elif kind == INT16:
        _bring_whole(source, np.int16, 2, straight, first, places, n, out)
    elif kind == INT8:
        _bring_whole(source, np.int8, 1, straight, first, places, n, out)
    elif kind == UINT8:
        _bring_whole(source, np.uint8, 1, straight, first, places, n, out)
    elif kind == UINT16:
        _bring_whole(source, np.uint16, 2, straight, first, places, n, out)
    elif kind == UINT32:
        _bring_whole(source, np.uint32, 4, straight, first, places, n, out)
    elif kind == BOOL:
        bits = view(source, _MOST, np.uint8)
        for i in range(n):
            p = np.uint64(bit_offset + (first + i if straight else np.int64(places[i])))
            out[i] = np.int64((bits[p >> np.uint64(3)] >> np.uint8(p & np.uint64(7))) & np.uint8(1))
    else:
        _bring_whole(source, np.int64, 8, straight, first, places, n, out)
        if kind == UINT64:
            for i in range(n):
                out[i] ^= _LEAST


@kernel("int64(int64, int64, int64, int64, uint32[::1], int64, uint8[::1])")
def mark_nulls(validity, bit_offset, straight, first, places, n, nulls):
    """Which of n rows are null. Returns how many."""
    bits = view(validity, _MOST, np.uint8)
    count = np.int64(0)
    for i in range(n):
        p = np.uint64(bit_offset + (first + i if straight else np.int64(places[i])))
        null = np.uint8(1) ^ ((bits[p >> np.uint64(3)] >> np.uint8(p & np.uint64(7))) & np.uint8(1))
        nulls[i] = null
        count += np.int64(null)
    return count


@nb.njit(inline="always")
def nulls_of(row, column, straight, first, places, n, nulls):
    """The same of a column, which may have none."""
    if row[column + VALIDITY] == 0:
        return np.int64(0)
    return mark_nulls(row[column + VALIDITY], row[column + BIT_OFFSET], straight, first, places, n, nulls)


@nb.njit(inline="always")
def bring_value(row, value, straight, first, places, n, out):
    """The values of n rows of a column: see `bring`."""
    column = value[COLUMN]
    bring(row[column + VALUES], row[column + BIT_OFFSET], value[KIND], straight, first, places, n, out)


@kernel("void(int64[::1], int64, int64[::1])")
def ends(values, n, out):
    """The least and the greatest of n numbers, at least one."""
    least = values[0]
    greatest = values[0]
    for i in range(n):
        v = values[i]
        least = min(least, v)
        greatest = max(greatest, v)
    out[0] = least
    out[1] = greatest


@kernel("void(int64[::1], int64, int64[::1])")
def codes(bits, n, out):
    """Numbers of floats, in their order: one for both zeros, and one for all NaN."""
    reals = bits.view(np.float64)
    for i in range(n):
        b = bits[i]
        code = b ^ ((b >> np.int64(63)) & _MOST)
        code = np.int64(0) if reals[i] == 0.0 else code
        out[i] = _NAN if reals[i] != reals[i] else code


@nb.njit(inline="always")
def _divide_all(values, n, width, origin):
    """The floor of (each value - origin) by a positive width: mostly by a multiplication, for a division takes ten times as long.

    A float half way between two whole numbers, times 1 / width, is never so near to the next quotient that its rounding matters.
    """
    least = values[0]
    greatest = values[0]
    for i in range(n):
        v = values[i]
        least = min(least, v)
        greatest = max(greatest, v)
    base = (least - origin) // width
    top = (greatest - origin) // width
    start = base * width + origin
    if base == top:
        for i in range(n):
            values[i] = base
        return
    if top == base + 1:
        border = start + width
        for i in range(n):
            values[i] = base + np.int64(values[i] >= border)
        return
    span = greatest - start
    if span < 0 or span >= np.int64(1) << np.int64(48):
        for i in range(n):
            values[i] = (values[i] - origin) // width
        return
    shift = np.int64(0)
    while (width >> shift) & 1 == 0:
        shift += 1
    if span >> shift < np.int64(1) << np.int64(31):
        scale = 1.0 / np.float64(width >> shift)
        for i in range(n):
            d = np.int32((values[i] - start) >> shift)
            values[i] = base + np.int64(np.int32((np.float64(d) + 0.5) * scale))
        return
    scale = 1.0 / np.float64(width)
    for i in range(n):
        values[i] = base + np.int64((np.float64(values[i] - start) + 0.5) * scale)


@nb.njit(inline="always")
def _year_and_day(days):
    """The year that begins in March, and the day in it, of days since 1970."""
    z = days + np.int64(719468)
    era = z // np.int64(146097)
    of_era = z - era * np.int64(146097)
    year = (of_era - of_era // np.int64(1460) + of_era // np.int64(36524) - of_era // np.int64(146096)) // np.int64(365)
    day = of_era - (np.int64(365) * year + year // np.int64(4) - year // np.int64(100))
    return year + era * np.int64(400), day


@nb.njit(inline="always")
def first_day(months):
    """Days from 1970-01-01 to the first day of a month, counted from January of year 0."""
    year = months // np.int64(12)
    month = months - year * np.int64(12)
    y = year - np.int64(month < 2)
    shifted = month + np.int64(10) if month < 2 else month - np.int64(2)
    era = y // np.int64(400)
    of_era = y - era * np.int64(400)
    day = (np.int64(153) * shifted + np.int64(2)) // np.int64(5)
    return era * np.int64(146097) + of_era * np.int64(365) + of_era // np.int64(4) - of_era // np.int64(100) + day - np.int64(719468)


@nb.njit(inline="always")
def _calendar(days, part):
    year, day = _year_and_day(days)
    shifted = (np.int64(5) * day + np.int64(2)) // np.int64(153)
    month = shifted + np.int64(3) if shifted < 10 else shifted - np.int64(9)
    year += np.int64(month <= 2)
    if part == PART_YEAR:
        return year
    if part == PART_MONTH:
        return month
    if part == PART_MONTHS:
        return year * np.int64(12) + month - np.int64(1)
    if part == PART_QUARTER:
        return (month - np.int64(1)) // np.int64(3) + np.int64(1)
    if part == PART_DAY:
        return day - (np.int64(153) * shifted + np.int64(2)) // np.int64(5) + np.int64(1)
    if part == PART_DOY:
        return days - first_day(year * np.int64(12)) + np.int64(1)
    # of ISO: the week belongs to the year that its Thursday is in
    thursday = days - (days + np.int64(3)) % np.int64(7) + np.int64(3)
    y, d = _year_and_day(thursday)
    y += np.int64(d >= 306)  # January and February
    week = (thursday - first_day(y * np.int64(12))) // np.int64(7) + np.int64(1)
    if part == PART_WEEK:
        return week
    if part == PART_ISOYEAR:
        return y
    return y * np.int64(100) + week if y > 0 else y * np.int64(100) - week


@nb.njit(inline="always")
def _calendar_all(values, n, part):
    known = _LEAST
    found = np.int64(0)
    for i in range(n):
        if values[i] != known:  # rows of a day mostly stand together
            known = values[i]
            found = _calendar(known, part)
        values[i] = found


@kernel("int64(float64[::1], int64[::1], int64)")
def _floor_all(reals, values, n):
    """Values, which lie where the reals are, become whole numbers. Returns 1 if one of them is not sure."""
    odd = np.int64(0)
    for i in range(n):
        odd |= np.int64(not (reals[i] > -WHOLE_END and reals[i] < WHOLE_END))
    if not odd:
        for i in range(n):
            values[i] = np.int64(np.floor(reals[i]))
        return 0
    for i in range(n):
        real = np.floor(reals[i])
        if real != real:
            values[i] = WHOLE_NAN
        elif np.isinf(real):
            values[i] = WHOLE_END if real > 0 else -WHOLE_END
        elif real > -WHOLE_END and real < WHOLE_END:
            values[i] = np.int64(real)
        else:
            return 1
    return 0


@kernel("int64(int64[:, ::1], int64, int64, int64[::1], int64, int64)")
def take_steps(steps, first, behind, values, n, sure):
    """Take n values through steps. Returns 0, or 1 if one of them is not sure; `sure`: they are known to be."""
    reals = values.view(np.float64)
    for s in range(first, behind):
        what = steps[s, 0]
        a = steps[s, 1]
        b = steps[s, 2]
        if what == CHECK:
            if sure:
                continue
            outside = np.int64(0)
            for i in range(n):
                outside |= np.int64(values[i] < a) | np.int64(values[i] > b)
            if outside:
                return 1
        elif what == FLOOR_DIVIDE:
            _divide_all(values, n, a, b)
        elif what == FLOOR_REST:
            for i in range(n):
                values[i] = values[i] % a
        elif what == MULTIPLY:
            for i in range(n):
                values[i] *= a
        elif what == ADD:
            for i in range(n):
                values[i] += a
        elif what == QUOTIENT:
            least = np.int64(0)
            for i in range(n):
                least = min(least, values[i])
            if least == 0:
                _divide_all(values, n, a, np.int64(0))
            else:
                for i in range(n):
                    v = values[i]
                    q = v // a  # of Numba, as of Python, the floor
                    values[i] = q + np.int64(v < 0 and q * a != v)
        elif what == REST:
            for i in range(n):
                v = values[i]
                rest = v % a
                values[i] = rest - a if v < 0 and rest != 0 else rest
        elif what == CALENDAR:
            _calendar_all(values, n, a)
        elif what == FROM_MONTHS:
            for i in range(n):
                values[i] = first_day(values[i])
        elif what == FROM_NANOS:
            for i in range(n):
                v = values[i]
                half = np.int64(500) if v >= 0 else np.int64(-500)
                values[i] = -((-(v + half)) // np.int64(1000)) if v < 0 else (v + half) // np.int64(1000)
        elif what == TO_REAL:
            for i in range(n):
                reals[i] = np.float64(values[i])
        elif what == CODE:
            codes(values, n, values)
        elif what == FLOOR_REAL:
            for i in range(n):
                reals[i] = np.floor(reals[i])
        elif what == FLOOR_WHOLE:
            if _floor_all(reals, values, n):
                return 1
        elif what == ROUND:
            least_real = np.float64(a)
            greatest_real = np.float64(b)
            for i in range(n):
                r = np.rint(reals[i])
                if not (r >= least_real and r <= greatest_real and r < 9223372036854775808.0):
                    return 1
                values[i] = np.int64(r)
        else:
            one = steps[s, 1:2].view(np.float64)[0]
            if what == ADD_REAL:
                for i in range(n):
                    reals[i] += one
            elif what == MULTIPLY_REAL:
                for i in range(n):
                    reals[i] *= one
            elif what == DIVIDE_REAL:
                for i in range(n):
                    reals[i] /= one
    return 0
