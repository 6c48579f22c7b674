"""The kernel of groups: the rows of a query's segments, where they lie, to what their groups come to.

It goes on, block by block, until all rows are done or something is in its way that is not its own to remove: then it says what, and is
called again at the same block. Until all is known of a block that can be in the way, nothing of it is added to its groups.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from tidewheel.model.jit.kernels import kernel
from tidewheel.model.kernels import view
from tidewheel.model.pieces import VALUES
from tidewheel.read.groups.blocks.kernels import next_block
from tidewheel.read.groups.group_layout import (
    AFTER,
    ASTRAY,
    AT,
    BEFORE,
    BEHIND_FOLDS,
    BEHIND_STEPS,
    BY,
    COLUMN,
    COUNT,
    CROWDED,
    DONE,
    FIRST,
    FIRST_FOLD,
    FIRST_STEP,
    FULL,
    GREATEST,
    GREATEST_TEXT,
    HASHED,
    KIND,
    LEAST,
    LEAST_NUMBER,
    MOMENTS,
    MORE_BYTES,
    NEW,
    NEXT_OFFSET,
    NEXT_SEGMENT,
    NULLS,
    NULLS_AT,
    OFFSET,
    PAIRS_FULL,
    PAIRS_UNLUCKY,
    PIECE,
    REAL,
    RISES,
    SEEN_GREATEST,
    SEEN_LEAST,
    SEGMENT,
    TEXT_BYTES,
    TEXTS,
    TEXTS_FULL,
    TEXTS_UNLUCKY,
    UNLUCKY,
    UNSURE,
    WHAT,
)
from tidewheel.read.groups.lowering import FLOAT64, INT64, TEXT, UINT64
from tidewheel.read.groups.marks.kernels import mark
from tidewheel.read.groups.near.kernels import near_in_window, near_slots
from tidewheel.read.groups.numbers.kernels import bring_value, codes, ends, nulls_of, take_steps
from tidewheel.read.groups.runs.kernels import bucket_step, runs_of, runs_of_buckets, runs_of_numbers, spread
from tidewheel.read.groups.slots.kernels import fits, in_table, in_window, pack
from tidewheel.read.groups.sums.kernels import add_by, add_moments, add_values, count_new, count_rows, without_nulls
from tidewheel.read.groups.texts.keeping.kernels import keep_ends, rows_kept
from tidewheel.read.groups.texts.kernels import bytes_of, intern

_NO_TEXT = np.int64(-9223372036854775808)


@nb.njit(inline="always")
def _without_null_values(values, nulls, n):
    """Where a value is null, another one of the block stands instead: it is as sure as that one, and no end of the block."""
    some = np.int64(0)
    for i in range(n):
        if not nulls[i]:
            some = values[i]
            break
    for i in range(n):
        values[i] = some if nulls[i] else values[i]


@nb.njit(inline="always")
def _usable(row, by, straight, first, places, n, count, nulls, skips, missing, use, decides):
    """What decides about n values, of which `count` are null, and which of them are of use: see `add_by`. `skips`: null ones are not."""
    bring_value(row, by, straight, first, places, n, decides)
    some_missing = nulls_of(row, by[COLUMN], straight, first, places, n, missing)
    skipped = np.uint8(0) if skips else np.uint8(2)
    for i in range(n):
        u = skipped if count and nulls[i] else np.uint8(1)
        use[i] = np.uint8(0) if some_missing and missing[i] else u


@kernel("int64(int64[::1], int64[:, ::1], int64, int64, int64, uint32[::1], int64)")
def texts_of(row, values, keys, straight, first, places, n):
    """Bytes of all texts of a block that may be given numbers."""
    total = np.int64(0)
    for v in range(values.shape[0]):
        value = values[v]
        if value[KIND] == TEXT:
            times = np.int64(1) if v < keys else value[BEHIND_FOLDS] - value[FIRST_FOLD]
            if times:
                total += times * bytes_of(row, value[COLUMN], straight, first, places, n)
    return total


@kernel(
    "int64(int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, int64[:, ::1], int64[:, ::1], int64, int64[::1], int32[::1],"
    " int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], uint8[::1],"
    " int64[:, ::1], int64[:, ::1], uint64[:, ::1], int64[:, ::1], int32[:, ::1], uint8[:, ::1])",
)
def group(
    pieces, segments, program, values, keys, steps, folds, texted, state, window, spans, table, known, groups, empty, pair_state,
    pair_table, pairs, arena, texts, text_table, marks, wide, narrow, small,
):  # fmt: skip
    """Add the rows of segments to their groups. The first rows of `values` are the keys; `texted`: how many are texts with numbers.
    The last three are room to work in. Returns why it stops: see the layout."""
    most_keys = max(keys, np.int64(2))
    numbers = wide[:most_keys]
    hashes = wide[most_keys]
    found = wide[most_keys + 1]
    kept = wide[most_keys + 2]
    coded = wide[most_keys + 3]
    near_room = wide[most_keys + 4]
    both = wide[most_keys + 5]
    asked = wide[most_keys + 6 :]
    none = both[:0]
    slots = narrow[0]
    pair_slots = narrow[1]
    kept_slots = narrow[2]
    starts = narrow[3]
    kept_starts = narrow[4]
    row_places = narrow[5]
    kept_row_places = narrow[6]
    kept_places = kept_row_places.view(np.uint32)
    near = narrow[7]
    text_rows = narrow[8]
    places = narrow[9].view(np.uint32)
    null_bits = small[0]
    nulls = small[1]
    use = small[2]
    room = small[3]
    while True:
        n = next_block(pieces, segments, program, state, room, places)
        if n == 0:
            return DONE
        row = pieces[state[PIECE]]
        first = state[FIRST]
        straight = np.int64(first >= 0)
        if state[COUNT] + n > groups.shape[0]:
            return FULL
        if state[HASHED] and 2 * (state[COUNT] + n) > table.shape[0]:
            return CROWDED
        if texted:
            state[MORE_BYTES] = texts_of(row, values, keys, straight, first, places, n)
            most = state[TEXTS] + texted * n
            if state[TEXT_BYTES] + state[MORE_BYTES] > arena.shape[0] or most > texts.shape[0] or 2 * most > text_table.shape[0]:
                return TEXTS_FULL
        # ---- the numbers of the keys
        some_null = np.int64(0)
        alike = True
        runs = np.int64(0)
        for k in range(keys):
            value = values[k]
            number = numbers[k]
            count = nulls_of(row, value[COLUMN], straight, first, places, n, nulls)
            if count:
                if not some_null:
                    for i in range(n):
                        null_bits[i] = 0
                some_null = np.int64(1)
                for i in range(n):
                    null_bits[i] |= nulls[i] << np.uint8(k)
                alike = False
                if count == n:
                    for i in range(n):
                        number[i] = 0
                    spans[k, SEEN_LEAST] = spans[k, LEAST_NUMBER]
                    spans[k, SEEN_GREATEST] = spans[k, LEAST_NUMBER]
                    continue
            given = number
            if value[KIND] == TEXT:
                if intern(
                    row, value[COLUMN], straight, first, places, n, nulls, np.int64(count > 0), state, arena, texts, text_table, text_rows,
                    asked, number,
                ):  # fmt: skip
                    return TEXTS_UNLUCKY
            elif straight and value[RISES] and value[KIND] == INT64 and not count:
                given = view(row[value[COLUMN] + VALUES] + 8 * first, n, np.int64)  # as they lie there
            else:
                bring_value(row, value, straight, first, places, n, number)
            if count:
                _without_null_values(number, nulls, n)
            if value[RISES]:
                ends(given, n, both)
                least = both[0]
                greatest = both[1]
                if take_steps(steps, value[FIRST_STEP], value[BEHIND_STEPS], both, 2, 0):
                    return UNSURE
                bucket = np.int64(-1)
                if both[0] == both[1]:
                    for i in range(n):
                        number[i] = both[0]
                else:
                    alike = False
                    if keys == 1 and not count:
                        bucket = bucket_step(steps, value[FIRST_STEP], value[BEHIND_STEPS])
                    if bucket >= 0:
                        runs = runs_of_buckets(given, n, least, greatest, steps[bucket, 1], steps[bucket, 2], starts, coded)
                    if runs:
                        for i in range(runs):
                            number[i] = coded[i]
                    else:
                        for i in range(n):
                            number[i] = given[i]
                        take_steps(steps, value[FIRST_STEP], value[BEHIND_STEPS], number, n, 1)
            else:
                alike = False
                if take_steps(steps, value[FIRST_STEP], value[BEHIND_STEPS], number, n, 0):
                    return UNSURE
                if not state[HASHED]:
                    ends(number, n, both)
            spans[k, SEEN_LEAST] = both[0]
            spans[k, SEEN_GREATEST] = both[1]
            if count and state[HASHED]:
                for i in range(n):
                    number[i] = 0 if nulls[i] else number[i]
        # ---- their slots
        if alike:
            runs = np.int64(1)
            starts[0] = 0
            starts[1] = np.int32(n)
        elif keys == 1 and not some_null and not runs:
            runs = runs_of_numbers(numbers[0], n, starts, coded)
            if runs:
                for i in range(runs):
                    numbers[0, i] = coded[i]
        look = runs if runs else n
        if keys:
            if state[HASHED]:
                if in_table(numbers, keys, null_bits, some_null, look, state, table, known, groups, empty, hashes, slots):
                    return UNLUCKY
            else:
                if not fits(spans, keys):
                    return ASTRAY
                pack(numbers, keys, null_bits, some_null, look, spans, coded)
                in_window(coded, numbers, keys, null_bits, some_null, look, state, window, known, groups, empty, slots)
        if runs:
            spread(slots, runs, starts)
        elif keys > 1 or some_null:
            runs = runs_of(slots, n, starts)
        # ---- the pairs of a group and a value
        for v in range(keys, values.shape[0]):
            value = values[v]
            for f in range(value[FIRST_FOLD], value[BEHIND_FOLDS]):
                if folds[f, WHAT] != NEW:
                    continue
                marked = marks.shape[0] > 0 and value[KIND] == TEXT
                before = pair_state[COUNT]
                if not marked and (before + n > pairs.shape[0] or 2 * (before + n) > pair_table.shape[0]):
                    return PAIRS_FULL
                count = nulls_of(row, value[COLUMN], straight, first, places, n, nulls)
                if count == n:
                    continue
                if value[KIND] == TEXT:
                    if intern(
                        row, value[COLUMN], straight, first, places, n, nulls, np.int64(count > 0), state, arena, texts, text_table,
                        text_rows, asked, found,
                    ):  # fmt: skip
                        return TEXTS_UNLUCKY
                    if marked:
                        if state[COUNT] * folds.shape[0] > marks.shape[0] or state[TEXTS] > 64 * marks.shape[1]:
                            return PAIRS_FULL
                        mark(slots, found, nulls, np.int64(count > 0), n, folds.shape[0], f, folds[f, AT], marks, groups)
                        continue
                else:
                    bring_value(row, value, straight, first, places, n, found)
                if count:
                    _without_null_values(found, nulls, n)
                if take_steps(steps, value[FIRST_STEP], value[BEHIND_STEPS], found, n, 0):
                    return UNSURE
                if value[REAL]:
                    codes(found, n, found)
                m = np.int64(0)
                for i in range(n):
                    numbers[0, m] = np.int64(slots[i]) * folds.shape[0] + f
                    numbers[1, m] = found[i]
                    m += np.int64(not count or not nulls[i])
                unlucky = in_table(
                    numbers, np.int64(2), nulls, np.int64(0), m, pair_state, pair_table, pairs, pairs, none, hashes, pair_slots
                )
                count_new(pairs, before, pair_state[COUNT], folds.shape[0], folds[f, AT], groups)  # in any case: they are known next time
                if unlucky:
                    return PAIRS_UNLUCKY
        # ---- the texts that groups keep
        for v in range(keys, values.shape[0]):
            value = values[v]
            if value[KIND] != TEXT:
                continue
            for f in range(value[FIRST_FOLD], value[BEHIND_FOLDS]):
                what = folds[f, WHAT]
                if what == NEW:
                    continue
                number_at = folds[f, AT]
                count = nulls_of(row, value[COLUMN], straight, first, places, n, nulls)
                if what == BEFORE or what == AFTER:
                    number_at += 2
                    _usable(row, values[folds[f, BY]], straight, first, places, n, count, nulls, folds[f, NULLS], null_bits, use, kept)
                    for i in range(n):
                        found[i] = ~np.int64(i) if use[i] == 1 else _NO_TEXT
                    add_by(found, use, kept, slots, n, np.int64(what == AFTER), folds[f, AT], groups)
                elif count < n:
                    keep_ends(
                        row, value[COLUMN], straight, first, places, n, nulls, count, slots, what == GREATEST_TEXT, number_at, arena, texts,
                        groups,
                    )  # fmt: skip
                m = rows_kept(straight, first, places, n, slots, number_at, groups, kept_places, kept_slots)
                if m:
                    if intern(
                        row, value[COLUMN], np.int64(0), first, kept_places, m, nulls, np.int64(0), state, arena, texts, text_table,
                        text_rows, asked, found,
                    ):  # fmt: skip
                        return TEXTS_UNLUCKY
                    for i in range(m):
                        groups[kept_slots[i], number_at] = found[i]
        # ---- what they come to
        counting = np.int64(not runs)
        span = np.int64(0)
        if not runs:
            span = near_slots(slots, n, row_places, near) if state[HASHED] else near_in_window(coded, n, window, row_places, near)
        if runs or span:
            count_rows(slots, n, starts, runs, row_places, near, span, near_room, groups)
            counting = np.int64(0)
        for v in range(keys, values.shape[0]):
            value = values[v]
            first_fold = value[FIRST_FOLD]
            behind = first_fold if value[KIND] == TEXT else value[BEHIND_FOLDS]  # texts are kept already
            if value[NULLS_AT] < 0:
                continue
            count = nulls_of(row, value[COLUMN], straight, first, places, n, nulls)
            brought = found
            if straight and not count and (value[KIND] == FLOAT64 or value[KIND] == INT64) and value[FIRST_STEP] == value[BEHIND_STEPS]:
                brought = view(row[value[COLUMN] + VALUES] + 8 * first, n, np.int64)  # as they lie there
            elif first_fold < behind or value[FIRST_STEP] < value[BEHIND_STEPS]:  # counted ones may fail, too
                bring_value(row, value, straight, first, places, n, found)
                if value[FIRST_STEP] < value[BEHIND_STEPS]:
                    if count and count < n:
                        _without_null_values(found, nulls, n)
                    if count < n and take_steps(steps, value[FIRST_STEP], value[BEHIND_STEPS], found, n, 0):
                        return UNSURE
            for f in range(first_fold, behind):
                what = folds[f, WHAT]
                if what == BEFORE or what == AFTER:
                    _usable(row, values[folds[f, BY]], straight, first, places, n, count, nulls, folds[f, NULLS], null_bits, use, coded)
                    add_by(brought, use, coded, slots, n, np.int64(what == AFTER), folds[f, AT], groups)
            m = n
            given = brought
            given_slots = slots
            given_places = row_places
            given_starts = starts
            given_runs = runs
            if count:
                m = without_nulls(found, nulls, slots, row_places, n, value[NULLS_AT], groups, kept, kept_slots, kept_row_places)
                given = kept
                given_slots = kept_slots
                given_places = kept_row_places
                given_starts = kept_starts
                given_runs = np.int64(0)
                if runs and m:
                    given_runs = runs_of(kept_slots, m, kept_starts)
            if m == 0 or first_fold == behind:
                continue
            ordered = given
            for f in range(first_fold, behind):
                what = folds[f, WHAT]
                if what == MOMENTS:
                    add_moments(given, given_slots, m, value[REAL], np.int64(value[KIND] == UINT64), folds[f, AT], groups)
                elif value[REAL] and (what == LEAST or what == GREATEST):
                    codes(given, m, coded)
                    ordered = coded
            both_ways = np.int64(counting and not count)
            left = add_values(
                given, ordered, given_slots, m, given_starts, given_runs, given_places, near, span, near_room, folds, first_fold, behind,
                both_ways, groups,
            )  # fmt: skip
            counting = left if both_ways else counting
        if counting:
            count_rows(slots, n, starts, runs, row_places, near, span, near_room, groups)
        state[SEGMENT] = state[NEXT_SEGMENT]
        state[OFFSET] = state[NEXT_OFFSET]
