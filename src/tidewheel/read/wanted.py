"""The keys that a query asks for, as codes of whatever coders the pieces have that can hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tidewheel.index.regions import WORTH
from tidewheel.index.version import Version
from tidewheel.model.codes import EVERYWHERE, TIES, KeyCoder, KeyIntervals
from tidewheel.model.pieces import CODER
from tidewheel.model.text_codes import BytesCoder, text_ends, text_intervals

FEW = 4
"""Coders for which bounds are encoded without a look at whose chunks can have the keys."""

Matrix = npt.NDArray[np.int64]

_ONE = np.zeros(1, np.int64)


class Wanted:
    """From lo to hi, None for open ends. Raises QueryError if these are no keys of the table."""

    __slots__ = ("_hi", "_known", "_lo", "_texts", "check", "corners", "is_empty")

    def __init__(self, coder: KeyCoder, lo: Any, hi: Any) -> None:
        everywhere = lo is None and hi is None
        self.corners: tuple[Any, Any] = lo, hi
        """The bounds as they were asked."""
        self._texts = coder if isinstance(coder, BytesCoder) and not everywhere else None
        if self._texts is not None:
            self._lo, self._hi = self._texts.bound(lo), self._texts.bound(hi)
            self.check = TIES
            self.is_empty = self._lo is not None and self._hi is not None and self._lo > self._hi
        else:
            self._known = EVERYWHERE if everywhere else coder.intervals(lo, hi)
            self.check = self._known.check
            self.is_empty = not len(self._known.lo)

    @property
    def intervals(self) -> KeyIntervals:
        """Under the table's first coder."""
        return self._known if self._texts is None else text_intervals([self._texts], self._lo, self._hi)[0]

    @property
    def texts(self) -> tuple[bytes | None, bytes | None] | None:
        """The bounds, if keys are texts or bytes and there are bounds."""
        return None if self._texts is None else (self._lo, self._hi)

    def within(self, version: Version, t0: int, t1: int) -> tuple[Matrix | None, Matrix, Matrix, Matrix]:
        """(chunks, slots, klo, khi): descriptors of the chunks whose region can meet the query (None: look at all), and the arguments of
        `select`: the row of the two others for each coder, and the key intervals under each."""
        chunks = version.chunks
        if self._texts is None:
            lo, hi = self._known.lo, self._known.hi
            apart = len(chunks.coders) > 1 and chunks.count >= WORTH
            chosen = chunks.with_texts(None, None, t0, t1) if apart else chunks.candidates(int(lo[0]), int(hi[-1]), t0, t1)
            return chosen, _ONE, lo.reshape(1, -1), hi.reshape(1, -1)
        coders: dict[int, KeyCoder] = {}
        for tree in version.trees:
            coders.update(tree.coders)
        if len(chunks.coders) == 1:
            ((number, only),) = chunks.coders.items()
            coders[number] = only
            slots, klo, khi = self._under(coders)
            return chunks.candidates(int(klo[slots[number], 0]), int(khi[slots[number], -1]), t0, t1), slots, klo, khi
        chosen = None
        if len(chunks.coders) <= FEW and chunks.count < WORTH:
            coders.update(chunks.coders)
        elif chunks.count:
            chosen = chunks.with_texts(self._lo, self._hi, t0, t1)
            coders.update((number, chunks.coders[number]) for number in set(chosen[:, CODER].tolist()))
        return chosen, *self._under(coders)

    def _under(self, coders: Mapping[int, KeyCoder]) -> tuple[Matrix, Matrix, Matrix]:
        slots = np.zeros(max(coders, default=0) + 1, np.int64)
        texts = []
        for slot, (number, coder) in enumerate(coders.items()):
            assert isinstance(coder, BytesCoder)
            slots[number] = slot
            texts.append(coder)
        assert self._texts is not None
        return slots, *text_ends(texts or [self._texts], self._lo, self._hi)
