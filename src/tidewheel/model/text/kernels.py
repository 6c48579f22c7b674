"""Kernels that make codes of texts. A coder comes in as one table of int64, laid out by `division.compiled`.

A key walks down the table's nodes: it is compared with the bytes that all keys of a node share, then the word that follows is looked up
among the node's divided words, each of which leads to another node. Whoever passes an address keeps its buffer alive during the call.
"""

from __future__ import annotations

import numba as nb
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import eight_bytes, view
from tidewheel.model.text.division import FIELDS, HEAD, PATH_FIELDS

NODES, WORDS, PLAIN = range(HEAD)
"""The first numbers of a table. PLAIN: one node, words of eight bytes, codes without an ordinal."""
SKIP_AT, SKIP_SIZE, FIRST, COUNT, LOW, HIGH = range(FIELDS)
"""A node's numbers, each an array of NODES numbers after the head: where its shared bytes lie and how many there are, its first
divided word and how many there are, the ordinals of keys below and above its shared bytes."""
PATH_SIZE, PATH_AT, PATH_WORDS, PATH_FIRST, PATH_ROOM, PATH_ORDINAL = range(6)
"""A node's numbers in `division.paths`: size and place of all bytes on the way to its words, how many words are divided, where they lie,
numbers from a word to its child and from there to the ordinal of the piece before it; the ordinal of the only piece if there is no word."""

_LEAST = np.int64(-9223372036854775808)
_GREATEST = np.int64(9223372036854775807)


@intrinsic
def _big_endian(typing_context, address):
    """The eight bytes at an address, wherever it is, as a big-endian number."""

    def generate(context, builder, signature, args):
        eight = context.get_value_type(types.uint64)
        return builder.bswap(builder.load(builder.inttoptr(args[0], eight.as_pointer()), align=1))

    return types.uint64(types.int64), generate


if nb.config.DISABLE_JIT:

    def _big_endian(address):
        return np.uint64(int.from_bytes(view(address, 8, np.uint8).tobytes(), "big"))


@nb.njit(inline="always")
def _word(text, size, at, pad):
    """The eight bytes from `at` on; what the text lacks is `pad`, 0 or 255."""
    left = size - at
    if left >= 8:
        return _big_endian(text + at)
    fill = np.uint64(0) if pad == 0 else np.uint64(0xFFFFFFFFFFFFFFFF)
    if left <= 0:
        return fill
    rest = np.uint64(8 * left)
    if size >= 8:
        word = _big_endian(text + size - 8) << (np.uint64(64) - rest)
    else:
        word = np.uint64(0)
        some = view(text, size, np.uint8)
        for j in range(at, size):
            word = (word << np.uint64(8)) | np.uint64(some[j])
        word = word << (np.uint64(64) - rest)
    return word | (fill >> rest)


@nb.njit(inline="always")
def _side(text, size, at, shared, n, pad):
    """-1, 0 or 1: whether the text's bytes from `at` on lie before, in or after those that begin with the n shared bytes."""
    there = min(n, size - at)
    j = np.int64(0)
    while j + 8 <= there:
        a = _big_endian(text + at + j)
        b = _big_endian(shared + j)
        if a != b:
            return -1 if a < b else 1
        j += 8
    if j < there and size - at - j >= 8:
        rest = np.uint64(8 * (8 - (there - j)))  # the shared bytes of a table are padded, so that eight can always be read
        a = _big_endian(text + at + j) >> rest
        b = _big_endian(shared + j) >> rest
        if a != b:
            return -1 if a < b else 1
        j = there
    some = view(text + at, max(there, 0), np.uint8)
    wanted = view(shared, n, np.uint8)
    while j < there:
        if some[j] != wanted[j]:
            return -1 if some[j] < wanted[j] else 1
        j += 1
    if j < n:
        if pad == 0:
            return -1
        while j < n:
            if wanted[max(j, 0)] != 255:
                return 1
            j += 1
    return 0


