"""Rows beside a statement's tables that are too many to be made before it is known how many of them it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa


class Streamed:
    """Rows that are made when they are read, as far as they are read; every reading makes them anew. DuckDB and Arrow read it as it is."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.schema = schema
        self._batches = batches

    def __reduce__(self) -> tuple[Callable[[pa.Table], pa.Table], tuple[pa.Table]]:
        """Another process gets the rows themselves: it cannot ask for them."""
        return _rows, (pa.table(self),)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self.schema, self._batches()).__arrow_c_stream__(requested_schema)


def _rows(rows: pa.Table) -> pa.Table:
    return rows
