"""Reads what an owner left in its log, and tells a crash from damage. Changes nothing, so it can start again at any point.

The rules are those of docs/log-format.md: a record is cut off where a crash explains it, everything else is corruption.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import groupby
from typing import Protocol

import pyarrow as pa

from tidewheel.chunk import names
from tidewheel.errors import CorruptionError, FormatError
from tidewheel.model.dataclass import dataclass
from tidewheel.model.records import Coverage, TableRecord
from tidewheel.write.log_format import LogDamage, Record, Segment, Sighting, lane_of, read_record, read_segment, records_behind

OR_SKIP = (
    "Acknowledged rows may be missing. Restore the warehouse from a backup, or open it with "
    'Settings(damaged_log="skip"): that opens everything that is whole, keeps the damaged part of the log aside, and says what is lost.'
)
"""The advice that ends an error about a damaged log."""

Batch = tuple[Record, ...]
"""The records of one accepted batch; nearly always one."""


@dataclass(slots=True)
class LogContents:
    """The records of a table's log, and the segments they are in."""

    segments: list[tuple[str, int]] = field(default_factory=list)
    """(name, greatest generation in it), oldest first."""
    batches: list[Batch] = field(default_factory=list)
    """Whole ones, in the order they were written."""
    bytes: int = 0
    cut_bytes: int = 0
    """Behind the last whole batch: what a crash interrupted."""
    dropped: int = 0
    """Whole records behind such a cut: handed to the system, and lost in part when the machine stopped."""
    damage: list[str] = field(default_factory=list)
    """Sentences about what was skipped because the settings say so."""
    damaged: list[str] = field(default_factory=list)
    """The segments it was found in."""
    records: list[tuple[str, list[Record]]] = field(default_factory=list)
    """All that were found, by segment."""

    def segment_of(self, record: Record) -> str:
        """The name of the segment that a record is in."""
        return next(name for name, records in self.records if any(one is record for one in records))


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    buffer: pa.Buffer
    segment: Segment

    @property
    def holds_records(self) -> bool:
        return bool(self.segment.records)


class LogFiles(Protocol):
    """The source of segments: a warehouse, or a copy of some of its files."""

    def list(self, folder: str) -> Iterator[str]: ...
    def size(self, name: str) -> int: ...
    def map(self, name: str, size: int) -> pa.Buffer: ...
    def shown(self, name: str) -> str: ...
    def boot(self) -> str:
        """See `LocalFiles.boot`."""
        ...


def segment_names(files: LogFiles, table_id: int) -> list[str]:
    """The segments of a table's log, in the order they were written."""
    found = [(names.segment_of(file), file) for file in files.list(names.log_folder(table_id))]
    return [file for at, file in sorted((at, file) for at, file in found if at is not None)]


class Covered:
    """Records whose rows are in chunks, so that nothing is lost with them."""

    def __init__(self, coverage: Iterable[Coverage]) -> None:
        lanes: dict[int, list[tuple[int, int]]] = {}
        for chunk in coverage:
            lanes.setdefault(lane_of(chunk.server, chunk.late), []).append((chunk.generation_lo, chunk.generation_hi))
        self._lanes = {lane: _disjoint(intervals) for lane, intervals in lanes.items()}

    def lane(self, lane: int, generation: int) -> bool:
        """Whether the rows of a lane that came with a generation are in chunks."""
        starts, ends = self._lanes.get(lane, ((), ()))
        at = bisect_right(starts, generation) - 1
        return at >= 0 and generation <= ends[at]

    def whole(self, record: Record) -> bool:
        return all(self.lane(lane, record.generation) for lane in record.lane_numbers())


