"""A version: the immutable picture of a table that a query reads.

It is replaced by reference whenever a batch is published, a tree sealed or a chunk committed. A query that holds a
version sees every row acknowledged before it, exactly once, for as long as it likes: what a version points to is
neither changed nor deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tidewheel.index.tree import TreeView
from tidewheel.model.codes import Codes, KeyCoder
from tidewheel.model.pieces import Holder, Row
from tidewheel.model.records import ChunkRecord, MaskRecord


class ChunkLike(Holder, Protocol):
    """What a version needs of a chunk; `row` describes it, with addresses only once it was opened."""

    record: ChunkRecord

    @property
    def row(self) -> Row: ...
    def open(self) -> Row: ...
    def codes(self) -> Codes: ...
    def times(self) -> Codes: ...
    def condemn(self) -> None: ...


class ChunkSet:
    """The chunks of a version: one descriptor row each. Rows are completed in place when a chunk is first opened."""

    __slots__ = ("count", "holders", "matrix")

    def __init__(self, width: int, holders: Sequence[ChunkLike] = ()) -> None:
        self.holders: list[ChunkLike] = list(holders)
        self.count = len(self.holders)
        self.matrix: npt.NDArray[np.int64] = np.zeros((max(16, self.count), width), np.int64)
        for i, chunk in enumerate(self.holders):
            self.matrix[i] = chunk.row

    def plus(self, chunks: Sequence[ChunkLike]) -> ChunkSet:
        """These and more. Shares list and matrix with its elders, as long as there is room behind what they count."""
        new = ChunkSet.__new__(ChunkSet)
        room = self.count + len(chunks) <= len(self.matrix) and self.count == len(self.holders)
        if room:
            new.matrix, new.holders = self.matrix, self.holders
        else:
            new.matrix = np.zeros((2 * (self.count + len(chunks)), self.matrix.shape[1]), np.int64)
            new.matrix[: self.count] = self.matrix[: self.count]
            new.holders = self.holders[: self.count]
        new.count = self.count
        for chunk in chunks:
            new.matrix[new.count] = chunk.row
            new.holders.append(chunk)
            new.count += 1
        return new

    def __iter__(self) -> Iterator[ChunkLike]:
        return iter(self.holders[: self.count])


class Version:
    __slots__ = ("chunks", "coders", "generation", "live", "masks", "sealed")

    def __init__(
        self,
        generation: int,
        chunks: ChunkSet,
        sealed: tuple[TreeView, ...],
        live: tuple[TreeView, ...],
        masks: tuple[MaskRecord, ...],
        coders: Sequence[KeyCoder],
    ) -> None:
        self.generation = generation
        self.chunks = chunks
        self.sealed = sealed
        self.live = live
        self.masks = masks
        self.coders = coders
        """Only grows; a descriptor's CODER counts into it."""

    @property
    def trees(self) -> tuple[TreeView, ...]:
        return self.sealed + self.live
