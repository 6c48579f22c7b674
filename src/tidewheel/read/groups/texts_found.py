"""Texts that were seen, each with its number: memory of the kernels."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidewheel.model.loading import later
from tidewheel.read.groups import group_layout as layout
from tidewheel.read.groups.left_to_duck import LeftToDuckError, take
from tidewheel.read.groups.lowering import Numbers
from tidewheel.read.limits import Watch

k = later("tidewheel.read.groups.texts.kernels")

MOST_BYTES = (1 << 31) - 1
"""Of the texts of one array: where each ends is a number of 32 bits."""

_NONE = np.zeros(0, np.uint8)
_NO_ENDS = np.zeros(0, np.int32)


class Texts:
    """`state` is that of the groups whose texts they are."""

    def __init__(self, state: Numbers, watch: Watch) -> None:
        self._state = state
        self._watch = watch
        state[layout.TEXT_SEED] = secrets.randbits(62)
        self.arena: npt.NDArray[np.uint8] = _NONE
        self.known: Numbers = np.zeros((0, 3), np.int64)
        self.table: Numbers = np.zeros((0, 2), np.int64)

    def grow(self, rows: int) -> None:
        """Room for so many more texts, and for the bytes that the kernel asks for."""
        state = self._state
        used, count = int(state[layout.TEXT_BYTES]), int(state[layout.TEXTS])
        if used + (more := int(state[layout.MORE_BYTES])) > len(self.arena):
            size = max(2 * len(self.arena), used + more, 1 << 16)
            take(self._watch, size - len(self.arena))
            arena = np.empty(size, np.uint8)
            arena[:used] = self.arena[:used]
            self.arena = arena
        if count + rows > len(self.known):
            size = max(2 * len(self.known), count + rows)
            take(self._watch, 24 * (size - len(self.known)))
            known = np.empty((size, 3), np.int64)
            known[:count] = self.known[:count]
            self.known = known
        if 2 * (count + rows) > len(self.table):
            self.hash(4 * (count + rows))

    def hash(self, least: int = 0) -> None:
        """Put all into a new table: a larger one, or one with a new seed, because too many have one hash."""
        size = max(len(self.table), 1 << 13)
        while size < least:
            size *= 2
        take(self._watch, 16 * (size - len(self.table)))
        anew = size == len(self.table)
        while True:
            self.table = np.zeros((size, 2), np.int64)
            if anew:
                self._state[layout.TEXT_SEED] = secrets.randbits(62)
            if not k.fill_texts(self._state, self.arena, self.known, self.table, anew):
                return
            anew = True

    def numbers_of(self, other: Texts) -> Numbers:
        """The numbers that the texts of another one have here, by those that they have there."""
        state, count = self._state, int(other._state[layout.TEXTS])
        numbers = np.zeros(max(count, 1), np.int64)
        if not count:
            return numbers
        state[layout.MORE_BYTES] = int(other._state[layout.TEXT_BYTES])
        self.grow(count)
        while k.intern_others(other.arena, other.known, count, state, self.arena, self.known, self.table, numbers):
            self.hash()
        return numbers

    def array(self, numbers: Numbers, type_: pa.DataType, valid: pa.Buffer | None) -> Any:
        """Texts by their numbers."""
        given, seen = np.ascontiguousarray(numbers), self._state[layout.TEXTS] > 0  # else all are null, and there is no text 0
        total = k.lay_out(given, len(given), self.arena, self.known, _NO_ENDS, _NONE) if seen else 0
        if total > MOST_BYTES:
            raise LeftToDuckError("their texts have more than 2 GB")
        take(self._watch, total + 4 * len(given))
        ends, out = np.zeros(len(given) + 1, np.int32), np.zeros(max(total, 1), np.uint8)
        if seen:
            k.lay_out(given, len(given), self.arena, self.known, ends, out)
        return pa.Array.from_buffers(type_, len(given), [valid, pa.py_buffer(ends), pa.py_buffer(out)])
