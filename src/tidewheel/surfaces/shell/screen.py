"""Where answers go: to a terminal, fitted or through a pager; or to a pipe, in the format that was asked for."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidewheel.errors import InputError
from tidewheel.model.figures import counted
from tidewheel.model.visible_text import visible
from tidewheel.read.result import Result
from tidewheel.surfaces.shell.advice import advised
from tidewheel.surfaces.shell.answer_file import save
from tidewheel.surfaces.shell.answers import ShownAnswer, Stopwatch, cost, take
from tidewheel.surfaces.shell.formats import write
from tidewheel.surfaces.shell.running import cancellable

FORMATS = ("table", "json", "csv", "arrow", "markdown")

_DIM, _RED, _END = "\x1b[2m", "\x1b[31m", "\x1b[0m"


@dataclass
class Look:
    """The look of answers; commands change it."""

    format: str = "table"
    timing: bool = True
    pager: bool = True


class Screen:
    """Used by one thread. `interactive`: someone types, so there is a terminal to fit and to page for."""

    def __init__(self, look: Look, interactive: bool) -> None:
        self.look = look
        self.interactive = interactive
        self.colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int | None:
        """The width of the terminal; None where lines may be of any length."""
        return shutil.get_terminal_size().columns if sys.stdout.isatty() else None

    @property
    def height(self) -> int:
        return shutil.get_terminal_size().lines

    # ---- answers ----------------------------------------------------------------------------------------

    def answer(self, ask: Callable[[], Result], path: Path | None = None) -> None:
        """Ask, and show the answer with what it cost, or write it into a file. Ctrl-C cancels it, and is raised."""
        clock = Stopwatch()
        if path is not None:
            result, rows = cancellable(ask, lambda result: save(path, result.schema, result))
            if self.interactive or self.look.timing:
                self._aside(f"{path}: {counted(rows, 'row')} · {cost(result.stats, clock.seconds)}")
        elif self.look.format == "table":
            result, answer = cancellable(ask, take)
            self._show(answer, cost(result.stats, clock.seconds) if self.look.timing else "")
        else:
            result, rows = cancellable(ask, self._stream)
            if self.look.timing:
                self._aside(f"{counted(rows, 'row')} · {cost(result.stats, clock.seconds)}")

    def _show(self, answer: ShownAnswer, told: str) -> None:
        paged = self._is_paged(answer)
        if paged:
            self._page(answer.lines(None, self.colour))
        else:
            self.print("\n".join(answer.lines(self.width, self.colour)))
        said = answer.said(None if paged else self.width)
        self.note(" · ".join(part for part in (said, told) if part))

    def _stream(self, result: Result) -> int:
        if self.look.format == "arrow" and sys.stdout.isatty():
            raise InputError("Arrow is not for terminals: send it into a file or a pipe, or give --output FILE.arrow")
        sys.stdout.flush()
        rows = write("stream" if self.look.format == "arrow" else self.look.format, result.schema, result, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return rows

    def _is_paged(self, answer: ShownAnswer) -> bool:
        if not (self.interactive and self.look.pager and sys.stdout.isatty()):
            return False
        head = 0 if answer.is_plan else 6
        tall = sum(1 for _ in answer.lines(None)) if answer.is_plan else min(answer.rows, self.height)
        return tall + head > self.height or not answer.is_fitting(self.width)

    def _page(self, lines: Iterable[str]) -> None:
        """Through the user's pager, which `-S` lets scroll sideways."""
        command = shlex.split(os.environ.get("PAGER", "")) or ["less"]
        if Path(command[0]).name == "less":
            command.append("-SRX")
        try:
            pager = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, encoding="utf-8")
        except OSError:  # there is none: the terminal scrolls
            self.print("\n".join(lines))
            return
        # Ctrl-C is the pager's; it has begun, so it does not inherit this.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):  # it was left before it had everything
                pager.communicate("\n".join(lines) + "\n")
            pager.wait()
        finally:
            signal.signal(signal.SIGINT, before)

    # ---- words ------------------------------------------------------------------------------------------

    def print(self, text: str) -> None:
        if text:
            print(text)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print a remark under an answer."""
        self.print(f"{_DIM}{text}{_END}" if self.colour and text else text)

    def _aside(self, text: str) -> None:
        """Where it does not mix with rows that a program reads."""
        print(text, file=sys.stdout if self.interactive else sys.stderr, flush=True)

    def wrong(self, text: str) -> None:
        """An error, with the lines that point at its place."""
        sys.stdout.flush()
        text = "\n".join(visible(line) for line in advised(text).replace("\t", " ").split("\n"))  # values may be quoted in it
        colour = self.colour and sys.stderr.isatty()
        print(f"{_RED}{text}{_END}" if colour else text, file=sys.stderr, flush=True)
