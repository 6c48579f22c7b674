"""Refreshes, on the write side: rows of whole time spans of a derived table are exchanged, by masks and chunks in one transaction.

The chunks of a derived table are cut at the ends of partitions, and each has neighbouring partitions only, as many as make up a chunk.
A refresh writes the chunks that it touches anew, with the rows beside those that it computed, so the old ones are hidden from end to end
and leave with the commit (tidy.py): however often a table is refreshed, it stays as if it had just been built. Only where rows come to a
large partition, and none leave it, they are written beside its chunks (layers.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.env.together import together
from tidewheel.index.version import ChunkSet
from tidewheel.model.codes import integer_codes
from tidewheel.model.partitions import Partitions, joined
from tidewheel.model.pieces import TMAX, TMIN
from tidewheel.model.records import ChunkRecord, MaskRecord
from tidewheel.write.bulk_loads import trees_of
from tidewheel.write.flush import WRITERS, Flusher
from tidewheel.write.layers import SMALL
from tidewheel.write.patches import Patch, write_patch
from tidewheel.write.pending import Refresh, remove
from tidewheel.write.publish import Publisher, Reservation

CHUNK_BYTES = 2 * SMALL
"""Of a derived chunk, about: smaller than others, because a refresh writes it anew for every partition in it. Chunks of less than half of
that are joined with their neighbours, but for those of partitions that get layers."""

KEPT_BYTES = 64 << 20
"""Of chunks that have rows beside those of a refresh, and are written anew with it. More are only masked."""

REASON = "refresh"


def exchange(
    publisher: Publisher,
    flusher: Flusher,
    rows: pa.Table,
    spans: Sequence[tuple[int, int]],
    reserved: Reservation,
    refresh: Refresh,
    beside: Sequence[tuple[int, int]] = (),
    leaving: frozenset[str] = frozenset(),
) -> None:
    """Commit a refresh: these rows take the place of all rows in the spans. Those that lie `beside` them, in whole partitions, come to what
    is there, but for the chunks that leave."""
    records: list[ChunkRecord] = []
    written = 0
    try:
        for part in portions(rows, [*spans, *beside], publisher.spec.time.column, publisher.spec.partitions):
            placed = [one for batch in part.to_batches() for one in publisher.place(batch)]
            for view in trees_of(placed, publisher.shape, reserved.generation):
                records += flusher.write(publisher, view)
            written += part.num_rows
        if written != rows.num_rows:
            raise AssertionError(f"{written} rows of {rows.num_rows} lie in one of the spans; nothing was changed")
        masks = tuple(MaskRecord(lo, hi, reserved.generation - 1, REASON) for lo, hi in spans)
        flusher.commits.load(publisher, records, masks, reserved, refresh=refresh, leaving=leaving)
    except BaseException:
        if not reserved.handed_over:  # else whoever commits does it
            remove(flusher.files, records)
        raise


def patch(publisher: Publisher, flusher: Flusher, patches: Sequence[Patch], reserved: Reservation, refresh: Refresh) -> bool:
    """Commit a refresh that exchanges few rows of each of these chunks. False if a chunk cannot be patched: then nothing was done."""
    files, table, leaf_rows = flusher.files, publisher.table, publisher.settings.leaf_rows
    records: list[ChunkRecord] = []
    unfit: list[Patch] = []

    def write(share: Sequence[Patch]) -> None:
        for one in share:
            if unfit:
                return
            made = write_patch(files, table, one, leaf_rows, reserved.generation)
            if isinstance(made, ChunkRecord):
                records.append(made)
            elif not made:
                unfit.append(one)

    try:
        failures = [one for one in together(write, [patches[n::WRITERS] for n in range(WRITERS)]) if one is not None]
        if failures:
            raise failures[0]
        if unfit:
            remove(flusher.files, records)
            return False
        regions = [one.spot.chunk.record for one in patches]
        masks = tuple(MaskRecord(one.time_lo, one.time_hi, reserved.generation - 1, REASON) for one in regions)
        flusher.commits.load(publisher, records, masks, reserved, refresh=refresh)
    except BaseException:
        if not reserved.handed_over:
            remove(flusher.files, records)
        raise
    return True


def confirm(publisher: Publisher, flusher: Flusher, refresh: Refresh) -> None:
    """Commit a refresh that computed the rows that are there."""
    flusher.commits.load(publisher, [], (), None, refresh=refresh)


def bytes_within(chunks: ChunkSet, times: Sequence[tuple[int, int]]) -> int:
    """Of all chunks that have rows between the ends of one of these intervals."""
    regions = chunks.matrix[: chunks.count][:, [TMIN, TMAX]]
    met = np.zeros(len(regions), np.bool_)
    for lo, hi in times:
        met |= (regions[:, 0] <= hi) & (regions[:, 1] >= lo)
    return sum(chunks.holders[n].record.bytes for n in np.flatnonzero(met).tolist())


def spans_of(chunks: ChunkSet, inside: tuple[tuple[int, int], ...], size: int, divided: Partitions) -> tuple[tuple[int, int], ...]:
    """The times that are written anew: those inside, and those of the chunks that have rows on both sides of their ends.

    A small chunk right beside them is taken along, so that tables which grow by a partition at a time do not fall to pieces. `size`: the
    bytes of what is new.
    """
    regions = chunks.matrix[: chunks.count][:, [TMIN, TMAX]]
    sizes = np.array([chunk.record.bytes for chunk in chunks], np.int64)
    small = _with_layers(regions, sizes, divided) < CHUNK_BYTES // 2
    spans = inside
    while True:
        met = np.zeros(len(regions), np.bool_)
        for lo, hi in spans:
            met |= (regions[:, 0] <= hi) & (regions[:, 1] >= lo)
        straddling = int(sizes[met].sum())
        if straddling > KEPT_BYTES:
            return inside
        beside = _beside(regions, small, spans) if size + straddling < CHUNK_BYTES // 2 else ()
        wider = joined([*spans, *((int(lo), int(hi)) for lo, hi in regions[met]), *beside])
        if wider == spans:
            return spans
        spans = wider


def _with_layers(regions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], divided: Partitions) -> npt.NDArray[np.int64]:
    """The bytes of each chunk; of those of one partition, all bytes of such chunks: layers (layers.py) stay among themselves."""
    opening, closing = divided.numbers(regions[:, 0]), divided.numbers(regions[:, 1])
    alone = np.flatnonzero(opening == closing)
    _, of = np.unique(opening[alone], return_inverse=True)
    found = sizes.copy()
    found[alone] = np.bincount(of, sizes[alone])[of]
    return found


def _beside(regions: npt.NDArray[np.int64], small: npt.NDArray[np.bool_], spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The nearest chunk before the spans and the nearest after them, if they are small: from there to the spans.

    The times between have no rows, but they have to be in it: what does not touch would stay apart, as chunks of its own.
    """
    before, after = np.flatnonzero(regions[:, 1] < spans[0][0]), np.flatnonzero(regions[:, 0] > spans[-1][1])
    if len(before) and small[one := int(before[regions[before, 1].argmax()])]:
        yield int(regions[one, 0]), spans[0][0]
    if len(after) and small[one := int(after[regions[after, 0].argmin()])]:
        yield spans[-1][1], int(regions[one, 1])


def portions(rows: pa.Table, spans: Sequence[tuple[int, int]], time: str, divided: Partitions) -> Iterator[pa.Table]:
    """Rows of the spans in portions of about a chunk, each of whole partitions of one span. A large partition is a portion by itself."""
    if not rows.num_rows:
        return
    rows = rows.take(np.argsort(_times(rows, time), kind="stable")).combine_chunks()
    times = _times(rows, time)
    each = max(1, CHUNK_BYTES * rows.num_rows // max(1, rows.nbytes))
    for lo, hi in spans:
        start, end = int(np.searchsorted(times, lo)), int(np.searchsorted(times, hi, side="right"))
        ends = np.flatnonzero(np.diff(divided.numbers(times[start:end]))) + start + 1
        last = start
        for cut in (*ends.tolist(), end):
            if cut - start > each and last > start:
                yield rows.slice(start, last - start)
                start = last
            last = cut
        if end > start:
            yield rows.slice(start, end - start)


def _times(rows: pa.Table, time: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    column = rows.column(time).combine_chunks()
    return integer_codes(column.chunk(0) if isinstance(column, pa.ChunkedArray) else column)
