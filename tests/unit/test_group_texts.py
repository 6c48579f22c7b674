"""Texts have the same number if they are the same, and no other: those of blocks of every shape."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidewheel.read.groups import group_layout as layout
from tidewheel.read.groups.texts.asking.kernels import ASKED
from tidewheel.read.groups.texts.kernels import intern
from tidewheel.read.groups.texts_found import Texts
from tidewheel.read.limits import NEVER, Limits, Watch

Make = Callable[[random.Random, int], list[str]]


class Wanted:
    cancelled = False


def _any(words: list[str]) -> Make:
    return lambda rng, n: [rng.choice(words) for _ in range(n)]


def _runs(words: list[str], most: int) -> Make:
    def make(rng: random.Random, n: int) -> list[str]:
        found: list[str] = []
        while len(found) < n:
            found += [rng.choice(words)] * rng.randrange(1, most)
        return found[:n]

    return make


def _mixed(*makes: Make) -> Make:
    """Parts of each, one behind the other."""
    return lambda rng, n: [text for _ in range(n) for text in rng.choice(makes)(rng, rng.randrange(1, 80))][:n]


NEAR = ["x" * 8 + middle + "y" * 8 for middle in ("", "a", "b", "ab", "c" * 8, "c" * 7 + "d", "c" * 30, "c" * 15 + "d" + "c" * 14)]
"""The same first and last eight bytes."""
SHORT = ["", "\0", "\0\0", "a", "a\0", "\0a", "ab", "abcdefg", "abcdefgh", "é"]
FOUR = ["PRCP", "TMAX", "TMIN", "a\0\0\0", "\0\0\0\0"]
ELEVEN = ["station0001", "station0002", "station1001", "s\0ation0001"]
SHAPES: dict[str, Make] = {
    "empty": _any([""]),
    "short": _any(SHORT),
    "of one length": _any(FOUR),
    "many of one length": _any([f"{i:04}" for i in range(3000)]),
    "many": _any([f"number {i}" * (i % 5) for i in range(3000)]),
    "one": _any(["of more than eight bytes"]),
    "runs": _runs(ELEVEN, 300),
    "short runs": _runs([*ELEVEN, *NEAR], 12),
    "near": _any(NEAR),
    "runs of what is near": _runs(NEAR, 150),
    "all": _mixed(_any(SHORT), _any(FOUR), _runs(FOUR, 90), _runs(ELEVEN, 90), _runs(NEAR, 90), _any([*SHORT, *NEAR])),
}  # fmt: skip


@pytest.mark.parametrize("nulls", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("straight", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_text_has_one_number(shape: str, straight: bool, nulls: float) -> None:
    rng = random.Random(f"{shape} {straight} {nulls}")
    state = np.zeros(layout.STATE, np.int64)
    texts = Texts(state, Watch(Limits(NEVER, NEVER, NEVER), Wanted()))
    numbers: dict[str, int] = {}
    for n in (1, 7, 63, 64, 65, 500, 1024, layout.ROOM, layout.ROOM):
        before = rng.randrange(3)
        values = SHAPES[shape](rng, before + n)
        column = pa.array(values, pa.string())
        places = np.array([rng.randrange(len(values)) if n > 100 else i + before for i in range(n)], np.uint32)
        missing = np.array([rng.random() < nulls for _ in range(n)], np.uint8)
        found = _numbers(texts, column, before if straight else -1, places, n, missing)
        asked = values[before:] if straight else [values[place] for place in places]
        for text, number, none in zip(asked, found, missing, strict=True):
            if none:
                assert number == 0
            else:
                assert numbers.setdefault(text, number) == number
    assert len(set(numbers.values())) == len(numbers) == state[layout.TEXTS]
    array = texts.array(np.array(list(numbers.values()), np.int64), pa.string(), None)
    assert array.to_pylist() == list(numbers)
    other = Texts(np.zeros(layout.STATE, np.int64), Watch(Limits(NEVER, NEVER, NEVER), Wanted()))
    again = other.numbers_of(texts)
    assert other.array(again[list(numbers.values())], pa.string(), None).to_pylist() == list(numbers)


def _numbers(texts: Texts, column: pa.Array, first: int, places: Any, n: int, nulls: Any) -> list[int]:
    offsets, data = column.buffers()[1:]
    row = np.array([0, 0, offsets.address, 0 if data is None else data.address], np.int64)
    texts._state[layout.MORE_BYTES] = 0 if data is None else n * data.size
    texts.grow(n)
    out, rows, asked = np.full(n, -1, np.int64), np.empty(n, np.int32), np.empty((ASKED, n), np.int64)
    while intern(
        row, 0, int(first >= 0), first, places, n, nulls, int(nulls.any()), texts._state, texts.arena, texts.known, texts.table, rows,
        asked, out,
    ):  # fmt: skip
        texts.hash()
    return [int(number) for number in out]


def test_groups_without_any_text_are_null() -> None:
    """A null key has the number 0, which is no text's where there are only nulls: what lies in its place is anything."""
    watch = Watch(Limits(NEVER, NEVER, NEVER), Wanted())
    texts = Texts(np.zeros(layout.STATE, np.int64), watch)
    texts.grow(100)
    texts.known[:] = 1 << 50
    array = texts.array(np.zeros(3, np.int64), pa.string(), pa.py_buffer(b"\0"))
    assert array.to_pylist() == [None, None, None]
