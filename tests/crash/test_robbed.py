"""A warehouse is taken away under its owners while several processes insert, and owners hang: no acknowledged row is lost.

Which rows count: all that were acknowledged, with the folder that they were acknowledged into. A folder that is moved away comes back
later; one that is deleted takes its rows with it, so a row counts as lost if it was acknowledged before its folder was and is not
there, and an acknowledgement that comes later than the deletion is a failure by itself. Each process has one number after the other, so
what is missing is seen. The seed is printed; TIDEWHEEL_SEED=n draws the same events again.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import pyarrow.compute as pc
import pytest

import tidewheel as tw
from tests.conftest import SOAK
from tests.crash.crowd import SCHEMA, wrong
from tidewheel.catalog.sql import open_sqlite

SEED = int(os.environ.get("TIDEWHEEL_SEED") or random.randrange(2**32))
HERE = Path(__file__).parents[2]
PROCESSES, EVENTS = (4, 60) if SOAK else (3, 8)
TIMEOUT = 1.0
FLIGHT = 1.0
"""Seconds after a deletion in which an acknowledgement that was given before may still arrive: on a busy machine."""

STORY = 20
"""So many errors of each process are told when the campaign fails."""


class Theft:
    def __init__(self, folder: Path) -> None:
        self.root, self.folder, self.stop = folder / "wh", folder, folder / "stop"
        self.rng = random.Random(SEED)
        self.events: Counter[str] = Counter()
        self.happened: list[tuple[float, str]] = []
        self.deleted: list[float] = []
        """When the folder was."""
        self.safe: dict[int, set[int]] = {who: set() for who in range(PROCESSES)}
        """Packages that went with a deleted folder."""
        with tw.open(self.root) as wh:
            wh.create_table("t", SCHEMA, time="ts", key="who")
        self.of = {who: self.start(who) for who in range(PROCESSES)}

    def start(self, who: int) -> subprocess.Popen[str]:
        arguments = [str(self.root), str(who), str(self.journal(who)), str(self.stop), str(SEED + who), str(TIMEOUT)]
        return subprocess.Popen([sys.executable, "-m", "tests.crash.robbed", *arguments], cwd=HERE, stderr=subprocess.PIPE, text=True)

    def journal(self, who: int) -> Path:
        return self.folder / f"journal-{who}"

    def said(self, who: int) -> list[list[str]]:
        path = self.journal(who)
        return [line.split() for line in path.read_text().split("\n")[:-1]] if path.exists() else []

    def acknowledged(self, who: int) -> dict[int, float]:
        return {int(line[1]): float(line[2]) for line in self.said(who) if line[0] == "ack"}

    def story(self) -> str:
        """What happened of late, to us and to every process, in seconds before now. The same error again and again is one line."""
        now = time.monotonic()
        lines = ["", f"TIDEWHEEL_SEED={SEED}", *(f"{when - now:9.2f} s  {name}" for when, name in self.happened[-STORY:])]
        for who in self.of:
            told = [(f"{what} {' '.join(words)}", float(when) - now) for what, when, *words in self.said(who) if what in ("met", "opened")]
            same = [(text, [when for _, when in found]) for text, found in groupby(told, key=lambda one: one[0])]
            last = max(self.acknowledged(who).values(), default=now)
            lines.append(f"process {who} ({self.of[who].pid}), last acknowledged {last - now:.2f} s:")
            lines += [f"{when[0]:9.2f} … {when[-1]:.2f} s, {len(when)} times: {text[:600]}" for text, when in same[-STORY:]]
        return "\n".join(lines)

    def look(self) -> None:
        for who, process in self.of.items():
            if process.poll() is not None:
                assert process.stderr is not None
                pytest.fail(f"process {who} ended: {process.stderr.read()[-3000:]}{self.story()}")

    def wait_for_rows(self) -> None:
        """Until every process was acknowledged something since now."""
        since = time.monotonic()
        give_up = since + 120
        while not all(max(self.acknowledged(who).values(), default=0.0) > since for who in self.of):
            assert time.monotonic() < give_up, f"not all processes can insert: {self.story()}"
            self.look()
            time.sleep(0.05)

    def owner(self) -> int | None:
        with suppress(OSError, ValueError, KeyError):
            pid = json.loads((self.root / "owner.lock").read_text())["pid"]
            if any(process.pid == pid for process in self.of.values()):
                return int(pid)
        return None

    # ---- what happens -----------------------------------------------------------------------------------

    def lock_deleted(self) -> None:
        (self.root / "owner.lock").unlink()

    def lock_replaced(self) -> None:
        (self.folder / "other").write_text("{}")
        (self.folder / "other").replace(self.root / "owner.lock")

    def lease_taken(self) -> None:
        catalog = open_sqlite(self.root / "catalog.sqlite")
        catalog.acquire(1, "elsewhere", 0.0)
        catalog.close()

    def folder_moved(self) -> None:
        self.root.rename(self.folder / "moved")
        time.sleep(self.rng.uniform(0.05, 0.5))
        self.put_back(self.folder / "moved")

    def folder_replaced(self) -> None:
        """By another warehouse, which is left as it is, whoever tries to use it."""
        other = self.folder / "other"
        with tw.open(other) as wh:
            wh.create_table("stranger", SCHEMA, time="ts", key="who")
        self.root.rename(self.folder / "moved")
        other.rename(self.root)
        time.sleep(self.rng.uniform(0.05, 0.3))
        self.root.rename(other)
        self.put_back(self.folder / "moved")
        shutil.rmtree(other)

    def folder_deleted(self) -> None:
        """With all its rows; an empty one takes its place, as a restore would."""
        fresh = self.folder / "fresh"
        with tw.open(fresh) as wh:
            wh.create_table("t", SCHEMA, time="ts", key="who")
        gone = self.folder / f"deleted-{len(self.deleted)}"
        self.root.rename(gone)  # at once: rmtree takes its time, in which rows could still be acknowledged rightly
        when = time.monotonic()
        shutil.rmtree(gone)
        time.sleep(FLIGHT)
        for who in self.of:
            late = [n for n, at in self.acknowledged(who).items() if at > when + FLIGHT]
            assert not late, f"process {who} was acknowledged {late[:5]} after its folder was deleted"
            self.safe[who] |= set(self.acknowledged(who))
        self.deleted.append(when)
        self.put_back(fresh)

    def put_back(self, folder: Path) -> None:
        """Whoever was about to open the warehouse when it vanished may have made a lock or a folder there, but no warehouse."""
        while True:
            try:
                folder.rename(self.root)
                return
            except OSError:
                assert not (self.root / "catalog.sqlite").exists(), "somebody made a new warehouse"
                shutil.rmtree(self.root, ignore_errors=True)

    def owner_stopped(self, gone: bool = False) -> None:
        pid = self.owner()
        if pid is None:
            return
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(self.rng.uniform(0.2, 3.0))
            if gone and self.owner() == pid:  # and while it hangs, another takes its place
                self.lock_deleted()
                time.sleep(self.rng.uniform(0.5, 1.5))
        finally:
            os.kill(pid, signal.SIGCONT)

    def owner_stopped_and_robbed(self) -> None:
        self.owner_stopped(gone=True)

    def happen(self, name: str) -> None:
        self.events[name] += 1
        self.happened.append((time.monotonic(), name))
        getattr(self, name)()

    def end(self) -> None:
        for process in self.of.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()


KINDS = [
    "lock_deleted",
    "lock_replaced",
    "lease_taken",
    "folder_moved",
    "folder_replaced",
    "folder_deleted",
    "owner_stopped",
    "owner_stopped_and_robbed",
]


@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost_with_what_an_owner_loses(tmp_path: Path) -> None:
    print(f"TIDEWHEEL_SEED={SEED}")
    theft = Theft(tmp_path)
    try:
        theft.wait_for_rows()
        kinds = theft.rng.sample(KINDS, len(KINDS)) + [theft.rng.choice(KINDS) for _ in range(EVENTS - len(KINDS))]
        for kind in kinds:
            theft.happen(kind)
            theft.wait_for_rows()
        theft.stop.touch()
        for who, process in theft.of.items():
            _, said = process.communicate(timeout=120)
            assert process.returncode == 0, f"process {who}: {said[-3000:]}"
    finally:
        theft.end()
    total = attached = late = 0
    with tw.open(theft.root) as wh:
        table = wh.table("t").query().to_arrow()
        for who in theft.of:
            kept = {n: 1 for n in theft.acknowledged(who) if n not in theft.safe[who]}
            total += len(theft.acknowledged(who))
            bad = wrong(table.filter(pc.equal(table["who"], who)), kept)
            assert not bad, f"process {who}: {bad}{theft.story()}"
            slow = [line for line in theft.said(who) if line[0] == "slow"]
            assert not slow, f"process {who}: calls that took too long: {slow[:5]}"
            for line in theft.said(who):
                if line[0] == "calls":
                    attached, late = attached + int(line[1]), late + int(line[2])
        assert wh.check().ok
    events = ", ".join(f"{n} × {kind.replace('_', ' ')}" for kind, n in sorted(theft.events.items()))
    print(f"{PROCESSES} processes, {sum(theft.events.values())} events ({events}): {total:,} packages acknowledged, none lost;")
    print(f"{attached:,} calls while attached, {late} ended by their timeout of {TIMEOUT:g} s, none later than {TIMEOUT + 1:g} s")
    assert total > 100
