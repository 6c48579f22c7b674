"""Nothing lost, nothing twice: every operation on the disk and the catalog fails in every way it can, one at a time.

A *case* is a plan (which operation, which fault) and an ending (what happens to the process and the machine). Operations are counted
in a run without faults first. To run one case alone, give its name, as a failure prints it:

    TIDEWHEEL_CASE="append 3: crash after half the bytes" pytest tests/crash/test_faults.py -k two_servers

Of the default durability, of recovery and of backups every sixth plan is tried, of other durabilities and two servers every 18th, where
chunks leave their table every 15th or 45th, beginning where the seed says, which is printed (TIDEWHEEL_SEED=n). With
TIDEWHEEL_SOAK=1 nothing is left out: also what equals a case before, and every kind of power failure for each fault.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidewheel as tw
from tests.conftest import SOAK, Voice
from tests.crash.book import SECOND, batch
from tests.crash.cases import Enumeration
from tests.crash.world import World
from tidewheel.testing.abandon import quiet_deaths
from tidewheel.write import flush, publish

pytestmark = pytest.mark.timeout(0 if SOAK else 1800)


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


def saved(world: World) -> None:
    """A backup is made, then renewed."""
    world.open()
    world.create()
    world.insert(batch(0, 0))
    world.insert(batch(0, 1))
    world.backup()
    world.insert(batch(1, 1))
    world.replace(batch(4, 0), *EARLY)
    world.backup()
    world.insert(batch(0, 3))


def replaced(world: World) -> None:
    """Chunks leave: one that was flushed, one that was replaced before, one that a result still reads, two of a backup. A chunk that is
    seen in part keeps its mask, which the next one over the same times takes the place of."""
    world.open()
    world.create()
    world.insert(batch(0, 0))
    world.insert(batch(0, 2))
    world.flush()
    world.insert(batch(0, 1))
    world.hold()
    world.replace(batch(4, 0), *EARLY)
    world.insert(batch(1, 0))
    world.backup()
    world.replace(batch(4, 0, at=1)[:3], *EARLY)
    world.read_held()
    world.look_back()
    world.replace(batch(4, 2), *LATER)
    world.insert(batch(2, 9), package="p")
    world.flush()
    world.look()


def after_replaced(world: World) -> None:
    """After `replaced` was killed: recovery brings nothing of it back."""
    world.open()
    world.look()
    world.replace(batch(4, 1), *LATER)
    world.insert(batch(0, 4))
    world.look_back()
    world.flush()


def followed(world: World) -> None:
    """A derived table follows: built, added to, computed anew after rows were taken, refreshed for nothing, backed up."""
    world.open()
    world.create()
    world.derive()
    world.insert(batch(0, 0))
    world.insert(batch(0, 2))
    world.refresh()
    world.insert(batch(1, 0))
    world.insert(batch(2, 3), package="p")
    world.refresh()
    world.replace(batch(4, 0), *EARLY)
    world.refresh()
    world.backup()
    world.replace(batch(4, 0, at=1)[:3], *EARLY)
    world.insert(batch(0, 9))
    world.refresh()
    world.look()


LATER = 0, 2000 * SECOND


# ---- all cases ------------------------------------------------------------------------------------------------


DEATHS = {"memory": "kill", "process": "both", "fsync": "power"}


@pytest.mark.parametrize("durability", DEATHS)
def test_one_server(folder: Path, durability: str) -> None:
    cycle = long if durability == "process" else short
    share = 6 if durability == "process" else 18
    Enumeration(folder, tw.Settings(durability=durability, leaf_rows=4), cycle, deaths=DEATHS[durability], share=share).all()


def test_two_servers(folder: Path) -> None:
    Enumeration(folder, tw.Settings(durability="process", leaf_rows=4, indexing_servers=2), short, share=18).all()


@pytest.mark.parametrize("durability", ["process", "fsync"])
def test_recovery(folder: Path, durability: str) -> None:
    deaths, share = ("power", 18) if durability == "fsync" else ("kill", 6)
    Enumeration(folder, tw.Settings(durability=durability, leaf_rows=4), again, before=short, deaths=deaths, share=share).all()


@pytest.mark.parametrize("durability", ["process", "fsync"])
def test_replaced(folder: Path, durability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "MANY_REMOVED", 1)  # what left is also forgotten
    settings, deaths = tw.Settings(durability=durability, leaf_rows=4), DEATHS[durability]
    share = 15 if durability == "process" else 45
    Enumeration(folder, settings, replaced, deaths=deaths, share=share).all()
    Enumeration(folder, settings, after_replaced, before=replaced, deaths=deaths, share=share).all()


def test_derived(folder: Path, voice: Voice) -> None:
    Enumeration(folder, tw.Settings(durability="process", leaf_rows=4), followed, deaths="both", share=24, say=voice.now).all()


def test_backup(folder: Path) -> None:
    Enumeration(folder, tw.Settings(durability="memory", leaf_rows=4), saved, deaths="power", share=6).all()
