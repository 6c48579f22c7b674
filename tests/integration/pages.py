"""Runs the examples of a page, one after the other, as somebody would who reads it from top to bottom.

    python -m tests.integration.pages PAGE [OLD=NEW …]      in the folder where the reader is

Blocks of ```python share one interpreter, blocks of ```sh are typed into a shell beside it; ```text is what they print. What a page
takes for granted stands before its first example as `<!-- given … -->`, in Python. An example that nobody can run here has a comment
above it that says why: `<!-- not run: … -->`. OLD=NEW exchanges names that the page makes up, as that of a broker.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"^<!-- given\n(?P<given>.*?)^-->$|^(?P<not_run><!-- not run: .*? -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int
    """Where it begins on its page."""


def blocks(page: str) -> Iterator[Block]:
    """The examples of a page that can be run, in their order."""
    for found in _BLOCK.finditer(page):
        line = page.count("\n", 0, found.start()) + 1
        if found["given"]:
            yield Block("python", found["given"], line)
        elif found["kind"] in ("python", "sh") and not found["not_run"]:
            yield Block(found["kind"], found["text"], line)


def main(page: Path, names: dict[str, str]) -> None:
    """Raises what the first example raises that fails."""
    space: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page.read_text()):
        text = block.text
        for old, new in names.items():
            text = text.replace(old, new)
        print(f"--- {page.name}:{block.line}", flush=True)
        if block.kind == "sh":
            subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True)
        else:
            # lines of a traceback are those of the page
            exec(compile("\n" * block.line + text, str(page), "exec"), space)


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(name.split("=", 1) for name in sys.argv[2:]))
