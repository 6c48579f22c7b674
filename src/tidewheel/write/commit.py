"""Commit: what was written becomes part of its table. One thread does it for all tables of a warehouse, in the order it was written.

  3. appear   the files are synced and renamed: nobody knows them yet
  4. commit   one catalog transaction makes them part of their tables
  5. publish  one swap for each table: its version has the chunks and no longer the tree
What is written by the time the thread comes to it is committed together, one commit of each table at most (the next one of the same
table begins with the version that this one makes). So many tables that are flushed at once share the syncs and the transaction. A table
gets all of its commit or nothing, and what goes wrong with one is no other's matter.
A commit also lets go of what nothing is seen of any more (tidy.py); files of chunks that left are deleted after step 5. While nothing
waits, the thread verifies what it committed (ahead.py).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

from tidewheel.catalog.access import CatalogWriter
from tidewheel.env import deadline
from tidewheel.env.clock import Clock
from tidewheel.env.interrupts import Outcome
from tidewheel.env.store import Store
from tidewheel.errors import ConflictError, FencedError, TidewheelError
from tidewheel.index.version import Change, ChunkLike
from tidewheel.model.codes import KeyCoder
from tidewheel.model.pieces import Shape
from tidewheel.model.records import ChunkRecord, Commit, Delivery, MaskRecord, PackageRecord, StreamBatchRecord
from tidewheel.model.schema import TableSpec
from tidewheel.write.ahead import Ahead
from tidewheel.write.pending import Pending, Refresh, Room, failing, remove
from tidewheel.write.publish import FlushJob, Publisher, Reservation
from tidewheel.write.tidy import EVERYWHERE, change_of
from tidewheel.write.touched import labels_of, undone_by

MakeChunk = Callable[[ChunkRecord, TableSpec, Shape, KeyCoder], ChunkLike]
"""The chunk behind a catalog row, for a table of this spec and shape whose codes this coder made."""

MOST = 256
"""Tables that are committed together. Whoever drops a table, or copies a warehouse, waits for that long."""

_PAUSE = 0.001
"""Seconds between two columns that are verified: callers that wait for the lock meanwhile get it."""


@dataclass(slots=True)
class _Step:
    """One table's part in a transaction, and what follows from it."""

    written: Pending
    change: Change
    commit: Commit


class _Keeper:
    """A caller inside of `Committer.keeping`."""


