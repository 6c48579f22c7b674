"""The streaming sink: every row once, whatever is tried again, started again or replayed."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidewheel as tw
from tests.integration.spark_session import spark  # noqa: F401
from tidewheel.cluster.start_owner import summon
from tidewheel.model.query import Query
from tidewheel.testing.probe import Probe

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.float64())])
DDL = "k long, ts timestamp, v double"
PER_FILE = 500


class Folder:
    """Files that arrive one by one; file n has the rows with k = 500 n .. 500 n + 499."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = 0
        path.mkdir()

    def arrive(self, files: int = 1) -> None:
        for _ in range(files):
            first = PER_FILE * self.files
            keys = pa.array(range(first, first + PER_FILE), pa.int64())
            table = pa.table([keys, keys.cast(pa.timestamp("us", "UTC")), keys.cast(pa.float64())], schema=SCHEMA)
            pq.write_table(table, self.path / f"{self.files:04}.parquet", row_group_size=50)
            self.files += 1

    @property
    def rows(self) -> list[int]:
        return list(range(PER_FILE * self.files))

    def stream(self, session: SparkSession) -> DataFrame:
        return session.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(self.path))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "in")


def start(df: DataFrame, tmp_path: Path, **options: str) -> StreamingQuery:
    return (
        df.writeStream.format("tidewheel").option("checkpointLocation", str(tmp_path / "checkpoint")).options(**options)
        .trigger(availableNow=True).start(str(tmp_path / "wh" / "taxi"))
    )  # fmt: skip


def run(df: DataFrame, tmp_path: Path, **options: str) -> None:
    """Until there is nothing left to read."""
    assert start(df, tmp_path, **options).awaitTermination(240)


def keys(tmp_path: Path) -> list[int]:
    with tw.open(tmp_path / "wh") as wh:
        found: list[int] = sorted(wh.table("taxi").query(columns=["k"]).to_arrow()["k"].to_pylist())
        return found


MAKE = {"time": "ts", "key": "k"}


def test_exactly_once_over_restarts_replays_and_other_splits(spark: SparkSession, tmp_path: Path, folder: Folder) -> None:  # noqa: F811
    folder.arrive(3)
    with tw.open(tmp_path / "wh") as wh:
        run(folder.stream(spark), tmp_path, **MAKE)
        taxi = wh.table("taxi")
        assert keys(tmp_path) == folder.rows
        assert taxi.query().generation == 3  # one for each batch
        # 1. started again, with more to read
        folder.arrive(2)
        run(folder.stream(spark), tmp_path)
        assert keys(tmp_path) == folder.rows
        # 2. the last commit forgotten by Spark: the batch is replayed, cut into other slices
        checkpoint = tmp_path / "checkpoint"
        last = max(int(name) for name in os.listdir(checkpoint / "commits") if name.isdecimal())
        os.unlink(checkpoint / "commits" / str(last))
        for name in os.listdir(checkpoint / "offsets"):
            if name.isdecimal() and int(name) > last:
                os.unlink(checkpoint / "offsets" / name)
        shutil.rmtree(checkpoint / "commits" / ".crc", ignore_errors=True)
        generation = taxi.query().generation
        spark.conf.set("spark.sql.files.maxPartitionBytes", "4096")
        spark.conf.set("spark.sql.files.openCostInBytes", "0")
        try:
            run(folder.stream(spark), tmp_path)
        finally:
            spark.conf.unset("spark.sql.files.maxPartitionBytes")
            spark.conf.unset("spark.sql.files.openCostInBytes")
        assert keys(tmp_path) == folder.rows
        assert taxi.query().generation == generation
        # 3. flushed, closed and opened again, and replayed once more
        os.unlink(checkpoint / "commits" / str(last))
    with tw.open(tmp_path / "wh"):
        run(folder.stream(spark), tmp_path)
        assert keys(tmp_path) == folder.rows


