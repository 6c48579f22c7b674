"""Batches of streams, made of slices: staged by many tasks, published by one commit, at most once each.

A slice is accepted and placed when it is staged; nobody sees it, and it dies with this process. `commit` publishes the slices it names
as one batch, in one log record group that carries (stream, batch); the flush that commits their chunks puts it into the catalog. A slice
that is as large as a chunk was written as one by its task: a batch with such slices needs no log, one catalog transaction has it all. So
a batch is known from the moment its rows are, and a crash forgets both or neither. The batches of a stream come in order: its last one
says it for all before, and a replayed batch may be cut into slices differently, so nothing smaller than a batch is compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from tidewheel.catalog.access import CatalogReader
from tidewheel.env.expiring import Expiring
from tidewheel.errors import InputError, NotSyncedError, StagingLostError
from tidewheel.model.dead_letters import HIDDEN, ORIGIN, split
from tidewheel.model.delivery import Ack, SliceId, Staged, Written
from tidewheel.model.records import PackageRecord, StreamBatchRecord
from tidewheel.write.accept import Acceptor, Rejected
from tidewheel.write.arrow_input import by_name
from tidewheel.write.bulk_loads import Loads
from tidewheel.write.packages import Packages
from tidewheel.write.place import Placed
from tidewheel.write.publish import Publisher
from tidewheel.write.rejects import rejects_batch
from tidewheel.write.soundness import settled_rows, unreadable_text

EXPIRES = 3600.0
"""Seconds after which a slice that nobody committed is dropped: its run is dead."""

RUNS = 16
"""Runs of a stream that are remembered, so that tasks of an old one are told from those of a new one."""

STREAMS = 1000
"""Streams of a table whose runs are remembered: the most recent ones."""

AWAITED = 600.0
"""Seconds that an owner which nobody else uses waits for the commit of a slice."""


class KeepRejects(Protocol):
    """Gives the publisher and the streams of a table's rejects, which are made when first needed."""

    def __call__(self) -> tuple[Publisher, Streams]: ...


@dataclass(slots=True)
class HeldRows:
    """A slice that was taken in, or a file."""

    placed: list[Placed]
    rejected: list[Rejected]
    rows: int
    bytes: int


