"""`tidewheel demo`: this process owns the warehouse, draws, and starts everybody else.

Four parties: the fleet's process writes files, Spark (or a thread) carries them into the table, the watcher's process attaches and
queries, and the main thread only draws and waits. Whatever happens, all of them have ended before the warehouse is closed.
"""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

import tidewheel as tw
from tidewheel.errors import ExistsError, TidewheelError
from tidewheel.programs.demo.carriers import Carrier, SparkCarrier, ThreadCarrier
from tidewheel.programs.demo.children import Child
from tidewheel.programs.demo.numbers import DemoRequest, Moment, Numbers, Sent
from tidewheel.programs.demo.summary import next_steps, prove, sentences, verdict
from tidewheel.programs.demo.view import DemoScreen
from tidewheel.programs.fleet import BEIJING, SCHEMA

if TYPE_CHECKING:
    from tidewheel.table import Table

SETTINGS = tw.Settings(chunk_bytes=4 << 20)
"""A quarter of the usual size: so that a minute makes some chunks to be seen."""
_DRAW = 0.25
_READY = 180.0  # seconds until the first row has to be there; on a busy machine Spark takes its time
_STUCK = 60.0  # seconds without any progress after which rows that are missing are not waited for


def run(request: DemoRequest, console: Console | None = None) -> int:
    """Run the demo to its end, to Ctrl-C, or to the first error; return the exit code."""
    console = console or Console(highlight=False)
    if request.keep is not None and request.keep.exists() and (not request.keep.is_dir() or any(request.keep.iterdir())):
        raise ExistsError(f"{request.keep} is there already, perhaps of an earlier demo; give --keep a new folder")
    with ExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidewheel-demo-", ignore_cleanup_errors=True)))
        root = request.keep or own / "warehouse"
        arrivals = own / "arrivals"
        arrivals.mkdir()
        taxi = stack.enter_context(tw.open(root, settings=SETTINGS)).create_table(
            "taxi", SCHEMA, time="ts", key=tw.zorder("lon", "lat", bounds=BEIJING)
        )
        demo = Demo(request, DemoScreen(console, request), taxi)
        demo.sender = stack.enter_context(
            Child("tidewheel.programs.demo.sender", _orders(request, folder=arrivals, rate=request.rows_per_second), demo.fleet_said)
        )
        demo.watcher = stack.enter_context(Child("tidewheel.programs.demo.watcher", _orders(request, root=root), demo.numbers.heard))
        demo.carrier = SparkCarrier(arrivals, root, own / "checkpoint") if request.spark else ThreadCarrier(arrivals, taxi)
        stack.callback(demo.carrier.stop)
        demo.get_ready()
        demo.stream()
        whole = demo.sum_up()
    console.print("\nTry next:")
    for step in next_steps(request):
        console.print(f"  {step}", markup=False, soft_wrap=True)
    return 0 if whole else 1


class Demo:
    """One run, from the start of Spark to the summary."""

    sender: Child
    watcher: Child
    carrier: Carrier

    def __init__(self, request: DemoRequest, screen: DemoScreen, taxi: Table) -> None:
        self.numbers = Numbers()
        self._request = request
        self._screen = screen
        self._taxi = taxi

    def fleet_said(self, said: Any) -> None:
        self.numbers.sent = Sent(**said)

    def get_ready(self) -> None:
        """Until the fleet's first reports are visible: Spark, its workers and the kernels are then warm."""
        with self._screen.waiting() as wait:
            _in_background(lambda: self.carrier.start(wait.doing), self._check)
            wait.doing("the first rows are on their way")
            give_up = time.monotonic() + _READY
            while not (self._taxi.rows and self.watcher.ready.is_set()):
                self._check()
                if time.monotonic() > give_up:
                    raise TidewheelError(f"no row became visible within {_READY:g} s; look at `tidewheel doctor`")
                time.sleep(0.05)

    def stream(self) -> None:
        """Let the fleet drive for the time that was asked for, or until Ctrl-C; then wait for its last reports."""
        began = time.monotonic()
        note = "waiting for the last rows"
        with self._screen, _ctrl_c() as stopped:
            self.sender.go()
            self.watcher.go()
            while (passed := time.monotonic() - began) < self._request.seconds and not stopped:
                self._look(passed)
                time.sleep(_DRAW)
            if stopped:
                note = f"stopped early, {note}"
            self.numbers.streamed = time.monotonic() - began
            self.sender.end()
            self._wait_for_the_last(began, note)
            self.watcher.end()

    def _wait_for_the_last(self, began: float, note: str) -> None:
        """As long as rows keep coming."""
        arrived, came = 0, time.monotonic()
        while True:
            now = self._look(time.monotonic() - began, note)
            sent = self.numbers.sent
            if now.state.rows >= sent.reports - sent.broken and now.metrics.rejected >= sent.broken:
                return
            if time.monotonic() - came > _STUCK:
                return  # the proof will say what is missing
            if now.arrived > arrived:
                arrived, came = now.arrived, time.monotonic()
            time.sleep(_DRAW / 2)

    def _look(self, seconds: float, note: str = "") -> Moment:
        self._check()
        late = len(self._taxi.query(time=(None, self.numbers.sent.start - 1), columns=["ts"]))
        moment = Moment(seconds, self._taxi.state(), self._taxi.metrics(), late)
        self.numbers.look(moment)
        self._screen.show(self.numbers, note)
        return moment

    def _check(self) -> None:
        """Raise what went wrong elsewhere."""
        self.carrier.check()
        self.sender.check()
        self.watcher.check()

    def sum_up(self) -> bool:
        """Prove and tell; False if a report is missing or there twice."""
        before = self._taxi.state()
        proof = prove(self._taxi, self.numbers.sent)
        batches = self._taxi.metrics().batches
        self._taxi.flush()
        whole = proof.whole(self.numbers.sent)
        self._screen.say("")
        for sentence in sentences(self._request, self.numbers, proof, batches, before, self._taxi.state()):
            self._screen.point(sentence)
        self._screen.say("")
        self._screen.say(verdict(self.numbers.sent, proof), "bold green" if whole else "bold red")
        return whole


@contextmanager
def _ctrl_c() -> Iterator[list[int]]:
    """Not empty once Ctrl-C was pressed: an exception could come at a place where Python drops it. A second Ctrl-C is an exception."""
    pressed: list[int] = []

    def press(number: int, frame: object) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _orders(request: DemoRequest, **more: object) -> dict[str, object]:
    return {"seed": request.seed} | {name: str(value) if isinstance(value, Path) else value for name, value in more.items()}


def _in_background(job: Callable[[], None], check: Callable[[], None]) -> None:
    """Do it in a thread and wait for it, in a way that Ctrl-C ends at once. The thread then ends with the process."""
    failure: list[BaseException] = []

    def guarded() -> None:
        try:
            job()
        except BaseException as error:  # raised again below
            failure.append(error)

    thread = threading.Thread(target=guarded, name="demo-start", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
        check()
    if failure:
        raise failure[0]
