"""The demo's numbers, pictures and sentences, without any of its processes."""

from __future__ import annotations

import io
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tidewheel.metrics import TableMetrics
from tidewheel.model.delivery import TableState
from tidewheel.programs.demo.numbers import DemoRequest, Moment, Numbers, Sent, lag_quantile
from tidewheel.programs.demo.summary import DemoFindings, next_steps, sentences, verdict
from tidewheel.programs.demo.view import DemoScreen, line, panel, share_bar, sparkline

SENT = Sent(reports=1000, late=7, broken=3, files=5, start=1)
WHOLE = DemoFindings(found=997, different=997, late=7, rejected=3, reasons=((3, "speed: 'fast' doesn't fit float"),))


def moment(seconds: float, rows: int, rejected: int = 0) -> Moment:
    state = TableState(rows, rows // 4, rows - rows // 4, 2, 1, 0, 10, 50 * rows, 9)
    return Moment(seconds, state, TableMetrics(batches=4, rejected=rejected), late=7)


def seen() -> Numbers:
    numbers = Numbers(sent=SENT, streamed=4.2)
    for second in range(5):
        numbers.heard({"ms": [1.0, 2.0, 3.0], "rows": 10, "lags": {"20": 90, "50": 10}})
        numbers.look(moment(second + 0.1, 250 * second))
    return numbers


def test_a_lag_is_the_end_of_its_step() -> None:
    assert lag_quantile({}, 0.5) == 0
    assert lag_quantile({20: 1}, 0.5) == pytest.approx(0.21)
    assert lag_quantile({20: 90, 50: 10}, 0.5) == pytest.approx(0.21)
    assert lag_quantile({20: 90, 50: 10}, 0.99) == pytest.approx(0.51)
    assert lag_quantile({50: 1, 20: 99}, 0.99) == pytest.approx(0.21)


def test_numbers_add_up() -> None:
    numbers = seen()
    assert numbers.latency() == (2.0, 3.0)
    assert numbers.lag() == pytest.approx((0.21, 0.51))
    assert numbers.lags == Counter({20: 450, 50: 50})
    assert (len(numbers.queries), numbers.rows_read) == (15, 50)
    assert numbers.rate == pytest.approx(250)
    assert numbers.rates == pytest.approx([250] * 4)
    assert numbers.query_medians == [2.0] * 4


def test_what_is_recent_forgets_what_was_slow_before() -> None:
    numbers = Numbers()
    for second in range(40):
        slow = second < 20
        numbers.heard({"ms": [100.0 if slow else 1.0], "rows": 0, "lags": {"500" if slow else "10": 5}})
        numbers.look(moment(second + 0.1, second))
    assert numbers.latency(recent=True) == (1.0, 1.0)
    assert numbers.lag(recent=True) == pytest.approx((0.11, 0.11))
    assert numbers.lag()[1] == pytest.approx(5.01)


def test_a_second_without_anything_to_see_is_a_gap() -> None:
    numbers = Numbers()
    numbers.look(moment(0.0, 0))
    numbers.look(moment(2.5, 0))
    assert numbers.lag_medians == numbers.query_medians == [None, None]
    assert sparkline([None, 1.0, None, 4.0, 8.0, 0.0]) == " ▂ ▅█▁"
    assert sparkline([]) == "" and sparkline([0.0, 0.0]) == "▁▁"


def test_bars_show_shares() -> None:
    assert share_bar(0, 0, 4) == share_bar(0, 9, 4) == "░░░░"
    assert share_bar(1, 1_000_000, 4) == "█░░░"
    assert share_bar(5, 10, 4) == "██░░" and share_bar(10, 10, 4, ascii_only=True) == "####"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("spark", [True, False])
def test_the_picture_fits_a_terminal_and_shows_every_number(width: int, spark: bool) -> None:
    out = io.StringIO()
    Console(file=out, width=width).print(panel(DemoRequest(spark=spark), seen()))
    lines = out.getvalue().splitlines()
    assert len(lines) < 24 and all(len(one) <= width for one in lines)
    for words in ("rows a second", "250", "row → visible", "0.21 s", "99 of 100: 0.51 s", "2.0 ms", "15", "fresh rows", "historical rows",
                  "in 2 chunks on disk", "late rows", "rejected rows", "4 of 45 s", "Spark" if spark else "insert"):  # fmt: skip
        assert words in out.getvalue()
    assert "…" not in out.getvalue()


def test_elsewhere_there_are_plain_lines() -> None:
    out = io.StringIO()
    screen = DemoScreen(Console(file=out), DemoRequest(seconds=10))
    numbers = Numbers()
    with screen.waiting() as wait, screen:
        wait.doing("starting Spark")
        for tenth in range(101):
            numbers.look(moment(tenth / 10, tenth))
            screen.show(numbers)
    lines = out.getvalue().splitlines()
    assert lines[0] == "starting Spark…"
    assert [one.split()[1] for one in lines[1:]] == ["0/10", "2/10", "4/10", "6/10", "8/10", "10/10"]
    assert lines[-1] == line(DemoRequest(seconds=10), numbers)
    assert "\x1b" not in out.getvalue()


def test_a_proof_is_whole_only_if_every_report_is_there_once() -> None:
    assert WHOLE.whole(SENT)
    assert verdict(SENT, WHOLE) == "Every report is there once: 1,000 sent = 997 found + 3 rejected."
    for wrong in ({"found": 996}, {"different": 996}, {"late": 6}, {"rejected": 4}, {"found": 998, "different": 998, "rejected": 2}):
        proof = replace(WHOLE, **wrong)
        assert not proof.whole(SENT)
        assert verdict(SENT, proof).startswith("Something is wrong: 1,000 reports were sent")


def test_the_summary_tells_what_was_seen() -> None:
    state = moment(4, 997).state
    text = "\n".join(sentences(DemoRequest(), seen(), WHOLE, 4, state, state))
    for words in ("40,000 simulated taxis sent 1,000 reports in 4 s", "Spark read them", "4 batches", "0.21 s for half of the rows",
                  "15 times", "within 2.0 ms, 99 of 100 within 3.0 ms", "in 2 chunks", "7 reports came minutes late",
                  "3 × speed: 'fast'"):  # fmt: skip
        assert words in text
    assert "Spark" not in "".join(sentences(DemoRequest(spark=False), seen(), WHOLE, 4, state, state))


@pytest.mark.parametrize("spark", [True, False])
@pytest.mark.parametrize("keep", [None, Path('it\'s a "folder"')])
def test_there_are_three_things_to_try_next(keep: Path | None, spark: bool) -> None:
    steps = next_steps(DemoRequest(keep=keep, spark=spark))
    assert len(steps) == 3
    for step in steps:
        words = shlex.split(step, comments=True)
        assert Path(words[0]).name in ("tidewheel", "python")
        if words[1] == "-c":
            compile(words[2], "step", "exec")
        else:
            assert words[-1] == str(keep or "demo-data")
    assert any("tidewheel.spark" in step for step in steps) == spark
