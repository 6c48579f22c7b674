"""The log: what keeps acknowledged rows until they are in chunks. One per table and owner.

A record is written, in one piece, before its batch becomes visible (`append`, under the table's lock). `wait` returns when it
is as durable as was promised: with `process` that is at once, with `fsync` when the disk has it; all who wait meanwhile
share one sync. A segment goes when all its rows are in committed chunks (`trim`), oldest first.

    append   the table's lock is held
    wait     no lock is held; any number of threads
    trim     from the thread that commits
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidewheel.chunk import names
from tidewheel.env import deadline
from tidewheel.env.appender import Appender
from tidewheel.env.local_files import LocalFiles
from tidewheel.errors import FencedError, NotSyncedError, StorageError
from tidewheel.index.run import Run
from tidewheel.model.arrays import has_dictionary
from tidewheel.model.pieces import COLUMNS as SLOT_0
from tidewheel.model.pieces import FIXED, SLOTS, VALIDITY, VALUES, Row, Shape
from tidewheel.model.records import Delivery, PackageRecord, StreamBatchRecord, TableRecord
from tidewheel.write.log_format import COLUMNS, MESSAGE, STREAM, Entry, Head, entry, lane_of


class Numbered(Protocol):
    @property
    def number(self) -> int: ...


Placed = tuple[Numbered, bool, Run]
"""(server, late, run): where rows of a batch go."""

SEGMENT_BYTES = 16 << 20
"""From here on a new segment is begun. About a tree's worth: then one flush frees one segment."""


@dataclass(slots=True)
class _Segment:
    name: str
    last: int
    """The greatest generation in it."""
    file: Appender | None = None
    """Open while it is written or waits for its sync."""


