"""A folder of files: each file is read whole, by the task that gets its name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidewheel.errors import InputError, NotFoundError
from tidewheel.ingest.file_rows import GLOB, Broken, named
from tidewheel.ingest.rules import FILES, Rules
from tidewheel.ingest.sample import Sample
from tidewheel.spark.sources.stream_source import ARRIVED, ReadingOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "path string, modificationTime timestamp, length long, content binary"
MOST_BYTES = str(256 << 20)
"""Bytes of files that are one batch; a larger file is a batch of its own."""


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A folder, or a pattern of folders; local, or wherever Spark can read."""

    path: str
    kind: str = FILES
    connectors: tuple[str, ...] = ()
    around: tuple[str, ...] = ()
    sampled: bool = True
    pace: float = 1.0

    @property
    def address(self) -> str:
        return self.path if "://" in self.path else os.path.abspath(os.path.expanduser(self.path))

    @property
    def local(self) -> bool:
        return "://" not in self.address or self.address.startswith("file://")

    def read(self, spark: SparkSession, reading: ReadingOptions, meta: Mapping[str, str]) -> DataFrame:
        from pyspark.sql import functions as f

        if reading.start != "earliest":
            raise InputError("a folder is read from its first file on; only Kafka has another start")
        # recursively, in the order of arrival; a file that vanished before its turn is none
        options = {"pathGlobFilter": GLOB, "recursiveFileLookup": "true", "ignoreMissingFiles": "true", **(reading.options or {})}
        if not {"maxfilespertrigger", "maxbytespertrigger"} & {name.lower() for name in options}:  # Spark refuses both
            options["maxBytesPerTrigger"] = MOST_BYTES
        raw = spark.readStream.format("binaryFile").schema(SCHEMA).options(**options).load(self.address)
        columns = ["path", "length", "modificationTime"] if self.local else ["path", "length", "modificationTime", "content"]
        return raw.select(*columns, f.col("modificationTime").alias(ARRIVED))

    def sample(self, spark: SparkSession, reading: ReadingOptions, rules: Rules) -> Sample | None:
        why = ""
        for path, content in self._some(spark):
            try:
                return Sample.of_file(path, content, rules)
            except Broken as e:
                why = why or f"{path}: {e}"
        if why:
            raise InputError(f"none of the first files of {self.address} can be read; {why}")
        return None

    def _some(self, spark: SparkSession) -> Iterator[tuple[str, bytes | None]]:
        """The oldest files that can be read, by their names."""
        if not self.local or any(c in self.address for c in "*?[{"):
            options = {"pathGlobFilter": GLOB, "recursiveFileLookup": "true"}
            for row in spark.read.format("binaryFile").options(**options).load(self.address).limit(3).toLocalIterator():
                yield row.path, bytes(row.content)
            return
        root = Path(self.address.removeprefix("file://"))
        if not root.exists():
            raise NotFoundError(f"there is no folder {root}; make it first, files may come later")
        found = [root] if root.is_file() else [p for p in root.rglob("*") if p.is_file() and _readable(p)]
        for path in sorted(found, key=lambda p: p.stat().st_mtime)[:10]:
            yield f"file:{path}", None


def _readable(path: Path) -> bool:
    """Whether Spark would list it: hidden files, and those that are still being written under another name, are not."""
    if any(part.startswith(("_", ".")) for part in path.parts[1:][-2:]):
        return False
    with suppress(Broken):
        return bool(named(path.name))
    return False
