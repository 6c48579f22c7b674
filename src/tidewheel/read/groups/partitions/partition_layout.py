"""Where partitions keep what."""

from __future__ import annotations

HEAD, TAIL, NEXT, CHAIN = range(4)
"""Of the chain of one side for a partition: where its first row is, its last chunk, and where the next row goes."""

NARROW_AT, WIDE_AT, NULL_BIT, STORED = range(4)
"""Of a value: which column of 32 or of 64 bits it is in, and which bit says that it is null; -1 if none."""

USED = 0
"""The word of a side's counter: the next chunk that no chain has."""

CHUNK = 1024
"""Rows of a chunk: what is known of them stays in the nearest caches."""
