"""Learn how to divide texts into codes from the texts that there are. Arrays in, a division out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.loading import later
from tidewheel.model.text.division import MOST_DEPTH, MOST_NODES, WORD, Node, as_bytes, byte_addresses

k = later("tidewheel.model.text.kernels")

Rows = npt.NDArray[np.uint32]
Words = npt.NDArray[np.uint64]


def learned(array: pa.Array, most: int) -> Node:
    """From an array of bytes, a division under which no code stands for more than `most` of these texts, unless they are all the same.

    Nothing of them lies outside of it. A text that there are more than `most` of has its code for itself, so that a query for another one
    need not look at it. (What cannot be told apart are texts that differ in zero bytes at their end only.)
    """
    return _Learner(array, most).root() if len(array) else Node(b"")


def one_text(array: pa.Array) -> bytes | None:
    """The text that all of these are, as bytes; None if they differ."""
    *at, array = byte_addresses(array)
    out = np.empty(3, np.int64)
    k.in_common(*at, np.arange(len(array), dtype=np.uint32), out)
    return bytes(as_bytes(array.slice(0, 1))[0].as_py()) if out[0] == out[1] == out[2] else None


class _Learner:
    def __init__(self, array: pa.Array, most: int) -> None:
        array, self._weights = _distinct(array)
        *self._at, self._array = byte_addresses(array)
        self._most = max(1, most)
        self._nodes = 1
        self._sizes = np.empty(len(self._array), np.int64)
        k.sizes(*self._at, len(self._array), self._sizes)

    def root(self) -> Node:
        rows = np.arange(len(self._array), dtype=np.uint32)
        common, least, longest = self._common(rows)
        # the code of a key that is no longer than what is left out could not be told from those of keys below it
        start = common if common < least else max(0, common - 1)
        start = min(start, max(0, longest - 8))  # no longer than needed: keys that come later may share less
        plain = Node(self._text(rows[0])[:start])
        if longest <= start + 8 or not any(self._wants_more(group, start + 8) for group in self._heavy(rows, self._words(rows, start))):
            return plain
        return self._node(rows, 0, start, 0)

    def _node(self, rows: Rows, at: int, start: int, depth: int) -> Node:
        """The node for texts that agree up to `start`, as far as it is not known up to `at`."""
        shared = self._text(rows[0])[at:start]
        end = start + WORD
        words, children = [], []
        for group in self._heavy(rows, self._words(rows, start) >> np.uint64(16)) if depth < MOST_DEPTH else []:
            if self._nodes >= MOST_NODES or not self._wants_more(group, end):
                continue
            self._nodes += 1
            longer = group[self._sizes[group] >= end]
            common, least, longest = self._common(longer)
            if common == longest == least:  # one text: to its last bytes
                common = max(end, common - WORD)
            words.append(self._text(longer[0])[start:end])
            children.append(self._node(longer, end, common, depth + 1))
        return Node(shared, tuple(words), tuple(children))

    def _heavy(self, rows: Rows, words: Words) -> list[Rows]:
        """The groups with the same word that are more than `most`, in the order of words."""
        order = np.argsort(words)
        ordered = words[order]
        firsts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        if self._weights is None:
            counts = np.diff(firsts, append=len(rows))
        else:
            counts = np.add.reduceat(self._weights[rows[order]], firsts)
        ends = np.append(firsts[1:], len(rows))
        return [rows[order[firsts[i] : ends[i]]] for i in np.flatnonzero(counts > self._most)]

    def _wants_more(self, group: Rows, end: int) -> bool:
        """Whether texts with the same word, which ends there, are to be divided: they differ behind it, or it does not tell all of one."""
        longest = int(self._sizes[group].max())
        return longest > end or (longest == end and bool((self._sizes[group] < end).any()))

    def _common(self, rows: Rows) -> tuple[int, int, int]:
        out = np.empty(3, np.int64)
        k.in_common(*self._at, rows, out)
        common, least, longest = out.tolist()
        return common, least, longest

    def _words(self, rows: Rows, at: int) -> Words:
        out = np.empty(len(rows), np.uint64)
        k.words_at(*self._at, rows, at, out)
        return out

    def _text(self, row: np.uint32) -> bytes:
        return bytes(self._array[int(row)].as_py())


def _distinct(array: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64] | None]:
    """Each text once, with how often it comes; the texts as they are (None) if few of them come twice: finding that out costs more."""
    some = array.slice(len(array) // 2, 4096)
    if len(array) < 4096 or len(some.unique()) > len(some) * 3 // 4:
        return array, None
    coded = array.dictionary_encode()
    return coded.dictionary, np.bincount(np.asarray(coded.indices), minlength=len(coded.dictionary))
