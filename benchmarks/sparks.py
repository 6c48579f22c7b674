"""What the Spark benchmarks share: a session, and the least that a sink and a source in Python can do, as a measure for ours.

Spark's own Python processes import this module, so it is run from the folder that holds `benchmarks`, as `python -m benchmarks` is.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

MASTER = "local[2]"

_prepared: dict[tuple[str, tuple[str, ...]], pa.RecordBatch] = {}
"""In a worker: the batches that it delivers again and again."""


@contextmanager
def session(background: bool = False) -> Iterator[SparkSession]:
    """A session as a user of ours has it, with `format("counting")` and `format("prepared")`.

    `background`: with the low priority of one that is started for derived tables.
    """
    import tidewheel.spark as tws
    from tidewheel.spark import background_session

    if background:
        background_session(MASTER)
    # one query's worth of progress, not only its last hundred batches
    spark = tws.session(MASTER, **{"spark.sql.streaming.numRecentProgressUpdates": 10_000})
    try:
        spark.dataSource.register(CountingSource)
        spark.dataSource.register(PreparedSource)
        yield spark
    finally:
        spark.stop()


def missing() -> str:
    """Why nothing can be run here; empty if it can."""
    return "PySpark is not installed" if importlib.util.find_spec("pyspark") is None else ""


def java_version(spark: SparkSession) -> str:
    return str(spark._jvm.java.lang.System.getProperty("java.version"))  # type: ignore[union-attr]


def processor_seconds() -> dict[str, float]:
    """Seconds of a core that this process, Java and Spark's Python processes used: unlike time, they hardly depend on who else runs."""
    used = {"this process": 0.0, "java": 0.0, "python workers": 0.0}
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            who = "this process" if process == me else "java" if process.name() == "java" else "python workers"
            used[who] += times.user + times.system
            if who == "python workers":  # those that it has forked and that are gone
                used[who] += times.children_user + times.children_system
    return used


# ---- the least a sink can do ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counted(WriterCommitMessage):
    rows: int
    numbers: tuple[int, ...]


class CountingSink(DataSourceStreamArrowWriter):
    """Counts rows. Its commit leaves a line in a file, so that the count can be checked: 0.05 ms a batch."""

    def __init__(self, notes: str, column: str | None) -> None:
        self._notes = notes
        self._column = column

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Counted:
        rows = 0
        numbers: list[int] = []
        for batch in iterator:
            rows += batch.num_rows
            if self._column is not None:
                numbers += batch.column(self._column).to_pylist()
        return Counted(rows, tuple(numbers))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        counted = [message for message in messages if isinstance(message, Counted)]
        line = {
            "batch": batchId,
            "at": time.time(),
            "rows": sum(m.rows for m in counted),
            "numbers": [n for m in counted for n in m.numbers],
        }
        with open(self._notes, "a") as file:
            file.write(json.dumps(line) + "\n")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        pass


class CountingSource(DataSource):
    """`format("counting")`, options `notes` (a file) and `column` (whose whole numbers are noted as well)."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return CountingSink(self.options["notes"], self.options.get("column"))


def notes(file: Path) -> list[dict[str, Any]]:
    """What a counting sink left there."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


# ---- the least a source can do ----------------------------------------------------------------------------


class PreparedReader(DataSourceReader):
    """Delivers one batch, which lies ready in memory, until it has delivered `rows` rows."""

    def __init__(self, file: str, columns: tuple[str, ...], rows: int, partitions: int) -> None:
        self._file = file
        self._columns = columns
        self._rows = rows
        self._partitions = partitions

    def partitions(self) -> Sequence[InputPartition]:
        share = self._rows // self._partitions
        return [InputPartition(share)] * (self._partitions - 1) + [InputPartition(self._rows - share * (self._partitions - 1))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = self._batch()
        left = int(partition.value)
        while left >= batch.num_rows:
            yield batch
            left -= batch.num_rows
        if left:
            yield batch.slice(0, left)

    def _batch(self) -> pa.RecordBatch:
        key = (self._file, self._columns)
        if key not in _prepared:
            with pa.OSFile(self._file) as file:
                _prepared[key] = pa.ipc.open_file(file).get_batch(0).select(list(self._columns))
        return _prepared[key]


class PreparedSource(DataSource):
    """`format("prepared")` with a schema; options `file` (an Arrow file of one batch), `rows`, `partitions`."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PreparedReader(self.options["file"], tuple(schema.names), int(self.options["rows"]), int(self.options["partitions"]))
