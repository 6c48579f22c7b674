"""Cases: which operation meets which fault, and how the process and the machine end after. All of them, one at a time."""

from __future__ import annotations

import os
import random
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import tidewheel as tw
from tests.conftest import SOAK
from tests.crash.world import World
from tidewheel.env.faults import DEADLY, FAULTS, Fault, FaultPlan
from tidewheel.env.power_loss import Loss
from tidewheel.testing.faulty_catalog import CATALOG_FAULTS

SEED = int(os.environ.get("TIDEWHEEL_SEED") or random.randrange(2**32))
MOST = 20
"""Failures after which the rest is not tried."""
ONLY = os.environ.get("TIDEWHEEL_CASE", "")

UNNAMED = ("sink", "write")
"""Operations on files that have no name yet: a power failure finds what it found before the flush."""

KNOWN: dict[tuple[str, Fault], tuple[str, ...]] = {}
"""Defects that are known, and the signs of them: a case that shows one is reported and fails nothing. Empty this."""

Cycle = Callable[[World], None]


@dataclass(frozen=True, slots=True)
class Case:
    plan: FaultPlan | None
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


def run(root: Path, settings: tw.Settings, cycle: Cycle, case: Case, before: Cycle | None = None, again: bool = True) -> Outcome:
    """One case from an empty folder to the last check. `again`: what the check itself wrote is looked for once more."""
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
        kept = settings.durability == "fsync" or settings.durability == "process" and not case.loss
        world.verify("acked" if kept else "flushed", again)
    return outcome


class Enumeration:
    """Every operation of a cycle meets every fault, and then the process ends in every way that can make a difference."""

    def __init__(
        self,
        folder: Path,
        settings: tw.Settings,
        cycle: Cycle,
        before: Cycle | None = None,
        deaths: str = "kill",
        share: int = 1,
        say: Callable[[str], None] = print,
    ) -> None:
        """`deaths`: "kill", "power", which a kill leaves more than, or "both", where they are promised different things.

        `share`: only every so many-th plan is tried, beginning where the seed says; all of them in a soak.
        `say`: from time to time, how far a soak is.
        """
        self._folder = folder
        self._settings = settings
        self._cycle = cycle
        self._before = before
        self._deaths = deaths
        self._share = 1 if SOAK or ONLY else share
        self._say = say
        self._cases = 0
        self._known: list[str] = []
        self._failures: list[str] = []

    def all(self) -> None:
        print(f"TIDEWHEEL_SEED={SEED}")
        began = time.process_time()
        counts = self._one(Case(None)).counts
        plans = [
            (FaultPlan(kind, nth, fault), list(Loss) if SOAK else [list(Loss)[(nth + number) % len(Loss)]])
            for kind, count in counts.items()
            for nth in range(1, count + 1)
            for number, fault in enumerate((FAULTS | CATALOG_FAULTS)[kind])
            if SOAK or not _equals_the_next(kind, fault)
        ][SEED % self._share :: self._share]
        for number, (plan, losses) in enumerate(plans):
            if SOAK and number % 100 == 0:
                self._say(f"{number} of {len(plans)} plans, {self._cases} cases, {len(self._failures)} failures; next is {plan}")
            if len(self._failures) <= MOST:
                (self._dies if plan.fault in DEADLY else self._lives)(plan, losses)
        if ONLY and self._cases < 2:
            pytest.fail(f"there is no case {ONLY!r} among these: give its whole name, as a failure prints it", pytrace=False)
        took = time.process_time() - began
        print(f"{counts.total()} operations {dict(counts)}, {len(plans)} plans, {self._cases} cases, {took:.1f} s of CPU")
        print(f"{len(self._known)} cases met a known defect", *self._known, sep="\n")
        if self._failures:
            pytest.fail(f"{len(self._failures)} of {self._cases} cases failed:\n\n" + "\n".join(self._failures), pytrace=False)

    def _dies(self, plan: FaultPlan, losses: list[Loss]) -> None:
        killed = self._one(Case(plan)) if self._deaths != "power" or SOAK else None
        if self._deaths == "power" or SOAK or killed and killed.risk and self._deaths == "both" and plan.operation not in UNNAMED:
            for loss in losses:
                self._one(Case(plan, loss=loss))

    def _lives(self, plan: FaultPlan, losses: list[Loss]) -> None:
        """The process goes on. Its log is tested by killing it at the end, unless the fault comes as late as the close."""
        log = self._settings.durability != "memory"
        if plan.fault == Fault.LOST:
            endings: list[Loss | None] = [Loss.ALL]
        else:
            endings = [*losses] if self._deaths == "power" else [None]
        for loss in endings:
            met = self._one(Case(plan, closes=not log, loss=loss)).met
            if not met or SOAK:
                met = self._one(Case(plan, closes=log, loss=loss)).met or met
            if not met:
                self._failures.append(f"{plan} was never reached")

    def _one(self, case: Case) -> Outcome:
        if ONLY and case.plan and str(case) != ONLY:
            return Outcome(True, True, Counter())
        self._cases += 1
        root = self._folder / str(self._cases)
        root.mkdir()
        try:
            return run(root / "w", self._settings, self._cycle, case, self._before, again=SOAK or self._cases % 3 == 0)
        except Exception as e:
            known = case.plan and any(sign in str(e) for sign in KNOWN.get((case.plan.operation, case.plan.fault), ()))
            (self._known if known else self._failures).append(f"{case}\n{traceback.format_exc(limit=-4, chain=False)}")
            return Outcome(True, True, Counter())
        finally:
            shutil.rmtree(root)


def _equals_the_next(kind: str, fault: Fault) -> bool:
    """To die after an operation is to die before the next one, which may only have been promised more. Where bytes or a commit make a
    difference to what was promised, both are tried."""
    return fault == Fault.CRASH_AFTER and kind not in ("append", "commit")
