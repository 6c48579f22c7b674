"""What the results of all statements have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pyarrow as pa

from tidewheel.model.query import Plan, Stats
from tidewheel.model.schema import ColumnKey, TableSpec
from tidewheel.model.times import INT64_MAX, INT64_MIN, TimeAxis
from tidewheel.read.limits import Cancellable
from tidewheel.read.plan_text import plan_text
from tidewheel.read.result import Result
from tidewheel.sql.queries import queries
from tidewheel.sql.table_scan import TableScan, total

_COSTS = ("regions_considered", "regions_read", "leaves_read", "leaves_skipped", "rows_scanned")


class StatementResult(Result):
    """A result of `Warehouse.sql`: over any number of tables, each scanned any number of times."""

    def __init__(self, root: Path, written: str) -> None:
        """`written`: the statement, as it is shown in system.queries."""
        self.stats = Stats()
        self._root = root
        self._written = written
        self._rows: int | None = None
        self.before: Sequence[TableScan] = ()
        """What was read of tables before it was asked."""
        self.is_listed = True
        """Whether readings of it are told of in system.queries; not if it is a part of another statement, which is."""

    # ---- what was read ----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def scans(self) -> list[TableScan]:
        """What is read of tables, as far as it is known."""

    @property
    @abstractmethod
    def generations(self) -> dict[str, int]:
        """The generation of each table that it shows."""

    @property
    def generation(self) -> int:
        """Of the table that it shows; of several, the greatest."""
        return max(self.generations.values(), default=0)

    @property
    def plan(self) -> Plan:
        """Of all scans together."""
        plans = [plan for scan in self.scans for plan in scan.plans]
        intervals = tuple(interval for plan in plans for interval in plan.key_intervals)
        subqueries = tuple(sub for plan in plans for sub in plan.subqueries)
        time = (min((p.time[0] for p in plans), default=INT64_MIN), max((p.time[1] for p in plans), default=INT64_MAX))
        return Plan(", ".join(self.generations), self.generation, intervals, time, subqueries, self.stats)

    def explain(self) -> str:
        return "\n".join(plan_text(plan, scan.spec) for scan in self.scans for plan in scan.plans) or "no row of a table is read"

    # ---- how it is read ---------------------------------------------------------------------------------

    def _in_system_queries(self) -> AbstractContextManager[None]:
        """While it is read: it is told of in system.queries, and can be cancelled by its number there."""
        return queries.running(self._root, self._written, self.cancel, self.stats) if self.is_listed else nullcontext()

    def _costs(self, scans: list[TableScan]) -> None:
        """Put what scans cost into the stats. The same object says more then: plans point to it."""
        cost = total([scan.stats for scan in (*self.before, *scans)])
        for name in _COSTS:
            setattr(self.stats, name, getattr(cost, name))

    def _returned(self, rows: int, size: int, seconds: float) -> None:
        """It was read to its end."""
        self._rows = rows
        self.stats.rows_returned, self.stats.bytes, self.stats.milliseconds = rows, size, seconds * 1e3

    def _count(self, of: Cancellable | None = None) -> int:
        if self._rows is None:
            for _ in self._batches(False, of):
                pass
        assert self._rows is not None
        return self._rows

    def known_rows(self) -> int | None:
        return self._rows

    def _counts_cheaply(self) -> bool:
        return self._rows is not None

    def _spec(self) -> TableSpec:
        """A table definition without columns: errors and limits name the statement by it."""
        return TableSpec(", ".join(self.generations) or "statement", pa.schema([]), TimeAxis("", "us"), ColumnKey(""), "1 hour", ())
