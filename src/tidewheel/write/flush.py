"""Flush: turn sealed trees into chunks, in the background, without stopping inserts.

The order is what makes a crash harmless at any point:
  1. seal     the tree takes no more rows (publish.py)
  2. write    rows in leaf and time order, into a file under a temporary name
  3. appear   the file is synced and renamed: nobody knows it yet
  4. commit   one catalog transaction makes it part of the table
  5. publish  one swap: the version has the chunk and no longer the tree
A commit also lets go of what nothing is seen of any more (tidy.py); files of chunks that left are deleted after step 5.
Step 2 is work for a processor, steps 3 to 5 mostly wait for the disk. They run in threads of their own, so that the
next tree is written while the last one is synced. Jobs are taken in the order they were sealed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from tidewheel.catalog.protocol import CatalogWriter
from tidewheel.env import deadline
from tidewheel.env.clock import Clock
from tidewheel.env.files import LocalFiles
from tidewheel.env.interrupts import Bell, Outcome
from tidewheel.errors import TidewheelError
from tidewheel.index.run import Run
from tidewheel.index.template import Template
from tidewheel.index.tree import Tree, TreeView
from tidewheel.index.version import Change, ChunkLike
from tidewheel.model.codes import KeyCoder
from tidewheel.model.pieces import Shape
from tidewheel.model.records import ChunkRecord, Commit, Delivery, MaskRecord, PackageRecord, ServerRecord, StreamBatchRecord
from tidewheel.model.schema import TableSpec
from tidewheel.settings import Settings
from tidewheel.write.publish import FlushJob, Publisher, Reservation
from tidewheel.write.templates import better_template
from tidewheel.write.tidy import EVERYWHERE, change_of

if TYPE_CHECKING:
    from tidewheel.write.arrange import Arranger

RETRY_SECONDS = 1.0

WRITERS = 2
"""Threads that write chunks. While inserts wait for room, both of two cores have something to do."""

MakeChunk = Callable[[ChunkRecord, TableSpec, Shape, KeyCoder], ChunkLike]
"""The chunk behind a catalog row, for a table of this spec and shape whose codes this coder made."""


@dataclass(slots=True)
class Written:
    """Chunks that are written under their temporary names, and what is to be committed with them."""

    publisher: Publisher
    records: list[ChunkRecord]
    job: FlushJob | None = None
    mask: MaskRecord | None = None
    deliveries: list[Delivery] = field(default_factory=list)
    done: Outcome | None = None
    """Somebody waits for it; a flush is tried again instead."""
    reserved: Reservation | None = None
    tidy: bool = False
    """Nothing was written: only what nothing needs is to go."""


class Flusher:
    """The background threads of a warehouse: some write (the first also seals what is old and re-divides what is skewed), one commits."""

    def __init__(
        self,
        catalog: CatalogWriter,
        files: LocalFiles,
        chunk: MakeChunk,
        epoch: int,
        settings: Settings,
        clock: Clock,
        condemn: Callable[[ChunkLike], None] = lambda chunk: chunk.condemn(),
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """`condemn` is told of every chunk that leaves its table: its file goes once no version holds it. `look` raises FencedError if
        this process is not the owner any more.
        """
        self._catalog = catalog
        self._look = look
        self._files = files
        self._chunk = chunk
        self._condemn = condemn
        self._keeping: set[object] = set()
        """Those who wait for a picture of all tables in which nothing of an earlier moment is missing: meanwhile nothing leaves."""
        self._epoch = epoch
        self._settings = settings
        self._clock = clock
        self._tables: Callable[[], list[Publisher]] = list
        self._wakes = [Bell() for _ in range(WRITERS)]
        self._written: SimpleQueue[Written | None] = SimpleQueue()
        self._room = threading.Semaphore(2)
        """Jobs that may be written and not committed: a writer waits for it before it hands over another."""
        self._stop = False
        self._threads: list[threading.Thread] = []
        self._committing = threading.Lock()
        """Held while files appear and a commit is made, so that none is half done when a table is dropped."""
        self._arrangers: list[Arranger] = []
        """Those that nobody uses now; each keeps the memory it works in."""

    def start(self, tables: Callable[[], list[Publisher]]) -> None:
        self._tables = tables
        self._threads = [
            *(threading.Thread(target=self._write_loop, args=(n,), name=f"tidewheel-write-{n}", daemon=True) for n in range(WRITERS)),
            threading.Thread(target=self._commit_loop, name="tidewheel-commit", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self.wake()  # recovery may have left work

    def wake(self) -> None:
        for bell in self._wakes:
            bell.ring()

    def halt(self) -> None:
        """Begin nothing more: this process is not the owner any more."""
        self._stop = True
        self.wake()

    def stop(self) -> None:
        """Returns when all threads have ended; jobs they did not come to stay where they are."""
        self.halt()
        for thread in self._threads[:-1]:
            thread.join()
        self._written.put(None)
        self._threads[-1].join()

    # ---- writing ----------------------------------------------------------------------------------------

    def _write_loop(self, number: int) -> None:
        bell = self._wakes[number]
        while not self._stop:
            bell.wait(min(1.0, self._settings.flush_after / 4))
            self._write_round(number)

    def _write_round(self, number: int) -> None:
        """One look at all tables. A method of its own, so that no table is held on to while we wait."""
        more = True
        while more and not self._stop:
            more = False
            for publisher in self._tables():
                if number == 0:
                    self._look_after(publisher)
                # one job per table and turn: a table that never stops must not starve the others
                if not self._stop and (job := publisher.next_job()) is not None:
                    more = True
                    self._write_job(publisher, job)

    def _look_after(self, publisher: Publisher) -> None:
        try:
            publisher.redivide()
            publisher.seal(self._settings.flush_after)
        except Exception as e:  # this thread must live; the next flush that works clears the failure
            publisher.failed(None, e)

    def _write_job(self, publisher: Publisher, job: FlushJob) -> None:
        records: list[ChunkRecord] = []
        try:
            for view in job.views:
                self._adapt(publisher, view)
                records += self.write(publisher, view)
            self._room.acquire()
            self._written.put(Written(publisher, records, job))
        except Exception as e:  # whatever it is: the rows stay in memory, inserts and flush() report it, and we try again
            self._give_up(publisher, job, records, e)

    def _give_up(self, publisher: Publisher, job: FlushJob | None, records: list[ChunkRecord], e: Exception) -> None:
        publisher.failed(job, e)
        self._remove(records)
        if not self._stop:
            time.sleep(RETRY_SECONDS)
            self.wake()

    def _remove(self, records: list[ChunkRecord]) -> None:
        """Remove files that were not committed. Where that fails too, the next open of the warehouse sweeps them."""
        with suppress(Exception):
            for record in records:
                self._files.remove(record.file)

    # ---- committing -------------------------------------------------------------------------------------

    def _commit_loop(self) -> None:
        while self._commit_one(self._written.get()):
            pass

    def _commit_one(self, written: Written | None) -> bool:
        """Commit what was written; False when there is nothing more to come."""
        if written is None:
            return False
        if written.job is not None:
            self._room.release()
        if written.tidy:
            self.tidy(written.publisher)
            return True
        try:
            with self._committing:
                if written.publisher.dropped:
                    written.publisher.check_open()
                self._commit(written)
        except Exception as e:  # as above; what waits for it gets it, what nobody waits for is tried again
            if written.done is None:
                self._give_up(written.publisher, written.job, written.records, e)
            else:
                try:
                    self._remove(written.records)
                    self._settle(written)
                finally:
                    written.done.tell(e)
        except BaseException as e:  # this thread ends, but nobody is to wait for it for ever
            if written.done is not None:
                written.done.tell(e)
            raise
        else:
            if written.done is not None:
                self._settle(written)
                written.done.tell()
        return True

    @staticmethod
    def _settle(written: Written) -> None:
        if written.reserved is not None:
            written.publisher.settle_generation(written.reserved.generation)

    def _commit(self, written: Written) -> None:
        """Steps 3 to 5. If this raises, the caller removes the files that `written` still names: none, once they may be committed."""
        began = self._clock.monotonic()
        publisher, records, job = written.publisher, written.records, written.job
        servers = publisher.placing.new_servers
        delivered = written.deliveries + (job.deliveries if job else [])
        generation = publisher.version.generation
        chunks = [self.chunk(publisher, r) for r in records]  # before the commit: nothing may fail after it
        self._look()  # the folder may be another's
        keeping = bool(self._keeping)
        change = self._change(publisher, keeping, chunks, (written.mask,) if written.mask else (), job)
        forget = publisher.forgettable()
        self._files.appear([r.file for r in records])
        self._catalog.commit(
            Commit(
                table_id=publisher.table.id, epoch=self._epoch, generation=generation, add=tuple(records), remove=tuple(change.remove),
                masks=change.masks, drop_masks=change.drop_masks, horizon=change.horizon, forget=forget,
                packages=tuple(d for d in delivered if isinstance(d, PackageRecord)),
                batches=tuple(d for d in delivered if isinstance(d, StreamBatchRecord)), servers=servers,
            )
        )  # fmt: skip
        written.records = []  # they are the table's by now: whatever fails from here on, nobody removes them
        self._look()  # the catalog may be another's: then the log is all that is left, and stays
        self._show(publisher, generation, job, change, forget, keeping, servers)
        publisher.metrics.flushes += len(records)
        publisher.metrics.flush_seconds += self._clock.monotonic() - began

    def _change(
        self,
        publisher: Publisher,
        keeping: bool,
        chunks: Sequence[ChunkLike] = (),
        masks: tuple[MaskRecord, ...] = (),
        job: FlushJob | None = None,
    ) -> Change:
        """What the commit of these makes of the version."""
        version = publisher.version
        if keeping:
            publisher.untidy = publisher.untidy or bool(version.hidden or masks)
            return Change(tuple(chunks), masks=masks, hidden=version.hidden.plus(masks))
        return change_of(version, chunks, masks, job.views if job else (), EVERYWHERE if publisher.untidy else None)

    def _show(
        self,
        publisher: Publisher,
        generation: int,
        job: FlushJob | None,
        change: Change,
        forget: int,
        keeping: bool,
        servers: tuple[ServerRecord, ...] = (),
    ) -> None:
        """Step 5, and what follows from it: files of chunks that left are condemned, the log is trimmed."""
        gone = [chunk for chunk in (*publisher.version.chunks, *change.add) if chunk.record.id in change.remove] if change.remove else []
        publisher.committed(generation, job, change, servers)
        publisher.removed = [last for last in publisher.removed if last > forget] + [chunk.record.generation_hi for chunk in gone]
        publisher.untidy = publisher.untidy and keeping
        for chunk in gone:
            self._condemn(chunk)
        publisher.trim_log()

    def tidy(self, publisher: Publisher) -> None:
        """Let chunks and masks go that nothing needs, wherever they are in a table. If that fails, a later commit does it."""
        with self._committing, suppress(TidewheelError):
            if publisher.dropped or not publisher.untidy or self._keeping:
                return
            generation, change, forget = publisher.version.generation, self._change(publisher, False), publisher.forgettable()
            if change or forget:
                self._look()
                self._catalog.commit(
                    Commit(
                        table_id=publisher.table.id, epoch=self._epoch, generation=generation, remove=tuple(change.remove),
                        drop_masks=change.drop_masks, horizon=change.horizon, forget=forget,
                    )
                )  # fmt: skip
                self._look()
            self._show(publisher, generation, None, change, forget, False)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """While this is held, no chunk and no mask leaves its table: whatever was there at an earlier generation still is."""
        mine = object()
        try:
            self._keeping.add(mine)
            with self._committing:  # a commit that did not know of it is over
                pass
            yield
        finally:
            self._keeping.discard(mine)  # first, and in one step: an interrupt can come behind it, and is none too early
            for publisher in self._tables():  # by the commit thread: no interrupt comes between its commit and its swap
                self._written.put(Written(publisher, [], tidy=True))

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

    def replace(self, publisher: Publisher, view: TreeView | None, mask: MaskRecord, reserved: Reservation) -> None:
        """Commit new rows and the mask over the old ones in one transaction, then show both in one swap.

        The commit thread does it: an interrupt of the caller cannot come between the two.
        """
        self.load(publisher, self.write(publisher, view) if view is not None and view.count else [], mask, reserved)

    def load(
        self,
        publisher: Publisher,
        records: list[ChunkRecord],
        mask: MaskRecord | None,
        reserved: Reservation,
        deliveries: Sequence[Delivery] = (),
    ) -> None:
        """Commit chunks that were written, perhaps elsewhere, and perhaps a mask; returns when they are part of the table."""
        done = Outcome()
        written = Written(publisher, records, mask=mask, deliveries=list(deliveries), done=done, reserved=reserved)
        reserved.handed_over = True
        self._written.put(written)  # no call in between: nothing interrupts it
        while not done.wait(min(1.0, deadline.left())):
            if not self._threads[-1].is_alive():  # it was closed meanwhile
                publisher.check_open()
            if deadline.left() <= 0:
                raise deadline.late(f"the commit to table {publisher.spec.name!r} goes on, and may be done or not")

    def _adapt(self, publisher: Publisher, view: TreeView) -> None:
        """Learn from a full tree before it is written: a better template for it and the next, and what counts as late."""
        tree = view.tree
        server = publisher.servers[tree.server] if tree.server < len(publisher.servers) else None
        if server is None or tree.late:
            return
        began = self._clock.monotonic()
        better = better_template(view, tree.template, publisher.coders, self._settings.leaf_rows)
        some = view.holders[: view.count][:: max(1, view.count // 64)]
        times = [run.source.times(publisher.spec.time.column) for run in some]
        with publisher.lock:
            if better is not None:
                tree.template = better
                server.use(better)
                publisher.metrics.template_updates += 1
                publisher.metrics.template_seconds += self._clock.monotonic() - began
            server.learn_late(times)

    def write(self, publisher: Publisher, view: TreeView) -> list[ChunkRecord]:
        """Write a sealed tree: one chunk, or several if one huge batch made it many times as large as a chunk should be."""
        tree = view.tree
        records: list[ChunkRecord] = []
        template = tree.template
        from tidewheel.write.arrange import Arranger  # on first use: its kernels take long to load
        from tidewheel.write.making import make_chunk

        try:
            arranger = self._arrangers.pop()
        except IndexError:
            arranger = Arranger(self._settings.leaf_rows)
        try:
            for part in _portions(view, 2 * self._settings.chunk_bytes):
                record, template = make_chunk(self._files, publisher.table, arranger, part, template, publisher.coders, publisher.shape)
                records.append(record)
            self._learn(publisher, tree, template)
        except BaseException:
            self._remove(records)
            raise
        finally:
            self._arrangers.append(arranger)
        return records

    def _learn(self, publisher: Publisher, tree: Tree, template: Template) -> None:
        """Keys of a tree had to be divided anew for its chunk: the rows to come are routed like that as well."""
        if template is not tree.template and not tree.late and tree.server < len(publisher.servers):
            with publisher.lock:
                server = publisher.servers[tree.server]
                if server.template is tree.template:
                    server.use(template)
                    publisher.metrics.template_updates += 1

    def chunk(self, publisher: Publisher, record: ChunkRecord) -> ChunkLike:
        return self._chunk(record, publisher.spec, publisher.shape, publisher.coders.of(record.prefix))


def _portions(view: TreeView, most: int) -> list[TreeView]:
    """The tree in portions of about `most` bytes, never dividing a run."""
    runs: list[Run] = view.holders[: view.count]
    portions: list[list[Run]] = [[]]
    size = 0
    for run in runs:
        if portions[-1] and size + run.bytes > most:
            portions.append([])
            size = 0
        portions[-1].append(run)
        size += run.bytes
    if len(portions) == 1:
        return [view]
    out = []
    for portion in portions:
        part = TreeView(view.tree)
        part.holders, part.count = portion, len(portion)
        part.matrix = np.array([run.row for run in portion])
        out.append(part)
    return out
