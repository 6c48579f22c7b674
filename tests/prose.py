"""The pages as text, for `make lint`: lines of at most 110 characters, and links and names of files that lead somewhere.

`python -m tests.prose` prints a line for each mistake and exits with 1 if there is one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

HOME = Path(__file__).parents[1]
WIDEST = 110

_LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")
_FILE = re.compile(r"`((?:\w+/)+[\w-]+\.(?:py|md))`")
_UNTIL = {"```": "```", "<!-- ": "-->"}
"""Openings of parts that are written for other readers, code and comments, and their ends."""


def pages() -> list[Path]:
    return [*sorted(HOME.glob("*.md")), *sorted((HOME / "docs").rglob("*.md"))]


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines of a page that are neither code nor comment."""
    end = ""
    for number, line in enumerate(text.splitlines(), 1):
        if end:
            end = "" if line.rstrip().endswith(end) else end
        elif opening := next((opening for opening in _UNTIL if line.lstrip().startswith(opening)), ""):
            end = "" if opening == "<!-- " and "-->" in line else _UNTIL[opening]
        else:
            yield number, line


def anchors(page: Path) -> set[str]:
    """The names that headings have in links, made as GitHub makes them."""
    headings = [line.lstrip("#").strip().lower() for _, line in prose(page.read_text()) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def mistakes(page: Path) -> Iterator[str]:
    for number, line in prose(page.read_text()):
        at = f"{page.relative_to(HOME)}:{number}"
        if len(line) > WIDEST and not line.startswith("|"):  # a row of a table cannot be broken
            yield f"{at}: {len(line)} characters, at most {WIDEST}"
        for link, anchor in _LINK.findall(line):
            there = page.parent / link if link else page
            if link.startswith("http"):
                continue
            if not there.exists():
                yield f"{at}: there is no {link}"
            elif anchor and anchor not in anchors(there):
                yield f"{at}: {there.name} has no heading #{anchor}"
        for name in _FILE.findall(line):
            if not (HOME / name).exists() and not (HOME / "src" / "tidewheel" / name).exists():
                yield f"{at}: there is no file {name}"


def main() -> int:
    found = [mistake for page in pages() for mistake in mistakes(page)]
    print("\n".join(found) or f"{len(pages())} pages: widths, links and names of files are right.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
