"""The torturer: starts the ingest, kills it, starts it again, and counts what each of them found.

Kills are drawn from the seed: some while the streams insert, some while the warehouse is being opened, so that recovery is
recovered from. The warehouse is exchanged for a new one whenever verifying it would take too long. Nothing is left behind:
the ingest ends with the process that runs this, however that ends.
"""

from __future__ import annotations

import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tidewheel.programs.torture.journal import (
    Acknowledged,
    Compared,
    Contradicted,
    Event,
    Failed,
    Follower,
    Opening,
    Proof,
    Ready,
    Recovered,
    Verified,
)
from tidewheel.programs.torture.ledger import Ledger
from tidewheel.programs.torture.victim import VictimOrders

_LOOK = 0.005  # seconds between two looks at the journal
_PATIENCE = 120.0  # seconds after which an ingest that does not come up is taken to hang
_ENOUGH = 1_000_000  # acknowledged rows after which the next warehouse begins

# A kill comes at most so many seconds after this event; 0 is about the time that recovery takes.
_MOMENTS: tuple[tuple[type[Event], float], ...] = (
    (Opening, 0.0), (Recovered, 0.3), (Ready, 0.1), (Acknowledged, 0.1), (Acknowledged, 0.5), (Acknowledged, 1.5),
)  # fmt: skip
_CHANCES = (0.25, 0.05, 0.1, 0.2, 0.2, 0.2)
_CHUNKS = (64 * 1024, 256 * 1024, 1024 * 1024)  # bytes
_LOG = "ingest.log"


@dataclass(frozen=True, slots=True)
class TortureRequest:
    """The options of the command line."""

    seconds: float = 60.0
    kills: int = sys.maxsize
    seed: int = 1
    durability: str = "process"
    streams: int = 3
    servers: int = 1
    keep: Path | None = None


@dataclass(slots=True)
class Progress:
    """The events so far, counted. One thread writes; the screen reads at any time."""

    began: float = field(default_factory=time.perf_counter)
    doing: str = "starting"
    kills: int = 0
    kills_in_recovery: int = 0
    warehouses: int = 0
    proofs: int = 0
    rows_read: int = 0
    answers: int = 0
    recoveries: list[float] = field(default_factory=list)  # seconds each, of a warehouse that was killed before
    recovery: str = ""
    proof: Proof = field(default_factory=Proof)
    errors: list[str] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    past: Counter[str] = field(default_factory=Counter)
    """The counts of the ledgers before this one."""

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    @property
    def whole(self) -> bool:
        return self.proof.whole and not self.errors

    def counts(self) -> Counter[str]:
        """Acknowledged batches and rows, and of what kinds they were, over all warehouses."""
        return self.past + _counts(self.ledger)

    def recovery_times(self) -> tuple[float, float]:
        """The median and the slowest, in seconds."""
        times = list(self.recoveries)
        return (statistics.median(times), max(times)) if times else (0.0, 0.0)


def _counts(ledger: Ledger) -> Counter[str]:
    return ledger.kinds + Counter(batches=ledger.batches, rows=ledger.rows)


