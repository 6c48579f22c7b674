"""Thousands of poisoned batches, through every door, into a process that is killed now and then: refused or right, and never a crash.

The seed is printed; TIDEWHEEL_SEED=n draws the same batches again, whatever the machine does.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import tidewheel as tw
from tests.conftest import SOAK
from tests.crash.poison_child import DOORS, own_rows

SEED = int(os.environ.get("TIDEWHEEL_SEED") or (random.randrange(2**32) if SOAK else 1))
HERE = Path(__file__).parents[2]
BATCHES, KILLS = (20_000, 12) if SOAK else (300, 2)
FIRST = 10_000_000
"""Beyond the numbers that poison is made of: rows whose keys were changed do not turn up among those of others."""


class Run:
    """A process at work, until it has done all that it was told, or is killed."""

    def __init__(self, root: Path, journal: Path, first: int, count: int) -> None:
        arguments = [str(root), str(journal), str(SEED), str(first), str(count)]
        command = [sys.executable, "-m", "tests.crash.poison_child", *arguments]
        self.process = subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.last = first

    def until(self, number: int | None) -> dict[str, int] | None:
        """Kill it once it is at this number; or let it come to its end, and return what it counted."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                counted: dict[str, int] = json.loads(line)
                self.process.communicate()
                assert self.process.returncode == 0
                return counted
            self.last = int(line)
            if self.last == number:
                self.process.send_signal(
                    signal.SIGKILL
                )  # it may come some batches further before it is dead: what it says is read to the end
        said = self.process.communicate()[1]
        ended = self.process.returncode
        assert number is not None and ended == -signal.SIGKILL, (
            f"TIDEWHEEL_SEED={SEED}: it ended with {ended} at {self.last}:\n{said[-4000:]}"
        )
        return None


def journal_of(path: Path) -> dict[int, tuple[str, int]]:
    """What was acknowledged; a line that was being written when its process died counts as none."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return {number: (table, rows) for number, table, rows in map(json.loads, lines)}


def look(root: Path, journal: Path, since: int) -> int:
    """Open the warehouse: all that was acknowledged from a number on is there. Returns how many rows that is."""
    with tw.open(root) as wh:
        found = 0
        for number, (table, rows) in journal_of(journal).items():
            if number >= since:
                there = own_rows(wh.table(table), number).num_rows
                assert there >= rows, f"TIDEWHEEL_SEED={SEED}: batch {number} of {table} had {rows} rows and has {there}"
                found += rows
        return found


@pytest.mark.timeout(900)
def test_poisoned_batches_are_refused_or_right_and_every_good_one_survives(tmp_path: Path) -> None:
    print(f"TIDEWHEEL_SEED={SEED}")
    rng = random.Random(SEED)
    root, journal = tmp_path / "wh", tmp_path / "journal"
    began = time.monotonic()
    counted: Counter[str] = Counter()
    at, kills = FIRST, sorted(rng.sample(range(FIRST + 20, FIRST + BATCHES), KILLS))
    for kill in [*kills, None]:
        run = Run(root, journal, at, FIRST + BATCHES - at)
        counted.update(run.until(kill) or {})
        look(root, journal, at)
        at = run.last + 1
    rows = look(root, journal, FIRST)
    assert at >= FIRST + BATCHES and len(journal_of(journal)) > BATCHES // 20
    with tw.open(root) as wh:
        assert wh.check().ok
    seconds = time.monotonic() - began
    print(f"{BATCHES:,} batches, {len(DOORS)} doors, {KILLS} kills, {rows:,} rows acknowledged and there; {seconds:.0f} s")
    print(f"after the last kill: {', '.join(f'{n:,} {what}' for what, n in counted.most_common())}")
