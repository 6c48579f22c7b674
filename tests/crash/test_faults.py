"""Nothing lost, nothing twice: every operation on the disk and the catalog fails in every way it can, one at a time.

A *case* is a plan (which operation, which fault) and an ending (what happens to the process and the machine). Operations are counted
in a run without faults first. To run one case alone, give its name, as a failure prints it:

    TIDEWHEEL_CASE="append 3: crash after half the bytes" pytest tests/crash/test_faults.py -k two_servers
"""

from __future__ import annotations

import os
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tidewheel as tw
from tests.conftest import SOAK
from tests.crash.book import SECOND, batch
from tests.crash.world import World
from tidewheel.env.faults import DEADLY, FAULTS, Fault, Plan
from tidewheel.env.platter import Loss
from tidewheel.testing.abandon import quiet_deaths
from tidewheel.testing.faulty_catalog import CATALOG_FAULTS
from tidewheel.write import flush

MOST = 200
"""Failures after which the rest is not tried."""
ONLY = os.environ.get("TIDEWHEEL_CASE", "")
Cycle = Callable[[World], None]


@dataclass(frozen=True, slots=True)
class Case:
    plan: Plan | None
    closes: bool = True
    """The process closes the warehouse, if it comes to that; else it is killed at the end."""
    loss: Loss | None = None
    """The power fails after."""

    def __str__(self) -> str:
        dies = self.plan is not None and self.plan.fault in DEADLY
        ending = [] if dies else ["it is closed" if self.closes else "it is killed"]
        ending += [f"the power fails: {self.loss}"] if self.loss else []
        return ", then ".join([str(self.plan), *ending])


@dataclass(frozen=True, slots=True)
class Outcome:
    met: bool
    """The planned operation was reached."""
    risk: bool
    """A power failure would have changed something when the process was dead."""
    counts: Counter[str]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: the twin decides what is durable, so a real disk would only be slow."""
    memory = Path("/dev/shm")
    folder = memory / f"tidewheel-{os.getpid()}" if os.access(memory, os.W_OK) else tmp_path
    folder.mkdir(exist_ok=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(flush, "RETRY_SECONDS", 0.002)
    with quiet_deaths():
        yield


# ---- cycles ---------------------------------------------------------------------------------------------------


def long(world: World) -> None:
    """A table's first day: small batches of several streams, packages, bad rows, late rows, a replacement, flushes."""
    world.open()
    world.create()
    world.insert(batch(0, 0))
    world.insert(batch(2, 1), package="p")
    world.insert(batch(3, 1), bad=1)
    world.insert(batch(0, 1))
    world.flush()
    world.insert(HALF_LATE)
    world.insert([], package="empty")
    world.replace(batch(4, 0), *EARLY)
    world.insert(batch(2, 2), package="q")
    world.flush()
    world.insert(batch(0, 3))
    world.look()


def short(world: World) -> None:
    world.open()
    world.create()
    world.insert(batch(0, 0))
    world.insert(batch(0, 1))
    world.flush()
    world.insert(HALF_LATE)
    world.insert(batch(2, 2), package="p")
    world.replace(batch(4, 0), *EARLY)
    world.insert(batch(0, 3))
    world.look()


def again(world: World) -> None:
    """After `short` was killed: recovery, and going on."""
    world.open()
    world.insert(batch(0, 4))
    world.flush()
    world.insert(batch(1, 4))
    world.look()


HALF_LATE = batch(1, 1, at=-3600)[:3] + batch(1, 1)[3:]
EARLY = 0, 602 * SECOND
"""The times of number 0, and of half of stream 0's number 1."""

# ---- all cases ------------------------------------------------------------------------------------------------


def run(root: Path, settings: tw.Settings, cycle: Cycle, case: Case, before: Cycle | None = None) -> Outcome:
    """One case from an empty folder to the last check."""
    world = World(root, settings)
    if before is not None:
        world.live(before)

    def whole(world: World) -> None:
        cycle(world)
        if case.closes:
            world.close()

    disk = world.live(whole, case.plan)
    outcome = Outcome(disk.met, disk.platter.at_risk(), disk.counts)
    if case.plan is not None and not disk.met:
        return outcome
    if case.loss is not None:
        disk.lose_power(case.loss)
    if case.plan is not None and case.plan.fault == Fault.LOST:
        world.search()
    else:
        world.verify("acked" if settings.durability == "fsync" or settings.durability == "process" and not case.loss else "flushed")
    return outcome


class Enumeration:
    """Every operation of a cycle meets every fault, and then the process ends in every way that can make a difference."""

    def __init__(self, folder: Path, settings: tw.Settings, cycle: Cycle, before: Cycle | None = None) -> None:
        self.cases = 0
        self.failures: list[str] = []
        self._durability = settings.durability
        self._run = lambda root, case: run(root, settings, cycle, case, before)
        self._folder = folder

    def all(self) -> None:
        began = time.process_time()
        counts = self._one(Case(None)).counts
        faults = FAULTS | CATALOG_FAULTS
        plans = [Plan(kind, n + 1, fault) for kind, count in counts.items() for n in range(count) for fault in faults[kind]]
        for n, plan in enumerate(plans):
            if len(self.failures) <= MOST:
                (self._dies if plan.fault in DEADLY else self._lives)(plan, list(Loss)[n % len(Loss)])
        took = time.process_time() - began
        print(f"{counts.total()} operations {dict(counts)}, {len(plans)} faults, {self.cases} cases, {took:.1f} s of CPU")
        if self.failures:
            pytest.fail(f"{len(self.failures)} of {self.cases} cases failed:\n\n" + "\n".join(self.failures), pytrace=False)

    def _dies(self, plan: Plan, loss: Loss) -> None:
        """A log that is synced is tested by power failures; one that is not, by them and by kills; no log, by kills."""
        power = [Case(plan, loss=each) for each in (Loss if SOAK else [loss])]
        if self._durability == "fsync" or self._one(Case(plan)).risk and self._durability == "process":
            for case in power:
                self._one(case)

    def _lives(self, plan: Plan, loss: Loss) -> None:
        """The process goes on. Its log is tested by killing it at the end, unless the fault comes as late as the close."""
        memory = self._durability == "memory"
        ending = Loss.ALL if plan.fault == Fault.LOST else loss if self._durability == "fsync" else None
        if not (self._one(Case(plan, closes=memory, loss=ending)).met or not memory and self._one(Case(plan, loss=ending)).met):
            self.failures.append(f"{plan} was never reached")

    def _one(self, case: Case) -> Outcome:
        if ONLY and case.plan and str(case) != ONLY:
            return Outcome(True, True, Counter())
        self.cases += 1
        root = self._folder / str(self.cases)
        root.mkdir()
        try:
            return self._run(root / "w", case)
        except Exception:
            self.failures.append(f"{case}\n{traceback.format_exc(limit=-4, chain=False)}")
            return Outcome(True, True, Counter())
        finally:
            shutil.rmtree(root)


@pytest.mark.parametrize("durability", ["memory", "process", "fsync"])
def test_one_server(folder: Path, durability: str) -> None:
    cycle = long if durability == "process" else short
    Enumeration(folder, tw.Settings(durability=durability, leaf_rows=4), cycle).all()


def test_two_servers(folder: Path) -> None:
    Enumeration(folder, tw.Settings(durability="process", leaf_rows=4, indexing_servers=2), short).all()


@pytest.mark.parametrize("durability", ["process", "fsync"])
def test_recovery(folder: Path, durability: str) -> None:
    Enumeration(folder, tw.Settings(durability=durability, leaf_rows=4), again, before=short).all()
