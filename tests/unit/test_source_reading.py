"""The intervals that a refresh reads: in few queries, and for keys in fewer still."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.engine.source_reading import coalesced, near

Times = list[tuple[int, int]]


@st.composite
def apart(draw: st.DrawFn) -> Times:
    """Closed intervals in rising order, with something between them."""
    found, at = [], draw(st.integers(-(2**40), 2**40))
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), min_size=1, max_size=30)):
        found.append((at + gap, at + gap + length - 1))
        at += gap + length
    return found


def times_in(intervals: Sequence[tuple[int, int]]) -> int:
    return sum(hi - lo + 1 for lo, hi in intervals)


def holds(wide: Times, narrow: Times) -> bool:
    return all(any(lo <= a and b <= hi for lo, hi in wide) for a, b in narrow)


@pytest.mark.parametrize(
    ("given_", "joined"),
    [
        ([], []),
        ([(0, 9)], [(0, 9)]),
        ([(0, 9), (20, 29)], [(0, 29)]),
        ([(0, 9), (31, 40)], [(0, 9), (31, 40)]),  # 21 between them, and 20 in them
        ([(0, 9), (12, 19), (1000, 1009)], [(0, 19), (1000, 1009)]),
        ([(0, 9), (1000, 1009), (1012, 1019)], [(0, 9), (1000, 1019)]),
    ],
)
def test_near(given_: Times, joined: Times) -> None:
    assert near(given_) == joined


@given(apart())
def test_joined_intervals_have_all_times_and_at_most_as_many_others(times: Times) -> None:
    joined = near(times)
    assert holds(joined, times) and times_in(joined) <= 2 * times_in(times)
    assert near(joined) == joined or times_in(joined) > times_in(times)


@given(apart(), st.integers(1, 40))
def test_coalesced(times: Times, most: int) -> None:
    found = coalesced(times, most)
    assert len(found) == min(most, len(times)) and holds(found, times)
