"""Many waits at once: each is done, each failure is told, whatever threads there are."""

from __future__ import annotations

import threading

import pytest

from tidewheel.env.together import MOST, together


def test_each_is_done_and_tells_how_it_failed() -> None:
    done: list[int] = []

    def act(n: int) -> None:
        done.append(n)
        if n % 10 == 3:
            raise OSError(n, "no")

    failures = together(act, list(range(50)))
    assert sorted(done) == list(range(50))
    assert [(n, e.errno) for n, e in enumerate(failures) if e is not None] == [(n, n) for n in (3, 13, 23, 33, 43)]
    assert together(act, []) == []


def test_they_wait_at_the_same_time() -> None:
    barrier = threading.Barrier(MOST, timeout=30)
    assert together(lambda _: barrier.wait() and None, list(range(MOST))) == [None] * MOST


def test_anything_else_is_raised_when_all_are_done() -> None:
    done: list[int] = []

    def act(n: int) -> None:
        done.append(n)
        if n == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        together(act, list(range(20)))
    assert sorted(done) == list(range(20))


def test_without_threads_the_caller_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of the interpreter, when a warehouse is flushed that nobody closed."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    assert together(done.append, list(range(5))) == [None] * 5
    assert done == list(range(5))
