"""Where statements end: text is cut at semicolons that stand outside of quotes and comments. Commands begin with a backslash."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

WORDS = {"quit": r"\q", "exit": r"\q", "help": r"\?"}
"""Words of other shells, typed alone on a line, and the command that each means."""

_TOKEN = re.compile(
    r"""
      (?P<skip> --[^\n]*(?:\n|\Z) )
    | (?P<comment> /\* )
    | (?P<whole> \b[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | (?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?P=tag) )
    | (?P<open> ' | " | \$(?:[^\W\d]\w*)?\$ )
    | (?P<end> ; )
    | (?P<command> \\[^\n]* )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_SIGN = re.compile(r"/\*|\*/")


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
    start, at, said = 0, 0, False
    for kind, first, last in _tokens(text):
        said = said or bool(text[at:first].strip()) or kind == "whole"
        at = last
        if kind == "open":
            break
        if kind in ("end", "command"):
            if said:
                pieces.append(_piece(text, start, first, line))
            if kind == "command":
                pieces.append(_piece(text, first, last, line))
            start, said = last, False
    return pieces, text[start:]


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Pieces that decide where a statement ends: kind, first, last. The last one may be `open`: it begins something that does not end."""
    at = 0
    while (found := _TOKEN.search(text, at)) is not None:
        kind, at = found.lastgroup or "", found.end()
        if kind == "comment":
            at = _end_of_comment(text, found.start())
            kind = "skip" if at else "open"
            at = at or len(text)
        yield "whole" if kind == "tag" else kind, found.start(), at


def _end_of_comment(text: str, start: int) -> int:
    """Comments may be within comments, as in DuckDB. 0 if it does not end."""
    depth = 0
    for sign in _COMMENT_SIGN.finditer(text, start):
        depth += 1 if sign[0] == "/*" else -1
        if not depth:
            return sign.end()
    return 0


def _piece(text: str, start: int, end: int, line: int) -> Piece:
    own = text[start:end]
    start += len(own) - len(own.lstrip())
    return Piece(own.strip().rstrip(";") if own.lstrip().startswith("\\") else own.strip(), line + text.count("\n", 0, start))


def is_blank(text: str) -> bool:
    """Whether there is nothing in it but blanks and comments."""
    at = 0
    for kind, first, last in _tokens(text):
        if kind != "skip" or text[at:first].strip():
            return False
        at = last
    return not text[at:].strip()


def is_complete(text: str) -> bool:
    """Whether Enter should run it: everything in it has ended."""
    return text.strip().lower() in WORDS or is_blank(split(text)[1])


def typed(text: str) -> list[Piece]:
    """The statements of a text; the last one may lack its semicolon."""
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
