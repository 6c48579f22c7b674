"""A table from rows: `create_table` of a DataFrame, an Arrow table or anything else with rows takes its schema, and then the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from sys import getsizeof
from typing import Any

import pyarrow as pa

from tidewheel.engine.operations import DropTable, Insert
from tidewheel.engine.protocol import Engine, TableEngine
from tidewheel.errors import ExistsError, SchemaError, TidewheelError
from tidewheel.model.definition import time_name
from tidewheel.model.schema import Epoch, TableSpec
from tidewheel.write.arrow_input import InputColumns, to_batches, with_index

_PART = 4
"""An insert of many rows takes a part of what one may have: all of it is in memory twice while it is logged."""


def schema_and_rows(given: Any, time: Any, key: Any) -> tuple[Any, Any]:
    """The schema of a new table, and its rows; None if it is a schema alone. Its time and key may be an index of pandas."""
    kind = type(given).__module__.partition(".")[0]
    if isinstance(given, pa.Schema) or (hasattr(given, "__arrow_c_schema__") and not hasattr(given, "__arrow_c_stream__")):
        return given, None
    if kind == "pandas" and hasattr(given, "iloc") and hasattr(given, "columns"):
        column = time_name(time) if isinstance(time, (str, Epoch)) else ""
        frame = with_index(given, column, (column, *((key,) if isinstance(key, str) else getattr(key, "columns", ()))))
        try:
            return _plain(pa.Schema.from_pandas(frame, preserve_index=False)), frame
        except (pa.ArrowException, TypeError, ValueError) as e:
            raise SchemaError(
                f"the types of this DataFrame's columns cannot be told: {e}. Give a pyarrow.Schema, and insert the rows"
            ) from e
    if kind == "polars" and hasattr(given, "collect_schema"):
        rows = (given.collect() if hasattr(given, "collect") else given).to_arrow()
        return _plain(rows.schema, large=False), rows
    if kind == "pyspark" and hasattr(given, "toArrow"):
        rows = given.toArrow()
        return _plain(rows.schema), rows
    if isinstance(given, (list, tuple)) and given and isinstance(given[0], Mapping):
        return _of_dicts(given), given
    if isinstance(given, (list, tuple, Iterator)) and not hasattr(given, "__arrow_c_stream__"):
        return _of_steps(iter(given), time, key)
    for name in ("schema_arrow", "projected_schema", "schema"):  # a ParquetFile; a scan; a table, batch, reader or dataset
        if isinstance(schema := getattr(given, name, None), pa.Schema):
            return _plain(schema), given
    if hasattr(given, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(given)
        return _plain(reader.schema), reader
    return given, None  # what is wrong with it is said where schemas are checked


def create_with(engine: Engine, spec: TableSpec, rows: Any, if_exists: str) -> TableEngine:
    """Make a table and insert its first rows; if they do not fit, there is no table. One that is there already stays as it is."""
    try:
        table = engine.create(spec, "error" if if_exists == "open" else if_exists)
    except ExistsError:
        if if_exists != "open":
            raise
        return engine.create(spec, "open")
    try:
        for part in _parts(rows, spec, engine.settings.max_batch_bytes // _PART):
            table.give(Insert(None, "error"), part)
    except BaseException:
        with suppress(TidewheelError):
            engine.do(DropTable(spec.name))
        raise
    return table


def _parts(rows: Any, spec: TableSpec, most: int) -> Iterator[Any]:
    """Nobody knows the table yet, so that its rows need not all come at once."""
    if isinstance(rows, pa.Table):
        step = max(1, min(rows.num_rows, rows.num_rows * most // max(1, rows.nbytes)))
        yield from (rows.slice(start, step) for start in range(0, max(1, rows.num_rows), step))
        return
    held: list[pa.RecordBatch | InputColumns] = []
    size = 0
    for part in to_batches(rows, spec):
        many = part.num_rows if isinstance(part, pa.RecordBatch) else part.rows
        step = max(1, min(many, many * most // max(1, _bytes(part))))
        for start in range(0, many, step):
            piece = part if step == many else _slice(part, start, step)
            if held and size + _bytes(piece) > most:
                yield _together(held)
                held, size = [], 0
            held.append(piece)
            size += _bytes(piece)
    if held:
        yield _together(held)


def _together(held: list[pa.RecordBatch | InputColumns]) -> Any:
    """Some parts as the rows of one insert."""
    batches = [part for part in held if isinstance(part, pa.RecordBatch)]
    if len(batches) == len(held) and all(one.schema.equals(batches[0].schema, True) for one in batches):
        return pa.Table.from_batches(batches)
    return held[0] if len(held) == 1 else iter(held)


def _bytes(part: pa.RecordBatch | InputColumns) -> int:
    """About how many bytes some rows have."""
    if isinstance(part, pa.RecordBatch):
        return int(part.nbytes)
    return sum(sum(map(getsizeof, column)) if isinstance(column, list) else column.nbytes for column in part.columns.values())


def _slice(part: pa.RecordBatch | InputColumns, start: int, rows: int) -> pa.RecordBatch | InputColumns:
    if isinstance(part, pa.RecordBatch):
        return part.slice(start, rows)
    end = min(part.rows, start + rows)
    return InputColumns(end - start, {name: column[start:end] for name, column in part.columns.items()}, part.unreadable)


def _of_dicts(rows: Any) -> pa.Schema:
    names = dict.fromkeys(str(name) for row in rows if isinstance(row, Mapping) for name in row)
    fields = []
    for name in names:
        try:
            fields.append((name, pa.array([row.get(name) for row in rows if isinstance(row, Mapping)]).type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            raise SchemaError(f"the type of column {name!r} cannot be told: {e}. Give a pyarrow.Schema, and insert the rows") from e
    return _plain(pa.schema(fields))


def _of_steps(steps: Iterator[Any], time: Any, key: Any) -> tuple[Any, Any]:
    """What is known of its first element is taken for all."""
    first = next(steps, None)
    if first is None:
        raise SchemaError("there are no rows to take a schema from; give a pyarrow.Schema")
    if isinstance(first, Mapping):
        some = [first, *(row for _, row in zip(range(999), steps, strict=False))]
        return _of_dicts(some), chain(some, steps)
    if isinstance(first, (str, tuple)):
        raise SchemaError("a list of columns is no schema by itself: write pyarrow.schema([(name, type), …])")
    schema, rows = schema_and_rows(first, time, key)
    return schema, None if rows is None else chain([rows], steps)


def _plain(schema: pa.Schema, large: bool = True) -> pa.Schema:
    """Without notes of other libraries, and without types that only say how values lie in memory."""
    return pa.schema([pa.field(f.name, _type(f.type, large), f.nullable) for f in schema])


def _type(type_: pa.DataType, large: bool) -> pa.DataType:
    t = pa.types
    if t.is_null(type_) or t.is_string_view(type_) or (t.is_large_string(type_) and not large):
        return pa.string()
    if t.is_binary_view(type_) or (t.is_large_binary(type_) and not large):
        return pa.binary()
    return type_
