"""The pages of docs/: their examples run as they stand, from top to bottom; pages with a broker in test_ingest_kafka.py."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.pages import blocks

DOCS = Path(__file__).parents[2] / "docs"
NEED_BROKER = {"kafka"}
PAGES = sorted(page.stem for page in DOCS.glob("*.md") if list(blocks(page.read_text())) and page.stem not in NEED_BROKER)


def read(page: str, folder: Path, *names: str) -> str:
    """Type the examples of a page. Returns what was printed."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(DOCS.parent),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TERM": "dumb",
    }
    command = [sys.executable, "-m", "tests.integration.pages", str(DOCS / f"{page}.md"), *names]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, tmp_path: Path) -> None:
    read(page, tmp_path)


def test_nearly_all_examples_can_be_run() -> None:
    left_out = [found for page in DOCS.glob("*.md") for found in re.findall(r"<!-- not run: (.*?) -->", page.read_text())]
    assert len(left_out) <= 4, left_out


def test_there_is_a_page_for_every_task_and_every_page_is_found() -> None:
    index = (DOCS / "README.md").read_text()
    linked = set(re.findall(r"\]\((\w[\w-]*)\.md\)", index))
    assert linked == {page.stem for page in DOCS.glob("*.md")} - {"README"}
    assert {"quickstart", "kafka", "files", "python", "sql", "spark", "operations"} <= linked


def test_links_lead_somewhere() -> None:
    for page in DOCS.glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert link.startswith("http") or (DOCS / link).exists(), f"{page.name}: {link}"
