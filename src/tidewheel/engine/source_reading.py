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

from tidewheel.derive.merging import CannotMerge
from tidewheel.engine.compute import SourceRows
from tidewheel.engine.operations import RunQuery
from tidewheel.engine.protocol import Engine, TableEngine
from tidewheel.errors import QueryError
from tidewheel.model.derived import Definition, RefreshPlan, SourceRead
from tidewheel.model.query import Query
from tidewheel.model.schema import ColumnKey, Ip, TableSpec
from tidewheel.model.touched_keys import MOST_KEYS
from tidewheel.read.result import Result

Intervals = Sequence[tuple[int, int]]

MOST_QUERIES = 64
"""Queries that one reading is divided into: more intervals than that are read by their hulls, and cut to size here."""

AT_ONCE = 64 << 20
"""Stored bytes of a source that a refresh holds as one Arrow table. What is more is for a computer that reads it in parts."""

KEY_BYTES = 100_000
"""Stored bytes that are read as a whole in about the time in which the rows of one key and one interval are found."""


class SourceGone(Exception):
    """A source cannot be read any more as it was: plan anew."""


class RefreshReads:
    """What one set of partitions reads for a definition: only the columns that it is to see."""

    def __init__(self, engine: Engine, definition: Definition | None = None) -> None:
        self._engine = engine
        self._definition = definition
        self._unread: list[SourceRead] = []
        self._rows = 0

    def source(self, read: SourceRead, keys: pa.Array | None = None) -> SourceRows:
        """The rows of a source, read when a computer asks for them, once. `keys`: only those with these values of the key's column;
        CannotMerge, if these are too many rows to be held."""
        spec = self._engine.table(read.table).spec
        key = "" if keys is None else _key_column(spec)
        keys = None if keys is None else keys.cast(plain_type(spec.schema.field(key).type))
        columns = self._definition.columns_of(read.table) if self._definition is not None else None
        taken: list[pa.Table] = []
        self._unread.append(read)

        def arrow() -> pa.Table:
            if not taken:
                taken.append(self._read(read, spec, keys, columns))
                self._unread.remove(read)
                self._rows += taken[0].num_rows
            return taken[0]

        return SourceRows(read, spec, arrow, None if keys is None else tuple(keys.to_pylist()), key, columns)

    def new_keys(self, read: SourceRead, column: str) -> pa.Array:
        """The different values of a source's key among the rows that came, or, if they are too many, some of them that are too many as
        well. No other column is read, and a portion of the rows is held at a time."""
        spec = self._engine.table(read.table).spec
        keys = pa.array([], plain_type(spec.schema.field(column).type))
        for some in self._portions(read, spec, column):
            self._rows += some.num_rows
            keys = pa.chunked_array([keys, distinct(some, column)]).unique()
            if len(keys) > MOST_KEYS:
                break
        return keys

    def brings_rows(self, rows: SourceRows) -> bool:
        """Whether a source has any of these rows. Where they may be many, they are read no further than to the first."""
        if rows.read.bytes <= AT_ONCE:
            return bool(rows.arrow().num_rows)  # a computer takes the same
        return any(some.num_rows for some in self._portions(rows.read, rows.spec, rows.spec.time.column))

    def stored(self, plan: RefreshPlan, keys: pa.Array | None) -> pa.Table:
        """The rows that a derived table has now in the intervals of a plan, all or of these keys, with its hidden columns."""
        spec = self._engine.table(plan.table).spec
        looked_up = keys is not None and _key_queries(len(keys), len(near(plan.intervals))) * KEY_BYTES <= plan.stored
        found = self._read(SourceRead(plan.table, -1, plan.intervals), spec, keys if looked_up else None, None, hidden=True)
        self._rows += found.num_rows
        return found if keys is None or looked_up else of_keys(found, _key_column(spec), keys)

    def rows(self) -> int:
        """How many rows were read, also by a computer that read them by itself."""
        return self._rows + sum(self._count(read) for read in self._unread)

    def _read(
        self, read: SourceRead, spec: TableSpec, keys: pa.Array | None, columns: tuple[str, ...] | None, hidden: bool = False
    ) -> pa.Table:
        """`columns` None: all; with `hidden`, those that are never shown, too."""
        table = self._engine.table(read.table)
        batches: list[pa.RecordBatch] = []
        size = 0
        schema = spec.stored if hidden else spec.schema
        asked = None if columns is None else _with_needed(columns, read, spec, keys)
        for query in _queries(read, keys, asked):
            result = _asked(table, replace(query, hidden=hidden))
            schema = result.schema
            for batch in result.to_batches():
                batches.append(batch)
                size += batch.nbytes
            if keys is not None and not hidden and size > AT_ONCE:  # a computer gets these rows by value
                raise CannotMerge(f"{len(keys):,} keys changed, which have more than {AT_ONCE >> 20} MB of rows")
        found = _exact(pa.Table.from_batches(batches, schema), read, spec, keys)
        return found if columns is None else found.select(list(columns))

    def _portions(self, read: SourceRead, spec: TableSpec, column: str) -> Iterator[pa.Table]:
        """One column, at least, of the rows, as they are read."""
        table = self._engine.table(read.table)
        for query in _queries(read, None, _with_needed((column,), read, spec, None)):
            for batch in _asked(table, query):
                yield _exact(pa.Table.from_batches([batch]), read, spec, None)

    def _count(self, read: SourceRead) -> int:
        table = self._engine.table(read.table)
        try:
            return sum(len(table.ask(RunQuery(query))) for query in _queries(read, None, [table.spec.time.column]))
        except QueryError:  # it can be read no more, but was
            return 0


