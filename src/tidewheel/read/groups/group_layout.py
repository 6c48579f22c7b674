"""Where the kernels of groups keep what: the words of their state, of a value, of a fold and of a group."""

from __future__ import annotations

(
    SEGMENT, OFFSET,  # the segment of the next block, and the rows of it that are done
    NEXT_SEGMENT, NEXT_OFFSET,  # the same, once this block is done
    PIECE, FIRST,  # the piece of this block; its first row if its rows stand together, or -1
    COUNT,  # groups
    HASHED,  # 1: their slots are in the table; 0: in the window
    SEED,  # of the hash
    TEXTS, TEXT_BYTES, TEXT_SEED,  # texts that were seen, their bytes, and the seed of their hash
    MORE_BYTES,  # bytes of texts that the next block needs room for
    ONLY_MARKED,  # 1: the program is true of all rows in segments without a mark
    STATE,
) = range(15)  # fmt: skip
"""The state of the groups. That of the pairs of a group and one of its values has COUNT and SEED."""

COLUMN, KIND, FIRST_STEP, BEHIND_STEPS, RISES, REAL, FIRST_FOLD, BEHIND_FOLDS, NULLS_AT, VALUE = range(10)
"""A value: the column's first word in a piece, what it is made by, and what is made of it. NULLS_AT: the word of a group that counts its
nulls, of keys -1."""

LEAST_NUMBER, GREATEST_NUMBER, SHIFT, SEEN_LEAST, SEEN_GREATEST, SPAN = range(6)
"""Of a key: the numbers that have a place in the window, where they stand in it, and the ends of the numbers that were seen last."""

ROWS_AT = 0
"""The word of a group that counts its rows."""

WHAT, AT, BY, NULLS, FOLD = range(5)
"""A fold: what it does, the first word of a group for it, the value that decides, if another one does, and then 1 if nulls count not."""

SUM_NARROW, SUM_WIDE, SUM_REAL, LEAST, GREATEST, MOMENTS, BEFORE, AFTER, NEW, LEAST_TEXT, GREATEST_TEXT = range(11)
"""What a fold does. SUM_WIDE has two words, the lower 64 bits first; MOMENTS has count, mean and the sum of squares about it; BEFORE and
AFTER have 1 if there is a value (2 if it is null), what decided, and the value. NEW counts the values that the group has not had.

Of texts, LEAST_TEXT, GREATEST_TEXT, BEFORE and AFTER keep the number; where there is none it is negative, or nobody looks at it."""

DONE, FULL, CROWDED, ASTRAY, UNSURE, UNLUCKY, PAIRS_FULL, PAIRS_UNLUCKY, TEXTS_FULL, TEXTS_UNLUCKY = range(10)
"""Why a kernel returns: all rows are done; there is no room for more groups; the table is too full; a number has no place in the window; a
step is not sure; too many keys have one hash; the same of pairs and texts."""

BLOCK = 4096
"""Rows at a time: what is known of them stays in the near caches. Each column is read a page or more at a time: of less, what the machine
fetches ahead comes too late."""

ROOM = 2 * BLOCK
"""Rows of a block that is made of several parts."""

WINDOW_BITS = 20
"""Of numbers in the window."""

WIDEST_BITS = 24
"""Of those in the window of many rows: it is hardly ever slower than a table, which has to keep and compare the numbers too."""

ROWS_BITS = 3
"""How many more bits than the number of rows a wide window may have: of few rows, each would touch a page of its own."""
