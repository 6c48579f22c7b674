"""The recording in the README: what the script that makes it understands, and that what it draws can be shown."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return runpy.run_path(str(PICTURES / "record.py"))


def check(text: str) -> tuple[int, float]:
    """The number of lines and of seconds of a recording whose every movement has as many times as values, in order."""
    root = ElementTree.fromstring(text)
    moving = [*root.iter(f"{SVG}animate"), *root.iter(f"{SVG}animateTransform")]
    for one in moving:
        times = [float(time) for time in one.attrib["keyTimes"].split(";")]
        assert len(times) == len(one.attrib["values"].split(";")) and times[0] == 0
        assert times == sorted(times) and times[-1] <= 1
    lengths = {one.attrib["dur"] for one in moving}
    assert len(lengths) == 1, "all parts begin again together"
    return len(list(root.iter(f"{SVG}text"))), float(lengths.pop().removesuffix("s"))


def test_the_recording_of_the_readme_can_be_shown() -> None:
    lines, seconds = check((PICTURES / "first-steps.svg").read_text())
    assert lines > 20 and 15 < seconds < 30
    assert "docs/pictures/first-steps.svg" in (PICTURES.parents[1] / "README.md").read_text()


def test_a_terminal_is_recorded_as_it_is(record: dict[str, Any], tmp_path: Path) -> None:
    said, seconds = record["printed"]("printf 'a\\033[1;31mb\\033[0m <c>\\n'; tput cols 2>/dev/null || echo 112; sleep 0.2", tmp_path)
    assert seconds > 0.2
    lines = record["coloured"](said)
    assert lines[0] == [("a", ""), ("b", ' fill="#ff7b72"'), (" <c>", "")] and lines[1] == [("112", "")]
    moved = "\x1b[?25lloading ━ 10%\r\x1b[2Kloading ━━ 100%\r\n\x1b[?25h\r\x1b[1A\x1b[2Kloaded\r\ndone\r\n"
    assert record["coloured"](moved) == [[("loaded", "")], [("done", "")]]
    with pytest.raises(SystemExit, match="no such thing"):
        record["printed"]("echo no such thing; exit 3", tmp_path)
    assert record["styled"]("", [38, 5, 196]) == ' fill="#ff0000"' and record["styled"]("", [38, 2, 1, 2, 255]) == ' fill="#0102ff"'
    assert record["styled"](' fill="#fff"', [0]) == "" and record["styled"]("", [48, 5, 3, 2]) == ' opacity="0.6"'


def test_many_lines_scroll(record: dict[str, Any]) -> None:
    shown = record["Shown"]
    lines = [
        shown(1.0, [("$ ", ""), ("ls & <x>", "")], typed=True),
        *(shown(2.0 + i / 100, [(f"line {i}", "")]) for i in range(80)),
        shown(3.0, []),
    ]
    text = record["drawn"](lines, 10.0)
    assert check(text) == (82, 10.0) and "animateTransform" in text and "ls &amp; &lt;x&gt;" in text
    assert check(record["drawn"](lines[:5], 10.0))[0] == 5
