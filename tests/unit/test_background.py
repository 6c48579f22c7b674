"""Child processes with a low priority, whose parent keeps its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tidewheel.env.background import NICENESS, started_in_background


def niceness() -> int:
    return int(subprocess.check_output(["nice"]))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="niceness is a whole process's elsewhere")
def test_a_child_is_nice_and_its_parent_is_not() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert started_in_background(niceness) == max(NICENESS, before)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before == niceness()


def test_what_fails_is_raised_where_it_was_asked_for() -> None:
    with pytest.raises(FileNotFoundError):
        started_in_background(lambda: subprocess.Popen(["/no/such/program"]))