def test_a_task_that_fails_half_way_is_tried_again(spark: SparkSession, tmp_path: Path, folder: Folder) -> None:  # noqa: F811
    once = str(tmp_path / "failed")

    def fails_once(batches: Any) -> Any:
        for batch in batches:
            yield batch
            if not os.path.exists(once):
                open(once, "w").close()
                raise RuntimeError("once")

    folder.arrive(2)
    with tw.open(tmp_path / "wh"):
        run(folder.stream(spark).mapInArrow(fails_once, DDL), tmp_path, **MAKE)
        assert os.path.exists(once)
        assert keys(tmp_path) == folder.rows


def test_the_owner_is_killed(spark: SparkSession, tmp_path: Path, folder: Folder) -> None:  # noqa: F811
    """Nobody owns the warehouse but a process that the sink starts; it is killed again and again, between batches and during them."""
    folder.arrive(6)
    left = str(tmp_path / "kills")
    root = str(tmp_path / "wh")
    for n in range(3):
        open(f"{left}{n}", "w").close()

    def kills(batches: Any) -> Any:
        for batch in batches:
            yield batch
            for n in range(3):
                if batch.num_rows and batch.column(0)[0].as_py() >= (n + 1) * 700 and os.path.exists(f"{left}{n}"):
                    os.unlink(f"{left}{n}")
                    with open(f"{root}/owner.lock") as lock:
                        os.kill(int(json.load(lock)["pid"]), signal.SIGKILL)

    failures = 0
    for _ in range(10):
        query = start(folder.stream(spark).mapInArrow(kills, DDL), tmp_path, **MAKE)
        try:
            assert query.awaitTermination(280)
            break
        except PySparkException:
            failures += 1
    assert not any(os.path.exists(f"{left}{n}") for n in range(3))
    assert failures <= 4
    owner = summon(root)
    try:
        found = Probe(owner.table("taxi")).query(Query(columns=["k"])).to_arrow()["k"].to_pylist()
    finally:
        owner.close()
        kill_owner(root)
    twice = [k for k, n in Counter(found).items() if n > 1]
    assert (sorted(found) == folder.rows, twice) == (True, [])


def kill_owner(root: str) -> None:
    """End the process that this test's sink started for this warehouse."""
    pid = int(json.loads((Path(root) / "owner.lock").read_text())["pid"])
    assert pid != os.getpid()
    os.kill(pid, signal.SIGKILL)


def test_bad_rows_and_dead_letters(spark: SparkSession, tmp_path: Path, folder: Folder) -> None:  # noqa: F811
    folder.arrive(2)
    rows = folder.stream(spark).select(
        f.when(f.col("k") % 100 == 7, None).otherwise(f.col("k")).alias("k"), "ts", "v",
        f.when(f.col("k") % 100 == 8, "cannot be read").alias("_tw_bad"), f.lit("{…}").alias("_tw_raw"),
        f.concat(f.lit("file:"), f.col("k")).alias("_tw_origin"),
    )  # fmt: skip
    with tw.open(tmp_path / "wh") as wh:
        run(rows, tmp_path, **MAKE)
        assert keys(tmp_path) == [k for k in folder.rows if k % 100 not in (7, 8)]
        taxi = wh.table("taxi")
        assert taxi.schema == SCHEMA
        rejects = taxi.rejects().to_pylist()
        assert len(rejects) == 20
        assert {one["batch"] for one in rejects} == {0, 1}
        assert sum("cannot be read" in one["reason"] for one in rejects) == 10
        assert {one["origin"] for one in rejects} == {f"file:{k}" for k in folder.rows if k % 100 in (7, 8)}


