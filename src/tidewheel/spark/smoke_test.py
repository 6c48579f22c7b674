"""Spark in a process of its own: `python -m tidewheel.spark.smoke_test` starts a session, runs small jobs and prints what it saw.

`tidewheel doctor --spark` runs it, because a Spark that hangs or dies must not take the doctor along; and the archive that makes Spark
start fast is recorded from it, so it does what pipelines do: SQL, Python workers, a stream.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from tidewheel.errors import TidewheelError
from tidewheel.spark import class_archive, java
from tidewheel.spark.launch import end, log_file, reason
from tidewheel.spark.spark_sessions import register, start


def main() -> int:
    """Prints one line of JSON. Exit code 1: `error` in it says why."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=Path, help="make the archive of Spark's classes in this file")
    options = parser.parse_args()
    try:
        said = _run(options.record)
    except TidewheelError as e:
        said = {"error": str(e)}
    except Exception as e:
        said = {"error": f"{reason(e)}; its log is {log_file()}"}
    finally:
        end()
    print(json.dumps(said))
    return 1 if "error" in said else 0


def _run(record: Path | None) -> dict[str, object]:
    began = time.perf_counter()
    chosen = java.find()
    fast = class_archive.options(chosen)
    spark = register(start("local[2]", {}, class_archive.recording(chosen, record) if record else fast))
    started = time.perf_counter()
    rows = jobs(spark)
    ended = time.perf_counter()
    spark.stop()
    return {
        "spark": spark.version,
        "start": round(started - began, 2),
        "jobs": round(ended - started, 2),
        "rows": rows,
        "archive": bool(fast) or not class_archive.possible(chosen),
    }


def jobs(spark: SparkSession) -> int:
    """What pipelines do, on few rows: a query with a shuffle, a Python worker, a stream. Returns rows that went through a worker."""
    numbers = spark.range(10_000).selectExpr("id", "id % 7 AS k", "cast(id AS string) AS s")
    numbers.groupBy("k").agg({"id": "sum", "s": "max"}).orderBy("k").toArrow()
    rows = numbers.mapInArrow(lambda batches: batches, "id long, k long, s string").count()
    with tempfile.TemporaryDirectory(prefix="tidewheel-trial-") as folder:
        numbers.limit(100).write.parquet(f"{folder}/numbers")
        stream = spark.readStream.schema(numbers.schema).parquet(f"{folder}/numbers").where("k > 0").writeStream.format("noop")
        query = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination()
    return int(rows)


if __name__ == "__main__":
    sys.exit(main())
