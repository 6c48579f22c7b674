"""The rows to insert: streams of linked rows. A batch is a few numbers; its rows follow from them and the seed, always the same.

A row names an earlier row of its stream that was acknowledged before, so a lost row leaves a hole that later rows point
at. It also carries a checksum of itself, so a row that was altered says so. Numbers are never used twice: a batch that was
lost for good must not come back. Everything here is pure; any thread may call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, Any]

SCHEMA = pa.schema(
    [
        pa.field("key", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us"), nullable=False),
        pa.field("stream", pa.int32(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("previous", pa.int64(), nullable=False),
        pa.field("payload", pa.string(), nullable=False),
        pa.field("checksum", pa.uint64(), nullable=False),
    ]
)
_WITH_BAD = pa.schema([field.with_nullable(True) for field in SCHEMA])

START = 1_767_225_600_000_000  # 2026-01-01 00:00 UTC, in microseconds
SLOTS = 946_684_800_000_000  # 2000-01-01: the streams' private intervals, a day for each
SECOND, DAY = 1_000_000, 86_400_000_000

LATE_AFTER = 5.0
"""Seconds, for the settings: each batch is a second after the one before, and a late one hours behind."""
LONGEST = 24  # bytes of a payload
_STEP = 4096  # rows whose payloads are summed at once
_FACTORS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53], np.uint64
)
_BASE = 0x5851F42D4C957F2D
_POWERS = np.cumprod(np.full(_STEP * LONGEST + 1, _BASE, np.uint64))
_INVERSE = np.cumprod(np.full(_STEP * LONGEST + 1, pow(_BASE, -1, 1 << 64), np.uint64))


@dataclass(frozen=True, slots=True)
class BatchOutline:
    """One batch of a stream, before it has rows."""

    stream: int
    order: int
    """The place among the stream's batches."""
    first: int
    """The number of its first row; the others follow, first the good rows, then the bad ones."""
    rows: int
    time: int
    """Rows are from [time, time + span), in microseconds."""
    span: int
    back: int = 0
    back_rows: int = 0
    """Rows point at rows back .. back + back_rows of the stream; none does if that is empty."""
    bad: int = 0
    """Rows without a key, to be rejected."""
    package: bool = False
    slot: bool = False
    """Rows lie in the stream's private interval, where no other stream has any, and no row points at them."""
    replaces: bool = False
    """The batch replaces all that was in the private interval."""

    @property
    def name(self) -> str:
        return f"{self.stream}/{self.order}"

    @property
    def last(self) -> int:
        """The time of the newest row it can have."""
        return self.time + self.span - 1


def slot(stream: int) -> tuple[int, int]:
    """The private interval of a stream, closed on both ends, in microseconds."""
    return SLOTS + stream * DAY, SLOTS + (stream + 1) * DAY - 1


def next_batch(seed: int, stream: int, order: int, first: int, linkable: Sequence[BatchOutline]) -> BatchOutline:
    """The stream's next batch: its size, its times, and what is special about it. `linkable` are the batches it may point at."""
    rng = np.random.default_rng([seed, stream, order, 1])
    kind, size, where = rng.random(3).tolist()  # plain numbers, for the journal
    rows = 20_000 if size < 0.01 else max(1, int(2000**size))
    time, span = START + order * SECOND, int(rng.integers(1, 10 * SECOND))
    package, bad, in_slot, replaces = kind < 0.15, 0, False, False
    if 0.15 <= kind < 0.25 or kind < 0.03:
        bad = int(rng.integers(1, 6))
    elif 0.25 <= kind < 0.35:
        time -= int(rng.integers(DAY // 24, 2 * DAY))
    elif 0.35 <= kind < 0.40:
        low, high = slot(stream)
        in_slot, replaces, rows = True, kind < 0.38, min(rows, 500)
        time, span = low, high - low + 1
    back = None
    if linkable:
        back = linkable[-1] if where < 0.5 else linkable[int(rng.integers(len(linkable)))]
    return BatchOutline(
        stream, order, first, rows, time, span, back.first if back else 0, back.rows if back else 0,
        bad, package, in_slot, replaces,
    )  # fmt: skip


def rows_of(seed: int, batch: BatchOutline) -> pa.RecordBatch:
    """The rows of a batch, bad ones included: at random places among the others, and without a key."""
    n = batch.rows + batch.bad
    rng = np.random.default_rng([seed, batch.stream, batch.first, 2])
    limits = np.iinfo(np.int64)
    keys = rng.integers(limits.min, limits.max, n, endpoint=True)
    times = batch.time + rng.integers(batch.span, size=n)
    previous = batch.back + rng.integers(batch.back_rows, size=n) if batch.back_rows else np.full(n, -1)
    offsets = np.zeros(n + 1, np.int32)
    np.cumsum(rng.integers(LONGEST + 1, size=n), out=offsets[1:])
    letters = rng.integers(97, 123, int(offsets[-1]), np.uint8)
    numbers = np.arange(batch.first, batch.first + n)
    streams = np.full(n, batch.stream, np.int32)
    columns = [
        pa.array(keys, mask=np.arange(n) >= batch.rows if batch.bad else None),
        pa.array(times).cast(SCHEMA.field("time").type),
        pa.array(streams),
        pa.array(numbers),
        pa.array(previous),
        pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(letters)),
        pa.array(_checksums((keys, times, streams, numbers, previous), offsets, letters)),
    ]
    made = pa.RecordBatch.from_arrays(columns, schema=_WITH_BAD if batch.bad else SCHEMA)
    return made.take(pa.array(rng.permutation(n))) if batch.bad else made


def good_rows(seed: int, batch: BatchOutline) -> pa.RecordBatch:
    """The rows that a table has once the batch is loaded."""
    made = rows_of(seed, batch)
    return made.filter(made.column("key").is_valid()) if batch.bad else made


def sound(rows: pa.RecordBatch) -> Array:
    """For each row, whether it is as it was made: its checksum is that of its values."""
    plain = [rows.column(name).to_numpy().view(np.int64) if name == "time" else rows.column(name).to_numpy() for name in SCHEMA.names[:5]]
    text = rows.column("payload")
    _, ends, data = text.buffers()
    offsets = np.frombuffer(ends, np.int32)[text.offset : text.offset + len(text) + 1]
    letters = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    good: Array = _checksums(plain, offsets, letters) == rows.column("checksum").to_numpy()
    return good


def _checksums(columns: Sequence[Array], offsets: Array, letters: Array) -> Array:
    """One uint64 per row that a change of any of its values changes."""
    n = len(offsets) - 1
    sums = np.zeros(n, np.uint64)
    for factor, column in zip(_FACTORS, (*columns, np.diff(offsets)), strict=True):
        sums = (sums ^ column.astype(np.int64).view(np.uint64)) * factor
        sums ^= sums >> np.uint64(29)
    for lo in range(0, n, _STEP):
        some = offsets[lo : lo + _STEP + 1].astype(np.int64)
        places = some - some[0]
        if places[-1] >= len(_POWERS):
            continue  # longer than payloads are: the lengths alone make it wrong
        # a polynomial in each letter's place, moved to the same power wherever the text stands
        total = np.zeros(places[-1] + 1, np.uint64)
        np.cumsum((letters[some[0] : some[-1]] + np.uint64(1)) * _POWERS[: places[-1]], out=total[1:])
        sums[lo : lo + _STEP] ^= (total[places[1:]] - total[places[:-1]]) * _INVERSE[places[:-1]]
    mixed: Array = (sums ^ (sums >> np.uint64(32))) * _FACTORS[0]
    return mixed