def _asked(table: TableEngine, query: Query) -> Result:
    try:
        return table.ask(RunQuery(query))
    except QueryError as e:  # the questions are ours, and well-formed: only the generation can be wrong
        raise SourceGone(str(e)) from e


def _with_needed(columns: Sequence[str], read: SourceRead, spec: TableSpec, keys: pa.Array | None) -> list[str]:
    """Also the columns that `_exact` looks at."""
    more = [spec.time.column] if len(read.times) > 1 else []
    more += [_key_column(spec)] if keys is not None else []
    return list(dict.fromkeys([*columns, *more]))


def _queries(read: SourceRead, keys: pa.Array | None, columns: list[str] | None) -> Iterator[Query]:
    upto = None if read.upto < 0 else read.upto
    no_limits = Query(columns=columns, upto=upto, after=read.after, timeout=math.inf, max_rows=math.inf, max_bytes=math.inf)
    if keys is None:
        for times in coalesced(read.times, MOST_QUERIES):
            yield replace(no_limits, time=times)
        return
    spans = coalesced(near(read.times), _spans_of_each(len(keys)))
    for key in keys:
        for times in spans:
            yield replace(no_limits, time=times, key=(key, key))


def _spans_of_each(keys: int) -> int:
    """Intervals that each of these keys is looked up in, at most."""
    return max(1, MOST_QUERIES // max(1, keys))


def _key_queries(keys: int, intervals: int) -> int:
    """How many queries it takes to look up these keys in these intervals."""
    return keys * min(intervals, _spans_of_each(keys))


def near(intervals: Intervals) -> list[tuple[int, int]]:
    """These intervals, joined where no more time lies between them than they have in all: the shortest gaps are closed first.

    For rows of a key, of which a search costs more than some that are not wanted.
    """
    left = sum(hi - lo + 1 for lo, hi in intervals)
    gaps = sorted(range(1, len(intervals)), key=lambda i: intervals[i][0] - intervals[i - 1][1])
    for closed, i in enumerate(gaps):
        left -= intervals[i][0] - intervals[i - 1][1] - 1
        if left < 0:
            return coalesced(intervals, len(intervals) - closed)
    return coalesced(intervals, 1)


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


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Of the values, if they are written as numbers of a dictionary."""
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def distinct(rows: pa.Table, column: str) -> pa.Array:
    """The different values of a column, none of which is null."""
    values = rows.column(column)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.unique()


def of_keys(rows: pa.Table, column: str, keys: pa.Array) -> pa.Table:
    """The rows with these values of a column."""
    found = rows.column(column)
    values = found.cast(found.type.value_type) if pa.types.is_dictionary(found.type) else found
    mask = pc.is_in(values, value_set=keys if keys.type == values.type else keys.cast(values.type))
    return rows if pc.all(mask).as_py() is not False else rows.filter(mask)
