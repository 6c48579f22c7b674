"""EXPLAIN: how a statement would be answered, or was: our plan of every scan, beside DuckDB's of all the rest."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import pyarrow as pa

from tidewheel.errors import CancelledError
from tidewheel.model.query import Stats
from tidewheel.read.limits import Cancellable, Limits
from tidewheel.read.plan_text import plan_text
from tidewheel.sql.apart_reading import ApartReading
from tidewheel.sql.asking import Asking
from tidewheel.sql.execution import Inputs, StatementReading
from tidewheel.sql.parameters import Parameters
from tidewheel.sql.sql_result import Makes, Text
from tidewheel.sql.statement_result import StatementResult
from tidewheel.sql.table_scan import TableScan

SCHEMA = pa.schema([("explain_key", pa.string()), ("explain_value", pa.string())])
"""Whose plan it is, and its text."""


class ExplainResult(StatementResult):
    """A row for each plan. Checked when it is made, and planned when it is read; with `analyze` the statement is run then, and the plans
    say what it cost."""

    def __init__(
        self,
        makes: Makes,
        inputs: Inputs,
        limits: Limits,
        text: Text,
        parameters: Parameters,
        asking: Asking,
        analyze: bool,
        why: str,
        groups: Sequence[StatementResult] = (),
    ) -> None:
        """`why`: why it is DuckDB that answers it. `groups`: how those of its parts are made that are ours."""
        super().__init__(inputs.root, text.written)
        self.schema = SCHEMA
        self._makes = makes
        self._inputs = inputs
        self._limits = limits
        self._text = text
        self._parameters = parameters
        self._analyze = analyze
        self._groups = groups
        self._why = f"  filtered   {{}}\n  answered   by DuckDB, from the rows of this scan: {why}"
        self._made: pa.RecordBatch | None = None
        self._lock = threading.Lock()
        self._readings: set[StatementReading | ApartReading] = set()
        self._used = asking.used
        with self._reading(self) as reading:
            asking.started = reading.started
        self._used = asking.used

    # ---- making it --------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self, of: Cancellable) -> Iterator[StatementReading | ApartReading]:
        """The statement, bound: names and types are known to be right."""
        reading = self._makes(self._inputs, self._limits, of, self._used)
        with self._lock:
            self._readings.add(reading)
        try:
            reading.bind(self._text.run, self._parameters)
            yield reading
        finally:
            with self._lock:
                self._readings.discard(reading)
            reading.close()

    def _rows_of(self, reading: StatementReading | ApartReading) -> pa.RecordBatch:
        found = reading.explain(self._text.run, self._parameters, self._analyze)
        said, scans = found.said, reading.scans
        if not self._analyze:
            narrow, tables = self._inputs.narrow, self._inputs.tables
            scans = [TableScan(tables[name], columns, condition, narrow=narrow.get(name)) for name, columns, condition in found.scans]
        keys = [*(f"tidewheel: {scan.spec.name}" for scan in scans), "duckdb"]
        texts = [self._of_scan(scan, "Filter" in said) for scan in scans]
        batches = [pa.RecordBatch.from_arrays([pa.array(keys), pa.array([*texts, said])], schema=SCHEMA)]
        batches = [*(batch for one in self._groups for batch in one._batches(True)), *batches]
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]

    def _of_scan(self, scan: TableScan, filters: bool) -> str:
        """`filters`: DuckDB's plan does."""
        alone = "by the index, and by DuckDB where its plan has a Filter" if filters else "by the index alone"
        filtered = "by us, as far as the statement's conditions are understood" if scan.asks else alone
        return f"{scan_text(scan, self._analyze)}\n{self._why.format(filtered)}"

    def _batches(self, whole: bool, of: Cancellable | None = None) -> Iterator[pa.RecordBatch]:
        began = perf_counter()
        who = self if of is None else of
        with self._in_system_queries():
            if who.cancelled:
                raise CancelledError("the statement was cancelled; ask it again")
            if self._made is None:
                with self._reading(who) as reading:
                    self._made = self._rows_of(reading)
            self._returned(self._made.num_rows, self._made.nbytes, perf_counter() - began)
            yield self._made

    def _first(self, rows: int, of: Cancellable | None = None) -> list[pa.RecordBatch]:
        return [batch.slice(0, rows) for batch in self._batches(True, of)]

    def cancel(self) -> None:
        self.cancelled = True
        with self._lock:
            readings = list(self._readings)
        for reading in readings:
            reading.interrupt()

    # ---- what is known about it -------------------------------------------------------------------------

    @property
    def scans(self) -> list[TableScan]:
        """Of a plan, nothing is read."""
        return []

    @property
    def generations(self) -> dict[str, int]:
        return self._inputs.generations


def scan_text(scan: TableScan, read: bool) -> str:
    """How a scan is planned, and what it cost, if it was read."""
    parts = [plan_text(plan, scan.spec) for plan in scan.plans] or [f"table {scan.spec.name}: no row can match, nothing is read"]
    columns = ", ".join(scan.columns) or "none: the index knows how many rows there are"
    stats: Stats = scan.stats
    cost = [f"  returned   {stats.rows_returned} rows, {stats.bytes} bytes in {stats.milliseconds:.3g} ms"] if read else []
    return "\n".join([*parts, f"  columns    {columns}", *cost])
