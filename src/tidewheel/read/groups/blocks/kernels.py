"""The kernel that makes blocks: rows of one piece that are looked at together."""

from __future__ import annotations

import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import view
from tidewheel.model.pieces import PERM
from tidewheel.read.filters.kernels import places_of
from tidewheel.read.filters.step_codes import BLOCK as PROGRAM_BLOCK
from tidewheel.read.groups.group_layout import BLOCK, FIRST, NEXT_OFFSET, NEXT_SEGMENT, OFFSET, ONLY_MARKED, PIECE, ROOM, SEGMENT

_ALONE = 512
"""Rows that stand together from which on they are a block of their own, whose columns are read as they lie there."""


@kernel("int64(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], uint8[::1], uint32[::1])")
def next_block(pieces, segments, program, state, room, places):
    """The rows of the next block where the program is true: row numbers in `places`, unless they stand together, from
    state[FIRST] on, which is else -1. Several short segments of a piece make one block. Returns how many they are; 0 is the end."""
    s = state[SEGMENT]
    offset = state[OFFSET]
    have = np.int64(0)
    state[FIRST] = -1
    while s < segments.shape[0]:
        q = segments[s, 0]
        if have and q != state[PIECE]:
            break
        asked = program.shape[0] > 0 and not (state[ONLY_MARKED] and segments[s, 3] == 0)
        most = np.int64(PROGRAM_BLOCK if asked else BLOCK)
        n = min(segments[s, 2] - offset, most)
        if n <= 0:
            s += 1
            offset = 0
            continue
        if have + n > ROOM:
            break
        row = pieces[q]
        state[PIECE] = q
        first = segments[s, 1] + offset
        together = row[PERM] == 0
        if not asked:
            if together and have == 0 and n >= _ALONE:
                state[FIRST] = first
                offset += n
                have = n
                break
            if together:
                for i in range(n):
                    places[have + i] = np.uint32(first + i)
            else:
                perm = view(row[PERM] + 4 * first, n, np.uint32)
                for i in range(n):
                    places[have + i] = perm[i]
            have += n
        else:
            count = places_of(row, program, first, n, room, places[have:])
            if together and have == 0 and count == n and n == most:
                state[FIRST] = first
                offset += n
                have = n
                break
            have += count
        offset += n
    state[NEXT_SEGMENT] = s
    state[NEXT_OFFSET] = offset
    return have
