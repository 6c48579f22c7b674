"""A result: lazy, and pins the version it reads. Iterate it in batches of bounded size, or take it whole."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidewheel.errors import CancelledError, CorruptionError, CorruptionWarning, LimitError, QueryError
from tidewheel.index.version import Version
from tidewheel.model.arrays import take_rows
from tidewheel.model.pieces import KMAX, KMIN, SOURCE, T0, T1, TMAX, TMIN
from tidewheel.model.query import Plan, Query, Stats, Subquery
from tidewheel.read.coordinator import Coordinator, Scan, check_corrupt, check_limit, sort_keys
from tidewheel.read.explain import plan_text
from tidewheel.read.limits import NEVER, Watch
from tidewheel.read.materialise import Columns
from tidewheel.read.ordering import SortKey, first, top
from tidewheel.read.rows import rows_of
from tidewheel.read.scan import Found

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

COPY_ROWS = 1 << 20
"""Most rows that are copied into one batch when a result is taken whole."""


class Result:
    """The answer to a query. Nothing is read until it is asked for; reading twice gives the same rows."""

    def __init__(self, coordinator: Coordinator, version: Version, query: Query) -> None:
        began = time.perf_counter()
        self._coordinator = coordinator
        self._query = query
        self._limit = check_limit(query.limit)
        self._limits = coordinator.limits
        if query.timeout is not None or query.max_rows is not None or query.max_bytes is not None:
            self._limits = coordinator.limits.asked_by(query)
        if query.on_corrupt != "error":
            check_corrupt(query.on_corrupt)
        self.cancelled = False
        """`cancel` was called."""
        watch = Watch(self._limits, self)
        self._aggregation: Any = None
        self._filter: Any = None
        if query.aggregate is not None or query.group_by is not None:
            from tidewheel.read.aggregate import Aggregation

            self._aggregation = Aggregation(coordinator, query, watch)
            self._columns = coordinator.columns(self._aggregation.reads)
            self.schema: pa.Schema = self._aggregation.schema
        else:
            self._columns = coordinator.columns(query.columns)
            self.schema = self._columns.schema
        if isinstance(query.where, str):
            from tidewheel.read.expressions import Filter

            self._filter = Filter(query.where, coordinator.spec.schema, coordinator.spec.time.column, watch)
        elif query.where is not None and not callable(query.where):
            raise QueryError(f"where is SQL text or a function of a RecordBatch, not {query.where!r}")
        self._order: list[SortKey] = sort_keys(coordinator, query.order_by, self._orderable()) if query.order_by is not None else []
        self._read = self._columns_to_read()
        scan = coordinator.scan(version, query, self._read, watch)
        self._scan: Scan | None = scan
        self._rows: int | None = None
        self.stats = _stats(scan.found)
        if scan.damage is not None and (said := scan.damage.tell(self.stats)):
            warnings.warn(said, CorruptionWarning, stacklevel=4)  # at the call of Table.query
        self._planned = time.perf_counter() - began
        self.stats.milliseconds = self._planned * 1e3

    # ---- taking it --------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """RecordBatches of bounded size; at no time is more of the result in memory (order_by and group_by aside)."""
        return self._timed(self._batches(self._coordinator.settings.batch_rows, whole=False))

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches(self._timed(self._batches(COPY_ROWS)), self.schema)

    def to_batches(self) -> list[pa.RecordBatch]:
        return list(self._timed(self._batches(COPY_ROWS)))

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

    def __len__(self) -> int:
        if self._rows is None:
            known = self._known_rows(self._alive().found)
            if known is not None:
                self._rows = known
            else:  # counting returns no rows, so max_rows is not asked
                batches = self._batches(self._coordinator.settings.batch_rows, whole=False, most=NEVER)
                self._rows = sum(batch.num_rows for batch in self._timed(batches))
        return self._rows

    def __repr__(self) -> str:
        from tidewheel.read.explain import rows_text

        try:
            table = pa.Table.from_batches(list(first(self._batches(1024, whole=False), 10)), self.schema)
            if table.num_rows < 10:
                return rows_text(table, table.num_rows)
            return rows_text(table, len(self) if self._rows is not None or self._query.where is None else None)
        except (LimitError, CorruptionError) as e:
            return f"<Result of {self._coordinator.spec.name!r}: {e}>"

    def cancel(self) -> None:
        """End every reading of this result, from any thread: they raise CancelledError. What it pinned is let go of."""
        self.cancelled = True
        self._scan = None

    # ---- what is known about it -------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """How it is answered, as data."""
        scan, spec = self._alive(), self._coordinator.spec
        found = scan.found
        subqueries = []
        sealed = len(found.version.sealed)
        for piece, row in enumerate(found.pieces):
            mine = found.segments[found.segments[:, 0] == piece]
            source = int(row[SOURCE])
            place = "chunk" if source == 0 else "sealed tree" if source <= sealed else "live tree"
            holder: Any = found.holder(piece)
            name = holder.record.id if source == 0 else f"run of generation {holder.generation_lo}"
            span = max(int(row[TMIN]), int(row[T0])), min(int(row[TMAX]), int(row[T1]))
            subqueries.append(Subquery(place, name, (int(row[KMIN]), int(row[KMAX])), span, int(mine[:, 2].sum()), len(mine)))
        intervals = tuple(zip(scan.intervals[0].lo.tolist(), scan.intervals[0].hi.tolist(), strict=True))
        return Plan(spec.name, found.version.generation, intervals, scan.time, tuple(subqueries), self.stats)

    def explain(self) -> str:
        return plan_text(self.plan, self._coordinator.spec)

    @property
    def generation(self) -> int:
        """The generation of the table that this result shows."""
        return self._alive().found.version.generation

    # ---- how it is read ---------------------------------------------------------------------------------

    def _orderable(self) -> list[str]:
        return self.schema.names if self._aggregation is not None else self._coordinator.names

    def _columns_to_read(self) -> Columns:
        """The result's columns and those that where and order_by look at."""
        if self._query.where is None and not self._order:
            return self._columns
        if callable(self._query.where):
            return self._coordinator.columns(None)
        names = list(self._columns.schema.names)
        more = (*(self._filter.columns if self._filter else ()), *(() if self._aggregation else (s.column for s in self._order)))
        extra = [n for n in dict.fromkeys(more) if n not in names]
        return self._coordinator.columns(names + extra) if extra else self._columns

    def _alive(self) -> Scan:
        scan = self._scan
        if scan is None:
            raise CancelledError("the query was cancelled; ask it again")
        return scan

    def _known_rows(self, found: Found) -> int | None:
        """How many rows it has, if that is known without reading them."""
        if found.doubtful or self._query.where is not None or self._aggregation is not None:
            return None
        return found.rows if self._limit is None else min(found.rows, self._limit)

    def _batches(self, size: int, whole: bool = True, most: float | None = None) -> Iterator[pa.RecordBatch]:
        """`whole`: the caller keeps all batches, so their memory adds up. `most`: rows, if not as many as the limits say."""
        scan = self._alive()
        watch = Watch(self._limits, self, self._planned)
        if most is None:
            most = self._limits.rows
        if most != NEVER:
            watch.count(self._known_rows(scan.found) or 0)
        batches = self._filtered(scan, size, watch, whole)
        if self._aggregation is not None:
            batches = iter(self._aggregation.run(batches, self._read.schema, watch).to_batches())
        if self._order:
            schema = self.schema if self._aggregation is not None else self._read.schema
            batches = iter(top(batches, schema, self._order, self._limit, watch).to_batches())
        narrow = self._aggregation is None and self._read is not self._columns
        rows = 0
        for batch in first(batches, self._limit):
            rows += batch.num_rows
            if rows > most:
                watch.count(rows)
            left = time.perf_counter()
            yield batch.select(self._columns.schema.names) if narrow else batch
            watch.pause(left)

    def _filtered(self, scan: Scan, size: int, watch: Watch, whole: bool) -> Iterator[pa.RecordBatch]:
        where: Callable[[pa.RecordBatch], Any] | None = self._query.where  # type: ignore[assignment]
        if self._filter is not None:
            where = partial(self._filter.mask, watch=watch)
        # with a limit and nothing to filter or sort, the segments behind it need not be touched at all
        enough = self._limit if where is None and not self._order and self._aggregation is None else None
        kept_by_caller = self._aggregation is None and (whole or bool(self._order))
        held = 0
        for batch in rows_of(scan, self._read, size, watch, enough):
            watch.check()
            if where is not None:
                batch = _keep(batch, where)
                watch.held = held
                watch.take(batch.nbytes)
            if batch.num_rows:
                yield batch
            if kept_by_caller:
                held = watch.held
            else:
                watch.held = 0

    def _timed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count rows, bytes and the time spent in here, not in the caller."""
        rows = size = 0
        row_bytes = self._coordinator.shape.row_bytes if self._columns.whole and self._aggregation is None else 0
        began = time.perf_counter()
        spent = 0.0
        for batch in batches:
            rows += batch.num_rows
            size += row_bytes * batch.num_rows or batch.nbytes
            spent += time.perf_counter() - began
            yield batch
            began = time.perf_counter()
        self.stats.rows_returned, self.stats.bytes = rows, size
        self.stats.milliseconds += (spent + time.perf_counter() - began) * 1e3
        self._rows = rows


def _stats(found: Found) -> Stats:
    return Stats(found.considered, len(found.pieces), found.leaves_read, found.leaves_skipped, found.rows_scanned)


def _keep(batch: pa.RecordBatch, where: Callable[[pa.RecordBatch], Any]) -> pa.RecordBatch:
    mask = where(batch)
    if isinstance(mask, np.ndarray):
        mask = pa.array(mask)
    if isinstance(mask, pa.ChunkedArray):
        mask = mask.combine_chunks()
    if not isinstance(mask, pa.BooleanArray) or len(mask) != batch.num_rows:
        raise QueryError("where: the function must return one boolean per row of the batch it is given, as an Arrow or NumPy array")
    try:
        return batch.filter(mask)
    except pa.ArrowNotImplementedError:  # Arrow cannot filter every type
        return take_rows(batch, np.flatnonzero(np.asarray(mask.fill_null(False))))
