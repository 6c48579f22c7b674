"""Spark's filters as questions: no row that Spark would keep is lost, and what we say is exact is exact."""

from __future__ import annotations

import base64
import datetime as dt
import math
import pickle
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as s

import tidewheel as tw
from tests.conftest import examples
from tidewheel.model.conditions import Comparison, HasText, Negation
from tidewheel.model.schema import TableSpec, make_spec

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tidewheel.spark.filters import MOST_VALUES, Ask, ask
from tidewheel.spark.table_reader import _Question, carried

UTC = dt.UTC
T0 = dt.datetime(2026, 1, 1, tzinfo=UTC)


def spec(key: Any = "k", key_type: pa.DataType | None = None, time: pa.DataType | None = None) -> TableSpec:
    types = [
        ("ts", time or pa.timestamp("us", "UTC")),
        ("k", key_type or pa.int64()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("v", pa.int32()),
    ]
    return make_spec("t", pa.schema(types), time="ts", key=key, partition="1 day")


# ---- single filters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "key"),
    [
        (EqualTo(("k",), 5), (5, 5)),
        (EqualNullSafe(("k",), 5), (5, 5)),
        (GreaterThan(("k",), 5), (6, None)),
        (GreaterThanOrEqual(("k",), 5), (5, None)),
        (LessThan(("k",), 5), (None, 4)),
        (LessThanOrEqual(("k",), 5), (None, 5)),
        (Not(LessThan(("k",), 5)), (5, None)),
        (Not(GreaterThan(("k",), 5)), (None, 5)),
    ],
)
def test_whole_number_keys_are_exact_intervals(one: Filter, key: tuple[Any, Any]) -> None:
    assert ask(spec(), [one]) == (Ask(key=key), [])


@pytest.mark.parametrize(
    ("unit", "filters", "time"),
    [
        ("us", [GreaterThan(("ts",), T0)], (int(T0.timestamp()) * 10**6 + 1, None)),
        ("us", [LessThan(("ts",), T0)], (None, int(T0.timestamp()) * 10**6 - 1)),
        ("ms", [GreaterThan(("ts",), T0 + dt.timedelta(microseconds=1))], (int(T0.timestamp()) * 10**3 + 1, None)),
        ("ms", [LessThan(("ts",), T0 + dt.timedelta(microseconds=1))], (None, int(T0.timestamp()) * 10**3)),
        ("s", [EqualTo(("ts",), T0)], (int(T0.timestamp()), int(T0.timestamp()))),
        ("ns", [EqualTo(("ts",), T0)], (int(T0.timestamp()) * 10**9, int(T0.timestamp()) * 10**9 + 999)),
        ("ns", [GreaterThan(("ts",), T0)], (int(T0.timestamp()) * 10**9 + 1000, None)),
        ("ns", [LessThanOrEqual(("ts",), T0)], (None, int(T0.timestamp()) * 10**9 + 999)),
    ],
)
def test_times_are_exact_intervals(unit: str, filters: list[Filter], time: tuple[Any, Any]) -> None:
    assert ask(spec(time=pa.timestamp(unit, "UTC")), filters) == (Ask(time), [])


def test_a_moment_between_two_units() -> None:
    between = EqualTo(("ts",), T0 + dt.timedelta(microseconds=1))
    assert ask(spec(time=pa.timestamp("ms", "UTC")), [between]) == (Ask(nothing=True), [])


@pytest.mark.parametrize("type_", [pa.date32(), pa.date64()])
def test_days(type_: pa.DataType) -> None:
    day = dt.date(2026, 1, 2)
    number = (day - dt.date(1970, 1, 1)).days
    lo, hi = (number, number) if type_ == pa.date32() else (number * 86_400_000, (number + 1) * 86_400_000 - 1)
    assert ask(spec(time=type_), [EqualTo(("ts",), day)]) == (Ask((lo, hi)), [])
    assert ask(spec(time=type_), [GreaterThan(("ts",), day)]) == (Ask((hi + 1, None)), [])


