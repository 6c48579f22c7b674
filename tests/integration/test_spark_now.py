"""A DataFrame or view over a table sees the rows that are there when it runs, and all of an execution sees the same."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as s

import tidewheel as tw
from tests.conftest import examples

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.integration.spark_session import plain_source
from tidewheel.errors import NotFoundError
from tidewheel.spark import connections
from tidewheel.spark.filters import Ask
from tidewheel.spark.options import TablePath
from tidewheel.spark.table_reader import SCAN, TableReader
from tidewheel.spark.types import read_schema

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def some(keys: range) -> pa.Table:
    return pa.table([list(keys), pa.array(keys, pa.int64()).cast(pa.timestamp("us", "UTC"))], schema=SCHEMA)


def keys(frame: DataFrame) -> list[int]:
    return sorted(row.k for row in frame.collect())


steps = s.lists(
    s.sampled_from(["insert", "flush", "replace", "drop pins", "reopen", "frame", "plain", "view", "filtered"]), min_size=8, max_size=8
)


@settings(max_examples=examples(2))
@given(steps=steps.map(lambda some: [*some, "frame", "plain", "view"]))
def test_whatever_happens_between_two_readings(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    """One DataFrame, one of a session that was not registered, and a view, made once; rows come, move and go, pins end, owners change."""
    root = tmp_path_factory.mktemp("now")
    spark.dataSource.register(plain_source())
    there: list[int] = []
    wh = tw.open(root)
    try:
        wh.create_table("t", SCHEMA, time="ts", key="k")
        frames = {name: spark.read.format(form).load(f"{root}/t") for name, form in (("frame", "tidewheel"), ("plain", "plain"))}
        frames["filtered"] = frames["frame"].where("k % 2 = 0 AND k >= 0")
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW now USING tidewheel OPTIONS (path '{root}/t')")
        for number, step in enumerate(steps):
            table = wh.table("t")
            match step:
                case "insert":
                    came = range(10 * number, 10 * number + 5)
                    table.insert(some(came))
                    there += came
                case "flush":
                    table.flush()
                case "replace":
                    table.replace(some(range(1)), time=(0, 19))
                    there = [0, *(k for k in there if k > 19)]
                case "drop pins":
                    with pytest.MonkeyPatch.context() as patch:
                        patch.setattr("tidewheel.read.pins.SOON", -1.0)
                        assert keys(frames["frame"]) == sorted(there)
                        assert keys(frames["plain"]) == sorted(there)
                case "reopen":
                    wh.close()
                    wh = tw.open(root)
                case "view":
                    assert keys(spark.sql("SELECT * FROM now")) == sorted(there)
                case "filtered":
                    assert keys(frames[step]) == sorted(k for k in there if k % 2 == 0)
                case _:
                    assert keys(frames[step]) == sorted(there), step
    finally:
        wh.close()


@pytest.mark.parametrize("form", ["tidewheel", "plain"])
def test_one_version_in_an_execution(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """Unions and joins of a table with itself, while rows arrive: every row twice, or not at all."""
    spark.dataSource.register(plain_source())
    over = threading.Event()
    with tw.open(tmp_path, settings=tw.Settings(chunk_bytes=64 << 10)) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(some(range(100)))

        def insert() -> None:
            for number in range(1, 100_000):
                if over.wait(0.02):
                    return
                table.insert(some(range(100 * number, 100 * number + 100)))

        writer = threading.Thread(target=insert)
        writer.start()
        try:
            frame = spark.read.format(form).load(f"{tmp_path}/t")
            sizes = []
            for _ in range(2):
                counted = Counter(row.k for row in frame.union(frame.where("k >= 0")).collect())
                assert set(counted.values()) == {2}
                sizes.append(len(counted))
                left, right = frame.alias("l"), frame.alias("r")
                assert left.join(right, "k", "full_outer").where("l.ts IS NULL OR r.ts IS NULL").count() == 0
            frame.createOrReplaceTempView("now")
            (row,) = spark.sql("SELECT (SELECT count(*) FROM now) AS a, count(*) AS b, (SELECT max(k) FROM now) AS c FROM now").collect()
            assert row.a == row.b == row.c + 1
        finally:
            over.set()
            writer.join()
        assert sizes == sorted(set(sizes))


def test_a_plan_of_several_tasks_does_not_mix_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of its tasks may have read what a lost owner had. One task alone reads what the next owner has."""
    monkeypatch.setattr("tidewheel.spark.splits.LEAST", 1)
    place = TablePath(str(tmp_path), "t")
    with tw.open(tmp_path) as wh:
        table = wh.create_table("t", SCHEMA, time="ts", key="k")
        table.insert(some(range(10)))
        table.flush()
        table.insert(some(range(10, 20)))
        spec = connections.table(place).spec
        one, several = (TableReader(place, spec, read_schema(spec, ["k"]), "error", most, SCAN, Ask()) for most in (1, 2))
        (alone,), parts = one.partitions(), several.partitions()
        assert len(parts) == 2
        assert sorted(k for part in parts for batch in several.read(part) for k in batch["k"].to_pylist()) == list(range(20))
    with tw.open(tmp_path):
        with pytest.raises(NotFoundError, match=r"the owner of .* changed after this DataFrame had been planned. Make the DataFrame anew"):
            list(several.read(parts[0]))
        assert sorted(k for batch in one.read(alone) for k in batch["k"].to_pylist()) == list(range(20))
        assert sorted(k for part in several.partitions() for batch in several.read(part) for k in batch["k"].to_pylist()) == list(range(20))
        connections.engine(str(tmp_path)).close()
        connections._forget_in_child()


def test_whoever_asks_for_all_rows_asks_again(spark: SparkSession, tmp_path: Path) -> None:
    """A plan that no task can run any more is made anew; one that fails for another reason is not run a second time."""
    mark, runs = str(tmp_path / "mark"), str(tmp_path / "runs")

    def failing(words: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def fail_four_times(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with open(runs, "a") as out:
                out.write("r")
            if not os.path.exists(mark):
                if os.path.getsize(runs) == 4:  # the last attempt of a job
                    open(mark, "w").close()
                raise RuntimeError(f"the owner of here {words}")
            yield from batches

        return fail_four_times

    frame = spark.range(3).coalesce(1).mapInArrow(failing("changed after this DataFrame had been planned"), "id long")
    assert [row.id for row in frame.collect()] == [0, 1, 2]
    os.unlink(mark)
    os.unlink(runs)
    with pytest.raises(PySparkException, match="the owner of here is ill"):
        spark.range(3).coalesce(1).mapInArrow(failing("is ill"), "id long").toArrow()
    assert os.path.getsize(runs) == 4


def test_a_table_that_was_made_anew(spark: SparkSession, tmp_path: Path) -> None:
    with tw.open(tmp_path) as wh:
        wh.create_table("t", SCHEMA, time="ts", key="k").insert(some(range(3)))
        frame = spark.read.format("tidewheel").load(f"{tmp_path}/t")
        assert keys(frame) == [0, 1, 2]
        wh.drop_table("t")
        wh.create_table("t", SCHEMA, time="ts", key="k").insert(some(range(2)))
        assert keys(frame) == [0, 1]
        wh.drop_table("t")
        other = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
        wh.create_table("t", other, time="ts", key="k")
        with pytest.raises(PySparkException, match="was made anew after this DataFrame had been planned"):
            frame.collect()
