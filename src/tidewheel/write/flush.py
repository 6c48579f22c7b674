"""Flush: turn sealed trees into chunks, in the background, without stopping inserts.

The order is what makes a crash harmless at any point:
  1. seal     the tree takes no more rows (publish.py)
  2. write    rows in leaf and time order, into a file under a temporary name
  3. appear, 4. commit, 5. publish (commit.py)
Step 2 is work for a processor, steps 3 to 5 mostly wait for the disk. They run in threads of their own, so that the
next tree is written while the last one is synced. Jobs are taken in the order they were sealed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tidewheel.env.clock import Clock
from tidewheel.env.interrupts import Bell
from tidewheel.env.store import Store
from tidewheel.index.layout import Template
from tidewheel.index.run import Run
from tidewheel.index.tree import Tree, TreeView
from tidewheel.model.records import ChunkRecord, MaskRecord
from tidewheel.settings import Settings
from tidewheel.write.commit import Committer
from tidewheel.write.pending import remove
from tidewheel.write.publish import FlushJob, Publisher, Reservation
from tidewheel.write.templates import better_template

if TYPE_CHECKING:
    from tidewheel.write.arrange import Arranger

RETRY_SECONDS = 1.0

WRITERS = 2
"""Threads that write chunks. While inserts wait for room, both of two cores have something to do."""


class Flusher:
    """The background threads of a warehouse that write; the first also seals what is old and re-divides what is skewed."""

    def __init__(self, commits: Committer, files: Store, settings: Settings, clock: Clock) -> None:
        self.commits = commits
        """What becomes of that which is written. It runs for as long as this does."""
        self.files = files
        self._settings = settings
        self._clock = clock
        self._tables: Callable[[], list[Publisher]] = list
        self._wakes = [Bell() for _ in range(WRITERS)]
        self._stop = False
        self._threads: list[threading.Thread] = []
        self._arrangers: list[Arranger] = []
        """Those that nobody uses now; each keeps the memory it works in."""

    def start(self, tables: Callable[[], list[Publisher]]) -> None:
        self._tables = tables
        self._threads = [
            threading.Thread(target=self._write_loop, args=(n,), name=f"tidewheel-write-{n}", daemon=True) for n in range(WRITERS)
        ]
        for thread in self._threads:
            thread.start()
        self.commits.start(tables, self._try_again)
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
        for thread in self._threads:
            thread.join()
        self.commits.stop()

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
            self.commits.flush(publisher, records, job)
        except Exception as e:  # whatever it is: the rows stay in memory, inserts and flush() report it, and we try again
            publisher.failed(job, e)
            remove(self.files, records)
            self._try_again()

    def _try_again(self) -> None:
        """A flush failed, whose job is free again."""
        if not self._stop:
            time.sleep(RETRY_SECONDS)
            self.wake()

    def replace(self, publisher: Publisher, view: TreeView | None, mask: MaskRecord, reserved: Reservation) -> None:
        """Commit new rows and the mask over the old ones."""
        self.commits.load(publisher, self.write(publisher, view) if view is not None and view.count else [], (mask,), reserved)

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
                record, template = make_chunk(self.files, publisher.table, arranger, part, template, publisher.coders, publisher.shape)
                records.append(record)
            self._learn(publisher, tree, template)
        except BaseException:
            remove(self.files, records)
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