@nb.njit(inline="always")
def _code(table, text, size, pad):
    """The code of one text under the table at this address."""
    head = view(table, HEAD, np.int64)
    nodes = head[NODES]
    words = head[WORDS]
    field = view(table + 8 * HEAD, FIELDS * nodes, np.int64)
    if head[PLAIN]:
        n = field[SKIP_SIZE]
        side = _side(text, size, np.int64(0), table + field[SKIP_AT], n, pad) if n else 0
        if side:
            return _LEAST if side < 0 else _GREATEST
        return np.int64(_word(text, size, n, pad) ^ np.uint64(0x8000000000000000))
    word = view(table + 8 * (HEAD + FIELDS * nodes), words, np.int64)
    child = view(table + 8 * (HEAD + FIELDS * nodes + words), words, np.int64)
    gap = view(table + 8 * (HEAD + FIELDS * nodes + 2 * words), words + nodes, np.int64)
    node = np.int64(0)
    at = np.int64(0)
    while True:
        n = field[SKIP_SIZE * nodes + node]
        short = at > size and pad == 0  # the word before was filled up with zeros
        side = -1 if short else _side(text, size, at, table + field[SKIP_AT * nodes + node], n, pad) if n else 0
        if side:
            if node == 0:
                return _LEAST if side < 0 else _GREATEST
            ordinal = field[LOW * nodes + node] if side < 0 else field[HIGH * nodes + node]
            rest = np.uint64(0) if side < 0 else np.uint64(0xFFFFFFFFFFFF)
            return np.int64(((np.uint64(ordinal) << np.uint64(48)) | rest) ^ np.uint64(0x8000000000000000))
        at += n
        this = np.int64(_word(text, size, at, pad) >> np.uint64(16))
        first = field[FIRST * nodes + node]
        base = first
        left = field[COUNT * nodes + node]
        end = first + left
        while left > 0:
            half = left >> 1
            if word[base + half] < this:
                base += half + 1
                left -= half + 1
            else:
                left = half
        if base < end and word[base] == this:
            node = child[base]
            at += 6
            continue
        ordinal = gap[base + node]
        return np.int64(((np.uint64(ordinal) << np.uint64(48)) | np.uint64(this)) ^ np.uint64(0x8000000000000000))


@kernel("int64(int64, int64, int64)")
def _slow_code(table, text, size):
    """`_code` by itself: what few texts need is not to be in the way of the others."""
    return _code(table, text, size, 0)


@nb.njit(inline="always")
def _differs(text, given, n):
    """0 if the text begins with these n bytes. Neither they nor the text are fewer than eight bytes in memory."""
    if n < 8:
        return (eight_bytes(text, 0) ^ eight_bytes(given, 0)) << np.uint64(64 - 8 * n) if n else np.uint64(0)
    differs = eight_bytes(text, n - 8) ^ eight_bytes(given, n - 8)
    for j in range(n >> 3):
        differs |= eight_bytes(text, 8 * j) ^ eight_bytes(given, 8 * j)
    return differs


@nb.njit(inline="always")
def _word_of_many(text, size, at):
    """`_word` of a text that has eight bytes or more, without a branch."""
    first = min(at, size - 8)
    missing = 8 * (at - first)
    word = _big_endian(text + first) << np.uint64(missing & 63)
    return word if missing < 64 else np.uint64(0)


@nb.njit(inline="always")
def _plain_code(table, text, size, shared, n):
    """The code of one text under a table that is PLAIN."""
    if size < 8 or n > size or _differs(text, shared, n):
        return _slow_code(table, text, size)
    return np.int64(_word_of_many(text, size, n) ^ np.uint64(0x8000000000000000))


@nb.njit(inline="always")
def _walked_code(table, paths, text, size):
    """The code of one text under a table that is not PLAIN, down the same tree as `division.paths` lays it out.

    It goes down by words alone, as if the text had all bytes that its nodes share, and looks in the end whether it has. Nearly all texts
    do, and each step has few branches that depend on the text. For the others there is `_code`.
    """
    if size < 8:
        return _slow_code(table, text, size)
    node = np.int64(0)
    while True:
        record = view(paths + node, PATH_FIELDS, np.int64)
        at = record[PATH_SIZE]
        this = np.int64(_word_of_many(text, size, at) >> np.uint64(16))
        left = record[PATH_WORDS]
        if left == 0:
            ordinal = record[PATH_ORDINAL]
            break
        first = paths + record[PATH_FIRST]
        room = record[PATH_ROOM]
        while left > 7:
            half = left >> 1
            first += 8 * half if view(first, half, np.int64)[half - 1] < this else 0
            left -= half
        word = view(first, 8, np.int64)
        below = np.int64(0)
        for i in range(8):  # behind the words are numbers greater than any word
            below += np.int64(word[i] < this)
        found = first + 8 * below
        next_ = view(found + 8 * room, 1, np.int64)[0]
        if view(found, 1, np.int64)[0] != this:
            ordinal = view(found + 16 * room, 1, np.int64)[0]
            break
        node = next_
    if at > size or _differs(text, paths + record[PATH_AT], at):
        return _slow_code(table, text, size)
    return np.int64(((np.uint64(ordinal) << np.uint64(48)) | np.uint64(this)) ^ np.uint64(0x8000000000000000))


