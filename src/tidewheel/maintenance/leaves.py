"""Whether what a chunk says of its rows is true: codes, leaves, zone maps, time masks, order, region and partitions, all made anew.

The rows of one chunk go in, findings come out; no I/O. Made with NumPy and by the words of docs/chunk-format.md, not with the
kernels that write chunks: a mistake of theirs is found as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tidewheel.chunk.format import GENERATIONS, Array, code_columns, zoned_columns
from tidewheel.maintenance.stored import Finding, StoredChunk
from tidewheel.model.coders import key_coder
from tidewheel.model.codes import Codes, FloatCoder, IntegerCoder, fixed, integer_codes
from tidewheel.model.partitions import rows_by_start
from tidewheel.model.times import INT64_MIN

_BINS = 1 << 16
"""Partitions that are counted in an array; more of them are sorted."""


def compare(chunk: StoredChunk) -> Iterator[Finding]:
    """What the chunk and its catalog row say that its rows do not. Columns with damaged blocks are left out."""
    spec, stored = chunk.spec, chunk.batch
    key, time = (stored.schema.names[c] for c in code_columns(spec))
    if {key, time} & chunk.damaged:
        return
    if not _starts_are_right(chunk):
        yield Finding("leaves", "the starts of its leaves do not rise from 0 to its number of rows")
        return
    codes, times = (fixed(stored.column(c), np.int64) for c in code_columns(spec))
    yield from _codes(chunk, codes, times)
    yield from _bounds(chunk, codes)
    yield from _zones(chunk, "key", codes, chunk.leaves.zones[0], chunk.leaves.zones[1])
    yield from _zones(chunk, "time", times, chunk.leaves.zones[2], chunk.leaves.zones[3])
    yield from _coordinates(chunk)
    yield from _order(chunk, times)
    yield from _masks(chunk, times)
    yield from _region(chunk, codes, times)
    yield from _partitions(chunk, times)
    yield from _generations(chunk)


def _starts_are_right(chunk: StoredChunk) -> bool:
    starts = chunk.leaves.starts.astype(np.int64)
    return bool(starts[0] == 0 and starts[-1] == chunk.header.rows and (np.diff(starts) > 0).all())


def _codes(chunk: StoredChunk, codes: Codes, times: Codes) -> Iterator[Finding]:
    """Codes that are stored beside the columns they stand for."""
    spec = chunk.spec
    needed = {*spec.key.columns, spec.time.column}
    if needed & chunk.damaged:
        return
    rows = pa.RecordBatch.from_arrays(chunk.batch.columns[: len(spec.stored)], schema=spec.stored)
    empty = [name for name in sorted(needed) if rows.column(name).null_count]
    if empty:
        yield Finding("codes", f"column {empty[0]!r} has nulls, which a key or time cannot be")
        return
    if spec.direct_key < 0:
        wrong = np.flatnonzero(key_coder(spec).with_prefix(chunk.record.prefix).encode(rows) != codes)
        if len(wrong):
            yield Finding("codes", f"the codes of {len(wrong):,} keys are not those of their values; the first is row {wrong[0]}")
    if spec.direct_time < 0:
        wrong = np.flatnonzero(integer_codes(rows.column(spec.time.column)) != times)
        if len(wrong):
            yield Finding("codes", f"the codes of {len(wrong):,} times are not those of their values; the first is row {wrong[0]}")


def _bounds(chunk: StoredChunk, codes: Codes) -> Iterator[Finding]:
    """A leaf has the keys from its bound up to the next greater one; leaves with equal bounds are one leaf cut by time."""
    bounds = chunk.leaves.bounds
    if bounds[0] != INT64_MIN or (bounds[1:] < bounds[:-1]).any():
        yield Finding("leaves", "the lower bounds of its leaves do not rise from the least code")
        return
    least, greatest = _least_greatest(chunk, codes)
    after = np.searchsorted(bounds, bounds, side="right")
    beyond = (after < len(bounds)) & (greatest >= bounds[np.minimum(after, len(bounds) - 1)])
    bad = (least < bounds) | beyond
    if bad.any():
        yield Finding("leaves", f"keys lie outside the bounds of {_which(bad)}")


def _zones(chunk: StoredChunk, name: str, codes: Codes, least: Array, greatest: Array) -> Iterator[Finding]:
    found = _least_greatest(chunk, codes)
    bad = (found[0] != least) | (found[1] != greatest)
    if bad.any():
        n = int(np.flatnonzero(bad)[0])
        says, has = f"{least[n]} .. {greatest[n]}", f"{found[0][n]} .. {found[1][n]}"
        yield Finding("zone map", f"the zone map of {name} is wrong for {_which(bad)}: it says {says}, but the rows of leaf {n} have {has}")


def _coordinates(chunk: StoredChunk) -> Iterator[Finding]:
    for z, name in enumerate(zoned_columns(chunk.spec)):
        if name in chunk.damaged or name not in chunk.header.zones:
            continue
        type_ = chunk.spec.schema.field(name).type
        coder = (FloatCoder if pa.types.is_floating(type_) else IntegerCoder)(name, type_)
        yield from _zones(chunk, repr(name), coder.encode(chunk.batch), *chunk.leaves.more_zones[z])


def _order(chunk: StoredChunk, times: Codes) -> Iterator[Finding]:
    falls = np.flatnonzero(times[1:] < times[:-1]) + 1
    leaves = chunk.leaves
    inside = falls[~np.isin(falls, leaves.starts)]
    unordered = np.zeros(leaves.count, np.bool_)
    unordered[np.searchsorted(leaves.starts, inside, side="right") - 1] = True
    bad = unordered & (leaves.ordered != 0)
    if bad.any():
        yield Finding("order", f"rows are not in time order, though the index says so, in {_which(bad)}")


def _masks(chunk: StoredChunk, times: Codes) -> Iterator[Finding]:
    start, width = chunk.header.mask
    if width <= 0 or width & (width - 1):
        yield Finding("time mask", f"the width of its time mini-ranges is {width}, which is no power of two")
        return
    # unsigned: the span of int64 times may exceed int64
    ranges = (times.view(np.uint64) - np.uint64(start & 0xFFFFFFFFFFFFFFFF)) >> np.uint64(width.bit_length() - 1)
    if int(ranges.max()) > 63:
        yield Finding("time mask", f"its times do not fit into 64 mini-ranges of {width} from {start} on")
        return
    found = np.bitwise_or.reduceat(np.uint64(1) << ranges, chunk.leaves.starts[:-1])
    bad = found != chunk.leaves.masks
    if bad.any():
        yield Finding("time mask", f"the time mask is wrong for {_which(bad)}")


def _region(chunk: StoredChunk, codes: Codes, times: Codes) -> Iterator[Finding]:
    record, header = chunk.record, chunk.header
    for name, values, in_file, in_catalog in (
        ("key", codes, header.key, (record.key_lo, record.key_hi)),
        ("time", times, header.time, (record.time_lo, record.time_hi)),
    ):
        found = (int(values.min()), int(values.max()))
        for where, said in (("header", in_file), ("catalog", in_catalog)):
            if said != found:
                has, says = f"{found[0]} .. {found[1]}", f"{said[0]} .. {said[1]}"
                yield Finding("region", f"its rows have {name}s {has}, but the {where} says {says}")


def _partitions(chunk: StoredChunk, times: Codes) -> Iterator[Finding]:
    found, known = rows_by_start(chunk.spec.partitions, times), dict(chunk.record.partitions)
    wrong = [p for p in {*found, *known} if found.get(p) != known.get(p)]
    if wrong:
        p = min(wrong)
        said = f"it has {found.get(p, 0):,} rows in the partition from {chunk.spec.time.show(p)} on, the catalog says {known.get(p, 0):,}"
        yield Finding("partitions", said if len(wrong) == 1 else f"{said}; {len(wrong) - 1:,} more partitions are wrong")


def _generations(chunk: StoredChunk) -> Iterator[Finding]:
    """The generation of each row: of one of the chunk's batches, and from its first to its last."""
    if GENERATIONS not in chunk.batch.schema.names or GENERATIONS in chunk.damaged:
        return
    column = chunk.batch.column(GENERATIONS)
    first, last = chunk.header.generations
    found = np.unique(fixed(column, column.type.to_pandas_dtype())).astype(np.int64) + first
    if (found[0], found[-1]) != (first, last):
        yield Finding("generations", f"its rows came with generations {found[0]} .. {found[-1]}, but the header says {first} .. {last}")
    within = np.zeros(len(found), np.bool_)
    for lo, hi in chunk.header.batches:
        within |= (found >= lo) & (found <= hi)
    if not within.all():
        stray = int(found[~within][0])
        yield Finding("generations", f"rows of it came with generation {stray}, which is not one of its batches {chunk.header.batches}")


def _least_greatest(chunk: StoredChunk, codes: Codes) -> tuple[Array, Array]:
    starts = chunk.leaves.starts[:-1]
    return np.minimum.reduceat(codes, starts), np.maximum.reduceat(codes, starts)


def _which(bad: Array) -> str:
    """'leaf 3', 'leaf 3 and 11 more'."""
    numbers = np.flatnonzero(bad)
    return f"leaf {numbers[0]}" + (f" and {len(numbers) - 1:,} more" if len(numbers) > 1 else "")
