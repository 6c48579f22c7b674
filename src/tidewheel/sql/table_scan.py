"""One scan of a table: the rows of a pinned version that satisfy a condition, in batches of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa

from tidewheel.engine.protocol import PinnedTable
from tidewheel.model.conditions import Condition, columns_of
from tidewheel.model.query import Plan, Query, Stats
from tidewheel.model.schema import TableSpec
from tidewheel.read.boxes import EVERYTHING, Boxes, around, both
from tidewheel.read.condition_bounds import Finder, points_of, queries_of, query_of
from tidewheel.read.condition_mask import kept
from tidewheel.read.limits import Cancellable
from tidewheel.read.pinned import PinnedVersion

Keep = Callable[[pa.RecordBatch], pa.BooleanArray]
"""Which rows of a batch to keep: those where it is true."""


class TableScan:
    """Planned when it is made: `plans` and `stats` say how. Read once, by one thread."""

    def __init__(
        self,
        table: PinnedTable,
        columns: Sequence[str],
        condition: Condition | None,
        keep: Keep | None = None,
        narrow: Condition | None = None,
        bounds: Boxes | None = None,
        parts: Mapping[str, str] | None = None,
        at_once: Mapping[str, Any] | None = None,
        **limits: Any,
    ) -> None:
        """`keep` decides about rows, in this process, if `condition` says less than what was asked; else each query carries the condition,
        and rows that do not satisfy it stay where they are. Rows that do not satisfy `narrow` may be left out or returned: no answer
        depends on them. `bounds`: if they are known, those of which rows must still be asked the condition.

        Without `columns` only the number of rows is wanted: batches have none. That of a whole table is known without a look at any row.
        `parts`: what the rows of each query are to come to; unless `keep` decides about them, it is `folded`, and that is what batches
        have, a row each: the rows stay where they are. `at_once`: there is one query, of all boxes together, which is asked this too.
        """
        spec = table.spec
        self.spec = spec
        self.columns = list(columns)
        rest = condition
        if bounds is None:
            finder = Finder(spec)
            bounds, rest = finder.divided(condition)
            if narrow is not None:
                bounds = both(bounds, Boxes(finder.bounds_of(narrow).boxes, True))
                rest = condition if rest is None and not bounds.exact else rest
        undecided = rest is not None
        self.asks = undecided
        """Rows within the bounds are asked more."""
        self._keep = keep if undecided else None
        read = list(self.columns)
        if self._keep is not None and condition is not None:
            named = columns_of(condition)
            read += [name for name in (spec.schema.names if named is None else named) if name not in read]
        self._counts = not read and not undecided
        self._grouped = at_once is not None and "group_by" in at_once
        self.folded = parts is not None and self._keep is None and not self._counts
        wanted: dict[str, Any] = {"aggregate": parts} if self.folded else {"columns": read or [spec.time.column]}
        if at_once is not None:
            self._counts = False
            wanted |= at_once
        if undecided and keep is None:
            wanted["condition"] = rest
        self._known = table.about if self._counts and bounds == EVERYTHING and _says_all(table) else None
        if at_once is not None and (bounds.boxes or self._grouped):
            queries = [_at_once(bounds, spec, wanted | limits)]
        else:
            queries = queries_of(bounds, spec, **wanted, **limits)
        self._results = [] if self._known is not None else [table.query(query) for query in queries]

    @property
    def schema(self) -> pa.Schema:
        schema = self.spec.schema
        return pa.schema([schema.field(name) for name in self.columns], schema.metadata)

    @property
    def types(self) -> list[pa.DataType]:
        """Of the columns that batches have; none if nothing is read."""
        return self._results[0].schema.types if self._results else []

    @property
    def made(self) -> pa.Schema:
        """The columns of groups, as batches have them."""
        return self._results[0].schema

    @property
    def plans(self) -> list[Plan]:
        return [result.plan for result in self._results]

    @property
    def stats(self) -> Stats:
        """Of all its queries together."""
        return total([result.stats for result in self._results])

    @property
    def how(self) -> dict[str, str]:
        """Who filters and groups, by what is done; nothing if another process does it."""
        return self._results[0].how if self._results else {}

    def most_rows(self) -> int:
        """The most rows that it can have."""
        known = [result.known_rows() for result in self._results]
        return (self._known or 0) + sum(
            sum(one.rows for one in result.plan.subqueries) if rows is None else rows
            for rows, result in zip(known, self._results, strict=True)
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    def batches(self, whole: bool = False, of: Cancellable | None = None) -> Iterator[pa.RecordBatch]:
        """`whole`: the caller keeps them all, so that they need not be small. `of`: ends this reading, when it is cancelled."""
        if self._known:
            yield _rows_alone(self._known)
        for result in self._results:
            if self._counts and (rows := result.known_rows()) is not None:
                if rows:
                    yield _rows_alone(rows)
                continue
            for batch in result._batches(whole and self._keep is None, of):
                if self._keep is not None:
                    batch = kept(batch, self._keep(batch))
                if batch.num_rows:
                    yield batch if self.folded or self._grouped or batch.schema.names == self.columns else batch.select(self.columns)

    def cancel(self) -> None:
        """End every reading of it, also where another process does the work."""
        for result in self._results:
            result.cancel()


def _at_once(bounds: Boxes, spec: TableSpec, wanted: Mapping[str, Any]) -> Query:
    """One query around all boxes, or of their keys if each is of one."""
    around_all = query_of(spec, around(bounds.boxes), **wanted)
    keys = points_of(bounds.boxes, spec)
    return around_all if keys is None else replace(around_all, key=keys)


def _says_all(table: PinnedTable) -> bool:
    """Whether its regions have no other rows than those that are seen."""
    return isinstance(table, PinnedVersion) and not table.version.hidden


def _rows_alone(rows: int) -> pa.RecordBatch:
    """A batch of so many rows, and of no column."""
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))


def total(stats: Sequence[Stats]) -> Stats:
    """What several queries cost together."""
    if len(stats) == 1:
        return stats[0]
    whole = Stats()
    for field in fields(Stats):
        if field.name == "corrupt_files":
            whole.corrupt_files = tuple(dict.fromkeys(file for one in stats for file in one.corrupt_files))
        else:
            setattr(whole, field.name, sum(getattr(one, field.name) for one in stats))
    return whole
