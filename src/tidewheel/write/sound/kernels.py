"""Kernels that look through columns from outside, before anything else reads them. They claim nothing of what they do not know."""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import view

_ANY = np.int64(1) << 60
"""The length of a view whose length does not matter."""


@kernel("int64(int64, int64, int64)")
def _unset(bits, offset, n):
    """How many of n bits are 0."""
    memory = view(bits, (offset + n + 7) // 8, np.uint8)
    count = 0
    for j in range(offset, offset + n):
        count += 1 - ((memory[j >> 3] >> (j & 7)) & 1)
    return count


@kernel("boolean(int64, int64)")
def _is_ascii(at, n):
    """Whether none of n bytes has its highest bit set; most of them are taken eight at a time, where eight may lie."""
    head = min(-at % 8, n)
    words = (n - head) // 8
    some = np.uint8(0)
    for byte in view(at, head, np.uint8):
        some |= byte
    many = np.uint64(0)
    for word in view(at + head, words, np.uint64):
        many |= word
    for byte in view(at + head + 8 * words, n - head - 8 * words, np.uint8):
        some |= byte
    return some < 128 and many & np.uint64(0x8080808080808080) == 0


@nb.njit(inline="always")
def _is_wrong(third, second, last, byte):
    """Whether a byte of UTF-8 cannot come after the three before it: comparisons only, so that many bytes are looked at at a time."""
    follows = (byte >= 0x80) & (byte < 0xC0)
    has_to = (last >= 0xC0) | (second >= 0xE0) | (third >= 0xF0)
    never = (byte == 0xC0) | (byte == 0xC1) | (byte > 0xF4)
    too_long = ((last == 0xE0) & (byte < 0xA0)) | ((last == 0xF0) & (byte < 0x90))
    beyond = ((last == 0xED) & (byte >= 0xA0)) | ((last == 0xF4) & (byte >= 0x90))  # half of a pair of UTF-16, or behind all characters
    return (follows != has_to) | never | too_long | beyond


@kernel("boolean(int64, int64)")
def is_utf8(at, n):
    """Whether n bytes are UTF-8."""
    some = view(at, n, np.uint8)
    none = np.uint8(0)
    wrong = False
    for i in range(min(n, 3)):
        wrong |= _is_wrong(none, some[i - 2] if i > 1 else none, some[i - 1] if i > 0 else none, some[i])
    first = view(at, n, np.uint8)
    second = view(at + 1, n, np.uint8)
    third = view(at + 2, n, np.uint8)
    fourth = view(at + 3, n, np.uint8)
    for i in range(n - 3):
        wrong |= _is_wrong(first[i], second[i], third[i], fourth[i])
    for i in range(max(0, n - 3), n):  # a character that is not complete
        wrong |= some[i] >= (0xC0 if i == n - 1 else 0xE0 if i == n - 2 else 0xF0)
    return not wrong


@nb.njit(inline="always")
def _is_plain(offsets, rows, data, is_bytes):
    """Whether the offsets never decrease, and all data is bytes, or text that is UTF-8 from end to end and never cut inside a character."""
    falls = 0
    for r in range(rows):  # counted, not looked for: then it is done several at a time
        falls += offsets[r + 1] < offsets[r]
    first, last = np.int64(offsets[0]), np.int64(offsets[rows])
    if falls or is_bytes or _is_ascii(data + first, last - first):
        return falls == 0
    if not is_utf8(data + first, last - first):
        return False
    some = view(data, last, np.uint8)
    cut = 0
    for r in range(rows):
        if offsets[r] < last:
            cut += some[offsets[r]] & 0xC0 == 0x80
    return cut == 0


@kernel("int64(int64, int64[::1], int64[::1])")
def to_look_at(array, columns, forms):
    """The place in `columns` of the first that is not certainly sound, or -1.

    `array` is a record batch's Arrow C data structure (as for `column_slots`) whose buffers are known to be as long as they must be, and
    whose first and last offsets lie inside the data. Certain are a right count of nulls, offsets that never decrease, and text that is
    UTF-8 from end to end, also under nulls; other text is left to Arrow. `forms`: 0 for values of a fixed width; with offsets of 32 bits,
    1 for text and 2 for bytes; with offsets of 64 bits, 3 and 4.
    """
    children = view(view(array, 7, np.int64)[6], _ANY, np.int64)
    for i in range(columns.shape[0]):
        child = view(children[columns[i]], 7, np.int64)
        rows, nulls, offset = child[0], child[1], child[2]
        if offset < 0:
            return i
        buffers = view(child[5], 3, np.int64)
        if nulls > 0 and (buffers[0] == 0 or _unset(buffers[0], offset, rows) != nulls):
            return i
        if rows == 0 or forms[i] == 0:
            continue
        if forms[i] <= 2:
            good = _is_plain(view(buffers[1] + 4 * offset, rows + 1, np.int32), rows, buffers[2], forms[i] == 2)
        else:
            good = _is_plain(view(buffers[1] + 8 * offset, rows + 1, np.int64), rows, buffers[2], forms[i] == 4)
        if not good:
            return i
    return -1
