"""Flush: turn sealed trees into chunks, in the background, without stopping inserts.

The order is what makes a crash harmless at any point:
  1. seal     the tree takes no more rows (publish.py)
  2. arrange  rows in leaf and time order, in memory
  3. write    a file under a new name, synced, then renamed: nobody knows it yet
  4. commit   one catalog transaction makes it part of the table
  5. publish  one swap: the version has the chunk and no longer the tree
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from tidewheel.catalog.protocol import CatalogWriter
from tidewheel.chunk.format import zoned_columns
from tidewheel.chunk.reader import Chunk
from tidewheel.chunk.writer import Origin, write_chunk
from tidewheel.env.clock import Clock
from tidewheel.env.files import LocalFiles
from tidewheel.errors import FencedError, NotFoundError, StorageError, TidewheelError
from tidewheel.index.run import Run
from tidewheel.index.tree import TreeView
from tidewheel.model.codes import Codes
from tidewheel.model.records import ChunkRecord, Commit, MaskRecord
from tidewheel.model.times import INT64_MIN
from tidewheel.settings import Settings
from tidewheel.write import kernels as k
from tidewheel.write.arrange import Arranged, arrange
from tidewheel.write.publish import FlushJob, Publisher
from tidewheel.write.server import better_template, usual_end

RETRY_SECONDS = 1.0


class Flusher:
    """One background thread per warehouse: flushes what is sealed, seals what is old, re-divides what is skewed."""

    def __init__(self, catalog: CatalogWriter, files: LocalFiles, epoch: int, settings: Settings, clock: Clock) -> None:
        self._catalog = catalog
        self._files = files
        self._epoch = epoch
        self._settings = settings
        self._clock = clock
        self._tables: Callable[[], list[Publisher]] = list
        self._event = threading.Event()
        self._stop = False
        self._thread: threading.Thread | None = None
        self._one_at_a_time = threading.Lock()

    def start(self, tables: Callable[[], list[Publisher]]) -> None:
        self._tables = tables
        self._thread = threading.Thread(target=self._loop, name="tidewheel-flush", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._event.set()

    def stop(self) -> None:
        self._stop = True
        self._event.set()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        while not self._stop:
            self._event.wait(min(1.0, self._settings.flush_after / 4))
            self._event.clear()
            for publisher in self._tables():
                if self._stop:
                    break
                publisher.redivide()
                publisher.seal(self._settings.flush_after)
                try:
                    self.flush_jobs(publisher)
                except TidewheelError:
                    # it is in publisher.failure, and inserts and flush() report it; here we only try again later
                    self._event.wait(RETRY_SECONDS)

    def flush_jobs(self, publisher: Publisher) -> None:
        """Flush everything that is sealed. Safe to call from any thread; raises what went wrong, and nothing is lost."""
        with self._one_at_a_time:
            while publisher.jobs:
                job = publisher.jobs[0]
                try:
                    self._flush(publisher, job)
                except (FencedError, NotFoundError) as e:
                    publisher.failed(StorageError(str(e)))
                    raise
                except StorageError as e:
                    publisher.failed(e)
                    raise
                except OSError as e:
                    error = StorageError(f"flush of table {publisher.spec.name!r} failed: {e}")
                    publisher.failed(error)
                    raise error from e

    def _flush(self, publisher: Publisher, job: FlushJob) -> None:
        began = self._clock.monotonic()
        records: list[ChunkRecord] = []
        try:
            for view in job.views:
                self._adapt(publisher, view)
                records += self.write(publisher, view)
            self._catalog.commit(
                Commit(
                    table_id=publisher.table.id, epoch=self._epoch, generation=publisher.version.generation, add=tuple(records),
                    packages=tuple(job.packages), servers=publisher.new_servers,
                )
            )  # fmt: skip
        except BaseException:
            for record in records:
                self._files.remove(record.file)
            raise
        publisher.new_servers = ()
        publisher.committed(job, [self.chunk(publisher, r) for r in records])
        publisher.metrics.flushes += len(records)
        publisher.metrics.flush_seconds += self._clock.monotonic() - began

    def _adapt(self, publisher: Publisher, view: TreeView) -> None:
        """Learn from a full tree before it is written: a better template for it and the next, and what counts as late."""
        tree = view.tree
        server = publisher.servers[tree.server] if tree.server < len(publisher.servers) else None
        if server is None or tree.late:
            return
        began = self._clock.monotonic()
        better = better_template(view, tree.template, publisher.coders)
        end = usual_end([run.source.times(publisher.spec.time.column) for run in view.holders[: view.count]])
        with publisher.lock:
            if better is not None:
                tree.template, tree.coder = better, publisher.coders.number(better.coder.prefix)
                server.use(better)
                publisher.metrics.template_updates += 1
                publisher.metrics.template_seconds += self._clock.monotonic() - began
            server.late_before = max(server.late_before, end - server.late_after)

    def write(self, publisher: Publisher, view: TreeView) -> list[ChunkRecord]:
        """Write a sealed tree: one chunk, or several if one huge batch made it many times as large as a chunk should be."""
        tree, spec = view.tree, publisher.spec
        records = []
        for part in _portions(view, 2 * self._settings.chunk_bytes):
            arranged = arrange(part, tree.template, tree.coder, publisher.shape, self._settings.leaf_rows, zoned_columns(spec))
            origin = Origin(tree.server, tree.late, tree.template.coder.prefix)
            records.append(write_chunk(self._files, publisher.table, arranged, partitions(arranged, spec.partition_width), origin))
        return records

    def chunk(self, publisher: Publisher, record: ChunkRecord) -> Chunk:
        with publisher.lock:
            coder = publisher.coders.number(record.prefix)
        return Chunk(record, publisher.spec, publisher.shape, coder, self._files)

    def forget(self, publisher: Publisher) -> None:
        """The table is dropped: what is sealed will never be written. Returns when no flush of it is under way."""
        with self._one_at_a_time:
            publisher.jobs.clear()

    def replace(self, publisher: Publisher, view: TreeView | None, mask: MaskRecord) -> None:
        """Commit new rows and the mask over the old ones in one transaction, then show both in one swap."""
        records = self.write(publisher, view) if view is not None and view.count else []
        with self._one_at_a_time:
            self._catalog.commit(
                Commit(
                    table_id=publisher.table.id, epoch=self._epoch, generation=publisher.version.generation, add=tuple(records), masks=(mask,),
                    servers=publisher.new_servers,
                )
            )  # fmt: skip
            publisher.new_servers = ()
            publisher.committed(None, [self.chunk(publisher, r) for r in records], mask)


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


def partitions(arranged: Arranged, width: int) -> tuple[tuple[int, int], ...]:
    """(start of the partition, rows) of every partition a chunk has rows in."""
    times: Codes = arranged.times
    zones = arranged.leaves.zones
    first, last = int(zones[2].min()) // width, int(zones[3].max()) // width
    if first == last:
        return ((max(first * width, INT64_MIN), len(times)),)
    if last - first < 65536:
        counts = np.zeros(last - first + 1, np.int64)
        k.partition_counts(times, first, width, counts)
        return tuple((max(int(first + i) * width, INT64_MIN), int(counts[i])) for i in np.flatnonzero(counts))
    numbers, found = np.unique(times // width, return_counts=True)
    return tuple((max(int(p) * width, INT64_MIN), int(n)) for p, n in zip(numbers, found, strict=True))
