"""The sweep of masks hides what each mask hides, however they lie, however they came; and says which of them are not needed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest

from tests.conftest import examples
from tidewheel.index.hidden import NOTHING, Hidden, Matrix
from tidewheel.model.pieces import COLUMNS, GENERATION_HI, INDEX, T0, T1, TMAX, TMIN
from tidewheel.model.records import MaskRecord
from tidewheel.model.times import INT64_MAX, INT64_MIN

TIMES = range(0, 40)


def some_masks(rng: random.Random) -> list[MaskRecord]:
    masks = []
    generation = 0
    for _ in range(rng.randrange(8)):
        generation += rng.randrange(4)
        lo, hi = sorted(rng.choices(TIMES, k=2))
        lo, hi = (INT64_MIN if rng.random() < 0.1 else lo), (INT64_MAX if rng.random() < 0.1 else hi)
        masks.append(MaskRecord(lo, hi, generation, "replace"))
    return masks


def some_pieces(rng: random.Random, t0: int, t1: int) -> Matrix:
    rows = []
    while len(rows) < 6:
        lo, hi = sorted(rng.choices(TIMES, k=2))
        if lo <= t1 and hi >= t0:
            row = np.zeros(COLUMNS, np.int64)
            row[[GENERATION_HI, TMIN, TMAX, T0, T1, INDEX]] = rng.randrange(1, 16), lo, hi, t0, t1, len(rows)
            rows.append(row)
    return np.array(rows)


def hides(masks: list[MaskRecord] | tuple[MaskRecord, ...], generation: int, time: int) -> bool:
    return any(m.time_lo <= time <= m.time_hi and generation <= m.generation for m in masks)


def test_a_sweep_hides_what_the_masks_hide() -> None:
    for seed in range(examples(300)):
        check_sweep(seed)


def check_sweep(seed: int) -> None:
    rng = random.Random(seed)
    masks = some_masks(rng)
    hidden = Hidden()
    for mask in masks:
        if rng.random() < 0.5:
            _ = hidden.steps  # from here on, masks are added to what was swept
        hidden = hidden.plus([mask])
    edges, tops, owners = hidden.steps
    assert (edges[1:] > edges[:-1]).all() and edges[0] == INT64_MIN
    for mine, swept in zip(hidden.steps[:2], Hidden(masks).steps[:2], strict=True):
        assert mine.tolist() == swept.tolist()
    for time in (-5, *TIMES, 99):
        step = int(np.searchsorted(edges, time, "right")) - 1
        assert tops[step] == max((m.generation for m in masks if m.time_lo <= time <= m.time_hi), default=NOTHING)
        assert owners[step] < 0 or masks[owners[step]].generation == tops[step]

    t0, t1 = rng.choice([(INT64_MIN, INT64_MAX), (5, 20), (17, 17)])
    pieces = some_pieces(rng, t0, t1)
    cut = np.concatenate(list(hidden.cut(pieces)))
    assert cut[:, INDEX].tolist() == sorted(cut[:, INDEX])
    for number, piece in enumerate(pieces):
        spans = [(int(row[T0]), int(row[T1])) for row in cut if row[INDEX] == number]
        assert all(a[1] < b[0] for a, b in pairwise(spans))
        for time in range(max(t0, piece[TMIN]), min(t1, piece[TMAX]) + 1):
            seen = any(lo <= time <= hi for lo, hi in spans)
            assert seen != hides(masks, int(piece[GENERATION_HI]), time)


def test_masks_that_go_are_not_missed() -> None:
    for seed in range(examples(300)):
        check_idle(seed)


def check_idle(seed: int) -> None:
    rng = random.Random(seed)
    hidden = Hidden(some_masks(rng))
    pieces = some_pieces(rng, INT64_MIN, INT64_MAX)[: rng.randrange(4)]
    generations, first, last = pieces[:, GENERATION_HI], pieces[:, TMIN], pieces[:, TMAX]
    covered = hidden.covers(generations, first, last)
    window = (INT64_MIN, INT64_MAX) if rng.random() < 0.5 else (10, 15)
    idle = hidden.idle(generations, first, last, window)
    left = hidden.minus(idle)
    assert left.records == tuple(m for i, m in enumerate(hidden.records) if i not in idle)
    for piece, whole in zip(pieces, covered, strict=True):
        times = range(piece[TMIN], piece[TMAX] + 1)
        generation = int(piece[GENERATION_HI])
        assert whole == all(hides(hidden.records, generation, time) for time in times)
        for time in times:
            assert hides(hidden.records, generation, time) == hides(left.records, generation, time)
            step = int(np.searchsorted(left.steps[0], time, "right")) - 1
            assert (left.steps[1][step] >= generation) == hides(left.records, generation, time)
    if window[0] == INT64_MIN:
        for i, mask in enumerate(left.records):  # each of those that stay is needed
            others = left.records[:i] + left.records[i + 1 :]
            alike = [m for m in others if m.generation == mask.generation]  # either of two may be the one that stays
            needed = any(
                hides((mask,), int(p[GENERATION_HI]), t) and not hides(others, int(p[GENERATION_HI]), t)
                for p in pieces
                for t in range(p[TMIN], p[TMAX] + 1)
            )
            greatest = any(
                hides((mask,), int(p[GENERATION_HI]), t)
                and not any(m.generation > mask.generation and m.time_lo <= t <= m.time_hi for m in others)
                for p in pieces
                for t in range(p[TMIN], p[TMAX] + 1)
            )
            assert needed or greatest or alike


def test_a_mask_that_comes_or_goes_costs_no_step_for_each_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = [MaskRecord(10 * n, 10 * n + 3, n, "replace") for n in range(100)]
    all_, new = Hidden(masks), MaskRecord(500, 500, 100, "replace")
    want = Hidden([*masks[:7], *masks[8:], new]).steps
    assert len(all_.steps[0]) == 201
    init = Hidden.__init__

    def none_at_all(self: Hidden, records: Iterable[MaskRecord] = ()) -> None:
        assert not tuple(records), "all masks are looked at again"
        init(self)

    monkeypatch.setattr(Hidden, "__init__", none_at_all)
    left = all_.plus([new]).minus([7])
    assert left.records == (*masks[:7], *masks[8:], new) and left.top == 100
    assert all((mine == theirs).all() for mine, theirs in zip(left.steps, want, strict=True))
    assert left.first.tolist() == [mask.time_lo for mask in left.records] and left.last.tolist() == [m.time_hi for m in left.records]
    assert not left.minus(range(100)) and left.minus(range(100)).top == NOTHING