def _disjoint(intervals: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Numbers as intervals that rise and do not meet: (starts, ends)."""
    starts: list[int] = []
    ends: list[int] = []
    for lo, hi in sorted(intervals):
        if ends and lo <= ends[-1]:
            ends[-1] = max(ends[-1], hi)
        else:
            starts.append(lo)
            ends.append(hi)
    return starts, ends


def read_log(files: LogFiles, table: TableRecord, widths: Sequence[int], covered: Covered, skip: bool = False) -> LogContents:
    """Everything in a table's log. Raises CorruptionError where no crash explains what is missing, unless told to skip it."""
    contents = LogContents()
    boot = files.boot()
    found = []
    for name in segment_names(files, table.id):
        buffer = files.map(name, files.size(name))
        segment = read_segment(buffer, widths)
        if segment.head is not None and segment.head.fields != table.spec.field_ids:
            raise FormatError(
                f"{files.shown(name)} was written for other columns of table {table.spec.name!r}: use the Tidewheel that wrote it"
            )
        found.append(_Found(name, buffer, segment))
        contents.bytes += buffer.size
    for _, group in groupby(found, key=lambda f: names.segment_of(f.name)[1]):  # type: ignore[index]
        _Reader(files, widths, boot, covered, skip, contents).read(list(group))
    last = 0
    for one in found:
        last = max(last, max((r.generation for r in one.segment.records), default=0))
        contents.segments.append((one.name, last))
        contents.records.append((one.name, one.segment.records))
    return contents


class _Reader:
    """Reads the segments of one owner."""

    def __init__(self, files: LogFiles, widths: Sequence[int], boot: str, covered: Covered, skip: bool, contents: LogContents) -> None:
        self.files = files
        self.widths = widths
        self.boot = boot
        self.covered = covered
        self.skip = skip
        self.contents = contents
        self.expected: int | None = None
        self.group: list[Record] = []

    def read(self, found: list[_Found]) -> None:
        seen: list[Record] = []
        for i, one in enumerate(found):
            segment, later = one.segment, found[i + 1 :]
            if segment.head is None:
                assert segment.damage is not None
                if not self._goes_on(one, segment.damage, later):
                    return
                continue
            if self.expected is not None and segment.head.first != self.expected:
                torn = segment.head.torn
                # a segment that was removed may come back if the machine stops; then all its rows are in chunks, and so are those behind it
                trimmed = all(self.covered.whole(record) for record in seen)
                if (torn is None or torn > self.expected) and not trimmed:
                    self._corrupt(one.name, 0, f"records {self.expected} to {segment.head.first - 1} before it are missing")
                self.group = []
            self._take(segment.records)
            seen += segment.records
            self.expected = segment.head.first + len(segment.records)
            if segment.damage is not None and not self._goes_on(one, segment.damage, later):
                return
        if self.group:  # the last part of a batch was never written
            self.contents.cut_bytes += self.group[-1].end - self.group[0].offset

    def _take(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.rest and not self.group:  # its batch began in what is lost
                continue
            self.group.append(record)
            if not record.more:
                self.contents.batches.append(tuple(self.group))
                self.group = []

    def _goes_on(self, one: _Found, damage: LogDamage, later: list[_Found]) -> bool:
        """Decide what some damage means: go on with the next segment (True), or cut off all behind it (False)."""
        head, number = one.segment.head, self.expected if self.expected is not None else 0
        heads = [other.segment.head for other in later]
        if any(h is not None and h.torn is not None and h.torn <= number for h in heads):
            self.group = []
            return True
        behind: list[Sighting | Record] = [*records_behind(one.buffer, damage.offset)]
        rest = sum(other.holds_records or other.segment.head is None for other in later)
        if head is None:
            explained = not behind and not rest
        elif head.boot == self.boot and self.boot:
            explained = damage.ends and not rest
        else:
            behind += [record for other in later for record in other.segment.records]
            explained = not any(record.synced > number for record in behind)
        if not explained:
            self._corrupt(one.name, damage.offset, damage.what)
            self._salvage(one, damage)
            return True
        start = self.group[0].offset if self.group else damage.offset
        self.contents.cut_bytes += one.buffer.size - start + sum(other.buffer.size for other in later)
        self.contents.dropped += len(behind)
        self.group = []
        return False

    def _corrupt(self, name: str, offset: int, what: str) -> None:
        message = f"log segment {self.files.shown(name)} is damaged at byte {offset}: {what}"
        if not self.skip:
            raise CorruptionError(f"{message}. {OR_SKIP}")
        self.contents.damage.append(message)
        self.contents.damaged.append(name)
        self.group = []

    def _salvage(self, one: _Found, damage: LogDamage) -> None:
        """The whole records behind some damage."""
        at = damage.offset
        epoch = names.segment_of(one.name)[1]  # type: ignore[index]
        for candidate in records_behind(one.buffer, damage.offset):
            if candidate.offset < at or candidate.epoch != epoch:
                continue
            record, _, _ = read_record(one.buffer, candidate.offset, self.widths)
            if record is not None:
                if record.sequence != self.expected:
                    self.group = []
                self._take([record])
                one.segment.records.append(record)
                at, self.expected = record.end, record.sequence + 1
        self.group = []
