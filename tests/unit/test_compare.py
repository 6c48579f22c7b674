"""Partitions with the same rows, in whatever order, are told from others, for every type that is hashed."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.derive.compare import differing, inside, times_of

VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [None, -1, 0, 5],
    pa.uint64(): [None, 0, 1, 1 << 63],
    pa.float64(): [None, 0.0, 1.5, float("inf")],
    pa.float32(): [None, 0.0, 1.5],
    pa.bool_(): [None, True, False],
    pa.string(): [None, "", "a", "b", "ß"],
    pa.large_binary(): [None, b"", b"a\0"],
    pa.binary(2): [None, b"ab", b"ba"],
    pa.dictionary(pa.int32(), pa.string()): [None, "x", "y"],
    pa.date32(): [None, dt.date(1970, 1, 1), dt.date(2026, 1, 1)],
    pa.timestamp("ns"): [None, dt.datetime(2026, 1, 1), dt.datetime(1960, 1, 1)],
    pa.time64("us"): [None, dt.time(1), dt.time(2)],
    pa.decimal128(20, 2): [None, Decimal("0.00"), Decimal("-1.50"), Decimal("123456789012345678.00")],
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data(), seed=st.integers(0, 1 << 30))
def test_the_same_rows_in_any_order(kind: pa.DataType, data: st.DataObject, seed: int) -> None:
    """Against multisets of Python values, with partitions of ten."""
    row = st.tuples(st.integers(0, 29), st.sampled_from(VALUES[kind]))
    old = data.draw(st.lists(row, max_size=8))
    new = random.Random(seed).sample(old, len(old))
    if data.draw(st.booleans()):
        new = data.draw(st.lists(row, max_size=8))
    intervals = [(0, 9), (10, 19), (20, 29)]

    def of(rows: list[tuple[int, Any]]) -> pa.Table:
        return pa.table([pa.array([t for t, _ in rows], pa.int64()), pa.array([v for _, v in rows], kind)], names=["t", "v"])

    def part(rows: list[tuple[int, Any]], lo: int, hi: int) -> Counter[tuple[int, Any]]:
        return Counter((t, v) for t, v in rows if lo <= t <= hi)

    assert differing(of(old), of(new), "t", intervals) == [part(old, lo, hi) != part(new, lo, hi) for lo, hi in intervals]


def test_sliced_and_chunked_rows_are_what_they_show() -> None:
    one = pa.table({"t": [1, 2, 3, 4], "v": ["a", None, "b", "a"]}).slice(1, 2)
    two = pa.concat_tables([pa.table({"t": [3], "v": ["b"]}), pa.table({"t": [2], "v": pa.array([None], pa.string())})])
    assert differing(one, two, "t", [(0, 9)]) == [False]


def test_nested_values_are_not_compared() -> None:
    rows = pa.table({"t": [1], "v": [[1]]})
    assert differing(rows, rows, "t", [(0, 9), (10, 19)]) == [True, False]


def test_columns_do_not_stand_for_each_other() -> None:
    one, two = pa.table({"t": [1], "a": [1], "b": [2]}), pa.table({"t": [1], "a": [2], "b": [1]})
    assert differing(one, two, "t", [(0, 9)]) == [True]


@given(st.lists(st.integers(-5, 25)))
def test_inside(times: list[int]) -> None:
    found = inside(times_of(pa.table({"t": pa.array(times, pa.int64())}), "t"), [(0, 3), (5, 5), (9, 20)])
    assert found.tolist() == [0 <= t <= 3 or t == 5 or 9 <= t <= 20 for t in times]
