"""Lines from a TCP connection: for trials. A socket cannot be read again, so lines that a crash caught on the way are gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidewheel.ingest.rules import MESSAGES, Rules
from tidewheel.ingest.sample import Sample
from tidewheel.spark.sources.stream_source import ARRIVED, ReadingOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SocketSource:
    """Each line is a message."""

    host: str
    port: int
    kind: str = MESSAGES
    connectors: tuple[str, ...] = ()
    around: tuple[str, ...] = ()
    sampled: bool = False
    pace: float = 0.0

    @property
    def address(self) -> str:
        return f"socket://{self.host}:{self.port}"

    def read(self, spark: SparkSession, reading: ReadingOptions, meta: Mapping[str, str]) -> DataFrame:
        from pyspark.sql import functions as f

        options = {"host": self.host, "port": str(self.port), "includeTimestamp": "true", **(reading.options or {})}
        raw = spark.readStream.format("socket").options(**options).load()
        return raw.select(
            f.col("value").cast("binary").alias("value"), f.lit(self.address).alias("topic"), f.col("timestamp").alias(ARRIVED)
        )

    def sample(self, spark: SparkSession, reading: ReadingOptions, rules: Rules) -> Sample | None:
        """A line that is read for a sample would be missing in the table."""
        return None