@nb.njit(inline="always")
def _span(offsets, wide, i):
    """From where to where text i lies. `offsets` addresses int64 offsets if wide, else int32; 0 means texts of the fixed size -wide."""
    if offsets == 0:
        return -wide * i, -wide * (i + 1)
    if wide:
        pair = view(offsets + 8 * i, 2, np.int64)
        return pair[0], pair[1]
    both = view(offsets + 4 * i, 2, np.int32)
    return np.int64(both[0]), np.int64(both[1])


@kernel("void(int64, int64, int64, int64, int64, int64, int64, int64[::1])")
def byte_codes(offsets, wide, data, n, table, paths, pad, out):
    """Order-preserving codes of n texts; with pad 255, of the greatest texts that begin with them. `paths`: of the table, or 0."""
    if pad == 0 and view(table, HEAD, np.int64)[PLAIN]:
        field = view(table + 8 * HEAD, FIELDS, np.int64)
        for i in range(n):
            a, b = _span(offsets, wide, i)
            out[i] = _plain_code(table, data + a, b - a, table + field[SKIP_AT], field[SKIP_SIZE])
    elif pad == 0 and paths:
        for i in range(n):
            a, b = _span(offsets, wide, i)
            out[i] = _walked_code(table, paths, data + a, b - a)
    else:
        for i in range(n):
            a, b = _span(offsets, wide, i)
            out[i] = _code(table, data + a, b - a, pad)


@kernel("void(int64[::1], uint8[::1], int64[::1])")
def bound_codes(tables, text, out):
    """The code of one text under each of many tables."""
    for c in range(tables.shape[0]):
        out[c] = _code(tables[c], text.ctypes.data, text.shape[0], 0)


@kernel("void(int64, int64, int64, uint32[::1], int64, uint64[::1])")
def words_at(offsets, wide, data, rows, at, out):
    """The eight bytes from `at` on of some texts, filled up with zeros."""
    for i in range(rows.shape[0]):
        a, b = _span(offsets, wide, np.int64(rows[i]))
        out[i] = _word(data + a, b - a, at, 0)


@kernel("void(int64, int64, int64, uint32[::1], int64[::1])")
def in_common(offsets, wide, data, rows, out):
    """out = how many bytes some texts have in common at their beginning, the size of the shortest and of the longest."""
    a, b = _span(offsets, wide, np.int64(rows[0]))
    first = data + a
    common = b - a
    least = common
    most = common
    for i in range(1, rows.shape[0]):
        a, b = _span(offsets, wide, np.int64(rows[i]))
        size = b - a
        least = min(least, size)
        most = max(most, size)
        common = min(common, size)
        text = data + a
        j = np.int64(0)
        while j + 8 <= common and _big_endian(first + j) == _big_endian(text + j):
            j += 8
        one = view(first, common, np.uint8)
        other = view(text, common, np.uint8)
        while j < common and one[j] == other[j]:
            j += 1
        common = j
    out[0] = common
    out[1] = least
    out[2] = most


@kernel("void(int64, int64, int64, int64, int64[::1])")
def sizes(offsets, wide, data, n, out):
    """The size of each text in bytes."""
    for i in range(n):
        a, b = _span(offsets, wide, i)
        out[i] = b - a


@nb.njit(inline="always")
def _order(text, size, bound):
    """-1, 0 or 1: whether the text comes before, is or comes after the bound."""
    n = min(size, bound.shape[0])
    some = view(text, size, np.uint8)
    for j in range(n):
        if some[j] != bound[j]:
            return -1 if some[j] < bound[j] else 1
    return -1 if size < bound.shape[0] else 1 if size > bound.shape[0] else 0


@kernel("void(int64, int64, int64, int64, uint8[::1], int64, uint8[::1], int64, uint8[::1])")
def between(offsets, wide, data, n, lo, has_lo, hi, has_hi, out):
    """out = whether each text is at least lo and at most hi, where there are such bounds."""
    for i in range(n):
        a, b = _span(offsets, wide, i)
        good = True
        if has_lo:
            good = _order(data + a, b - a, lo) >= 0
        if has_hi and good:
            good = _order(data + a, b - a, hi) <= 0
        out[i] = good
