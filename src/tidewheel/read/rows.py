"""Rows: from the segments of a scan to batches, a bounded number of rows at a time.

Long segments are handed out as slices of what they lie in, without copying. Short ones are copied together. Segments
that codes alone could not decide are first refined: their keys are compared by value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.errors import LimitError
from tidewheel.model.loading import later
from tidewheel.model.pieces import COLUMNS, SLOTS, VAR32, VAR64
from tidewheel.model.schema import ZOrder
from tidewheel.read.box_condition import box_condition
from tidewheel.read.limits import NEVER, Watch
from tidewheel.read.materialise import Columns, TooLongError, check_blocks, copy, slice_of, sliceable
from tidewheel.read.planner import Planner, Scan
from tidewheel.read.remote_scan import loaded_bytes, resident
from tidewheel.read.scan import Found, Matrix
from tidewheel.read.two_threads import cores, halves

if TYPE_CHECKING:
    from tidewheel.read.filters.program import Program

k = later("tidewheel.read.kernels")
filters = later("tidewheel.read.filters.kernels")
texts = later("tidewheel.read.texts.kernels")


_LOOKED_AT = 1 << 16
"""Rows at least that are asked at a time whether they satisfy a condition: nothing of them is copied."""
_SHARED = 1 << 15
"""Rows from which on two threads share the copying."""
_TURNS = 16
"""Portions of rows that two threads take in turns. Which one takes which is always the same, and so is the order in which floats add up."""
_FEW = 1 << 12
"""Rows that satisfy it, and wait to be copied with others."""


def rows_of(
    scan: Scan, columns: Columns, size: int, watch: Watch, enough: int | None = None, program: Program | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a scan in batches; at most `size` rows are copied into one. `enough`: only so many rows are needed. `program`: only
    those where it is true.

    What is copied is counted in `watch.held`; whoever drops a batch says so there.
    """
    found = scan.found
    if program is not None:
        yield from _satisfying(scan, columns, size, watch, enough, program)
        return
    if not found.doubtful:
        segments = found.segments if enough is None else _first(found.segments, enough)
        yield from _read(scan.planner, found, columns, size, watch, segments)
        return
    left = enough
    for group in (found.segments,) if found.rows <= size else split(found.segments, size):
        refined = _refine(scan, group, watch)
        yield from _read(scan.planner, found, columns, size, watch, refined)
        if left is not None:
            left -= int(refined[:, 2].sum())
            if left <= 0:
                return


def parts_of(
    scan: Scan, columns: Columns, size: int, watch: Watch, loaded: Columns | None = None, open_: bool = False
) -> Iterator[tuple[Found, Matrix]]:
    """The segments of a scan themselves, of at most `size` rows at a time: those columns of them are in memory, and verified. `loaded`:
    all that is to be loaded of chunks that are not mapped, if that is more. `open_`: marked segments stay so, and are decided elsewhere."""
    found = scan.found
    for group in (found.segments,) if found.rows <= size else split(found.segments, size):
        watch.check()
        segments = _refine(scan, group, watch) if found.doubtful and not open_ else group
        check_blocks(found, segments, columns, watch)
        yield from resident(found, segments, columns if loaded is None else loaded, watch)


