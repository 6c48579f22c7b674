"""A result, as users hold it: lazy, and always of the version its query met. Iterate it in batches of bounded size, or take it whole."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.errors import CorruptionError, InputError, LimitError, OwnedError
from tidewheel.model.html_grid import html_line
from tidewheel.model.other_names import OF_RESULTS, unknown_name
from tidewheel.model.query import Plan, Stats
from tidewheel.model.schema import TableSpec
from tidewheel.read.limits import Cancellable
from tidewheel.read.plan_text import plan_text

if TYPE_CHECKING:
    import pandas as pd
    from polars import DataFrame as PolarsFrame

    from tidewheel.read.row_values import Row, RowCursor

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

    @property
    def how(self) -> dict[str, str]:
        """Who filters and groups the rows within its bounds, by what is done; nothing if that is not known here."""
        return {}

    # ---- taking it --------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """RecordBatches of bounded size; at no time is more of the result in memory (order_by and group_by aside).

        `list(result)` asks for the length first, which is counted in rows: `to_batches` gives such a list at once.
        """
        return self._batches(whole=False)

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches(self._batches(whole=True), self.schema)

    def to_batches(self) -> list[pa.RecordBatch]:
        return list(self._batches(whole=True))

    def to_pandas(self) -> pd.DataFrame:
        rows = self.to_arrow()
        try:
            return rows.to_pandas()
        except ImportError:
            raise InputError("pandas is not installed: pip install pandas, or take the rows with arrow() or fetchall()") from None

    def to_polars(self) -> PolarsFrame:
        try:
            import polars
        except ImportError:
            raise InputError("polars is not installed: pip install polars, or take the rows with arrow() or fetchall()") from None

        return polars.from_arrow(self.to_arrow())  # type: ignore[return-value]

    def to_pylist(self) -> list[dict[str, Any]]:
        return self.to_arrow().to_pylist()  # type: ignore[no-any-return]

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader().__arrow_c_stream__(requested_schema)

    def to_parquet(self, path: str | os.PathLike[str], *, compression: str = "zstd") -> int:
        """Write all rows into a Parquet file, as they are read, and return how many. The file is there when it is whole, or not at all."""
        from tidewheel.read.parquet_answer import write_parquet

        return write_parquet(path, self.schema, iter(self), compression)

    # ---- the names people know from DuckDB --------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        return self.schema.names  # type: ignore[no-any-return]

    def df(self) -> pd.DataFrame:
        return self.to_pandas()

    def pl(self) -> PolarsFrame:
        return self.to_polars()

    def arrow(self) -> pa.Table:
        return self.to_arrow()

    def fetchall(self) -> list[Row]:
        """All rows as tuples, or, after `fetchone` and `fetchmany`, those that are left."""
        from tidewheel.read.row_values import rows_of_batch

        if "_cursor" in self.__dict__:
            return self._at().take(None)
        return [row for batch in self._batches(whole=True) for row in rows_of_batch(batch)]

    def fetchone(self) -> Row | None:
        """The next row, from the first on; None if there are no more."""
        return next(iter(self._at().take(1)), None)

    def fetchmany(self, size: int = 1) -> list[Row]:
        """The next rows, no more than so many."""
        if not isinstance(size, int) or size < 0:
            raise InputError(f"fetchmany takes a number of rows, not {size!r}")
        return self._at().take(size)

    def _at(self) -> RowCursor:
        from tidewheel.read.row_values import RowCursor

        cursor: RowCursor = self.__dict__.get("_cursor") or self.__dict__.setdefault("_cursor", RowCursor(iter(self)))
        return cursor

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Asked for by NumPy, and by `pandas.DataFrame(result)`, which would take batches for rows."""
        raise TypeError("a result is no array: take its rows with df(), pl(), arrow() or fetchall()")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a result is read in the process that asked for it: hand over arrow() or df(), which are its rows, or the table")

    if not TYPE_CHECKING:  # which would take every name for one that there is

        def __getattr__(self, name: str) -> Any:
            raise unknown_name("Result", name, OF_RESULTS)

    # ---- showing it -------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        from tidewheel.read.rows_text import rows_text

        try:
            return rows_text(*self._sample())
        except (LimitError, CorruptionError, OwnedError) as e:
            return f"<Result of {self._spec().name!r}: {e}>"

    def _repr_html_(self) -> str:
        from tidewheel.read.rows_text import rows_html

        try:
            return rows_html(*self._sample())
        except (LimitError, CorruptionError, OwnedError) as e:
            return html_line(f"Result of {self._spec().name!r}: {e}")

    def _sample(self) -> tuple[pa.Table, int | None]:
        """The first rows, and how many there are, if that is known or quickly found."""
        rows = pa.Table.from_batches(self._first(_SHOWN), self.schema)
        return rows, rows.num_rows if rows.num_rows < _SHOWN else len(self) if self._counts_cheaply() else None

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
        """The rows, and not the batches that iterating gives."""
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
