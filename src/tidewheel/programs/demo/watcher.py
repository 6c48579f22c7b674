"""The process that looks: `python -m tidewheel.programs.demo.watcher`. It attaches to the warehouse and asks what people would ask.

Between its questions it fetches the time of every row that is newer than the last one it saw: so it knows of each row how long it took
from the taxi's report until another process could see it. Late reports are left out: they were old when they were sent.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

import tidewheel as tw
from tidewheel.programs.demo.children import Parent
from tidewheel.programs.demo.numbers import LAG_STEP
from tidewheel.programs.fleet import CENTRE

if TYPE_CHECKING:
    from tidewheel.table import Table

BOXES = (0.01, 0.03, 0.1)
"""Degrees from side to side: a crossing, a quarter, a district."""
WINDOWS = (5, 30, None)
"""Seconds up to now; None is all of the time."""
_PAUSE = 0.01  # seconds between two questions: a dashboard's worth, not a load test
_TELL = 0.25


def main() -> None:
    parent = Parent()
    rng = np.random.default_rng(parent.orders["seed"] + 1)
    with tw.open(parent.orders["root"]) as warehouse:
        taxi = warehouse.table("taxi")
        taxi.query(**ask(rng, 0)).to_arrow()
        parent.tell()  # it is ready
        parent.begin.wait()
        watch(taxi, rng, parent)


def watch(taxi: Table, rng: np.random.Generator, parent: Parent) -> None:
    seen = time.time_ns() // 1000
    ms: list[float] = []
    rows, told = 0, time.monotonic()
    lags: Counter[int] = Counter()
    while not parent.end.wait(_PAUSE):
        question = ask(rng, time.time_ns() // 1000)
        asked = time.perf_counter()
        answer = taxi.query(**question).to_arrow()
        ms.append((time.perf_counter() - asked) * 1e3)
        rows += answer.num_rows
        seen, found = newer(taxi, seen)
        lags += found
        if time.monotonic() - told > _TELL:
            parent.tell(ms=ms, rows=rows, lags=lags)
            ms, rows, lags, told = [], 0, Counter(), time.monotonic()
    parent.tell(ms=ms, rows=rows, lags=lags)


def ask(rng: np.random.Generator, now: int) -> dict[str, Any]:
    """A random question: the taxis in some box of the city, lately or at any time."""
    half = BOXES[int(rng.integers(len(BOXES)))] / 2
    lon, lat = rng.normal(CENTRE, (0.12, 0.10))
    window = WINDOWS[int(rng.integers(len(WINDOWS)))]
    since = None if window is None else now - window * 1_000_000
    return {"box": (lon - half, lat - half, lon + half, lat + half), "time": (since, now)}


def newer(taxi: Table, seen: int) -> tuple[int, Counter[int]]:
    """The time of the newest row, and how long the rows after `seen` took to be visible, in steps."""
    found = taxi.query(time=(seen + 1, None), columns=["ts"]).to_arrow()
    now = time.time_ns() // 1000
    if not found.num_rows:
        return seen, Counter()
    times = np.from_dlpack(found.column("ts").combine_chunks().cast("int64"))  # its to_numpy would import pandas first
    steps, counts = np.unique(np.maximum(now - times, 0) // int(LAG_STEP * 1e6), return_counts=True)
    return int(times.max()), Counter(dict(zip(steps.tolist(), counts.tolist(), strict=True)))


if __name__ == "__main__":
    main()
