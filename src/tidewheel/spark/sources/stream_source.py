"""What a source is: an address that people type, and what Spark reads from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, urlsplit

from tidewheel.errors import InputError

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


def parse_source(address: str) -> StreamSource:
    """The source of an address: kafka://host:port/topic, rate://rows_per_second, socket://host:port, or the path of a folder."""
    from tidewheel.spark.sources.folder import FolderSource
    from tidewheel.spark.sources.kafka import KafkaSource
    from tidewheel.spark.sources.rate import RateSource
    from tidewheel.spark.sources.socket import SocketSource

    if not isinstance(address, str) or not address:
        raise InputError(f"a source is kafka://host:port/topic, rate://rows_per_second, socket://host:port or a folder, not {address!r}")
    scheme, mark, rest = address.partition("://")
    if not mark:
        return FolderSource(address)
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    match scheme:
        case "kafka":
            servers, slash, topics = rest.partition("?")[0].partition("/")
            names = tuple(t for t in topics.strip("/").split(",") if t)
            if not servers or not slash or not names:
                raise InputError(f"a Kafka source is kafka://host:port/topic, or kafka://host1,host2/topic1,topic2, not {address!r}")
            full = ",".join(s if re.search(r":\d+$", s) else f"{s}:9092" for s in servers.split(","))
            return KafkaSource(full, names, options)
        case "rate":
            rows = rest.partition("?")[0].replace("_", "")
            if not rows.isdigit() or not int(rows):
                raise InputError(f"a rate is rate://rows_per_second, such as rate://1000, not {address!r}")
            return RateSource(int(rows))
        case "socket":
            found = re.fullmatch(r"([^:/]+):(\d{1,5})/?", rest)
            if not found:
                raise InputError(f"a socket is socket://host:port, not {address!r}")
            return SocketSource(found[1], int(found[2]))
        case "http" | "https" | "postgresql" | "mysql" | "jdbc":
            raise InputError(f"{scheme} is no source; known are kafka://host:port/topic, rate://rows, socket://host:port and folders")
    return FolderSource(address)


def stream_name(table: str, source: StreamSource) -> str:
    """A name for the stream from a source to a table, the same at every start."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", source.address).strip("-")[-40:].strip("-")
    return f"{table}-{words}-{blake2b(source.address.encode(), digest_size=3).hexdigest()}"