def test_said_before_the_first_row(spark: SparkSession, tmp_path: Path, folder: Folder) -> None:  # noqa: F811
    folder.arrive()
    with tw.open(tmp_path / "wh") as wh:
        for options, why in (({}, "say which columns are its time and its key"), ({"stremName": "x"}, "Did you mean 'streamname'")):
            with pytest.raises(PySparkException, match=why):
                run(folder.stream(spark), tmp_path, **options)
        wh.create_table("taxi", pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC"))]), time="ts", key="k")
        with pytest.raises(PySparkException, match=r"≠ k: string +k: bigint(.|\n)*≠ \(missing\) +v: double"):
            run(folder.stream(spark), tmp_path)
        assert wh.table("taxi").rows == 0
        counted = folder.stream(spark).groupBy("k").count()
        with pytest.raises(PySparkException, match="a stream only adds rows"):
            query = counted.writeStream.format("tidewheel").outputMode("complete").option("checkpointLocation", str(tmp_path / "other"))
            query.trigger(availableNow=True).start(str(tmp_path / "wh" / "taxi")).awaitTermination(120)


def test_a_name_for_the_stream(spark: SparkSession, tmp_path: Path, folder: Folder) -> None:  # noqa: F811
    """With a name of its own a stream is the same one also after its checkpoint was lost."""
    folder.arrive(2)
    with tw.open(tmp_path / "wh"):
        run(folder.stream(spark), tmp_path, **MAKE, streamName="files")
        shutil.rmtree(tmp_path / "checkpoint")
        run(folder.stream(spark), tmp_path, streamName="files")
        assert keys(tmp_path) == folder.rows


def test_a_table_that_is_dropped_and_made_anew(spark: SparkSession, tmp_path: Path, folder: Folder) -> None:  # noqa: F811
    """Spark's Python processes outlive queries, and must not hold on to a table that is gone."""
    with tw.open(tmp_path / "wh") as wh:
        folder.arrive()
        run(folder.stream(spark), tmp_path, time="ts", key="k")
        wh.drop_table("taxi")
        shutil.rmtree(tmp_path / "checkpoint")
        run(folder.stream(spark), tmp_path, time="ts", key="k")
        assert keys(tmp_path) == folder.rows


def test_large_slices_become_chunks(spark: SparkSession, tmp_path: Path, folder: Folder) -> None:  # noqa: F811
    """A task of 24 MB writes chunks, beside one that is small; a row that does not fit is a reject, once."""
    large, small = 600_000, 1000
    ids = pa.array(range(large + small), pa.int64())
    pad = pa.array([None if i == 7 else "x" * 24 for i in range(large + small)], pa.string())
    table = pa.table({"k": ids, "ts": ids.cast(pa.timestamp("us", "UTC")), "pad": pad})
    pq.write_table(table.slice(0, large), folder.path / "a.parquet")
    pq.write_table(table.slice(large), folder.path / "b.parquet")
    with tw.open(tmp_path / "wh") as wh:
        fields = [("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), pa.field("pad", pa.string(), nullable=False)]
        wh.create_table("taxi", pa.schema(fields), time="ts", key="k")
        stream = spark.readStream.schema("k long, ts timestamp, pad string").parquet(str(folder.path))
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(1 << 30))
        spark.conf.set("spark.sql.files.openCostInBytes", str(1 << 30))
        try:
            run(stream, tmp_path)
        finally:
            for name in ("maxPartitionBytes", "openCostInBytes"):
                spark.conf.unset(f"spark.sql.files.{name}")
        taxi = wh.table("taxi")
        found = taxi.query(columns=["k"]).to_arrow()["k"].combine_chunks().sort()
        assert found.equals(pa.array([i for i in range(large + small) if i != 7], pa.int64()))
        state = taxi.state()
        assert state.chunks >= 2 and state.fresh_rows == 0  # none of them came through the log
        (reject,) = taxi.rejects().to_arrow().to_pylist()
        assert reject["column"] == "pad" and reject["batch"] == 0 and "partition" in reject["origin"]
        assert [name for _, _, names in os.walk(tmp_path / "wh" / "staging") for name in names] == []
