"""Texts as numbers of eight bytes, and where those stand in a table.

A table of texts has two numbers for each place: the word of a text, which is its bytes if they are at most eight, else their hash, and
1 + its length and its number, 32 bits each. Both are 0 where there is none.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.kernels import eight_bytes, view
from tidewheel.read.groups.slots.kernels import mixed

NUMBER_BITS = np.uint64(0xFFFFFFFF)


@nb.njit(inline="always")
def place(word, length, seed, shift):
    """Where a text is looked for first: by the upper bits, which all others have a part in."""
    return np.int64(((word ^ (np.uint64(length) * np.uint64(0x9E3779B97F4A7C15))) * (seed | np.uint64(1))) >> shift)


@nb.njit(inline="always")
def shift_of(size):
    """To as many bits as places of a table have."""
    shift = np.uint64(64)
    while size > 1:
        size >>= 1
        shift -= np.uint64(1)
    return shift


@nb.njit(inline="always")
def few_bytes(data, end, length):
    """At most eight bytes before an end as one number."""
    if end >= 8:  # what stands before them is there, and is shifted out
        word = eight_bytes(data, end - 8) >> (np.uint64(64 - 8 * length) & np.uint64(63))
        return word if length else np.uint64(0)
    word = np.uint64(0)
    some = view(data, end, np.uint8)
    for i in range(length):
        word |= np.uint64(some[end - length + i]) << np.uint64(8 * i)
    return word


@nb.njit(inline="always")
def many_bytes(data, start, length, seed):
    h = seed
    for i in range(0, length - 8, 8):
        h = mixed(h, np.int64(eight_bytes(data, start + i)))
    return mixed(h, np.int64(eight_bytes(data, start + length - 8)))


@nb.njit(inline="always")
def equal(one, other, length):
    """Whether more than eight bytes at two addresses are the same."""
    for i in range(0, length - 8, 8):
        if eight_bytes(one, i) != eight_bytes(other, i):
            return False
    return eight_bytes(one, length - 8) == eight_bytes(other, length - 8)
