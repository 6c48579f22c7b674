"""A process that feeds a warehouse, or one that refreshes its derived table: whoever comes first owns the warehouse, the other attaches.

    python -m tests.crash.follower ROOT feed JOURNAL SEED
    python -m tests.crash.follower ROOT refresh JOURNAL duck|spark

Both go on until they are killed. The feeder inserts packages, most of them late, and writes the number of each into its journal once it is
acknowledged; the refresher a line for each pass that committed partitions.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import tidewheel as tw
from tests.crash import derived
from tests.crash.book import SCHEMA, SECOND, Row, arrow
from tidewheel.engine.compute import Compute
from tidewheel.engine.refresher import refresh
from tidewheel.errors import ConflictError, QueryError, SparkError
from tidewheel.testing.duck_compute import DuckCompute
from tidewheel.testing.probe import engine_of

SPAN = 4 * 3600
"""Seconds of time that rows lie in."""


def package(seed: int, number: int) -> list[Row]:
    """The same rows for the same number, always; no two packages have a row in common."""
    rng = random.Random(f"{seed} {number}")
    at = rng.randrange(SPAN) if rng.random() < 0.7 else number % SPAN
    return [(rng.randrange(1000), (at + i) * SECOND, number % 5, 1000 * number + i) for i in range(rng.choice([1, 5, 60]))]


def acknowledged(journal: Path) -> list[int]:
    """The numbers of the packages that are; a line that was being written when its process died counts as none."""
    return [int(line) for line in journal.read_text().split("\n")[:-1]] if journal.exists() else []


def patiently(call: Any) -> Any:
    """The owner may be busy with its start, or die meanwhile."""
    while True:
        try:
            return call()
        except tw.TidewheelError as e:
            if not e.retryable:
                raise
            time.sleep(0.05)


def feed(wh: tw.Warehouse, journal: Path, seed: int) -> None:
    table = patiently(lambda: wh.create_table("t", SCHEMA, time="ts", key="k", if_exists="open"))
    patiently(lambda: derived.derive(wh))
    number = max(acknowledged(journal), default=-1) + 1
    with journal.open("a") as written:
        while True:
            rows = package(seed, number)
            patiently(lambda rows=rows, name=f"p{number}": table.insert(arrow(rows), package=name))
            written.write(f"{number}\n")
            written.flush()
            number += 1
            time.sleep(0.01)


def follow(wh: tw.Warehouse, journal: Path, compute: Compute, *forgiven: type[Exception]) -> None:
    while True:
        for one in patiently(lambda: refresh(engine_of(wh), compute, anew=lambda: engine_of(wh))).tables:
            if one.cause is not None and not (isinstance(one.cause, (ConflictError, *forgiven)) or getattr(one.cause, "retryable", False)):
                raise one.cause
            if one.partitions:
                with journal.open("a") as written:
                    written.write(f"{one.partitions}\n")
        time.sleep(0.005)


def main(root: str, role: str, *more: str) -> None:
    wh = patiently(lambda: tw.open(root))
    if role == "feed":
        feed(wh, Path(more[0]), int(more[1]))
    elif more[1] == "duck":
        follow(wh, Path(more[0]), DuckCompute())
    else:
        from tidewheel.spark import derived_compute

        derived_compute.SMALL = random.choice([-1, derived_compute.SMALL])  # read by Python workers, or handed over
        # Java may die while it starts, and a worker while it plans what tasks read; whoever waits for a pass notices what fails for good
        follow(wh, Path(more[0]), derived_compute.SparkCompute(None, Path(root)), QueryError, SparkError)


if __name__ == "__main__":
    main(*sys.argv[1:])
