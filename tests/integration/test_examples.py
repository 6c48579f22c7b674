"""What we tell people to type works: the examples and the README's code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
NEEDS_BROKER = {"kafka_stream"}
"""Run by test_ingest_kafka.py."""
EXAMPLES = sorted(e for e in (HOME / "examples").glob("*.py") if e.stem not in NEEDS_BROKER)


def run(arguments: list[str], folder: Path) -> str:
    """Standard output of a command that must succeed and say nothing on standard error."""
    environment = {**os.environ, "PYTHONWARNINGS": "error::DeprecationWarning:__main__"}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", done.stderr
    return done.stdout


EXPECTED = {
    "quickstart": "The three fastest on average:\nplate  n    mean\n49     100  49.0",
    "zorder_boxes": "200000 reports anywhere on earth, 1 of them west of the declared bounds",
    "ip_flows": "Who in 10.0.3.0/24 sent most",
    "late_and_rejects": "1200 late rows can be queried at once",
    "replace_and_packages": "attempt 2: 0 rows (loaded before)",
    "folder_stream": "rejected monday.csv:4: has 2 fields, not 3",
}


def test_every_example_is_tested() -> None:
    assert [e.stem for e in EXAMPLES] == sorted(EXPECTED)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.stem)
def test_example(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text().splitlines()) < 60
    out = run([str(example)], tmp_path)
    assert EXPECTED[example.stem] in out
    assert list(tmp_path.iterdir()) == [], "an example cleans up after itself"


def test_late_rows_are_in_a_chunk_of_their_own(tmp_path: Path) -> None:
    out = run([str(HOME / "examples" / "late_and_rejects.py")], tmp_path)
    assert "2026-01-01 12:00:00 .. 2026-01-01 12:19:59  1200 rows" in out
    assert "'warm' doesn't fit float" in out


def test_the_readme_s_code_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (HOME / "README.md").read_text(), re.DOTALL)
    assert len(blocks) >= 2 and len(blocks[0].strip().splitlines()) <= 11
    (tmp_path / "readme.py").write_text("\n".join(blocks))
    out = run(["readme.py"], tmp_path)
    assert "11     2026-01-01 08:01:01  61.0" in out
    assert (tmp_path / "data" / "wh" / "catalog.sqlite").exists()


def test_the_readme_s_links_and_files_exist() -> None:
    for page in ("README.md", "docs/architecture.md", "docs/template.md", "docs/glossary.md"):
        text = (HOME / page).read_text()
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert link.startswith("http") or ((HOME / page).parent / link).exists(), f"{page}: {link}"
        for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|md))`", text):
            assert (HOME / name).exists() or (HOME / "src" / "tidewheel" / name).exists(), f"{page}: {name}"


def test_the_pages_tell_nothing_of_one_machine() -> None:
    pages = [HOME / "README.md", *(HOME / "docs").glob("*.md"), *EXAMPLES]
    for page in pages:
        assert not re.search(r"/(home|root|work|tmp)/|localhost|\b127\.0\.0\.1\b", page.read_text()), page
