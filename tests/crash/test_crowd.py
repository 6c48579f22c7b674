"""Many processes insert and query one warehouse while its owner is killed again and again: nothing lost, nothing twice.

The seed is printed; TIDEWHEEL_SEED=n draws the same numbers again (what the processes do in which order is up to the machine).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.compute as pc
import pytest

import tidewheel as tw
from tests.conftest import SOAK
from tests.crash.crowd import read_journal, wrong

SEED = int(os.environ.get("TIDEWHEEL_SEED") or random.randrange(2**32))
HERE = Path(__file__).parents[2]
PROCESSES, KILLS, SECONDS = (8, 5, 60.0) if SOAK else (3, 1, 4.0)


class Crowd:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "wh"
        self.stop = folder / "stop"
        self.folder = folder
        self.starts = 0
        self.of: dict[int, subprocess.Popen[str]] = {who: self.start(who) for who in range(PROCESSES)}

    def journal(self, who: int) -> Path:
        return self.folder / f"journal-{who}"

    def start(self, who: int) -> subprocess.Popen[str]:
        self.starts += 1
        arguments = [str(self.root), str(who), str(self.journal(who)), str(self.stop), str(SEED + self.starts)]
        return subprocess.Popen([sys.executable, "-m", "tests.crash.crowd", *arguments], cwd=HERE, stderr=subprocess.PIPE, text=True)

    def owner(self) -> int | None:
        """Which of us is the owner now, if any is for sure."""
        try:
            pid = json.loads((self.root / "owner.lock").read_text())["pid"]
        except (OSError, ValueError, KeyError):
            return None
        return next((who for who, process in self.of.items() if process.pid == pid), None)

    def kill_owner(self) -> None:
        give_up = time.monotonic() + 30
        while (who := self.owner()) is None:
            assert time.monotonic() < give_up, "there is no owner"
            self.look()
            time.sleep(0.01)
        os.kill(self.of[who].pid, signal.SIGKILL)
        self.of[who].communicate()
        self.of[who] = self.start(who)

    def look(self) -> None:
        for who, process in self.of.items():
            assert process.poll() is None, f"process {who} ended: {process.communicate()[1][-3000:]}"

    def end(self) -> None:
        for process in self.of.values():
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.mark.timeout(300)
def test_many_processes_and_owners_that_die(tmp_path: Path) -> None:
    print(f"TIDEWHEEL_SEED={SEED}")
    rng = random.Random(SEED)
    crowd = Crowd(tmp_path)
    try:
        give_up = time.monotonic() + 60
        while not all(crowd.journal(who).exists() and crowd.journal(who).stat().st_size for who in crowd.of):
            assert time.monotonic() < give_up, "not all processes could insert"
            crowd.look()
            time.sleep(0.05)
        began = time.monotonic()
        for kill in range(KILLS):
            while time.monotonic() < began + SECONDS * (kill + rng.random()) / KILLS:
                crowd.look()
                time.sleep(0.05)
            crowd.kill_owner()
        while time.monotonic() < began + SECONDS:
            crowd.look()
            time.sleep(0.05)
        crowd.stop.touch()
        for who, process in crowd.of.items():
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, f"process {who}: {said[-3000:]}"
    finally:
        crowd.end()
    with tw.open(crowd.root) as wh:
        table = wh.table("t").query().to_arrow()
        total = 0
        for who in crowd.of:
            acknowledged = read_journal(crowd.journal(who))
            total += sum(acknowledged.values())
            assert not (bad := wrong(table.filter(pc.equal(table["who"], who)), acknowledged)), f"process {who}: {bad}"
        assert wh.check().ok
    print(f"{PROCESSES} processes, {KILLS} owners killed, {total:,} rows acknowledged, {table.num_rows:,} there")
    assert total > 1000
