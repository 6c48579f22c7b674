"""Keys and aggregates are what DuckDB makes of them: their types, and the texts that they are written as."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tidewheel.duck.parser import tree_of
from tidewheel.model.schema import make_spec
from tidewheel.read.groups.group_nodes import aggregate_of, key_of, type_of, written

COLUMNS = {
    "i1": pa.int8(), "i2": pa.int16(), "i4": pa.int32(), "i8": pa.int64(), "u1": pa.uint8(), "u2": pa.uint16(), "u4": pa.uint32(),
    "u8": pa.uint64(), "f4": pa.float32(), "f8": pa.float64(), "b": pa.bool_(), "d": pa.date32(), "ts": pa.timestamp("us"),
    "tss": pa.timestamp("s"), "tms": pa.timestamp("ms"), "tns": pa.timestamp("ns"), "tz": pa.timestamp("us", "UTC"),
    "dec": pa.decimal128(10, 2), "s": pa.string(), "bin": pa.binary(),
}  # fmt: skip
SPEC = make_spec("t", pa.schema(list(COLUMNS.items())), time="ts", key="i8")

KEYS = (
    "{}", "t.{}", "{}+1", "{}-1", "{}*2", "{}//10", "{}%10", "{}+100", "{}+1000", "1000+{}", "{}//100000", "{}+10000000000",
    "{}*3000000000", "{}/10", "{}*2.5", "{}/2.5", "{}+1.5", "floor({})", "floor({}/10)", "floor({}/10)::INT", "{}+(-1)", "{}::BIGINT",
    "{}::INT", "{}::SMALLINT", "{}::DOUBLE", "{}::DATE", "{}::TIMESTAMP", "{}::UINTEGER", "date_trunc('minute',{})",
    "date_trunc('YEARS',{})", "time_bucket(INTERVAL '5 minutes',{})", "time_bucket(INTERVAL 5 MINUTE,{})",
    "time_bucket(to_hours(2), {})", "time_bucket(INTERVAL '1 month',{})", "time_bucket(INTERVAL '2 days',{})",
    "extract(hour from {})", "year({})", "dayofweek({})", "extract(hour from date_trunc('day',{}))", "hour({})//6",
    "datepart('isodow',{})", "yearweek({})", "date_part('quarter',{})", "date_trunc('day',{})::DATE",
)  # fmt: skip
AGGREGATES = (
    "count(*)", "count(*)::BIGINT", "count({})", "sum({})", "avg({})", "min({})", "max({})", "mean({})", "stddev({})", "var_pop({})",
    "variance({})", "stddev_pop({})", "bool_and({})", "bool_or({})", "count(DISTINCT {})", "first({} ORDER BY ts)",
    "last({} ORDER BY ts)", "arg_max({},ts)", "argmin({},i4)", "max_by({},tms)", "sum({})::BIGINT", "sum({})::DOUBLE", "avg({})::DOUBLE",
    "count({})::BIGINT", "min({})::BIGINT", "sum({}+1)", "count(DISTINCT {} // 10)", "arg_max({},f8)", "first({})",
)  # fmt: skip
LEFT = (
    "i4*2.5", "f8//10", "f8%10", "i4//0", "i4%0", "i4/0", "i4//-2", "u8+(-1)", "u8//2", "f4/2", "dec+1", "ts+INTERVAL 1 DAY", "nothing",
    "x.i4", "t", "TRY_CAST(i4 AS BIGINT)", "date_trunc('decade', ts)", "date_trunc(s, ts)", "epoch(ts)", "i4+i4",
    "time_bucket(INTERVAL '1 day', ts, ts)", "time_bucket(INTERVAL '90 minutes', d)", "time_bucket(INTERVAL '0 days', ts)", "upper(s)",
    "1", "i4::VARCHAR", "abs(i4)",
)  # fmt: skip
LEFT_AGGREGATES = (
    "sum(DISTINCT i4)", "count(*) FILTER (i4 > 1)", "first(i4)", "first(i4 ORDER BY i8)", "last(i4 ORDER BY ts DESC)", "arg_max(i4, f8)",
    "arg_max(i4, ts, 2)", "median(i4)", "min(dec)", "max(upper(s))", "count(dec+1)", "count(DISTINCT dec)", "arg_max(dec, ts)",
    "arg_max(s, f8)", "first(s)", "sum(b)", "sum(i4) + 1", "count(*)::DOUBLE", "any_value(i4)", "i4",
)  # fmt: skip


def _node(expression: str) -> Any:
    tree = tree_of(f"SELECT {expression} FROM t")
    assert isinstance(tree, dict)
    return tree["node"]["select_list"][0]


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", SPEC.schema.empty_table())
        yield connection


def _type(duck: duckdb.DuckDBPyConnection, expression: str) -> pa.DataType | None:
    try:
        return duck.sql(f"SELECT {expression} FROM t").to_arrow_table().schema.types[0]
    except duckdb.Error:
        return None


@pytest.mark.parametrize(("templates", "of", "least"), [(KEYS, key_of, 300), (AGGREGATES, aggregate_of, 260)])
def test_types_and_texts_are_duckdbs(duck: duckdb.DuckDBPyConnection, templates: tuple[str, ...], of: Any, least: int) -> None:
    understood = 0
    for template in templates:
        for column in COLUMNS:
            expression = template.format(column)
            value = of(_node(expression), SPEC, "t")
            if value is None:
                continue
            understood += 1
            assert type_of(value, SPEC.schema) == _type(duck, expression), expression
            assert _type(duck, written(value)) == _type(duck, expression), written(value)
            assert of(_node(written(value)), SPEC, "t") == value, written(value)
    assert understood >= least


@pytest.mark.parametrize("expression", LEFT)
def test_what_is_not_certain_is_left_to_duckdb(expression: str) -> None:
    assert key_of(_node(expression), SPEC, "t") is None


@pytest.mark.parametrize("expression", [*LEFT_AGGREGATES, *LEFT])
def test_aggregates_that_are_not_certain_are_left_to_duckdb(expression: str) -> None:
    assert aggregate_of(_node(expression), SPEC, "t") is None
