"""Rows that can be among the first ones: sorting these alone gives what sorting all gives."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidewheel.read.foremost import foremost, ranks
from tidewheel.read.ordering import SortKey, sort

NAN, INFINITE = float("nan"), float("inf")
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.int64(): [-(1 << 63), -5, 0, 7, (1 << 63) - 1],
    pa.uint64(): [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1],
    pa.float64(): [-INFINITE, -1.5, -0.0, 0.0, 5e-324, 2.5, INFINITE, NAN],
    pa.float32(): [-INFINITE, -1.5, -0.0, 0.0, 2.5, INFINITE, NAN],
    pa.timestamp("us"): [-(1 << 62), -1, 0, 1, 1 << 62],
    pa.date32(): [-10, 0, 10_000],
    pa.decimal128(38, 0): [Decimal(n) for n in (-(10**37), -(1 << 64), -1, 0, 1, (1 << 64) + 1, 10**37, 10**37 + 1)],
    pa.string(): ["", "a", "b"],
}


def column(rng: random.Random, type_: pa.DataType, rows: int) -> pa.Array:
    nulls = rng.choice((0.0, 0.0, 0.1, 0.95))
    values = [None if rng.random() < nulls else rng.choice(VALUES[type_]) for _ in range(rows)]
    offset = rng.randrange(3)
    return pa.array([VALUES[type_][0]] * offset + values, type_).slice(offset)


@pytest.mark.parametrize("seed", range(300))
def test_the_first_rows_are_among_them(seed: int) -> None:
    rng = random.Random(seed)
    rows, terms = rng.choice((1, 2, 50, 3_000)), rng.randrange(1, 4)
    names = [f"c{n}" for n in range(terms)]
    table = pa.table({name: column(rng, rng.choice(list(VALUES)), rows) for name in names} | {"row": range(rows)})
    keys = [SortKey(name, rng.random() < 0.5, rng.random() < 0.3) for name in names]
    limit = rng.choice((0, 1, 2, 10, rows // 2, rows, rows + 5))
    places = foremost(lambda name: table.column(name).combine_chunks(), rows, keys, limit)
    if places is None:
        assert pa.types.is_string(table.schema.field(0).type)
        return
    assert list(places) == sorted(set(places))
    found = sort(table.take(pa.array(places, pa.int64())), keys).slice(0, limit)
    assert found["row"].to_pylist() == sort(table, keys).slice(0, limit)["row"].to_pylist()


def test_rows_that_cannot_be_are_left_out() -> None:
    numbers = list(range(200_000))
    random.Random(1).shuffle(numbers)
    table = pa.table({"n": numbers, "d": pa.array(numbers, pa.int64()).cast(pa.decimal128(38, 0))})
    for name in table.column_names:
        places = foremost(lambda name: table.column(name).combine_chunks(), len(numbers), [SortKey(name, True)], 10)
        assert places is not None
        assert sorted(numbers[place] for place in places) == list(range(199_990, 200_000))


def test_rows_that_are_alike_are_told_apart_by_the_next_term() -> None:
    table = pa.table({"same": [5] * 50_000, "n": range(50_000)})
    keys = [SortKey("same", True), SortKey("n", True)]
    places = foremost(lambda name: table.column(name).combine_chunks(), 50_000, keys, 3)
    assert places is not None and list(places) == [49_997, 49_998, 49_999]


def test_types_without_numbers() -> None:
    assert ranks(pa.array(["a"])) is None and ranks(pa.array([b"a"])) is None and ranks(pa.array([[1]])) is None
