"""Columns in the width of a terminal, whatever they want."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidewheel.read.fitting import LEAST, fit


@given(st.lists(st.integers(1, 80), min_size=1, max_size=40), st.integers(12, 250), st.sampled_from([(1, 3), (-2, 2)]))
def test_what_is_shown_fits_and_keeps_what_it_needs(wanted: list[int], width: int, frame: tuple[int, int]) -> None:
    edge, each = frame
    layout = fit(wanted, width, edge=edge, each=each)
    shown = [one for one in layout.shown if one is not None]
    assert [i for i, _ in shown] == sorted({i for i, _ in shown}) and len(shown) + layout.left_out == len(wanted)
    assert layout.is_whole == (None not in layout.shown)
    if len(shown) > 1:
        assert edge + sum((1 if one is None else one[1]) + each for one in layout.shown) <= width
        assert all(min(LEAST, wanted[i]) <= given <= wanted[i] for i, given in shown)
    if sum(wanted) + each * len(wanted) + edge <= width:
        assert layout.shown == tuple(enumerate(wanted))
    else:  # the room is used: nobody who wants more could have had it
        spare = width - edge - sum((1 if one is None else one[1]) + each for one in layout.shown)
        assert spare <= 0 or all(given == wanted[i] for i, given in shown)


def test_without_a_width_all_columns_are_as_wide_as_they_want() -> None:
    assert fit([300, 5], None, edge=1, each=3).shown == ((0, 300), (1, 5))
    assert fit([], 80, edge=1, each=3).shown == ()
