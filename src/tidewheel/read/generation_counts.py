"""Rows counted by their generation, so that a reader of changes can take a bounded number at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tidewheel.index.version import Version
from tidewheel.model.pieces import GENERATION_HI, GENERATION_LO, ROWS

_BINS = 1 << 20
"""Generations that are counted in an array; more of them are sorted."""

Numbers = npt.NDArray[np.int64]


def rows_by_generation(version: Version, after: int, upto: int | None = None, most: int | None = None) -> list[tuple[int, int]]:
    """(generation, rows that came with it and those before it, from `after` on), for every generation with rows, in rising order.

    With `most`, the list ends before it would be exceeded, but has at least one generation: they cannot be divided. Rows that were
    replaced since are counted, until their chunk leaves. Of the chunks, only the column of generations is read, and not of all if `most`
    is reached before.
    """
    last = version.settled if upto is None else min(upto, version.settled)
    pieces, numbers = _pieces(version, after, last)
    end = last + 1
    if most is not None:
        needed, end = _first_needed(pieces, after, most, end)
        pieces, numbers = pieces[:needed], numbers[:needed]
    if not len(pieces):
        return []
    counted = [_count(version, *piece) for piece in zip(pieces.tolist(), numbers.tolist(), strict=True)]
    generations, where = np.unique(np.concatenate([g for g, _ in counted]), return_inverse=True)
    rows = np.zeros(len(generations), np.int64)
    np.add.at(rows, where, np.concatenate([n for _, n in counted]))
    wanted = (generations > after) & (generations < end)
    generations, total = generations[wanted], np.cumsum(rows[wanted])
    if most is not None:
        keep = max(1, int(np.searchsorted(total, most, side="right")))
        generations, total = generations[:keep], total[:keep]
    return list(zip(generations.tolist(), total.tolist(), strict=True))


def _pieces(version: Version, after: int, last: int) -> tuple[Numbers, Numbers]:
    """(first generation, last generation, rows) and (matrix, number in it) of the pieces with such rows, by their first generation."""
    parts = [(0, version.chunks.matrix[: version.chunks.count])]
    parts += [(n + 1, tree.matrix[: tree.count]) for n, tree in enumerate(version.trees)]
    pieces: Numbers = np.concatenate([matrix[:, [GENERATION_LO, GENERATION_HI, ROWS]] for _, matrix in parts])
    numbers: Numbers = np.array([(source, i) for source, matrix in parts for i in range(len(matrix))], np.int64).reshape(-1, 2)
    met = np.flatnonzero((pieces[:, 1] > after) & (pieces[:, 0] <= last))
    order = met[np.argsort(pieces[met, 0], kind="stable")]
    return pieces[order], numbers[order]


def _first_needed(pieces: Numbers, after: int, most: int, end: int) -> tuple[int, int]:
    """The number of pieces that hold all rows of the generations before `end`, which are more than `most` (or all there are)."""
    whole = pieces[pieces[:, 0] > after]
    by_end = whole[np.argsort(whole[:, 1])]
    ended = np.concatenate([[0], np.cumsum(by_end[:, 2])])[np.searchsorted(by_end[:, 1], pieces[:, 0])]
    enough = np.flatnonzero(ended > most)
    return (int(enough[0]), min(end, int(pieces[enough[0], 0]))) if len(enough) else (len(pieces), end)


def _count(version: Version, piece: list[int], number: list[int]) -> tuple[Numbers, Numbers]:
    """The generations of a piece, and the rows of each."""
    first, last, rows = piece
    if first == last:
        return np.array([last]), np.array([rows])
    source, index = number
    each: Any = version.chunks.holders[index].row_generations() if source == 0 else version.trees[source - 1].holders[index].generations
    if last - first < _BINS:
        counts = np.bincount(each)
        found = np.flatnonzero(counts)
        return found + first, counts[found]
    found, counts = np.unique(each, return_counts=True)
    return found.astype(np.int64) + first, counts
