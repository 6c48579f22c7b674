"""The reader: Spark's answers are ours, for any filter, of one version, with as little read as needed."""

from __future__ import annotations

import datetime as dt
import math
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as s

import tidewheel as tw
from tests.conftest import examples
from tests.integration.spark_session import plain_source

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidewheel.spark import connections
from tidewheel.spark.filters import Ask
from tidewheel.spark.options import TablePath
from tidewheel.spark.table_reader import SCAN, TableReader
from tidewheel.spark.types import read_schema

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = 3000
SCHEMA = pa.schema(
    [
        ("n", pa.int64()), ("ts", pa.timestamp("ms", "UTC")), ("k", pa.int32()), ("d", pa.float64()), ("s", pa.string()),
        ("c", pa.dictionary(pa.int32(), pa.string())), ("u", pa.uint64()), ("b", pa.bool_()), ("day", pa.date32()),
        ("m", pa.decimal128(8, 2)),
    ]
)  # fmt: skip


def some_rows(count: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(5)
    texts = ["", "a", "ab", "abc", "b", "é", "it's"]

    def sparse(values: list[Any]) -> list[Any]:
        return [values[i] if i < len(values) else None for i in rng.integers(0, len(values) + 1, count)]

    floats = [-math.inf, -1.5, -0.0, 0.0, 0.5, 2.0, math.inf, math.nan]
    columns = [
        list(range(count)), [T0 + dt.timedelta(milliseconds=int(i)) for i in rng.integers(0, 10_000, count)],
        rng.integers(-50, 50, count), sparse(floats), sparse(texts), sparse(texts[:4]), sparse([0, 7, 2**64 - 1]), sparse([True, False]),
        sparse([dt.date(2026, 1, n) for n in (1, 2, 5)]), sparse([Decimal("-1.25"), Decimal("0.00"), Decimal("9.99")]),
    ]  # fmt: skip
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with two tables of the same rows, in chunks and fresh: one with a key, one with a z-order."""
    path = tmp_path_factory.mktemp("wh")
    data = some_rows()
    with tw.open(path, settings=tw.Settings(chunk_bytes=16 << 10)) as wh:
        for name, key in (("t", "k"), ("z", tw.zorder("k", "n", bounds=(-50, 0, 50, ROWS)))):
            table = wh.create_table(name, SCHEMA, time="ts", key=key)
            for first in range(0, ROWS - 500, 250):
                table.insert(data.slice(first, 250))
    return path


@pytest.fixture
def wh(root: Path) -> Iterator[tw.Warehouse]:
    """Open, with some rows that are in no chunk."""
    with tw.open(root, settings=tw.Settings(chunk_bytes=16 << 10)) as found:
        for name in ("t", "z"):
            table = found.table(name)
            if table.rows < ROWS:
                table.insert(some_rows().slice(ROWS - 500))
        yield found


def load(session: SparkSession, root: Path, table: str = "t", **options: str) -> DataFrame:
    return session.read.format("tidewheel").options(**options).load(str(root / table))


def numbers(df: DataFrame) -> list[int]:
    return sorted(row.n for row in df.select("n").collect())


# ---- filters ----------------------------------------------------------------------------------------------


def test_one_dataframe_many_questions(spark: SparkSession, root: Path, wh: tw.Warehouse) -> None:
    """Spark by itself would answer the later ones with what it planned for the first."""
    df = load(spark, root)
    data = some_rows()
    small, large = ({n for n, k in enumerate(data["k"].to_pylist()) if test(k)} for test in (lambda k: k < -40, lambda k: k > 40))
    assert df.count() == ROWS
    assert df.where("k < -40").count() == len(small)
    assert df.count() == ROWS
    assert df.where("k < -40 or s = 'no such'").count() == len(small)
    both = df.where("k < -40").union(df.where("k > 40 and n >= 0"))
    assert numbers(both) == sorted(small | large)
    joined = df.where("k < -40").alias("a").join(df.where("k < -40").alias("b"), "n").where("b.k < -45")
    assert joined.count() == len({n for n in small if data["k"][n].as_py() < -45})
    df.createOrReplaceTempView("view")
    assert spark.sql("SELECT n FROM view WHERE k < -40 UNION ALL SELECT n FROM view WHERE k > 40").count() == len(small | large)
    inner = "SELECT n FROM view WHERE k < 0 AND n IN (SELECT n FROM view WHERE k < -40)"
    assert numbers(spark.sql(inner)) == sorted(small)


LITERALS: dict[str, list[str]] = {
    "n": ["0", "1500", "-1"],
    "k": ["-50", "-7", "0", "3", "49", "3.5", "99999999999"],
    "d": ["0.0D", "-1.5D", "0.5D", "cast('NaN' as double)", "cast('Infinity' as double)", "1"],
    "s": ["''", "'a'", "'ab'", "'it\\'s'", "'é'", "'zz'"],
    "c": ["'a'", "'ab'"],
    "u": ["0", "7", "18446744073709551615"],
    "b": ["true", "false"],
    "day": ["date'2026-01-02'", "date'2026-01-03'"],
    "m": ["-1.25", "0", "1.255"],
    "ts": [f"timestamp'2026-01-01 00:00:0{i}.{j}Z'" for i in (1, 5, 9) for j in ("000", "0005", "750")],
}


@s.composite
def conditions(draw: s.DrawFn, depth: int = 1) -> str:
    if depth and draw(s.integers(0, 4)) == 0:
        word = draw(s.sampled_from(["AND", "OR"]))
        return f"({draw(conditions(depth - 1))} {word} {draw(conditions(depth - 1))})"
    column = draw(s.sampled_from(list(LITERALS)))
    value = s.sampled_from(LITERALS[column])
    one = draw(
        s.one_of(
            s.tuples(s.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]), value).map(" ".join),
            s.lists(value, min_size=1, max_size=4).map(lambda v: f"IN ({', '.join(v)})"),
            s.tuples(value, value).map(lambda v: f"BETWEEN {v[0]} AND {v[1]}"),
            s.sampled_from(["IS NULL", "IS NOT NULL"]),
            s.sampled_from(["LIKE 'a%'", "LIKE '%b'", "LIKE '%b%'"]) if column in "sc" else s.just("IS NOT NULL"),
        )
    )
    return draw(s.sampled_from(["", "NOT "])) + f"({column} {one})"


@settings(max_examples=examples(2))
@given(asked=s.lists(conditions(), min_size=10, max_size=10), table=s.sampled_from(["t", "z"]))
def test_any_filter(spark: SparkSession, root: Path, asked: list[str], table: str) -> None:
    """Spark reads through us and through nothing at all; all filters of an example in one job."""
    plain = spark.createDataFrame(some_rows().set_column(6, "u", some_rows()["u"].cast(pa.decimal128(20, 0))))

    def answers(df: DataFrame) -> dict[int, list[int]]:
        parts = [df.where(one).select(f.lit(i).alias("i"), "n") for i, one in enumerate(asked)]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.union(part)
        found: dict[int, list[int]] = {i: [] for i in range(len(asked))}
        for row in whole.collect():
            found[row.i].append(row.n)
        return {i: sorted(rows) for i, rows in found.items()}

    with tw.open(root) as wh:
        if wh.table(table).rows < ROWS:
            wh.table(table).insert(some_rows().slice(ROWS - 500))
        got, expected = answers(load(spark, root, table, partitions="1")), answers(plain)
    for i, one in enumerate(asked):
        assert got[i] == expected[i], one


def test_our_answers_too(spark: SparkSession, root: Path, wh: tw.Warehouse) -> None:
    df, taxi = load(spark, root), wh.table("t")
    half = T0 + dt.timedelta(seconds=5)
    for where, query in (
        ("k BETWEEN -5 AND 5", {"key": (-5, 5)}),
        ("k = 7 AND ts >= '2026-01-01 00:00:05Z'", {"key": 7, "time": (half, None)}),
        ("s = 'ab' AND d > 0", {"where": "s = 'ab' AND d > 0"}),
    ):
        assert numbers(df.where(where)) == sorted(taxi.query(columns=["n"], **query).to_arrow()["n"].to_pylist())


# ---- columns ----------------------------------------------------------------------------------------------


def test_columns(spark: SparkSession, root: Path, wh: tw.Warehouse) -> None:
    df = load(spark, root)
    assert df.columns == SCHEMA.names
    assert scanned(df.where("k > 3 and s = 'a'").groupBy("b").agg(f.sum("d"))) == {"b", "d"}
    assert scanned(df.where("length(s) > 1").select("n")) == {"n", "s"}
    assert len(scanned(df.groupBy().count())) == 1
    assert load(spark, root, columns='k, "n"').columns == ["k", "n"]
    given = spark.read.format("tidewheel").schema("n long, k long").load(str(root / "t"))
    assert given.agg(f.sum("n"), f.max("k")).collect() == [(sum(range(ROWS)), max(some_rows()["k"].to_pylist()))]
    with pytest.raises(PySparkException, match=r"cannot be read with this schema(.|\n)*≠ k: int +k: string"):
        spark.read.format("tidewheel").schema("n long, k string").load(str(root / "t")).count()
    with pytest.raises(PySparkException, match="no column 'kk'. Did you mean 'k'"):
        load(spark, root, columns="kk")


def scanned(df: DataFrame) -> set[str]:
    """The columns that a query reads."""
    plan = df._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
    line = next(line for line in plan.splitlines() if "BatchScan tidewheel" in line)
    return {part.split("#")[0].strip() for part in line.split("[", 1)[1].split("]")[0].split(",")}


EVERY_TYPE: dict[str, tuple[pa.DataType, list[Any]]] = {
    "u8": (pa.uint8(), [0, 255, None]),
    "f16": (pa.float16(), [1.5, -2.0, None]),
    "view": (pa.string_view(), ["a", "", None]),
    "fixed": (pa.binary(2), [b"ab", b"\x00\xff", None]),
    "date": (pa.date64(), [dt.date(2026, 1, 2), dt.date(1969, 12, 31), None]),
    "zoned": (pa.timestamp("s", "Europe/Berlin"), [T0, T0 - dt.timedelta(days=40000), None]),
    "plain": (pa.timestamp("ns"), [dt.datetime(2026, 1, 1), dt.datetime(1960, 1, 1, microsecond=1), None]),
    "time": (pa.time32("ms"), [dt.time(1, 2, 3), dt.time(23, 59, 59, 999000), None]),
    "span": (pa.duration("ms"), [dt.timedelta(seconds=-3), dt.timedelta(days=2), None]),
    "dec": (pa.decimal128(20, 3), [Decimal("1.250"), Decimal("-9999.999"), None]),
    "list": (pa.list_(pa.uint16()), [[1, None], [], None]),
    "struct": (pa.struct([("a", pa.int8()), ("b", pa.large_string())]), [{"a": 1, "b": "x"}, {"a": None, "b": None}, None]),
    "map": (pa.map_(pa.string(), pa.float32()), [[("a", 1.5)], [], None]),
}


def test_every_type_there_and_back(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), *((name, type_) for name, (type_, _) in EVERY_TYPE.items())])
    rows = [{"k": i, "ts": T0, **{name: values[i] for name, (_, values) in EVERY_TYPE.items()}} for i in range(3)]
    with tw.open(tmp_path) as wh:
        for name in ("here", "there"):
            wh.create_table(name, schema, time="ts", key="k")
        wh.table("here").insert(pa.Table.from_pylist(rows, schema))
        df = load(spark, tmp_path, "here")
        got = [row.asDict(True) for row in df.orderBy("k").collect()]
        assert got[0]["u8"] == 0 and got[1]["u8"] == 255
        assert got[1]["zoned"].astimezone(dt.UTC) == T0 - dt.timedelta(days=40000)
        assert (got[1]["plain"], got[0]["time"], got[0]["span"]) == (rows[1]["plain"], rows[0]["time"], rows[0]["span"])
        assert (got[0]["struct"], got[0]["map"], got[0]["list"]) == ({"a": 1, "b": "x"}, {"a": 1.5}, [1, None])
        assert all(got[2][name] is None for name in EVERY_TYPE)
        df.write.format("tidewheel").mode("append").save(str(tmp_path / "there"))
        copied = wh.table("there").query(order_by="k").to_arrow()
        assert copied.equals(wh.table("here").query(order_by="k").to_arrow())


def test_nanoseconds(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("ns"))])
    with tw.open(tmp_path) as wh:
        wh.create_table("fine", schema, time="ts", key="k").insert(
            pa.table([[0, 1], pa.array([1_001, 2_000], pa.timestamp("ns"))], schema=schema)
        )
        with pytest.raises(PySparkException, match="finer than a microsecond"):
            load(spark, tmp_path, "fine").collect()
        cut = load(spark, tmp_path, "fine", nanoseconds="truncate")
        assert cut.where("ts = timestamp_ntz'1970-01-01 00:00:00.000001'").count() == 1
        assert [r.ts for r in load(spark, tmp_path, "fine", nanoseconds="long").where("ts < 2000").collect()] == [1001]


# ---- versions ---------------------------------------------------------------------------------------------


def test_one_version_whatever_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an execution began to read is read whole, though all of it was flushed, replaced and added to since."""
    monkeypatch.setattr("tidewheel.spark.splits.LEAST", 1)
    with tw.open(tmp_path, settings=tw.Settings(chunk_bytes=16 << 10)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(some_rows().slice(0, 2000))
        table.flush()
        table.insert(some_rows().slice(2000, 500))
        spec = connections.table(TablePath(str(tmp_path), "t")).spec
        reader = TableReader(TablePath(str(tmp_path), "t"), spec, read_schema(spec, ["n"]), "error", 3, SCAN, Ask())
        parts = reader.partitions()
        assert len(parts) == 2
        table.insert(some_rows().slice(2500, 100))
        found = [n for batch in reader.read(parts[1]) for n in batch.column(0).to_pylist()]
        table.insert(some_rows().slice(2600))
        table.flush()
        table.replace([], time=(None, None))
        table.insert(some_rows().slice(0, 7))
        found += [n for batch in reader.read(parts[0]) for n in batch.column(0).to_pylist()]
        assert sorted(found) == list(range(2600))  # as it was when the first part was read, not when all were planned
        connections.engine(str(tmp_path)).close()
        connections._forget_in_child()


def test_counts_while_rows_arrive_and_move(spark: SparkSession, tmp_path: Path) -> None:
    over = threading.Event()
    with tw.open(tmp_path, settings=tw.Settings(chunk_bytes=64 << 10)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        data = some_rows(1000)
        table.insert(data)

        def insert() -> None:
            while not over.wait(0.01):
                table.insert(data)

        writer = threading.Thread(target=insert)
        writer.start()
        try:
            df = load(spark, tmp_path)
            counts = [df.agg(f.count("n"), f.sum("n")).collect()[0] for _ in range(5)]
        finally:
            over.set()
            writer.join()
        for count, total in counts:
            assert count % 1000 == 0 and total == count // 1000 * sum(range(1000))
        assert counts == sorted(counts) and counts[0] < counts[-1]


# ---- other ways to it -------------------------------------------------------------------------------------


def test_sql_tables(spark: SparkSession, root: Path, wh: tw.Warehouse) -> None:
    """Spark's catalog forgets the path of such a table; its columns remember it."""
    few = sum(k < -40 for k in some_rows()["k"].to_pylist())
    try:
        spark.sql(f"CREATE TABLE taxi USING tidewheel OPTIONS (path '{root}/t')")
        assert spark.sql("SELECT count(*) FROM taxi").first() == (ROWS,)
        twice = "SELECT n FROM taxi WHERE k < -40 UNION ALL SELECT n FROM taxi WHERE n < 10"
        assert spark.sql(twice).count() == few + 10
        assert spark.table("taxi").where("k < -40").count() == few
    finally:
        spark.sql("DROP TABLE IF EXISTS taxi")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW tv USING tidewheel OPTIONS (path '{root}/t', columns 'n,k')")
    assert spark.table("tv").columns == ["n", "k"]
    assert spark.sql("SELECT * FROM tv WHERE k < -40").count() == few


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_sessions_that_were_not_registered(spark: SparkSession, root: Path, wh: tw.Warehouse, pushdown: str) -> None:
    """Right answers, if slower ones: Spark uses one plan for all questions there, so no filter may be in it."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, pushdown)
    try:
        spark.dataSource.register(plain_source())
        df = spark.read.format("plain").load(str(root / "t"))
        few = sum(k < -40 for k in some_rows()["k"].to_pylist())
        assert [df.where("k < -40").count(), df.count(), df.where("k < -40").union(df.where("n < 10")).count()] == [few, ROWS, few + 10]
    finally:
        spark.conf.set(name, "true")


def test_no_such_table(spark: SparkSession, root: Path, wh: tw.Warehouse) -> None:
    with pytest.raises(PySparkException, match="there is no table 'tt'. Did you mean 't'"):
        load(spark, root, "tt")
    with pytest.raises(PySparkException, match="unknown option 'colums'"):
        load(spark, root, colums="n")
    with pytest.raises(PySparkException, match="one table is read at a time"):
        spark.read.format("tidewheel").load([str(root / "t"), str(root / "z")])


# ---- errors -----------------------------------------------------------------------------------------------


def test_errors_begin_with_their_sentence(spark: SparkSession, root: Path, wh: tw.Warehouse) -> None:
    """Without the traceback of a process that nobody knows; those of other people's code stay whole, also in the same process."""

    def beginning(work: Callable[[], Any]) -> str:
        with pytest.raises(Exception) as raised:
            work()
        return " ".join(str(raised.value).splitlines()[:3])

    def fail(batches: Any) -> Any:
        raise RuntimeError("theirs")

    assert "NotFoundError: there is no table 'no'" in (said := beginning(lambda: load(spark, root, "no").count())), said
    assert "InputError: unknown option 'partition'" in (said := beginning(lambda: load(spark, root, partition="3").count())), said
    other = spark.read.format("tidewheel").schema("absent long").load(str(root / "t"))
    assert "SchemaError: table 't' cannot be read with this schema" in (said := beginning(other.count)), said
    refused = load(spark, root).withColumn("k", f.lit(None).cast("int"))
    said = beginning(lambda: refused.write.format("tidewheel").mode("append").save(str(root / "t")))
    assert "no value in the key column" in said, said
    with pytest.raises(Exception, match=r"Traceback(.|\n)*RuntimeError: theirs"):
        spark.range(4).mapInArrow(fail, "id long").count()
