"""Recovery: bring back the rows that no chunk covers, from the log of an owner that did not close.

Replayed rows get the generation they had, as sealed trees that the flusher then writes like any others; the log's segments go
when their rows are in chunks. So nothing here changes what is on the disk, and a recovery that is killed starts again.

A batch of the log is brought back whole or not at all. One that cannot be read although its checksum is right (an older version may have
logged what it should have refused) ends the recovery, or with damaged_log="skip" is left out: its segment is kept in the quarantine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np

from tidewheel.chunk import names
from tidewheel.env.local_files import LocalFiles
from tidewheel.errors import CorruptionError
from tidewheel.index.run import EVERY_ROW, Batch, Run
from tidewheel.index.tree import Tree
from tidewheel.model.records import Coverage, Delivery, PackageRecord
from tidewheel.model.recovery import Recovery as Recovery
from tidewheel.model.recovery import TableRecovery as TableRecovery
from tidewheel.write import log_reader
from tidewheel.write.log import deliveries_of, fixed_widths
from tidewheel.write.log_format import Record, batch_of
from tidewheel.write.log_reader import Covered, LogContents, read_log
from tidewheel.write.publish import FlushJob, Publisher
from tidewheel.write.soundness import settled_rows, unreadable_text

Step = Callable[[int], None]
"""Told how many bytes of log have been replayed since it was last called."""


def recover(
    publisher: Publisher, files: LocalFiles, coverage: Sequence[Coverage], skip_damage: bool, step: Step, shared: bool = False
) -> TableRecovery | None:
    """Replay a table's log. Called once, before the table is used; None if there is no log.

    `shared`: the owner before may live on, and write.
    """
    covered = Covered(coverage)
    for name in log_reader.segment_names(files, publisher.table.id):
        files.seal(name)  # first: an owner that lives on without knowing of us acknowledges nothing that we have not read
        if shared:
            files.renew(name)  # and what it writes all the same, our own successor must not find: it may have come to us since
    contents = read_log(files, publisher.table, fixed_widths(publisher.shape) or (), covered, skip_damage)
    if not contents.segments:
        return None
    replay = _Replay(publisher, covered)
    for batch in contents.batches:
        try:
            replay.take(batch)
        except _Unreadable as e:
            if not skip_damage:
                raise CorruptionError(f"{e}. {log_reader.OR_SKIP}") from e.__cause__
            contents.damage.append(str(e))
            contents.damaged += [contents.segment_of(record) for record in batch]
        step(batch[-1].end - batch[0].offset)
    replay.seal()
    for name in dict.fromkeys(contents.damaged):  # before it is trimmed: somebody may get more out of it than we can
        kept = names.quarantined(name, f"epoch-{publisher.log.epoch}")
        files.keep(name, kept)
        contents.damage.append(f"{name} is kept as {kept}")
    publisher.recovered(replay.jobs, replay.newest)
    publisher.log.adopt(contents.segments)
    publisher.trim_log()
    return _report(publisher, contents, replay)


class _Unreadable(Exception):
    """A record that cannot be replayed, and why."""


class _Replay:
    """Builds the trees that the dead owner had."""

    def __init__(self, publisher: Publisher, covered: Covered) -> None:
        self.publisher = publisher
        self.jobs: list[FlushJob] = []
        self.newest = publisher.version.generation
        self.batches = self.rows = 0
        self.packages: list[str] = []
        self._widths = fixed_widths(publisher.shape) or ()
        self._covered = covered
        self._masks = sorted(mask.generation for mask in publisher.version.masks)
        self._trees: dict[int, Tree] = {}
        self._last = 0
        """The generation of the batch before."""

    def take(self, batch: log_reader.Batch) -> None:
        """Raises _Unreadable if that cannot be; then nothing of the batch is taken."""
        generation = batch[0].generation
        between = bisect_left(self._masks, self._last)
        if between < len(self._masks) and self._masks[between] < generation:
            self.seal()  # a chunk is hidden by a mask as a whole or not at all
        self._last = generation
        self.newest = max(self.newest, generation)
        runs = [(lane, run) for record in batch for lane, run in self._runs(record)]
        if not runs:
            return
        deliveries = self._deliveries(batch[0])
        touched: dict[int, Tree] = {}
        for lane, run in runs:
            run.publish(generation)
            tree = self._trees.get(lane)
            if tree is None:
                tree = self._trees[lane] = self._tree(lane, run)
            tree.append(run)
            touched[lane] = tree
            self.rows += run.rows
        self.batches += 1
        if deliveries:
            self._deliver(deliveries, list(touched.values()))
        for tree in touched.values():
            self.publisher.settle(tree)
        if any(tree.bytes >= self.publisher.settings.chunk_bytes for tree in touched.values()):
            self.seal()

    def _runs(self, record: Record) -> list[tuple[int, Run]]:
        """The rows of a record that no chunk covers, by lane."""
        publisher = self.publisher
        lanes = [lane for lane in record.lane_numbers() if not self._covered.lane(lane, record.generation)]
        if not lanes:
            return []
        runs = []
        try:
            data = batch_of(record, publisher.spec.stored, self._widths)
            if data.num_rows != record.rows:
                raise ValueError(f"it has {data.num_rows:,} rows and says {record.rows:,}")
            unreadable = unreadable_text(data, publisher.spec.name)
            if unreadable:
                raise ValueError(f"column {min(unreadable)!r} has text that is not UTF-8")
            data = settled_rows(data)
            for lane in lanes:
                template = publisher.placing.template_of(lane // 2, data, publisher.version)
                source = Batch(data, template.coder, publisher.shape)
                rows = EVERY_ROW if record.lanes is None else np.flatnonzero(record.lanes == lane).astype(np.uint32)
                runs.append((lane, Run(source, rows, template)))
        except Exception as e:  # its checksum is right, so this is no damage of the disk
            raise self._unreadable(record, e) from e
        return runs

    def _deliveries(self, record: Record) -> list[Delivery]:
        try:
            return deliveries_of(record.package, record.generation)
        except Exception as e:
            raise self._unreadable(record, e) from e

    def _unreadable(self, record: Record, why: Exception) -> _Unreadable:
        name = self.publisher.spec.name
        return _Unreadable(f"record {record.sequence} ({record.rows:,} rows) of the log of table {name!r} cannot be read: {why}")

    def _tree(self, lane: int, run: Run) -> Tree:
        return Tree(lane // 2, bool(lane % 2), run.template, self.publisher.shape, self.publisher.clock.monotonic())

    def _deliver(self, deliveries: list[Delivery], trees: list[Tree]) -> None:
        """Deliveries of a batch as when it was published: recorded with the first tree, and all its trees committed together."""
        trees[0].deliveries.add(deliveries)
        self.packages += [one.name for one in deliveries if isinstance(one, PackageRecord)]
        for tree in trees:
            tree.spanning = tree.spanning or len(trees) > 1

    def seal(self) -> None:
        trees = list(self._trees.values())
        self._trees = {}
        for group in [trees] if any(tree.spanning for tree in trees) else [[tree] for tree in trees]:
            self.jobs.append(FlushJob([tree.view() for tree in group], [d for tree in group for d in tree.deliveries]))


def _report(publisher: Publisher, contents: LogContents, replay: _Replay) -> TableRecovery:
    return TableRecovery(
        publisher.spec.name, len(contents.segments), contents.bytes, replay.batches, replay.rows, tuple(replay.packages),
        contents.cut_bytes, contents.dropped, tuple(contents.damage),
    )  # fmt: skip
