"""A version: the immutable picture of a table that a query reads.

It is replaced by reference whenever a batch is published, a tree sealed or a chunk committed. A query that holds a
version sees every row acknowledged before it, exactly once, for as long as it likes: what a version points to is
neither changed nor deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidewheel.index.hidden import Hidden
from tidewheel.index.regions import WORTH, RegionIndex
from tidewheel.index.text_regions import TextRegions
from tidewheel.index.tree import TreeView
from tidewheel.model.codes import Codes, KeyCoder
from tidewheel.model.dataclass import dataclass
from tidewheel.model.pieces import INDEX, KMIN, OPEN, TMAX, Holder, Loaded, Row, Scannable
from tidewheel.model.records import ChunkRecord, MaskRecord

REVERSIBLE = ("replace", "overwrite", "refresh")
"""Masks for these reasons came with the generation after theirs, and before it nothing was hidden. All others hide for good."""

SETTLED = "settled"
"""The reason of masks whose interval cannot be read as it was before them any more."""


class ChunkLeaves(Protocol):
    """The leaves of a chunk, as far as the read path asks."""

    @property
    def starts(self) -> npt.NDArray[np.uint32]:
        """The first row of each leaf, and the number of rows."""
        ...


class MappedChunk(Holder, Protocol):
    """One mapping of a chunk: the addresses in `row` are good for as long as somebody holds it."""

    used: bool
    """Since the chunk was last asked to let go of it."""

    @property
    def row(self) -> Row: ...
    @property
    def number(self) -> int:
        """In OPEN of every row with addresses of this mapping."""
        ...


class FarChunk(Holder, Protocol):
    """A chunk of which only what a query touches comes into memory: its leaves are chosen by `probe` and brought by `load`."""

    @property
    def record(self) -> ChunkRecord: ...
    def probe(self, asked: Row, klo: Codes, khi: Codes, mode: int, lost: npt.NDArray[Any] | None = None) -> Scannable: ...
    def with_generations(self, probe: Scannable, positions: Codes, lengths: Codes) -> Scannable: ...
    def reach(self, positions: Codes, lengths: Codes) -> tuple[Codes, Codes]: ...
    def load(self, asked: Row, positions: Codes, lengths: Codes, columns: Sequence[int]) -> Loaded: ...
    def verify(self, column: int, block: int) -> None: ...


class ChunkLike(Holder, Protocol):
    """What versions and queries ask of a chunk, wherever it is stored; `row` describes it, with addresses only while it is mapped."""

    record: ChunkRecord
    coder: KeyCoder

    @property
    def row(self) -> Row: ...
    @property
    def region(self) -> Row:
        """The descriptor without addresses."""
        ...

    @property
    def can_be_mapped(self) -> bool:
        """Whether its rows can be scanned where they lie. Even then there may be no room for a mapping."""
        ...

    @property
    def most(self) -> int:
        """Chunks that the process may have mapped."""
        ...

    @property
    def mapped(self) -> MappedChunk | None:
        """The mapping, while there is one."""
        ...

    def enter(self, shared: Row | None = None, displace: bool = True) -> MappedChunk | None:
        """The mapping, made if need be; None: `far` reads the chunk."""
        ...

    def verify_column(self, column: int) -> bool:
        """Verify a whole stored column, if the chunk is mapped. Returns whether there is a column behind it."""
        ...

    def far(self) -> FarChunk:
        """The same chunk, read by range."""
        ...

    @property
    def leaves(self) -> ChunkLeaves: ...
    def open(self) -> Row: ...
    def codes(self) -> Codes: ...
    def times(self) -> Codes: ...
    def row_generations(self) -> npt.NDArray[Any] | None: ...
    def verify(self, column: int, block: int) -> None: ...
    def condemn(self) -> None: ...


class ChunkSet:
    """The chunks of a version: one descriptor row each. Rows are completed in place when a chunk is first opened."""

    __slots__ = ("_texts", "coders", "count", "holders", "index", "indexed", "matrix")

    index: RegionIndex | None
    """Over the first `indexed` chunks; None while there are few."""
    indexed: int

    def __init__(self, width: int, holders: Sequence[ChunkLike] = ()) -> None:
        self.holders: list[ChunkLike] = list(holders)
        self.count = len(self.holders)
        self.matrix: npt.NDArray[np.int64] = np.zeros((max(16, self.count), width), np.int64)
        for i, chunk in enumerate(self.holders):
            self.matrix[i] = chunk.row
        self.coders: dict[int, KeyCoder] = {chunk.coder.number: chunk.coder for chunk in self.holders}
        """Of these chunks, by number."""
        self._texts: TextRegions | None = None
        """The regions, once somebody asked, if there are several coders."""
        self.index, self.indexed = None, 0
        self._pack()

    def _pack(self) -> None:
        """Pack the region index anew once its tail has grown to a quarter of it."""
        if len(self.coders) == 1 and self.count >= WORTH and self.count - self.indexed > max(WORTH // 4, self.indexed // 4):
            self.index, self.indexed = RegionIndex(self.matrix[: self.count, KMIN : TMAX + 1]), self.count

    def candidates(self, k0: int, k1: int, t0: int, t1: int) -> npt.NDArray[np.int64] | None:
        """Descriptors of the chunks whose region can meet the rectangle, with their numbers in INDEX; None: look at all.

        Keys are codes of the one coder that all chunks have.
        """
        if self.index is None or len(self.coders) > 1:
            return None
        tail = np.arange(self.indexed, self.count)
        return self._rows(np.concatenate([self.index.search(k0, k1, t0, t1), tail]))

    def with_texts(self, lo: bytes | None, hi: bytes | None, t0: int, t1: int) -> npt.NDArray[np.int64]:
        """The same for texts from lo to hi, whatever coders the chunks have."""
        known = self._texts
        if known is None or known.count < self.count:
            if known is not None:
                known = known.plus(self.holders[known.count : self.count])
            if known is None or known.is_behind:
                known = TextRegions.of(self.holders[: self.count])
            self._texts = known  # whoever else works it out at the same time comes to the same
        return self._rows(known.search(lo, hi, t0, t1))

    def _rows(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        opened = self.matrix[numbers, OPEN]  # before the addresses, which other threads fill in at any time
        found: npt.NDArray[np.int64] = self.matrix[numbers]
        found[:, OPEN] = opened
        found[:, INDEX] = numbers
        return found

    def plus(self, chunks: Sequence[ChunkLike]) -> ChunkSet:
        """These and more. Shares list and matrix with its elders, as long as there is room behind what they count."""
        new = ChunkSet.__new__(ChunkSet)
        room = self.count + len(chunks) <= len(self.matrix) and self.count == len(self.holders)
        if room:
            new.matrix, new.holders = self.matrix, self.holders
        else:
            new.matrix = np.zeros((2 * (self.count + len(chunks)), self.matrix.shape[1]), np.int64)
            opened = self.matrix[: self.count, OPEN].copy()  # before the addresses, which other threads fill in at any time
            new.matrix[: self.count] = self.matrix[: self.count]
            new.matrix[: self.count, OPEN] = opened
            new.holders = self.holders[: self.count]
        new.count = self.count
        for chunk in chunks:
            new.matrix[new.count] = chunk.row
            new.holders.append(chunk)
            new.count += 1
        more = {chunk.coder.number: chunk.coder for chunk in chunks}
        new.coders = self.coders if more.keys() <= self.coders.keys() else self.coders | more
        new._texts = self._texts
        new.index, new.indexed = self.index, self.indexed
        new._pack()
        return new

    def without(self, ids: Collection[str]) -> ChunkSet:
        """These less some. Its elders keep the list and matrix that have them, and so the chunks, for as long as they are read."""
        if not ids:
            return self
        kept = [i for i, chunk in enumerate(self) if chunk.record.id not in ids]
        return self.only(kept)

    def only(self, numbers: Sequence[int] | npt.NDArray[np.int64]) -> ChunkSet:
        """The chunks of these numbers."""
        numbers = np.asarray(numbers, np.int64)  # a tuple would name one cell
        new = ChunkSet(self.matrix.shape[1])
        new.holders = [self.holders[i] for i in numbers.tolist()]
        new.count = len(new.holders)
        new.matrix = np.zeros((max(16, new.count + new.count // 4), self.matrix.shape[1]), np.int64)
        opened = self.matrix[numbers, OPEN]  # before the addresses, which other threads fill in at any time
        new.matrix[: new.count] = self.matrix[numbers]
        new.matrix[: new.count, OPEN] = opened
        new.coders = {chunk.coder.number: chunk.coder for chunk in new.holders}
        new._pack()
        return new

    def __iter__(self) -> Iterator[ChunkLike]:
        return iter(self.holders[: self.count])


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit makes of a version: chunks and masks that come, and those that go because nothing is seen of them any more, or
    because their rows come again."""

    add: tuple[ChunkLike, ...] = ()
    remove: frozenset[str] = frozenset()
    """Ids of chunks, perhaps of some that come with the same commit: rows that were replaced before they were written."""
    masks: tuple[MaskRecord, ...] = ()
    drop_masks: tuple[MaskRecord, ...] = ()
    horizon: int = 0
    """Earlier generations cannot be read any more once this is done."""
    hidden: Hidden | None = None
    """The masks after it; None: as before."""
    everywhere: bool = False
    """The whole table was looked through for what is of no use any more."""

    def __bool__(self) -> bool:
        return bool(self.add or self.remove or self.masks or self.drop_masks)


