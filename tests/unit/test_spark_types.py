"""Types between Arrow and Spark: nothing changes silently, nothing is refused without a sentence."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidewheel.errors import QueryError, SchemaError
from tidewheel.model.dead_letters import with_hidden
from tidewheel.model.schema import TableSpec, epoch, make_spec

st = pytest.importorskip("pyspark.sql.types")

from tidewheel.spark.types import (  # noqa: E402
    arrow_schema,
    check_wanted,
    check_written,
    conform,
    delivery,
    read_schema,
    to_spark,
)

UTC = dt.UTC
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=UTC)


def table(*columns: tuple[str, pa.DataType]) -> TableSpec:
    return make_spec("t", pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), *columns]), time="ts", key="k")


def delivered(type_: pa.DataType, values: list[Any], nanoseconds: str = "error") -> tuple[str, list[Any]]:
    """How values of a column of this type reach Spark: its type there, and the values in Arrow."""
    spec = table(("c", type_))
    schema = read_schema(spec, ["c"], nanoseconds)
    batch = pa.RecordBatch.from_arrays([pa.array(values, type_)], names=["c"])
    out = delivery(spec, schema, nanoseconds)(batch)
    return schema[0].dataType.simpleString(), out.column(0).to_pylist()


@pytest.mark.parametrize(
    ("type_", "spark", "values"),
    [
        (pa.bool_(), "boolean", [True, None]),
        (pa.int8(), "tinyint", [-128, None]),
        (pa.uint8(), "smallint", [255, None]),
        (pa.uint16(), "int", [65535]),
        (pa.uint32(), "bigint", [2**32 - 1]),
        (pa.float32(), "float", [1.5, None]),
        (pa.large_string(), "string", ["a", None]),
        (pa.string_view(), "string", ["a", None]),
        (pa.dictionary(pa.int32(), pa.string()), "string", ["a", "b", "a", None]),
        (pa.large_binary(), "binary", [b"a"]),
        (pa.binary(2), "binary", [b"ab"]),
        (pa.date64(), "date", [dt.date(2026, 1, 2)]),
        (pa.timestamp("s", "Europe/Berlin"), "timestamp", [NOON]),
        (pa.timestamp("ms"), "timestamp_ntz", [NOON.replace(tzinfo=None)]),
        (pa.timestamp("ns"), "timestamp_ntz", [NOON.replace(tzinfo=None)]),
        (pa.time32("s"), "time(6)", [dt.time(1, 2, 3)]),
        (pa.duration("ms"), "interval day to second", [dt.timedelta(seconds=3)]),
        (pa.decimal128(10, 2), "decimal(10,2)", [Decimal("1.25")]),
        (pa.decimal256(38, 0), "decimal(38,0)", [Decimal(10) ** 37]),
        (pa.decimal128(3, -2), "decimal(5,0)", [Decimal(12300)]),
        (pa.list_(pa.uint8()), "array<smallint>", [[1, None], None]),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), "array<string>", [["a", "a"], []]),
        (pa.struct([("x", pa.uint16()), ("y", pa.string_view())]), "struct<x:int,y:string>", [{"x": 1, "y": "a"}, None]),
        (pa.map_(pa.string(), pa.int8()), "map<string,tinyint>", [[("a", 1)]]),
    ],
)
def test_delivered(type_: pa.DataType, spark: str, values: list[Any]) -> None:
    assert delivered(type_, values) == (spark, values)


def test_unsigned_64() -> None:
    assert delivered(pa.uint64(), [2**64 - 1, None]) == ("decimal(20,0)", [Decimal(2**64 - 1), None])


def test_half_floats() -> None:
    assert delivered(pa.float16(), [1.5]) == ("float", [1.5])


def test_extensions_by_what_they_store() -> None:
    type_ = pa.uuid()
    spec = table(("c", type_))
    assert read_schema(spec, ["c"])[0].dataType == st.BinaryType()


@pytest.mark.parametrize("type_", [pa.timestamp("ns", "UTC"), pa.timestamp("ns"), pa.duration("ns")])
def test_nanoseconds_never_lost_silently(type_: pa.DataType) -> None:
    fine = [-1, 1_700_000_000_000_000_001, None]
    with pytest.raises(QueryError, match="finer than a microsecond.*nanoseconds=truncate.*nanoseconds=long"):
        delivered(type_, fine)
    spec = table(("c", type_))
    batch = pa.RecordBatch.from_arrays([pa.array(fine, type_)], names=["c"])
    cut = delivery(spec, read_schema(spec, ["c"], "truncate"), "truncate")(batch).column(0)
    assert cut.view(pa.int64()).to_pylist() == [-1, 1_700_000_000_000_000, None]
    assert delivered(type_, fine, "long") == ("bigint", fine)


@pytest.mark.parametrize("type_", [pa.decimal256(60, 2), pa.month_day_nano_interval(), pa.dense_union([pa.field("a", pa.int8())])])
def test_refused_by_name(type_: pa.DataType) -> None:
    spec = table(("odd", type_), ("v", pa.int8()))
    with pytest.raises(SchemaError, match="no type for odd .*columns=ts,k,v"):
        read_schema(spec)
    assert read_schema(spec, ["ts", "v"]).names == ["ts", "v"]


def test_unknown_column() -> None:
    with pytest.raises(QueryError, match=r"no column 'K2'.*Columns: ts, k"):
        read_schema(table(), ["K2"])


# ---- a schema that the user gives for reading -------------------------------------------------------------


def test_wanted_may_be_wider() -> None:
    spec = table(("i", pa.int16()), ("f", pa.float32()), ("d", pa.decimal128(5, 2)))
    wide = st.StructType().add("i", "long").add("f", "double").add("d", "decimal(10,4)")
    check_wanted(spec, wide)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1], pa.int16()), pa.array([0.5], pa.float32()), pa.array([Decimal("1.25")], pa.decimal128(5, 2))], names=["i", "f", "d"]
    )
    assert delivery(spec, wide)(batch).to_pylist() == [{"i": 1, "f": 0.5, "d": Decimal("1.2500")}]


@pytest.mark.parametrize("wanted", ["integer", "string", "double", "timestamp"])
def test_wanted_must_hold_all(wanted: str) -> None:
    with pytest.raises(SchemaError, match=r"cannot be read with this schema(.|\n)*≠ k: bigint"):
        check_wanted(table(), st.StructType().add("k", wanted))


def test_wanted_without_nulls() -> None:
    spec = table(("v", pa.int8()))
    wanted = st.StructType([st.StructField("v", st.ByteType(), False)])
    deliver = delivery(spec, wanted)
    assert deliver(pa.RecordBatch.from_arrays([pa.array([1], pa.int8())], names=["v"])).num_rows == 1
    with pytest.raises(QueryError, match="no value in some rows"):
        deliver(pa.RecordBatch.from_arrays([pa.array([None], pa.int8())], names=["v"]))


# ---- a DataFrame that is written --------------------------------------------------------------------------


def test_both_schemas_side_by_side() -> None:
    spec = table(("v", pa.float64()), ("name", pa.string()))
    given = st.StructType().add("k", "string").add("ts", "timestamp").add("v", "double").add("extra", "integer")
    with pytest.raises(SchemaError) as error:
        check_written(spec, given)
    assert str(error.value).splitlines()[1:] == [
        "    the table       the DataFrame",
        "    ts: timestamp   ts: timestamp",
        "  ≠ k: bigint       k: string",
        "    v: double       v: double",
        "    name: string",
        "  ≠ (missing)       extra: int",
    ]


@pytest.mark.parametrize(
    ("given", "to", "fits"),
    [
        ("int", pa.int64(), True),
        ("bigint", pa.int32(), True),  # row by row
        ("bigint", pa.float64(), True),
        ("decimal(20,0)", pa.uint64(), True),
        ("double", pa.float32(), True),
        ("double", pa.int64(), False),
        ("string", pa.dictionary(pa.int32(), pa.string()), True),
        ("string", pa.int64(), False),
        ("bigint", pa.timestamp("us"), False),
        ("date", pa.timestamp("us"), True),
        ("timestamp", pa.timestamp("ns"), True),
        ("timestamp_ntz", pa.timestamp("ms", "UTC"), True),
        ("boolean", pa.int8(), False),
        ("void", pa.int8(), True),
        ("time", pa.time32("s"), True),
        ("array<int>", pa.list_(pa.int64()), True),
        ("array<string>", pa.list_(pa.int64()), False),
        ("struct<a:int>", pa.struct([("a", pa.int8())]), True),
        ("struct<a:string>", pa.struct([("a", pa.int8())]), False),
    ],
)
def test_what_fits(given: str, to: pa.DataType, fits: bool) -> None:
    schema = st.StructType(
        [st.StructField("ts", st.TimestampType()), st.StructField("k", st.LongType()), st.StructField("c", spark_type(given))]
    )
    spec = table(("c", to))
    if fits:
        check_written(spec, schema)
    else:
        with pytest.raises(SchemaError, match="≠ c: "):
            check_written(spec, schema)


def spark_type(text: str) -> Any:
    """Without a session nothing parses Spark's texts."""
    match text:
        case "array<int>":
            return st.ArrayType(st.IntegerType())
        case "array<string>":
            return st.ArrayType(st.StringType())
        case "struct<a:int>":
            return st.StructType().add("a", st.IntegerType())
        case "struct<a:string>":
            return st.StructType().add("a", st.StringType())
        case "void":
            return st.NullType()
        case "decimal(20,0)":
            return st.DecimalType(20, 0)
    plain = {
        "int": st.IntegerType(), "bigint": st.LongType(), "double": st.DoubleType(), "string": st.StringType(), "date": st.DateType(),
        "timestamp": st.TimestampType(), "timestamp_ntz": st.TimestampNTZType(), "boolean": st.BooleanType(),
        "time": st.TimeType(),
    }  # fmt: skip
    return plain[text]


