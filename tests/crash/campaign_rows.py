"""The rows of the stream campaign: numbered, so that a lost one, one that is there twice and one that was changed can all be told.

A row is known by (part, seq). `part` is the Kafka partition it is sent to, or FILES for rows that come in files; `seq` counts from 0 in
each. Everything else follows from the two, so what was produced is described by how many there are of each part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

FILES = 1000
DDL = "part int, seq long, ts timestamp, mix long, text string"
"""As Spark reads them."""

_START = 1_700_000_000_000_000
_BAD_EVERY = 97

Numbers = npt.NDArray[np.int64]


def bad(seq: int) -> bool:
    """A row without a time: the table refuses it, so it must be among the rejects."""
    return seq % _BAD_EVERY == 13


def row(part: int, seq: int) -> dict[str, object]:
    """As it is sent. One in fifty is late."""
    at = None if bad(seq) else _iso(int(_times(np.array([part]), np.array([seq]))[0]))
    return {"part": part, "seq": seq, "ts": at, "mix": int(_mix(np.array([part]), np.array([seq]))[0]), "text": "x" * (seq % 40)}


def wrong(rows: pa.Table, produced: Mapping[int, int]) -> str:
    """What is wrong with the table's rows, if anything, given so many rows of each part.

    They must be rows that were produced, each once and as it was; and of a Kafka partition all up to the last one that is there: batches
    become visible in their order, each as a whole.
    """
    part, seq = (np.asarray(rows[name]).astype(np.int64) for name in ("part", "seq"))
    if pc.any(pc.not_equal(pc.utf8_length(rows["text"]), pa.array(seq % 40, pa.int32()))).as_py():
        return "the text of some rows is not what was sent"
    if not np.array_equal(np.asarray(rows["mix"]), _mix(part, seq)):
        return "mix of some rows is not what was sent"
    if not np.array_equal(np.asarray(rows["ts"].cast(pa.int64())), _times(part, seq)):
        return "the time of some rows is not what was sent"
    for one in np.unique(part).tolist():
        mine = np.sort(seq[part == one])
        twice = mine[1:][mine[1:] == mine[:-1]]
        if len(twice):
            return f"part {one}: {len(twice)} rows are there twice, the first of them {twice[:5].tolist()}"
        if mine[-1] >= produced.get(one, 0):
            return f"part {one}: row {mine[-1]} was never produced"
        if one != FILES and len(missing := missing_of(mine, int(mine[-1]) + 1)):
            return f"part {one}: {len(missing)} rows are lost, although later ones are there, the first of them {missing[:5].tolist()}"
    return ""


def missing(rows: pa.Table, produced: Mapping[int, int]) -> dict[int, list[int]]:
    """Rows that were produced and are not there, by part."""
    part, seq = (np.asarray(rows[name]).astype(np.int64) for name in ("part", "seq"))
    found = {one: missing_of(seq[part == one], count).tolist() for one, count in produced.items()}
    return {one: lost for one, lost in found.items() if lost}


def missing_of(seq: Numbers, count: int) -> Numbers:
    """Numbers below `count` that are not there, but for those of bad rows."""
    expected = np.arange(count)
    return np.setdiff1d(expected[expected % _BAD_EVERY != 13], seq)


def wrong_rejects(rejects: pa.Table, produced: Mapping[int, int], complete: bool) -> str:
    """The same for the rejects. A row that follows a lost rejects may be visible a moment before, so only at the end all must be there."""
    found = sorted((r["part"], r["seq"]) for r in map(json.loads, rejects["row"].to_pylist()))
    expected = {(part, seq) for part, count in produced.items() for seq in range(13, count, _BAD_EVERY)}
    twice = [a for a, b in pairwise(found) if a == b]
    if twice:
        return f"{len(twice)} rejects are there twice, the first of them {twice[:5]}"
    if strange := set(found) - expected:
        return f"rejects that were never produced: {sorted(strange)[:5]}"
    if complete and (lost := expected - set(found)):
        return f"{len(lost)} rejects are lost, the first of them {sorted(lost)[:5]}"
    return ""


def _mix(part: Numbers, seq: Numbers) -> Numbers:
    with np.errstate(over="ignore"):
        mixed = seq.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + part.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    return (mixed >> np.uint64(1)).astype(np.int64)


def _times(part: Numbers, seq: Numbers) -> Numbers:
    late = np.where((seq + part) % 50 == 7, 86_400_000_000, 0)
    return _START + seq * 3_000 + part - late


def _iso(micros: int) -> str:
    return f"{np.datetime64(micros, 'us')}Z"
