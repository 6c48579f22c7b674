"""How a refresh reads its sources: exactly the rows of its times and generations, in few queries, and counted.

Used by one thread, for one set of partitions. Nothing here knows what is computed of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidewheel.engine.compute import SourceRows
from tidewheel.engine.operations import RunQuery
from tidewheel.engine.protocol import Engine
from tidewheel.errors import QueryError
from tidewheel.model.derived import SourceRead
from tidewheel.model.query import Query
from tidewheel.model.schema import ColumnKey, Ip, TableSpec

Intervals = Sequence[tuple[int, int]]

MOST_QUERIES = 64
"""Queries that one reading is divided into: more intervals than that are read by their hulls, and cut to size here."""


class SourceGone(Exception):
    """A source cannot be read any more as it was: plan anew."""


class RefreshReads:
    """What one set of partitions reads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._unread: list[SourceRead] = []
        self._rows = 0

    def source(self, read: SourceRead, keys: pa.Array | None = None) -> SourceRows:
        """The rows of a source, read when a computer asks for them, once. `keys`: only those with these values of the key's column."""
        spec = self._engine.table(read.table).spec
        key = "" if keys is None else _key_column(spec)
        taken: list[pa.Table] = []
        self._unread.append(read)

        def arrow() -> pa.Table:
            if not taken:
                taken.append(self._read(read, spec, keys))
                self._unread.remove(read)
                self._rows += taken[0].num_rows
            return taken[0]

        return SourceRows(read, spec, arrow, None if keys is None else tuple(keys.to_pylist()), key)

    def stored(self, table: str, intervals: Intervals, keys: pa.Array | None) -> pa.Table:
        """The rows that a derived table has now."""
        spec = self._engine.table(table).spec
        found = self._read(SourceRead(table, -1, tuple(intervals)), spec, keys)
        self._rows += found.num_rows
        return found

    def rows(self) -> int:
        """How many rows were read, also by a computer that read them by itself."""
        return self._rows + sum(self._count(read) for read in self._unread)

    def _read(self, read: SourceRead, spec: TableSpec, keys: pa.Array | None) -> pa.Table:
        table = self._engine.table(read.table)
        batches: list[pa.RecordBatch] = []
        schema = spec.schema
        for query in _queries(read, keys):
            try:
                result = table.ask(RunQuery(query))
            except QueryError as e:  # the questions are ours, and well-formed: only the generation can be wrong
                raise SourceGone(str(e)) from e
            schema = result.schema
            batches += result.to_batches()
        return _exact(pa.Table.from_batches(batches, schema), read, spec, keys)

    def _count(self, read: SourceRead) -> int:
        table = self._engine.table(read.table)
        try:
            return sum(len(table.ask(RunQuery(query))) for query in _queries(read, None))
        except QueryError:  # it can be read no more, but was
            return 0


def _queries(read: SourceRead, keys: pa.Array | None) -> Iterator[Query]:
    upto = None if read.upto < 0 else read.upto
    no_limits = Query(upto=upto, after=read.after, timeout=math.inf, max_rows=math.inf, max_bytes=math.inf)
    if keys is None:
        for times in coalesced(read.times, MOST_QUERIES):
            yield replace(no_limits, time=times)
        return
    spans = coalesced(read.times, max(1, MOST_QUERIES // max(1, len(keys))))
    for key in keys:
        for times in spans:
            yield replace(no_limits, time=times, key=(key, key))


def coalesced(intervals: Intervals, most: int) -> list[tuple[int, int]]:
    """At most so many intervals, with all of these in them: those with the least between them are joined."""
    if len(intervals) <= most:
        return list(intervals)
    gaps = sorted(range(1, len(intervals)), key=lambda i: intervals[i][0] - intervals[i - 1][1], reverse=True)
    starts = [0, *sorted(gaps[: most - 1])]
    return [(intervals[a][0], intervals[b - 1][1]) for a, b in zip(starts, [*starts[1:], len(intervals)], strict=True)]


def within(times: npt.NDArray[np.int64], intervals: Intervals) -> npt.NDArray[np.bool_]:
    """Which times lie in one of the intervals, which are apart from each other and in rising order."""
    if not intervals:
        return np.zeros(len(times), bool)
    starts = np.array([lo for lo, _ in intervals], np.int64)
    ends = np.array([hi for _, hi in intervals], np.int64)
    at = np.searchsorted(starts, times, side="right") - 1
    return (at >= 0) & (times <= ends[at])


def times_of(column: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.int64]:
    """A time column without nulls as numbers in its unit."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    found = column.cast(pa.int64()).to_numpy()
    return np.asarray(found, np.int64)


def _exact(rows: pa.Table, read: SourceRead, spec: TableSpec, keys: pa.Array | None) -> pa.Table:
    """Without the rows of gaps between intervals, and of keys that only share a code."""
    if keys is not None and isinstance(spec.key, Ip):  # one address has many texts
        rows = rows.filter(pc.is_in(rows.column(_key_column(spec)), keys))
    if len(read.times) > 1 and rows.num_rows:
        mask = within(times_of(rows.column(spec.time.column)), read.times)
        rows = rows if mask.all() else rows.filter(pa.array(mask))
    return rows


def _key_column(spec: TableSpec) -> str:
    assert isinstance(spec.key, (ColumnKey, Ip))
    return spec.key.column


def distinct(rows: pa.Table, column: str) -> pa.Array:
    """The different values of a column, none of which is null."""
    values = rows.column(column)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.unique()
