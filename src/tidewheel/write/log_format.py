"""The log format, version 2, as values and bytes: docs/log-format.md in code. No I/O."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from tidewheel.errors import FormatError
from tidewheel.model.dataclass import dataclass

FORMAT = 2
"""Format 1 named one package where this one has a list of deliveries; both are read."""
COLUMNS, STREAM, MESSAGE = 1, 2, 3
MORE, REST = 1, 2

_MAGIC = b"TWHLOG\r\n"
_RECORD_MAGIC = b"TWR1"
_START = struct.Struct("<8sHHI")
_HEAD = struct.Struct("<4sBBHQQQQIIIIQQ")
_SUM = struct.Struct("<Q")
RECORD_HEAD = _HEAD.size + _SUM.size
_ZEROS = bytes(64)

Lanes = npt.NDArray[np.uint16]
Digest = xxhash.xxh3_64_intdigest


def lane_of(server: int, late: bool) -> int:
    return 2 * server + late


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a segment: whose it is, and where its numbers begin."""

    table: int
    epoch: int
    number: int
    first: int
    boot: str
    fields: tuple[int, ...]
    torn: int | None = None

    def pack(self) -> bytes:
        values = {name: getattr(self, name) for name in Head.__slots__}
        text = json.dumps(values).encode()
        head = _START.pack(_MAGIC, FORMAT, 0, len(text)) + text
        head += _SUM.pack(Digest(head))
        return head + _ZEROS[: -len(head) % 64]


@dataclass(frozen=True, slots=True)
class Entry:
    """A record but for what is known only when it is written: made without a lock, as it reads all rows."""

    encoding: int
    rows: int
    lane: int
    lanes: int
    package: int
    body: int
    check: int
    parts: list[Any]
    """The bytes behind the record's head, padding included."""
    size: int
    """Bytes of the whole record."""

    def pack(self, epoch: int, sequence: int, generation: int, synced: int, more: bool, rest: bool = False) -> bytes:
        head = _HEAD.pack(
            _RECORD_MAGIC, self.encoding, MORE * more | REST * rest, self.lane, epoch, sequence, generation, synced,
            self.rows, self.lanes, self.package, 0, self.body, self.check,
        )  # fmt: skip
        return head + _SUM.pack(Digest(head))


