"""The steps behind a query's bounds: condition, where, aggregate, order, limit, columns; and the query's limits all the while.

Made once per query, which checks all that can be wrong with it; run for each reading of the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from tidewheel.errors import QueryError
from tidewheel.model.conditions import columns_of
from tidewheel.model.query import Query
from tidewheel.read.condition_mask import kept, mask
from tidewheel.read.limits import NEVER, Limits, Watch
from tidewheel.read.materialise import Columns
from tidewheel.read.ordering import SortKey, first, top
from tidewheel.read.planner import Planner, check_corrupt, check_limit, sort_keys

if TYPE_CHECKING:
    from tidewheel.read.totals.sums import Totals


class Source(Protocol):
    """Rows within the bounds of a query, with the columns `Pipeline.read`. `enough`: only so many are needed."""

    def __call__(self, size: int, watch: Watch, enough: int | None) -> Iterator[pa.RecordBatch]: ...


def limits_of(planner: Planner, query: Query) -> Limits:
    """The limits of a query: its own, and the table's where it names none."""
    if query.timeout is None and query.max_rows is None and query.max_bytes is None:
        return planner.limits
    return planner.limits.asked_by(query)


class Pipeline:
    """The steps of one query. Safe to run in several threads."""

    __slots__ = ("_aggregation", "_filter", "_order", "columns", "filters", "limit", "limits", "planner", "query", "read", "schema")

    def __init__(self, planner: Planner, query: Query, watch: Watch) -> None:
        """`watch` guards the planning."""
        self.planner = planner
        self.query = query
        self.limits = watch.limits
        self.limit = check_limit(query.limit)
        if query.on_corrupt != "error":
            check_corrupt(query.on_corrupt)
        self.filters = query.where is not None or query.condition is not None
        """Not every row within the bounds is in the result."""
        self._aggregation: Any = None
        self._filter: Any = None
        if query.aggregate is not None or query.group_by is not None:
            from tidewheel.read.aggregate import aggregation

            self._aggregation = aggregation(planner, query, watch)
            self.columns = planner.columns(self._aggregation.reads or [planner.spec.time.column])
            self.schema: pa.Schema = self._aggregation.schema
        else:
            self.columns = planner.columns(query.columns)
            self.schema = self.columns.schema
        if isinstance(query.where, str):
            from tidewheel.read.row_expressions import Filter

            self._filter = Filter(query.where, planner.spec.schema, planner.spec.time.column, watch)
        elif query.where is not None and not callable(query.where):
            raise QueryError(f"where is SQL text or a function of a RecordBatch, not {query.where!r}")
        self._order: list[SortKey] = sort_keys(planner, query.order_by, self._orderable()) if query.order_by is not None else []
        self.read = self._columns_to_read()
        """The result's columns and those that condition, where and order_by look at."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the result, where every row has the same, else 0."""
        return self.columns.row_bytes if self._aggregation is None else 0

    @property
    def totals(self) -> Totals | None:
        """The totals that are asked for, if that is all and they can be made of values where they lie."""
        if self._aggregation is None or self.filters or self.limit is not None or self._order:
            return None
        return self._aggregation if self._aggregation.folds is not None else None

    @property
    def stops_at(self) -> int | None:
        """With a limit and nothing to filter or sort, the segments behind so many rows need not be touched at all."""
        return self.limit if not self.filters and not self._order and self._aggregation is None else None

    def _orderable(self) -> list[str]:
        return self.schema.names if self._aggregation is not None else self.planner.names

    def _columns_to_read(self) -> Columns:
        if not self.filters and not self._order:
            return self.columns
        if callable(self.query.where):
            return self.planner.columns(None)
        names = list(self.columns.schema.names)
        filtered = (*self._conditioned(), *(self._filter.columns if self._filter else ()))
        more = (*filtered, *(() if self._aggregation else (s.column for s in self._order)))
        extra = [n for n in dict.fromkeys(more) if n not in names]
        return self.planner.columns(names + extra) if extra else self.columns

    def _conditioned(self) -> tuple[str, ...]:
        names = () if self.query.condition is None else columns_of(self.query.condition)
        if names is None:
            raise QueryError("condition: it says less than what rows must satisfy, so it cannot decide about them")
        return names

    def known_rows(self, found: int) -> int | None:
        """The rows of the result if its source has `found`; None if they must be read to know."""
        if self.filters or self._aggregation is not None:
            return None
        return found if self.limit is None else min(found, self.limit)

    def run(
        self, source: Source, watch: Watch, size: int, whole: bool, known: int | None, most: float | None = None
    ) -> Iterator[pa.RecordBatch]:
        """`whole`: the caller keeps all batches, so their memory adds up. `most`: rows, if not as many as the limits say.

        `known` is how many rows there are, if that is known.
        """
        if most is None:
            most = self.limits.rows
        if most != NEVER:
            watch.count(known or 0)
        batches = self._filtered(source, size, watch, whole)
        if self._aggregation is not None:
            batches = iter(self._aggregation.run(batches, self.read.schema, watch).to_batches())
        if self._order:
            schema = self.schema if self._aggregation is not None else self.read.schema
            batches = iter(top(batches, schema, self._order, self.limit, watch).to_batches())
        narrow = self._aggregation is None and self.read is not self.columns
        rows = 0
        for batch in first(batches, self.limit):
            rows += batch.num_rows
            if rows > most:
                watch.count(rows)
            left = time.perf_counter()
            yield batch.select(self.columns.schema.names) if narrow else batch
            watch.pause(left)

    def _filtered(self, source: Source, size: int, watch: Watch, whole: bool) -> Iterator[pa.RecordBatch]:
        where: Callable[[pa.RecordBatch], Any] | None = self.query.where  # type: ignore[assignment]
        if self._filter is not None:
            where = partial(self._filter.mask, watch=watch)
        condition, enough = self.query.condition, self.stops_at
        kept_by_caller = self._aggregation is None and (whole or bool(self._order))
        held = 0
        for batch in source(size, watch, enough):
            watch.check()
            if self.filters:
                if condition is not None:
                    batch = kept(batch, mask(condition, batch))
                if where is not None and batch.num_rows:
                    batch = _keep(batch, where)
                watch.held = held
                watch.take(self.read.row_bytes * batch.num_rows or batch.nbytes)
            if batch.num_rows:
                yield batch
            if kept_by_caller:
                held = watch.held
            else:
                watch.held = 0


def _keep(batch: pa.RecordBatch, where: Callable[[pa.RecordBatch], Any]) -> pa.RecordBatch:
    found = where(batch)
    if isinstance(found, np.ndarray):
        found = pa.array(found)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    if not isinstance(found, pa.BooleanArray) or len(found) != batch.num_rows:
        raise QueryError("where: the function must return one boolean per row of the batch it is given, as an Arrow or NumPy array")
    return kept(batch, found)
