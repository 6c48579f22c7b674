"""Live views: a picture in place on a terminal, lines from time to time elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tidewheel.model.figures import counted
from tidewheel.terminal import Board, facts_grid, facts_line, point


def lines_of(board: Board, out: io.StringIO, moments: list[float]) -> list[str]:
    with board:
        for at in moments:
            board.show(lambda: "a picture", lambda at=at: f"line {at:g}", at)
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("every", "at_once", "shown"), [(5, False, [5, 11]), (5, True, [0, 5, 11]), (0, False, [0, 4, 5, 9, 11]), (20, False, [])]
)
def test_lines_come_at_their_times(every: float, at_once: bool, shown: list[float]) -> None:
    out = io.StringIO()
    board = Board(Console(file=out), every, at_once=at_once)
    assert lines_of(board, out, [0, 4, 5, 9, 11]) == [f"line {at:g}" for at in shown]


def test_a_line_that_says_nothing_is_not_printed() -> None:
    out = io.StringIO()
    with Board(Console(file=out), 0) as board:
        board.show(lambda: "a picture", str)
        board.show(lambda: "a picture", lambda: facts_grid([("rows", "3")]))
    assert out.getvalue().split() == ["rows", "3"]


def test_on_a_terminal_the_picture_stays_at_its_place() -> None:
    out = io.StringIO()
    with Board(Console(file=out, force_terminal=True, width=40)) as board:
        board.show(lambda: "first", lambda: "a line")
        board.show(lambda: "second", lambda: "a line")
    assert "first" in out.getvalue() and "a line" not in out.getvalue()
    assert "\x1b[2K" in out.getvalue().partition("first")[2].partition("second")[0], "the first is wiped away before the second is drawn"


def test_facts_and_sentences() -> None:
    out = io.StringIO()
    point(Console(file=out, width=20), "a sentence of more than twenty characters")
    assert out.getvalue() == "• a sentence of more than twenty characters\n"
    assert facts_line([("rows", "1,000"), ("late", "3")]) == "rows 1,000  late 3"
    assert [counted(1, "batch", "batches"), counted(2000, "batch", "batches"), counted(0, "row")] == ["1 batch", "2,000 batches", "0 rows"]
