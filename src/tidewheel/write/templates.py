"""Templates and coders of texts that rows are routed by: the first one, a better one, one that fits a chunk. Nothing is changed.

Codes of texts are divided by what keys there are. A coder is learned from the first rows, learned anew when keys lie outside of what its
keys had in common or when too many keys share a code, and looked at once more for each chunk: there, all keys are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidewheel.index.layout import Template, first_division
from tidewheel.index.run import Batch, Run
from tidewheel.index.table_coders import Coders
from tidewheel.index.template import PAYS, leaves_for
from tidewheel.index.tree import TreeView, all_codes, counts_per_leaf
from tidewheel.model.arrays import take
from tidewheel.model.codes import KeyCoder
from tidewheel.model.pieces import KMAX, KMIN, Shape
from tidewheel.model.text_codes import BytesCoder
from tidewheel.model.times import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from tidewheel.write.arrange import Arranged

ENOUGH = 16
"""Rows per leaf from which on skew means something."""

SAMPLE = 1 << 16
"""Keys that are looked at to learn a coder for what is still to come."""

SMALL_SAMPLE = 1 << 15
"""Keys of a tree that is divided anew: fewer, because the outcome is looked at again."""

SAMPLE_BYTES = 1 << 20
"""And bytes of them, once there are as many keys as in LEAST_SAMPLE."""
LEAST_SAMPLE = 1 << 10


def leaves_of(sample: Batch, chunk_bytes: int, leaf_rows: int) -> int:
    """The number of leaves of a chunk of rows like these."""
    row_bytes = max(1, sample.bytes // max(1, sample.data.num_rows))
    return leaves_for(chunk_bytes // row_bytes, leaf_rows)


def first_template(sample: Batch, coders: Coders, leaves: int, shape: Shape) -> Template:
    """From the first batch that arrives."""
    coder = coders.first
    if coder.learns:
        column = sample.data.column(coder.columns[0])
        some = _some(column, max(LEAST_SAMPLE, min(SAMPLE, SAMPLE_BYTES * len(column) // max(1, column.nbytes))))
        coder = coders.of(coder.learned([some], _share(len(some), leaves)))
    return first_division(sample.coded_by(coder, shape).codes, leaves, coder)


def better_template(view: TreeView, template: Template, coders: Coders, leaf_rows: int) -> Template | None:
    """A new division of the keys if that pays, else None. Reads an immutable view."""
    counts = counts_per_leaf(view, template)
    if counts.sum() < ENOUGH * template.leaves:
        return None
    uneven = template.skew(counts) > PAYS
    if not uneven and not (isinstance(template.coder, BytesCoder) and _are_blurred(view, template, counts)):
        return None
    coder = template.coder
    if coder.learns:
        coder = _learned_from_some(view, coders, leaf_rows)
        if coder is template.coder and not uneven:
            return None
    return template.divided(all_codes(view, coder), coder)


def redivided(sources: Sequence[Batch], template: Template) -> Template:
    """The template, or a new division where that pays: as `better_template`, for rows that nobody routed yet, by some of their codes.

    Coders that learn from the keys are not for this one.
    """
    rows = sum(source.data.num_rows for source in sources)
    step = max(1, rows // (ENOUGH * template.leaves))
    codes = np.concatenate([source.codes[::step] for source in sources])
    counts = np.bincount(np.searchsorted(template.bounds, codes, side="right") - 1, minlength=template.leaves)
    return template.divided(codes, template.coder) if template.skew(counts) > PAYS else template


def is_outside(run: Run) -> bool:
    """Some keys of a run lie outside of what its coder takes all keys to begin with: their codes are all the same."""
    coder = run.template.coder
    return isinstance(coder, BytesCoder) and _meets_ends(coder, int(run.row[KMIN]), int(run.row[KMAX]))


def wider_template(view: TreeView | None, keys: Sequence[pa.Array], template: Template, coders: Coders) -> Template:
    """A template for a tree's keys and for these, which lie outside of what the template's coder takes all keys to begin with.

    The bytes that all keys begin with get fewer with every call, so there is an end to it.
    """
    coder = template.coder
    assert isinstance(coder, BytesCoder)
    runs = view.holders[: view.count][-64:] if view is not None else []
    known = [_some(run.keys, SAMPLE // 2 // len(runs)) for run in runs]
    sample = [*known, *(_some(part, SAMPLE // 2) for part in keys), pa.array([coder.shared], pa.large_binary())]
    wider = coders.of(coder.learned(sample, _share(sum(map(len, sample)), template.leaves)))
    codes = [wider.encode(pa.RecordBatch.from_arrays([part], [coder.columns[0]])) for part in sample[:-1]]
    return template.divided(np.concatenate(codes), wider)


def fits(arranged: Arranged, coder: KeyCoder) -> bool:
    """Whether a coder is right for a chunk: no key lies outside, and where many rows have the same code they have the same key."""
    if not isinstance(coder, BytesCoder):
        return True
    leaves = arranged.leaves
    if _meets_ends(coder, int(leaves.zones[0].min()), int(leaves.zones[1].max())):
        return False
    again = leaves.bounds[1:] == leaves.bounds[:-1]
    firsts = np.flatnonzero(again & ~np.concatenate([[False], again[:-1]]))
    column = arranged.batch.column(coder.columns[0])
    for first in firsts.tolist():
        last = first + 1
        while last + 1 < leaves.count and leaves.bounds[last + 1] == leaves.bounds[first]:
            last += 1
        a, b = int(leaves.starts[first]), int(leaves.starts[last + 1])
        if not coder.tells(int(leaves.zones[0, first]), column.slice(a, b - a)):
            return False
    return True


def fitting_template(view: TreeView, template: Template, coders: Coders, leaf_rows: int) -> Template:
    """A template with a coder that is right for a chunk of these rows."""
    coder = _learned(view, coders, leaf_rows)
    return template if coder is template.coder else template.divided(all_codes(view, coder), coder)


def surely_unfit(view: TreeView, template: Template) -> bool:
    """Known before a chunk is arranged: some key lies outside."""
    return any(run.template.coder is template.coder and is_outside(run) for run in view.holders[: view.count])


def _learned(view: TreeView, coders: Coders, leaf_rows: int) -> KeyCoder:
    keys = [run.keys for run in view.holders[: view.count]]
    return coders.of(coders.first.learned(keys, leaf_rows))


def _learned_from_some(view: TreeView, coders: Coders, leaf_rows: int) -> KeyCoder:
    """A coder learned from a sample: `fits` finds out where chance was against it. So that this is rare, half a leaf counts as one."""
    rows = view.rows
    if rows <= 2 * SMALL_SAMPLE:
        return _learned(view, coders, leaf_rows)
    most = max(1, leaf_rows * SMALL_SAMPLE // rows // 2)
    return coders.of(coders.first.learned(sampled(view.holders[: view.count], SMALL_SAMPLE), most))


def _share(rows: int, leaves: int) -> int:
    """Keys of a sample that may share a code: two leaves of it, and never so few that chance makes them."""
    return max(16, 2 * rows // leaves)


def _meets_ends(coder: BytesCoder, least: int, greatest: int) -> bool:
    return (least == INT64_MIN or greatest == INT64_MAX) and coder.shared != b""


def _are_blurred(view: TreeView, template: Template, counts: np.ndarray) -> bool:
    """Whether a code that has a leaf for itself, and fills it, stands for different keys."""
    coder = template.coder
    assert isinstance(coder, BytesCoder)
    alone = np.diff(template.bounds, append=INT64_MAX) == 1
    full = np.flatnonzero(alone & (counts > 2 * max(1, counts.sum() // template.leaves)))
    largest = max(view.holders[: view.count], key=lambda run: run.rows)
    if not len(full) or largest.template is not template or largest.is_small:
        return False
    starts, order = largest.arrays[largest.rows :], largest.arrays[: largest.rows]
    column = largest.batch.column(coder.columns[0])
    for leaf in full[:: max(1, len(full) // 64)].tolist():
        rows = order[starts[leaf] : starts[leaf + 1]]
        if len(rows) and not coder.tells(int(template.bounds[leaf]), take(column, rows[:256])):
            return True
    return False


def _some(column: pa.Array, most: int) -> pa.Array:
    """At most so many values, spread evenly."""
    if len(column) <= most:
        return column
    return take(column, np.linspace(0, len(column) - 1, max(1, most)).astype(np.int64))


def sampled(runs: Sequence[Run], most: int) -> list[pa.Array]:
    """Keys of many runs, as many as their share."""
    step = max(1, sum(run.rows for run in runs) // most)
    return [_some(run.keys, max(1, run.rows // step)) for run in runs]
