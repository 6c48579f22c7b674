"""Tidy: what a commit makes of a version beside what it brings: chunks of which nothing is seen leave, masks that hide nothing go.

Pure: a version and what is to come in, a `Change` out. Why nothing is lost, and nothing comes back:

- A chunk leaves when masks hide it from end to end. Whoever reads an earlier version keeps that version's chunks and masks. (Chunks whose
  rows come again in others leave by `Committer.load`.)
- A mask goes when all that it hides of the pieces that stay is hidden by others, too. Rows that are only in the log are in a tree, and a
  tree's runs are pieces: a mask is never dropped while recovery could bring back a row that it hides.
- What left cannot be read any more as it was before it was hidden. So the horizon rises to the generation that hid it: of two generations
  from there on, both still see what they saw.
- The rows of a chunk that left may still be in the log. Its record stays in the catalog, where it says that they are covered, until the log
  is trimmed past them (`Commit.forget`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from tidewheel.index.hidden import Hidden, Numbers
from tidewheel.index.tree import TreeView
from tidewheel.index.version import Change, ChunkLike, Version
from tidewheel.model.pieces import GENERATION_HI, TMAX, TMIN
from tidewheel.model.records import MaskRecord
from tidewheel.model.times import INT64_MAX, INT64_MIN

_REGION = [GENERATION_HI, TMIN, TMAX]

EVERYWHERE = (INT64_MIN, INT64_MAX)


def change_of(
    version: Version,
    add: Sequence[ChunkLike] = (),
    masks: Sequence[MaskRecord] = (),
    written: Collection[TreeView] = (),
    window: tuple[int, int] | None = None,
) -> Change:
    """The change that a commit of these chunks and masks makes. `written` are the trees that the chunks are made of.

    Only the times where something changes are looked at: those of the new masks, and of new chunks that masks hide. `window` adds others.
    """
    everywhere = window == EVERYWHERE
    hidden = version.hidden.plus(masks)
    plain = Change(tuple(add), masks=tuple(masks), hidden=hidden if masks else None, everywhere=everywhere)
    new = np.array([chunk.row[_REGION] for chunk in add], np.int64).reshape(-1, 3)
    looked_at = [(mask.time_lo, mask.time_hi) for mask in masks] + ([window] if window else [])
    looked_at += [(int(lo), int(hi)) for generation, lo, hi in new.tolist() if generation <= hidden.top]
    if not hidden or not looked_at:
        return plain
    lo, hi = min(first for first, _ in looked_at), max(last for _, last in looked_at)

    # 1. chunks that are hidden from end to end
    chunks = np.concatenate([version.chunks.matrix[: version.chunks.count][:, _REGION], new])
    met = np.flatnonzero((chunks[:, 0] <= hidden.top) & (chunks[:, 1] <= hi) & (chunks[:, 2] >= lo))
    gone = met[hidden.covers(chunks[met, 0], chunks[met, 1], chunks[met, 2])]
    horizon = 0
    for _, first, last in chunks[gone].tolist():
        horizon = max(horizon, hidden.most(first, last) + 1)
        lo, hi = min(lo, first), max(hi, last)

    # 2. masks that nothing needs: of what is left in chunks, and of what is in memory
    stays = np.ones(len(chunks), np.bool_)
    stays[gone] = False
    made = {id(view) for view in written}
    runs = [view.matrix[: view.count][:, _REGION] for view in version.trees if id(view) not in made]
    left = np.concatenate([chunks[stays], *runs])
    idle = hidden.idle(left[:, 0], left[:, 1], left[:, 2], (lo, hi))
    horizon = max(horizon, _subsumed(hidden, idle, left))
    if not len(gone) and not idle:
        return plain
    kept, count = version.chunks.holders, version.chunks.count
    before, dropped = len(version.masks), set(idle)
    return Change(
        add=tuple(add),
        remove=frozenset((kept[i] if i < count else add[i - count]).record.id for i in gone.tolist()),
        masks=tuple(mask for i, mask in enumerate(masks, before) if i not in dropped),
        drop_masks=tuple(version.masks[i] for i in idle if i < before),
        horizon=horizon,
        hidden=hidden.minus(idle),
        everywhere=everywhere,
    )  # fmt: skip


def _subsumed(hidden: Hidden, idle: list[int], pieces: Numbers) -> int:
    """The horizon that masks leave behind which others take the place of: 0 if they hide nothing at all."""
    horizon = 0
    for i in idle:
        mask = hidden.records[i]
        met = (pieces[:, 0] <= mask.generation) & (pieces[:, 1] <= mask.time_hi) & (pieces[:, 2] >= mask.time_lo)
        if met.any():
            horizon = max(horizon, hidden.most(mask.time_lo, mask.time_hi) + 1)
    return horizon
