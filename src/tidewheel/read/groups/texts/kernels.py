"""Kernels that give texts numbers, in the order in which they are first seen, and keep their bytes.

A text that was seen is found by a hash of all its bytes, and compared in full.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import copy_memory, eight_bytes, view
from tidewheel.model.pieces import DATA, VALUES
from tidewheel.read.groups.group_layout import TEXT_BYTES, TEXT_SEED, TEXTS
from tidewheel.read.groups.slots.kernels import mixed

_MOST = np.int64(9223372036854775807)
_PROBES = 64

START, LENGTH, WORD = range(3)
"""Of a text that was seen: where its bytes begin, how many they are, and those themselves if they are at most eight, else their hash. The
table has WORD, and then the length and 1 + the number, 32 bits each."""

_NUMBER = np.int64(0xFFFFFFFF)


@nb.njit(inline="always")
def _place(word, length, seed, shift):
    """Where a text is looked for first: by the upper bits, which all others have a part in."""
    return np.int64(((word ^ (np.uint64(length) * np.uint64(0x9E3779B97F4A7C15))) * (seed | np.uint64(1))) >> shift)


@nb.njit(inline="always")
def _shift(size):
    """To as many bits as places of a table have."""
    shift = np.uint64(64)
    while size > 1:
        size >>= 1
        shift -= np.uint64(1)
    return shift


@nb.njit(inline="always")
def _few_bytes(data, start, length):
    """At most eight bytes as one number."""
    end = start + length
    if end >= 8:  # what stands before them is there, and is shifted out
        return np.uint64(0) if length == 0 else eight_bytes(data, end - 8) >> np.uint64(64 - 8 * length)
    word = np.uint64(0)
    some = view(data, end, np.uint8)
    for i in range(length):
        word |= np.uint64(some[start + i]) << np.uint64(8 * i)
    return word


@nb.njit(inline="always")
def _many_bytes(data, start, length, seed):
    h = seed
    for i in range(0, length - 8, 8):
        h = mixed(h, np.int64(eight_bytes(data, start + i)))
    return mixed(h, np.int64(eight_bytes(data, start + length - 8)))


@nb.njit(inline="always")
def _equal(one, other, length):
    """Whether more than eight bytes at two addresses are the same."""
    for i in range(0, length - 8, 8):
        if eight_bytes(one, i) != eight_bytes(other, i):
            return False
    return eight_bytes(one, length - 8) == eight_bytes(other, length - 8)


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


@kernel(
    "int64(int64[::1], int64, int64, int64, uint32[::1], int64, uint8[::1], int64, int64[::1], uint8[::1], int64[:, ::1],"
    " int64[:, ::1], int64[::1])"
)
def intern(row, column, straight, first, places, n, nulls, some_null, state, arena, texts, table, out):
    """The numbers of the texts of n rows; there is room for all of them. Returns 1 if too many of them have one hash."""
    offsets = view(row[column + VALUES], _MOST, np.int32)
    data = row[column + DATA]
    mask = np.int64(table.shape[0] - 1)
    shift = _shift(table.shape[0])
    seed = np.uint64(state[TEXT_SEED])
    kept = np.int64(arena.ctypes.data)
    last = np.int64(-1)
    last_word = np.uint64(0)
    last_length = np.int64(-1)
    for i in range(n):
        if some_null and nulls[i]:
            out[i] = 0
            continue
        r = first + i if straight else np.int64(places[i])
        start = np.int64(offsets[r])
        length = np.int64(offsets[r + 1]) - start
        if length <= 8:
            word = _few_bytes(data, start, length)
            if length == last_length and word == last_word:
                out[i] = last
                continue
        else:
            word = _many_bytes(data, start, length, seed)
        at = _place(word, length, seed, shift)
        probes = 0
        while True:
            number = (table[at, 1] & _NUMBER) - 1
            if number < 0:
                number = state[TEXTS]
                state[TEXTS] = number + 1
                texts[number, START] = state[TEXT_BYTES]
                texts[number, LENGTH] = length
                texts[number, WORD] = np.int64(word)
                copy_memory(kept + state[TEXT_BYTES], data + start, length)
                state[TEXT_BYTES] += length
                table[at, 0] = np.int64(word)
                table[at, 1] = (length << 32) | (number + 1)
                break
            if (
                table[at, 0] == np.int64(word)
                and table[at, 1] >> 32 == length
                and (length <= 8 or _equal(kept + texts[number, START], data + start, length))
            ):
                break
            at = (at + 1) & mask
            probes += 1
            if probes > _PROBES:
                return 1
        out[i] = number
        last = number
        last_word = word
        last_length = length if length <= 8 else np.int64(-1)
    return 0


@kernel("int64(int64[::1], uint8[::1], int64[:, ::1], int64[:, ::1], int64)")
def fill_texts(state, arena, texts, table, anew):
    """Put all texts into an empty table; `anew`: there is a new seed. Returns 1 if too many of them have one hash."""
    mask = np.int64(table.shape[0] - 1)
    shift = _shift(table.shape[0])
    seed = np.uint64(state[TEXT_SEED])
    kept = np.int64(arena.ctypes.data)
    for number in range(state[TEXTS]):
        length = texts[number, LENGTH]
        if anew and length > 8:
            texts[number, WORD] = np.int64(_many_bytes(kept, texts[number, START], length, seed))
        word = np.uint64(texts[number, WORD])
        at = _place(word, length, seed, shift)
        probes = 0
        while table[at, 1]:
            at = (at + 1) & mask
            probes += 1
            if probes > _PROBES:
                return 1
        table[at, 0] = np.int64(word)
        table[at, 1] = (length << 32) | (number + 1)
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


@kernel("int64(uint8[::1], int64[:, ::1], int64, int64[::1], uint8[::1], int64[:, ::1], int64[:, ::1], int64[::1])")
def intern_others(other_arena, others, n, state, arena, texts, table, out):
    """The numbers of n texts that were given others elsewhere; there is room for all of them. Returns 1 if too many have one hash."""
    mask = np.int64(table.shape[0] - 1)
    shift = _shift(table.shape[0])
    seed = np.uint64(state[TEXT_SEED])
    data = np.int64(other_arena.ctypes.data)
    kept = np.int64(arena.ctypes.data)
    for i in range(n):
        start = others[i, START]
        length = others[i, LENGTH]
        if length <= 8:
            word = np.uint64(others[i, WORD])
        else:
            word = _many_bytes(data, start, length, seed)
        at = _place(word, length, seed, shift)
        probes = 0
        while True:
            number = (table[at, 1] & _NUMBER) - 1
            if number < 0:
                number = state[TEXTS]
                state[TEXTS] = number + 1
                texts[number, START] = state[TEXT_BYTES]
                texts[number, LENGTH] = length
                texts[number, WORD] = np.int64(word)
                copy_memory(kept + state[TEXT_BYTES], data + start, length)
                state[TEXT_BYTES] += length
                table[at, 0] = np.int64(word)
                table[at, 1] = (length << 32) | (number + 1)
                break
            if (
                table[at, 0] == np.int64(word)
                and table[at, 1] >> 32 == length
                and (length <= 8 or _equal(kept + texts[number, START], data + start, length))
            ):
                break
            at = (at + 1) & mask
            probes += 1
            if probes > _PROBES:
                return 1
        out[i] = number
    return 0
