"""A result, as users hold it: lazy, and always of the version its query met. Iterate it in batches of bounded size, or take it whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.errors import CorruptionError, LimitError, OwnedError
from tidewheel.model.query import Plan, Stats
from tidewheel.model.schema import TableSpec
from tidewheel.read.limits import Cancellable
from tidewheel.read.plan_text import plan_text, rows_text

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_SHOWN = 10
"""Rows that `repr` shows."""


class Result(ABC):
    """The answer to a query. Nothing is read until it is asked for; reading twice gives the same rows.

    Where the rows come from, only its subclasses know: of trees and chunks in this process, or from the owner of the warehouse.
    """

    schema: pa.Schema
    stats: Stats
    """The cost of the answer; complete once it was read."""
    warning: str = ""
    """A warning for whoever asked, such as that damaged rows are left out; empty if there is none."""
    cancelled = False
    """`cancel` was called."""

    # ---- taking it --------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """RecordBatches of bounded size; at no time is more of the result in memory (order_by and group_by aside)."""
        return self._batches(whole=False)

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches(self._batches(whole=True), self.schema)

    def to_batches(self) -> list[pa.RecordBatch]:
        return list(self._batches(whole=True))

    def to_pandas(self) -> pd.DataFrame:
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        import polars

        return polars.from_arrow(self.to_arrow())  # type: ignore[return-value]

    def to_pylist(self) -> list[dict[str, Any]]:
        return self.to_arrow().to_pylist()  # type: ignore[no-any-return]

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        try:
            table = pa.Table.from_batches(self._first(_SHOWN), self.schema)
            return rows_text(table, table.num_rows if table.num_rows < _SHOWN else len(self) if self._counts_cheaply() else None)
        except (LimitError, CorruptionError, OwnedError) as e:
            return f"<Result of {self._spec().name!r}: {e}>"

    # ---- what is known about it -------------------------------------------------------------------------

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """The plan of the answer, as data: one subquery for each region that is read."""

    def explain(self) -> str:
        return plan_text(self.plan, self._spec())

    @property
    @abstractmethod
    def generation(self) -> int:
        """The generation of the table that this result shows."""

    def __len__(self) -> int:
        return self._count()

    @abstractmethod
    def known_rows(self) -> int | None:
        """The number of rows, if that is known without reading them."""

    @abstractmethod
    def cancel(self) -> None:
        """End every reading of this result, from any thread: they raise CancelledError. What it pinned is let go of."""

    # ---- how it is read. `of`: ends this reading alone, when it is cancelled ----------------------------

    @abstractmethod
    def _batches(self, whole: bool, of: Cancellable | None = None) -> Iterator[pa.RecordBatch]:
        """All rows. `whole`: the caller keeps all batches, so their memory adds up."""

    @abstractmethod
    def _first(self, rows: int, of: Cancellable | None = None) -> list[pa.RecordBatch]:
        """The first so many rows; `stats` do not count them."""

    @abstractmethod
    def _count(self, of: Cancellable | None = None) -> int:
        """The number of rows, which are read if there is no other way. Does not count against `max_rows`."""

    @abstractmethod
    def _counts_cheaply(self) -> bool:
        """Whether `len` is worth it for a `repr`."""

    @abstractmethod
    def _spec(self) -> TableSpec: ...

    def is_small(self, rows: int) -> bool:
        """Whether it is certain that reading it looks at no more than so many rows, in no more than a few places."""
        return False
