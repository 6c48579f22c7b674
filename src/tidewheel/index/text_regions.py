"""Regions of chunks whose codes cannot be compared, since each has divided its texts in its own way.

A chunk's coder tells between which keys its rows lie. One more coder, learned from all these ends, puts them on a common axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.index.regions import WORTH, Boxes, RegionIndex
from tidewheel.model.text_codes import BytesCoder, text_codes
from tidewheel.model.times import INT64_MAX, INT64_MIN


class TextRegions:
    """Of some chunks, in their order. Immutable."""

    __slots__ = ("_axis", "_boxes", "_index", "_indexed", "count")

    def __init__(self, axis: BytesCoder, boxes: Boxes, index: RegionIndex | None, indexed: int) -> None:
        self._axis = axis
        self._boxes = boxes
        self._index = index
        self._indexed = indexed
        """The index is over so many; the others are looked at one by one."""
        self.count = len(boxes)

    @classmethod
    def of(cls, chunks: Sequence[Any]) -> TextRegions:
        first: BytesCoder = chunks[0].coder
        ends = [_ends(chunk) for chunk in chunks]
        texts = pa.array([text for pair in ends for text in pair if text is not None], pa.large_binary())
        axis = first.with_prefix(first.learned([texts], 1))
        boxes = _boxes(chunks, ends, axis)
        return cls(axis, boxes, RegionIndex(boxes) if len(boxes) >= WORTH else None, len(boxes))

    def plus(self, chunks: Sequence[Any]) -> TextRegions:
        """These and more."""
        boxes = np.concatenate([self._boxes, _boxes(chunks, [_ends(chunk) for chunk in chunks], self._axis)])
        return TextRegions(self._axis, boxes, self._index, self._indexed)

    @property
    def is_behind(self) -> bool:
        """So much has come since that it should be made anew."""
        return self.count - self._indexed > max(WORTH // 4, self._indexed // 4)

    def search(self, lo: bytes | None, hi: bytes | None, t0: int, t1: int) -> npt.NDArray[np.int64]:
        """The numbers of the chunks that can have keys from lo to hi at these times, in rising order."""
        k0 = INT64_MIN if lo is None else int(text_codes([self._axis], lo)[0])
        k1 = INT64_MAX if hi is None else k0 if hi == lo else int(text_codes([self._axis], hi)[0])
        if self._index is None:
            return _meeting(self._boxes, k0, k1, t0, t1)
        tail = self._indexed + _meeting(self._boxes[self._indexed :], k0, k1, t0, t1)
        return np.concatenate([self._index.search(k0, k1, t0, t1), tail])


def _ends(chunk: Any) -> tuple[bytes, bytes | None]:
    coder: BytesCoder = chunk.coder
    return coder.keys_of(chunk.record.key_lo)[0], coder.keys_of(chunk.record.key_hi)[1]


def _boxes(chunks: Sequence[Any], ends: list[tuple[bytes, bytes | None]], axis: BytesCoder) -> Boxes:
    boxes = np.empty((len(chunks), 4), np.int64)
    boxes[:, 0] = axis.codes(pa.array([lo for lo, _ in ends], pa.large_binary()))
    boxes[:, 1] = axis.codes(pa.array([hi or b"" for _, hi in ends], pa.large_binary()), greatest=True)
    boxes[[hi is None for _, hi in ends], 1] = INT64_MAX
    for i, chunk in enumerate(chunks):
        boxes[i, 2:] = chunk.record.time_lo, chunk.record.time_hi
    return boxes


def _meeting(boxes: Boxes, k0: int, k1: int, t0: int, t1: int) -> npt.NDArray[np.int64]:
    return np.flatnonzero((boxes[:, 0] <= k1) & (boxes[:, 1] >= k0) & (boxes[:, 2] <= t1) & (boxes[:, 3] >= t0))
