"""The words of a statement, one after the other: for statements that DuckDB can parse but does not show as a tree."""

from __future__ import annotations

from typing import NamedTuple

import duckdb

from tidewheel.duck.error_text import pointed
from tidewheel.errors import QueryError

_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


class Token(NamedTuple):
    text: str
    at: int
    """Its first byte in the statement."""
    is_word: bool
    """A keyword or a name, quoted or not: nearly every keyword can be a name."""
    is_string: bool

    @property
    def place(self) -> tuple[int, int]:
        return self.at, len(self.text.encode())

    @property
    def end(self) -> int:
        return self.at + len(self.text.encode())

    def says(self, word: str) -> bool:
        """Whether it is this keyword or sign."""
        return not self.is_string and self.text.upper() == word

    @property
    def name(self) -> str:
        """What it is the name of."""
        return self.text[1:-1].replace('""', '"') if self.text.startswith('"') else self.text

    @property
    def value(self) -> str | None:
        """The text that a literal stands for; None if it is not written in one of the two plain ways."""
        if self.text.startswith("'"):
            return self.text[1:-1].replace("''", "'")
        return self.text[2:-2] if self.text.startswith("$$") else None


class Tokens:
    """Reads a statement that DuckDB has found to be well formed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._all = _tokens(text)
        while self._all and self._all[-1].says(";"):
            self._all.pop()
        self._next = 0

    @property
    def here(self) -> Token:
        return self._all[min(self._next, len(self._all) - 1)]

    def is_over(self) -> bool:
        """Nothing is left. (Semicolons at the end say nothing.)"""
        return self._next >= len(self._all)

    def take(self) -> Token:
        self._next += 1
        return self._all[self._next - 1]

    def back(self) -> None:
        """Give the last token back."""
        self._next -= 1

    def takes(self, *words: str) -> bool:
        """Take these keywords or signs if they come next; all of them or none."""
        coming = self._all[self._next : self._next + len(words)]
        if len(coming) < len(words) or not all(token.says(word) for token, word in zip(coming, words, strict=True)):
            return False
        self._next += len(words)
        return True

    def needs(self, *words: str) -> None:
        if not self.takes(*words):
            raise self.wrong(f"{' '.join(words)} was expected here")

    def name(self) -> Token:
        if self.is_over() or not self.here.is_word:
            raise self.wrong("a name was expected here")
        return self.take()

    def until(self, *words: str) -> list[Token]:
        """All tokens up to one of these keywords or signs that is in no bracket, or to a closing bracket of one before, or to the end."""
        start, depth = self._next, 0
        while not self.is_over():
            token = self.here
            if not depth and (token.text in _CLOSE or any(token.says(word) for word in words)):
                break
            depth += (token.text in _OPEN) - (token.text in _CLOSE)
            self._next += 1
        return self._all[start : self._next]

    def flat(self) -> list[Token]:
        """What comes and is in no bracket."""
        found, depth = [], 0
        for token in self._all[self._next :]:
            depth -= token.text in _CLOSE
            if not depth:
                found.append(token)
            depth += token.text in _OPEN
        return found

    def written(self, tokens: list[Token]) -> str:
        """These, as they stand in the statement."""
        return self.text.encode()[tokens[0].at : tokens[-1].end].decode() if tokens else ""

    def wrong(self, message: str, token: Token | None = None) -> QueryError:
        """An error that marks a token; the one that comes next, if none is given."""
        return QueryError(pointed(message, self.text, (token or self.here).place))


def _tokens(text: str) -> list[Token]:
    data = text.encode()
    kinds = duckdb.token_type
    found = list(duckdb.tokenize(text))
    ends = [at for at, _ in found[1:]] + [len(data)]
    return [
        Token(data[at:end].decode().rstrip(), at, kind in (kinds.keyword, kinds.identifier), kind == kinds.string_const)
        for (at, kind), end in zip(found, ends, strict=True)
        if kind != kinds.comment
    ]


def blanked(text: str, start: int, end: int) -> str:
    """A text with blanks in place of some bytes. Lines stay lines, so that what is said about places stays true."""
    data = text.encode()
    return (data[:start] + bytes(10 if byte == 10 else 32 for byte in data[start:end]) + data[end:]).decode()


def is_plain(name: str) -> bool:
    """Whether a name is written without quotes, also where DuckDB writes it."""
    return name.isidentifier() and name.isascii() and [kind for _, kind in duckdb.tokenize(name)] == [duckdb.token_type.identifier]
