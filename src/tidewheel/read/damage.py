"""Damage: with on_corrupt="skip", what a query leaves out because it cannot be read.

Such a query reads every block that it needs once before it hands out a row. What turns out to be damaged is noted and
the query is planned again without it, until nothing new is found. So all that is left is exactly right, and how much
may be missing is known before the first row.

Left out are: a chunk whose frame is damaged, or whose file is missing or cut off; and, of any other, the leaves that a
damaged block touches, because a leaf is searched as a whole. A column of a type that only Arrow knows is one block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from tidewheel.errors import CorruptionError
from tidewheel.index.version import ChunkLike, Version
from tidewheel.model.pieces import BLOCK_ROWS, INDEX, SOURCE
from tidewheel.model.query import Stats
from tidewheel.read.limits import Watch
from tidewheel.read.materialise import Columns, check_blocks
from tidewheel.read.scan import Found, Matrix

Marks = npt.NDArray[np.bool_]


class Damage:
    """Losses of the chunks of a version, by their numbers in it, as far as one query needed to know."""

    def __init__(self, version: Version) -> None:
        self.grown = False
        """Something was noted since this was last set to False."""
        self._chunks = version.chunks.holders
        self._whole: set[int] = set()
        self._leaves: dict[int, Marks] = {}
        self._blocks: dict[int, set[str]] = {}
        """Messages, because each names its block."""

    def note(self, number: int, e: CorruptionError) -> None:
        """Take down what an error says about a chunk."""
        if e.rows is None:
            self.grown |= number not in self._whole
            self._whole.add(number)
            return
        blocks = self._blocks.setdefault(number, set())
        if str(e) in blocks:  # a mapped chunk is scanned as it is, each time the query is planned
            return
        self.grown = True
        blocks.add(str(e))
        starts = _starts(self._chunks[number])
        touched: Marks = (starts[:-1] < e.rows[1]) & (starts[1:] > e.rows[0])
        known = self._leaves.get(number)
        self._leaves[number] = touched if known is None else known | touched

    def sift(self, pieces: Matrix, count: int) -> int:
        """Keep the first `count` pieces but for chunks that cannot be opened; returns how many these are."""
        kept = [q for q in range(count) if pieces[q, SOURCE] != 0 or self._opens(int(pieces[q, INDEX]))]
        pieces[: len(kept)] = pieces[kept]
        return len(kept)

    def _opens(self, number: int) -> bool:
        if number not in self._whole:
            try:
                self._chunks[number].open()
            except CorruptionError as e:
                self.note(number, e)
        return number not in self._whole

    def lost(self, number: int) -> Marks | None:
        """The leaves of a chunk that are lost; None if none is known to be."""
        return self._leaves.get(number)

    def cut(self, pieces: Matrix, segments: Matrix) -> Matrix:
        """The segments without the rows of lost leaves, in the same order."""
        hurt = {q for q in np.unique(segments[:, 0]).tolist() if pieces[q, SOURCE] == 0 and int(pieces[q, INDEX]) in self._leaves}
        if not hurt:
            return segments
        edges = {q: self._edges(int(pieces[q, INDEX])) for q in hurt}
        out: list[list[int]] = []
        for piece, first, length, check in segments.tolist():
            if piece not in hurt:
                out.append([piece, first, length, check])
                continue
            ends = edges[piece]  # rows lost from, to, from, to, …
            at, end = first, first + length
            n = bisect_right(ends, at)
            while at < end:
                stop = min(ends[n], end) if n < len(ends) else end
                if n % 2 == 0 and stop > at:
                    out.append([piece, at, stop - at, check])
                at, n = stop, n + 1
        return np.array(out, np.int64).reshape(-1, 4)

    def _edges(self, number: int) -> list[int]:
        marks = np.concatenate([[False], self._leaves[number], [False]])
        turns = np.flatnonzero(marks[1:] != marks[:-1])
        edges: list[int] = _starts(self._chunks[number])[turns].tolist()
        return edges

    def tell(self, stats: Stats) -> str:
        """Fill in what was left out. Returns the text of the warning, empty if there is nothing to warn of."""
        hurt = {n: marks for n, marks in self._leaves.items() if n not in self._whole}
        stats.corrupt_chunks = len(self._whole)
        stats.corrupt_blocks = sum(len(self._blocks[n]) for n in hurt)
        stats.rows_left_out = sum(self._chunks[n].record.rows for n in self._whole)
        stats.rows_left_out += sum(int(np.diff(_starts(self._chunks[n]))[marks].sum()) for n, marks in hurt.items())
        stats.corrupt_files = tuple(sorted(self._chunks[n].record.file for n in {*self._whole, *hurt}))
        if not stats.corrupt_files:
            return ""
        more = f" and {len(stats.corrupt_files) - 1} more" if len(stats.corrupt_files) > 1 else ""
        return (
            f"up to {stats.rows_left_out} rows are left out of this answer because {stats.corrupt_files[0]}{more} "
            f"{'are' if more else 'is'} damaged (all in result.stats.corrupt_files); restore from a backup what you can"
        )


def find_intact(
    find: Callable[[Damage], Found], version: Version, columns: Callable[[Found], Iterable[Columns]], watch: Watch
) -> tuple[Found, Damage]:
    """The rows that `find` finds, without all that is damaged in the columns a query reads."""
    damage = Damage(version)
    while True:
        damage.grown = False
        found = find(damage)
        for wanted in columns(found) if not damage.grown else ():
            check_blocks(found, found.segments, wanted, watch, damage)
            _check_remote(found, wanted, watch, damage)
        if not damage.grown:
            return found, damage


def _check_remote(found: Found, columns: Columns, watch: Watch, damage: Damage) -> None:
    """Check chunks that are not mapped: their blocks are fetched to be checked, and once more to be read."""
    for piece in range(found.near, len(found.pieces)):
        number = int(found.pieces[piece, INDEX])
        chunk = found.far(piece)
        mine = found.segments[found.segments[:, 0] == piece]
        spans = zip((mine[:, 1] // BLOCK_ROWS).tolist(), ((mine[:, 1] + mine[:, 2] - 1) // BLOCK_ROWS).tolist(), strict=True)
        for block in sorted({b for first, last in spans for b in range(first, last + 1)}):
            for column in columns.numbers:
                watch.check()
                try:
                    chunk.verify(column, block)
                except CorruptionError as e:
                    damage.note(number, e)


def _starts(chunk: ChunkLike) -> npt.NDArray[np.int64]:
    """The first row of each leaf, and the number of rows."""
    return chunk.leaves.starts.astype(np.int64)
