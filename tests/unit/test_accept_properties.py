"""Whatever comes in: accepted values are the given values, and no row is lost."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.model.schema import TableSpec, make_spec
from tidewheel.write.accept import Accepted, accept

MOMENT = dt.datetime(2026, 1, 31)
us = pa.timestamp("us")

small = st.integers(-128, 127)
days = st.dates(dt.date(1700, 1, 1), dt.date(2200, 1, 1))
times = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)).map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))
text = st.text(st.characters(codec="utf-8"), max_size=5)

# values, types they may come in, types that hold them all: any of the first to any of the second keeps the values
FAMILIES: list[tuple[Any, list[pa.DataType], list[pa.DataType]]] = [
    (small, [pa.int8(), pa.int16(), pa.int64(), pa.float16(), pa.float32(), pa.decimal128(9, 2),
      pa.dictionary(pa.int16(), pa.int32())],
     [pa.int8(), pa.int32(), pa.float16(), pa.float64(), pa.decimal128(5, 1), pa.dictionary(pa.int16(), pa.int64())]),
    (st.integers(0, 2**64 - 1), [pa.uint64()], [pa.uint64(), pa.decimal128(20, 0)]),
    (st.booleans(), [pa.bool_()], [pa.bool_(), pa.uint8(), pa.int64()]),
    (st.floats(width=32, allow_nan=False), [pa.float32(), pa.float64()], [pa.float32(), pa.float64()]),
    (text, [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int16(), pa.string())],
     [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int16(), pa.large_string())]),
    (st.binary(max_size=4), [pa.binary(), pa.large_binary(), pa.binary_view()], [pa.binary(), pa.large_binary(), pa.binary_view()]),
    (times, [us, pa.timestamp("ms")], [us, pa.timestamp("ms")]),
    (days, [pa.date32(), pa.date64()], [pa.date32(), pa.date64()]),
    (st.lists(st.none() | small, max_size=3), [pa.list_(pa.int8()), pa.large_list(pa.int64()), pa.list_view(pa.int16())],
     [pa.list_(pa.float32()), pa.large_list(pa.int8()), pa.large_list_view(pa.int8())]),
    (st.lists(small, min_size=2, max_size=2), [pa.list_(pa.int64()), pa.list_(pa.int8(), 2)],
     [pa.list_(pa.int8(), 2), pa.list_(pa.int16())]),
    (st.fixed_dictionaries({"a": st.none() | small, "b": text}), [pa.struct([("a", pa.int64()), ("b", pa.string())])],
     [pa.struct([("a", pa.int8()), ("b", pa.large_string())]),
      pa.struct([("a", pa.float32()), ("b", pa.dictionary(pa.int8(), pa.string()))])]),
]  # fmt: skip


def spec(type_: pa.DataType) -> TableSpec:
    return make_spec("t", pa.schema([("k", pa.int64()), ("ts", us), ("v", type_)]), time="ts", key="k")


def odd(batch: pa.RecordBatch) -> tuple[np.ndarray[Any, Any], str] | None:
    mask = batch.column(0).to_numpy() % 7 == 6
    return (mask, "every seventh") if mask.any() else None


def check(out: Accepted, type_: pa.DataType) -> list[tuple[int, Any]]:
    for batch in out.batches:
        batch.validate(full=True)
        assert batch.schema.equals(spec(type_).schema, check_metadata=True)
    return [(r["k"], r["v"]) for b in out.batches for r in b.to_pylist()]


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_accepted_values_are_the_given_values(data: st.DataObject) -> None:
    values, from_, to = data.draw(st.sampled_from(FAMILIES))
    given_type, type_ = data.draw(st.sampled_from(from_)), data.draw(st.sampled_from(to))
    column = data.draw(st.lists(st.none() | values, min_size=1, max_size=20))
    pad = data.draw(st.integers(0, 9))
    array = pa.array([None] * pad + column + [None], given_type).slice(pad, len(column))
    table = pa.table({"v": array, "ts": [MOMENT] * len(column), "k": range(len(column))})
    cut = data.draw(st.integers(0, len(column)))
    table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    assert check(accept(table, spec(type_), lambda _: None, "error"), type_) == list(enumerate(column))
    rows = [{"k": i, "ts": MOMENT, "v": v} for i, v in enumerate(column)]
    assert check(accept(rows, spec(type_), lambda _: None, "error"), type_) == list(enumerate(column))


TARGETS = [t for _, _, to in FAMILIES for t in to]
ANY = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | text | st.binary(max_size=3)
    | days | times | st.lists(small, max_size=2)
    | st.dictionaries(st.sampled_from(["a", "b", "z"]), small | text, max_size=2) | st.decimals(-1000, 1000, places=2) | st.just(object())
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(ANY, max_size=15), st.sampled_from(TARGETS))
def test_no_python_row_is_lost(column: list[Any], type_: pa.DataType) -> None:
    rows = [{"k": i, "ts": MOMENT, "v": v} for i, v in enumerate(column)]
    out = accept(rows, spec(type_), odd, "reject")
    good = [k for b in out.batches for k in b.column("k").to_pylist()]
    bad = [r.position for r in out.rejected]
    assert sorted(good + bad) == list(range(len(column))) and good == sorted(good) and bad == sorted(bad)


SOURCES: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)), (pa.float64(), st.floats()), (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.string(), text | st.sampled_from(["1", "1.5", "2026-01-31", "2026-01-31T00:00:00Z", "true", "1e400"])),
    (us, st.integers(-(2**63), 2**63 - 1)), (pa.timestamp("s"), st.integers(-(2**63), 2**63 - 1)),
    (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
]  # fmt: skip
NUMBERS = [pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.bool_()]
MOMENTS = [us, pa.timestamp("ns", "UTC"), pa.timestamp("s", "Asia/Tokyo"), pa.date32(), pa.date64()]
PAIRS = [
    (a, values, b)
    for a, values in SOURCES
    for b in NUMBERS + MOMENTS
    if not (pa.types.is_temporal(a) and b in NUMBERS) and not (pa.types.is_floating(a) and (b in MOMENTS or pa.types.is_boolean(b)))
]


@settings(deadline=None, max_examples=300)
@given(st.data(), st.sampled_from(PAIRS))
def test_no_arrow_row_is_lost_and_none_wraps(data: st.DataObject, pair: tuple[pa.DataType, Any, pa.DataType]) -> None:
    from_, values, to = pair
    array = pa.array(data.draw(st.lists(st.none() | values, min_size=1, max_size=20)), from_)
    table = pa.table({"k": range(len(array)), "ts": [MOMENT] * len(array), "v": array})
    out = accept(table, spec(to), odd, "reject")
    good = [k for b in out.batches for k in b.column("k").to_pylist()]
    bad = [r.position for r in out.rejected]
    assert sorted(good + bad) == list(range(len(array)))
    if pa.types.is_temporal(from_):  # exact nanoseconds, in Python's integers
        for batch in out.batches:
            for k, moment in zip(batch.column("k").to_pylist(), nanos(batch.column("v")), strict=True):
                assert moment == nanos(array)[k]


def nanos(array: pa.Array) -> list[int | None]:
    scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    if pa.types.is_timestamp(array.type):
        return [None if v is None else v * scale[array.type.unit] for v in array.view(pa.int64()).to_pylist()]
    if array.type.bit_width == 32:
        return [None if v is None else v * 86_400 * 10**9 for v in array.view(pa.int32()).to_pylist()]
    return [None if v is None else v * 10**6 for v in array.view(pa.int64()).to_pylist()]