class Committer:
    """Made with the warehouse; its thread runs from `start` to `stop`. Every method may be called from any thread."""

    def __init__(
        self,
        catalog: CatalogWriter,
        files: Store,
        chunk: MakeChunk,
        epoch: int,
        clock: Clock,
        condemn: Callable[[ChunkLike], None] = lambda chunk: chunk.condemn(),
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """`condemn` is told of every chunk that leaves its table: its file goes once no version holds it. `look` raises FencedError if
        this process is not the owner any more.
        """
        self._catalog = catalog
        self._files = files
        self._chunk = chunk
        self._epoch = epoch
        self._clock = clock
        self._condemn = condemn
        self._look = look
        self._keepers: set[weakref.ref[_Keeper]] = set()
        """Those who wait for a picture of all tables in which nothing of an earlier moment is missing: meanwhile nothing leaves.

        A Ctrl-C may come before one has gone from here; then it is gone as soon as nothing holds its frame any more."""
        self._committing = threading.Lock()
        """Held while files appear and a commit is made, so that none is half done when a table is dropped."""
        self._written: SimpleQueue[Pending | None] = SimpleQueue()
        self._next: list[Pending | None] = []
        """Taken from the queue, and to be committed after what is committed now."""
        self._room = Room()
        self._ahead = Ahead()
        self._tables: Callable[[], list[Publisher]] = list
        self._again: Callable[[], None] = lambda: None
        self.thread = threading.Thread(target=self._run, name="tidewheel-commit", daemon=True)

    def start(self, tables: Callable[[], list[Publisher]], again: Callable[[], None]) -> None:
        """`again` is called, by the thread, when a flush could not be committed."""
        self._tables, self._again = tables, again
        self.thread.start()

    def stop(self) -> None:
        """Returns when all that was handed over is committed, or was tried."""
        self._written.put(None)
        self.thread.join()

    # ---- handing over -----------------------------------------------------------------------------------

    def flush(self, publisher: Publisher, records: list[ChunkRecord], job: FlushJob) -> None:
        """Commit the chunks of sealed trees, by and by. Waits while much is written and not committed."""
        pending = Pending(publisher, records, job)
        self._room.take(pending.size)
        self._written.put(pending)

    def load(
        self,
        publisher: Publisher,
        records: list[ChunkRecord],
        masks: tuple[MaskRecord, ...],
        reserved: Reservation | None,
        deliveries: Sequence[Delivery] = (),
        refresh: Refresh | None = None,
        leaving: frozenset[str] = frozenset(),
    ) -> None:
        """Commit chunks that were written, perhaps elsewhere, and masks, in one transaction, then show both in one swap. Chunks that are
        `leaving` have their rows in those that come, and a generation is reserved.

        Returns when they are part of the table. The commit thread does it: an interrupt of the caller cannot come between the two. Without
        a reserved generation the table's stays as it is: nothing of its rows changes.
        """
        assert reserved is not None or not leaving, "chunks leave with a generation of their own"
        done = Outcome()
        pending = Pending(
            publisher, records, masks=masks, deliveries=list(deliveries), refresh=refresh, leaving=leaving, done=done, reserved=reserved
        )
        if reserved is not None:
            reserved.handed_over = True
        self._written.put(pending)  # no call in between: nothing interrupts it
        while not done.wait(min(1.0, deadline.left())):
            if not self.thread.is_alive():  # it was closed meanwhile
                publisher.check_open()
            if deadline.left() <= 0:
                raise deadline.late(f"the commit to table {publisher.spec.name!r} goes on, and may be done or not")

    # ---- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._round():
            pass

    def _round(self) -> bool:
        """Commit what was written by now; False when there is nothing more to come. A method of its own, so that no table is held on to
        while we wait."""
        match self._group():
            case []:
                return False
            case [Pending(tidy=True) as one]:
                self.tidy(one.publisher)
            case group:
                if self._commit_group(group):
                    self._again()
        return True

    def _group(self) -> list[Pending]:
        """What is committed next; nothing if there is nothing more to come."""
        first = self._next.pop() if self._next else self._waited_for()
        if first is None or first.tidy:
            return [first] if first else []
        group, met = [first], {id(first.publisher)}
        with suppress(Empty):
            while len(group) < MOST:
                one = self._take(wait=False)
                if one is None or one.tidy or id(one.publisher) in met:
                    self._next.append(one)
                    break
                group.append(one)
                met.add(id(one.publisher))
        return group

    def _waited_for(self) -> Pending | None:
        while self._ahead:
            try:
                return self._take(wait=False)
            except Empty:
                with self._committing:  # a caller that waits until nothing is under way finds no chunk held here
                    self._ahead.step()
            time.sleep(_PAUSE)
        return self._take(wait=True)

    def _take(self, wait: bool) -> Pending | None:
        one = self._written.get(wait)
        if one is not None and one.job is not None:
            self._room.give(one.size)
        return one

    def _commit_group(self, group: list[Pending]) -> bool:
        """Returns whether a flush failed."""
        try:
            with self._committing:
                self._commit(group)
            failed = any(one.failure is not None and one.job is not None for one in group)
            for one in group:
                self._conclude(one)
        except BaseException as e:  # this thread ends, but nobody is to wait for it for ever
            for one in group:
                if one.done is not None:
                    one.done.tell(e)
            raise
        return failed

    def _conclude(self, one: Pending) -> None:
        """What waits for it is told how it ended; what nobody waits for is tried again."""
        failure, one.failure = one.failure, None  # its traceback leads back to here
        if failure is not None:
            if one.job is not None:
                one.publisher.failed(one.job, failure)
            remove(self._files, one.records)
        if one.reserved is not None:
            one.publisher.settle_generation(one.reserved.generation)
        if one.done is not None:
            done, one.done = one.done, None
            done.tell(failure)

    # ---- steps 3 to 5 -----------------------------------------------------------------------------------

    def _commit(self, group: list[Pending]) -> None:
        """Whatever goes wrong with one of them is its `failure`."""
        began = self._clock.monotonic()
        steps: list[_Step] = []
        with failing(group):
            self._look()  # the folder may be another's
        for one in group if group[0].failure is None else ():
            with failing([one]):
                steps.append(self._prepare(one))
        with failing([step.written for step in steps]):
            for step, failure in zip(steps, self._files.appear_each([[r.file for r in step.commit.add] for step in steps]), strict=True):
                step.written.failure = failure
        steps = _going(steps)
        self._register(steps)
        steps = _going(steps)
        with failing([step.written for step in steps]):
            self._look()  # the catalog may be another's: then the log is all that is left, and stays
        for step in _going(steps):
            with failing([step.written]):
                self._show(step)
                publisher = step.written.publisher
                publisher.metrics.flushes += len(step.commit.add)
                publisher.metrics.flush_seconds += (self._clock.monotonic() - began) / len(group)

    def _prepare(self, one: Pending) -> _Step:
        publisher, job = one.publisher, one.job
        if publisher.dropped:
            publisher.check_open()
        delivered = one.deliveries + (job.deliveries if job else [])
        generation, servers = publisher.version.generation, publisher.placing.new_servers
        chunks = [self.chunk(publisher, r) for r in one.records]  # before the commit: nothing may fail after it
        change = self._change(publisher, chunks, one.masks, job)
        if one.leaving:
            change = self._without(publisher, change, one.leaving)
        divided = publisher.spec.partitions
        if one.refresh is not None:
            labels, undone = one.refresh.labels, undone_by((), divided)
        else:
            labels, undone = labels_of(one.records, publisher.version.hidden, divided), undone_by(one.masks, divided)
        commit = Commit(
            table_id=publisher.table.id, epoch=self._epoch, generation=generation, add=tuple(one.records), remove=tuple(change.remove),
            masks=change.masks, drop_masks=change.drop_masks, horizon=change.horizon, forget=publisher.forgettable(),
            packages=tuple(d for d in delivered if isinstance(d, PackageRecord)),
            batches=tuple(d for d in delivered if isinstance(d, StreamBatchRecord)), servers=servers,
            labels=labels, undone=undone, at=self._clock.now(), refresh=one.refresh.record if one.refresh else None,
        )  # fmt: skip
        return _Step(one, change, commit)

    def _register(self, steps: list[_Step]) -> None:
        """Step 4. If the catalog refuses them together, which changes nothing, each is tried by itself."""
        if not steps:
            return
        try:
            self._catalog.commit(*(step.commit for step in steps))
        except Exception as e:
            alone = len(steps) == 1 or isinstance(e, FencedError)
            same = 0
            for step in steps:
                if not alone and same < 2:  # if it says the same of two tables, it is not about them: the disk is full, say
                    self._register([step])
                    same += str(step.written.failure) == str(e)
                else:
                    step.written.failure = e
        else:
            for step in steps:
                step.written.records = []  # they are the table's by now: whatever fails from here on, nobody removes them

    def _change(
        self, publisher: Publisher, chunks: Sequence[ChunkLike] = (), masks: tuple[MaskRecord, ...] = (), job: FlushJob | None = None
    ) -> Change:
        """What the commit of these makes of the version."""
        version = publisher.version
        if self._is_keeping():
            publisher.untidy = publisher.untidy or bool(version.hidden or masks)
            return Change(tuple(chunks), masks=masks, hidden=version.hidden.plus(masks))
        return change_of(version, chunks, masks, job.views if job else (), EVERYWHERE if publisher.untidy else None)

    def _without(self, publisher: Publisher, change: Change, leaving: frozenset[str]) -> Change:
        """With chunks that leave because their rows come again: at earlier generations, the table cannot be read any more."""
        if self._is_keeping():
            raise ConflictError("a backup has begun while a refresh was being committed; nothing was changed. Refresh again")
        publisher.untidy = publisher.untidy or bool(publisher.version.hidden)  # masks that only they needed
        horizon = max(change.horizon, publisher.version.generation)
        return replace(change, remove=change.remove | leaving, horizon=horizon, everywhere=False)

    def _show(self, step: _Step) -> None:
        """Step 5, and what follows from it: files of chunks that left are condemned, the log is trimmed."""
        publisher, change, commit = step.written.publisher, step.change, step.commit
        gone = [chunk for chunk in (*publisher.version.chunks, *change.add) if chunk.record.id in change.remove] if change.remove else []
        if step.written.refresh is not None:
            step.written.refresh.done(step.written.refresh.record)
        if publisher.labels is not None:  # before the swap: whoever waited for that plans with these
            job = step.written.job
            came = self._clock.wall(min(view.tree.born for view in job.views)) if job and job.views else commit.at
            publisher.labels = publisher.labels.raised(commit.labels, commit.undone, commit.generation, commit.at, came)
        publisher.committed(commit.generation, step.written.job, change, commit.servers)
        left = [last for last in publisher.removed if last > commit.forget]
        publisher.removed = left + [chunk.record.generation_hi for chunk in gone]
        publisher.untidy = publisher.untidy and not change.everywhere
        for chunk in gone:
            self._condemn(chunk)
        publisher.trim_log()
        for chunk in change.add:
            with suppress(TidewheelError):  # which the first query that needs the chunk is told
                chunk.enter(displace=False)  # here, so that no query has to wait for it
        if step.written.job is not None or step.written.refresh is not None:  # else they may have been written elsewhere
            self._ahead.add(change.add)

    # ---- what others commit -----------------------------------------------------------------------------

    def tidy(self, publisher: Publisher) -> None:
        """Let chunks and masks go that nothing needs, wherever they are in a table. If that fails, a later commit does it."""
        with self._committing, suppress(TidewheelError):
            if publisher.dropped or not publisher.untidy or self._is_keeping():
                return
            change = self._change(publisher)
            commit = Commit(
                table_id=publisher.table.id, epoch=self._epoch, generation=publisher.version.generation, remove=tuple(change.remove),
                drop_masks=change.drop_masks, horizon=change.horizon, forget=publisher.forgettable(),
            )  # fmt: skip
            if change or commit.forget:
                self._look()
                self._catalog.commit(commit)
                self._look()
            self._show(_Step(Pending(publisher, []), change, commit))

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """While this is held, no chunk and no mask leaves its table: whatever was there at an earlier generation still is."""
        keeper = _Keeper()
        mine = weakref.ref(keeper)
        try:
            with self._committing:  # a commit that began before may still let something go
                self._keepers.add(mine)
            yield
        finally:
            self._keepers.discard(mine)  # in one step: an interrupt can come behind it, and is none too early
            for publisher in self._tables():  # by the commit thread: no interrupt comes between its commit and its swap
                self._written.put(Pending(publisher, [], tidy=True))

    def _is_keeping(self) -> bool:
        return any(one() is not None for one in tuple(self._keepers))

    def commit_package(self, publisher: Publisher, package: PackageRecord) -> None:
        """Record a package that brought no rows."""
        with self._committing:
            generation = publisher.version.generation
            self._look()
            self._catalog.commit(Commit(publisher.table.id, self._epoch, generation, packages=(package,)))
            self._look()
        publisher.recorded(generation)

    @contextmanager
    def still(self) -> Iterator[None]:
        """No commit is under way while this is held, and none begins: files, catalog and versions agree."""
        with self._committing:
            yield

    def drop(self, publisher: Publisher, drop: Callable[[], list[ChunkRecord]]) -> list[ChunkRecord]:
        """Drop a table from the catalog while no commit of it is under way; what is sealed will never be committed."""
        with self._committing:
            records = drop()
            publisher.drop()
        return records

    def chunk(self, publisher: Publisher, record: ChunkRecord) -> ChunkLike:
        return self._chunk(record, publisher.spec, publisher.shape, publisher.coders.of(record.prefix))


def _going(steps: list[_Step]) -> list[_Step]:
    return [step for step in steps if step.written.failure is None]