class Streams:
    """The streams of one table. Every method may be called from any thread."""

    def __init__(
        self,
        publisher: Publisher,
        acceptor: Acceptor,
        catalog: CatalogReader,
        rejects: KeepRejects,
        packages: Packages,
        loads: Loads,
    ) -> None:
        self._publisher = publisher
        self._loads = loads
        self._packages = packages
        self._acceptor = acceptor
        self._catalog = catalog
        self._rejects = rejects
        # bad rows of a load wait as long as it takes
        self._staged: Expiring[SliceId, HeldRows] = Expiring(publisher.clock, EXPIRES, stays=lambda slice_id: loads.knows(slice_id.run))
        self._runs: dict[str, list[str]] = {}
        """The last runs of each stream, in the order they were first seen."""
        self._lock = threading.Lock()
        """Guards the runs: a slice is staged only while its run is known to be the newest."""
        self._turn = threading.Lock()
        """Batches are committed one after the other: whoever is told "duplicate" can rely on the first one being in."""
        self._last: dict[str, int] = {}
        """The last visible batch of each stream that was asked for."""
        self._unsynced: set[str] = set()
        """Streams whose last batch is visible, but may not survive a power failure yet."""

    # ---- staging ----------------------------------------------------------------------------------------

    def stage(self, slice_id: SliceId, batches: Iterable[pa.RecordBatch]) -> Staged:
        """Take a slice in. The same slice again takes the place of the first; a newer run of a stream drops the slices of older ones,
        and those can stage no more."""
        self._enter(slice_id)
        held = self.take(batches, lambda held: self._check_room(slice_id, held))
        with self._lock:
            self._check_current(slice_id.stream, slice_id.run)
            self._staged.put(slice_id, held)
        return Staged(held.rows, len(held.rejected))

    def take(self, batches: Iterable[pa.RecordBatch], check: Callable[[HeldRows], None]) -> HeldRows:
        """Accept and place rows that nobody sees yet. Bad ones, and dead letters, are kept apart. `check` is asked after each batch."""
        publisher = self._publisher
        held = HeldRows([], [], 0, 0)
        position = 0
        for batch in batches:
            unreadable = unreadable_text(batch, publisher.spec.name)
            batch = settled_rows(batch)
            if hidden := unreadable.intersection(HIDDEN):
                raise InputError(f"table {publisher.spec.name!r}: {min(hidden)} of a dead letter is not UTF-8 text; nothing was taken")
            good, letters = split(batch, position)
            held.rejected += [Rejected(x.position, x.column, x.reason, x.raw, x.origin or None) for x in letters]
            held.bytes += sum(len(x.raw) for x in letters)
            if good.num_rows:
                accepted = self._acceptor.accept(by_name(good, publisher.spec, unreadable) if unreadable else good, "reject")
                if accepted.rejected:
                    held.rejected += _placed_back(accepted.rejected, batch, position, {x.position - position for x in letters})
                for rows in accepted.batches:
                    placed = publisher.place(rows)
                    held.placed += placed
                    held.rows += rows.num_rows
                    held.bytes += sum(run.bytes for _, _, run in placed)
            position += batch.num_rows
            check(held)
        return held

    def _check_room(self, slice_id: SliceId, held: HeldRows) -> None:
        """A batch becomes visible at once, so all of it is in memory at once."""
        most = self._publisher.settings.max_batch_bytes
        # without attempts whose place this one may take
        size = held.bytes + sum(one.bytes for id_, one in self._staged.items() if _beside(id_, slice_id))
        if size > most:
            raise InputError(
                f"table {self._publisher.spec.name!r}: batch {slice_id.batch} of stream {slice_id.stream} has more than {most:,} bytes of "
                "rows. Let each batch have less (Kafka: maxOffsetsPerTrigger, files: maxFilesPerTrigger), raise Settings.max_batch_bytes, "
                "or load history in bulk with df.write"
            )

    def _enter(self, incoming: SliceId) -> None:
        """A run that was never seen is the newest of its stream. Drops what older runs left, and what nobody will commit any more."""
        with self._lock:
            runs = self._runs.setdefault(incoming.stream, [])
            if incoming.run not in runs:
                runs.append(incoming.run)
                del runs[:-RUNS]
                while len(self._runs) > STREAMS:
                    del self._runs[next(iter(self._runs))]
            self._check_current(incoming.stream, incoming.run)
            self._staged.drop(lambda id_: id_.stream == incoming.stream and id_.run != incoming.run)
            self._staged.sweep()

    def _check_current(self, stream: str, run: str) -> None:
        """Called with the lock held."""
        runs = self._runs.get(stream, [])
        if run in runs and run != runs[-1]:
            raise StagingLostError(f"table {self._publisher.spec.name!r}: stream {stream} was started again; this run of it is over")

    def abort(self, stream: str, run: str, batch: int) -> None:
        """Drop what was staged for a batch."""
        self._staged.drop(lambda id_: (id_.stream, id_.run, id_.batch) == (stream, run, batch))

    @property
    def awaited(self) -> bool:
        """Whether slices wait for a commit that can still be expected."""
        return self._staged.touched_within(AWAITED)

    # ---- committing -------------------------------------------------------------------------------------

    def commit(self, stream: str, run: str, batch: int, slices: Sequence[SliceId], written: Sequence[Written] = ()) -> Ack:
        """Publish these slices as one batch."""
        with self._turn:
            with self._lock:
                self._check_current(stream, run)
            if self.reached(stream, batch):
                ack = Ack(0, 0, self._publisher.version.generation, duplicate=True)
            else:
                parts = {one: self._slice(one) for one in slices}
                ack = self._load(stream, batch, parts, written) if written else self._deliver(stream, batch, parts)
            self._staged.drop(lambda id_: id_.stream == stream and id_.batch <= batch)
            for one in written:
                self._loads.abort(one.job)
            return ack

    def _load(self, stream: str, batch: int, parts: dict[SliceId, HeldRows], written: Sequence[Written]) -> Ack:
        """Publish a batch of which some slices are chunks already; packages are never among them."""
        assert not any(one.package for one in parts)
        for one in written:
            self._loads.check(one.job)
        rejected = self._keep_rejects(stream, batch, parts)
        placed = [one for part in parts.values() for one in part.placed]
        rows = sum(part.rows for part in parts.values()) + sum(one.rows for one in written)
        try:
            generation = self._loads.deliver(written, placed, [StreamBatchRecord(stream, batch, 0, rows)], rows)
        except BaseException:
            self._last.pop(stream, None)  # it may be in the catalog: whoever asks next looks
            raise
        self._last[stream] = batch
        return Ack(rows, rejected, generation)

    def _deliver(self, stream: str, batch: int, parts: dict[SliceId, HeldRows]) -> Ack:
        """Publish a batch without those of its packages that were loaded before."""
        names = {one.package for one in parts if one.package}
        if not names:
            return self._publish(stream, batch, parts, ())
        with self._packages.turn(names) as new:
            parts = {one: part for one, part in parts.items() if not one.package or one.package in new}
            records = tuple(_package(name, [part for one, part in parts.items() if one.package == name]) for name in sorted(new))
            rows = sum(part.rows for part in parts.values())
            return self._packages.load(records, rows, lambda: self._publish(stream, batch, parts, records))

    def _publish(self, stream: str, batch: int, parts: dict[SliceId, HeldRows], packages: tuple[PackageRecord, ...]) -> Ack:
        placed = [one for part in parts.values() for one in part.placed]
        rows = sum(part.rows for part in parts.values())
        rejected = self._keep_rejects(stream, batch, parts)
        if not placed:
            return Ack(0, rejected, self._publisher.version.generation)
        return Ack(rows, rejected, self._visible(stream, batch, placed, rows, packages))

    def _keep_rejects(self, stream: str, batch: int, parts: dict[SliceId, HeldRows]) -> int:
        """Before all else: if what follows fails the batch comes again, and the rejects know that they have been there."""
        rejected = sum(len(part.rejected) for part in parts.values())
        if rejected:
            publisher, streams = self._rejects()
            now, schema = publisher.clock.now(), publisher.spec.schema
            bad = [rejects_batch(part.rejected, now, schema, one.package or None, stream, batch) for one, part in parts.items()]
            streams.insert_once(stream, batch, pa.concat_batches(bad))
            self._publisher.metrics.rejected += rejected
        return rejected

    def insert_once(self, stream: str, batch: int, data: pa.RecordBatch) -> None:
        """Insert a batch that was never staged, unless it is there."""
        with self._turn:
            if not self.reached(stream, batch):
                self._visible(stream, batch, self._publisher.place(data), data.num_rows)

    def _visible(self, stream: str, batch: int, placed: list[Placed], rows: int, packages: tuple[PackageRecord, ...] = ()) -> int:
        record = StreamBatchRecord(stream, batch, 0, rows)
        try:
            generation = self._publisher.insert_placed(placed, (record, *packages))
        except BaseException as e:  # the log could not be synced, or the wait for it was interrupted
            self._last.pop(stream, None)
            if self.last(stream) == batch and (isinstance(e, NotSyncedError) or not isinstance(e, Exception)):
                self._unsynced.add(stream)  # it is there, and must not come again
            raise
        self._last[stream] = batch
        return generation

    def reached(self, stream: str, batch: int) -> bool:
        """Whether a batch was committed. Whoever is told so must be able to rely on it, so what may not last is flushed first."""
        last = self.last(stream)
        if last is None or batch > last:
            return False
        if stream in self._unsynced:
            self._publisher.wait_flushed(self._publisher.seal())
            self._unsynced.discard(stream)
        return True

    def last(self, stream: str) -> int | None:
        """The last batch of a stream that was committed: in the catalog, or in a tree."""
        if stream not in self._last:
            fresh = self._publisher.reached(stream)  # first: what leaves its tree meanwhile is in the catalog by then
            known = self._catalog.last_batch(self._publisher.table.id, stream)
            found = [batch for batch in (known.batch if known else None, fresh) if batch is not None]
            if not found:
                return None
            self._last.setdefault(stream, max(found))  # a commit may have come meanwhile
        return self._last[stream]

    def _slice(self, slice_id: SliceId) -> HeldRows:
        found = self._staged.get(slice_id)
        if found is None:
            raise StagingLostError(
                f"table {self._publisher.spec.name!r}: slice {slice_id.partition} (attempt {slice_id.attempt}) of batch {slice_id.batch} "
                "is not with this owner: it was restarted since, or the slice waited too long. Nothing was inserted; send the batch again"
            )
        return found


def _beside(one: SliceId, other: SliceId) -> bool:
    """Whether two slices can be parts of one batch."""
    whole = (one.stream, one.run, one.batch) == (other.stream, other.run, other.batch)
    return whole and (one.partition, one.package) != (other.partition, other.package)


def _package(name: str, parts: list[HeldRows]) -> PackageRecord:
    return PackageRecord(name, 0, sum(part.rows for part in parts), sum(len(part.rejected) for part in parts))


def _placed_back(refused: list[Rejected], batch: pa.RecordBatch, start: int, letters: set[int]) -> list[Rejected]:
    """Rows that the table refuses, with their places in the slice and where they came from: dead letters stood between them."""
    places = [i for i in range(batch.num_rows) if i not in letters]
    origins = batch.column(ORIGIN) if ORIGIN in batch.schema.names else None
    return [
        replace(one, position=start + place, origin=None if origins is None else origins[place].as_py())
        for one in refused
        for place in (places[one.position],)
    ]
