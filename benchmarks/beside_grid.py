"""The grid of `benchmarks/grid.py` for `benchmarks/beside.py`: each cell's queries while rows arrive, by the asking thread's time."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import data
from benchmarks.grid import SELECTIVITIES, WINDOWS, Cell, Question, questions
from benchmarks.peers import Tidewheel, same
from benchmarks.reader import read
from benchmarks.stream import Stream

ROWS = 8_000_000
"""160 s of stream: the windows of five minutes are cut to 128 s."""
EACH = 50
"""Positions in a cell."""
ASKED = 3
"""Queries in a turn."""


@contextmanager
def cells(folder: str | None) -> Iterator[dict[str, Callable[[], float]]]:
    """By cell: a live batch, then some queries, whose microseconds are returned. The first answer of each cell is checked by NumPy."""
    stream = Stream(data.load(folder, ROWS))
    system = Tidewheel()
    numbers = itertools.count()
    unchecked = {(share, name) for share in SELECTIVITIES for name, _ in WINDOWS}
    asked: dict[Cell, list[Question]] = {cell: [] for cell in sorted(unchecked)}
    for question in questions(stream, EACH):
        asked[question.cell].append(question)
    turns = {cell: itertools.cycle(found) for cell, found in asked.items()}

    def turn(cell: Cell) -> float:
        number = next(numbers)
        system.insert(stream.live_batch(number))
        spent = 0.0
        for question in itertools.islice(turns[cell], ASKED):
            ask = question.ask(stream.newest(number + 1))
            began = time.thread_time()
            table = system.query(ask)
            spent += time.thread_time() - began
            if cell in unchecked:
                unchecked.discard(cell)
                if not same(read(table), stream.answer(ask)):
                    raise AssertionError(f"a wrong answer to {ask}")
        return 1e6 * spent / ASKED

    with tempfile.TemporaryDirectory(prefix="beside-grid-") as place:
        system.open(Path(place))
        try:
            system.load(stream.history.batch())
            yield {f"{cell[0]:.0%} of keys, {cell[1]}": lambda cell=cell: turn(cell) for cell in asked}  # type: ignore[misc]
        finally:
            system.close()
