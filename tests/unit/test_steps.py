"""The thread that does the calls of the main thread: whoever closes it, nobody waits for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from tidewheel.env.steps import Aside


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
