"""A clock whose hand a test moves: a query takes as long as the test says, however busy the machine is."""

from __future__ import annotations

import time

import pytest


class HandClock:
    """In the place of `time.perf_counter`."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


def hand_clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """The time of queries and statements is told by it until the test is over. The thread that ends a late statement keeps real time."""
    clock = HandClock()
    for place in ("tidewheel.read.limits", "tidewheel.sql.execution", "tidewheel.sql.apart_reading"):
        monkeypatch.setattr(f"{place}.perf_counter", clock)
    monkeypatch.setattr(time, "perf_counter", clock)  # as the modules of `read` ask it
    return clock