def entry(encoding: int, rows: int, lane: int, lanes: Lanes | None, package: bytes, body: Sequence[Any], sizes: Sequence[int]) -> Entry:
    """`body` are buffers of `sizes` bytes; each is padded."""
    parts: list[Any] = []
    check = length = 0
    for part, size in zip((lanes, package, *body), (0 if lanes is None else lanes.nbytes, len(package), *sizes), strict=True):
        if size:
            check = Digest(part, check)
            parts.append(part)
            length += size
            if size % 8:
                parts.append(_ZEROS[: -size % 8])
                length += -size % 8
    total = sum(size + -size % 8 for size in sizes)
    return Entry(
        encoding, rows, lane, 0 if lanes is None else lanes.nbytes, len(package), total, check, parts, RECORD_HEAD + length
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it was found; its parts point into the segment."""

    offset: int
    end: int
    encoding: int
    more: bool
    """The batch goes on in the next record."""
    rest: bool
    """The batch began in a record before this one."""
    lane: int
    epoch: int
    sequence: int
    generation: int
    synced: int
    rows: int
    lanes: Lanes | None
    package: bytes
    body: pa.Buffer

    def lane_numbers(self) -> list[int]:
        return [self.lane] if self.lanes is None else np.unique(self.lanes).tolist()


@dataclass(frozen=True, slots=True)
class LogDamage:
    """The place at which a segment stops making sense, and the reason."""

    offset: int
    what: str
    ends: bool
    """The file ends before the record does, as when a process dies while it writes."""


@dataclass(slots=True)
class Segment:
    head: Head | None
    records: list[Record] = field(default_factory=list)
    damage: LogDamage | None = None


def read_segment(buffer: pa.Buffer, widths: Sequence[int] = ()) -> Segment:
    """All records up to the first that is damaged. `widths`: bytes per value of the table's columns, if all are fixed."""
    head, at, what = _read_head(buffer)
    if head is None:
        return Segment(None, damage=LogDamage(0, what, buffer.size < at))
    segment = Segment(head)
    sequence = head.first
    while at < buffer.size:
        record, what, ends = read_record(buffer, at, widths)
        if record is not None and (record.epoch, record.sequence) != (head.epoch, sequence):
            what = f"record {record.sequence} of epoch {record.epoch} where {sequence} of {head.epoch} belongs"
            record = None
        if record is None:
            segment.damage = LogDamage(at, what, ends)
            break
        segment.records.append(record)
        at, sequence = record.end, sequence + 1
    return segment


def _read_head(buffer: pa.Buffer) -> tuple[Head | None, int, str]:
    """The head, where the records begin (or how long the file should be), and what is wrong with it."""
    if buffer.size < _START.size:
        return None, _START.size, "its head is incomplete"
    magic, version, _, length = _START.unpack(buffer[: _START.size])
    if magic != _MAGIC:
        return None, 0, "it does not start as a log segment does"
    end = _START.size + length
    whole = end + _SUM.size
    whole += -whole % 64
    if buffer.size < whole:
        return None, whole, "its head is incomplete"
    if Digest(buffer[:end]) != _SUM.unpack(buffer[end : end + _SUM.size])[0]:
        return None, 0, "its head is damaged"
    if not 1 <= version <= FORMAT:
        raise FormatError(f"a log segment has format {version}, this Tidewheel reads up to {FORMAT}: use a newer version")
    values = json.loads(bytes(buffer[_START.size : end]))
    return Head(**{**values, "fields": tuple(values["fields"])}), whole, ""


def read_record(buffer: pa.Buffer, at: int, widths: Sequence[int] = ()) -> tuple[Record | None, str, bool]:
    """The record at an offset; else what is wrong, and whether that is only that the file ends."""
    left = buffer.size - at
    if left < RECORD_HEAD:
        return None, "a record's head is incomplete", True
    head = buffer[at : at + _HEAD.size]
    if Digest(head) != _SUM.unpack(buffer[at + _HEAD.size : at + RECORD_HEAD])[0]:
        return None, "a record's head is damaged", False
    magic, encoding, flags, lane, epoch, sequence, generation, synced, rows, lanes, package, _, body, check = _HEAD.unpack(head)
    if magic != _RECORD_MAGIC or encoding not in (COLUMNS, STREAM, MESSAGE) or lanes not in (0, 2 * rows):
        return None, "a record's head makes no sense", False
    if RECORD_HEAD + lanes + -lanes % 8 + package + -package % 8 + body > left:
        return None, "a record is incomplete", True
    start = at + RECORD_HEAD
    found = 0
    content: list[pa.Buffer] = []
    sizes = _column_sizes(encoding, rows, body, widths)
    if sizes is None:
        return None, "a record's rows do not fit its table", False
    for size in (lanes, package, *sizes):
        part = buffer.slice(start, size)
        if size:
            found = Digest(part, found)
        content.append(part)
        start += size + -size % 8
    if found != check:
        return None, "a record's rows are damaged", False
    whole = buffer.slice(start - body, body)
    numbers = np.frombuffer(content[0], np.uint16) if lanes else None
    more, rest = bool(flags & MORE), bool(flags & REST)
    package_text = bytes(content[1])
    record = Record(at, start, encoding, more, rest, lane, epoch, sequence, generation, synced, rows, numbers, package_text, whole)
    return record, "", False


@dataclass(frozen=True, slots=True)
class Sighting:
    """The head of a record, wherever it was found; its rows need not be whole."""

    offset: int
    epoch: int
    sequence: int
    synced: int


def records_behind(buffer: pa.Buffer, at: int) -> list[Sighting]:
    """Heads of records behind a damaged one, wherever they start."""
    found = []
    text = memoryview(buffer).tobytes()
    while (at := text.find(_RECORD_MAGIC, at + 1)) >= 0:
        head = text[at : at + _HEAD.size]
        if at % 8 == 0 and len(text) - at >= RECORD_HEAD and Digest(head) == _SUM.unpack(text[at + _HEAD.size : at + RECORD_HEAD])[0]:
            _, _, _, _, epoch, sequence, _, synced, *_ = _HEAD.unpack(head)
            found.append(Sighting(at, epoch, sequence, synced))
    return found


def _column_sizes(encoding: int, rows: int, body: int, widths: Sequence[int]) -> list[int] | None:
    if encoding != COLUMNS:
        return [body]
    sizes = [rows * width for width in widths]
    return sizes if sum(size + -size % 8 for size in sizes) == body else None


def batch_of(record: Record, schema: pa.Schema, widths: Sequence[int]) -> pa.RecordBatch:
    """The rows of a record. They point into the segment's memory."""
    if record.encoding == STREAM:
        with pa.ipc.open_stream(record.body) as stream:
            batch = stream.read_next_batch()
            return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    if record.encoding == MESSAGE:
        return pa.ipc.read_record_batch(record.body, schema)
    columns = []
    at = 0
    for type_, width in zip(schema.types, widths, strict=True):
        size = record.rows * width
        columns.append(pa.Array.from_buffers(type_, record.rows, [None, record.body.slice(at, size)]))
        at += size + -size % 8
    return pa.RecordBatch.from_arrays(columns, schema=schema)
