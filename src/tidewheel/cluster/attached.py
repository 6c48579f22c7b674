"""The engine of a warehouse that another process owns: it holds the same protocol as the owner's own, and has the same answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tidewheel.cluster import requests
from tidewheel.cluster.attached_result import AttachedResult
from tidewheel.cluster.attached_versions import AttachedVersion, attached_versions
from tidewheel.cluster.connection import Connection
from tidewheel.cluster.wire import stream
from tidewheel.engine.operations import RunQuery
from tidewheel.engine.protocol import TableDelivery, TableOperation, TableQuestion, WarehouseOperation
from tidewheel.env import deadline
from tidewheel.env.deadline import Within
from tidewheel.model.recovery import Recovery
from tidewheel.model.report import Progress
from tidewheel.model.schema import TableSpec
from tidewheel.read.result import Result
from tidewheel.settings import Settings

if TYPE_CHECKING:
    from tidewheel.read.planner import Planner
    from tidewheel.write.accept import Acceptor

T = TypeVar("T")

AT_ONCE = 256 << 10
"""Bytes of rows that go with their request; more go in a stream, which takes a way there and back more."""


class AttachedTable:
    """One table. Holds `engine.protocol.TableEngine`; every method may be called from any thread.

    What takes its time to load is imported where it is used: a Spark worker that only stages rows starts without it.
    """

    def __init__(self, connection: Connection, settings: Settings, opened: requests.Opened) -> None:
        self.spec = opened.spec
        self._connection = connection
        self._settings = settings
        self._number = opened.table

    @property
    def lost(self) -> bool:
        return self._connection.lost

    @cached_property
    def _acceptor(self) -> Acceptor:
        from tidewheel.model.coders import key_coder
        from tidewheel.write.accept import Acceptor

        return Acceptor(self.spec, key_coder(self.spec).refuse, self._settings.max_batch_bytes)

    @cached_property
    def _planner(self) -> Planner:
        from tidewheel.cluster.filtered_result import planner

        return planner(self.spec, self._settings)

    def do(self, operation: TableOperation[T]) -> T:
        return cast(T, self._connection.ask(requests.OnTable(self._number, operation)))

    def ask(self, question: TableQuestion) -> Result:
        if isinstance(question, RunQuery) and callable(question.query.where):
            from tidewheel.cluster.filtered_result import FilteredResult

            return FilteredResult(self._planner, question.query, lambda query: self._asked(RunQuery(query)))
        return self._asked(question)

    def _asked(self, question: TableQuestion) -> AttachedResult:
        seconds = self._connection.seconds(question.timeout)
        with Within(seconds):
            answer = self._connection.call(requests.AskTable(self._number, question))
        return AttachedResult(self._connection, question.about(self.spec), seconds, *answer)

    def give(self, delivery: TableDelivery[T], rows: Any) -> T:
        if delivery.streamed:
            from tidewheel.write.soundness import check_lengths

            safe = (check_lengths(batch, self.spec.name) for batch in rows.batches)  # Flight ends a process that sends what it has not
            return cast(T, self._connection.put(requests.GiveTable(self._number, delivery), rows.schema, safe))
        from tidewheel.cluster.insert_rows import outgoing

        sent = outgoing(rows, self.spec, self._acceptor)
        request = requests.GiveTable(self._number, delivery, sent.values, _left())
        if sum(batch.get_total_buffer_size() for batch in sent.batches) <= AT_ONCE:
            return cast(T, self._connection.call(request, stream(sent.schema, sent.batches))[0])
        return cast(T, self._connection.put(request, sent.schema, sent.batches))

    def pinned(self) -> AttachedVersion:
        return attached_versions(self._connection, requests.PinTable(self._number, self._connection.holdings.unneeded()))[0]


class AttachedEngine:
    """A warehouse. Holds `engine.protocol.Engine`; made by `attach`. If its owner is `lost`, it stays so: attach again."""

    owns = False
    fenced = False

    def __init__(self, root: Path, connection: Connection) -> None:
        self.root = root
        self.settings: Settings = connection.welcome.settings
        self.recovery: Recovery = connection.welcome.recovery
        self.epoch = connection.welcome.epoch
        self._connection = connection
        self._closed = False

    @property
    def lost(self) -> bool:
        return self._connection.lost

    def forsake(self) -> None:
        pass  # a fork takes no connection along

    def do(self, operation: WarehouseOperation[T], progress: Progress | None = None) -> T:
        request = requests.OnWarehouse(operation)
        if progress is None:
            return cast(T, self._ask(request))
        self._check_open()
        return cast(T, self._connection.follow(request, progress))

    def table(self, name: str) -> AttachedTable:
        return AttachedTable(self._connection, self.settings, self._ask(requests.OpenTable(name)))

    def versions(self, names: Sequence[str]) -> list[AttachedVersion]:
        self._check_open()
        return attached_versions(self._connection, requests.PinTables(tuple(names), self._connection.holdings.unneeded()))

    def create(self, spec: TableSpec, if_exists: str) -> AttachedTable:
        return AttachedTable(self._connection, self.settings, self._ask(requests.CreateTable(spec, if_exists)))

    def _ask(self, request: Any) -> Any:
        self._check_open()
        return self._connection.ask(request)

    def _check_open(self) -> None:
        if self._closed:
            raise self._connection.closed_error()

    def close(self) -> None:
        """Let go of the warehouse; its owner goes on. Results that were asked before can still be read. May be called twice.

        If the owner is lost, whoever still uses this engine goes on to hear just that: another thread may have attached anew.
        """
        self._closed = self._closed or not self.lost
        self._connection.retire()


def _left() -> float | None:
    """What the owner has of this call's time; None: no limit."""
    seconds = deadline.left()
    return None if seconds == math.inf else seconds
