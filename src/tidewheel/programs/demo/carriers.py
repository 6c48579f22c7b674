"""Carriers of the fleet's files into the table: Spark, or without it a thread of this process. Either deletes what it has loaded."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tidewheel.errors import SparkError

if TYPE_CHECKING:
    from tidewheel.table import Table

Doing = Callable[[str], None]
"""Told what is being done, for whoever waits."""
_PAUSE = 0.05


class Carrier(Protocol):
    """Made, started, checked now and then, and stopped by one thread, but not necessarily the main one."""

    def start(self, doing: Doing) -> None: ...
    def check(self) -> None:
        """Raise what ended it, if something did."""
        ...

    def stop(self) -> None: ...


class SparkCarrier:
    """`tws.ingest` from a folder: what `tidewheel ingest taxi --from FOLDER` does."""

    def __init__(self, folder: Path, root: Path, checkpoint: Path) -> None:
        self._folder = folder
        self._path = root / "taxi"
        self._checkpoint = checkpoint
        self._spark: Any = None
        self._query: Any = None

    def start(self, doing: Doing) -> None:
        doing("starting Spark")
        with _or_without():
            import tidewheel.spark as tws

            # not in the main thread: there Spark would answer Ctrl-C by cancelling the batch under way
            self._spark = tws.session("local[2]")
            doing("starting the stream")
            self._query = tws.ingest(
                self._spark, str(self._folder), self._path, trigger="0", checkpoint=self._checkpoint, options={"cleanSource": "delete"}
            )

    def check(self) -> None:
        if self._query is not None and (failure := self._query.exception()) is not None:
            from tidewheel.spark import log_file

            raise SparkError(f"the stream failed: {_first_words(str(failure))}. Spark's log is {log_file()}")

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
        if self._spark is not None:
            self._spark.stop()


class ThreadCarrier:
    """The same without Spark: one thread reads the files and inserts them."""

    def __init__(self, folder: Path, taxi: Table) -> None:
        self._folder = folder
        self._taxi = taxi
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name="demo-carrier", daemon=True)

    def start(self, doing: Doing) -> None:
        doing("starting")
        self._thread.start()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _guarded(self) -> None:
        try:
            while not self._stop.wait(_PAUSE):
                for file in sorted(self._folder.glob("[!.]*.jsonl")):
                    rows = [_row(line) for line in file.read_bytes().splitlines()]
                    self._taxi.insert(rows, package=file.name, on_bad="reject")
                    file.unlink()
        except BaseException as error:  # raised again by `check`
            self._failure = error


def _row(line: bytes) -> dict[str, Any]:
    """A message that cannot be read is a row without values: it is rejected, and not lost."""
    with suppress(ValueError):
        row = json.loads(line)
        if isinstance(row, dict):
            return row
    return {}


@contextmanager
def _or_without() -> Iterator[None]:
    try:
        yield
    except SparkError as e:
        raise SparkError(f"{e}. Without Spark: tidewheel demo --without-spark") from e


def _first_words(text: str) -> str:
    """The line of a failed query's message that people can read."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line and not line.startswith("at ")]
    return (telling or lines or ["it does not say why"])[-1].rstrip(".")
