"""Chunks that are not mapped, on their way through a query: scanned one by one, then loaded in windows.

A query over local pieces only passes through here untouched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tidewheel.model.pieces import Loaded
from tidewheel.read.limits import Watch
from tidewheel.read.materialise import Columns
from tidewheel.read.scan import Found, Matrix

WINDOW_BYTES = 32 << 20
"""About how much is loaded at a time: a leaf comes whole, even if one row of it is asked for."""


def resident(found: Found, segments: Matrix, columns: Columns, watch: Watch) -> Iterator[tuple[Found, Matrix]]:
    """Segments in their order, in one or several windows, each with all the rows it needs in memory."""
    if found.near == len(found.pieces) or not (segments[:, 0] >= found.near).any():
        yield found, segments
        return
    window = np.cumsum(_costs(found, segments)) // WINDOW_BYTES
    for part in np.split(segments, np.flatnonzero(np.diff(window)) + 1):
        watch.check()
        yield _load(found, part.copy(), columns)


def _costs(found: Found, segments: Matrix) -> Matrix:
    """Bytes that each segment adds to what is loaded for those before it; local ones add none."""
    costs = np.zeros(len(segments), np.int64)
    for piece, at in _far(found, segments):
        chunk = found.far(piece)
        lo, hi = chunk.reach(segments[at, 1], segments[at, 2])
        lo[1:] = np.maximum(lo[1:], hi[:-1])
        costs[at] = np.maximum(hi - lo, 0) * -(-chunk.record.bytes // chunk.record.rows)
    return costs


def _load(found: Found, segments: Matrix, columns: Columns) -> tuple[Found, Matrix]:
    pieces = found.pieces.copy()
    held: dict[int, Loaded] = {}
    for piece, at in _far(found, segments):
        held[piece] = loaded = found.far(piece).load(pieces[piece], segments[at, 1], segments[at, 2], columns.numbers)
        pieces[piece] = loaded.row
        segments[at, 1] = loaded.positions
    return replace(found, pieces=pieces, held=held, _nulls=None), segments


def loaded_bytes(found: Found) -> int:
    """Memory that was loaded for a window; of local pieces, nothing is."""
    return sum(int(loaded.batch.nbytes) for loaded in found.held.values())


def _far(found: Found, segments: Matrix) -> Iterator[tuple[int, Matrix]]:
    """Each remote piece with the numbers of its segments."""
    for piece in np.unique(segments[:, 0]).tolist():
        if piece >= found.near:
            yield piece, np.flatnonzero(segments[:, 0] == piece)