class Version:
    __slots__ = ("chunks", "coder", "generation", "hidden", "horizon", "live", "sealed", "settled")

    def __init__(
        self,
        generation: int,
        chunks: ChunkSet,
        sealed: tuple[TreeView, ...],
        live: tuple[TreeView, ...],
        masks: Hidden | Sequence[MaskRecord],
        coder: KeyCoder,
        settled: int | None = None,
        horizon: int = 0,
    ) -> None:
        self.generation = generation
        self.settled = generation if settled is None else settled
        """No more rows will come with this generation or an earlier one; later ones may be given to a commit that is under way."""
        self.chunks = chunks
        self.sealed = sealed
        self.live = live
        self.hidden = masks if isinstance(masks, Hidden) else Hidden(masks)
        self.coder = coder
        """The table's first. Chunks and runs of texts have coders of their own."""
        self.horizon = horizon
        """The earliest generation that it can be read at: rows that were replaced up to it may be gone."""

    @property
    def masks(self) -> tuple[MaskRecord, ...]:
        return self.hidden.records

    def at(self, generation: int) -> Version:
        """With the masks that there were at an earlier generation. It still holds the rows that came later.

        Before its horizon, it is as at its horizon: of the rows that came up to then, those that were replaced stay hidden.
        """
        seen = max(generation, self.horizon)
        masks = tuple(m for m in self.masks if m.generation < seen or m.reason not in REVERSIBLE)
        hidden = self.hidden if len(masks) == len(self.masks) else Hidden(masks)
        return Version(generation, self.chunks, self.sealed, self.live, hidden, self.coder, horizon=self.horizon)

    def masks_for_others(self) -> tuple[MaskRecord, ...]:
        """The masks for whoever reads its chunks without knowing its horizon: those before it hide for good."""
        return tuple(replace(m, reason=SETTLED) if m.generation < self.horizon and m.reason in REVERSIBLE else m for m in self.masks)

    def of_chunks(self, chunks: ChunkSet, trees: bool = True) -> Version:
        """The same with other chunks, and perhaps without what is in memory."""
        sealed, live = (self.sealed, self.live) if trees else ((), ())
        return Version(self.generation, chunks, sealed, live, self.hidden, self.coder, self.settled, self.horizon)

    @property
    def trees(self) -> tuple[TreeView, ...]:
        return self.sealed + self.live
