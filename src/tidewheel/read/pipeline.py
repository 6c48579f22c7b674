"""The steps behind a query's bounds: condition, where, aggregate, order, limit, columns; and the query's limits all the while.

Made once per query, which checks all that can be wrong with it; run for each reading of the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
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
from tidewheel.read.ordering import SortKey, behind, first, top
from tidewheel.read.planner import Planner, check_corrupt, check_limit, check_offset, sort_keys

if TYPE_CHECKING:
    from tidewheel.read.filters.program import Program
    from tidewheel.read.groups.grouping import Grouping
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

    __slots__ = (
        "_aggregation",
        "_filter",
        "_order",
        "_projection",
        "columns",
        "filters",
        "last",
        "limit",
        "limits",
        "offset",
        "planner",
        "program",
        "query",
        "read",
        "rest",
        "schema",
        "touched",
    )  # fmt: skip

    def __init__(self, planner: Planner, query: Query, watch: Watch, in_place: bool = False) -> None:
        """`watch` guards the planning. `in_place`: its source can make groups of rows where they lie."""
        self.planner = planner
        self.query = query
        self.limits = watch.limits
        self.limit = check_limit(query.limit)
        self.offset = query.offset and check_offset(query.offset)
        self.last = self.limit if self.limit is None or not self.offset else self.limit + self.offset
        """Rows up to the end of what is wanted."""
        if query.on_corrupt != "error":
            check_corrupt(query.on_corrupt)
        self.filters = query.where is not None or query.condition is not None or query.latest
        """Not every row within the bounds is in the result."""
        self.rest = query.condition
        """What the source's rows must still be asked of the condition."""
        self.program: Program | None = None
        """What the source asks them, where they lie."""
        if query.condition is not None:
            from tidewheel.read.filters.program import divided

            made, self.rest = divided(query.condition, planner.spec.schema)
            self.program = made if len(made.steps) else None
        self._aggregation: Any = None
        self._filter: Any = None
        self._projection: Any = None
        if query.aggregate is not None or query.group_by is not None:
            from tidewheel.read.aggregate import aggregation

            plain = in_place and query.where is None and self.rest is None and not query.latest and not query.aged
            self._aggregation = aggregation(planner, query, watch, plain)
            self.columns = planner.columns(self._aggregation.reads or [planner.spec.time.column])
            self.schema: pa.Schema = self._aggregation.schema
        elif query.columns is None or query.hidden or planner.are_columns(query.columns):
            self.columns = planner.everything if query.hidden else planner.columns(query.columns)
            self.schema = self.columns.schema
        else:
            from tidewheel.read.projection import projection

            self._projection = projection(query.columns, planner, watch)
            self.columns = planner.columns(self._projection.reads)
            self.schema = self._projection.schema
        if isinstance(query.where, str):
            from tidewheel.read.row_expressions import Filter

            self._filter = Filter(query.where, planner.spec.schema, planner.spec.time.column, watch)
        elif query.where is not None and not callable(query.where):
            raise QueryError(
                f"where is SQL text or a function of a RecordBatch, not {query.where!r}. "
                'Write where="speed > 30", or with values where="speed > ?", params=[30]'
            )
        self._order: list[SortKey] = sort_keys(planner, query.order_by, self._orderable()) if query.order_by is not None else []
        self.read = self._columns_to_read()
        """The result's columns and those that the rest of the condition, where and order_by look at."""
        self.touched = self._columns_touched()
        """With those that the program looks at."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the result, where every row has the same, else 0."""
        return self.columns.row_bytes if self._aggregation is None and self._projection is None else 0

    @property
    def totals(self) -> Totals | None:
        """The totals that are asked for, if that is all and they can be made of values where they lie."""
        if self._aggregation is None or self.limit is not None or self.offset or self._order:
            return None
        if self.rest is not None or self.query.where is not None or self.query.latest:
            return None
        return self._aggregation if self._aggregation.folds is not None else None

    @property
    def grouping(self) -> Grouping | None:
        """The groups that are asked for, if the source makes them."""
        made = self._aggregation
        return made if made is not None and made.in_place else None

    @property
    def stops_at(self) -> int | None:
        """With a limit and nothing to filter or sort, the segments behind so many rows need not be touched at all."""
        return self.last if not self.filters and not self._order and self._aggregation is None else None

    @property
    def ordered(self) -> list[SortKey] | None:
        """What the table's rows are ordered by, if only the first of them are wanted, and the condition alone says of which."""
        query = self.query
        if not self._order or self.last is None or self._aggregation is not None or query.where is not None or query.latest:
            return None
        made = () if self._projection is None else self.schema.names  # names of expressions are those that are meant
        return None if any(key.column in made or key.column not in self.planner.names for key in self._order) else self._order

    @property
    def wanted_first(self) -> tuple[Sequence[SortKey], int | None]:
        """Of all rows that are made, how many are wanted, in which order; None: all of them."""
        return self._order, self.last if self._order else None

    @property
    def _enough(self) -> int | None:
        """How many of the source's rows are needed."""
        if self.rest is not None or self.query.where is not None or self.query.latest or self._order or self._aggregation is not None:
            return None
        return self.last

    def _orderable(self) -> list[str]:
        if self._projection is not None:
            return list(dict.fromkeys((*self.schema.names, *self.planner.names)))
        return self.schema.names if self._aggregation is not None else self.planner.names

    def _beside(self) -> list[str]:
        """Columns that rows are ordered by and that the answer does not have."""
        return [name for name in dict.fromkeys(one.column for one in self._order) if name not in self.schema.names]

    def _columns_to_read(self) -> Columns:
        if not self.filters and not self._order:
            return self.columns
        if callable(self.query.where):
            return self.planner.columns(None)
        names = list(self.columns.schema.names)
        filtered = (*self._conditioned(), *(self._filter.columns if self._filter else ()))
        if self.query.latest:
            spec = self.planner.spec
            filtered = (*filtered, *spec.key.columns, spec.time.column)
        ordered = () if self._aggregation else self._beside() if self._projection else (s.column for s in self._order)
        more = (*filtered, *ordered)
        extra = [n for n in dict.fromkeys(more) if n not in names]
        return self.planner.columns(names + extra) if extra else self.columns

    def _conditioned(self) -> tuple[str, ...]:
        names = () if self.rest is None else columns_of(self.rest)
        if names is None:
            raise QueryError("condition: it says less than what rows must satisfy, so it cannot decide about them")
        return names

    def _columns_touched(self) -> Columns:
        program = self.program
        more = [] if program is None else [n for n in program.reads if self.planner.number(n, "condition") not in self.read.numbers]
        return self.planner.columns([*self.read.schema.names, *more]) if more else self.read

    def known_rows(self, found: int) -> int | None:
        """The rows of the result if its source has `found`; None if they must be read to know."""
        if self.filters or self._aggregation is not None:
            return None
        if self.last is not None:
            found = min(found, self.last)
        return max(0, found - self.offset) if self.offset else found

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
        if self.query.latest:
            from tidewheel.read.latest import last_rows

            batches = iter(last_rows(batches, self.read.schema, self.planner.spec, watch))
        narrow, schema = self.read is not self.columns, self.read.schema
        if self.grouping is not None:
            narrow, schema = False, self.schema
        elif self._aggregation is not None:
            batches = iter(self._aggregation.run(batches, schema, watch).to_batches())
            narrow, schema = False, self.schema
        elif (made := self._projection) is not None:
            beside = self._beside()
            batches = (made.run(batch, beside, watch) for batch in batches)
            narrow, schema = bool(beside), pa.schema([*self.schema, *(schema.field(name) for name in beside)])
        if self._order:
            batches = iter(top(batches, schema, self._order, self.last, watch).to_batches())
        if self.last is not None:
            batches = first(batches, self.last)
        if self.offset:
            batches = behind(batches, self.offset)
        rows = 0
        for batch in batches:
            rows += batch.num_rows
            if rows > most:
                watch.count(rows)
            left = time.perf_counter()
            yield batch.select(self.schema.names) if narrow else batch
            watch.pause(left)

    def _filtered(self, source: Source, size: int, watch: Watch, whole: bool) -> Iterator[pa.RecordBatch]:
        where: Callable[[pa.RecordBatch], Any] | None = self.query.where  # type: ignore[assignment]
        if self._filter is not None:
            where = partial(self._filter.mask, watch=watch)
        condition, enough = self.rest, self._enough
        if self.grouping is not None:
            yield from source(size, watch, None)
            return
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
