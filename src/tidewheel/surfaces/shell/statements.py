"""Where statements end: text is cut at semicolons that stand outside of quotes and comments. Commands begin with a backslash."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

WORDS = {"quit": r"\q", "exit": r"\q", "help": r"\?"}
"""What people type who come from other shells, alone on a line, and what it means."""

_TOKEN = re.compile(
    r"""
      (?P<skip> --[^\n]*(?:\n|\Z) | /\*.*?\*/ )
    | (?P<whole> \b[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | (?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?P=tag) )
    | (?P<open> /\* | ' | " | \$(?:[^\W\d]\w*)?\$ )
    | (?P<end> ; )
    | (?P<command> \\[^\n]* )
    """,
    re.VERBOSE | re.DOTALL,
)


class Piece(NamedTuple):
    """A statement without its semicolon, or a command with its backslash."""

    text: str
    line: int
    """The line it begins in, counted from 1."""

    @property
    def is_command(self) -> bool:
        return self.text.startswith("\\")


def split(text: str, line: int = 1) -> tuple[list[Piece], str]:
    """The pieces that have ended, and what is left: a statement that goes on, or nothing but blanks and comments.

    A command ends with its line, and ends the statement before it, as a semicolon would.
    """
    pieces: list[Piece] = []
    start, said = 0, False
    at = 0
    while (found := _TOKEN.search(text, at)) is not None:
        said = said or bool(text[at : found.start()].strip())
        kind, at = found.lastgroup, found.end()
        if kind == "open":
            return pieces, text[start:]
        if kind in ("whole", "tag"):
            said = True
        elif kind in ("end", "command"):
            if said:
                pieces.append(_piece(text, start, found.start(), line))
            if kind == "command":
                pieces.append(_piece(text, found.start(), found.end(), line))
            start, said = found.end(), False
    return pieces, text[start:]


def _piece(text: str, start: int, end: int, line: int) -> Piece:
    own = text[start:end]
    start += len(own) - len(own.lstrip())
    return Piece(own.strip().rstrip(";") if own.lstrip().startswith("\\") else own.strip(), line + text.count("\n", 0, start))


def is_blank(text: str) -> bool:
    """Whether there is nothing in it but blanks and comments."""
    return not re.sub(r"(?s)--[^\n]*|/\*.*?\*/", "", text).strip()


def is_complete(text: str) -> bool:
    """Whether Enter should run it: everything in it has ended."""
    return text.strip().lower() in WORDS or is_blank(split(text)[1])


def typed(text: str) -> list[Piece]:
    """What was typed, the last statement also without its semicolon."""
    word = WORDS.get(text.strip().rstrip(";").lower())
    return [Piece(word, 1)] if word else list(pieces_of(text.splitlines(keepends=True)))


def pieces_of(lines: Iterable[str]) -> Iterator[Piece]:
    """The pieces of a file or a pipe, each as soon as its end was read."""
    rest, line = "", 1
    for one in lines:
        text = rest + one
        pieces, rest = split(text, line) if any(mark in one for mark in ";\\") else ([], text)
        yield from pieces
        line += text[: len(text) - len(rest)].count("\n")
    pieces, rest = split(rest, line)
    yield from pieces
    if not is_blank(rest):
        yield _piece(rest, 0, len(rest), line)
