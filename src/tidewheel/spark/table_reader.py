"""The reader of a whole table, as it is when the scan runs."""

from __future__ import annotations

import base64
import datetime as dt
import io
import pickle
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tidewheel.engine.operations import TakePin, Unpin
from tidewheel.errors import InputError
from tidewheel.model import conditions as where
from tidewheel.model.schema import TableSpec
from tidewheel.spark import connections
from tidewheel.spark.filters import Ask, ask
from tidewheel.spark.options import ASK, TablePath
from tidewheel.spark.plain_errors import plain_iterator, plainly
from tidewheel.spark.splits import ScanPart, divide, portion_of, rows
from tidewheel.spark.types import delivery

PROBE, SCAN, SHARED = "probe", "scan", "shared"
"""What is planned (see `java_provider`). PROBE: only which filters we take. SCAN: one scan, with these filters. SHARED: any number of
scans, with whatever filters, so none may be used."""


class TableReader(DataSourceReader):
    """Planned on the driver; `read` runs in tasks, in copies of it."""

    def __init__(
        self, place: TablePath, spec: TableSpec, wanted: StructType, nanoseconds: str, most: int | None, step: str, asked: Ask
    ) -> None:
        self._place = place
        self._spec = spec
        self._wanted = wanted
        self._nanoseconds = nanoseconds
        self._most = most
        self._step = step
        self._ask = asked

    @property
    def pushFilters(self) -> Any:
        """Spark refuses a reader that overrides this method in a session where pushing filters is off, instead of not calling it."""
        return _Push(self)

    def push(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        """Take what we can; returns what Spark must still do."""
        if self._step != PROBE:
            return filters
        self._ask, left = ask(self._spec, filters)
        return left

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        if self._step == PROBE:
            return [_Question(self._ask)]
        if self._ask.nothing:
            return []
        query = self._ask.query(self._wanted.names)
        pin = connections.do(self._place, TakePin(query))
        connections.do(self._place, Unpin(pin.id))
        count = max(1, len(divide(pin, self._ask, self._spec, self._most)))  # one, also of an empty table: rows may come until it runs
        scan = secrets.token_hex(8)
        return [ScanPart(scan, pin.era, number, count) for number in range(count)]

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ScanPart):  # where we make no partition, Spark makes an empty one
            return iter(())
        query = self._ask.query(self._wanted.names)
        deliver = delivery(self._spec, self._wanted, self._nanoseconds)
        portion = portion_of(self._place, self._spec, partition, self._ask, query)
        return plain_iterator(map(deliver, rows(self._place, self._spec, portion, self._ask, query)))


class _Question(InputPartition):
    """What a probe made of Spark's filters, on its way to the scan."""

    def __init__(self, asked: Ask) -> None:
        super().__init__(None)
        self.ask = asked


def carried(text: str | None) -> Ask:
    """The question that a probe sent, as Spark pickled it; one for everything if there was no probe."""
    if not text:
        return Ask()
    found = _Plain(io.BytesIO(base64.b64decode(text))).load()
    if not isinstance(found, _Question):
        raise InputError(f"option {ASK} is not for users")
    return found.ask


class _Plain(pickle.Unpickler):
    """Reads what a probe sent and nothing else: options can be set by people who may not run code here."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ADMITTED:
            return super().find_class(module, name)
        raise InputError(f"option {ASK} is not for users")


_MADE: tuple[Any, ...] = (_Question, Ask, InputPartition, *where.MAKERS, dt.datetime, dt.date, dt.timezone, dt.timedelta)
_ADMITTED = {
    *((kind.__module__, kind.__qualname__) for kind in _MADE),
    ("decimal", "Decimal"),
    ("copyreg", "__newobj__"),
}


class _Push:
    """Called like the method `pushFilters`, and taken for the one of the base class."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: TableReader) -> None:
        self._reader = reader

    def __call__(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)
