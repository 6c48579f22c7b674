"""Kafka topics: each message is a record, and says where it came from."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from tidewheel.errors import InputError
from tidewheel.ingest.rules import MESSAGES, Rules
from tidewheel.ingest.sample import Sample
from tidewheel.spark.sources.stream_source import ARRIVED, ReadingOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

META = {
    "key": pa.string(),
    "headers": pa.map_(pa.string(), pa.string()),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
}
"""What is around a message, and the type of a column that is made for it."""

MOST_MESSAGES = 500_000
"""Messages of one batch: a batch becomes visible at once, so all of it is in memory at once."""
SAMPLE = 1000


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Some topics of one cluster. `options` are Kafka's own, such as security.protocol."""

    servers: str
    topics: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    kind: str = MESSAGES
    connectors: tuple[str, ...] = ("kafka",)
    around: tuple[str, ...] = tuple(META)
    sampled: bool = True
    pace: float = 0.0

    @property
    def address(self) -> str:
        return f"kafka://{self.servers}/{','.join(self.topics)}"

    def read(self, spark: SparkSession, reading: ReadingOptions, meta: Mapping[str, str]) -> DataFrame:
        from pyspark.sql import functions as f

        options = {**self._options(reading), **_start(reading.start)}
        options.setdefault("maxOffsetsPerTrigger", str(MOST_MESSAGES))
        if "headers" in meta.values():
            options["includeHeaders"] = "true"
        raw = spark.readStream.format("kafka").options(**options).load()
        wanted = dict.fromkeys(("value", "topic", "partition", "offset", *meta.values()))
        return raw.select(*wanted, f.col("timestamp").alias(ARRIVED))

    def sample(self, spark: SparkSession, reading: ReadingOptions, rules: Rules) -> Sample | None:
        from pyspark.errors import PySparkException

        options = {**self._options(reading), "startingOffsets": "earliest", "endingOffsets": "latest"}
        for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
            options.pop(name, None)
        try:
            found = spark.read.format("kafka").options(**options).load().select("value").limit(SAMPLE).collect()
        except PySparkException as e:
            raise InputError(f"cannot read {self.address}: {_first_line(e)}") from e
        return Sample.of_messages([bytes(row.value) for row in found if row.value], rules, self.address) if found else None

    def _options(self, reading: ReadingOptions) -> dict[str, str]:
        options = {"kafka.bootstrap.servers": self.servers, "subscribe": ",".join(self.topics)}
        options |= {f"kafka.{name}": value for name, value in self.options.items()}
        return {**options, **(reading.options or {})}


def _start(start: str) -> dict[str, str]:
    """Where a new stream begins: earliest, latest, a time, or Spark's JSON of offsets."""
    if start in ("earliest", "latest"):
        return {"startingOffsets": start}
    if start.startswith("{"):
        try:
            json.loads(start)
        except ValueError as e:
            raise InputError(f"the start {start!r} is not JSON: {e}") from None
        return {"startingOffsets": start}
    try:
        moment = dt.datetime.fromisoformat(start)
    except ValueError:
        raise InputError(f"a stream starts at earliest, latest, an ISO time or JSON of offsets, not {start!r}") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return {"startingTimestamp": str(int(moment.timestamp() * 1000)), "startingOffsetsByTimestampStrategy": "latest"}


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
