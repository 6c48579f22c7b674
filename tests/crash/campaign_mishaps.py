"""The sink with things going wrong at chosen moments: errors, and deaths of the process it runs in or of the warehouse's owner.

`plant` leaves a mishap for the first process that comes by its place, in whatever task or commit that is. It happens once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from tidewheel.spark import stream_sink
from tidewheel.spark.source import TidewheelSource
from tidewheel.spark.stream_sink import LARGE, StreamSink, TaskReport

FOLDER = "CAMPAIGN_MISHAPS"
"""The environment variable that names the folder of mishaps."""
ROOT = "CAMPAIGN_ROOT"

PLACES = ("task-begins", "task-middle", "task-ends", "commit-begins", "committing", "commit-ends")
"""`task-ends`: the slice is staged, but Spark does not know it. `commit-ends`: the batch is published, but Spark does not know it."""
ERROR, KILL, OWNER = "error", "kill", "owner"
"""An exception; kill -9 of the process itself; kill -9 of the owner."""


@dataclass(frozen=True)
class Mishaps:
    folder: str
    root: str

    def plant(self, place: str, what: str) -> Path:
        """The file is gone when it happened."""
        path = Path(self.folder) / f"{place}.{what}"
        path.touch()
        return path

    def clear(self) -> None:
        for path in Path(self.folder).iterdir():
            path.unlink(missing_ok=True)

    def spring(self, place: str) -> None:
        for what in (ERROR, KILL, OWNER):
            try:
                (Path(self.folder) / f"{place}.{what}").unlink()
            except FileNotFoundError:
                continue
            self._happen(place, what)

    def _happen(self, place: str, what: str) -> None:
        match what:
            case "error":
                raise RuntimeError(f"a mishap of the campaign: {place}")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "owner" if place == "committing":
                threading.Timer(random.random() * 0.01, kill_owner, (Path(self.root),)).start()
            case "owner":
                kill_owner(Path(self.root))


def owner_of(root: Path) -> int | None:
    """The process that owns the warehouse, as far as its lock file says."""
    try:
        return int(json.loads((root / "owner.lock").read_text())["pid"])
    except (OSError, ValueError, KeyError):
        return None


def kill_owner(root: Path) -> int | None:
    pid = owner_of(root)
    with suppress(psutil.Error):
        # the file stays when its process is gone, and numbers are used again
        if pid is not None and {"tidewheel.surfaces.owner_process", str(root)} <= set((process := psutil.Process(pid)).cmdline()):
            process.kill()
            return pid
    return None


class MishapSource(TidewheelSource):
    """Takes the place of `format("tidewheel")`: the same, but for the mishaps."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        sink = super().streamWriter(schema, overwrite)
        assert isinstance(sink, StreamSink)
        return MishapSink(sink, Mishaps(os.environ[FOLDER], os.environ[ROOT]))


class MishapSink(StreamSink):
    def __init__(self, sink: StreamSink, mishaps: Mishaps) -> None:
        self._sink = sink
        self._mishaps = mishaps

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Every other slice counts as large, so that batches are staged, written, and both."""
        self._mishaps.spring("task-begins")
        stream_sink.LARGE = random.choice((1, LARGE))
        done = self._sink.write(self._in_halves(iterator))
        if done.slices or done.written:
            self._mishaps.spring("task-ends")
        return done

    def _in_halves(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in iterator:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if half:
                self._mishaps.spring("task-middle")
            yield batch.slice(half)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._mishaps.spring("commit-begins")
        self._mishaps.spring("committing")
        self._sink.commit(messages, batchId)
        self._mishaps.spring("commit-ends")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.abort(messages, batchId)