def test_keys_and_times_have_values() -> None:
    assert ask(spec(), [IsNotNull(("k",)), IsNotNull(("ts",)), Not(IsNull(("k",)))]) == (Ask(), [])
    for none in (IsNull(("k",)), EqualNullSafe(("ts",), None), Not(IsNotNull(("k",)))):
        assert ask(spec(), [none]) == (Ask(nothing=True), [])


def test_empty_intervals_and_lists() -> None:
    assert ask(spec(), [GreaterThan(("k",), 5), LessThan(("k",), 5)])[0].nothing
    assert ask(spec(), [In(("k",), (None,))])[0].nothing
    assert ask(spec(), [In(("k",), (1, 2)), In(("k",), (3, 4))])[0].nothing
    assert ask(spec(), [In(("k",), (1, 9)), GreaterThan(("k",), 3), LessThan(("k",), 8)])[0].nothing


def test_lists_are_a_few_keys() -> None:
    asked, left = ask(spec(), [In(("k",), (7, 3, None, 3, 8))])
    assert (asked.key, asked.keys, left) == ((3, 8), ((3, 3), (7, 8)), [])
    long = In(("k",), tuple(range(MOST_VALUES + 1)))
    asked, left = ask(spec(), [long])
    assert (asked.key, asked.keys, asked.condition, left) == ((0, MOST_VALUES), None, None, [long])
    asked, left = ask(spec(), [Not(EqualTo(("k",), 5)), Not(EqualTo(("ts",), T0)), GreaterThan(("k",), 1)])
    assert (asked.key, asked.keys, left) == ((2, None), ((2, 4), (6, None)), [])
    assert asked.condition is not None


def test_boxes() -> None:
    zorder = spec(tw.zorder("x", "y", bounds=(0, 0, 1, 1)))
    asked, left = ask(zorder, [GreaterThan(("x",), 0.25), LessThanOrEqual(("y",), 0.5)])
    assert (asked.box, asked.condition, left) == ((math.nextafter(0.25, 1), None, None, 0.5), None, [])
    asked, left = ask(zorder, [Not(EqualTo(("x",), 0.25))])
    assert (asked.box, asked.condition, left) == (None, Negation(Comparison("x", "=", pa.scalar(0.25))), [])
    assert ask(zorder, [EqualTo(("x",), math.nan)])[0].box is None


def test_addresses_have_an_order_of_their_own() -> None:
    addresses = spec(tw.ip("k"), pa.string())
    assert ask(addresses, [EqualTo(("k",), "10.0.0.1")])[0].key == ("10.0.0.1", "10.0.0.1")
    assert ask(addresses, [GreaterThan(("k",), "10.0.0.1")])[0].key is None
    assert ask(addresses, [EqualTo(("k",), "nobody")])[0].key is None


def test_left_to_spark() -> None:
    coarse = spec(key_type=pa.timestamp("ms", "UTC"))
    one = In(("k",), (T0, T0 + dt.timedelta(seconds=1)))
    (asked, left), first = ask(coarse, [one]), int(T0.timestamp() * 1000)
    assert (asked.keys, asked.condition, left) == (((first, first), (first + 1000, first + 1000)), None, [one])
    nested = EqualTo(("v", "inner"), 1)
    assert ask(spec(), [nested]) == (Ask(), [nested])
    odd = EqualTo(("v",), 1 << 200)
    assert ask(spec(), [odd]) == (Ask(), [odd])
    wide = EqualTo(("v",), 1 << 40)
    assert ask(spec(), [wide]) == (Ask(), [wide])
    unwritten = EqualTo(("s",), "\ud800")
    texts = make_spec("t", pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("s", pa.string())]), time="ts", key="k")
    assert ask(texts, [unwritten]) == (Ask(), [unwritten])


