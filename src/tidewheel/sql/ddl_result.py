"""The result of a statement that changed the warehouse (CREATE, DROP, INSERT): a few rows that exist before anybody reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tidewheel.errors import CancelledError
from tidewheel.read.limits import Cancellable
from tidewheel.sql.statement_result import StatementResult
from tidewheel.sql.table_scan import TableScan


class ToldResult(StatementResult):
    """The change is made by the time there is such a result; to cancel it only lets go of the rows."""

    def __init__(self, root: Path, written: str, told: pa.RecordBatch, generations: dict[str, int], rows: StatementResult | None) -> None:
        """`rows`: what was read for it."""
        super().__init__(root, written)
        self.schema = told.schema
        self._told = told
        self._generations = generations
        self._rows = told.num_rows
        self._scans = rows.scans if rows is not None else []
        self._costs(self._scans)

    def _batches(self, whole: bool, of: Cancellable | None = None) -> Iterator[pa.RecordBatch]:
        if self.cancelled or of is not None and of.cancelled:
            raise CancelledError("the result was cancelled; what the statement changed stays changed")
        self.stats.rows_returned, self.stats.bytes = self._told.num_rows, self._told.nbytes
        if self._told.num_rows:
            yield self._told

    def _first(self, rows: int, of: Cancellable | None = None) -> list[pa.RecordBatch]:
        return [batch.slice(0, rows) for batch in self._batches(True, of)]

    def cancel(self) -> None:
        self.cancelled = True

    @property
    def scans(self) -> list[TableScan]:
        return self._scans

    @property
    def generations(self) -> dict[str, int]:
        return self._generations
