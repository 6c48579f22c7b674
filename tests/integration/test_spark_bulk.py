"""The bulk sink: all rows or none, in every save mode, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw
from tests.integration.spark_session import spark  # noqa: F401

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.float64()), ("name", pa.string())])


def frame(spark: SparkSession, rows: int, start: int = 0, parts: int = 2) -> DataFrame:  # noqa: F811
    """Rows with k = 0, 1, 2 … from `start` on."""
    n = f.col("id")
    return spark.range(start, start + rows, 1, parts).select(
        n.alias("k"), f.timestamp_micros(n * 1_000_000).alias("ts"), (n / 2).alias("v"), f.concat(f.lit("n"), n % 7).alias("name")
    )


def keys(root: Path, table: str = "taxi") -> list[int]:
    with tw.open(root) as wh:
        found: list[int] = sorted(wh.table(table).query(columns=["k"]).to_arrow()["k"].to_pylist())
        return found


def staged(root: Path) -> list[str]:
    return [name for _, _, names in os.walk(root / "staging") for name in names]


def save(df: DataFrame, path: Path | str, mode: str | None = "append", **options: str) -> None:
    writer = df.write.format("tidewheel").options(**options)
    (writer if mode is None else writer.mode(mode)).save(str(path))


MAKE = {"time": "ts", "key": "k"}


def test_a_table_is_made_when_the_options_say_how(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    with tw.open(tmp_path) as wh:
        with pytest.raises(PySparkException, match=r"no table 'taxi'(.|\n)*say which columns are its time and its key"):
            save(frame(spark, 10), tmp_path / "taxi")
        assert wh.tables() == []
        save(frame(spark, 10), tmp_path / "taxi", **MAKE, partition="1 day")
        taxi = wh.table("taxi")
        assert taxi.schema == SCHEMA
        assert taxi.rows == 10
    assert keys(tmp_path) == list(range(10))


def test_the_four_modes(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    """`save` without a mode means errorifexists. Of these Spark itself knows only append and overwrite for Python sources."""
    path = tmp_path / "taxi"
    with tw.open(tmp_path) as wh:
        save(frame(spark, 10), path, None, **MAKE)
        with pytest.raises(PySparkException, match='is in .* already; add to it with mode\\("append"\\)'):
            save(frame(spark, 10), path, None, **MAKE)
        with pytest.raises(PySparkException, match="already"):
            save(frame(spark, 10), path, "errorifexists", **MAKE)
        save(frame(spark, 10), path, "ignore", **MAKE)
        assert wh.table("taxi").rows == 10
        save(frame(spark, 10, 10), path, "append")
        assert keys(tmp_path) == list(range(20))
        save(frame(spark, 5, 100), path, "overwrite")
        assert keys(tmp_path) == list(range(100, 105))
        save(frame(spark, 0), path, "overwrite")
        assert keys(tmp_path) == []
        save(frame(spark, 3), tmp_path / "other", "ignore", **MAKE)
        assert wh.table("other").rows == 3
    assert staged(tmp_path) == []


def test_an_overwrite_also_takes_fresh_rows(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    with tw.open(tmp_path) as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="k")
        taxi.insert([{"k": -1, "ts": 0, "v": 0.0, "name": "fresh"}])
        save(frame(spark, 5), tmp_path / "taxi", "overwrite")
        taxi.insert([{"k": -2, "ts": 0, "v": 0.0, "name": "later"}])
        assert keys(tmp_path) == [-2, 0, 1, 2, 3, 4]


def test_many_chunks_one_commit(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    settings = tw.Settings(chunk_bytes=64 << 10)
    with tw.open(tmp_path, settings=settings) as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="k")
        before = taxi.insert([{"k": -1, "ts": 0, "v": 0.0, "name": "x"}]).generation
        save(frame(spark, 50_000, parts=4), tmp_path / "taxi")
        assert taxi.query().generation == before + 1
        assert taxi.rows == 50_001
        found = taxi.query(key=(100, 199)).to_arrow()
        assert sorted(zip(*found.select(["k", "v"]).to_pydict().values(), strict=True)) == [(n, n / 2) for n in range(100, 200)]
        assert sorted(taxi.query(key=(100, 199), time=("1970-01-01 00:02:30", None)).to_arrow()["k"].to_pylist()) == list(range(150, 200))
        assert wh.check().ok
    with tw.open(tmp_path) as wh:
        assert wh.table("taxi").rows == 50_001


@pytest.mark.parametrize("key", ["zorder(x, y, 0, 0, 1, 1)", "ip(address)", "name"])
def test_keys_of_all_kinds(spark: SparkSession, tmp_path: Path, key: str) -> None:  # noqa: F811
    df = frame(spark, 1000).select(
        "k", "ts", f.concat(f.lit("taxi-"), f.col("k")).alias("name"), (f.col("k") / 1000).alias("x"), f.rand(1).alias("y"),
        f.concat(f.lit("10.0."), f.col("k") % 256, f.lit(".1")).alias("address"),
    )  # fmt: skip
    with tw.open(tmp_path) as wh:
        save(df, tmp_path / "t", time="ts", key=key)
        taxi = wh.table("t")
        if key.startswith("zorder"):
            assert sorted(taxi.query(box=(0.1, None, 0.2, None)).to_arrow()["k"].to_pylist()) == list(range(100, 201))
        elif key.startswith("ip"):
            assert taxi.query(key=("10.0.7.0", "10.0.8.0")).to_arrow()["k"].to_pylist() == [7, 263, 519, 775]
        else:
            assert taxi.query(key="taxi-77").to_arrow()["k"].to_pylist() == [77]
        save(df, tmp_path / "t")
        assert taxi.rows == 2000
        assert wh.check().ok


def test_bad_rows_stop_a_load_or_are_kept(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    bad = frame(spark, 100).withColumn("k", f.when(f.col("k") % 10 == 3, None).otherwise(f.col("k")))
    with tw.open(tmp_path) as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="k")
        with pytest.raises(PySparkException, match="no value in the key column"):
            save(bad, tmp_path / "taxi")
        assert taxi.rows == 0
        assert staged(tmp_path) == []
        save(bad, tmp_path / "taxi", onBad="reject")
        assert taxi.rows == 90
        rejects = taxi.rejects().to_pylist()
        assert len(rejects) == 10
        assert all("no value in the key column" in one["reason"] for one in rejects)


def test_nothing_remains_of_a_failed_job(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    def fail(batches: Any) -> Any:
        for n, batch in enumerate(batches):
            if n == 3:
                raise RuntimeError("this task fails")
            yield batch

    settings = tw.Settings(chunk_bytes=16 << 10)
    with tw.open(tmp_path, settings=settings) as wh:
        failing = frame(spark, 60_000).mapInArrow(fail, "k long, ts timestamp, v double, name string")
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2000")
        try:
            with pytest.raises(PySparkException, match="this task fails"):
                save(failing, tmp_path / "taxi", None, **MAKE)
        finally:
            spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        assert staged(tmp_path) == []
        assert wh.tables() == []  # it was made for this job
        assert wh.check().ok


def test_unknown_options_and_places(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    df = frame(spark, 1)
    with pytest.raises(PySparkException, match=r"unknown option 'tmie'.*Did you mean 'time'(.|\n)*onBad"):
        save(df, tmp_path / "taxi", tmie="ts")
    with pytest.raises(PySparkException, match="onbad is one of error, reject|onBad is one of error, reject"):
        save(df, tmp_path / "taxi", onBad="skip", **MAKE)
    with pytest.raises(PySparkException, match="does not end in the name of a table"):
        save(df, tmp_path / "a-b", **MAKE)
    with pytest.raises(PySparkException, match="say which table"):
        df.write.format("tidewheel").mode("append").save()
    with pytest.raises(PySparkException, match="s3 is not supported"):
        save(df, "s3://bucket/wh/taxi", **MAKE)


def test_warehouse_and_table_as_options(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    with tw.open(tmp_path):
        df = frame(spark, 3)
        df.write.format("Tidewheel").mode("append").options(WAREHOUSE=str(tmp_path), tAbLe="taxi", TIME="ts", key="k").save()
        df.write.format("tidewheel").mode("append").save(f"file://{tmp_path}/taxi")
        assert keys(tmp_path) == [0, 0, 1, 1, 2, 2]


def test_other_schema(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    with tw.open(tmp_path) as wh:
        wh.create_table("taxi", SCHEMA, time="ts", key="k")
        with pytest.raises(
            PySparkException, match=r"does not fit table 'taxi'(.|\n)*≠ ts: timestamp +\(missing\)(.|\n)*v: double(.|\n)*≠ \(missing\) +w"
        ):
            save(frame(spark, 1).withColumn("w", f.lit(1)).drop("ts", "v"), tmp_path / "taxi")
        save(frame(spark, 2).select("name", "v", f.col("k").cast("int").alias("k"), "ts"), tmp_path / "taxi")
        assert keys(tmp_path) == [0, 1]


def test_columns_that_are_not_there_are_null_and_text_that_is_none_is_refused(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    """Spark's texts may hold any bytes."""
    with tw.open(tmp_path) as wh:
        taxi = wh.create_table("taxi", SCHEMA, time="ts", key="k")
        save(frame(spark, 3).drop("v"), tmp_path / "taxi")
        assert taxi.query(columns=["v"]).to_arrow()["v"].to_pylist() == [None] * 3
        garbled = frame(spark, 4, 3).withColumn("name", f.when(f.col("k") == 5, f.expr("CAST(X'61FF' AS STRING)")).otherwise(f.col("name")))
        with pytest.raises(PySparkException, match=r"table 'taxi', column 'name': 1 row is not UTF-8 text"):
            save(garbled, tmp_path / "taxi")
        assert taxi.rows == 3 and staged(tmp_path) == []
        save(garbled, tmp_path / "taxi", onBad="reject")
        assert sorted(taxi.query().to_arrow()["k"].to_pylist()) == [0, 1, 2, 3, 4, 6]
        (reject,) = taxi.rejects().to_arrow().to_pylist()
        assert "is not UTF-8 text" in reject["reason"] and wh.check().ok
