"""A table, as users hold it. Thin: everything is done by the engine behind it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.cluster.current_engine import CurrentEngine
from tidewheel.cluster.handed_engine import HandedEngine, HandedTable
from tidewheel.engine.operations import DescribeTable, FlushTable, GetMetrics, GetState, Insert, ReadRejects, Replace, RunQuery
from tidewheel.engine.protocol import TableEngine
from tidewheel.env.deadline import Within, check_seconds
from tidewheel.errors import CorruptionWarning
from tidewheel.metrics import TableMetrics
from tidewheel.model.delivery import Ack, TableState
from tidewheel.model.description import TableDescription
from tidewheel.model.html_grid import html_grid
from tidewheel.model.other_names import OF_TABLES, unknown_name
from tidewheel.model.query import Predicate, Query, plain_key
from tidewheel.model.schema import KeyRule
from tidewheel.read.result import Result

if TYPE_CHECKING:
    import pyarrow.dataset as pds


_PLAIN = frozenset({type(None), tuple, int, str, float})
"""Of keys that are no list, as is seen at once."""


class Table:
    """Rows of one schema, keyed and timed. Every call may be made from any thread."""

    def __init__(self, current: CurrentEngine, table: TableEngine | HandedTable) -> None:
        self._current = current
        self._table = table

    @property
    def _engine(self) -> TableEngine:
        """The table of the engine that is in use now."""
        table = self._table
        if isinstance(table, HandedTable):
            self._table = table = self._current.table(table.name)
        elif table.lost:
            self._table = table = self._current.table(table.spec.name)
        return table

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
        """Insert rows: pyarrow (also a reader, Dataset or ParquetFile), pandas, polars, a list of dicts, anything with
        `__arrow_c_stream__`, or an iterator of these.

        When it returns, the rows are visible to every query, all at once. So an iterator is read to its end first: if it raises, nothing
        is inserted, and if its rows are more than `Settings.max_batch_bytes`, it is refused as soon as they are. A pandas index of times
        that has a name is a column. With `on_bad="error"` a bad row means that
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
        ranges: Mapping[str, Any] | None = None,
        where: Predicate | None = None,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        offset: int = 0,
        aggregate: Mapping[str, str] | None = None,
        group_by: Sequence[str] | None = None,
        timeout: float | None = None,
        max_rows: float | None = None,
        max_bytes: float | None = None,
        on_corrupt: str = "error",
    ) -> Result:
        """Rows in a key interval (or box), a time interval and `ranges` of any other columns, that satisfy `where`.

        Intervals are tuples: closed, None is open, a single value is an interval of one. A list as `key`, or in `ranges`, is a list of
        values; of tables keyed by addresses, a network like "10.0.0.0/8" is its addresses. Times are datetimes (naive = UTC),
        dates, ISO text or integers in the column's unit. Nulls and NaN lie in no range. `where` is an SQL expression, with the values
        for its ? (or $name) in `params`, or a function of a RecordBatch that returns a mask. `columns` and `group_by` take names,
        nested fields ("pos.lon") and expressions ("speed * 3.6 AS kmh"). The result is lazy and shows the table as it was at this call.

        `timeout` (seconds), `max_rows` and `max_bytes` (memory held at once) end a query with LimitError; left out, they are
        those of Settings. Damaged files end it with CorruptionError; with `on_corrupt="skip"` their rows are left out,
        `result.stats` says how many, and a CorruptionWarning is given.
        """
        query = Query(
            key, box, time, where, columns, order_by, limit, aggregate, group_by, timeout, max_rows, max_bytes, on_corrupt, offset=offset
        )
        return self._answer(query, ranges, params)

    def _answer(self, query: Query, ranges: Any, params: Any) -> Result:
        """`query` is nobody else's."""
        columns, key = query.columns, query.key
        with Within(query.timeout):
            engine = self._engine
            if columns is not None and not isinstance(columns, (str, list, tuple)) and isinstance(columns, Iterable):
                query.columns = list(columns)  # looked at more than once, and sent to the owner
            if key.__class__ not in _PLAIN:
                query.key = plain_key(key)
            if ranges is not None:
                from tidewheel.read.ranges import with_ranges

                query = with_ranges(query, ranges, engine.spec)
            if params is not None or isinstance(query.where, str):
                from tidewheel.sql.wheres import bounded

                query = bounded(query, engine.spec, params)
            result = engine.ask(RunQuery(query))
        if result.warning:
            warnings.warn(result.warning, CorruptionWarning, stacklevel=3)
        return result

    def latest(
        self,
        *,
        key: Any = None,
        time: Any = None,
        box: Sequence[Any] | None = None,
        ranges: Mapping[str, Any] | None = None,
        where: Predicate | None = None,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        order_by: str | Sequence[str] | None = None,
        limit: int | None = None,
        offset: int = 0,
        timeout: float | None = None,
        max_rows: float | None = None,
        max_bytes: float | None = None,
        on_corrupt: str = "error",
    ) -> Result:
        """The last row of each key: the one with the greatest time among those that a `query` of the same bounds would return.

        Of several with that time, it is the one that was inserted last. Of a z-order, each point is a key.
        """
        asked = Query(
            key, box, time, where, columns, order_by, limit, None, None, timeout, max_rows, max_bytes, on_corrupt,
            offset=offset, latest=True, aged=True,
        )  # fmt: skip
        return self._answer(asked, ranges, params)

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

    def head(self, n: int = 10) -> Result:
        """Some rows, to look at; the order is the index's. The newest ones: `query(order_by="ts desc", limit=n)`."""
        return self.query(limit=n)

    def __len__(self) -> int:
        return self.rows

    def __bool__(self) -> bool:
        """A table is there, also without rows."""
        return True

    def __reduce__(self) -> tuple[Callable[..., Table], tuple[type[Table], str, str]]:
        """A table crosses to another process as the path of its warehouse and its name; there, it is opened when it is first used."""
        return _handed, (type(self), str(self._current.root), self.name)

    if not TYPE_CHECKING:  # which would take every name for one that there is

        def __getattr__(self, name: str) -> Any:
            raise unknown_name(type(self).__name__, name, OF_TABLES)

    def _repr_html_(self) -> str:
        roles = {**dict.fromkeys(self.key.columns, "key"), self.time: "time"}
        rows = [(field.name, str(field.type), roles.get(field.name, "")) for field in self.schema]
        return html_grid(("column", "type", ""), (), rows, f"table {self.name}: {self.rows:,} row{'' if self.rows == 1 else 's'}")

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name} {f.type}" for f in self.schema)
        return f"<Table {self.name}: {self.rows} rows; key {', '.join(self.key.columns)}; time {self.time}; {fields}>"


def _handed(kind: type[Table], root: str, name: str) -> Table:
    return kind(HandedEngine(Path(root), leaves=False), HandedTable(name))
