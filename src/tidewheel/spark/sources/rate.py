"""Rows that Spark makes up, so many a second: for trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tidewheel.ingest.rules import Rules
from tidewheel.ingest.sample import Sample
from tidewheel.spark.sources.stream_source import ARRIVED, ReadingOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("value", pa.int64())])


@dataclass(frozen=True, slots=True)
class RateSource:
    """`timestamp` and a `value` that counts up."""

    rows_per_second: int
    kind: str = ""
    connectors: tuple[str, ...] = ()
    around: tuple[str, ...] = ()
    sampled: bool = True
    pace: float = 0.0

    @property
    def address(self) -> str:
        return f"rate://{self.rows_per_second}"

    def read(self, spark: SparkSession, reading: ReadingOptions, meta: Mapping[str, str]) -> DataFrame:
        from pyspark.sql import functions as f

        raw = spark.readStream.format("rate").options(**{"rowsPerSecond": str(self.rows_per_second), **(reading.options or {})}).load()
        return raw.select("timestamp", "value", f.col("timestamp").alias(ARRIVED))

    def sample(self, spark: SparkSession, reading: ReadingOptions, rules: Rules) -> Sample | None:
        return Sample({}, SCHEMA, 0, self.address)
