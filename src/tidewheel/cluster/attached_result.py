"""The results of an attached process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from time import monotonic
from typing import Any

import pyarrow as pa

from tidewheel.cluster import requests as ask
from tidewheel.cluster.client_handles import Hold
from tidewheel.cluster.connection import Connection
from tidewheel.cluster.wire import decode, one_batch, unstream
from tidewheel.errors import CancelledError, TidewheelError
from tidewheel.model.packed_plan import PackedPlan
from tidewheel.model.query import Plan, Stats
from tidewheel.model.schema import TableSpec
from tidewheel.read.limits import Cancellable
from tidewheel.read.result import Result

WINDOW = 4 << 20
"""Bytes that are fetched at once while a result is iterated: what this process holds of it. The owner prepares no more than that."""

_readings = itertools.count(1)


class AttachedResult(Result):
    """The answer of the owner: its rows, if they are few, or the number under which the owner holds it for as long as this object lives."""

    def __init__(
        self, connection: Connection, spec: TableSpec, seconds: float, answer: ask.Answer, rows: pa.Buffer, hold: Hold | None
    ) -> None:
        """`seconds`: what one reading of it may take."""
        self._connection = connection
        self._seconds = seconds
        self._table = spec
        self._answer = answer
        if answer.bare:
            self.schema, batches = spec.schema, [one_batch(rows, spec.schema)]
        else:
            self.schema, batches = unstream(rows)
        self._here: list[pa.RecordBatch] | None = None if answer.result else batches
        self._rows: int | None = None
        self._plan: Plan | PackedPlan | None = None
        self.stats = answer.stats
        self.warning = answer.warning
        self._hold = hold

    @property
    def plan(self) -> Plan:
        self._check()
        if self._plan is None:
            said = self._answer.plan
            self._plan = self._connection.ask(ask.GetPlan(self._answer.result)) if said is None else decode(said)
        return self._plan.plan(self.stats) if isinstance(self._plan, PackedPlan) else replace(self._plan, stats=self.stats)

    @property
    def generation(self) -> int:
        self._check()
        return self._answer.generation

    def known_rows(self) -> int | None:
        return self._answer.rows if self._rows is None else self._rows

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self._here = None
            if self._hold is not None:
                with suppress(TidewheelError):  # it is gone, then
                    self._connection.ask(ask.Cancel(self._answer.result))
                self._hold.let_go()

    # ---- how it is read ---------------------------------------------------------------------------------

    def _batches(self, whole: bool, of: Cancellable | None = None) -> Iterator[pa.RecordBatch]:
        self._check()
        if self._here is not None:
            yield from self._here
            assert self._answer.read is not None
            self.stats.rows_returned, self.stats.bytes, self.stats.milliseconds = self._answer.read
            self._rows = self.stats.rows_returned
            return
        window = 0 if whole else WINDOW
        reading = next(_readings)
        left = self._seconds  # of waiting for the owner; what the caller does meanwhile is not the query's time
        word: Any = None
        try:
            while not isinstance(word, ask.NoMoreRows):
                self._check()
                request = ask.Read(self._answer.result, reading, word is None, whole, window)
                began = monotonic()
                batches, word = self._connection.read(request, left, self._seconds)
                left = max(0.0, left - (monotonic() - began))
                for batch in batches:
                    yield batch
                    self._check()
        finally:
            if isinstance(word, ask.More):
                self._connection.drop_reading(self._answer.result, reading)
        self._was_read(word.stats)

    def _was_read(self, stats: Stats) -> None:
        """The same object says more now: plans point to it."""
        for field in fields(Stats):
            setattr(self.stats, field.name, getattr(stats, field.name))
        self._rows = stats.rows_returned

    def _first(self, rows: int, of: Cancellable | None = None) -> list[pa.RecordBatch]:
        self._check()
        if self._here is not None:
            return pa.Table.from_batches(self._here, self.schema).slice(0, rows).to_batches()  # type: ignore[no-any-return]
        return self._connection.read(ask.First(self._answer.result, rows), self._seconds)[0]

    def _count(self, of: Cancellable | None = None) -> int:
        if self._rows is None:
            self._check()
            rows = self._answer.rows
            self._rows = self._counted() if rows is None else rows
        return self._rows

    def _counted(self) -> int:
        return self._connection.read(ask.Count(self._answer.result), self._seconds)[1].rows  # type: ignore[no-any-return]

    def _counts_cheaply(self) -> bool:
        return self._rows is not None or self._answer.cheap

    def _spec(self) -> TableSpec:
        return self._table

    def _check(self) -> None:
        if self.cancelled:
            raise CancelledError("the query was cancelled; ask it again")
