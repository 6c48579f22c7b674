"""Addresses of sources, as people write them: kafka://host:port/topic, rate://rows_per_second, socket://host:port, or a folder."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from tidewheel.errors import InputError
from tidewheel.spark.sources.folder import FolderSource
from tidewheel.spark.sources.kafka import KafkaSource
from tidewheel.spark.sources.rate import RateSource
from tidewheel.spark.sources.socket import SocketSource
from tidewheel.spark.sources.stream_source import StreamSource


def parse_source(address: str) -> StreamSource:
    """The source of an address: kafka://host:port/topic, rate://rows_per_second, socket://host:port, or the path of a folder."""
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
