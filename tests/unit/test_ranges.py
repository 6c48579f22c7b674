"""Ranges of any columns: their rows are those that the oracle finds, whatever the key is and whatever else is asked."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as s

import tidewheel as tw
from tests.conftest import examples
from tidewheel.model.conditions import OneOf
from tidewheel.model.schema import ZOrder
from tidewheel.read.condition_mask import mask
from tidewheel.testing.oracle import OracleTable, same_rows

T0 = dt.datetime(2026, 1, 1)
FLOATS = [-math.inf, -1.5, -0.0, 0.0, 0.1, 0.5, 2.0, 2.0**53, math.inf]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "ts": (pa.timestamp("ms"), [T0 + dt.timedelta(milliseconds=n) for n in range(0, 10, 2)]),
    "k": (pa.int64(), [-(2**63), -1, 0, 1, 5, 2**53, 2**63 - 1]),
    "i": (pa.int16(), [-(2**15), -3, 0, 7, 2**15 - 1]),
    "u": (pa.uint64(), [0, 7, 2**64 - 1]),
    "h": (pa.float16(), [-1.5, 0.0, 0.5, math.inf, math.nan]),
    "f": (pa.float32(), [*FLOATS, math.nan]),
    "d": (pa.float64(), [*FLOATS, math.nan]),
    "b": (pa.bool_(), [True, False]),
    "s": (pa.string(), ["", "a", "ab", "é", "\U0010ffff"]),
    "c": (pa.dictionary(pa.int32(), pa.large_string()), ["a", "ab", "b"]),
    "y": (pa.binary(), [b"", b"\x00", b"ab", b"\xff"]),
    "day": (pa.date32(), [dt.date(2026, 1, n) for n in (1, 2, 5)]),
    "at": (pa.timestamp("ns", "UTC"), [dt.datetime(2026, 1, 1, microsecond=n, tzinfo=dt.UTC) for n in (0, 1, 999_999)]),
    "m": (pa.decimal128(8, 2), [Decimal("-1.25"), Decimal("0.00"), Decimal("999999.99")]),
}
SCHEMA = pa.schema([("n", pa.int64()), *((name, type_) for name, (type_, _) in COLUMNS.items())])
NUMBERS: list[Any] = [
    -(10**400),
    -3,
    -1.25,
    0,
    0.1,
    Decimal("0.1"),
    0.5,
    2,
    7,
    2**53 + 1,
    2**64,
    1e300,
    Decimal("1e500"),
    -math.inf,
    math.inf,
]
TIMES: list[Any] = [
    T0,
    T0 + dt.timedelta(microseconds=2500),
    T0.date(),
    "2026-01-02",
    T0 + dt.timedelta(milliseconds=6),
    T0.replace(year=9999),
]
REQUIRED = ("ts", "k", "d", "s")
KEYS: list[Any] = ["k", "s", "d", "ts", tw.zorder("k", "d", bounds=(-10, -1, 10, 1))]


def bounds(column: str) -> s.SearchStrategy[Any]:
    if column in ("ts", "at", "day"):
        return s.sampled_from(TIMES)
    if column in ("b", "s", "c", "y"):
        return s.sampled_from(COLUMNS[column][1])
    return s.sampled_from(NUMBERS)


def row() -> s.SearchStrategy[dict[str, Any]]:
    return s.fixed_dictionaries(
        {
            name: s.sampled_from([v for v in values if v == v] if name in REQUIRED else [*values, None])
            for name, (_, values) in COLUMNS.items()
        }
    )


@s.composite
def some_ranges(draw: s.DrawFn) -> dict[str, tuple[Any, Any]]:
    columns = draw(s.lists(s.sampled_from(list(COLUMNS)), min_size=1, max_size=3, unique=True))
    return {column: (draw(s.none() | bounds(column)), draw(s.none() | bounds(column))) for column in columns}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("wh")


@settings(max_examples=examples(60))
@given(
    data=s.lists(row(), min_size=1, max_size=30),
    ranges=some_ranges(),
    key=s.sampled_from(KEYS),
    flushed=s.booleans(),
    beside=s.integers(0, 3),
)
def test_rows_are_those_of_the_oracle(
    root: Path, data: list[dict[str, Any]], ranges: dict[str, Any], key: Any, flushed: bool, beside: int
) -> None:
    rows = pa.Table.from_pylist([{"n": n, **one} for n, one in enumerate(data)], SCHEMA)
    oracle = OracleTable(SCHEMA, "ts", key)
    oracle.insert(rows)
    more: dict[str, Any] = {"time": (T0, T0 + dt.timedelta(milliseconds=5))} if beside & 1 else {}
    if beside & 2:
        more |= {"key": (0, 5)} if key == "k" else {"box": (0, None, None, 0.5)} if isinstance(key, ZOrder) else {}
    with tw.open(root) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key=key)
        try:
            table.insert(rows)
            if flushed:
                table.flush()
            expected = oracle.query(ranges=ranges, **more)
            same_rows(table.query(ranges=ranges, **more).to_arrow(), expected)
            odd = [one for one in expected if one["n"] % 2]
            same_rows(table.query(ranges=ranges, where="n % 2 = 1", **more).to_arrow(), odd)
            assert len(table.query(ranges=ranges, where=lambda b: pc.equal(pc.bit_wise_and(b["n"], 1), 1), **more)) == len(odd)
        finally:
            wh.drop_table("t")


def test_ranges_of_key_and_time_are_bounds(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("speed", pa.float32())])
    with tw.open(tmp_path / "wh", settings=tw.Settings(leaf_rows=32)) as wh:
        table = wh.create_table("taxi", schema, time="ts", key="id")
        table.insert(pa.table([pa.array(range(5000)), pa.array(range(5000), pa.timestamp("us")), pa.array([1.0] * 5000)], schema=schema))
        table.flush()
        same = table.query(key=(100, 120), time=(110, None))
        ranged = table.query(ranges={"id": (100, 120), "ts": (110, None)})
        assert ranged.to_arrow().equals(same.to_arrow()) and len(ranged) == 11
        assert ranged.stats.leaves_read == same.stats.leaves_read < 5
        assert table.query(key=(100, 120), ranges={"id": (110, 900)}).to_arrow()["id"].to_pylist() == list(range(110, 121))


def test_ranges_of_addresses_are_in_their_order(tmp_path: Path) -> None:
    schema = pa.schema([("ip", pa.string()), ("ts", pa.timestamp("us"))])
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("flow", schema, time="ts", key=tw.ip("ip"))
        table.insert([{"ip": ip, "ts": n} for n, ip in enumerate(["9.0.0.1", "10.0.0.1", "10.0.0.200", "99.1.1.1", "::1"])])
        assert table.query(ranges={"ip": ("10.0.0.1", "99.1.1.1")}).to_arrow()["ts"].cast("int64").to_pylist() == [1, 2, 3]
        assert len(table.query(ranges={"ip": ("10.0.0.1", None)}, key=("9.0.0.1", "10.0.0.9"))) == 1
        with pytest.raises(tw.QueryError, match="ranges: 'home'"):
            table.query(ranges={"ip": ("home", None)})


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"speed": 5, "lenght": (1, 2)}, "no column 'lenght'. Did you mean 'length'"),
        ({5: (1, 2)}, "no column 5"),
        ({"speed": ("1", "2")}, "'speed' of table 't' is float, and '1' is no number"),
        ({"speed": (math.nan, 2)}, "NaN is no bound"),
        ({"speed": (True, 2)}, "True is no number"),
        ({"note": (1, 2)}, "is string, and 1 is not"),
        ({"list": ([1], None)}, "which has no order"),
        ({"ts": (1.5, None)}, "'ts' of table 't': 1.5 is not a time"),
        ({"length": (1, 2, 3)}, "range of column 'length' is an interval"),
    ],
)
def test_what_is_no_range(tmp_path: Path, ranges: Any, message: str) -> None:
    types = [
        ("ts", pa.timestamp("us")),
        ("length", pa.int64()),
        ("speed", pa.float32()),
        ("note", pa.string()),
        ("list", pa.list_(pa.int8())),
    ]
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", pa.schema(types), time="ts", key="length")
        with pytest.raises(tw.QueryError) as said:
            table.query(ranges=ranges)
        assert message in str(said.value)


def test_bounds_beyond_the_type_leave_out_nulls_alone(root: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("u", pa.uint8()), ("m", pa.decimal128(4, 2))])
    rows = pa.table({"k": [1, 2], "ts": pa.array([1, 2], pa.timestamp("us")), "u": pa.array([0, None], pa.uint8())})
    with tw.open(root) as wh:
        table = wh.create_table("beyond", schema, time="ts", key="k")
        table.insert(rows)
        assert [len(table.query(ranges={"u": bounds})) for bounds in ((-5, None), (None, 300), (-(10**90), 10**90), (-9, -5))] == [
            1,
            1,
            1,
            0,
        ]
        assert len(table.query(ranges={"u": (None, None)})) == 2 and len(table.query(ranges={"m": (-1000, None)})) == 0
        wh.drop_table("beyond")


def test_half_floats_are_looked_up_in_lists_of_any_type() -> None:
    batch = pa.record_batch({"h": pa.array([-0.0, 1.5, None], pa.float32()).cast(pa.float16())})
    halves = pa.array([0.0, 2.0], pa.float32()).cast(pa.float16())
    for values in (halves, halves.slice(0, 0), pa.array([0.0]), pa.array([1.5], pa.float32())):
        wanted = [any(value == one for one in values.to_pylist()) for value in (0.0, 1.5)]
        assert mask(OneOf("h", values), batch).to_pylist() == [*wanted, None], values
