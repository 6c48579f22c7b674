"""Tables in functions that Spark runs elsewhere: they cross as path and name, and attach to the owner there."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

import tidewheel as tw

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

START = dt.datetime(2026, 1, 1)


def test_a_function_of_spark_asks_and_fills_a_table(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us"))])
    with tw.open(tmp_path / "wh") as wh:
        taxi = wh.create_table("taxi", schema, time="ts", key="id")
        taxi.insert([{"id": i % 4, "ts": START + dt.timedelta(seconds=i)} for i in range(100)])

        def ask(key: int) -> tuple[int, str]:
            taxi.insert([{"id": 10 + key, "ts": START}])
            return len(taxi.query(key=key)), wh["taxi"].name

        assert spark.sparkContext.parallelize(range(4), 2).map(ask).collect() == [(25, "taxi")] * 4
        assert len(taxi.query(key=(10, 13))) == 4
