"""A result over a version of a table in this process. It pins the version: what it points to is neither changed nor deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidewheel.errors import CancelledError
from tidewheel.index.version import Version
from tidewheel.model.packed_plan import COLUMNS, PackedPlan
from tidewheel.model.pieces import INDEX, SOURCE
from tidewheel.model.query import Plan, Query, Stats
from tidewheel.read.limits import Cancellable, Watch
from tidewheel.read.piped_result import PipedResult
from tidewheel.read.pipeline import Pipeline, Source, limits_of
from tidewheel.read.planner import Planner, Scan
from tidewheel.read.rows import rows_of
from tidewheel.read.scan import Found

if TYPE_CHECKING:
    from tidewheel.read.totals.sums import Totals

_FEW_PIECES = 64


class LocalResult(PipedResult):
    """The answer to a query of a version. It is planned when it is made, and read when it is asked for."""

    def __init__(self, planner: Planner, version: Version, query: Query) -> None:
        began = time.perf_counter()
        watch = Watch(limits_of(planner, query), self)
        self._pipeline = pipeline = Pipeline(planner, query, watch, in_place=True)
        self.schema = pipeline.schema
        self._left = ""
        """Why DuckDB made the groups when they were last read, if it did."""
        self._scan: Scan | None = planner.scan(version, query, pipeline.touched, watch)
        found, damage = self._scan.found, self._scan.damage
        self.stats = Stats(found.considered, len(found.pieces), found.leaves_read, found.leaves_skipped, found.rows_scanned)
        if damage is not None:
            self.warning = damage.tell(self.stats)
        self._planned = time.perf_counter() - began
        self.stats.milliseconds = self._planned * 1e3

    @property
    def found(self) -> Found:
        """Pieces and segments that are read to answer it. Raises if the query was cancelled."""
        return self._alive().found

    def sampled(self, shares: Sequence[float]) -> pa.RecordBatch:
        """Rows of its longest segment, which are in the order of their leaves: those before which there are such shares of it."""
        scan = self._alive()
        found = scan.found
        piece, first, length, check = found.segments[int(found.segments[:, 2].argmax())].tolist()
        places = sorted(first + min(int(share * length), length - 1) for share in shares)
        rows = replace(found, segments=np.array([(piece, place, 1, check) for place in places]), rows=len(places), longest=1)
        some = Scan(scan.planner, rows, scan.keys, scan.time, scan.check, None)
        batches = list(rows_of(some, self._pipeline.columns, len(places), Watch(self._pipeline.limits, self)))
        return pa.Table.from_batches(batches, self.schema).combine_chunks().to_batches()[0]

    @property
    def plan(self) -> Plan:
        return self.packed_plan().plan(self.stats)

    def packed_plan(self) -> PackedPlan:
        """The plan as arrays and names, which cross the wire in less time than `Plan` is made in."""
        scan = self._alive()
        found, version = scan.found, scan.found.version
        chunks: Any = version.chunks.holders
        trees: Any = version.trees
        names = "\n".join(
            [
                chunks[index].record.id if source == 0 else f"run of generation {trees[source - 1].holders[index].generation_lo}"
                for source, index in found.pieces[:, (SOURCE, INDEX)].tolist()
            ]
        )
        asked = scan.keys.intervals
        intervals = tuple(zip(asked.lo.tolist(), asked.hi.tolist(), strict=True))
        pieces, segments = found.pieces[:, COLUMNS].tobytes(), found.segments[:, (0, 2)].tobytes()
        return PackedPlan(self._spec().name, version.generation, intervals, scan.time, len(version.sealed), names, pieces, segments)

    @property
    def generation(self) -> int:
        return self._alive().found.version.generation

    @property
    def how(self) -> dict[str, str]:
        made, found = self._pipeline, dict[str, str]()
        if made.program is not None:
            found["filtered"] = "by us, where the rows lie" + (
                "" if made.rest is None else "; the rest of the condition, once they are read"
            )
        elif made.rest is not None:
            found["filtered"] = "by us, once the rows are read"
        if self._query_groups():
            ours = made.totals is not None or made.grouping is not None and not self._left
            found["grouped"] = "by us" if ours else f"by DuckDB, over the rows as they are read{self._left and f', since {self._left}'}"
        return found

    def _left_to_duck(self, why: str) -> None:
        self._left = why

    def _query_groups(self) -> bool:
        return self._pipeline.query.aggregate is not None or self._pipeline.query.group_by is not None

    def is_small(self, rows: int) -> bool:
        found, limit = self._alive().found, self._pipeline.stops_at
        return len(found.pieces) <= _FEW_PIECES and (found.rows <= rows or limit is not None and limit <= rows)

    def cancel(self) -> None:
        self.cancelled = True
        self._scan = None

    def _run(self, size: int, whole: bool, of: Cancellable | None, most: float | None = None) -> Iterator[pa.RecordBatch]:
        totals, found, enough = self._pipeline.totals, self._alive().found, self._pipeline.stops_at
        self.stats.rows_scanned = max(found.rows_scanned, found.rows if enough is None else min(found.rows, enough))
        if totals is None:
            return super()._run(size, whole, of, most)
        return self._folded(totals, Watch(self._pipeline.limits, self if of is None else of, self._planned), most)

    def _folded(self, totals: Totals, watch: Watch, most: float | None) -> Iterator[pa.RecordBatch]:
        """The totals, as a single batch of one row."""
        from tidewheel.read.totals.folded import folded

        query = self._pipeline.query
        if most is None:
            watch.count(1)
        yield folded(self._alive(), totals, watch, self._pipeline.program, query.condition)

    def _source(self) -> tuple[Source, int | None]:
        scan = self._alive()
        query = self._pipeline.query
        if (grouping := self._pipeline.grouping) is not None:
            from tidewheel.read.groups.gathering import groups
            from tidewheel.read.last.last_of_groups import last_columns, last_of_groups

            if (names := last_columns(scan, grouping)) is not None:
                return partial(last_of_groups, scan, names, grouping.schema, self._pipeline.program), None
            return partial(groups, scan, self._pipeline, grouping, self._left_to_duck), None
        if query.aged:
            from tidewheel.read.aged import aged_rows, last_aged_rows

            if query.latest and query.where is None and self._pipeline.rest is None:
                from tidewheel.read.last.newest_first import can_walk, last_by_key

                if can_walk(scan):
                    return partial(last_by_key, scan, self._pipeline.read, program=self._pipeline.program), None
                return partial(last_aged_rows, scan, self._pipeline.read, program=self._pipeline.program), None
            return partial(aged_rows, scan, self._pipeline.read, program=self._pipeline.program), None
        if (keys := self._pipeline.ordered) is not None:
            from tidewheel.read.top.best_rows import best_rows, can_find

            if can_find(scan, keys, self._pipeline.last or 0):
                made = partial(best_rows, scan, self._pipeline.read, keys, self._pipeline.last or 0)
                return partial(made, program=self._pipeline.program, rest=self._pipeline.rest), None
        known = None if scan.found.doubtful else self._pipeline.known_rows(scan.found.rows)
        return partial(rows_of, scan, self._pipeline.read, program=self._pipeline.program), known

    def _alive(self) -> Scan:
        scan = self._scan
        if scan is None:
            raise CancelledError("the query was cancelled; ask it again")
        return scan
