"""What we tell people to type works: the examples and the README's code."""

from __future__ import annotations

import io
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from tests.integration.spark_session import absolute, lent, spark  # noqa: F401
from tidewheel.cluster import current_engine

HOME = Path(__file__).parents[2]
NEEDS_BROKER = {"kafka_stream"}
"""Run by test_ingest_kafka.py."""
EXAMPLES = sorted(e for e in (HOME / "examples").glob("*.py") if e.stem not in NEEDS_BROKER)


AS_READERS_DO = {"quickstart"}
"""In a process of its own; the others run in this one, and share its Spark."""


def run_apart(script: Path, folder: Path) -> str:
    """Standard output of a script that must succeed and say nothing on standard error."""
    environment = {**os.environ, "PYTHONWARNINGS": "error::DeprecationWarning:__main__"}
    done = subprocess.run([sys.executable, str(script)], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", done.stderr
    return done.stdout


def run_here(script: Path, folder: Path, session: Callable[[], SparkSession], *arguments: str) -> str:
    """The same, in this process."""
    out, err = io.StringIO(), io.StringIO()
    before = os.getcwd()
    with (
        lent(session()) if "tws.session" in script.read_text() else nullcontext(),
        mock.patch.object(sys, "argv", [str(script), *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        os.chdir(folder)
        try:
            runpy.run_path(str(script), run_name="__main__")
        finally:
            os.chdir(before)
            current_engine._leave_all()
    assert err.getvalue() == ""
    return out.getvalue()


EXPECTED = {
    "quickstart": "The three fastest on average:\nplate  n    mean\n49     100  49.0",
    "zorder_boxes": "200000 reports anywhere on earth, 1 of them west of the declared bounds",
    "ip_flows": "Who in 10.0.3.0/24 sent most",
    "late_and_rejects": "2026-01-01 12:00:00 .. 2026-01-01 12:19:59  1200 rows",
    "replace_and_packages": "attempt 2: 0 rows (loaded before)",
    "folder_stream": "rejected monday.csv:4: has 2 fields, not 3",
}


def test_every_example_is_tested() -> None:
    assert [e.stem for e in EXAMPLES] == sorted(EXPECTED)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.stem)
def test_example(example: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    assert len(example.read_text().splitlines()) < 60
    if example.stem in AS_READERS_DO:
        out = run_apart(example, tmp_path)
    else:
        out = run_here(example, tmp_path, lambda: request.getfixturevalue("spark"))
    assert EXPECTED[example.stem] in out
    if example.stem == "late_and_rejects":
        assert "1200 late rows can be queried at once" in out and "'warm' doesn't fit float" in out
    assert list(tmp_path.iterdir()) == [], "an example cleans up after itself"


def test_the_readme_s_code_runs(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (HOME / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 2 and len(blocks[0].strip().splitlines()) <= 11
    (tmp_path / "readme.py").write_text(absolute("\n".join(blocks), tmp_path))
    out = run_here(tmp_path / "readme.py", tmp_path, lambda: request.getfixturevalue("spark"))
    assert "11     2026-01-01 08:01:01  61.0" in out
    assert (tmp_path / "data" / "wh" / "catalog.sqlite").exists()


def test_the_pages_tell_nothing_of_one_machine() -> None:
    pages = [HOME / "README.md", *(HOME / "docs").rglob("*.md"), *EXAMPLES]
    for page in pages:
        assert not re.search(r"/(home|root|work|tmp)/|localhost|\b127\.0\.0\.1\b", page.read_text()), page
