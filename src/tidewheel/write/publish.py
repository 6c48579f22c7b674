"""Publish: where a table's batches become visible, and where its one current version lives.

One lock per table guards what changes: trees, the generation and the reference to the version. It is held only to
append finished runs and swap that reference, never while rows are routed, sorted, written or read. Readers take no lock.

A tree goes live → sealed → chunk. In each step the rows leave one place and enter the other in the same swap, so every
version holds every row exactly once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from tidewheel.env.clock import Clock
from tidewheel.env.interrupts import to_the_end
from tidewheel.errors import ClosedError, StorageError, TidewheelError
from tidewheel.index.run import Batch, Run
from tidewheel.index.template import Template
from tidewheel.index.tree import Tree, TreeView
from tidewheel.index.version import ChunkLike, ChunkSet, Version
from tidewheel.metrics import TableMetrics
from tidewheel.model.coders import key_coder
from tidewheel.model.records import MaskRecord, PackageRecord, ServerRecord, TableRecord
from tidewheel.settings import Settings
from tidewheel.write.dispatch import Dispatch, even_dispatch, is_uneven
from tidewheel.write.log import Log
from tidewheel.write.log_format import Entry
from tidewheel.write.server import Coders, IndexingServer, better_template


@dataclass(slots=True)
class FlushJob:
    """Sealed trees that are written and committed together; nearly always one."""

    views: list[TreeView]
    packages: list[PackageRecord] = field(default_factory=list)
    taken: bool = False
    """Being written or committed."""


class Publisher:
    """The write side of one table in this process."""

    def __init__(self, table: TableRecord, settings: Settings, clock: Clock, wake: Callable[[], None], log: Log) -> None:
        self.table = table
        self.spec = table.spec
        self.settings = settings
        self.shape = log.shape
        self.log = log
        self.coders = Coders(key_coder(table.spec))
        self.metrics = TableMetrics()
        self.clock = clock
        self.lock = threading.Lock()
        self.flushed = threading.Condition(self.lock)
        late_after = table.spec.time.seconds(settings.late_after)
        self.servers = [IndexingServer(s, self.coders, self.shape, settings, late_after) for s in range(settings.indexing_servers)]
        self.dispatch: Dispatch | None = None
        self.begun = False
        """Every server has its template."""
        self.new_servers: tuple[ServerRecord, ...] = ()
        """Key intervals that the next commit must record."""
        self.jobs: list[FlushJob] = []
        """Sealed and not yet committed, oldest first."""
        self.failure: TidewheelError | None = None
        """Why the last flush failed; None once one succeeds."""
        self.closed = ""
        """Why it takes no more rows; empty while it does."""
        self.dropped = False
        self.version = Version(table.generation, ChunkSet(self.shape.width), (), (), (), self.coders.all)
        self._wake = wake

    def resume(self, chunks: list[ChunkLike], masks: list[MaskRecord], servers: list[ServerRecord]) -> None:
        """Take up what the catalog knows. Called once, before the table is used."""
        self.version = Version(self.table.generation, ChunkSet(self.shape.width, chunks), (), (), tuple(masks), self.coders.all)
        if len(servers) == len(self.servers):
            coder = self.coders.all[self.coders.number(servers[0].prefix)]
            self.dispatch = Dispatch(np.array([s.key_lo for s in servers], np.int64), coder)

    # ---- insert -----------------------------------------------------------------------------------------

    def insert(self, data: list[pa.RecordBatch], package: PackageRecord | None = None) -> int:
        """Make these batches visible, all at once. Returns the generation that holds them."""
        placed = [one for batch in data for one in self.place(batch)]
        entries = self.log.entries(placed, package) if self.log.on else []
        generation, logged = self._publish(placed, package, entries)
        self.log.wait(logged)
        return generation

    def place(self, data: pa.RecordBatch) -> list[tuple[IndexingServer, bool, Run]]:
        """Encode a batch and make its runs: everything that needs no lock."""
        dispatch = self.dispatch
        coder = dispatch.coder if dispatch is not None else self.coders.all[0]
        batch = Batch(data, coder, self.shape)
        if dispatch is None or not self.begun:
            dispatch = self._begin(batch)
            batch = batch.coded_by(dispatch.coder, self.shape)
        placed = []
        for s, rows in dispatch.split(batch):
            server = self.servers[s]
            for late, run in server.runs(batch, rows):
                placed.append((server, late, run))
        return placed

    def holds(self, package: str) -> bool:
        """Whether a package is in a tree: visible, and not committed yet."""
        with self.lock:
            return any(one.name == package for tree in self._trees() for one in tree.packages)

    def _trees(self) -> list[Tree]:
        """All that hold rows, sealed and live. Called with the lock held."""
        return [view.tree for view in self.version.sealed] + [tree for server in self.servers for tree in server.trees()]

    def template_of(self, server: int, data: pa.RecordBatch) -> Template:
        """The template for rows that a server had before a crash; the first to ask is the sample it is made from."""
        if not self.begun:
            self._begin(Batch(data, self.dispatch.coder if self.dispatch else self.coders.all[0], self.shape))
        template = self.servers[server if server < len(self.servers) else 0].template
        assert template is not None
        return template

    def _begin(self, batch: Batch) -> Dispatch:
        """The first batch: divide the keys over the servers, and each server's over its leaves."""
        with self.lock:
            if self.dispatch is None:
                first = self.coders.all[0]
                coder = self.coders.all[self.coders.number(first.common_prefix(batch.data))]
                self._divide_servers(even_dispatch(batch.coded_by(coder, self.shape).codes, len(self.servers), coder))
            dispatch = self.dispatch
            assert dispatch is not None
            batch = batch.coded_by(dispatch.coder, self.shape)
            for server in self.servers:
                if server.template is None:
                    server.begin(batch, self._last_chunk(server.number))
            self.begun = True
            return dispatch

    def _last_chunk(self, server: int) -> ChunkLike | None:
        """The server's newest ordinary chunk. One that cannot be read is no reason to refuse rows."""
        for chunk in reversed(list(self.version.chunks)):
            if chunk.record.server == server and not chunk.record.late:
                try:
                    chunk.open()
                except TidewheelError:
                    return None
                return chunk
        return None

    def _divide_servers(self, dispatch: Dispatch) -> None:
        self.dispatch = dispatch
        self.new_servers = tuple(ServerRecord(s, int(b), dispatch.coder.prefix) for s, b in enumerate(dispatch.bounds))

    def _publish(
        self, placed: list[tuple[IndexingServer, bool, Run]], package: PackageRecord | None, entries: list[Entry]
    ) -> tuple[int, int]:
        """Safe first, then visible. Returns the generation, and what to wait for in the log."""
        with self.lock:
            self._make_room()
            now = self.clock.monotonic()
            generation = self.version.generation + 1
            logged = self.log.append(generation, entries) if entries else 0
            record = None if package is None else replace(package, generation=generation)
            touched: dict[int, Tree] = {}
            to_the_end(self._show, placed[::-1], touched, record, generation, now)
            self.metrics.batches += 1
            if any(tree.bytes >= self.settings.chunk_bytes for tree in touched.values()):
                self._seal([tree for tree in touched.values() if tree.bytes >= self.settings.chunk_bytes])
            else:
                for server, late, _ in placed:
                    if not late and server.live is not None and server.live.rows >= server.check_at:
                        self._wake()
                        break
            return generation, logged

    def _show(
        self,
        left: list[tuple[IndexingServer, bool, Run]],
        touched: dict[int, Tree],
        package: PackageRecord | None,
        generation: int,
        now: float,
    ) -> None:
        """Put runs into their trees and show them, all at once. Can be begun again where it was interrupted: `left` shrinks."""
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
        if package is not None:
            first, *_ = touched.values()
            if package not in first.packages:
                first.packages.append(package)
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
        while len(self.version.sealed) >= allowed and not self.closed:
            if self.failure is not None:
                raise StorageError(
                    f"table {self.spec.name!r} takes no rows while its trees cannot be flushed: {self.failure}"
                ) from self.failure
            self.flushed.wait(1.0)
        self.metrics.wait_seconds += self.clock.monotonic() - began
        self.check_open()

    def check_open(self) -> None:
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
            trees = everything  # parts of one package are committed together or not at all
        groups = [trees] if any(t.spanning for t in trees) else [[t] for t in trees]
        jobs = [FlushJob([t.view() for t in group], [p for t in group for p in t.packages]) for group in groups]
        to_the_end(self._hand_over, trees, jobs, self.jobs, self.version.sealed)
        if is_uneven([s.rows_taken for s in self.servers], 65536) and self.dispatch is not None:
            self._rebalance([tree.view() for tree in everything])
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

    def _rebalance(self, views: list[TreeView]) -> None:
        """Divide the keys anew over the servers, from a sample of all that is in their trees."""
        assert self.dispatch is not None
        coder = self.dispatch.coder
        runs = [run for view in views for run in view.holders[: view.count]]
        step = max(1, sum(run.rows for run in runs) // 65536)
        sample = [run.codes_by(coder)[::step] for run in runs]
        self._divide_servers(even_dispatch(np.concatenate(sample), len(self.servers), coder))

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
                if self.failure is not None and self.metrics.flush_failures > failures:
                    raise self.failure
                self.flushed.wait(1.0)
            if self.dropped:
                self.check_open()

    def drop(self) -> None:
        """The table is gone: what is sealed will never be flushed."""
        self.close(f"table {self.spec.name!r} was dropped")
        with self.lock:
            self.dropped = True
            self.failure = None  # its traceback leads back to here: a circle would keep the dropped files until some later collection
            self.jobs.clear()
            self.flushed.notify_all()

    def committed(
        self, job: FlushJob | None, chunks: list[ChunkLike], mask: MaskRecord | None = None, servers: tuple[ServerRecord, ...] = ()
    ) -> None:
        """The catalog has these chunks: show them, and let go of the trees they came from, in one swap."""
        with self.lock:
            gone = {id(v) for v in job.views} if job else set()
            self._swap(
                chunks=self.version.chunks.plus(chunks),
                sealed=tuple(v for v in self.version.sealed if id(v) not in gone),
                masks=self.version.masks + ((mask,) if mask else ()),
            )
            if job in self.jobs:
                self.jobs.remove(job)
            if self.new_servers is servers:
                self.new_servers = ()
            self.failure = None
            self.flushed.notify_all()

    def recovered(self, jobs: list[FlushJob], generation: int) -> None:
        """Show the rows that recovery brought back, as trees that wait for their flush."""
        with self.lock:
            self.jobs += jobs
            self._swap(generation=generation, sealed=self.version.sealed + tuple(view for job in jobs for view in job.views))

    def trim_log(self) -> None:
        """Let the log go as far as chunks have what it holds. Called after a commit."""
        with self.lock:
            covered = min((tree.oldest - 1 for tree in self._trees()), default=self.version.generation)
        self.log.trim(covered)

    def failed(self, job: FlushJob | None, e: Exception) -> None:
        """A flush went wrong: it will be tried again, and whoever waits for it is told why."""
        error = e if isinstance(e, TidewheelError) else StorageError(f"flush of table {self.spec.name!r} failed: {e!r}")
        with self.lock:
            if job is not None:
                job.taken = False
            self.failure = None if self.dropped else error
            self.metrics.flush_failures += 1
            self.flushed.notify_all()

    def reserve(self) -> int:
        """Seal everything that is visible and return a generation that comes after it and before all later rows."""
        with self.lock:
            self._seal([t for s in self.servers for t in s.trees()])
            generation = self.version.generation + 1
            self._swap(generation=generation)
            return generation

    def next_generation(self) -> int:
        """A generation for a change that brings no rows: what came before it and what comes after can be told apart."""
        with self.lock:
            self._swap(generation=self.version.generation + 1)
            return self.version.generation

    def redivide(self) -> None:
        """Look at the skew of live trees that have grown enough, and give them a better template where that pays."""
        for server in self.servers:
            with self.lock:
                tree = server.live
                if tree is None or tree.rows < server.check_at or server.template is None:
                    continue
                view, template = tree.view(), server.template
            began = self.clock.monotonic()
            better = better_template(view, template, self.coders)
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
        masks: tuple[MaskRecord, ...] | None = None,
    ) -> None:
        """Replace the version. Called with the lock held; the assignment is what readers see."""
        old = self.version
        self.version = Version(
            old.generation if generation is None else generation,
            old.chunks if chunks is None else chunks,
            old.sealed if sealed is None else sealed,
            tuple(tree.view() for server in self.servers for tree in server.trees()),
            old.masks if masks is None else masks,
            self.coders.all,
        )
