"""An answer as a Parquet file: written as it is read, in groups of rows of bounded size, and there when it is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidewheel.env.whole_file import whole_file
from tidewheel.errors import InputError

_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 32 << 20
"""Of a group of rows: what is in memory at a time, and once more while it is encoded."""


def write_parquet(path: str | os.PathLike[str], schema: pa.Schema, batches: Iterator[pa.RecordBatch], compression: str) -> int:
    """Returns how many rows were written."""
    try:
        target = Path(path)
    except TypeError:
        raise InputError(f"a Parquet file has a path like 'rides.parquet', not {path!r}") from None
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InputError(f"{path}: a Parquet file cannot have two columns {twice!r}; name one of them AS something else")
    rows = 0
    with whole_file(target) as file:
        try:
            with pq.ParquetWriter(file, schema, compression=compression) as out:
                for group in _groups(batches):
                    out.write_table(pa.Table.from_batches(group, schema), row_group_size=_GROUP_ROWS)
                    rows += sum(batch.num_rows for batch in group)
        except (pa.ArrowException, TypeError) as e:  # a type, or a compression, that Parquet does not have
            raise InputError(f"{path}: Parquet cannot hold this answer: {str(e).splitlines()[0]}") from e
    return rows


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group
            group, rows, size = [], 0, 0
    if group:
        yield group