def test_times_of_whole_numbers() -> None:
    spec = make_spec("t", pa.schema([("seen", pa.int64()), ("k", pa.int64())]), time=epoch("seen", "ms"), key="k")
    check_written(spec, st.StructType().add("seen", st.TimestampType()).add("k", st.LongType()))
    with pytest.raises(SchemaError, match="≠ k"):
        check_written(spec, st.StructType().add("seen", st.LongType()).add("k", st.TimestampType()))


def test_dead_letters_are_no_mismatch() -> None:
    spec = table()
    given = st.StructType([st.StructField(f.name, to_spark(f.type)) for f in with_hidden(spec.schema)])
    check_written(spec, given, hidden=True)
    with pytest.raises(SchemaError, match="_tw_bad"):
        check_written(spec, given)


def test_schema_of_a_new_table() -> None:
    given = st.StructType([st.StructField("a", st.LongType(), False), st.StructField("l", st.ArrayType(st.IntegerType(), False))])
    made = arrow_schema(given)
    assert made == pa.schema([("a", pa.int64()), ("l", pa.list_(pa.field("element", pa.int32())))])
    for bad in (st.NullType(), st.VariantType(), st.CalendarIntervalType()):
        with pytest.raises(SchemaError, match="column 'x' is .*cast it"):
            arrow_schema(st.StructType().add("x", bad))


def test_conform_reorders_and_renames_nothing() -> None:
    spec = table(("v", pa.int8()))
    there = pa.RecordBatch.from_pydict({"v": pa.array([1], pa.int8()), "k": [2], "ts": pa.array([3], pa.timestamp("us", "UTC"))})
    out = conform(spec, there.schema)(there)
    assert out.schema.equals(spec.schema, check_metadata=True)
    other = pa.RecordBatch.from_pydict({"v": [1], "k": [2], "ts": pa.array([3], pa.timestamp("us", "UTC"))})
    assert conform(spec, other.schema)(other) is other
