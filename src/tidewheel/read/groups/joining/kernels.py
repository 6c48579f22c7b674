"""The kernels that join the groups of two parts of the rows: those of the second are found among the first, and added to them."""

from __future__ import annotations

import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.read.groups.group_layout import (
    AFTER,
    ASTRAY,
    BEFORE,
    BLOCK,
    COUNT,
    CROWDED,
    DONE,
    FULL,
    GREATEST,
    GREATEST_TEXT,
    HASHED,
    LEAST,
    LEAST_NUMBER,
    LEAST_TEXT,
    MOMENTS,
    OFFSET,
    PAIRS_FULL,
    PAIRS_UNLUCKY,
    ROOM,
    SEEN_GREATEST,
    SEEN_LEAST,
    SUM_NARROW,
    SUM_REAL,
    SUM_WIDE,
    UNLUCKY,
)
from tidewheel.read.groups.slots.kernels import fits, in_table, in_window, pack
from tidewheel.read.groups.texts.keeping.kernels import comes_before


@kernel("void(int64[:, ::1], int64, int32[::1], int64, int64, int64, uint8[::1], int64[:, ::1], int64[:, ::1])")
def join_fold(others, first, slots, n, what, at, arena, texts, groups):
    """Add what a fold has in n groups of the second part to the groups with these slots."""
    reals = groups.view(np.float64)
    other_reals = others.view(np.float64)
    if what == SUM_NARROW:
        for i in range(n):
            groups[slots[i], at] += others[first + i, at]
    elif what == SUM_WIDE:
        for i in range(n):
            before = np.uint64(groups[slots[i], at])
            after = before + np.uint64(others[first + i, at])
            groups[slots[i], at] = np.int64(after)
            groups[slots[i], at + 1] += others[first + i, at + 1] + np.int64(after < before)
    elif what == SUM_REAL:
        for i in range(n):
            reals[slots[i], at] += other_reals[first + i, at]
    elif what == LEAST:
        for i in range(n):
            groups[slots[i], at] = min(groups[slots[i], at], others[first + i, at])
    elif what == GREATEST:
        for i in range(n):
            groups[slots[i], at] = max(groups[slots[i], at], others[first + i, at])
    elif what == LEAST_TEXT or what == GREATEST_TEXT:
        for i in range(n):
            number = others[first + i, at]
            known = groups[slots[i], at]
            if number >= 0 and (known < 0 or comes_before(arena, texts, number, known, what == GREATEST_TEXT)):
                groups[slots[i], at] = number
    elif what == MOMENTS:
        for i in range(n):
            slot = slots[i]
            more = others[first + i, at]
            if more:
                count = groups[slot, at] + more
                apart = other_reals[first + i, at + 1] - reals[slot, at + 1]
                reals[slot, at + 2] += other_reals[first + i, at + 2] + apart * apart * np.float64(groups[slot, at]) / np.float64(
                    count
                ) * np.float64(more)
                reals[slot, at + 1] += apart * np.float64(more) / np.float64(count)
                groups[slot, at] = count
    elif what == BEFORE or what == AFTER:
        for i in range(n):
            slot = slots[i]
            decides = others[first + i, at + 1]
            known = groups[slot, at + 1]
            if others[first + i, at] and (groups[slot, at] == 0 or (decides > known if what == AFTER else decides < known)):
                for w in range(3):
                    groups[slot, at + w] = others[first + i, at + w]


@kernel(
    "int64(int64[:, ::1], int64[:, ::1], int64, int64[:, ::1], int64[::1], int32[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1],"
    " int64[:, ::1], int64[::1], uint8[::1], int64[:, ::1], int32[::1])",
    makes_arrays=True,
)
def join(other_known, others, keys, folds, state, window, spans, table, known, groups, empty, arena, texts, found):
    """Add groups to groups. A row of `folds` is (what, at); `found`: the slot of each. Returns why it stops, as `group` does."""
    numbers = np.empty((max(keys, 1), BLOCK), np.int64)
    nulls = np.zeros(BLOCK, np.uint8)
    packed = np.empty(BLOCK, np.int64)
    hashes = np.empty(BLOCK, np.int64)
    slots = np.zeros(BLOCK, np.int32)
    while state[OFFSET] < other_known.shape[0]:
        first = state[OFFSET]
        n = min(other_known.shape[0] - first, BLOCK)
        if state[COUNT] + ROOM > groups.shape[0]:
            return FULL
        if state[HASHED] and 2 * (state[COUNT] + ROOM) > table.shape[0]:
            return CROWDED
        some_null = np.int64(0)
        for i in range(n):
            bits = other_known[first + i, keys]
            nulls[i] = np.uint8(bits)
            some_null |= bits
            for k in range(keys):
                numbers[k, i] = other_known[first + i, k]
        if keys and state[HASHED]:
            if in_table(numbers, keys, nulls, some_null, n, state, table, known, groups, empty, hashes, slots):
                return UNLUCKY
        elif keys:
            for k in range(keys):
                spans[k, SEEN_LEAST] = spans[k, LEAST_NUMBER]
                spans[k, SEEN_GREATEST] = spans[k, LEAST_NUMBER]
                some = False
                for i in range(n):
                    if (other_known[first + i, keys] >> k) & 1 == 0:
                        v = numbers[k, i]
                        spans[k, SEEN_LEAST] = min(spans[k, SEEN_LEAST], v) if some else v
                        spans[k, SEEN_GREATEST] = max(spans[k, SEEN_GREATEST], v) if some else v
                        some = True
            if not fits(spans, keys):
                return ASTRAY
            pack(numbers, keys, nulls, some_null, n, spans, packed)
            in_window(packed, numbers, keys, nulls, some_null, n, state, window, known, groups, empty, slots)
        found[first : first + n] = slots[:n]
        for f in range(folds.shape[0]):
            join_fold(others, first, slots, n, folds[f, 0], folds[f, 1], arena, texts, groups)
        state[OFFSET] = first + n
    return DONE


@kernel(
    "int64(int64[:, ::1], int32[::1], int64[::1], int64[::1], int64, int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[:,::1])",
    makes_arrays=True,
)
def join_pairs(others, found, numbers, counted_at, texted, at, state, table, pairs, groups):
    """Add pairs to pairs, and count those that are new. `at[0]`: how many are done; `numbers`: those of texts here, if the value of
    a fold is one, which bits of `texted` say; `counted_at`: by fold."""
    each = counted_at.shape[0]
    block = np.empty((2, BLOCK), np.int64)
    nulls = np.zeros(BLOCK, np.uint8)
    hashes = np.empty(BLOCK, np.int64)
    slots = np.zeros(BLOCK, np.int32)
    none = np.empty(0, np.int64)
    while at[0] < others.shape[0]:
        n = min(others.shape[0] - at[0], BLOCK)
        before = state[COUNT]
        if before + ROOM > pairs.shape[0] or 2 * (before + ROOM) > table.shape[0]:
            return PAIRS_FULL
        for i in range(n):
            pair = others[at[0] + i]
            fold = pair[0] % each
            block[0, i] = np.int64(found[pair[0] // each]) * each + fold
            block[1, i] = numbers[pair[1]] if (texted >> fold) & 1 else pair[1]
        unlucky = in_table(block, np.int64(2), nulls, np.int64(0), n, state, table, pairs, pairs, none, hashes, slots)
        for p in range(before, state[COUNT]):  # in any case: they are known next time
            groups[pairs[p, 0] // each, counted_at[pairs[p, 0] % each]] += 1
        if unlucky:
            return PAIRS_UNLUCKY
        at[0] += n
    return DONE
