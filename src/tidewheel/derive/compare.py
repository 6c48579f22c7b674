"""Old and new rows of a derived table compared, partition by partition: where they are the same, nothing that depends on them is stale.

Rows have no order, so their hashes are added up: a partition has the same rows if it has as many, and two sums of 64 bits are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tidewheel.model.codes import integer_codes

Interval = tuple[int, int]
Times = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEP = 0x9E3779B97F4A7C15
_NULL = np.uint64(0xD1B54A32D192ED03)


def differing(old: pa.Table, new: pa.Table, time: str, intervals: Sequence[Interval]) -> list[bool]:
    """For each closed interval of times, in rising order, apart from each other: whether the rows differ. All rows lie in intervals.

    Rows with values that are not hashed here count as others. So do floats that differ in their last bit.
    """
    first = np.array([lo for lo, _ in intervals], np.int64)
    sums = [_sums(side, time, first) for side in (old, new)]
    if sums[0] is None or sums[1] is None:
        counts = [_counts(side, time, first) for side in (old, new)]
        return [bool(many) for many in counts[0] + counts[1]]
    return [bool(other) for other in (sums[0] != sums[1]).any(axis=0)]


def times_of(rows: pa.Table, time: str) -> Times:
    """The times of rows as int64."""
    if not rows.num_rows:
        return np.empty(0, np.int64)
    return integer_codes(_whole(rows.column(time)))


def inside(times: Times, intervals: Sequence[Interval]) -> npt.NDArray[np.bool_]:
    """Which times lie in one of the closed intervals. These are in rising order and apart from each other."""
    if not intervals:
        return np.zeros(len(times), np.bool_)
    first, last = (np.array(ends, np.int64) for ends in zip(*intervals, strict=True))
    at = np.searchsorted(first, times, side="right") - 1
    found: npt.NDArray[np.bool_] = (at >= 0) & (times <= last[at])
    return found


def _counts(rows: pa.Table, time: str, first: Times) -> npt.NDArray[np.int64]:
    return np.bincount(np.searchsorted(first, times_of(rows, time), side="right") - 1, minlength=len(first))


def _sums(rows: pa.Table, time: str, first: Times) -> Hashes | None:
    """Three numbers for each interval: rows, and two sums of hashes. None if a column cannot be hashed."""
    out = np.zeros((3, len(first)), np.uint64)
    if not rows.num_rows:
        return out
    mixed = np.zeros(rows.num_rows, np.uint64)
    for number, column in enumerate(rows.columns):
        hashes = _hashes(_whole(column))
        if hashes is None:
            return None
        with np.errstate(over="ignore"):
            mixed = _mix(mixed + hashes + np.uint64(_STEP * (number + 1) & (1 << 64) - 1))
    at = np.searchsorted(first, times_of(rows, time), side="right") - 1
    out[0] = np.bincount(at, minlength=len(first))
    np.add.at(out[1], at, mixed)
    np.add.at(out[2], at, _mix(mixed + np.uint64(_STEP)))
    return out


def _hashes(array: pa.Array) -> Hashes | None:
    """A hash of each value, the same for equal ones."""
    kind = pa.types
    t = array.type
    if kind.is_dictionary(t):
        array, t = array.dictionary_decode(), t.value_type
    if kind.is_boolean(t) or kind.is_integer(t) or kind.is_temporal(t) and t.bit_width <= 64 and not kind.is_interval(t):
        found = _mix(integer_codes(array.fill_null(False) if kind.is_boolean(t) else array).view(np.uint64))
    elif kind.is_float32(t) or kind.is_float64(t):
        values = array.to_numpy(zero_copy_only=False).astype(np.float64)
        found = _mix((values + 0.0).view(np.uint64))  # -0.0 is 0.0
    elif kind.is_decimal128(t):
        halves = np.frombuffer(array.buffers()[1], np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
        found = _mix(_mix(halves[0::2]) ^ halves[1::2])
    elif kind.is_string(t) or kind.is_large_string(t) or kind.is_binary(t) or kind.is_large_binary(t) or kind.is_fixed_size_binary(t):
        encoded = array.dictionary_encode()
        raw = encoded.dictionary.cast(pa.large_binary()).to_pylist()
        known = np.array([xxhash.xxh3_64_intdigest(value) for value in raw] or [0], np.uint64)
        found = known[np.asarray(encoded.indices.fill_null(0))]
    else:
        return None
    if array.null_count:
        found[np.asarray(array.is_null())] = _NULL
    return found


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _mix(values: Hashes) -> Hashes:
    """Every bit of a number changes half of the bits of the outcome."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * _A
        values = (values ^ (values >> np.uint64(27))) * _B
        return values ^ (values >> np.uint64(31))
