"""Layers: rows that only come to a large partition of a derived table are a chunk of their own, beside those that are there.

A partition is large when its chunks have some megabytes, and no rows of other partitions. What comes to others is cheaply written with all
that is there (refreshes.py). Left to themselves, the layers of many refreshes would pile up, and a query of a key looks into each. So a new
one is written together with those that are small, and with those that are not much larger than what is written already, the smallest first.
What stays is a few chunks, each several times as large as all that are smaller; a row is written again a few times for each tenfold growth
of its partition, however many refreshes that took, and no chunk grows beyond a bound.

Pure: regions and sizes of chunks in, decisions out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tidewheel.index.version import ChunkSet
from tidewheel.model.dataclass import dataclass
from tidewheel.model.partitions import Partitions
from tidewheel.model.pieces import TMAX, TMIN

SMALL = 2 << 20
"""Bytes of chunks below which a partition is not large, nor is a chunk left beside new rows."""

BESIDE = 2 * SMALL
"""Bytes that are written anew with what comes to a large partition, about: the small chunks, and seldom a larger one."""

TIMES = 4
"""A chunk is written anew with rows that have more than one in so many of its bytes. Each chunk costs a query of a key one twentieth."""

LARGEST = 256 << 20
"""Bytes of a chunk that layers make, and of all the chunks that one commit writes anew for them, small ones and new rows aside: what comes
at once is written as it comes."""


@dataclass(frozen=True, slots=True)
class Layers:
    """What becomes of large partitions: their numbers, and those of the chunks that leave, whose rows are written with the new ones."""

    partitions: frozenset[int]
    merged: tuple[int, ...]


def layers_of(chunks: ChunkSet, divided: Partitions, new: Mapping[int, int]) -> Layers:
    """The large ones among the partitions, by number, that so many bytes of rows come to."""
    large = large_of(chunks, divided, new)
    sizes = {n: chunks.holders[n].record.bytes for mine in large.values() for n in mine}
    merged: list[int] = []
    room = LARGEST
    for number, mine in sorted(large.items(), reverse=True):  # the newest first, as refreshes go
        taken = _merged([sizes[n] for n in mine], new[number], room)
        room -= sum(size for size in (sizes[mine[i]] for i in taken) if size >= SMALL)
        merged += [mine[i] for i in taken]
    return Layers(frozenset(large), tuple(merged))


def large_of(chunks: ChunkSet, divided: Partitions, numbers: Collection[int]) -> dict[int, list[int]]:
    """The large ones among these partitions, each with the numbers of its chunks."""
    of = _alone(chunks, divided, numbers)
    return {number: mine for number, mine in of.items() if sum(chunks.holders[n].record.bytes for n in mine) >= SMALL}


def _alone(chunks: ChunkSet, divided: Partitions, numbers: Collection[int]) -> dict[int, list[int]]:
    """The chunks of each of these partitions, of those that share none with other partitions."""
    matrix = chunks.matrix[: chunks.count]
    opening, closing = divided.numbers(matrix[:, TMIN]), divided.numbers(matrix[:, TMAX])
    wanted = np.array(sorted(numbers), np.int64)
    first, last = np.searchsorted(wanted, opening), np.searchsorted(wanted, closing, side="right")
    across = np.zeros(len(wanted), np.bool_)
    for n in np.flatnonzero((opening < closing) & (first < last)).tolist():
        across[first[n] : last[n]] = True
    found: dict[int, list[int]] = {}
    for n in np.flatnonzero((opening == closing) & (first < last)).tolist():
        if not across[first[n]]:
            found.setdefault(int(opening[n]), []).append(n)
    return found


def _merged(sizes: Sequence[int], new: int, room: int) -> list[int]:
    """Which chunks of one partition, by their places, are written anew with so many bytes of new rows."""
    found: list[int] = []
    total = new
    for i in sorted(range(len(sizes)), key=sizes.__getitem__):
        size = sizes[i]
        if size >= SMALL and (size >= TIMES * total or size > room or total + size > LARGEST):
            break
        found.append(i)
        total += size
        room -= size if size >= SMALL else 0
    return found
