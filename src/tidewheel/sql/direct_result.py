"""The result of a statement that DuckDB only parsed: one scan of one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa

from tidewheel.engine.protocol import PinnedTable
from tidewheel.errors import CancelledError
from tidewheel.model.conditions import Condition
from tidewheel.read.condition_mask import kept, mask
from tidewheel.read.limits import NEVER, Cancellable, Limits, Watch
from tidewheel.read.ordering import behind, first, parse_order, top
from tidewheel.read.totals.sums import Sums
from tidewheel.sql.asking import Asking
from tidewheel.sql.constants import NotDirectError
from tidewheel.sql.direct import Asked
from tidewheel.sql.statement_result import StatementResult
from tidewheel.sql.table_scan import TableScan

_NOTICED = 0.05
"""Seconds."""

_SORTED = 1 << 16
"""Rows that are put in order here; DuckDB does it with more of them faster, and in less memory."""


class DirectResult(StatementResult):
    """Planned when it is made; read when it is asked for, each time anew and over the same rows. Raises NotDirectError if the answer would
    have other types than DuckDB's."""

    def __init__(self, root: Path, table: PinnedTable, asked: Asked, limits: Limits, written: str, asking: Asking) -> None:
        super().__init__(root, written)
        self.schema = asked.schema
        self.root = root
        self._table = table
        self._asked = asked
        self._limits = limits
        self._spent = asking.used.seconds
        self._rows = 1 if asked.totals is not None and asked.limit is None else None
        self._ready: TableScan | None = None
        self._ready = self._last = self._scan()
        types = [] if asked.grouping is None else self._last.types
        if asked.grouping is not None and types and [types[number] for number in asked.grouping.picked] != self.schema.types:
            raise NotDirectError("DuckDB gives another type to a group")
        many = asked.limit is None or asked.limit + asked.offset > _SORTED
        if asked.order_by and asked.grouping is None and not asked.latest and many and self._last.most_rows() > _SORTED:
            raise NotDirectError("it puts many rows in order")
        self._costs([self._last])
        self._spent = asking.used.seconds
        self.stats.milliseconds = self._spent * 1e3

    def _scan(self) -> TableScan:
        ready, self._ready = self._ready, None
        if ready is not None:
            return ready
        limits: dict[str, Any] = {"max_rows": NEVER}
        if self._limits.seconds != NEVER:
            # an error names the seconds that were given, if it takes none of them to notice
            limits["timeout"] = max(0.0, self._limits.seconds - (self._spent if self._spent > _NOTICED else 0.0))
        if self._limits.bytes != NEVER:
            limits["max_bytes"] = self._limits.bytes
        asked = self._asked
        parts: Mapping[str, str] | None = None
        if asked.totals is not None:
            parts = asked.totals.expressions if len(asked.bounds.boxes) == 1 else asked.totals.parts
        more = _at_once(asked) if asked.at_once else None
        return TableScan(self._table, asked.columns, asked.condition, bounds=asked.bounds, parts=parts, at_once=more, **limits)

    # ---- taking it --------------------------------------------------------------------------------------

    def _found(self, scan: TableScan, of: Cancellable, whole: bool = False) -> Iterator[pa.RecordBatch]:
        asked = self._asked
        left = NEVER if asked.limit is None or asked.at_once else asked.limit  # of one query, it is the query that has the limit
        if asked.totals is not None and not (scan.folded and len(asked.bounds.boxes) == 1):
            sums = Sums(asked.totals)
            for batch in scan.batches(of=of) if left else ():
                _check(of)
                if scan.folded:
                    sums.add_part(batch)
                else:
                    sums.add(batch)
            if left:
                yield sums.answer()
            return
        if asked.having is not None:
            yield from self._groups_kept(scan, asked.having, of)
            return
        for batch in scan.batches(whole and asked.limit is None, of) if left else ():
            _check(of)
            part = batch if batch.num_rows <= left else batch.slice(0, int(left))
            if asked.grouping is not None:
                part = part.select(list(asked.grouping.picked))
            left -= part.num_rows
            yield part
            if not left:
                return

    def _groups_kept(self, scan: TableScan, having: Condition, of: Cancellable) -> Iterator[pa.RecordBatch]:
        """The groups that HAVING keeps, in their order."""
        asked = self._asked
        assert asked.grouping is not None
        batches: Iterator[pa.RecordBatch] = (kept(batch, mask(having, batch)) for batch in scan.batches(False, of))
        if asked.order_by:
            last = None if asked.limit is None else asked.limit + asked.offset
            watch = Watch(replace(self._limits, rows=NEVER), of, self._spent)
            batches = iter(top(batches, scan.made, parse_order(asked.order_by), last, watch).to_batches())
        for batch in first(behind(batches, asked.offset), asked.limit):
            _check(of)
            yield batch.select(list(asked.grouping.picked))

    def to_arrow(self) -> pa.Table:
        """Named and typed as a whole: a batch each would take longer than reading them."""
        batches = list(self._raw(True))
        if not batches:
            return self.schema.empty_table()
        table = pa.Table.from_batches(batches)
        return table if table.schema.equals(self.schema, check_metadata=True) else pa.Table.from_arrays(table.columns, schema=self.schema)

    def _batches(self, whole: bool, of: Cancellable | None = None) -> Iterator[pa.RecordBatch]:
        for batch in self._raw(whole, of):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def _raw(self, whole: bool, of: Cancellable | None = None) -> Iterator[pa.RecordBatch]:
        """Batches with the names of the table's columns."""
        began, spent, rows, size = perf_counter(), 0.0, 0, 0
        who = self if of is None else of
        watch = Watch(self._limits, who, self._spent)
        with self._in_system_queries():
            watch.check()
            scan = self._last = self._scan()
            for batch in self._found(scan, who, whole):
                watch.check()
                # to ask a batch how many bytes it has takes longer than to read a small one
                taken = int(batch.num_rows * self._asked.width) if self._asked.width else batch.nbytes
                rows, size = rows + batch.num_rows, size + taken
                watch.count(rows)
                watch.take(taken if whole else 0)
                left = perf_counter()
                spent += left - began
                yield batch
                began = perf_counter()
                watch.pause(left)
            self._costs([scan])
            self._returned(rows, size, self._spent + spent + perf_counter() - began)

    def _first(self, rows: int, of: Cancellable | None = None) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        left = rows
        for batch in self._found(self._scan(), self if of is None else of):
            found.append(pa.RecordBatch.from_arrays(batch.columns, schema=self.schema).slice(0, left))
            left -= found[-1].num_rows
            if left <= 0:
                break
        return found

    # ---- what is known about it -------------------------------------------------------------------------

    @property
    def scans(self) -> list[TableScan]:
        return [self._last]

    @property
    def is_total(self) -> bool:
        """It is one row, made of all that is read."""
        return self._asked.totals is not None

    def most_rows(self) -> int:
        """The most rows that it can have, as far as is known before they are read."""
        return self._last.most_rows()

    @property
    def generations(self) -> dict[str, int]:
        return {self._table.spec.name: self._table.generation}

    def cancel(self) -> None:
        self.cancelled = True
        self._last.cancel()


def _at_once(asked: Asked) -> dict[str, Any]:
    """What the one query of a statement is asked besides its rows' bounds and condition."""
    more: dict[str, Any] = {"order_by": list(asked.order_by) or None, "limit": asked.limit, "offset": asked.offset}
    if asked.having is not None:  # that says which groups there are to be put in order
        more = {}
    if asked.latest:
        more |= {"latest": True, "aged": True}
    if asked.grouping is not None:
        more |= {"columns": None, "aggregate": asked.grouping.aggregate or None, "group_by": list(asked.grouping.group_by) or None}
    return more


def _check(of: Cancellable) -> None:
    if of.cancelled:
        raise CancelledError("the statement was cancelled; ask it again")
