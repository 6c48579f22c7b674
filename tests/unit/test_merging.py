"""Merging: sums that are there and sums of new rows, as one aggregate of all rows."""

from __future__ import annotations

from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.derive.merging import CannotMerge, merged
from tidewheel.model.derived import MERGE, Mode

SCHEMA = pa.schema([
    ("k", pa.string()), ("g", pa.int64()), ("n", pa.int64()), ("total", pa.int64()), ("d", pa.decimal128(38, 2)), ("low", pa.string()),
    ("high", pa.float64()), ("any", pa.bool_()), ("mean", pa.float64()),
])  # fmt: skip
MODE = Mode(
    MERGE, "", groups=("k", "g"),
    combine=(("n", "sum"), ("total", "sum"), ("d", "sum"), ("low", "min"), ("high", "max"), ("any", "max")),
    ratios=(("mean", "total", "n"),),
)  # fmt: skip
NAN = float("nan")

Values = tuple[str | None, int | None, int | None, Decimal | None, str | None, float | None, bool | None]

values: st.SearchStrategy[Values] = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.sampled_from([1, 2, None]),
    st.one_of(st.none(), st.integers(-1000, 1000)),
    st.one_of(st.none(), st.decimals(-100, 100, places=2, allow_nan=False)),
    st.one_of(st.none(), st.text("xyz", max_size=2)),
    st.one_of(st.none(), st.floats(-5, 5).map(lambda f: f + 0.0), st.just(NAN)),
    st.one_of(st.none(), st.booleans()),
)


def aggregated(rows: list[Values]) -> list[tuple[Any, ...]]:
    """What Spark makes of rows: nulls are groups, and no values; NaN is the greatest."""
    groups: dict[tuple[Any, Any], list[Values]] = {}
    for row in rows:
        groups.setdefault(row[:2], []).append(row)
    found = []
    for (k, g), mine in groups.items():
        v, d, low, high, some = ([row[i] for row in mine if row[i] is not None] for i in range(2, 7))
        total = sum(v) if v else None  # type: ignore[arg-type]
        greatest = None if not high else NAN if any(x != x for x in high) else max(high)  # type: ignore[type-var]
        mean = None if not v else total / len(v)  # type: ignore[operator]
        found.append((k, g, len(v), total, sum(d) if d else None, min(low, default=None), greatest, max(some, default=None), mean))  # type: ignore[arg-type,type-var]
    return found


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table([pa.array([row[i] for row in rows], field.type) for i, field in enumerate(SCHEMA)], schema=SCHEMA)


def in_order(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(repr(row) for row in rows)


@given(st.lists(values, max_size=20), st.lists(values, max_size=20))
def test_merged_is_aggregated_at_once(old: list[Values], new: list[Values]) -> None:
    found = merged(table(aggregated(old)), table(aggregated(new)), MODE)
    assert found.schema == SCHEMA
    wanted = table(aggregated([*old, *new]))
    assert in_order([tuple(row.values()) for row in found.to_pylist()]) == in_order([tuple(row.values()) for row in wanted.to_pylist()])


def one(**values: Any) -> pa.Table:
    row = {"k": "a", "g": 1, "n": 1, "total": 1, "d": None, "low": None, "high": None, "any": None, "mean": 1.0, **values}
    return table([tuple(row.values())])


def test_a_sum_beyond_its_type_is_no_sum() -> None:
    with pytest.raises(CannotMerge, match="total"):
        merged(one(total=2**63 - 1), one(), MODE)
    with pytest.raises(CannotMerge, match="'d'"):
        merged(one(d=Decimal("9" * 36)), one(d=Decimal("9" * 36)), MODE)
    with pytest.raises(CannotMerge, match="mean"):
        merged(one(total=2**62), one(), MODE)


def test_two_rows_of_one_group_are_not_merged() -> None:
    twice = pa.concat_tables([one(), one()])
    for old, new in ((twice, one()), (one(), twice), (twice, one().slice(0, 0)), (one().slice(0, 0), twice)):
        with pytest.raises(CannotMerge, match="two rows"):
            merged(old, new, MODE)


def test_dictionaries_stay_dictionaries() -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string())), ("last", pa.dictionary(pa.int32(), pa.string()))])
    mode = Mode(MERGE, "", groups=("k",), combine=(("last", "max"),))
    sides = [
        pa.table([pa.array(k).dictionary_encode(), pa.array(v).dictionary_encode()], schema=schema)
        for k, v in ((["a", "b"], ["x", "y"]), (["b", "c"], ["z", "w"]))
    ]
    found = merged(sides[0], sides[1], mode)
    assert found.schema == schema
    assert sorted(found.to_pylist(), key=repr) == [{"k": "a", "last": "x"}, {"k": "b", "last": "z"}, {"k": "c", "last": "w"}]


def test_what_is_not_known_is_not_merged() -> None:
    with pytest.raises(CannotMerge, match="median"):
        merged(one(), one(), Mode(MERGE, "", groups=("k", "g"), combine=(("n", "median"),)))


def averages(type_: pa.DataType, total: pa.DataType) -> tuple[pa.Schema, Mode]:
    schema = pa.schema([("k", pa.string()), ("mean", type_), ("$s", total), ("$n", pa.int64())])
    return schema, Mode(MERGE, "", groups=("k",), combine=(("$s", "sum"), ("$n", "sum")), ratios=(("mean", "$s", "$n"),))


def merged_average(schema: pa.Schema, mode: Mode, *sides: tuple[Any, int]) -> Any:
    """The average of two sums with their counts. The averages that the sides have are not looked at."""
    one, two = (
        pa.table([pa.array([value], field.type) for value, field in zip(("a", None, *side), schema, strict=True)], schema=schema)
        for side in sides
    )
    return merged(one, two, mode).column("mean")[0].as_py()


@given(
    st.integers(-(10**20), 10**20),
    st.integers(-(10**20), 10**20),
    st.integers(1, 10**6),
    st.integers(0, 1000),
    st.sampled_from([0, 2, 6, 10]),
)
def test_averages_of_decimals(a: int, b: int, n: int, more: int, scale: int) -> None:
    schema, mode = averages(pa.decimal128(34, scale + 4), pa.decimal128(38, scale))
    found = merged_average(schema, mode, (Decimal(a).scaleb(-scale), n), (Decimal(b).scaleb(-scale) if more else None, more))
    with localcontext(Context(prec=200)):
        exact = Decimal(a + (b if more else 0)).scaleb(-scale) / (n + more)
        wanted = exact.quantize(Decimal(1).scaleb(-38), ROUND_HALF_DOWN).quantize(Decimal(1).scaleb(-scale - 4), ROUND_HALF_UP)
        assert found == wanted


def test_averages_of_floats_and_of_nothing() -> None:
    schema, mode = averages(pa.float64(), pa.float64())
    assert merged_average(schema, mode, (1.5, 2), (4.5, 1)) == 2.0
    assert merged_average(schema, mode, (None, 0), (4.5, 3)) == 1.5
    assert merged_average(schema, mode, (None, 0), (None, 0)) is None
    assert merged_average(schema, mode, (float("inf"), 1), (1.0, 1)) == float("inf")
    with pytest.raises(CannotMerge, match="its sum is not known"):  # try_avg of numbers that were too large together
        merged_average(schema, mode, (None, 2), (1.0, 1))
    schema, mode = averages(pa.decimal128(38, 6), pa.decimal128(38, 2))
    with pytest.raises(CannotMerge, match="beyond"):
        merged_average(schema, mode, (Decimal(9 * 10**34), 1), (Decimal(0), 1))
