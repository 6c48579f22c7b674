"""EXPLAIN of a statement that DuckDB only parses: our plan is all of it."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import pyarrow as pa

from tidewheel.errors import CancelledError
from tidewheel.read.limits import Cancellable
from tidewheel.sql.direct import Asked
from tidewheel.sql.direct_result import DirectResult
from tidewheel.sql.explain_statement import SCHEMA, scan_text
from tidewheel.sql.grouped import MARK
from tidewheel.sql.statement_result import StatementResult
from tidewheel.sql.table_scan import TableScan


class DirectExplainResult(StatementResult):
    """One row: how we answer it. With `analyze` it is answered when this is read, and the plan says what that cost."""

    def __init__(self, of: DirectResult, asked: Asked, written: str, analyze: bool, rest: str) -> None:
        """`rest`: why DuckDB makes the answer of its groups, if it does."""
        super().__init__(of.root, written)
        self.schema = SCHEMA
        self._of = of
        self._asked = asked
        self._analyze = analyze
        self._rest = rest

    def _batches(self, whole: bool, of: Cancellable | None = None) -> Iterator[pa.RecordBatch]:
        began = perf_counter()
        who = self if of is None else of
        with self._in_system_queries():
            if who.cancelled:
                raise CancelledError("the statement was cancelled; ask it again")
            if self._analyze:
                self._of.is_listed = False
                for _ in self._of._batches(False, who):
                    pass
            (scan,) = self._of.scans
            said = "\n".join(
                [scan_text(scan, self._analyze), *(f"  {what:<10} {how}" for what, how in steps_of(self._asked, scan, self._rest))]
            )
            made = pa.RecordBatch.from_arrays([pa.array([f"tidewheel: {scan.spec.name}"]), pa.array([said])], schema=SCHEMA)
            self._returned(1, made.nbytes, perf_counter() - began)
            yield made

    def _first(self, rows: int, of: Cancellable | None = None) -> list[pa.RecordBatch]:
        return [batch.slice(0, rows) for batch in self._batches(True, of)]

    def cancel(self) -> None:
        self.cancelled = True
        self._of.cancel()

    @property
    def scans(self) -> list[TableScan]:
        """Of a plan, nothing is read."""
        return []

    @property
    def generations(self) -> dict[str, int]:
        return self._of.generations


def steps_of(asked: Asked, scan: TableScan, rest: str) -> Iterator[tuple[str, str]]:
    """What becomes of the rows within the bounds, and who does it."""
    told = scan.how
    if scan.asks:
        yield "filtered", told.get("filtered", "by us, before a row leaves its owner")
    else:
        yield "filtered", "by the index alone: every row within the bounds is one of the answer's"
    if asked.totals is not None:
        yield "totals", ", ".join(asked.totals.schema.names) + ": by us"
    if asked.grouping is not None:
        by, made = asked.grouping.group_by, asked.grouping.aggregate.values()
        by = tuple(text.partition(f' AS "{MARK}')[0] for text in by)
        yield "grouped", f"{told.get('grouped', 'by the owner')}: by {', '.join(by) or 'nothing'}; {', '.join(made) or 'no aggregates'}"
    if asked.having is not None:
        yield "kept", "by us: the groups that HAVING says"
    if asked.latest:
        yield "last rows", "of each key: by us, from the newest leaves on"
    if asked.order_by:
        first = "" if asked.limit is None else f", the first {asked.limit + asked.offset} rows alone"
        yield "ordered", f"by us: {', '.join(_shown(term, asked) for term in asked.order_by)}{first}"
    if rest:
        yield "answered", f"by DuckDB, over these groups: {rest}"
    elif told.get("grouped", "by us") == "by us":
        yield "answered", "without DuckDB, which only parsed the statement"
    else:
        yield "answered", "by one query of the table"


def _shown(term: str, asked: Asked) -> str:
    """A term of the query's order, as the statement has it."""
    if asked.grouping is not None:
        names = dict(asked.grouping.aggregate)
        names |= {name.removesuffix('"'): text for text, _, name in (one.partition(' AS "') for one in asked.grouping.group_by) if name}
        for name, text in names.items():
            term = term.replace(f'"{name}"', text)
    return term
