"""Runs the examples of a page, one after the other, as somebody would who reads it from top to bottom.

    python -m tests.integration.pages PAGE      in the folder where the reader is

Blocks of ```python share one interpreter, blocks of ```sh are typed into a shell beside it; ```text is what they print. What a page
takes for granted stands before its first example as `<!-- given … -->`, in Python. An example that nobody can run here has a comment
above it that says why: `<!-- not run: … -->`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from tests.integration.typed import shell
from tidewheel.cluster import current_engine

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


def read_here(page: Path, folder: Path, change: Callable[[str], str]) -> str:
    """Type the examples of a page, in this process: its Python here, its `tidewheel` answered here as well. Returns what was printed.

    `change` is made to the text of each example before.
    """
    with (folder.parent / "printed").open("w+") as out:
        before = os.getcwd()
        os.chdir(folder)
        try:
            with redirect_stdout(out):
                main(page, change, lambda text: shell(text, folder, out))
        except BaseException as e:
            e.add_note((folder.parent / "printed").read_text())
            raise
        finally:
            os.chdir(before)
            current_engine._leave_all()  # as when a reader ends Python: some pages leave their warehouse open
        out.seek(0)
        return out.read()


def main(page: Path, change: Callable[[str], str], typed: Callable[[str], None]) -> None:
    """Raises what the first example raises that fails. `typed` runs lines of a shell."""
    space: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page.read_text()):
        text = change(block.text)
        print(f"--- {page.name}:{block.line}", flush=True)
        if block.kind == "sh":
            typed(text)
        else:
            # lines of a traceback are those of the page
            exec(compile("\n" * block.line + text, str(page), "exec"), space)
            sys.stdout.flush()


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        str,
        lambda text: subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True),
    )
