"""Loads, on the owner's side: tasks write chunks into a folder of their own, one commit makes them part of the table.

A bulk load has one folder for all its tasks; a large slice of a stream's batch has one for itself, and is committed with its batch. Until
then nothing points to what they write: a load that fails is removed with its folder, and one whose driver was killed when its folder was
not touched for hours. It does not need the owner it began with: whoever owns the warehouse at its end commits it. The chunks' files say
generation 0; the catalog gives them theirs when they are committed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tidewheel.chunk import names
from tidewheel.env.clock import Clock
from tidewheel.env.store import Store
from tidewheel.errors import InputError, StagingLostError
from tidewheel.index.run import Run
from tidewheel.index.tree import Tree, TreeView
from tidewheel.model.delivery import Ack, Load, Written
from tidewheel.model.pieces import Shape
from tidewheel.model.record_checks import WrongValueError, check_content
from tidewheel.model.records import ChunkRecord, Delivery, MaskRecord
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.write.flush import Flusher
from tidewheel.write.place import Placed
from tidewheel.write.publish import Publisher, Reservation

STALE = 6 * 3600.0
"""Seconds after which the folder of a load that nobody writes to is removed: before its first chunk there may be a large sort."""

AWAITED = 600.0
"""Seconds that an owner which nobody else uses waits for a load to go on."""


class Loads:
    """The bulk loads of one table. Every method may be called from any thread."""

    def __init__(self, publisher: Publisher, flusher: Flusher, files: Store, replacing: threading.Lock) -> None:
        self._publisher = publisher
        self._flusher = flusher
        self._files = files
        self._replacing = replacing
        self._under_way: set[str] = set()

    @property
    def under_way(self) -> bool:
        """Whether somebody who began a load will be back soon; whoever comes later finds another owner."""
        folders = (names.staging_folder(job) for job in list(self._under_way))
        return any(_age(self._files, self._publisher.clock, folder) < AWAITED for folder in folders)

    def begin(self) -> Load:
        """What tasks need to know. The template is that of the moment; chunks made by an older one are as good."""
        sweep(self._files, self._publisher.clock)
        job = names.new_job(self._publisher.table.id)
        folder = names.staging_folder(job)
        self._files.make_folder(folder)
        self._under_way.add(job)
        settings = self._publisher.settings
        prefix, bounds = self._publisher.placing.for_others()
        return Load(job, folder, prefix, bounds, settings.leaf_rows, settings.chunk_bytes)

    def knows(self, job: str) -> bool:
        """Whether a load of this table has begun and not ended."""
        mine = names.is_job(job) and job.startswith(f"{self._publisher.table.id}-")
        return mine and names.staging_folder(job) in self._files.folders(names.STAGING)

    def check(self, job: str) -> None:
        """Raises StagingLostError if a load is not known."""
        if not self.knows(job):
            raise StagingLostError(f"load {job} has ended, or nobody went on with it for hours. Nothing was changed; load again")

    def commit(self, job: str, written: Sequence[Written], overwrite: bool) -> Ack:
        """All chunks of all tasks, in one transaction; with `overwrite` all other rows are hidden by it."""
        publisher = self._publisher
        self.check(job)
        for one in written:
            self._check_written(one, job)
        records = [chunk for one in written for chunk in one.chunks]
        rows = sum(one.rows for one in written)
        if not records and not overwrite:
            self.abort(job)
            return Ack(0, 0, publisher.version.generation)
        # 1. all rows of before are sealed: a mask hides a chunk as a whole or not at all
        with self._replacing, publisher.reserve() as reserved:
            generation = reserved.generation
            # 2. the files move to where chunks are, under their temporary names
            with self._removing(reserved) as placed:
                self._place_all(records, generation, placed)
                # 3. one transaction, one swap
                masks = (MaskRecord(INT64_MIN, INT64_MAX, generation - 1, "overwrite"),) if overwrite else ()
                self._flusher.commits.load(publisher, placed, masks, reserved)
        self.abort(job)
        return Ack(rows, 0, generation)

    def deliver(self, written: Sequence[Written], rest: Sequence[Placed], deliveries: Sequence[Delivery], rows: int) -> int:
        """A batch of a stream, or a file, in one transaction: so many rows in all, some in chunks already, some not. Returns its
        generation."""
        publisher = self._publisher
        for one in written:
            self._check_written(one, one.job)
        with self._replacing, publisher.reserve(seal=False) as reserved, self._removing(reserved) as records:
            generation = reserved.generation
            self._place_all([chunk for one in written for chunk in one.chunks], generation, records)
            for view in trees_of(rest, publisher.shape, generation):
                records += self._flusher.write(publisher, view)
            self._flusher.commits.load(publisher, records, (), reserved, [replace(one, generation=generation) for one in deliveries])
        publisher.metrics.batches += 1
        publisher.metrics.rows += rows
        return generation

    def _check_written(self, written: Written, job: str) -> None:
        """What a task says it wrote: files of this load, in its folder, each once. A task names them; nothing else is ever moved."""
        if written.job != job:
            raise InputError(f"load {job} of table {self._publisher.spec.name!r} was told of chunks of load {written.job!r}")
        folder = names.staging_folder(job)
        for record in written.chunks:
            try:
                check_content(record)
                if record.file != names.staged_file(folder, record.id):
                    raise WrongValueError("file", record.file, names.staged_file(folder, record.id))
            except WrongValueError as e:
                raise InputError(f"load {job} of table {self._publisher.spec.name!r}: {e}. Nothing was changed; load again") from e
            if self._files.regular_size(record.file + names.TEMPORARY) != record.bytes:
                raise InputError(f"load {job}: {self._files.shown(record.file)} is not the file that its task wrote. Nothing was changed")
        if written.rows != sum(record.rows for record in written.chunks):
            raise InputError(f"load {job} of table {self._publisher.spec.name!r} was told of {written.rows!r} rows, its chunks have others")

    @contextmanager
    def _removing(self, reserved: Reservation) -> Iterator[list[ChunkRecord]]:
        """Chunks on their way to a commit: if they do not come that far, their files go."""
        records: list[ChunkRecord] = []
        try:
            yield records
        except BaseException:
            if not reserved.handed_over:  # else whoever commits does it
                for record in records:
                    self._files.remove(record.file)
            raise

    def _place_all(self, records: Sequence[ChunkRecord], generation: int, placed: list[ChunkRecord]) -> None:
        """Move files of tasks to where chunks are, under their temporary names. `placed` grows by each that was moved."""
        for record in records:
            placed.append(self._place(record, generation))
        for folder in sorted({file.rpartition("/")[0] for file in (*(r.file for r in records), *(r.file for r in placed))}):
            self._files.sync_folder(folder)

    def _place(self, record: ChunkRecord, generation: int) -> ChunkRecord:
        table_id = self._publisher.table.id  # the task that wrote it did not know
        file = names.chunk_file(table_id, record.id)
        self._files.move(record.file + names.TEMPORARY, file + names.TEMPORARY, sync=False)
        self._files.adopt(file)
        return replace(
            record, table_id=table_id, file=file, generation_lo=generation, generation_hi=generation, covers=generation
        )  # fmt: skip

    def abort(self, job: str) -> None:
        """Remove what is left of a load of this table."""
        folder = names.staging_folder(job)
        if job.startswith(f"{self._publisher.table.id}-"):
            self._under_way.discard(job)
            _remove(self._files, folder)


def trees_of(placed: Sequence[Placed], shape: Shape, generation: int) -> list[TreeView]:
    """Rows as the trees would hold them if they were published with this generation."""
    lanes: dict[tuple[int, bool], list[Run]] = {}
    for server, late, run in placed:
        run.publish(generation)
        lanes.setdefault((server.number, late), []).append(run)
    return [Tree.of(server, late, runs[0].template, shape, runs).view() for (server, late), runs in lanes.items()]


def _age(files: Store, clock: Clock, folder: str) -> float:
    """Seconds since the folder or a file in it was changed."""
    return clock.now() - max(map(files.modified, [folder, *files.list(folder)]))


def sweep(files: Store, clock: Clock) -> None:
    """Remove the folders of loads that nobody goes on with, by the age of their newest file."""
    for folder in files.folders(names.STAGING):
        if names.is_ended(folder) or _age(files, clock, folder) > STALE:
            _remove(files, folder)


def _remove(files: Store, folder: str) -> None:
    """A task that has not heard yet that its job failed may go on to write: under another name, the folder is out of its reach."""
    if not names.is_ended(folder):
        ended = names.ended_folder(folder)
        folder = ended if files.rename_folder(folder, ended) else folder
    for file in list(files.list(folder)):
        files.remove(file)
    files.remove_folder(folder)
