"""The change reader: each row of the table exactly once, in any sink, over restarts, while rows arrive and move."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidewheel as tw

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.float64())])


def rows(first: int, count: int) -> pa.Table:
    keys = pa.array(range(first, first + count), pa.int64())
    return pa.table([keys, keys.cast(pa.timestamp("us", "UTC")), keys.cast(pa.float64())], schema=SCHEMA)


def copy(session: SparkSession, path: Path, once: bool = True, **options: str) -> StreamingQuery:
    """A stream of the table's changes into Parquet files."""
    changes = session.readStream.format("tidewheel").options(**options).load(str(path / "wh" / "t"))
    stream = changes.writeStream.format("parquet").option("checkpointLocation", str(path / "checkpoint"))
    stream = stream.trigger(availableNow=True) if once else stream.trigger(processingTime="0 seconds")
    return stream.start(str(path / "out"))


def finish(session: SparkSession, path: Path, **options: str) -> None:
    assert copy(session, path, **options).awaitTermination(240)


def copied(session: SparkSession, path: Path) -> list[int]:
    return sorted(row.k for row in session.read.parquet(str(path / "out")).select("k").collect())


def batches(path: Path) -> int:
    return sum(name.isdecimal() for name in os.listdir(path / "checkpoint" / "commits"))


def test_equals_the_table_under_inserts_flushes_and_restarts(spark: SparkSession, tmp_path: Path) -> None:
    over = threading.Event()
    with tw.open(tmp_path / "wh", settings=tw.Settings(chunk_bytes=64 << 10)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(rows(0, 1000))
        inserted = [1000]

        def insert() -> None:
            while not over.wait(0.05):
                table.insert(rows(inserted[0], 500))
                inserted[0] += 500
                if inserted[0] % 7000 == 0:
                    table.flush()

        writer = threading.Thread(target=insert)
        writer.start()
        try:
            for _ in range(2):  # stopped at some moment, and started again
                query = copy(spark, tmp_path, once=False)
                seen = 0
                while seen < 3:
                    query.awaitTermination(0.5)
                    seen = sum(p["numInputRows"] > 0 for p in query.recentProgress)
                query.stop()
        finally:
            over.set()
            writer.join()
        finish(spark, tmp_path)
        assert copied(spark, tmp_path) == list(range(inserted[0]))
        # the last batch again, as Spark would after a crash
        last = batches(tmp_path) - 1
        os.unlink(tmp_path / "checkpoint" / "commits" / str(last))
        finish(spark, tmp_path)
        assert copied(spark, tmp_path) == list(range(inserted[0]))
    with tw.open(tmp_path / "wh") as wh:  # all of it in chunks now, made by another owner
        wh.table("t").insert(rows(inserted[0], 10))
        finish(spark, tmp_path)
        assert copied(spark, tmp_path) == list(range(inserted[0] + 10))


def test_so_many_rows_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        for n in range(10):
            table.insert(rows(100 * n, 100))
            if n == 4:
                table.flush()
        finish(spark, tmp_path, maxRowsPerTrigger="350")
        assert copied(spark, tmp_path) == list(range(1000))
        assert batches(tmp_path) == 4  # no generation is divided: 300, 300, 300, 100
        offsets = [json.loads((tmp_path / "checkpoint" / "offsets" / str(n)).read_text().splitlines()[-1]) for n in range(4)]
        assert [one["generation"] for one in offsets] == [3, 6, 9, 10]
        finish(spark, tmp_path, maxRowsPerTrigger="1")
        assert batches(tmp_path) == 4


def test_where_to_begin(spark: SparkSession, tmp_path: Path) -> None:
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        for n in range(3):
            table.insert(rows(10 * n, 10))
        for name, start, expected in (("two", "2", list(range(20, 30))), ("now", "latest", list(range(30, 40)))):
            path = tmp_path / name
            path.mkdir()
            (path / "wh").symlink_to(tmp_path / "wh")
            if start == "latest":
                finish(spark, path, startingGeneration=start)
                assert copied(spark, path) == []
                table.insert(rows(30, 10))
            finish(spark, path, startingGeneration=start)
            assert copied(spark, path) == expected
        with pytest.raises(PySparkException, match="startingGeneration is a whole number of at least 0"):
            finish(spark, tmp_path, startingGeneration="-1")


def test_into_another_table(spark: SparkSession, tmp_path: Path) -> None:
    """Source and sink of one kind, in one warehouse, with some columns only."""
    with tw.open(tmp_path / "wh") as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(rows(0, 500))
        table.flush()
        table.insert(rows(500, 500))

        def run() -> None:
            source: Any = spark.readStream.format("tidewheel").option("columns", "k,ts").load(str(tmp_path / "wh" / "t"))
            sink = source.writeStream.format("tidewheel").option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = sink.options(time="ts", key="k").trigger(availableNow=True).start(str(tmp_path / "wh" / "copy"))
            assert query.awaitTermination(240)

        run()
        table.insert(rows(1000, 5))
        run()
        assert wh.table("copy").schema.names == ["k", "ts"]
        assert sorted(wh.table("copy").query().to_arrow()["k"].to_pylist()) == list(range(1005))
