"""The steps of a program: a row of int64 each, as the kernels read it.

A step asks something of a column, and leaves a mask of one byte for each row that is still in question; or it makes one mask of the last
two. A program is a conjunction of parts: the last step of each part says KEEP, and from then on only the rows are in question where its
mask is 1. Negations are in the steps themselves (TURN), so what is false never has to be told from what is null: a mask is 1 where the
answer is true, and nowhere else.
"""

from __future__ import annotations

(
    ASKED,  # what is asked, of those below
    COLUMN,  # the column's first slot in a descriptor
    TURN,  # 1: the opposite is asked; rows whose value is null are not kept either way
    FIRST, SECOND,  # of a range, its least value and how many follow; else as the step says
    CONSTANTS,  # the address of what it compares with
    COUNT,  # how many there are
    KEEP,  # the last step of a part: 1
    SIFT,  # the first step of a part that costs so much that rows are better sifted first: 1
    WIDTH,
) = range(10)  # fmt: skip

(
    BOTH, EITHER,  # of the last two masks
    IS_NULL,
    BYTES1, BYTES2, BYTES4, BYTES8,  # whole numbers: value - FIRST <= SECOND, unsigned, in as many bytes
    BYTES16,  # decimals whose lower eight bytes say it all
    BIT,
    FLOAT4, FLOAT8,  # CONSTANTS: least and greatest number; FIRST: 1 if NaN is one of them
    LISTED,  # whole numbers, FIRST: their kind; CONSTANTS: COUNT of them in rising order
    TABLED,  # the same, CONSTANTS: a byte for each of COUNT numbers from SECOND on, 1 if it is one of them, and a 0
    LISTED_FLOAT,  # FIRST: bytes; SECOND: 1 if NaN is one of them; CONSTANTS: COUNT float64 in rising order
    TEXT_IS,  # FIRST: bytes of an offset, here and below; CONSTANTS: COUNT bytes, and at least eight more
    TEXT_ORDER,  # SECOND: bits: 1 less, 2 equal, 4 greater
    TEXT_BEGINS, TEXT_ENDS, TEXT_HAS,
    TEXT_LISTED,  # CONSTANTS: addresses of ends, bytes and places, the number of places less one, the seed
) = range(20)  # fmt: skip

INT1, INT2, INT4, INT8, UINT1, UINT2, UINT4, INT16 = range(8)
"""Kinds of whole numbers in lists. Those of eight bytes are compared by their bits alone, of INT16 the lower eight bytes count."""

BLOCK = 1024
"""Rows at a time: their masks and values stay in the nearest cache."""

MASKS = 16
"""Masks at a time."""

ROOM = (MASKS + 8) * BLOCK
"""Bytes of working memory for a program: masks, and eight bytes for each row."""

FEW = 8
"""Numbers of a list that are looked for one by one."""
