"""The engine of a warehouse that another process owns: it holds the same protocol as the owner's own, and has the same answers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidewheel.cluster import requests as ask
from tidewheel.cluster.attached_result import AttachedResult
from tidewheel.cluster.attached_versions import AttachedVersion, attached_versions
from tidewheel.cluster.connection import Connection
from tidewheel.cluster.wire import stream
from tidewheel.env import deadline
from tidewheel.env.deadline import Within
from tidewheel.errors import InputError
from tidewheel.metrics import TableMetrics
from tidewheel.model.delivery import Ack, Load, Pin, ServerState, SliceId, Staged, StreamState, TableState, Written
from tidewheel.model.query import Query
from tidewheel.model.recovery import Recovery
from tidewheel.model.report import BackupReport, CheckReport, Progress
from tidewheel.model.schema import TableSpec
from tidewheel.read.result import Result
from tidewheel.settings import Settings

if TYPE_CHECKING:
    from tidewheel.cluster.insert_rows import Outgoing
    from tidewheel.read.planner import Planner
    from tidewheel.write.accept import Acceptor

AT_ONCE = 256 << 10
"""Bytes of rows that go with their request; more go in a stream, which takes a way there and back more."""


class AttachedTable:
    """One table. Holds `engine.protocol.TableEngine`; every method may be called from any thread.

    What takes its time to load is imported where it is used: a Spark worker that only stages rows starts without it.
    """

    def __init__(self, connection: Connection, settings: Settings, opened: ask.Opened) -> None:
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

    # ---- what users do ----------------------------------------------------------------------------------

    def insert(self, data: Any, package: str | None, on_bad: str) -> Ack:
        rows = self._outgoing(data)
        return self._send(ask.Insert(self._number, package, on_bad, rows.values, _left()), rows)

    def replace(self, data: Any, time: Any) -> Ack:
        rows = self._outgoing(data)
        return self._send(ask.Replace(self._number, time, rows.values, _left()), rows)

    def _outgoing(self, data: Any) -> Outgoing:
        from tidewheel.cluster.insert_rows import outgoing

        return outgoing(data, self.spec, self._acceptor)

    def _send(self, request: Any, rows: Outgoing) -> Ack:
        if sum(batch.get_total_buffer_size() for batch in rows.batches) <= AT_ONCE:
            ack: Ack = self._connection.call(request, stream(rows.schema, rows.batches))[0]
        else:
            ack = self._connection.put(request, rows.schema, rows.batches)
        return ack

    def query(self, query: Query) -> Result:
        if callable(query.where):
            from tidewheel.cluster.filtered_result import FilteredResult

            return FilteredResult(self._planner, query, self._bounded)
        return self._bounded(query)

    def _bounded(self, query: Query) -> AttachedResult:
        return self._result(ask.Ask(self._number, _plain(query)), timeout=query.timeout)

    def rejects(self, ordered: bool = True) -> Result:
        from tidewheel.write.rejects import rejects_spec

        return self._result(ask.Rejects(self._number, ordered), rejects_spec(self.spec.name))

    def _result(self, request: Any, spec: TableSpec | None = None, timeout: Any = None) -> AttachedResult:
        seconds = self._connection.seconds(timeout)
        with Within(seconds):
            answer = self._connection.call(request)
        return AttachedResult(self._connection, spec or self.spec, seconds, *answer)

    def flush(self) -> None:
        self._connection.ask(ask.Flush(self._number))

    def state(self) -> TableState:
        return self._connection.ask(ask.GetState(self._number))  # type: ignore[no-any-return]

    def metrics(self) -> TableMetrics:
        return self._connection.ask(ask.GetMetrics(self._number))  # type: ignore[no-any-return]

    def server_states(self) -> list[ServerState]:
        return self._connection.ask(ask.GetServers(self._number))  # type: ignore[no-any-return]

    def stream_states(self) -> list[StreamState]:
        return self._connection.ask(ask.GetStreams(self._number))  # type: ignore[no-any-return]

    def pinned(self) -> AttachedVersion:
        return attached_versions(self._connection, ask.PinTable(self._number, self._connection.holdings.unneeded()))[0]

    # ---- written by many --------------------------------------------------------------------------------

    def stage(self, slice_id: SliceId, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Staged:
        from tidewheel.write.soundness import check_lengths

        safe = (check_lengths(batch, self.spec.name) for batch in batches)  # Flight ends the process that sends what it has not
        return self._connection.put(ask.Stage(self._number, slice_id), schema, safe)  # type: ignore[no-any-return]

    def commit_batch(self, stream: str, run: str, batch: int, slices: Sequence[SliceId], written: Sequence[Written] = ()) -> Ack:
        asked = ask.CommitBatch(self._number, stream, run, batch, tuple(slices), tuple(written))
        return self._connection.ask(asked)  # type: ignore[no-any-return]

    def abort_batch(self, stream: str, run: str, batch: int) -> None:
        self._connection.ask(ask.AbortBatch(self._number, stream, run, batch))

    def last_batch(self, stream: str) -> int | None:
        return self._connection.ask(ask.LastBatch(self._number, stream))  # type: ignore[no-any-return]

    def begin_load(self) -> Load:
        return self._connection.ask(ask.BeginLoad(self._number))  # type: ignore[no-any-return]

    def commit_load(self, job: str, written: Sequence[Written], overwrite: bool) -> Ack:
        return self._connection.ask(ask.CommitLoad(self._number, job, tuple(written), overwrite))  # type: ignore[no-any-return]

    def abort_load(self, job: str) -> None:
        self._connection.ask(ask.AbortLoad(self._number, job))

    # ---- read by many -----------------------------------------------------------------------------------

    def pin(self, query: Query) -> Pin:
        return self._connection.ask(ask.TakePin(self._number, _plain(query)))  # type: ignore[no-any-return]

    def fresh(self, pin: str, query: Query) -> Result:
        return self._result(ask.Fresh(self._number, pin, _plain(query)), timeout=query.timeout)

    def touch(self, pin: str, part: int, parts: int) -> None:
        self._connection.ask(ask.Touch(self._number, pin, part, parts))

    def unpin(self, pin: str) -> None:
        self._connection.ask(ask.Unpin(self._number, pin))

    def generation(self) -> int:
        return self._connection.ask(ask.GetGeneration(self._number))  # type: ignore[no-any-return]

    def rows_by_generation(self, after: int, upto: int | None, most: int | None) -> list[tuple[int, int]]:
        found = self._connection.ask(ask.CountChanges(self._number, after, upto, most))
        return [(generation, rows) for generation, rows in found]

    def changes(self, after: int, upto: int, columns: Sequence[str] | None) -> Result:
        return self._result(ask.Changes(self._number, after, upto, None if columns is None else tuple(columns)))


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

    def tables(self) -> list[str]:
        return self._ask(ask.ListTables())  # type: ignore[no-any-return]

    def table(self, name: str) -> AttachedTable:
        return AttachedTable(self._connection, self.settings, self._ask(ask.OpenTable(name)))

    def versions(self, names: Sequence[str]) -> list[AttachedVersion]:
        self._check_open()
        return attached_versions(self._connection, ask.PinTables(tuple(names), self._connection.holdings.unneeded()))

    def create(self, spec: TableSpec, if_exists: str) -> AttachedTable:
        return AttachedTable(self._connection, self.settings, self._ask(ask.CreateTable(spec, if_exists)))

    def drop(self, name: str) -> None:
        self._ask(ask.DropTable(name))

    def check(self, repair: bool, progress: Progress | None) -> CheckReport:
        return self._long(ask.Check(repair), progress)  # type: ignore[no-any-return]

    def backup(self, folder: str | os.PathLike[str], verify: str, progress: Progress | None) -> BackupReport:
        try:
            place = str(Path(folder).expanduser().resolve())
        except (TypeError, ValueError, RuntimeError, OSError) as e:
            raise InputError(f"{folder!r} cannot be the folder of a backup: {e}") from None
        return self._long(ask.Backup(place, verify), progress)  # type: ignore[no-any-return]

    def _long(self, request: Any, progress: Progress | None) -> Any:
        if progress is None:
            return self._ask(request)
        self._check_open()
        return self._connection.follow(request, progress)

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


def _plain(query: Query) -> Query:
    """With what the owner would iterate over as a list: only lists and tuples cross."""
    columns: Any = query.columns
    if columns is None or isinstance(columns, (str, list, tuple)) or not isinstance(columns, Iterable):
        return query
    return replace(query, columns=list(columns))
