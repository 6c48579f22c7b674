"""Java dies under a computer of derived tables: a session that nobody gave is started anew, and an error says whose turn it is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tidewheel.errors import SparkError
from tidewheel.spark import derived_compute, jvm
from tidewheel.spark.derived_compute import SparkCompute


class Sessions:
    """Sessions and the Java process of the last of them, which dies when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Any] = []
        self.is_dead = False
        self.used: list[Any] = []
        monkeypatch.setattr(jvm, "is_over", lambda session: self.is_dead or session is not self.made[-1])
        for name, replacement in {
            "launched": lambda: not self.is_dead,
            "died": lambda patience: self.is_dead,
            "session_for": lambda spark: self.new(),
            "session_anew": self.new,
            "check_version": lambda *_: None,
        }.items():
            monkeypatch.setattr(derived_compute, name, replacement)
        monkeypatch.setattr(SparkCompute, "_pinned", lambda compute, definition, sources: self.use(compute._spark))

    def new(self) -> Any:
        self.is_dead = False
        self.made.append(SimpleNamespace())
        return self.made[-1]

    def use(self, session: Any) -> int:
        self.used.append(session)
        if self.is_dead:
            raise ConnectionRefusedError
        return len(self.used)


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    return Sessions(monkeypatch)


def run(compute: SparkCompute) -> Any:
    return compute.run(None, {})  # type: ignore[arg-type]


def test_a_session_that_nobody_gave_is_started_anew(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    compute = SparkCompute(None, Path())
    assert (run(compute), run(compute)) == (1, 2) and len(sessions.made) == 1
    sessions.is_dead = True  # between two runs: nobody notices
    assert run(compute) == 3 and sessions.used == [sessions.made[0], sessions.made[0], sessions.made[1]]

    def dies(*_: Any) -> None:
        sessions.is_dead = True

    monkeypatch.setattr(derived_compute, "check_version", dies)  # in the middle of one
    with pytest.raises(SparkError, match="Java process died; it is started anew") as failed:
        run(compute)
    assert failed.value.retryable
    monkeypatch.setattr(derived_compute, "check_version", lambda *_: None)
    assert run(compute) == 5 and len(sessions.made) == 3


def test_a_session_that_was_given_is_its_givers_to_start(sessions: Sessions) -> None:
    compute = SparkCompute(sessions.new(), Path())
    assert run(compute) == 1
    sessions.is_dead = True
    for _ in range(2):
        with pytest.raises(SparkError, match="the Spark session that was given has ended: start a new one") as failed:
            run(compute)
        assert not failed.value.retryable
    assert len(sessions.made) == 1 and len(sessions.used) == 1


def test_an_error_while_java_lives_stays_as_it_is(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(derived_compute, "check_version", fails)
    with pytest.raises(ZeroDivisionError):
        run(SparkCompute(None, Path()))
