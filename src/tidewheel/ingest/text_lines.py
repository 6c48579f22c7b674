"""A stream of bytes as numbered lines, some at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
Lines = tuple[Numbers, pa.Array]
"""The numbers of some lines, from 1, and the lines as large_binary, without their newlines."""
Line = tuple[int, bytes, bool]
"""A line: its number, its text, and whether it has an odd number of quotes."""

BLOCK = 4 << 20
MOST_LINES = 200
"""Lines that one quoted record may have; more, and the quote was never meant to open one."""

MOST_LINE = 256 << 20
"""Bytes of a line. It is in memory as a whole, so a file that is one long line must not be taken for one of many."""

BOM = b"\xef\xbb\xbf"


class Bytes(Protocol):
    """A stream, as it is read here."""

    def read(self, size: int) -> bytes:
        """About so many bytes; none: it is over."""
        ...


class Malformed(ValueError):
    """A file is not as its format says."""


def text_lines(stream: Bytes, block: int = BLOCK) -> Iterator[Lines]:
    """All lines, blank ones too. A line is in memory as a whole. `Malformed`: that would be too much."""
    rest: list[bytes] = []
    number = 1
    while data := stream.read(block):
        if number == 1 and not rest:
            data = data.removeprefix(BOM)
        head, newline, tail = data.rpartition(b"\n")
        if not newline:
            rest.append(data)
            check_line(number, rest)
            continue
        lines = pc.split_pattern(pa.array([b"".join([*rest, head])], pa.large_binary()), b"\n").values
        rest = [tail]
        yield np.arange(number, number + len(lines)), lines
        number += len(lines)
    if last := b"".join(rest):
        yield np.array([number]), pa.array([last], pa.large_binary())


def check_line(number: int, parts: list[bytes]) -> None:
    """`Malformed`: a line of which these are the first parts is too long."""
    if sum(map(len, parts)) > MOST_LINE:
        raise Malformed(f"line {number} has more than {MOST_LINE >> 20} MB")


def closed_quotes(lines: Iterator[Lines], most: int = MOST_LINES) -> Iterator[Lines]:
    """The same lines, but a quoted field that goes on over several lines keeps them together, under the first one's number.

    A quote that does not close within `most` lines is a mistake of its line alone: the others stay what they are.
    """
    waiting: list[Line] = []
    for numbers, some in lines:
        odd = pc.bit_wise_and(pc.count_substring(some.view(pa.large_string()), '"'), 1).to_numpy().astype(bool)
        if not waiting and not odd.any():
            yield numbers, some
            continue
        done, waiting = close_quotes(waiting, zip(numbers.tolist(), some.to_pylist(), odd.tolist(), strict=True), most)
        if done:
            yield lines_of(done)
    while waiting:
        first = waiting[0]
        done, waiting = close_quotes([], iter(waiting[1:]), most)
        yield lines_of([first, *done])


def close_quotes(waiting: list[Line], lines: Iterator[Line], most: int) -> tuple[list[Line], list[Line]]:
    """The records that are complete, and the lines of one that is not yet."""
    done: list[Line] = []
    again: deque[Line] = deque()
    while (line := again.popleft() if again else next(lines, None)) is not None:
        if not waiting and not line[2]:
            done.append(line)
            continue
        waiting = [*waiting, line]
        if line[2] and len(waiting) > 1:
            done.append((waiting[0][0], b"\n".join(text for _, text, _ in waiting), False))
            waiting = []
        elif len(waiting) > most:
            done.append(waiting[0])
            again.extendleft(reversed(waiting[1:]))
            waiting = []
    return done, waiting


def lines_of(records: list[Line]) -> Lines:
    return np.array([n for n, _, _ in records]), pa.array([text for _, text, _ in records], pa.large_binary())
