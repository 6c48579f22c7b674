"""Refreshes, on the write side: rows of whole time spans of a derived table are exchanged, by masks and chunks in one transaction.

The chunks of a derived table are cut at the ends of partitions, and each has neighbouring partitions only, as many as make up a chunk.
A refresh writes the chunks that it touches anew, with the rows beside those that it computed, so the old ones are hidden from end to end
and leave with the commit (tidy.py): however often a table is refreshed, it stays as if it had just been built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tidewheel.model.codes import integer_codes
from tidewheel.model.partitions import Partitions
from tidewheel.model.records import ChunkRecord, MaskRecord
from tidewheel.write.bulk_loads import trees_of
from tidewheel.write.flush import Flusher
from tidewheel.write.pending import Refresh, remove
from tidewheel.write.publish import Publisher, Reservation

CHUNK_BYTES = 4 << 20
"""Of a derived chunk, about: smaller than others, because a refresh writes it anew for every partition in it."""

REASON = "refresh"


def exchange(
    publisher: Publisher, flusher: Flusher, rows: pa.Table, spans: Sequence[tuple[int, int]], reserved: Reservation, refresh: Refresh
) -> None:
    """Commit a refresh: these rows, which lie in the spans, take the place of all rows there."""
    records: list[ChunkRecord] = []
    try:
        for part in portions(rows, publisher.spec.time.column, publisher.spec.partitions):
            placed = [one for batch in part.to_batches() for one in publisher.place(batch)]
            for view in trees_of(placed, publisher.shape, reserved.generation):
                records += flusher.write(publisher, view)
        masks = tuple(MaskRecord(lo, hi, reserved.generation - 1, REASON) for lo, hi in spans)
        flusher.commits.load(publisher, records, masks, reserved, refresh=refresh)
    except BaseException:
        if not reserved.handed_over:  # else whoever commits does it
            remove(flusher.files, records)
        raise


def confirm(publisher: Publisher, flusher: Flusher, refresh: Refresh) -> None:
    """Commit a refresh that computed the rows that are there."""
    flusher.commits.load(publisher, [], (), None, refresh=refresh)


def portions(rows: pa.Table, time: str, divided: Partitions) -> Iterator[pa.Table]:
    """Rows in portions of about a chunk, each of whole partitions that lie side by side. A large partition is a portion by itself."""
    if not rows.num_rows:
        return
    rows = rows.take(np.argsort(_times(rows, time), kind="stable")).combine_chunks()
    numbers = divided.numbers(_times(rows, time))
    ends = np.append(np.flatnonzero(np.diff(numbers)) + 1, rows.num_rows)
    each = max(1, CHUNK_BYTES * rows.num_rows // max(1, rows.nbytes))
    start = last = 0
    for end in ends.tolist():
        if end - start > each and last > start:
            yield rows.slice(start, last - start)
            start = last
        last = end
    yield rows.slice(start)


def _times(rows: pa.Table, time: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    column = rows.column(time).combine_chunks()
    return integer_codes(column.chunk(0) if isinstance(column, pa.ChunkedArray) else column)
