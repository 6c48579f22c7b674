"""Rows: from the segments of a scan to batches, a bounded number of rows at a time.

Long segments are handed out as slices of what they lie in, without copying. Short ones are copied together. Segments
that codes alone could not decide are first refined: their keys are compared by value.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tidewheel.read import kernels as k
from tidewheel.read.coordinator import Scan
from tidewheel.read.limits import Watch
from tidewheel.read.materialise import Columns, TooLongError, check_blocks, copy, slice_of, sliceable
from tidewheel.read.remote import loaded_bytes, resident
from tidewheel.read.scan import Found, Matrix


def rows_of(scan: Scan, columns: Columns, size: int, watch: Watch, enough: int | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a scan in batches; at most `size` rows are copied into one. `enough`: only so many rows are needed.

    What is copied is counted in `watch.held`; whoever drops a batch says so there.
    """
    found = scan.found
    if not found.doubtful:
        segments = found.segments if enough is None else _first(found.segments, enough)
        yield from _read(scan, segments, columns, size, watch)
        return
    left = enough
    for group in _split(found.segments, size):
        refined = _refine(scan, group, watch)
        yield from _read(scan, refined, columns, size, watch)
        if left is not None:
            left -= int(refined[:, 2].sum())
            if left <= 0:
                return


def parts_of(scan: Scan, columns: Columns, size: int, watch: Watch) -> Iterator[tuple[Found, Matrix]]:
    """The segments of a scan themselves, of at most `size` rows at a time: those columns of them are in memory, and verified."""
    found = scan.found
    for group in (found.segments,) if found.rows <= size else _split(found.segments, size):
        watch.check()
        segments = _refine(scan, group, watch) if found.doubtful else group
        check_blocks(found, segments, columns, watch)
        yield from resident(found, segments, columns, watch)


def _read(scan: Scan, segments: Matrix, columns: Columns, size: int, watch: Watch) -> Iterator[pa.RecordBatch]:
    found, least = scan.found, scan.coordinator.settings.zero_copy_rows
    if found.longest >= least:
        long = sliceable(found, segments, least)
        slices = segments[long]
        check_blocks(found, slices, columns, watch)
        for here, part in resident(found, slices, columns, watch):
            watch.take(loaded_bytes(here))
            for segment in part.tolist():
                yield slice_of(here, segment, columns)
        segments = segments[~long]
    if len(segments):
        small = segments is found.segments and found.rows <= size
        for group in (segments,) if small else _split(segments, size):
            check_blocks(found, group, columns, watch)
            for here, part in resident(found, group, columns, watch):
                yield from _copied(here, part, columns, watch)


def _copied(found: Found, segments: Matrix, columns: Columns, watch: Watch) -> Iterator[pa.RecordBatch]:
    held = watch.held
    try:
        batch = copy(found, segments, columns, watch)
    except TooLongError:
        watch.held = held
        for half in _split(segments, max(1, int(segments[:, 2].sum()) // 2)):
            yield from _copied(found, half, columns, watch)
    else:
        yield batch


def _refine(scan: Scan, segments: Matrix, watch: Watch) -> Matrix:
    """Values decide: keep the marked rows whose key really matches."""
    marked = segments[:, 3] != 0
    if not marked.any():
        return segments
    found = scan.found
    doubtful = segments[marked]
    columns = scan.coordinator.columns(found.version.coder.columns)
    check_blocks(found, doubtful, columns, watch)
    held = watch.held
    checks = [scan.check(copy(here, part, columns, watch)) for here, part in resident(found, doubtful, columns, watch)]
    watch.held = held
    keep = checks[0] if len(checks) == 1 else np.concatenate(checks)
    if keep.all():  # as nearly always, if many rows have the key
        sure = segments.copy()
        sure[:, 3] = 0
        return sure
    out = np.empty((len(keep), 4), np.int64)
    n = k.refine(doubtful, keep.view(np.uint8), out)
    both = np.concatenate([segments[~marked], out[:n]])
    return both[np.lexsort((both[:, 1], both[:, 0]))]  # in rising order, as a scan leaves them: others rely on it


def _split(segments: Matrix, size: int) -> Iterator[Matrix]:
    """Groups of at most `size` rows; a segment that crosses a border is cut."""
    ends = np.cumsum(segments[:, 2])
    rows = int(ends[-1]) if len(ends) else 0
    if rows <= size:
        yield segments
        return
    for first in range(0, rows, size):
        last = min(first + size, rows)
        a, b = np.searchsorted(ends, (first, last - 1), side="right").tolist()
        group = segments[a : b + 1].copy()
        skipped = first - int(ends[a] - segments[a, 2])
        group[0, 1] += skipped
        group[0, 2] -= skipped
        group[-1, 2] -= int(ends[b]) - last
        yield group


def _first(segments: Matrix, rows: int) -> Matrix:
    """The segments with the first so many rows."""
    if rows <= 0:
        return segments[:0]
    return segments[: int(np.searchsorted(np.cumsum(segments[:, 2]), rows)) + 1]
