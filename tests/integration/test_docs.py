"""The pages of docs/: their examples run as they stand, from top to bottom; pages with a broker in test_ingest_kafka.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import SOAK
from tests.integration.pages import blocks, read_here
from tests.integration.spark_session import absolute, lent, spark  # noqa: F401

DOCS = Path(__file__).parents[2] / "docs"
NEED_BROKER = {"kafka"}
AS_READERS_DO = {"quickstart"} if SOAK else set()
"""A process of its own for the Python and for every command; other pages are typed into this process, and share its Spark."""
PAGES = sorted(page.stem for page in DOCS.glob("*.md") if list(blocks(page.read_text())) and page.stem not in NEED_BROKER)


def read(page: str, folder: Path, session: Callable[[], SparkSession], names: dict[str, str] | None = None) -> str:
    """Type the examples of a page in this process, with other names for some that it makes up. Returns what was printed."""
    text = "".join(block.text for block in blocks((DOCS / f"{page}.md").read_text()))
    (folder / "here").mkdir()

    def change(text: str) -> str:
        for old, new in (names or {}).items():
            text = text.replace(old, new)
        return absolute(text, folder / "here")

    with lent(session()) if "tws.session" in text or "tidewheel ingest" in text else nullcontext():
        return read_here(DOCS / f"{page}.md", folder / "here", change)


def read_apart(page: str, folder: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(DOCS.parent),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TERM": "dumb",
    }
    command = [sys.executable, "-m", "tests.integration.pages", str(DOCS / f"{page}.md")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if page in AS_READERS_DO:
        read_apart(page, tmp_path)
    else:
        read(page, tmp_path, lambda: request.getfixturevalue("spark"))


def test_nearly_all_examples_can_be_run() -> None:
    left_out = [found for page in DOCS.glob("*.md") for found in re.findall(r"<!-- not run: (.*?) -->", page.read_text())]
    assert len(left_out) <= 4, left_out


def test_there_is_a_page_for_every_task_and_every_page_is_found() -> None:
    index = (DOCS / "README.md").read_text()
    linked = set(re.findall(r"\]\((\w[\w-]*)\.md\)", index))
    assert linked == {page.stem for page in DOCS.glob("*.md")} - {"README"}
    assert {"quickstart", "kafka", "files", "python", "sql", "spark", "operations"} <= linked