class Torturer:
    """Runs in one thread. `stop` may be set by any other: the ingest is then killed at once, and what is there verified."""

    def __init__(self, request: TortureRequest, folder: Path, progress: Progress, stop: threading.Event) -> None:
        self._request = request
        self._folder = folder
        self._progress = progress
        self._stop = stop
        self._follower = Follower(folder)
        self._phase = ""
        self._killed = False

    def run(self) -> None:
        """Kill until the time or the kills are used up, or something is wrong; then verify once more, and again after a close."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with closing(_Ingests(self._folder / _LOG)) as ingests:
            self._run(ingests)

    def _run(self, ingests: _Ingests) -> None:
        progress, request = self._progress, self._request
        orders = self._next_warehouse()
        while progress.whole and not self._stop.is_set() and progress.seconds < request.seconds and progress.kills < request.kills:
            if progress.ledger.rows > _ENOUGH:
                if not self._finish(ingests, orders):
                    return
                shutil.rmtree(orders.folder)
                orders = self._next_warehouse()
            self._kill_once(ingests, orders)
        if progress.whole:
            self._finish(ingests, orders)

    def _next_warehouse(self) -> VictimOrders:
        """A new warehouse with a new journal, and other rows."""
        progress, request = self._progress, self._request
        progress.past, progress.ledger = progress.counts(), Ledger()
        progress.warehouses += 1
        folder = self._folder / f"round-{progress.warehouses}"
        folder.mkdir(parents=True)
        seed = request.seed * 1000 + progress.warehouses
        chunk_bytes = _CHUNKS[seed % len(_CHUNKS)]
        orders = VictimOrders(str(folder), seed, request.durability, request.streams, request.servers, chunk_bytes)
        self._follower, self._killed = Follower(orders.journal), False
        return orders

    def _kill_once(self, ingests: _Ingests, orders: VictimOrders) -> None:
        """One life of the ingest. When it ends is drawn before it starts."""
        progress = self._progress
        rng = np.random.default_rng([self._request.seed, progress.kills, 6])
        after, longest = _MOMENTS[int(rng.choice(len(_MOMENTS), p=_CHANCES))]
        delay = float(rng.random()) * (longest or 1.5 * progress.recovery_times()[0])
        with ingests.run(orders) as process:
            if self._wait(process, after):
                self._stop.wait(delay)
                process.kill()
                code = process.wait()
                self._look()
                if code != -signal.SIGKILL:
                    self._ended(code)
                    return
                self._killed = True
                progress.kills += 1
                progress.kills_in_recovery += self._phase == "opening"

    def _finish(self, ingests: _Ingests, orders: VictimOrders) -> bool:
        """Let the ingest verify, close, open and verify again, this time undisturbed; whether all is right."""
        with ingests.run(replace(orders, last=True)) as process:
            self._wait(process, None)
        return self._progress.whole

    def _wait(self, process: subprocess.Popen[bytes], event: type[Event] | None) -> bool:
        """Follow the journal until this event comes; False if the ingest ended first, or shall."""
        give_up = time.monotonic() + _PATIENCE
        while True:
            ended = process.poll()  # before the look: what it wrote at its end is then seen
            if self._look(event):
                return True
            if ended is not None:
                self._ended(ended)
                return False
            if event is not None and self._stop.is_set():
                return False
            if time.monotonic() > give_up:
                process.send_signal(signal.SIGABRT)  # its threads' stacks go to the log
                process.wait()
                self._progress.errors.append(f"the ingest hangs while {self._phase}, for {_PATIENCE:.0f} s now\n{self._last_words()}")
                return False
            time.sleep(_LOOK)

    def _ended(self, code: int) -> None:
        """The ingest ended by itself: that is an error, unless it was done or has said in the journal what is wrong."""
        if code != 0 and self._progress.whole:
            self._progress.errors.append(f"the ingest ended by itself with code {code}\n{self._last_words()}")

    def _last_words(self) -> str:
        return (self._folder / _LOG).read_text(errors="replace")[-4000:]

    def _look(self, wanted: type[Event] | None = None) -> bool:
        """Take note of what is new in the journal; whether the wanted event is in it."""
        seen = False
        for event in self._follower.events():
            self._note(event)
            seen = seen or wanted is not None and isinstance(event, wanted)
        return seen

    def _note(self, event: Event) -> None:
        progress = self._progress
        progress.ledger.apply(event)
        match event:
            case Opening():
                self._phase = "opening"
            case Recovered(seconds, recovery):
                self._phase = "verifying"
                if self._killed:
                    progress.recoveries.append(seconds)
                    progress.recovery = recovery
                self._killed = False
            case Verified(proof, rows):
                progress.proof += proof
                progress.proofs += 1
                progress.rows_read += rows
            case Ready():
                self._phase = "inserting"
            case Compared(answers):
                progress.answers += answers
            case Contradicted(proof):
                progress.proof += proof
            case Failed(error):
                progress.errors.append(error)
        progress.doing = self._phase


class _Ingests:
    """Ingest processes, one after the other. The next one is started early: when it gets its orders, it has loaded its modules.

    Their standard input is a pipe: their orders come through it, and its closing ends the processes, however this process ends.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._next: subprocess.Popen[bytes] | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-X", "faulthandler", "-m", "tidewheel.programs.torture.victim"]
        with self._log.open("ab") as log:
            # a session of its own: Ctrl-C is for us
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)

    @contextmanager
    def run(self, orders: VictimOrders) -> Iterator[subprocess.Popen[bytes]]:
        """An ingest with these orders, which has ended when this is left."""
        process, self._next = self._next or self._start(), None if orders.last else self._start()
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it ended by itself, as will be seen
                process.stdin.write(orders.to_json().encode() + b"\n")
                process.stdin.flush()
            yield process
        finally:
            _end(process)

    def close(self) -> None:
        if self._next is not None:
            _end(self._next)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()
