"""Kernels that give texts numbers, in the order in which they are first seen, and keep their bytes.

A text that was seen is found by a hash of all its bytes, and compared in full.
"""

from __future__ import annotations

import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import copy_memory, view
from tidewheel.model.pieces import DATA, VALUES
from tidewheel.read.groups.group_layout import BLOCK, TEXT_BYTES, TEXT_SEED, TEXTS
from tidewheel.read.groups.texts.asking.kernels import ASKED, BEHIND, LENGTH, NUMBER, ROW, START, WORD, are_short, ask_runs, ask_short
from tidewheel.read.groups.texts.words.kernels import NUMBER_BITS, equal, many_bytes, place, shift_of

_MOST = np.int64(9223372036854775807)
_PROBES = 64

# Of a text that was seen, `texts` has START, LENGTH and WORD; its bytes lie in the arena.


@kernel("int64(int64[::1], int64, int64, int64, uint32[::1], int64)")
def bytes_of(row, column, straight, first, places, n):
    """Bytes of the texts of n rows."""
    offsets = view(row[column + VALUES], _MOST, np.int32)
    if straight:
        return np.int64(offsets[first + n]) - np.int64(offsets[first])
    total = np.int64(0)
    for i in range(n):
        r = np.int64(places[i])
        total += np.int64(offsets[r + 1]) - np.int64(offsets[r])
    return total


@kernel("int64(int64, int64[:, ::1], int64, int64[::1], uint8[::1], int64[:, ::1], int64[:, ::1])")
def look_up(data, asked, m, state, arena, texts, table):
    """Give m texts that lie behind an address their numbers: new ones, where they were not seen before. There is room for all of them.
    Returns 1 if too many of them have one hash."""
    mask = np.int64(table.shape[0] - 1)
    shift = shift_of(table.shape[0])
    seed = np.uint64(state[TEXT_SEED])
    kept = np.int64(arena.ctypes.data)
    for j in range(m):
        start = asked[START, j]
        length = asked[LENGTH, j]
        word = asked[WORD, j]
        at = place(np.uint64(word), length, seed, shift)
        probes = 0
        while True:
            who = table[at, 1]
            number = who & np.int64(NUMBER_BITS)
            if who == 0:
                number = state[TEXTS]
                state[TEXTS] = number + 1
                texts[number, START] = state[TEXT_BYTES]
                texts[number, LENGTH] = length
                texts[number, WORD] = word
                copy_memory(kept + state[TEXT_BYTES], data + start, length)
                state[TEXT_BYTES] += length
                table[at, 0] = word
                table[at, 1] = ((length + 1) << 32) | number
                break
            if (
                table[at, 0] == word
                and np.uint64(who) >> np.uint64(32) == np.uint64(length + 1)
                and (length <= 8 or equal(kept + texts[number, START], data + start, length))
            ):
                break
            at = (at + 1) & mask
            probes += 1
            if probes > _PROBES:
                return 1
        asked[NUMBER, j] = number
    return 0


@kernel(
    "int64(int64[::1], int64, int64, int64, uint32[::1], int64, uint8[::1], int64, int64[::1], uint8[::1], int64[:, ::1],"
    " int64[:, ::1], int32[::1], int64[:, ::1], int64[::1])"
)
def intern(row, column, straight, first, places, n, nulls, some_null, state, arena, texts, table, rows, asked, out):
    """The numbers of the texts of n rows; there is room for all of them. `rows` and `asked` are room to work in. Returns 1 if too many of
    them have one hash."""
    seed = np.uint64(state[TEXT_SEED])
    if are_short(row[column + VALUES], straight, first, places, n):
        m = ask_short(row, column, straight, first, places, n, nulls, some_null, seed, table, rows, asked, out)
    else:
        m = ask_runs(row, column, straight, first, places, n, nulls, some_null, seed, asked)
    if look_up(row[column + DATA], asked, m, state, arena, texts, table):
        return 1
    for j in range(m):
        some = out[asked[ROW, j] : asked[BEHIND, j]]
        for i in range(some.shape[0]):
            some[i] = asked[NUMBER, j]
    if some_null:
        for i in range(n):
            out[i] = 0 if nulls[i] else out[i]
    return 0


@kernel("int64(int64[::1], uint8[::1], int64[:, ::1], int64[:, ::1], int64)")
def fill_texts(state, arena, texts, table, anew):
    """Put all texts into an empty table; `anew`: there is a new seed. Returns 1 if too many of them have one hash."""
    mask = np.int64(table.shape[0] - 1)
    shift = shift_of(table.shape[0])
    seed = np.uint64(state[TEXT_SEED])
    kept = np.int64(arena.ctypes.data)
    for number in range(state[TEXTS]):
        length = texts[number, LENGTH]
        if anew and length > 8:
            texts[number, WORD] = np.int64(many_bytes(kept, texts[number, START], length, seed))
        word = np.uint64(texts[number, WORD])
        at = place(word, length, seed, shift)
        probes = 0
        while table[at, 1]:
            at = (at + 1) & mask
            probes += 1
            if probes > _PROBES:
                return 1
        table[at, 0] = np.int64(word)
        table[at, 1] = ((length + 1) << 32) | number
    return 0


@kernel("int64(int64[::1], int64, uint8[::1], int64[:, ::1], int32[::1], uint8[::1])")
def lay_out(numbers, n, arena, texts, ends, out):
    """The bytes of n texts by their numbers, one behind the other, with their ends. Without room in `out`, only their bytes are counted."""
    kept = np.int64(arena.ctypes.data)
    to = np.int64(out.ctypes.data)
    room = out.shape[0]
    total = np.int64(0)
    if room:
        ends[0] = 0
    for i in range(n):
        length = texts[numbers[i], LENGTH]
        if room:
            copy_memory(to + total, kept + texts[numbers[i], START], length)
            ends[i + 1] = np.int32(total + length)
        total += length
    return total


@kernel("int64(uint8[::1], int64[:, ::1], int64, int64[::1], uint8[::1], int64[:, ::1], int64[:, ::1], int64[::1])", makes_arrays=True)
def intern_others(other_arena, others, n, state, arena, texts, table, out):
    """The numbers of n texts that were given others elsewhere; there is room for all of them. Returns 1 if too many have one hash."""
    seed = np.uint64(state[TEXT_SEED])
    data = np.int64(other_arena.ctypes.data)
    asked = np.empty((ASKED, BLOCK), np.int64)
    for first in range(0, n, BLOCK):
        m = min(n - first, BLOCK)
        for j in range(m):
            start = others[first + j, START]
            length = others[first + j, LENGTH]
            asked[START, j] = start
            asked[LENGTH, j] = length
            asked[WORD, j] = others[first + j, WORD] if length <= 8 else np.int64(many_bytes(data, start, length, seed))
        if look_up(data, asked, m, state, arena, texts, table):
            return 1
        out[first : first + m] = asked[NUMBER, :m]
    return 0
