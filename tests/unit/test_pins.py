"""Versions that others read: one for all scans of an execution, and never two for one scan."""

from __future__ import annotations

from typing import Any

import pytest

from tidewheel.env.clock import Clock
from tidewheel.errors import NotFoundError
from tidewheel.read.pins import EXPIRES, MOST, SOON, Pins


class Hand(Clock):
    """A clock that is set by hand."""

    at = 0.0

    def monotonic(self) -> float:
        return self.at


class Versions:
    """Each look sees a newer one."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Any:
        self.count += 1
        return f"version {self.count}"


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def pins(clock: Hand) -> Pins:
    return Pins(clock)


@pytest.fixture
def versions() -> Versions:
    return Versions()


def test_without_a_name_each_has_its_own(pins: Pins, versions: Versions) -> None:
    (one, first), (two, second) = pins.hold(versions), pins.hold(versions)
    assert (first, second) == ("version 1", "version 2") and one != two
    assert pins.get(one) == "version 1" and one.startswith(f"{pins.era}.")


def test_all_tasks_and_scans_of_an_execution_read_one(pins: Pins, versions: Versions) -> None:
    held = {pins.hold(versions, "execution 7", scan) for scan in ("a", "b", "a")}
    assert len(held) == 1 and versions.count == 1
    assert pins.hold(versions, "execution 8", "a")[1] == "version 2"


def test_it_goes_soon_after_all_scans_that_came_were_read(pins: Pins, versions: Versions, clock: Hand) -> None:
    name, _ = pins.hold(versions, "e", "a")
    pins.hold(versions, "e", "b")
    pins.touch(name, 0, 2, "a")
    pins.touch(name, 1, 2, "a")
    clock.at += SOON + 1  # b has not been read
    assert len(pins) == 1
    pins.touch(name, 0, 1, "b")
    clock.at += SOON - 1
    assert len(pins) == 1
    clock.at += 2
    assert len(pins) == 0
    with pytest.raises(NotFoundError, match="not held any more"):
        pins.get(name)


def test_a_task_that_comes_too_late_gets_no_other_version(pins: Pins, versions: Versions, clock: Hand) -> None:
    name, _ = pins.hold(versions, "e", "a")
    pins.touch(name, 0, 1, "a")
    clock.at += SOON + 1
    assert len(pins) == 0
    with pytest.raises(NotFoundError, match="not held any more"):
        pins.hold(versions, "e", "a")
    assert pins.hold(versions, "e", "b")[1] == "version 2"  # a scan that begins now reads what is there now
    with pytest.raises(NotFoundError):
        Pins(clock).get(name)  # of another owner


def test_those_of_the_dead_go_and_so_do_the_oldest_of_too_many(pins: Pins, versions: Versions, clock: Hand) -> None:
    pins.hold(versions, "e", "a")
    clock.at += EXPIRES + 1
    assert len(pins) == 0
    for number in range(MOST + 10):
        clock.at += 1
        pins.hold(versions, f"e{number}", "a")
    assert len(pins) == MOST
    with pytest.raises(NotFoundError):
        pins.hold(versions, "e9", "a")
    assert pins.hold(versions, "e10", "a")[1] == f"version {1 + 11}"
