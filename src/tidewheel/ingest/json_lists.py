"""JSON files that are one list: its items one after the other, so that no more than some of them are in memory, on however many lines."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from enum import Enum, auto

import pyarrow as pa

from tidewheel.ingest.text_lines import BOM, Bytes, Malformed

SOME_BYTES = 4 << 20
"""Bytes that are read at once, and of items that are handed on together."""
MOST_ITEM = 64 << 20
"""Characters of one item."""
_SPACE = re.compile(r"[ \t\r\n]*")


class Beginning:
    """A stream whose first bytes may be looked at before they are read."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self.head = b""
        while len(self.head) < SOME_BYTES and (data := stream.read(SOME_BYTES - len(self.head))):
            self.head += data

    def read(self, size: int) -> bytes:
        head, self.head = self.head, b""
        return head or self._stream.read(size)

    def is_one_list(self) -> bool:
        """Whether what begins so is a list of records, and not lines that are records, the first of which happens to be a list."""
        text = self.head.removeprefix(BOM).lstrip()
        if not text.startswith(b"["):
            return False
        first, _, rest = text.partition(b"\n")
        return not (rest.strip() and first.rstrip().endswith(b"]") and _is_json(first))


class _Next(Enum):
    """What may come next: a list, its first item or its end, an item, or a comma or the end."""

    LIST = auto()
    FIRST = auto()
    ITEM = auto()
    COMMA = auto()


def items(stream: Bytes, some: int) -> Iterator[list[str]]:
    """The texts of the items of a list, on one line each, so many together or fewer. `Malformed`: it is no list, or does not end."""
    unpack, decoder = codecs.getincrementaldecoder("utf-8-sig")(), json.JSONDecoder()
    text, at, over, number = "", 0, False, 0
    found: list[str] = []
    size = 0
    state = _Next.LIST

    def grow() -> None:
        nonlocal text, at, over
        data = stream.read(max(SOME_BYTES, len(text) - at))  # twice as much each time: an item is not tried too often
        text, at, over = text[at:] + unpack.decode(data, not data), 0, not data

    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            if over:
                break
            grow()
            continue
        match state, text[at]:
            case (_Next.LIST, "["):
                state, at = _Next.FIRST, at + 1
            case (_Next.FIRST | _Next.COMMA, "]"):
                state, at = _Next.LIST, at + 1
            case (_Next.COMMA, ","):
                state, at = _Next.ITEM, at + 1
            case (_Next.FIRST | _Next.ITEM, _):
                try:
                    end = decoder.raw_decode(text, at)[1]
                except json.JSONDecodeError as e:
                    if over or len(text) - at > MOST_ITEM:
                        long = f"is longer than {MOST_ITEM >> 20} MB or " if not over else ""
                        raise Malformed(f"item {number + 1} of its list {long}is not JSON: {e.msg}") from None
                    grow()
                    continue
                if end == len(text) and not over:  # a number may go on
                    grow()
                    continue
                found.append(text[at:end].replace("\n", " ").replace("\r", " "))
                number, size, at, state = number + 1, size + end - at, end, _Next.COMMA
                if len(found) == some or size > SOME_BYTES:
                    yield found
                    found, size = [], 0
            case _:
                raise Malformed(f"after item {number} of its list there is {text[at : at + 20]!r}, not JSON as expected")
    if state is not _Next.LIST:
        raise Malformed(f"its list does not end: it breaks off after item {number}")
    if found:
        yield found


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
