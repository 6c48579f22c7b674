"""Publish: where a table's batches become visible, and where its one current version lives.

One lock per table guards what changes: trees, the generation and the reference to the version. It is held only to
append finished runs and swap that reference, never while rows are routed, sorted, written or read. Readers take no lock.

A tree goes live → sealed → chunk. In each step the rows leave one place and enter the other in the same swap, so every
version holds every row exactly once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidewheel.env import deadline
from tidewheel.env.clock import Clock
from tidewheel.env.interrupts import to_the_end
from tidewheel.errors import ClosedError, FencedError, StorageError, TidewheelError
from tidewheel.index.hidden import Hidden
from tidewheel.index.tree import Tree, TreeView
from tidewheel.index.version import Change, ChunkLike, ChunkSet, Version
from tidewheel.metrics import TableMetrics
from tidewheel.model.partition_labels import Labels
from tidewheel.model.records import Delivery, MaskRecord, ServerRecord, TableRecord
from tidewheel.settings import Settings
from tidewheel.write.dispatch import is_uneven
from tidewheel.write.log import Log
from tidewheel.write.log_format import Entry
from tidewheel.write.place import Placed, Placing
from tidewheel.write.templates import better_template

MANY_REMOVED = 64
"""Removed chunks from which on those are forgotten that the log has no rows of: it takes a sync to know."""


@dataclass(slots=True)
class FlushJob:
    """Sealed trees that are written and committed together; nearly always one."""

    views: list[TreeView]
    deliveries: list[Delivery] = field(default_factory=list)
    taken: bool = False
    """Being written or committed."""


@dataclass(slots=True)
class Reservation:
    """A generation that is reserved for one commit."""

    generation: int
    handed_over: bool = False
    """Whoever commits will settle it, also if the one who reserved it was interrupted."""


class Publisher:
    """The write side of one table in this process."""

    def __init__(self, table: TableRecord, settings: Settings, clock: Clock, wake: Callable[[], None], log: Log) -> None:
        self.table = table
        self.spec = table.spec
        self.settings = settings
        self.shape = log.shape
        self.log = log
        self.metrics = TableMetrics()
        self.clock = clock
        self.lock = threading.Lock()
        self.flushed = threading.Condition(self.lock)
        self.placing = Placing(table.spec, settings, self.shape, self.lock)
        self.servers, self.coders = self.placing.servers, self.placing.coders
        self.jobs: list[FlushJob] = []
        """Sealed and not yet committed, oldest first."""
        self.failure: TidewheelError | None = None
        """Why the last flush failed; None once one succeeds."""
        self.closed = ""
        """Why it takes no more rows; empty while it does."""
        self.fenced: FencedError | None = None
        """This process is not the owner any more: nothing that waits here will ever be flushed."""
        self.dropped = False
        self._reserved: set[int] = set()
        """Generations whose rows are on their way: several, if a caller gave up while its commit goes on."""
        self.removed: list[int] = []
        """The last generation of each chunk that left the table and that the catalog still has, for the log's sake."""
        self.untidy = False
        """Chunks or masks may be of no use any more, anywhere in the table."""
        self.labels: Labels | None = None
        """What changed in each partition, once somebody asked. Replaced by whoever commits."""
        self._known = table.generation
        """Log or catalog know this generation: no later owner gives it out again."""
        self.version = Version(table.generation, ChunkSet(self.shape.width), (), (), (), self.coders.first)
        self._wake = wake

    def resume(self, chunks: list[ChunkLike], masks: list[MaskRecord], servers: list[ServerRecord]) -> None:
        """Take up what the catalog knows. Called once, before the table is used."""
        held = ChunkSet(self.shape.width, chunks)
        self.version = Version(self.table.generation, held, (), (), masks, self.coders.first, horizon=self.table.horizon)
        self.untidy = bool(masks)
        self.placing.resume(servers)

    # ---- insert -----------------------------------------------------------------------------------------

    def insert(self, data: list[pa.RecordBatch], deliveries: tuple[Delivery, ...] = ()) -> int:
        """Make these batches visible, all at once. Returns the generation that holds them."""
        return self.insert_placed([one for batch in data for one in self.place(batch)], deliveries)

    def place(self, data: pa.RecordBatch) -> list[Placed]:
        """Encode a batch and make its runs: everything that needs no lock."""
        return self.placing.place(data, self.version)

    def insert_placed(self, placed: list[Placed], deliveries: tuple[Delivery, ...]) -> int:
        """The same for rows that were placed before."""
        entries = self.log.entries(placed, deliveries) if self.log.on else []
        generation, logged = self._publish(placed, deliveries, entries)
        self.log.wait(logged)
        return generation

    def holds(self, package: str) -> bool:
        """Whether a package is in a tree: visible, and not committed yet."""
        with self.lock:
            return any(tree.deliveries.holds(package) for tree in self._trees())

    def reached(self, stream: str) -> int | None:
        """The last batch of a stream that is in a tree."""
        with self.lock:
            found = [tree.deliveries.last_batch(stream) for tree in self._trees()]
            return max((batch for batch in found if batch is not None), default=None)

    def _trees(self) -> list[Tree]:
        """All that hold rows, sealed and live. Called with the lock held."""
        return [view.tree for view in self.version.sealed] + [tree for server in self.servers for tree in server.trees()]

    def _publish(self, placed: list[Placed], deliveries: tuple[Delivery, ...], entries: list[Entry]) -> tuple[int, int]:
        """Safe first, then visible. Returns the generation, and what to wait for in the log."""
        with self.lock:
            self._make_room()
            now = self.clock.monotonic()
            generation = self.version.generation + 1
            records = tuple(replace(one, generation=generation) for one in deliveries)
            touched: dict[int, Tree] = {}
            to_the_end(self._show, self.log.next_record, entries, placed[::-1], touched, records, generation, now)
            self.metrics.batches += 1
            if any(tree.bytes >= self.settings.chunk_bytes for tree in touched.values()):
                self._seal([tree for tree in touched.values() if tree.bytes >= self.settings.chunk_bytes])
            else:
                for server, late, _ in placed:
                    if not late and server.live is not None and server.live.rows >= server.check_at:
                        self._wake()
                        break
            return generation, self.log.next_record if entries else 0

    def _show(
        self,
        record: int,
        entries: list[Entry],
        left: list[Placed],
        touched: dict[int, Tree],
        deliveries: tuple[Delivery, ...],
        generation: int,
        now: float,
    ) -> None:
        """Log a batch as record number `record` and on, put its runs into their trees and show them, all at once.

        Can be begun again where it was interrupted: the log has counted its records, or not; `left` shrinks.
        """
        if entries and self.log.next_record == record:
            self.log.append(generation, entries)
        self._known = generation if self.log.on else self._known
        while left:
            server, late, run = left[-1]
            run.publish(generation)
            tree = server.tree(late, now)
            touched[id(tree)] = tree
            tree.append(run)
            server.rows_taken += run.rows
            self.metrics.rows += run.rows
            self.metrics.late_rows += run.rows if late else 0
            left.pop()
        if deliveries:
            first, *_ = touched.values()
            first.deliveries.add(deliveries)
            for tree in touched.values():
                tree.spanning = tree.spanning or len(touched) > 1
        self._swap(generation=generation)
        self._settle(touched)

    def _settle(self, touched: dict[int, Tree]) -> None:
        """Merge small runs, now that they are published: if it fails, they stay as they are, and nothing is lost."""
        if any([self.settle(tree) for tree in touched.values()]):
            self._swap()

    @staticmethod
    def settle(tree: Tree) -> bool:
        """Merge a tree's small runs if that can be done; True if any were."""
        try:
            return tree.settle()
        except Exception:  # Arrow may refuse to join what it took apart; queries read small runs just as well
            tree.small.clear()
            return False

    def _make_room(self) -> None:
        """Back-pressure: wait while too many sealed trees wait for their flush. Called with the lock held."""
        self.check_open()
        allowed = self.settings.sealed_trees * len(self.servers)
        if len(self.version.sealed) < allowed:
            return
        began = self.clock.monotonic()
        self.metrics.waits += 1
        while len(self.version.sealed) >= allowed and not self.closed and self.fenced is None:
            if self.failure is not None:
                raise StorageError(
                    f"table {self.spec.name!r} takes no rows while its trees cannot be flushed: {self.failure}"
                ) from self.failure
            if (left := deadline.left()) <= 0:
                raise deadline.late(f"table {self.spec.name!r} waits for its flush and takes no rows; nothing was inserted", retryable=True)
            self.flushed.wait(min(1.0, left))
        self.metrics.wait_seconds += self.clock.monotonic() - began
        self.check_open()

    def check_open(self) -> None:
        if self.fenced is not None:
            raise FencedError(str(self.fenced))
        if self.closed:
            raise ClosedError(self.closed)

    # ---- sealing ----------------------------------------------------------------------------------------

    def seal(self, older_than: float | None = None) -> list[FlushJob]:
        """Seal the live trees (those with a row older than so many seconds); the flusher writes them. Returns all open jobs."""
        with self.lock:
            now = self.clock.monotonic()
            self._seal([t for s in self.servers for t in s.trees() if older_than is None or now - t.born >= older_than])
            return list(self.jobs)

    def cut(self) -> tuple[int, list[FlushJob]]:
        """Seal the live trees. Once these jobs are committed, chunks hold all rows up to this generation, and none holds both
        such rows and later ones."""
        with self.lock:
            self._seal([t for s in self.servers for t in s.trees()])
            return self.version.generation, list(self.jobs)

    def _seal(self, trees: list[Tree]) -> None:
        if not trees:
            return
        everything = [t for s in self.servers for t in s.trees()]
        if any(t.spanning for t in everything):
            trees = everything  # parts of one delivery are committed together or not at all
        groups = [trees] if any(t.spanning for t in trees) else [[t] for t in trees]
        jobs = [FlushJob([t.view() for t in group], [d for t in group for d in t.deliveries]) for group in groups]
        to_the_end(self._hand_over, trees, jobs, self.jobs, self.version.sealed)
        if is_uneven([s.rows_taken for s in self.servers], 65536) and self.placing.dispatch is not None:
            self.placing.rebalance([tree.view() for tree in everything])
        for server in self.servers:
            server.rows_taken = 0
        self._wake()

    def _hand_over(self, trees: list[Tree], jobs: list[FlushJob], before: list[FlushJob], sealed: tuple[TreeView, ...]) -> None:
        """From live to sealed, in one swap. Can be begun again."""
        for server in self.servers:
            for tree in trees:
                server.take_off(tree)
        self.jobs = before + jobs
        self._swap(sealed=sealed + tuple(view for job in jobs for view in job.views))

    # ---- what the flusher and replace change ------------------------------------------------------------

    def next_job(self) -> FlushJob | None:
        """The oldest job that nobody has taken; it is taken now."""
        with self.lock:
            for job in self.jobs:
                if not job.taken:
                    job.taken = True
                    return job
            return None

    def wait_flushed(self, jobs: list[FlushJob]) -> None:
        """Returns when these jobs are committed; raises if a flush fails meanwhile (the rows stay, and it is tried again)."""
        with self.lock:
            failures = self.metrics.flush_failures
            while any(job in self.jobs for job in jobs) and not self.dropped:  # nobody flushes what was sealed after the drop
                if self.fenced is not None:
                    raise FencedError(str(self.fenced))
                if self.failure is not None and self.metrics.flush_failures > failures:
                    raise self.failure
                if (left := deadline.left()) <= 0:
                    raise deadline.late(f"the flush of table {self.spec.name!r} goes on; no row is lost", retryable=True)
                self.flushed.wait(min(1.0, left))
            if self.dropped:
                self.check_open()

    def fence(self, error: FencedError) -> None:
        """This process is not the owner any more: whoever waits is told so, and whoever comes."""
        with self.lock:
            self.fenced = error
            self.flushed.notify_all()

    def drop(self) -> None:
        """The table is gone: what is sealed will never be flushed."""
        self.close(f"table {self.spec.name!r} was dropped")
        with self.lock:
            self.dropped = True
            self.failure = None  # its traceback leads back to here: a circle would keep the dropped files until some later collection
            self.jobs.clear()
            self.flushed.notify_all()

    def committed(self, generation: int, job: FlushJob | None, change: Change, servers: tuple[ServerRecord, ...] = ()) -> None:
        """The catalog has this change: show it, and let go of the trees that its chunks came from, in one swap."""
        with self.lock:
            self._known = max(self._known, generation)
            gone = {id(v) for v in job.views} if job else set()
            self._swap(
                chunks=self.version.chunks.without(change.remove).plus([c for c in change.add if c.record.id not in change.remove]),
                sealed=tuple(v for v in self.version.sealed if id(v) not in gone),
                masks=change.hidden,
                horizon=change.horizon,
            )
            if job in self.jobs:
                self.jobs.remove(job)
            if self.placing.new_servers is servers:
                self.placing.new_servers = ()
            self.failure = None
            self.flushed.notify_all()

    def recovered(self, jobs: list[FlushJob], generation: int) -> None:
        """Show the rows that recovery brought back, as trees that wait for their flush."""
        with self.lock:
            self.jobs += jobs
            self._known = generation
            self._swap(generation=generation, sealed=self.version.sealed + tuple(view for job in jobs for view in job.views))

    def trim_log(self) -> None:
        """Let the log go as far as chunks have what it holds. Called after a commit."""
        self.log.trim(self._covered())

    def _covered(self) -> int:
        """Chunks have all rows that came up to this generation."""
        with self.lock:
            return min((tree.oldest - 1 for tree in self._trees()), default=self.version.generation)

    def forgettable(self) -> int:
        """Removed chunks with rows up to this generation can be forgotten; 0: not now. Called by whoever commits."""
        if len(self.removed) < MANY_REMOVED:
            return 0
        gone = self.log.gone(self._covered())
        return gone if any(generation <= gone for generation in self.removed) else 0

    def failed(self, job: FlushJob | None, e: Exception) -> None:
        """A flush went wrong: it will be tried again, and whoever waits for it is told why."""
        error = e if isinstance(e, TidewheelError) else StorageError(f"flush of table {self.spec.name!r} failed: {e!r}")
        with self.lock:
            if job is not None:
                job.taken = False
            self.failure = None if self.dropped else error
            self.metrics.flush_failures += 1
            self.flushed.notify_all()

    @contextmanager
    def reserve(self, seal: bool = True) -> Iterator[Reservation]:
        """Reserve a generation that comes after all that is visible and before all later rows. One at a time.

        With `seal` no chunk will hold both, so that a mask can hide what came before. The generation's own rows come with a commit; until
        that is done, or will never be, nobody takes the generation for complete.
        """
        with self.lock:
            if seal:
                self._seal([t for s in self.servers for t in s.trees()])
            mine = Reservation(self.version.generation + 1)
            self._reserved.add(mine.generation)
            self._swap(generation=mine.generation)
        try:
            yield mine
        finally:
            if not mine.handed_over:
                self.settle_generation(mine.generation)

    def settle_generation(self, generation: int) -> None:
        """The commit that a generation was reserved for is done, or will never be."""
        with self.lock:
            self._reserved.discard(generation)
            self._swap()

    def next_generation(self) -> int:
        """A generation for a change that brings no rows: what came before it and what comes after can be told apart."""
        with self.lock:
            self._swap(generation=self.version.generation + 1)
            return self.version.generation

    def recorded(self, generation: int) -> None:
        """The catalog knows of this generation."""
        with self.lock:
            self._known = max(self._known, generation)
            self._swap()

    def redivide(self) -> None:
        """Look at the skew of live trees that have grown enough, and give them a better template where that pays."""
        for server in self.servers:
            with self.lock:
                tree = server.live
                if tree is None or tree.rows < server.check_at or server.template is None:
                    continue
                view, template = tree.view(), server.template
            began = self.clock.monotonic()
            better = better_template(view, template, self.coders, self.settings.leaf_rows)
            with self.lock:
                if server.live is tree:
                    server.check_at = 2 * tree.rows
                if better is not None and server.template is template:
                    server.use(better)
                    self.metrics.template_updates += 1
                    self.metrics.template_seconds += self.clock.monotonic() - began

    def close(self, why: str) -> None:
        """Take no more rows. What is visible stays so, and can still be flushed."""
        with self.lock:
            self.closed = self.closed or why
            self.flushed.notify_all()

    def _swap(
        self,
        generation: int | None = None,
        chunks: ChunkSet | None = None,
        sealed: tuple[TreeView, ...] | None = None,
        masks: Hidden | None = None,
        horizon: int = 0,
    ) -> None:
        """Replace the version. Called with the lock held; the assignment is what readers see."""
        old = self.version
        self.version = Version(
            old.generation if generation is None else generation,
            old.chunks if chunks is None else chunks,
            old.sealed if sealed is None else sealed,
            tuple(tree.view() for server in self.servers for tree in server.trees()),
            old.hidden if masks is None else masks,
            self.coders.first,
            min(self._known, *(reserved - 1 for reserved in self._reserved)) if self._reserved else self._known,
            max(old.horizon, horizon),
        )
