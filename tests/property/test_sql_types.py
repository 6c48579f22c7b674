"""Keys and times of every type, compared with constants of every other: statements have DuckDB's answers, filters of datasets Arrow's."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest

import tidewheel as tw
from tests.conftest import examples

DAY = dt.datetime(2026, 1, 1)
ROWS = 40
Make = Callable[[random.Random], Any]


def _one(*values: Any) -> Make:
    return lambda rng: rng.choice(values)


def _near(**step: int) -> Make:
    """A moment near the day, on either side."""
    return lambda rng: DAY + rng.randrange(-3, 4) * dt.timedelta(**step)


TYPES: dict[pa.DataType, Make] = {
    pa.int8(): _one(-128, -1, 0, 1, 2, 127), pa.uint8(): _one(0, 1, 2, 255), pa.int64(): _one(-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1),
    pa.uint64(): _one(0, 1, 2, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1), pa.bool_(): _one(False, True),
    pa.float32(): _one(0.1, 0.5, -0.0, 0.0, math.inf, -math.inf, 1e-40, 16777217.0, -1.25),
    pa.float64(): _one(0.1, 0.5, -0.0, 0.0, math.inf, -math.inf, 5e-324, 2.0**53, -1.25),
    pa.decimal128(10, 2): _one(Decimal("-3.00"), Decimal("0.00"), Decimal("0.10"), Decimal("1.50"), Decimal("2.01")),
    pa.decimal128(38, 0): _one(Decimal(10) ** 37, -(Decimal(10) ** 37), Decimal(0), Decimal(1)),
    pa.string(): _one("", "a", "ab", "b", "B", "é", "\U0001f600", "\uffff", "aaaaaaaaaa", "aaaaaaaaab"),
    pa.dictionary(pa.int32(), pa.string()): _one("", "a", "ab", "b", "é"), pa.binary(): _one(b"", b"a", b"\x00", b"\xff", b"ab"),
    pa.binary(2): _one(b"aa", b"\x00\x00", b"\xff\xff"), pa.date32(): lambda rng: _near(days=1)(rng).date(),
    pa.date64(): lambda rng: _near(days=1)(rng).date(), pa.timestamp("s"): _near(seconds=1), pa.timestamp("ms"): _near(milliseconds=1),
    pa.timestamp("us"): _near(microseconds=1), pa.timestamp("ns"): _near(microseconds=1), pa.timestamp("us", "UTC"): _near(microseconds=1),
    pa.timestamp("ms", "Europe/Vienna"): _near(milliseconds=1), pa.time64("us"): _one(dt.time(1), dt.time(1, 2), dt.time(1, 2, 3, 4)),
}  # fmt: skip
TIMES = [type_ for type_ in TYPES if pa.types.is_timestamp(type_) or pa.types.is_date(type_)]
OTHERS = (
    "0", "1", "-1", "0.5", "1.5", "2.5e0", "1e20", "-1e20", "9007199254740993", "9223372036854775808", "18446744073709551615", "0.1::FLOAT",
    "'NaN'::DOUBLE", "'inf'::DOUBLE", "NULL", "'a'", "'2026-01-01'", "'1'", "0.005", "0.10", "1::UTINYINT", "true", "1" + "0" * 29,
)  # fmt: skip
"""Constants that are compared with columns of any type."""


class Filled(NamedTuple):
    table: tw.Table
    rows: pa.Table

    def column(self, rng: random.Random) -> tuple[str, pa.DataType]:
        """Of the key, the time or another one."""
        name = rng.choice(["k", "k", "ts", "o"])
        return name, self.rows.schema.field(name).type


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tw.Warehouse, list[Filled]]]:
    rng = random.Random(5)
    with tw.open(tmp_path_factory.mktemp("types") / "wh", settings=tw.Settings(leaf_rows=4)) as wh:
        tables = []
        for number, key in enumerate(TYPES):
            schema = pa.schema([("k", key), ("ts", rng.choice(TIMES)), ("o", rng.choice(list(TYPES))), ("n", pa.int64())])
            values = {name: [TYPES[schema.field(name).type](rng) for _ in range(ROWS)] for name in ("k", "ts", "o")}
            values["o"] = [None if rng.random() < 0.3 else value for value in values["o"]]
            arrays = [_array(values[name], schema.field(name).type) for name in values]
            rows = pa.table([*arrays, pa.array(range(ROWS))], schema=schema)
            table = wh.create_table(f"t{number}", schema, time="ts", key="k", partition="1 day")
            table.insert(rows.slice(0, 25))
            table.flush()
            table.insert(rows.slice(25))
            tables.append(Filled(table, rows))
        yield wh, tables


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The warehouse stays open from one test to the next."""
    yield


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    return pa.array(values).dictionary_encode().cast(type_) if pa.types.is_dictionary(type_) else pa.array(values, type_)


