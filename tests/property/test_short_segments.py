"""Totals of rows in many short segments are those of the same rows one by one."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.conftest import examples
from tests.property.test_condition_programs import piece_of
from tidewheel.model.conditions import Comparison
from tidewheel.model.times import INT64_MAX, INT64_MIN
from tidewheel.read.filters.program import program_of
from tidewheel.read.totals import kernels as k
from tidewheel.read.totals.filtered.kernels import fold_where
from tidewheel.read.totals.folds import KINDS, folds_of

TYPES = {"float": pa.float32(), "double": pa.float64()} | {kind: getattr(pa, kind)() for kind in KINDS[:-2]}


def _batch(rng: random.Random, rows: int) -> pa.RecordBatch:
    def value(kind: str) -> Any:
        number = rng.randrange(0 if kind.startswith("u") else -100, 100)
        return float("nan") if kind in ("float", "double") and rng.random() < 0.05 else number

    columns = {}
    for kind, type_ in TYPES.items():
        some_null = rng.random() < 0.4
        columns[kind] = pa.array([None if some_null and rng.random() < 0.2 else value(kind) for _ in range(rows)], type_)
    return pa.record_batch(columns)


def _segments(rng: random.Random, pieces: int, rows: int) -> np.ndarray:
    """Some rows of some pieces, in segments of which most are short."""
    found = []
    for piece in range(pieces):
        cuts = sorted({rng.randrange(rows + 1) for _ in range(rng.choice([2, 30, rows]))})
        found += [(piece, a, b - a, 0) for a, b in pairwise(cuts) if rng.random() < 0.7]
    return np.array(found, np.int64).reshape(-1, 4)


def _totals(values: list[Any], real: bool) -> tuple[Any, ...]:
    known = [value for value in values if value is not None and value == value]
    nans = sum(value is not None and value != value for value in values)
    return len(known) + nans, sum(known) if not nans else math.nan, min(known, default=None), max(known, default=None), nans if real else 0


@pytest.mark.parametrize("seed", range(examples(12)))
def test_totals_of_short_segments(seed: int) -> None:
    rng = random.Random(seed)
    rows = rng.choice([3, 200, 2500])
    batches = [_batch(rng, rows) for _ in range(2)]
    orders = [np.array(rng.sample(range(rows), rows), np.uint32) if rng.random() < 0.3 else None for _ in batches]
    pieces = np.stack([piece_of(batch, order) for batch, order in zip(batches, orders, strict=True)])
    columns = folds_of({kind: {"sum", "min", "max"} for kind in TYPES}, batches[0].schema)
    program = program_of(Comparison("int32", ">", pa.scalar(0, pa.int32())), batches[0].schema)
    assert columns is not None and program is not None
    segments = _segments(rng, len(batches), rows)
    lists = [batch.to_pylist() for batch in batches]
    places = [(q, i) for q, a, n, _ in segments.tolist() for i in range(a, a + n)]
    every = [lists[q][i if (order := orders[q]) is None else int(order[i])] for q, i in places]
    for filtered in (False, True):
        found = np.array([(0, 0, 0, INT64_MAX, INT64_MIN, 0)] * len(TYPES), np.int64)
        floats = np.array([(0.0, math.inf, -math.inf)] * len(TYPES))
        kept = [row for row in every if not filtered or row["int32"] is not None and row["int32"] > 0]
        if filtered:
            assert fold_where(pieces, segments, program.steps, False, columns, found, floats) == len(kept)
        else:
            k.fold(pieces, segments, columns, found, floats)
        for n, (kind, type_) in enumerate(TYPES.items()):
            real = pa.types.is_floating(type_)
            count, total, least, greatest, nans = _totals([row[kind] for row in kept], real)
            assert found[n, k.COUNT] == count and found[n, k.NANS] == nans, kind
            base = 1 << 63 if kind == "uint64" else 0
            if real:
                assert floats[n, 0] == pytest.approx(total, nan_ok=True), kind
                assert least is None or (floats[n, 1], floats[n, 2]) == (least, greatest), kind
            elif count:
                assert (int(found[n, k.HIGH]) << 32) + int(found[n, k.LOW]) + count * base == total, kind
                assert (int(found[n, k.LEAST]) + base, int(found[n, k.GREATEST]) + base) == (least, greatest), kind
