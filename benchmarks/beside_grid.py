"""The grid of `benchmarks/grid.py` for `benchmarks/beside.py`: each cell's queries between live batches, by the asking thread's time."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import data
from benchmarks.grid import SELECTIVITIES, WINDOWS, Cell, questions
from benchmarks.peers import Tidewheel, same
from benchmarks.reader import read
from benchmarks.stream import Stream

ROWS = 8_000_000
"""160 s of stream: the windows of five minutes are cut to 128 s."""
EACH = 12
"""Positions in a cell; two more that do not count."""


def measured(folder: str | None) -> dict[str, float]:
    """Microseconds of one query, the median of its cell. A live batch goes in before each query, by the same thread."""
    stream = Stream(data.load(folder, ROWS))
    system = Tidewheel()
    spent: dict[Cell, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="beside-grid-") as place:
        system.open(Path(place))
        system.load(stream.history.batch())
        time.sleep(2.0)  # what the load has left to write would go on beside the first queries
        try:
            for number, question in enumerate(questions(stream, EACH + 2)):
                system.insert(stream.live_batch(number))
                ask = question.ask(stream.newest(number + 1))
                began = time.thread_time()
                table = system.query(ask)
                spent.setdefault(question.cell, []).append(time.thread_time() - began)
                if number % (EACH + 2) == 0 and not same(read(table), stream.answer(ask)):
                    raise AssertionError(f"a wrong answer to {ask}")
        finally:
            system.close()
    cells = [(share, name) for share in SELECTIVITIES for name, _ in WINDOWS]
    return {f"{share:.0%} of keys, {name}": 1e6 * statistics.median(spent[share, name][2:]) for share, name in cells}