def _satisfying(scan: Scan, columns: Columns, size: int, watch: Watch, enough: int | None, program: Program) -> Iterator[pa.RecordBatch]:
    """The rows where a program is true: it decides where they lie, and then those are read."""
    planner, found = scan.planner, scan.found
    more = [name for name in program.reads if planner.number(name, "condition") not in columns.numbers]
    every = planner.columns([*columns.schema.names, *more]) if more else columns
    looked_at, left = planner.columns(program.reads), NEVER if enough is None else enough
    waiting, rows = list[Matrix](), 0
    for here, segments in parts_of(scan, looked_at, max(size, _LOOKED_AT), watch, every):
        out = np.empty((int(segments[:, 2].sum()) // 2 + len(segments) + 1, 4), np.int64)
        count, kept = filters.keep_where(here.pieces, segments, program.steps, out, 0)
        waiting.append(out[:count].copy())
        rows += kept
        if here is not found or rows >= min(size, _FEW, left):
            yield from _read(planner, _resident(here, waiting, rows), columns, size, watch)
            left -= rows
            waiting, rows = [], 0
            if left <= 0:
                return
    if rows:
        yield from _read(planner, _resident(found, waiting, rows), columns, size, watch)


def _resident(found: Found, groups: list[Matrix], rows: int) -> Found:
    """Some of the rows, which are in memory."""
    segments = groups[0] if len(groups) == 1 else np.concatenate(groups)
    longest = int(segments[:, 2].max()) if len(segments) else 0
    return replace(found, segments=segments, rows=rows, longest=longest, doubtful=0, near=len(found.pieces))


def _read(
    planner: Planner, found: Found, columns: Columns, size: int, watch: Watch, segments: Matrix | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a scan, or of some segments of it."""
    least = planner.settings.zero_copy_rows
    segments = found.segments if segments is None else segments
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
        for group in (segments,) if found.rows <= size else split(segments, size):
            check_blocks(found, group, columns, watch)
            for here, part in resident(found, group, columns, watch):
                yield from _copied(here, part, columns, watch)


def _copied(found: Found, segments: Matrix, columns: Columns, watch: Watch) -> Iterator[pa.RecordBatch]:
    held = watch.held
    rows = int(segments[:, 2].sum())
    if rows >= _SHARED and cores() > 1 and (both := _copied_by_two(found, segments, rows, columns, watch)) is not None:
        yield from both
        return
    try:
        batch = copy(found, segments, columns, watch)
    except TooLongError:
        watch.held = held
        for half in split(segments, max(1, rows // 2)):
            yield from _copied(found, half, columns, watch)
    else:
        yield batch


def _copied_by_two(found: Found, segments: Matrix, rows: int, columns: Columns, watch: Watch) -> tuple[pa.RecordBatch, ...] | None:
    """Two halves, which two threads copy; None if one of them does not fit, in itself or into half of the memory."""
    held = watch.held
    first, second = split(segments, -(-rows // 2))
    try:
        return halves(partial(copy, found, first, columns), partial(copy, found, second, columns), watch)
    except (TooLongError, LimitError):
        watch.held = held
        return None


def _refine(scan: Scan, segments: Matrix, watch: Watch) -> Matrix:
    """Values decide: keep the marked rows whose key really matches."""
    found = scan.found
    marked = segments[:, 3] != 0
    every = segments is found.segments and found.doubtful == len(segments)  # as nearly always, if one key is asked for
    if not every and not marked.any():
        return segments
    if (program := _box_program(scan, segments)) is not None:
        columns = scan.planner.columns(program.reads)
        check_blocks(found, segments if every else segments[marked], columns, watch)
        out = np.empty((int(segments[:, 2].sum()) // 2 + len(segments) + 1, 4), np.int64)
        count, _ = filters.keep_where(found.pieces, segments, program.steps, out, 1)
        return out[:count]
    doubtful = segments if every else segments[marked]
    columns = scan.planner.columns(found.version.coder.columns)
    check_blocks(found, doubtful, columns, watch)
    checks = [_matching(scan, here, part, columns, watch) for here, part in resident(found, doubtful, columns, watch)]
    keep, kept = checks[0] if len(checks) == 1 else (np.concatenate([keep for keep, _ in checks]), sum(kept for _, kept in checks))
    if kept == len(keep):  # as nearly always, if many rows have the key
        sure = segments.copy()
        sure[:, 3] = 0
        return sure
    out = np.empty((len(keep), 4), np.int64)
    n = k.refine(doubtful, keep.view(np.uint8), out)
    both = np.concatenate([segments[~marked], out[:n]])
    return both[np.lexsort((both[:, 1], both[:, 0]))]  # in rising order, as a scan leaves them: others rely on it


def _box_program(scan: Scan, segments: Matrix) -> Program | None:
    """What says of many rows in memory whether they lie in the box of a z-order key. Of few, it takes longer to make it than to compare."""
    spec, found = scan.planner.spec, scan.found
    if not isinstance(spec.key, ZOrder) or found.near < len(found.pieces) or int(segments[:, 2].sum()) < _LOOKED_AT:
        return None
    from tidewheel.read.filters.program import program_of

    condition = box_condition(spec, *scan.keys.corners)
    return None if condition is None else program_of(condition, spec.stored)


def _matching(scan: Scan, found: Found, segments: Matrix, columns: Columns, watch: Watch) -> tuple[npt.NDArray[np.bool_], int]:
    """A mask of the rows of these segments whose key is asked for, and their number."""
    bounds, (c, *_) = scan.keys.texts, columns.numbers
    if bounds is None or columns.shape.kinds[c] not in (VAR32, VAR64):
        held = watch.held
        keep = scan.check(copy(found, segments, columns, watch))
        watch.held = held
        return keep, int(np.count_nonzero(keep))
    keep = np.empty(int(segments[:, 2].sum()), np.bool_)
    lo, hi = (np.frombuffer(bound or b"", np.uint8).copy() for bound in bounds)
    wide = int(columns.shape.kinds[c] == VAR64)
    slot = COLUMNS + SLOTS * c
    kept = texts.within(
        found.pieces, segments, slot, wide, lo, int(bounds[0] is not None), hi, int(bounds[1] is not None), keep.view(np.uint8)
    )
    return keep, kept


def split(segments: Matrix, size: int) -> Iterator[Matrix]:
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


def halved(scan: Scan) -> tuple[Scan, Scan]:
    """Two scans with half of the rows each, in turns: work that is more in one part of them than in another is shared, too."""
    portions = list(split(scan.found.segments, -(-scan.found.rows // _TURNS)))
    first, second = (part_of(scan, np.concatenate(portions[half::2])) for half in (0, 1))
    return first, second


def cut(scan: Scan, size: int) -> Iterator[Scan]:
    """Scans of at most `size` rows each, one after the other."""
    for segments in split(scan.found.segments, size):
        yield part_of(scan, segments)


def part_of(scan: Scan, segments: Matrix) -> Scan:
    """A scan of some of the rows."""
    found = replace(scan.found, segments=segments, rows=int(segments[:, 2].sum()), doubtful=int(np.count_nonzero(segments[:, 3])))
    return Scan(scan.planner, found, scan.keys, scan.time, scan.check, scan.damage)


def _first(segments: Matrix, rows: int) -> Matrix:
    """The segments with the first so many rows."""
    if rows <= 0:
        return segments[:0]
    return segments[: int(np.searchsorted(np.cumsum(segments[:, 2]), rows)) + 1]
