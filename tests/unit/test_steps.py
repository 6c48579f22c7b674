"""Work that another thread does: an outcome comes once and stays nowhere, and nobody waits for ever for a thread that is closed."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from tidewheel.env.steps import Aside, Step


class LastMoment(SimpleQueue[Any]):
    """Something happens just before a job comes to it, or just after."""

    def __init__(self, happen: Callable[[], None], before: bool) -> None:
        self.happen, self.before = happen, before

    def put(self, job: Any, block: bool = True, timeout: float | None = None) -> None:
        if job is None:
            return super().put(job)
        if self.before:
            self.happen()
        super().put(job)
        if not self.before:
            self.happen()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("before", [True, False])
def test_what_is_asked_while_it_is_closed_is_done(before: bool) -> None:
    aside = Aside()
    aside._jobs = LastMoment(aside.close, before)
    assert [aside.run(lambda n=n: n) for n in range(3)] == [0, 1, 2]  # type: ignore[misc]


@pytest.mark.timeout(20)
def test_closed_by_another_thread() -> None:
    for _ in range(200):
        aside = Aside()
        closing = threading.Thread(target=aside.close)
        aside.start()
        closing.start()
        assert aside.run(lambda: 5) == 5
        assert aside.run(lambda: 6) == 6
        closing.join()


def test_what_goes_wrong_is_told_and_the_rest_is_done_at_the_end() -> None:
    aside = Aside()
    done: list[int] = []
    with pytest.raises(ZeroDivisionError):
        aside.run(lambda: 1 // 0)
    aside.later(lambda: (time.sleep(0.1), done.append(1)))
    aside.close()
    assert done == [1]


class Thing:
    pass


def test_a_step_has_one_outcome() -> None:
    step = Step(lambda: (threading.current_thread().name, threading.get_ident()))
    step.start("tidewheel-test")
    assert step.wait() and step.wait(0.0)
    assert step.outcome() == ("tidewheel-test", step.thread)
    failing = Step(lambda: 1 // 0)
    failing.do()
    with pytest.raises(ZeroDivisionError):
        failing.outcome()


def test_a_step_that_nobody_wants_is_not_begun() -> None:
    done: list[int] = []
    step = Step(lambda: done.append(1))
    step.give_up()
    step.start("tidewheel-test")
    assert step.wait(10) and done == []


@pytest.mark.parametrize("early", [True, False])
def test_what_comes_of_a_step_that_was_given_up_is_dropped(early: bool) -> None:
    """By the thread that does it, if it is given up meanwhile; else by whoever gives it up."""
    go = threading.Event()
    made: list[weakref.ref[Thing]] = []

    def work() -> Thing:
        thing = Thing()
        made.append(weakref.ref(thing))
        assert not early or go.wait(10)
        return thing

    step = Step(work)
    step.start("tidewheel-test")
    if early:
        while not made:
            time.sleep(0.001)
        step.give_up()
        go.set()
    assert step.wait(10)
    step.give_up()
    assert made[0]() is None


def test_an_error_is_not_held_by_its_own_traceback() -> None:
    """Its frames hold what the step worked with, and a circle would keep that until some later collection."""
    gc.disable()
    try:
        thing = Thing()
        gone = weakref.ref(thing)

        def work(thing: Thing = thing) -> None:
            raise ValueError("no")

        step = Step(work)
        del work, thing
        step.start("tidewheel-test")
        step.wait()
        with pytest.raises(ValueError, match="no") as told:
            step.outcome()
        del told, step
        assert gone() is None
    finally:
        gc.enable()
