"""Rows that somebody has in Python, beside the tables of a warehouse in one statement: `wh.sql(…, tables={"st": frame})`.

Each becomes an Arrow table when the statement is asked, and nothing that happens to the frame afterwards changes the answer. What is there
already as Arrow is not copied, but looked at before anything reads it (`write.soundness`): DuckDB trusts buffers as much as we do.

Neither pandas nor polars is imported: an object of theirs proves that they are loaded already.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import pyarrow as pa

from tidewheel.errors import InputError, QueryError, TidewheelError
from tidewheel.model.schema import NAME

Frames = Mapping[str, pa.Table]
"""By their names in the statement. Names of columns end with `MARK`, so that a plan tells their scans from those of our tables."""

MARK = "·"
TAKEN = "a pandas or polars DataFrame, a pyarrow Table, RecordBatch or reader, a list of dicts, or anything with __arrow_c_stream__"


def frames_of(tables: Any) -> dict[str, pa.Table]:
    """What was given as `tables=`, as Arrow."""
    if tables is None:
        return {}
    if not isinstance(tables, Mapping):
        raise QueryError(f'tables= takes names with their rows, like {{"st": frame}}, not {type(tables).__name__}')
    found: dict[str, pa.Table] = {}
    for name, rows in tables.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise QueryError(f"tables=: {name!r} is no name for rows; use letters, digits and _, not starting with a digit")
        if name.lower() in map(str.lower, found):
            raise QueryError(f"tables=: two of the names are {name!r}; SQL does not tell upper from lower case")
        found[name] = _marked(name, _arrow(name, rows))
    return found


def check_names(frames: Frames, known: list[str]) -> None:
    """Against the tables that the warehouse has."""
    ours = {one.lower(): one for one in known}
    for name in frames:
        if name.lower() in ours:
            raise QueryError(f"tables=: the warehouse has a table {ours[name.lower()]!r} itself; give the rows another name")


def columns_of_frame(frame: pa.Table) -> list[str]:
    """As they are in the statement."""
    return [name.removesuffix(MARK) for name in frame.schema.names]


def _marked(name: str, table: pa.Table) -> pa.Table:
    names, seen = table.schema.names, dict[str, str]()
    if not names:
        raise InputError(f"tables=: {name!r} has no columns")
    for one in names:
        if (other := seen.setdefault(one.lower(), one)) is not one:
            raise InputError(f"tables=: {name!r} has two columns, {other!r} and {one!r}, that SQL cannot tell apart; rename one")
    return table.rename_columns([one + MARK for one in names])


def _arrow(name: str, data: Any) -> pa.Table:
    module = type(data).__module__.partition(".")[0]
    try:
        if isinstance(data, (list, tuple)):
            return _dicts(name, data)
        if module == "pandas" and hasattr(data, "iloc") and hasattr(data, "columns"):
            return _sound(name, _pandas(data))
        if module == "polars" and hasattr(data, "collect_schema") and hasattr(data, "collect"):
            data = data.collect()
        if module == "pyspark" and hasattr(data, "toArrow"):  # whose stream of its own has no zone for times, and fails
            data = data.toArrow()
        if isinstance(data, pa.Table):
            return _sound(name, data)
        if isinstance(data, pa.RecordBatch):
            return _sound(name, pa.Table.from_batches([data]))
        if hasattr(data, "__arrow_c_stream__"):  # readers are read now: a result may be read twice
            return _sound(name, pa.RecordBatchReader.from_stream(data).read_all())
        if hasattr(data, "__arrow_c_array__"):
            return _sound(name, pa.Table.from_batches([pa.record_batch(data)]))
    except TidewheelError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as e:
        raise InputError(f"tables=: {name!r}, a {type(data).__name__}, cannot be read as rows: {' '.join(str(e).split())}") from e
    hint = " For a dict of columns use pyarrow.table(data)." if isinstance(data, Mapping) else ""
    hint = " For a table of another warehouse give table.query()." if module == "tidewheel" else hint
    raise InputError(f"tables=: {name!r} is {TAKEN}; not {type(data).__name__}.{hint}")


def _sound(name: str, table: pa.Table) -> pa.Table:
    from tidewheel.write.soundness import check_schema, may_hide, settled_rows, unreadable_text  # here: most statements have no frames

    check_schema(table.schema, name)
    if unreadable := sorted(unreadable_text(table, name)):
        raise InputError(f"tables=: {name!r} has text that is not UTF-8 in column {unreadable[0]!r}; decode it, or give it as bytes")
    return pa.Table.from_batches(map(settled_rows, table.to_batches()), table.schema) if may_hide(table.schema) else table


def _dicts(name: str, rows: list[Any] | tuple[Any, ...]) -> pa.Table:
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(f"tables=: every row of a list is a dict of columns and values; row {i} of {name!r} is {type(row).__name__}")
    columns: dict[str, pa.Array] = {}
    for column in dict.fromkeys(chain.from_iterable(rows)):
        try:
            columns[str(column)] = pa.array([row.get(column) for row in rows])
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as e:
            raise InputError(f"tables=: column {column!r} of {name!r} has values of several kinds: {' '.join(str(e).split())}") from e
    return pa.table(columns)


def _pandas(frame: Any) -> pa.Table:
    """Copied: it may be changed before the result is read. An index is a column if it has a name."""
    names = list(frame.index.names)
    frame = frame.reset_index() if all(name is not None for name in names) else frame.copy(deep=True)
    frame.columns = list(map(str, frame.columns))
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