def test_names_and_texts_are_taken_as_they_are() -> None:
    columns = [("ts", pa.timestamp("us")), ("k", pa.int64()), ('a"b', pa.string()), ("v", pa.int8()), ("V", pa.int8())]
    table = make_spec("t", pa.schema(columns), time="ts", key="k")
    for one, condition in (
        (EqualTo(('a"b',), "it's\0"), Comparison('a"b', "=", pa.scalar("it's\0"))),
        (GreaterThan(("V",), 1), Comparison("V", ">", pa.scalar(1, pa.int8()))),
        (StringStartsWith(('a"b',), "%_"), HasText('a"b', "begin", "%_")),
    ):
        assert ask(table, [one]) == (Ask(condition=condition), [])


@pytest.mark.parametrize(
    "one",
    [
        In(("s",), ("a", "b")),
        Not(EqualNullSafe(("v",), 1)),
        Not(EqualTo(("ts",), T0)),
        StringContains(("s",), "a"),
        GreaterThan(("x",), 0.5),
        IsNull(("s",)),
    ],
)
def test_questions_travel(one: Filter) -> None:
    """As Spark pickles them: what is read from an option makes questions, and nothing that acts."""
    columns = [("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("s", pa.large_string()), ("v", pa.int8()), ("x", pa.float32())]
    table = make_spec("t", pa.schema(columns), time="ts", key="k")
    asked, left = ask(table, [one])
    assert asked.condition is not None and not left
    assert carried(base64.b64encode(pickle.dumps(_Question(asked))).decode()) == asked
    with pytest.raises(tw.TidewheelError, match="not for users"):
        carried(base64.b64encode(pickle.dumps(_Question(Ask(key=(pa.scalar(1), None))))).decode())


# ---- against a naive reading of them, on a real table -----------------------------------------------------

TYPES: dict[str, pa.DataType] = {
    "ts": pa.timestamp("ms", "UTC"),
    "k": pa.int64(),
    "i": pa.int16(),
    "u": pa.uint64(),
    "f": pa.float32(),
    "d": pa.float64(),
    "b": pa.bool_(),
    "s": pa.string(),
    "c": pa.dictionary(pa.int32(), pa.string()),
    "y": pa.binary(),
    "day": pa.date32(),
    "at": pa.timestamp("us"),
    "m": pa.decimal128(8, 2),
    "h": pa.float16(),
    "l": pa.list_(pa.int8()),
}

FLOATS = [-math.inf, -1.5, -0.0, 0.0, 0.5, 2.0, math.inf, math.nan]
VALUES: dict[str, list[Any]] = {
    "ts": [T0 + dt.timedelta(milliseconds=n) for n in range(0, 10, 2)],
    "k": [-(2**63), -1, 0, 1, 5, 2**63 - 1],
    "i": [-3, 0, 7],
    "u": [Decimal(0), Decimal(7), Decimal(2**64 - 1)],
    "f": FLOATS,
    "d": FLOATS,
    "b": [True, False],
    "s": ["", "a", "ab", "abc", "b", "é", "it's", "\U0010ffff"],
    "c": ["a", "ab", "b"],
    "y": [b"", b"\x00", b"a", b"ab", b"\xff"],
    "day": [dt.date(2026, 1, n) for n in (1, 2, 5)],
    "at": [dt.datetime(2026, 1, 1, microsecond=n) for n in (0, 1, 999_999)],
    "m": [Decimal("-1.25"), Decimal("0.00"), Decimal("999999.99")],
    "h": [-1.5, 0.0, 2.0, math.nan],
    "l": [[1], []],
}
ASKED = {**VALUES, "ts": [T0 + dt.timedelta(microseconds=500 * n) for n in range(20)], "k": [*VALUES["k"], 3]}


def numbers(value: Any) -> Any:
    """NaN is the greatest number, and -0.0 is 0.0."""
    return (1, 0.0) if isinstance(value, float) and math.isnan(value) else (0, value + 0.0) if isinstance(value, float) else value


def holds(one: Filter, row: dict[str, Any]) -> bool | None:
    """A filter as Spark understands it: true, false or null."""
    if isinstance(one, Not):
        inner = holds(one.child, row)
        return None if inner is None else not inner
    have: Any = row[one.attribute[0]]  # type: ignore[attr-defined]
    match one:
        case IsNull():
            return have is None
        case IsNotNull():
            return have is not None
        case EqualNullSafe(_, value):
            return have is None if value is None else have is not None and numbers(have) == numbers(value)
        case In(_, values):
            if have is None:
                return None
            if any(v is not None and numbers(v) == numbers(have) for v in values):
                return True
            return None if None in values else False
    if have is None:
        return None
    match one:
        case EqualTo(_, value):
            return bool(numbers(have) == numbers(value))
        case GreaterThan(_, value):
            return bool(numbers(have) > numbers(value))
        case GreaterThanOrEqual(_, value):
            return bool(numbers(have) >= numbers(value))
        case LessThan(_, value):
            return bool(numbers(have) < numbers(value))
        case LessThanOrEqual(_, value):
            return bool(numbers(have) <= numbers(value))
        case StringStartsWith(_, value):
            return bool(have.startswith(value))
        case StringEndsWith(_, value):
            return bool(have.endswith(value))
        case StringContains(_, value):
            return value in have
    raise AssertionError(one)


@s.composite
def filters(draw: s.DrawFn) -> Filter:
    column = draw(s.sampled_from(list(TYPES)))
    path, value = (column,), s.sampled_from(ASKED[column])
    kinds = [s.builds(kind, s.just(path)) for kind in (IsNull, IsNotNull)]
    if column != "l":
        compare = (EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
        kinds += [s.builds(kind, s.just(path), value) for kind in compare]
        kinds.append(s.builds(EqualNullSafe, s.just(path), s.none()))
        kinds.append(s.builds(In, s.just(path), s.lists(value | s.none(), min_size=1, max_size=4).map(tuple)))
    if column in ("s", "c"):
        kinds += [s.builds(kind, s.just(path), value) for kind in (StringStartsWith, StringEndsWith, StringContains)]
    one = draw(s.one_of(kinds))
    return Not(one) if draw(s.booleans()) else one


def rows() -> s.SearchStrategy[list[dict[str, Any]]]:
    required = ("ts", "k", "d", "s")
    cell = {
        name: s.sampled_from([v for v in values if v == v] if name in required else [*values, None]) for name, values in VALUES.items()
    }  # fmt: skip
    return s.lists(s.fixed_dictionaries(cell), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("wh")


KEYS: list[Any] = ["k", "s", "d", tw.zorder("k", "d", bounds=(-10, -1, 10, 1)), "ts"]


@settings(max_examples=examples(50))
@given(data=rows(), asked=s.lists(filters(), min_size=1, max_size=4), key=s.sampled_from(KEYS), flushed=s.booleans())
def test_no_row_is_lost_and_none_too_many(
    warehouse: Path, data: list[dict[str, Any]], asked: list[Filter], key: Any, flushed: bool
) -> None:
    schema = pa.schema([("n", pa.int64()), *TYPES.items()])
    with tw.open(warehouse) as wh:
        table = wh.create_table("t", schema, time="ts", key=key)
        try:
            table.insert(pa.Table.from_pylist([{"n": n, **row} for n, row in enumerate(data)], schema))
            if flushed:
                table.flush()
            question, left = ask(make_spec("t", schema, time="ts", key=key), asked)
            wanted = {n for n, row in enumerate(data) if all(holds(one, row) for one in asked)}
            if question.nothing:
                assert not wanted
                return
            query = question.query(["n"])
            got = table._engine.query(query).to_arrow()["n"].to_pylist()
            assert len(set(got)) == len(got)
            assert wanted <= set(got)
            assert {n for n in got if all(holds(one, data[n]) for one in left)} == wanted
            if question.keys is not None:
                parts = [table._engine.query(replace(query, key=keys)).to_arrow()["n"].to_pylist() for keys in question.keys]
                again = [n for part in parts for n in part]
                assert len(set(again)) == len(again) and wanted <= set(again) <= set(got)
        finally:
            wh.drop_table("t")
