"""A table, as users hold it. Thin: everything is done by the engine behind it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.cluster.current_engine import CurrentEngine
from tidewheel.engine.operations import DescribeTable, FlushTable, GetMetrics, GetState, Insert, ReadRejects, Replace, RunQuery
from tidewheel.engine.protocol import TableEngine
from tidewheel.env.deadline import Within, check_seconds
from tidewheel.errors import CorruptionWarning
from tidewheel.metrics import TableMetrics
from tidewheel.model.delivery import Ack, TableState
from tidewheel.model.description import TableDescription
from tidewheel.model.query import Predicate, Query
from tidewheel.model.schema import KeyRule
from tidewheel.read.result import Result

if TYPE_CHECKING:
    import pyarrow.dataset as pds


class Table:
    """Rows of one schema, keyed and timed. Every call may be made from any thread."""

    def __init__(self, current: CurrentEngine, table: TableEngine) -> None:
        self._current = current
        self._table = table

    @property
    def _engine(self) -> TableEngine:
        """The table of the engine that is in use now."""
        if self._table.lost:
            self._table = self._current.table(self._table)
        return self._table

    @property
    def name(self) -> str:
        return self._engine.spec.name

    @property
    def schema(self) -> pa.Schema:
        return self._engine.spec.schema

    @property
    def key(self) -> KeyRule:
        return self._engine.spec.key

    @property
    def time(self) -> str:
        return self._engine.spec.time.column

    @property
    def rows(self) -> int:
        """How many rows a query without bounds would return now."""
        return self._engine.do(GetState()).rows

    def insert(self, data: Any, *, package: str | None = None, on_bad: str = "error", timeout: float | None = None) -> Ack:
        """Insert rows: pyarrow, pandas, polars, a list of dicts, or anything with `__arrow_c_stream__`.

        When it returns, the rows are visible to every query, all at once. With `on_bad="error"` a bad row means that
        nothing of the batch is inserted; with "reject" good rows are, and bad ones are kept in `rejects()`. A `package`
        is loaded at most once under its name.

        If it waits longer than `timeout` seconds (for an owner that does not answer, for room, for the disk), it raises LimitError:
        the rows may be there or not, unless the message says that nothing was inserted. With a `package` it can simply be repeated.
        """
        check_seconds(timeout)
        with Within(timeout):
            return self._engine.give(Insert(package, on_bad), data)

    def replace(self, data: Any, *, time: Any, timeout: float | None = None) -> Ack:
        """Exchange the rows of the closed time interval for these, at once. `timeout` as for `insert`; it can be repeated."""
        check_seconds(timeout)
        with Within(timeout):
            return self._engine.give(Replace(time), data)

    def query(
        self,
        *,
        key: Any = None,
        time: Any = None,
        box: Sequence[Any] | None = None,
        where: Predicate | None = None,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        aggregate: Mapping[str, str] | None = None,
        group_by: Sequence[str] | None = None,
        timeout: float | None = None,
        max_rows: float | None = None,
        max_bytes: float | None = None,
        on_corrupt: str = "error",
    ) -> Result:
        """Rows in a key interval (or box) and a time interval that satisfy `where`.

        Intervals are closed, None is open, a single value is an interval of one. Times are datetimes (naive = UTC),
        dates, ISO text or integers in the column's unit. `where` is an SQL expression or a function of a RecordBatch
        that returns a mask. The result is lazy and shows the table as it was at this call.

        `timeout` (seconds), `max_rows` and `max_bytes` (memory held at once) end a query with LimitError; left out, they are
        those of Settings. Damaged files end it with CorruptionError; with `on_corrupt="skip"` their rows are left out,
        `result.stats` says how many, and a CorruptionWarning is given.
        """
        with Within(timeout):
            engine = self._engine
            if columns is not None and not isinstance(columns, (str, list, tuple)) and isinstance(columns, Iterable):
                columns = list(columns)  # looked at more than once, and sent to the owner
            query = Query(key, box, time, where, columns, order_by, limit, aggregate, group_by, timeout, max_rows, max_bytes, on_corrupt)
            if isinstance(where, str):
                from tidewheel.sql.wheres import bounded

                query = bounded(query, engine.spec)
            result = engine.ask(RunQuery(query))
        if result.warning:
            warnings.warn(result.warning, CorruptionWarning, stacklevel=2)
        return result

    def explain(self, **query: Any) -> str:
        """How a query would be answered, as text. Takes what `query` takes."""
        return self.query(**query).explain()

    def rejects(self) -> Result:
        """The rows that were refused with `on_bad="reject"`: when, where, why, and the row as JSON text."""
        return self._engine.ask(ReadRejects())

    def dataset(self) -> pds.Dataset:
        """The table as an Arrow dataset, which DuckDB, Polars and others scan with their own columns and filters.

        Every scan shows the table as it is when it begins, and reads only the regions that the filter leaves.
        """
        from tidewheel.sql.dataset import TableDataset

        return TableDataset(self._engine.spec, lambda: self._engine.pinned())

    def describe(self) -> TableDescription:
        """Per column: type, nulls, least and greatest value, about how many different values. `print` it, or iterate over the columns.

        Rows are read once; their number and the ends of time and key come from the index where it knows them.
        """
        return self._engine.do(DescribeTable())

    def flush(self) -> None:
        """Write everything inserted so far to chunks; it is on disk and in the catalog when this returns."""
        self._engine.do(FlushTable())

    def state(self) -> TableState:
        """Rows, chunks, trees and bytes at this moment."""
        return self._engine.do(GetState())

    def metrics(self) -> TableMetrics:
        """What was done since the warehouse was opened, and how often inserts had to wait for the disk. A copy."""
        return self._engine.do(GetMetrics())

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name} {f.type}" for f in self.schema)
        return f"<Table {self.name}: {self.rows} rows; key {', '.join(self.key.columns)}; time {self.time}; {fields}>"
