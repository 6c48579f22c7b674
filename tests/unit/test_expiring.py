"""Things that expire: kept while they are touched, and let go of outside of the lock."""

from __future__ import annotations

import weakref

from tidewheel.env.clock import Clock
from tidewheel.env.expiring import Expiring


class Hand(Clock):
    """A clock that is set by hand."""

    at = 0.0

    def monotonic(self) -> float:
        return self.at


class Thing:
    pass


def names(kept: Expiring[str, int]) -> list[str]:
    return [name for name, _ in kept.items()]


def test_a_touch_makes_it_last_and_nothing_else_does() -> None:
    clock = Hand()
    kept: Expiring[str, int] = Expiring(clock, 10.0)
    for name in "abc":
        kept.put(name, 1)
    clock.at = 9.0
    assert kept.get("a") == 1
    kept.touch("b")
    kept.touch("missing")
    assert len(kept) == 3 and kept.touched_within(0.0)
    clock.at = 11.0
    assert not kept.touched_within(1.0) and kept.touched_within(2.0)
    kept.sweep()
    assert names(kept) == ["a", "b"] and kept.get("c") is None
    kept.touch("a")
    clock.at = 20.0
    kept.put("d", 2)
    assert names(kept) == ["a", "d"]  # `put` sweeps
    kept.pop("a")
    kept.drop("d".__eq__)
    assert len(kept) == 0


def test_some_last_shorter_and_some_stay() -> None:
    clock = Hand()
    kept: Expiring[str, int] = Expiring(clock, 10.0, stays="x".__eq__)
    for name in "abx":
        kept.put(name, 1)
    kept.touch("a", 2.0)
    clock.at = 1.0
    kept.touch("a")
    clock.at = 3.5
    kept.sweep()
    assert names(kept) == ["b", "x"]
    clock.at = 99.0
    kept.sweep()
    assert names(kept) == ["x"]


def test_beyond_the_most_the_one_touched_longest_ago_goes() -> None:
    clock = Hand()
    kept: Expiring[str, int] = Expiring(clock, 10.0, most=2)
    for at, name in enumerate("ab"):
        clock.at = at
        kept.put(name, 1)
    clock.at = 2.0
    kept.touch("a")
    kept.put("c", 1)
    assert names(kept) == ["a", "c"]


def test_values_go_outside_of_the_lock() -> None:
    """Each asks the table when it goes: inside of the lock that would wait for ever."""
    clock = Hand()
    kept: Expiring[str, Thing] = Expiring(clock, 10.0)
    seen: list[int] = []

    def put(name: str) -> None:
        thing = Thing()
        weakref.finalize(thing, lambda: seen.append(len(kept)))
        kept.put(name, thing)

    put("a")
    put("a")
    kept.pop("a")
    put("b")
    kept.drop("b".__eq__)
    put("c")
    clock.at = 11.0
    kept.sweep()
    assert seen == [1, 0, 0, 0]
