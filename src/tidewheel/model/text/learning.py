"""Learn how to divide texts into codes from the texts that there are. Arrays in, a division out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.text.division import MOST_DEPTH, MOST_NODES, WORD, Node, byte_addresses
from tidewheel.model.text.kernels import in_common, sizes, words_at

Rows = npt.NDArray[np.uint32]


def learned(array: pa.Array, most: int) -> Node:
    """From an array of bytes, a division under which no code stands for more than `most` of these texts, unless they are all the same.

    Nothing of them lies outside of it. A text that there are more than `most` of has its code for itself, so that a query for another one
    need not look at it. (What cannot be told apart are texts that differ in zero bytes at their end only.)
    """
    return _Learner(array, most).root() if len(array) else Node(b"")


def one_text(array: pa.Array) -> bytes | None:
    """The text that all of these are; None if they differ."""
    *at, array = byte_addresses(array)
    out = np.empty(3, np.int64)
    in_common(*at, np.arange(len(array), dtype=np.uint32), out)
    return bytes(array[0].as_py()) if out[0] == out[1] == out[2] else None


class _Learner:
    def __init__(self, array: pa.Array, most: int) -> None:
        *self._at, self._array = byte_addresses(array)
        self._most = max(1, most)
        self._nodes = 1
        self._sizes = np.empty(len(self._array), np.int64)
        sizes(*self._at, len(self._array), self._sizes)

    def root(self) -> Node:
        rows = np.arange(len(self._array), dtype=np.uint32)
        common, least, longest = self._common(rows)
        # the code of a key that is no longer than what is left out could not be told from those of keys below it
        # no longer than needed, since keys that come later may share less; a word that ends with a zero tells its key in full
        start = min(common if common < least else max(0, common - 1), max(0, longest - 7))
        plain = Node(self._text(rows[0])[:start])
        if longest < start + 8 or not any(self._wants_more(group, start, 8) for group in self._heavy(rows, self._words(rows, start))):
            return plain
        return self._node(rows, 0, start, 0)

    def _node(self, rows: Rows, at: int, start: int, depth: int) -> Node:
        """The node for texts that agree up to `start`, as far as it is not known up to `at`."""
        shared = self._text(rows[0])[at:start]
        if depth >= MOST_DEPTH:
            return Node(shared)
        words, children = [], []
        for group in self._heavy(rows, self._words(rows, start) >> np.uint64(16)):
            if self._nodes >= MOST_NODES or not self._wants_more(group, start, WORD):
                continue
            self._nodes += 1
            longer = group[self._sizes[group] >= start + WORD]
            common, least, longest = self._common(longer)
            if common == longest == least:  # one text: to its last bytes, so that a longer one has another word
                common = max(start + WORD, common - WORD + 1)
            words.append(self._text(longer[0])[start : start + WORD])
            children.append(self._node(longer, start + WORD, common, depth + 1))
        return Node(shared, tuple(words), tuple(children))

    def _heavy(self, rows: Rows, words: npt.NDArray[np.uint64]) -> list[Rows]:
        """The groups of more than `most` rows with the same word, in the order of words."""
        ordered = np.sort(words)
        most = self._most
        if len(rows) <= most:
            return []
        values = np.unique(ordered[most:][ordered[most:] == ordered[:-most]])
        if not len(values):
            return []
        found = np.searchsorted(values, words)
        found[found == len(values)] = 0
        some = np.flatnonzero(values[found] == words)
        some = some[np.argsort(found[some], kind="stable")]
        ends = np.cumsum(np.bincount(found[some], minlength=len(values)))
        return np.split(rows[some], ends[:-1])

    def _wants_more(self, group: Rows, start: int, word: int) -> bool:
        """Whether texts with the same word are to be divided: they differ behind it, or the one there is does not end in it."""
        longer = group[self._sizes[group] >= start + word]
        if not len(longer):
            return False
        if len(longer) < len(group):
            return True
        common, least, longest = self._common(longer)
        return not (common == least == longest and longest < start + word)

    def _common(self, rows: Rows) -> tuple[int, int, int]:
        out = np.empty(3, np.int64)
        in_common(*self._at, rows, out)
        common, least, longest = out.tolist()
        return common, least, longest

    def _words(self, rows: Rows, at: int) -> npt.NDArray[np.uint64]:
        out = np.empty(len(rows), np.uint64)
        words_at(*self._at, rows, at, out)
        return out

    def _text(self, row: np.uint32) -> bytes:
        return bytes(self._array[int(row)].as_py())