class Log:
    def __init__(
        self, files: LocalFiles, table: TableRecord, shape: Shape, epoch: int, durability: str, look: Callable[[], None] = lambda: None
    ) -> None:
        """`look` raises FencedError if this process is not the owner any more."""
        self.shape = shape
        self._look = look
        self.on = durability != "memory"
        self.bytes = 0
        """Written so far."""
        self.syncs = 0
        self._files = files
        self._table = table
        self.epoch = epoch
        self._durable = durability == "fsync"
        self._widths = fixed_widths(shape)
        self._dictionaries = any(has_dictionary(type_) for type_ in table.spec.stored.types)
        self._segments: list[_Segment] = []
        """All that are there, oldest first; the last one with an open file is written to."""
        self._lock = threading.RLock()
        """Guards everything below; held while bytes are handed to the system, never while a sync is waited for."""
        self._changed = threading.Condition(self._lock)
        self._number = 0
        self._placed = False
        """The folder is made, and as durable as was promised."""
        self._at = (0, 0)
        """Sequence number of the next record, and where in the last segment it goes. One assignment: an interrupt cannot divide it."""
        self._synced = 0
        """All records before this one are on the disk."""
        self._unsynced: list[_Segment] = []
        self._syncing = False
        self._torn: int | None = None
        """From this record on, a sync failed or a write stayed incomplete: the next segment says so."""
        self._trimmed = 0
        """All records up to this generation were removed."""
        self._lost: tuple[int, OSError] | None = None
        """Records before this one that are not synced never will be, and why."""

    def adopt(self, segments: Sequence[tuple[str, int]]) -> None:
        """Look after segments that an earlier owner left: (name, greatest generation) each, oldest first."""
        self._segments = [_Segment(name, last) for name, last in segments]

    # ---- writing ----------------------------------------------------------------------------------------

    def entries(self, placed: Sequence[Placed], deliveries: Sequence[Delivery]) -> list[Entry]:
        """The records of a batch. Needs no lock: encodes and checksums all rows."""
        runs: dict[int, list[Placed]] = {}
        for one in placed:
            runs.setdefault(id(one[2].source.data), []).append(one)
        about = json.dumps([_said_of(one) for one in deliveries]).encode() if deliveries else b""
        return [self._entry(parts, about) for parts in runs.values()]

    def _entry(self, parts: list[Placed], package: bytes) -> Entry:
        server, late, run = parts[0]
        data, rows = run.source.data, run.source.data.num_rows
        lanes = None
        if len(parts) > 1:
            lanes = np.empty(rows, np.uint16)
            for owner, is_late, part in parts:
                lanes[part.row_numbers] = lane_of(owner.number, is_late)
        if self._widths is not None and (addresses := _plain(run.source.row, len(self._widths))):
            sizes = [rows * width for width in self._widths]
            body = [pa.foreign_buffer(at, size, data) for at, size in zip(addresses, sizes, strict=True)]
            return entry(COLUMNS, rows, lane_of(server.number, late), lanes, package, body, sizes)
        encoding, body = (STREAM, _stream(data)) if self._dictionaries else (MESSAGE, data.serialize())
        if body.size % 8:
            body = pa.py_buffer(body.to_pybytes() + bytes(-body.size % 8))
        return entry(encoding, rows, lane_of(server.number, late), lanes, package, [body], [body.size])

    @property
    def next_record(self) -> int:
        """The number of the record that is written next; also what to `wait` for, so that all before it are safe."""
        return self._at[0]

    def append(self, generation: int, entries: Sequence[Entry]) -> int:
        """Write the records of one batch. Returns what to `wait` for. When this raises, nothing of the batch is in the log.

        But for FencedError: then this process is not the owner any more, and the next one may have found the batch or not.
        """
        with self._lock:
            segment = self._writable()
            file = segment.file
            assert file is not None
            number, end = self._at
            parts: list[object] = []
            size = 0
            for n, one in enumerate(entries):
                parts.append(one.pack(self.epoch, number + n, generation, self._synced, n + 1 < len(entries), n > 0))
                parts += one.parts
                size += one.size
            try:
                file.write(parts, size, end)
            except StorageError as e:
                if file.torn:
                    self._torn = number
                if file.gone:
                    raise FencedError(f"{self._files.shown(segment.name)} was deleted, or read by the next owner") from e
                raise
            segment.last = generation
            self._at = number + len(entries), end + size
            self.bytes += size
            if not file.is_ours:  # after the write: whoever reads it from now on finds this record
                raise FencedError(f"{self._files.shown(segment.name)} was deleted, or read by the next owner")
            return self._at[0]

    def _writable(self) -> _Segment:
        """The segment to write to: a new one if the last is full or cannot be trusted any more."""
        last = self._segments[-1] if self._segments else None
        if last is not None and last.file is not None:
            if self._at[1] < SEGMENT_BYTES and self._torn is None:
                return last
            self._retire(last)
        self._look()  # before it is made: the folder may be another's, or gone
        folder = names.log_folder(self._table.id)
        if not self._placed:
            self._files.make_folder(folder)
        self._number += 1
        name = names.segment_file(self._table.id, self.epoch, self._number)
        boot = self._files.boot()
        head = Head(self._table.id, self.epoch, self._number, self._at[0], boot, self._table.spec.field_ids, self._torn).pack()
        file = self._files.append(name, head, self._durable)
        try:
            self._look()  # and after: whoever becomes the owner from now on finds it
            if self._durable:
                for parent in (folder,) if self._placed else (folder, names.LOGS, ""):
                    self._files.sync_folder(parent)
        except (StorageError, FencedError):
            file.close()
            self._files.remove(name)
            raise
        self._placed = True
        segment = _Segment(name, 0, file)
        self._unsynced.append(segment)
        self._segments.append(segment)
        self._at, self._torn = (self._at[0], len(head)), None
        return segment

    def _retire(self, segment: _Segment) -> None:
        """Nothing more is written to a segment; its file stays open until it is synced, if anybody wants that."""
        if not self._durable and segment.file is not None:
            segment.file.close()
            segment.file = None

    def wait(self, upto: int) -> None:
        """Returns when all records before number `upto` are as durable as was promised."""
        if not self._durable:
            return
        while True:
            with self._lock:
                if self._synced >= upto:
                    return
                if self._lost is not None and upto <= self._lost[0]:
                    raise self._not_synced(self._lost[1])
                if self._syncing:
                    if (left := deadline.left()) <= 0:
                        raise deadline.late(
                            f"the rows of table {self._table.spec.name!r} are visible, but the disk has not said yet that it has them; "
                            "look whether they are there before you insert them again"
                        )
                    self._changed.wait(None if left == math.inf else left)
                    continue
                self._syncing = True
                segments, reached = list(self._unsynced), self._at[0]
            self._sync(segments, reached)

    def _sync(self, segments: list[_Segment], reached: int) -> None:
        """One sync for everybody who waits."""
        failure: OSError | None = None
        done = False
        try:
            for segment in segments:
                if segment.file is not None:
                    segment.file.sync()
            done = True
        except OSError as e:
            failure = e
        finally:
            with self._lock:
                self._syncing = False
                self.syncs += 1
                if failure is not None:
                    # never tried again: the system may have thrown the bytes away, and would call the next sync a success
                    self._torn, self._lost = self._synced, (self._at[0], failure)
                    self._let_go(segments, writing=None)
                elif done:
                    self._synced = max(self._synced, reached)
                    self._let_go(segments, writing=self._segments[-1] if self._segments else None)
                self._changed.notify_all()

    def _let_go(self, segments: list[_Segment], writing: _Segment | None) -> None:
        """Close segments that need no sync any more, all but the one that is still written to."""
        for segment in segments:
            if segment is not writing and segment in self._unsynced:
                self._unsynced.remove(segment)
                if segment.file is not None:
                    segment.file.close()
                    segment.file = None

    def _not_synced(self, e: OSError) -> NotSyncedError:
        return NotSyncedError(
            f"table {self._table.spec.name!r}: the log could not be synced ({e}). The rows are visible now, but may not survive a power "
            "failure until they are flushed: call table.flush(), and look whether they are there before you insert them again."
        )

    # ---- letting go -------------------------------------------------------------------------------------

    def trim(self, generation: int) -> None:
        """All rows up to this generation are in committed chunks: remove the segments that hold no others."""
        with self._lock:
            gone: list[_Segment] = []
            while self._segments and self._segments[0].last <= generation and not (self._syncing and self._segments[0] in self._unsynced):
                gone.append(self._segments.pop(0))
            for segment in gone:
                if segment in self._unsynced:
                    self._unsynced.remove(segment)
                if segment.file is not None:
                    segment.file.close()
                self._trimmed = max(self._trimmed, segment.last)
            if gone and not self._segments:
                self._synced, self._torn = self._at[0], None  # chunks have what the log had
                self._changed.notify_all()
        for segment in gone:
            self._files.remove(segment.name)

    def gone(self, covered: int) -> int:
        """The generation up to which no record is on the disk any more, also not after a power failure. `covered` if there is none at all.

        Looks at the disk: what could not be removed is still there, and would be replayed.
        """
        with self._lock:
            mine = [segment.name for segment in self._segments]
            trimmed = self._trimmed if mine else covered
        folder = names.log_folder(self._table.id)
        there = [file for file in self._files.list(folder) if names.segment_of(file) is not None]
        if any(file not in mine for file in there):
            return 0
        try:
            if self._placed or there or folder in self._files.folders(names.LOGS):  # an earlier owner may have removed the last one
                self._files.sync_folder(folder)
        except StorageError:
            return 0
        return trimmed

    def close(self) -> None:
        """Stop writing. What is there stays, for the next owner to replay."""
        with self._lock:
            for segment in self._segments:
                if segment.file is not None:
                    segment.file.close()
                    segment.file = None

    def drop(self) -> None:
        """The table is gone, and its log with it."""
        self.close()
        for segment in self._segments:
            self._files.remove(segment.name)
        self._segments = []
        self._files.remove_folder(names.log_folder(self._table.id))


def fixed_widths(shape: Shape) -> tuple[int, ...] | None:
    """Bytes per value of each column, if all columns have a fixed width."""
    return shape.widths if all(kind == FIXED for kind in shape.kinds) else None


def deliveries_of(text: bytes, generation: int) -> list[Delivery]:
    """Packages and batches of streams that a record's rows came as."""
    said = json.loads(text) if text else []
    known = [said] if isinstance(said, dict) else said  # the first logs named one package, without a list
    return [(StreamBatchRecord if "stream" in one else PackageRecord)(generation=generation, **one) for one in known]


def _said_of(delivery: Delivery) -> dict[str, object]:
    said = asdict(delivery)
    del said["generation"]  # the record has it
    return said


def _plain(row: Row, columns: int) -> list[int]:
    """The addresses of the columns' values, if none of them has nulls."""
    slots = row[SLOT_0 : SLOT_0 + SLOTS * columns].tolist()
    return [] if any(slots[VALIDITY::SLOTS]) else slots[VALUES::SLOTS]


def _stream(data: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as out:
        out.write_batch(data)
    return sink.getvalue()
