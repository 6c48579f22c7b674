"""Kill -9 of the process that owns a warehouse, and of the one that refreshes its derived table, again and again.

After each death the next process goes on; at the end all acknowledged packages are there, each partition of the derived table has the rows
of its query at its vector, and one more pass brings it to the query over what is there. `make test` kills twice with DuckDB as the
computer; the soak a hundred times, and twenty more with Spark: there its Java process and its Python workers die, too, under a refresher
that lives on.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

import tidewheel as tw
from tests.conftest import SOAK, Voice
from tests.crash import derived
from tests.crash.book import rows_of
from tests.crash.campaign import end_all
from tests.crash.campaign_mishaps import kill_owner
from tests.crash.follower import acknowledged, package
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.testing.probe import engine_of

HERE = Path(__file__).parents[2]
SEED = int(os.environ.get("TIDEWHEEL_SEED") or random.randrange(2**32))

PATIENCE = 300 if SOAK else 90
"""Seconds: on a busy machine a session of Spark took 42 of them to start, its first pass nine."""

pytestmark = pytest.mark.timeout(3600 if SOAK else 240)


class Followers:
    """A feeder and a refresher."""

    def __init__(self, root: Path, journal: Path, computer: str) -> None:
        passes = journal.with_name("passes")
        self._words = {"feed": [str(journal), str(SEED)], "refresh": [str(passes), computer]}
        self._root = root
        self._journals = {"feed": journal, "refresh": passes}
        self.of = {role: self._start(role) for role in self._words}

    def _start(self, role: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "tests.crash.follower", str(self._root), role, *self._words[role]]
        return subprocess.Popen(words, cwd=HERE, stderr=subprocess.PIPE, text=True)

    def done(self, role: str) -> int:
        """Packages that were acknowledged, passes that committed partitions."""
        return len(acknowledged(self._journals[role]))

    def wait_for_more(self, role: str, many: int) -> None:
        """Until so many more are done; both are to live meanwhile."""
        wanted, give_up = self.done(role) + many, time.monotonic() + PATIENCE
        while self.done(role) < wanted:
            for one, process in self.of.items():
                if process.poll() is not None:
                    pytest.fail(f"{one} ended by itself:\n{process.stderr.read()[-3000:] if process.stderr else ''}")
            assert time.monotonic() < give_up, f"{role}: nothing is done any more"
            time.sleep(0.01)

    def kill(self, role: str) -> None:
        process = self.of[role]
        others = self._of_spark(role)
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
        end_all(others)

    def replace(self, role: str) -> None:
        self.kill(role)
        self.of[role] = self._start(role)

    def strike(self, what: str) -> int:
        """Kill Java, or the Python workers, of the refresher, which lives on and has to do without. Returns how many there were."""
        found = [one for one in self._of_spark("refresh") if (_name(one) == "java") == (what == "java")]
        for one in found:
            with suppress(psutil.Error):
                one.kill()
        return len(found)

    def _of_spark(self, role: str) -> list[psutil.Process]:
        with suppress(psutil.Error):
            return psutil.Process(self.of[role].pid).children(recursive=True)
        return []


def _name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return str(process.name())
    return ""


@contextmanager
def followers(folder: Path, computer: str) -> Iterator[Followers]:
    both = Followers(folder / "wh", folder / "journal", computer)
    try:
        yield both
    finally:
        for role in both.of:
            both.kill(role)


def opened(root: Path) -> tw.Warehouse:
    """Owned by this process. A task of Spark that came when nobody did may have started an owner that has not ended yet."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        wh = tw.open(root)
        if isinstance(engine_of(wh), OwnedEngine):
            return wh
        wh.close()
        kill_owner(root)
        time.sleep(0.1)
    raise AssertionError("somebody owns the warehouse")


def killed(folder: Path, computer: str, kills: int, voice: Voice) -> None:
    """Of the kills of a refresher most come after a pass of it, some while it starts: to start Spark takes longer than many packages."""
    print(f"TIDEWHEEL_SEED={SEED}")
    rng = random.Random(SEED)
    dead: Counter[str] = Counter()
    with followers(folder, computer) as both:
        try:
            while dead.total() < kills:
                both.wait_for_more("feed", rng.randint(3, 30))
                if rng.random() < 0.7:
                    both.wait_for_more("refresh", 1)
                time.sleep(rng.random() * 0.3)
                role = rng.choice(["feed", "refresh"] if computer == "duck" else ["feed", "refresh", "java", "java", "workers"])
                if role in both.of:
                    both.replace(role)
                    dead[role] += 1
                else:
                    dead[role] += both.strike(role) > 0
            both.wait_for_more("feed", 5)
            both.wait_for_more("refresh", 1)
        finally:
            done = f"{both.done('feed')} packages, {both.done('refresh')} passes with commits"
            voice.at_the_end(f"TIDEWHEEL_SEED={SEED}: kills {dict(dead)}, {done}")
    with opened(folder / "wh") as wh:
        found = set(rows_of(wh.table("t").query().to_arrow()))
        for number in acknowledged(folder / "journal"):
            assert found >= set(package(SEED, number)), f"package {number} was acknowledged and is gone"
        derived.check(wh)
        derived.refresh_all(wh)
        derived.check_all(wh)
        assert wh.check().ok


def test_kills(tmp_path: Path, voice: Voice) -> None:
    killed(tmp_path, "duck", 100 if SOAK else 2, voice)


@pytest.mark.skipif(not SOAK, reason="minutes of Spark: random DAGs on it are in test_spark_dags, its deaths in the soak")
def test_kills_with_spark(tmp_path: Path, voice: Voice) -> None:
    killed(tmp_path, "spark", 20, voice)
