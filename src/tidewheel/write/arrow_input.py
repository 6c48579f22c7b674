"""The door for data: whatever a caller holds becomes Arrow columns. Shapes, not meaning: nothing is cast here.

Arrow data that was made elsewhere is looked at before anything else reads it (`write.soundness`): the batches that leave this module are
sound, and columns whose text is not UTF-8 are named. What this process made of Python values is sound by itself.

Neither pandas nor polars is imported: an object of theirs proves that they are loaded already.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tidewheel.errors import BadRowsError, InputError, TidewheelError
from tidewheel.model.dataclass import dataclass
from tidewheel.model.schema import TableSpec
from tidewheel.write.casts import UNFIT
from tidewheel.write.soundness import may_hide, settled_rows, unreadable_text

MOST_ROWS = 1 << 20
FEW_ROWS = 4096
SOME_ROWS = 65_536
"""Rows of an iterator that are looked at together."""
ACCEPTED = (
    "a pyarrow Table, RecordBatch, reader, Dataset or ParquetFile, a pandas or polars DataFrame, a list of dicts, anything with "
    "__arrow_c_stream__, or an iterator of these"
)


@dataclass(frozen=True, slots=True)
class InputColumns:
    """Columns of one length by name; a list holds Python values whose Arrow type only the table can tell."""

    rows: int
    columns: dict[str, Any]  # name → pa.Array or list
    unreadable: frozenset[str] = frozenset()
    """Columns that have text that is not UTF-8, in some rows."""


Parts = Iterable[pa.RecordBatch | InputColumns]


def to_batches(data: Any, spec: TableSpec) -> Parts:
    """The rows of any accepted input, in order. Memory that its owner may still change is copied, Arrow memory is not.

    What brings its rows one after the other is read as the parts are asked for; whatever its own code raises goes on to the caller.
    """
    steps = _steps(data)
    if steps is not None:
        return _of_steps(steps, spec)
    return _at_once(data, spec)


def _steps(data: Any) -> Iterator[Any] | None:
    """The rows of something that has them in pieces, as it brings them; None: all of it is here."""
    if isinstance(data, (list, tuple)):
        return iter(data) if data and not isinstance(data[0], Mapping) and _has_rows(data[0]) else None
    if isinstance(data, pa.RecordBatchReader):
        return _arrow_steps(data, lambda: data)
    if type(data).__module__.startswith("pyarrow.") and hasattr(data, "iter_batches"):  # a ParquetFile
        return _arrow_steps(data, data.iter_batches)
    if hasattr(data, "to_batches") and (hasattr(data, "scanner") or hasattr(data, "to_reader") and hasattr(data, "dataset_schema")):
        return _arrow_steps(data, data.to_batches)  # a Dataset, or a scan of one
    return data if isinstance(data, Iterator) and not hasattr(data, "__arrow_c_stream__") else None


def _has_rows(one: Any) -> bool:
    return any(hasattr(one, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "iloc"))


def _arrow_steps(data: Any, batches: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    try:
        yield from batches()
    except (pa.ArrowException, OSError) as e:
        raise InputError(f"this {type(data).__name__} cannot be read as rows: {e}; nothing was inserted") from e


def _of_steps(steps: Iterator[Any], spec: TableSpec) -> Iterator[pa.RecordBatch | InputColumns]:
    """Neighbours that are alike are put together: many small batches would be as many runs."""
    alike: list[Any] = []
    rows = 0
    for one in steps:
        if alike and (rows >= SOME_ROWS or not _are_alike(alike[-1], one)):
            yield from _together(alike, spec)
            alike, rows = [], 0
        alike.append(one)
        rows += one.num_rows if isinstance(one, pa.RecordBatch) else 1
    if alike:
        yield from _together(alike, spec)


def _are_alike(one: Any, other: Any) -> bool:
    if isinstance(one, pa.RecordBatch) and isinstance(other, pa.RecordBatch):
        return bool(one.schema.equals(other.schema, True))
    return isinstance(one, Mapping) and isinstance(other, Mapping)


def _together(alike: list[Any], spec: TableSpec) -> list[pa.RecordBatch | InputColumns]:
    if isinstance(alike[0], Mapping):
        return _dicts(alike, spec)
    return _at_once(alike[0] if len(alike) == 1 else pa.Table.from_batches(alike), spec)


def _at_once(data: Any, spec: TableSpec) -> list[pa.RecordBatch | InputColumns]:
    module = type(data).__module__.partition(".")[0]
    try:
        if isinstance(data, pa.RecordBatch):
            return _pieces(data, spec)
        if isinstance(data, pa.Table):
            return _table(data, spec)
        if isinstance(data, (list, tuple)):
            return _dicts(data, spec)
        if isinstance(data, InputColumns):
            return [data] if data.rows else []
        if isinstance(data, np.ndarray):
            return _structured(data)
        if module == "pandas" and hasattr(data, "iloc") and hasattr(data, "columns"):
            return _pandas(data, spec)
        if module == "polars" and hasattr(data, "collect_schema") and hasattr(data, "collect"):
            data = data.collect()
        if module == "pyspark" and hasattr(data, "toArrow"):  # whose stream of its own has no zone for times, and fails
            data = data.toArrow()
        if hasattr(data, "__arrow_c_stream__"):
            return _table(pa.RecordBatchReader.from_stream(data).read_all(), spec)
        if hasattr(data, "__arrow_c_array__"):
            return _pieces(pa.record_batch(data), spec)
    except TidewheelError:
        raise
    except (pa.ArrowException, OSError, ValueError) as e:
        raise InputError(f"table {spec.name!r}: this {type(data).__name__} cannot be read as rows: {e}") from e
    hint = " For a dict of columns use pyarrow.table(data); for one row, [data]." if isinstance(data, Mapping) else ""
    if isinstance(data, (str, os.PathLike)):
        hint = f" Files are loaded by wh.load({spec.name!r}, {str(data)!r})."
    elif module == "tidewheel" and hasattr(data, "query"):
        hint = " The rows of a table are table.query()."
    elif module in ("pandas", "polars") and hasattr(data, "to_frame"):
        hint = " A Series is a DataFrame of one column with to_frame()."
    raise InputError(f"table {spec.name!r} takes {ACCEPTED}, not {type(data).__name__}.{hint}")


def _pieces(batch: pa.RecordBatch, spec: TableSpec) -> list[pa.RecordBatch | InputColumns]:
    unreadable = unreadable_text(batch, spec.name)
    batch = settled_rows(batch)
    if batch.num_rows <= MOST_ROWS:
        return _named([batch] if batch.num_rows else [], unreadable, spec)
    return _named([batch.slice(lo, MOST_ROWS) for lo in range(0, batch.num_rows, MOST_ROWS)], unreadable, spec)


def _table(table: pa.Table, spec: TableSpec) -> list[pa.RecordBatch | InputColumns]:
    unreadable = unreadable_text(table, spec.name)
    table = _settled_table(table)
    chunks = max((c.num_chunks for c in table.columns), default=0)
    if chunks > 1 and table.num_rows < chunks * FEW_ROWS:
        with suppress(pa.ArrowInvalid):  # dictionaries of several chunks may be too large for one: then the chunks stay apart
            table = table.combine_chunks()
    return _named([b for b in table.to_batches(max_chunksize=MOST_ROWS) if b.num_rows], unreadable, spec)


def _settled_table(table: pa.Table) -> pa.Table:
    """A sound table with nothing wild under its nulls."""
    return pa.Table.from_batches(map(settled_rows, table.to_batches()), table.schema) if may_hide(table.schema) else table


def _named(batches: list[pa.RecordBatch], unreadable: frozenset[str], spec: TableSpec) -> list[pa.RecordBatch | InputColumns]:
    """Sound batches as they are, others by their columns."""
    return [by_name(batch, spec, unreadable) for batch in batches] if unreadable else batches


def by_name(batch: pa.RecordBatch, spec: TableSpec, unreadable: frozenset[str] = frozenset()) -> InputColumns:
    """A batch as columns, none of them twice."""
    names = batch.schema.names
    if len(set(names)) < len(names):
        twice = next(n for i, n in enumerate(names) if n in names[:i])
        raise BadRowsError(f"table {spec.name!r}: column {twice!r} appears twice in the input", table=spec.name, column=twice)
    return InputColumns(batch.num_rows, dict(zip(names, batch.columns, strict=True)), unreadable)


def _dicts(rows: list[Any] | tuple[Any, ...], spec: TableSpec) -> list[pa.RecordBatch | InputColumns]:
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            message = f"table {spec.name!r}: row {i} is a {type(row).__name__}, but every row of a list is a dict of columns and values"
            raise BadRowsError(message, table=spec.name, rows=(i,))
    if not rows:
        return []
    names = dict.fromkeys(chain.from_iterable(rows))
    return [InputColumns(len(rows), {str(name): [row.get(name) for row in rows] for name in names})]


def with_index(frame: Any, time: str, wanted: Sequence[str]) -> Any:
    """A DataFrame with those parts of its index as columns that it lacks and that are `wanted`, and with an index of times in any case.

    An index of times that has no name is the time.
    """
    names = list(frame.index.names)
    times = type(frame.index).__name__ == "DatetimeIndex"
    if times and names == [None] and time and time not in frame.columns:
        return frame.rename_axis(index=time).reset_index()
    taken = [name for name in names if name is not None and name not in frame.columns and (times or name in wanted)]
    return frame.reset_index(level=taken) if taken else frame


def _pandas(frame: Any, spec: TableSpec) -> list[pa.RecordBatch | InputColumns]:
    frame = with_index(frame, spec.time.column, spec.schema.names)
    lacking = [name for name in (spec.time.column, *spec.key.columns) if name not in map(str, frame.columns)]
    if lacking and type(frame.index).__name__ != "RangeIndex":
        message = f"table {spec.name!r}: this DataFrame has no column {lacking[0]!r}. Is it in the index? Name it: frame.rename_axis(…)"
        raise BadRowsError(message, table=spec.name, column=lacking[0])
    columns: dict[str, Any] = {}
    foreign: dict[str, pa.Array] = {}
    for i, name in enumerate(map(str, frame.columns)):
        if name in columns:
            raise BadRowsError(f"table {spec.name!r}: column {name!r} appears twice in the DataFrame", table=spec.name, column=name)
        series = frame.iloc[:, i]
        try:
            array = pa.array(series if series.dtype == object else series.copy(deep=True), from_pandas=True)
            if not isinstance(series.dtype, np.dtype):  # pandas may hold Arrow data that it got from elsewhere
                foreign[name] = array
            columns[name] = array
        except UNFIT:  # values of several types under one name
            columns[name] = [None if null else v for v, null in zip(series.tolist(), series.isna().tolist(), strict=True)]
    unreadable: frozenset[str] = frozenset()
    if foreign:
        given = pa.table(foreign)
        unreadable = unreadable_text(given, spec.name)
        columns |= dict(zip(foreign, _settled_table(given).columns, strict=True))
    columns = {name: one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for name, one in columns.items()}
    return [InputColumns(len(frame), columns, unreadable)] if len(frame) else []


def _structured(data: np.ndarray[Any, Any]) -> list[pa.RecordBatch | InputColumns]:
    if data.dtype.names is None or data.ndim != 1:
        raise InputError("a NumPy array of rows is one-dimensional and structured (its dtype has field names)")
    columns: dict[str, Any] = {}
    for name in data.dtype.names:
        values = np.array(data[name], dtype=data[name].dtype.newbyteorder("="), order="C", copy=True)
        try:
            columns[name] = pa.array(values)
        except UNFIT:
            columns[name] = values.tolist()
    return [InputColumns(len(data), columns)] if len(data) else []
