"""What a source is: an address that people type, and what Spark reads from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidewheel.ingest.rules import Rules
    from tidewheel.ingest.sample import Sample

ARRIVED = "_tw_arrived"
"""A column of every source: when its record arrived there. It ends at the sink, and shows how long rows take to be visible."""


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """How a source is to be read."""

    start: str = "earliest"
    options: Mapping[str, str] | None = None
    """For Spark's own source, as they are."""


class StreamSource(Protocol):
    """One source. What `read` gives is decoded in the sink if the source has a `kind`; else its columns are the table's."""

    @property
    def address(self) -> str:
        """As it is typed, without secrets."""
        ...

    @property
    def kind(self) -> str:
        """messages, files, or empty: rows."""
        ...

    @property
    def connectors(self) -> tuple[str, ...]:
        """What of Spark it needs that PySpark does not bring."""
        ...

    @property
    def around(self) -> tuple[str, ...]:
        """What its messages have besides a payload."""
        ...

    @property
    def sampled(self) -> bool:
        """Whether some records can be looked at before the stream starts."""
        ...

    @property
    def pace(self) -> float:
        """Seconds between two looks for new records that suit it."""
        ...

    def read(self, spark: SparkSession, reading: ReadingOptions, meta: Mapping[str, str]) -> DataFrame:
        """The stream of its records, and of what is around them what `meta` asks for."""
        ...

    def sample(self, spark: SparkSession, reading: ReadingOptions, rules: Rules) -> Sample | None:
        """Some of its first records; None if there is none yet."""
        ...


def stream_name(table: str, source: StreamSource) -> str:
    """A name for the stream from a source to a table, the same at every start."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", source.address).strip("-")[-40:].strip("-")
    return f"{table}-{words}-{blake2b(source.address.encode(), digest_size=3).hexdigest()}"