# ---- statements ---------------------------------------------------------------------------------------------


def _literal(rng: random.Random, value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return repr(value) if math.isfinite(value) else f"'{value}'::DOUBLE"
        case int() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) else str(value)
        case bytes():
            return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
        case dt.datetime():
            return rng.choice(["'{}'", "TIMESTAMP '{}'", "TIMESTAMPTZ '{}+00'", "'{}'::TIMESTAMP_NS"]).format(value.isoformat(sep=" "))
        case dt.date():
            return rng.choice(["'{}'", "DATE '{}'", "TIMESTAMP '{} 00:00:00'", "TIMESTAMP '{} 12:00:00'"]).format(value)
    return f"'{value}'"


def _condition(rng: random.Random, name: str, type_: pa.DataType) -> str:
    def value() -> str:
        return _literal(rng, TYPES[type_](rng)) if rng.random() < 0.75 else rng.choice(OTHERS)

    op = rng.choice(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"])
    forms = [
        f"{name} {op} {value()}", f"{name} {op} {value()}", f"{value()} {op} {name}", f"NOT ({name} {op} {value()})", f"{name} IS NOT NULL",
        f"{name} BETWEEN {value()} AND {value()}", f"{name} IN ({value()}, {value()}, {value()})", f"{name} NOT IN ({value()}, {value()})",
        f"CAST({name} AS {rng.choice(['DOUBLE', 'VARCHAR', 'DATE', 'TIMESTAMP', 'BIGINT', 'FLOAT'])}) {op} {value()}",
    ]  # fmt: skip
    return rng.choice(forms)


def test_statements_have_the_answers_of_duckdb(filled: tuple[tw.Warehouse, list[Filled]]) -> None:
    wh, tables = filled
    rng = random.Random(17)
    duck = duckdb.connect()
    duck.execute("SET GLOBAL TimeZone = 'UTC'")
    for one in tables:
        duck.register(one.table.name, one.rows)
    answered = 0
    for _ in range(examples(300)):
        one = rng.choice(tables)
        where = _condition(rng, *one.column(rng))
        for _ in range(rng.choice([0, 0, 1, 2])):
            where = f"({where}) {rng.choice(['AND', 'OR'])} ({_condition(rng, *one.column(rng))})"
        statement = f"SELECT {rng.choice(['n', 'n, k', 'n, o'])} FROM {one.table.name} WHERE {where}"
        try:
            theirs = duck.sql(statement).to_arrow_table()
        except duckdb.Error:
            with pytest.raises(tw.QueryError):
                wh.sql(statement).to_arrow()
            continue
        ours = wh.sql(statement).to_arrow()
        assert ours.sort_by("n").equals(theirs.sort_by("n").cast(ours.schema)), statement
        answered += 1
    assert answered > examples(150)
    duck.close()


# ---- datasets -----------------------------------------------------------------------------------------------


def _filter(rng: random.Random, name: str, type_: pa.DataType) -> pc.Expression:
    field, plain = pc.field(name), type_.value_type if pa.types.is_dictionary(type_) else type_
    if pa.types.is_floating(plain) and rng.random() < 0.5:
        plain = pa.float64()
    match rng.randrange(4):
        case 0:
            return field.isin(pa.array([TYPES[type_](rng) for _ in range(3)], plain))
        case 1:
            return rng.choice([field.is_null(), field.is_valid(), ~_filter(rng, name, type_)])
    compare = rng.choice([field.__eq__, field.__ne__, field.__lt__, field.__le__, field.__gt__, field.__ge__])
    return compare(pa.scalar(TYPES[type_](rng), plain))


def test_filters_of_datasets_keep_the_rows_that_arrow_keeps(filled: tuple[tw.Warehouse, list[Filled]]) -> None:
    rng = random.Random(23)
    answered = 0
    for _ in range(examples(300)):
        one = rng.choice(filled[1])
        where = _filter(rng, *one.column(rng))
        for _ in range(rng.choice([0, 0, 1, 2])):
            more = _filter(rng, *one.column(rng))
            where = where & more if rng.random() < 0.5 else where | more
        try:
            theirs = pds.dataset(one.rows).to_table(columns=["n"], filter=where)
        except pa.ArrowException:  # types that Arrow does not compare; an index may
            continue
        ours = one.table.dataset().to_table(columns=["n"], filter=where)
        assert ours.sort_by("n").equals(theirs), where
        answered += 1
    assert answered > examples(150)


def test_a_list_of_floats_is_looked_for_as_arrow_looks_for_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Which rounds the list to the column's type, and tells -0.0 from 0.0: also where the column is the key."""
    schema = pa.schema([("k", pa.float32()), ("ts", pa.timestamp("us"))])
    rows = pa.table([pa.array([16777216.0, 0.0, -0.0, 0.1], pa.float32()), pa.array(range(4), pa.timestamp("us"))], schema=schema)
    with tw.open(tmp_path_factory.mktemp("floats") / "wh") as wh:
        table = wh.create_table("t", schema, time="ts", key="k")
        table.insert(rows)
        for values in ([16777217.0], [0.0], [0.1], [-0.0, 16777217.0]):
            where = pc.field("k").isin(values)
            theirs = pds.dataset(rows).to_table(filter=where)
            assert table.dataset().to_table(filter=where).sort_by("ts").equals(theirs), values
        assert len(wh.sql("SELECT * FROM t WHERE k IN (0.0::FLOAT, 5.0::FLOAT)")) == 2, "SQL does not tell them apart"


NOON = DAY + dt.timedelta(hours=12)
MOMENTS: list[tuple[str, list[Any] | None]] = [
    ("'2026-01-01 12:00:00'::DATE", None), ("'2026-01-02'::DATE", None), ("?::DATE", [NOON]), ("?::DATE", ["2026-01-01 12:00"]),
    ("'2026-01-01 12:00:00.6'::TIMESTAMP(0)", None), ("'2026-01-01 12:00:00.6'::TIMESTAMP_S", None), ("?", [dt.date(2026, 1, 2)]),
    ("'2026-01-01 12:00:00+02'::TIMESTAMPTZ", None), ("?", [NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=2)))]),
    ("'2026-01-01 12:00:00.0000009'", None), ("TRY_CAST('nonsense' AS TIMESTAMP)", None),
]  # fmt: skip


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_moments_that_are_cast(tmp_path_factory: pytest.TempPathFactory, unit: str) -> None:
    rows = pa.table({"id": range(100), "ts": pa.array([DAY + dt.timedelta(minutes=20 * i) for i in range(100)], pa.timestamp(unit))})
    duck = duckdb.connect()
    duck.execute("SET GLOBAL TimeZone = 'UTC'")
    duck.register("t", rows)
    with tw.open(tmp_path_factory.mktemp("moments") / "wh", settings=tw.Settings(leaf_rows=4)) as wh:
        wh.create_table("t", rows.schema, time="ts", key="id").insert(rows)
        for moment, given in MOMENTS:
            for op in ("<", "<=", "=", ">=", ">"):
                statement = f"SELECT count(id) AS n FROM t WHERE ts {op} {moment}"
                try:
                    theirs = duck.execute(statement, given).fetchone()
                except duckdb.Error:
                    with pytest.raises(tw.QueryError):
                        wh.sql(statement, given)
                    continue
                assert tuple(wh.sql(statement, given).to_pylist()[0].values()) == theirs, (statement, given)
    duck.close()
