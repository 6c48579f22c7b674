"""kill -9, again and again: what was acknowledged is there, once and unaltered, and answers are whole.

The seed is printed. TIDEWHEEL_SEED=n runs the same rows and, as far as timing allows, the same kills again.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from tests.conftest import SOAK
from tidewheel.programs.torture import live_view
from tidewheel.programs.torture.drive import Progress, Torturer, TortureRequest

SEED = int(os.environ.get("TIDEWHEEL_SEED") or (time.time() if SOAK else 1))
FOREVER = 1e9  # seconds: the kills are counted


def torture(folder: Path, request: TortureRequest) -> Progress:
    print(f"TIDEWHEEL_SEED={SEED}: {live_view.again(request)}")
    progress = Progress()
    Torturer(request, folder, progress, threading.Event()).run()
    print(progress.kills, "kills,", progress.kills_in_recovery, "while opening;", progress.counts(), progress.recovery)
    return progress


@pytest.mark.parametrize(("durability", "servers"), [("process", 3), *([("fsync", 2), ("process", 1)] if SOAK else [])])
def test_nothing_acknowledged_is_lost(tmp_path: Path, durability: str, servers: int) -> None:
    kills = 105 if SOAK else 3
    progress = torture(tmp_path, TortureRequest(FOREVER, kills, SEED + servers, durability, servers=servers))
    assert progress.whole, "\n".join((*progress.proof.notes, *progress.errors))
    assert progress.kills == kills and progress.proofs > kills // 3
    assert progress.counts()["rows"] > 0 and progress.answers > 0


def test_what_is_only_in_memory_is_lost_and_the_proof_says_so(tmp_path: Path) -> None:
    progress = torture(tmp_path, TortureRequest(FOREVER, 20, SEED, "memory"))
    assert progress.proof.holes > 0 and not progress.whole and not progress.errors
    # the first finding may be a batch that is there in part: of its two trees, one was flushed before the kill
    assert any("acknowledged" in note for note in progress.proof.notes)


def test_an_ingest_that_fails_by_itself_is_an_error(tmp_path: Path) -> None:
    progress = torture(tmp_path, TortureRequest(FOREVER, 2, SEED, "never heard of"))
    assert not progress.whole and "never heard of" in progress.errors[0]


def test_the_command_prints_the_proof(tmp_path: Path) -> None:
    screen = io.StringIO()
    request = TortureRequest(FOREVER, 1, SEED, streams=2, keep=tmp_path / "kept")
    assert live_view.run(request, Console(file=screen, width=100)) == 0
    out = screen.getvalue()
    assert "1 kill in" in out and "0 holes, 0 duplicates" in out and "Something is wrong" not in out
    assert (tmp_path / "kept" / "round-1" / "journal").exists()
    assert live_view.run(replace(request, keep=tmp_path / "other", durability="never heard of"), Console(file=screen, width=100)) == 1
    assert f"tidewheel torture --seconds {FOREVER:g} --kills 1 --seed {SEED}" in screen.getvalue()


@contextmanager
def running() -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """The command in a process of its own, and the processes it started: the ingest that inserts, and the next one."""
    words = [sys.executable, "-m", "tidewheel.surfaces.cli", "torture", "--seed", str(SEED), "--seconds", "600"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    children: list[psutil.Process] = []
    try:
        give_up = time.monotonic() + 60
        while len(children := psutil.Process(process.pid).children()) < 2 and time.monotonic() < give_up:
            time.sleep(0.05)
        time.sleep(1.0)
        yield process, children
    finally:
        process.kill()
        process.communicate()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()


def test_ctrl_c_ends_it_early_with_the_proof() -> None:
    with running() as (process, children):
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
        assert "Stopped early" in out and "0 holes" in out and process.returncode == 0
        assert children and not psutil.wait_procs(children, 60)[1], "a process was left behind"


def test_the_ingest_ends_with_whoever_started_it() -> None:
    with running() as (process, children):
        process.kill()
        process.wait()
        assert children and not psutil.wait_procs(children, 60)[1], "a process was left behind"
