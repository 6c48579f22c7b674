"""The driver of a streaming query, as a process that can be killed: commands come in as lines of JSON, and each is answered with one.

    python -m tests.crash.stream_driver SETTINGS

The query reads a Kafka topic and a folder, and writes both to one table. If it fails, it is started again from its checkpoint, as a service
would do; `state` tells how often and why.
"""

from __future__ import annotations

import json
import os
import selectors
import time
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

import tidewheel.spark as tws
from tests.crash.campaign_mishaps import MishapSource
from tests.crash.campaign_rows import DDL
from tidewheel.errors import SparkError
from tidewheel.spark.jars import connector, resolve
from tidewheel.spark.java import find

MOST_FAILURES = 10
"""In a row, without a batch that went through."""


@dataclass(frozen=True)
class Settings:
    """Where everything is."""

    table: str
    checkpoint: str
    servers: str
    topic: str
    folder: str


@dataclass(frozen=True)
class Cut:
    """How a batch is cut into slices; it may be another at every start."""

    per_topic: int = 0
    """At least so many slices of the topic. 0: one per partition."""
    file_bytes: int = 134217728
    slices: int = 0
    """0: as they come."""


class Driver:
    def __init__(self) -> None:
        self._spark = tws.session("local[2]", **{"spark.driver.memory": "1g", "spark.sql.streaming.pollingDelay": "10ms"})
        self._spark.dataSource.register(MishapSource)
        self._query: StreamingQuery | None = None
        self._given: tuple[Settings, Cut] | None = None
        self._failures: list[str] = []
        self._in_a_row = 0

    def jars(self, packages: list[str]) -> dict[str, Any]:
        """What a Kafka broker needs, and the Java to run it on."""
        try:
            return {"jars": [str(path) for path in resolve(self._spark, packages)], "java": str(find().home)}
        except SparkError as e:
            return {"missing": str(e)}

    def start(self, settings: dict[str, str], cut: dict[str, int]) -> dict[str, Any]:
        connector(self._spark, "kafka")
        self._given = Settings(**settings), Cut(**cut)
        self._begin()
        return {}

    def _begin(self) -> None:
        assert self._given is not None
        settings, cut = self._given
        rows = _rows(self._spark, settings, cut)
        options = {"checkpointLocation": settings.checkpoint, "time": "ts", "key": "seq"}
        self._query = rows.writeStream.format("tidewheel").options(**options).trigger(processingTime="0 seconds").start(settings.table)

    def stop(self) -> dict[str, Any]:
        if self._query is not None:
            self._query.stop()
        self._given = self._query = None
        return {}

    def state(self) -> dict[str, Any]:
        progress = self._query.lastProgress if self._query is not None else None
        return {"batch": progress["batchId"] if progress else -1, "failures": self._failures}

    def tick(self) -> None:
        """Starts the query again if it failed."""
        query = self._query
        if query is None or query.isActive:
            return
        why = query.exception()
        self._failures.append(str(why)[:2000])
        self._in_a_row = 1 if query.lastProgress else self._in_a_row + 1
        if self._in_a_row > MOST_FAILURES:
            raise RuntimeError(f"the query cannot be started: {why}")
        try:
            self._begin()
        except PySparkException as e:
            self._failures.append(f"at its start: {str(e)[:2000]}")
            time.sleep(0.2)


def _rows(spark: SparkSession, settings: Settings, cut: Cut) -> DataFrame:
    options = {"kafka.bootstrap.servers": settings.servers, "subscribe": settings.topic, "startingOffsets": "earliest"}
    if cut.per_topic:
        options["minPartitions"] = str(cut.per_topic)
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(cut.file_bytes))
    spark.conf.set("spark.sql.files.openCostInBytes", str(min(cut.file_bytes, 4194304)))
    messages = spark.readStream.format("kafka").options(**options).load()
    parsed = messages.select(f.from_json(f.col("value").cast("string"), DDL).alias("row")).select("row.*")
    rows = parsed.unionByName(spark.readStream.schema(DDL).json(settings.folder))
    return rows.repartition(cut.slices) if cut.slices else rows


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints does not mix with the answers
    driver = Driver()
    commands = {"jars": driver.jars, "start": driver.start, "stop": driver.stop, "state": driver.state}
    with selectors.DefaultSelector() as waiting:
        waiting.register(0, selectors.EVENT_READ)
        rest = b""
        while True:
            if waiting.select(0.05):
                read = os.read(0, 1 << 16)
                if not read:
                    break
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    command = json.loads(line)
                    answers.write(json.dumps(commands[command.pop("do")](**command)) + "\n")
                    answers.flush()
            driver.tick()
    driver.stop()


def as_json(value: Settings | Cut) -> dict[str, Any]:
    return asdict(value)


if __name__ == "__main__":
    main()
