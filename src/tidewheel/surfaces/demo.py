"""`tidewheel demo`: one thread inserts a simulated taxi fleet, another queries it, the screen shows both; then a summary.

The main thread only draws and waits. It owns the warehouse: both threads have ended before the summary is made and
the warehouse is closed, also after Ctrl-C or an error in either of them.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid

import tidewheel as tw
from tidewheel.errors import ExistsError
from tidewheel.surfaces.fleet import BEIJING, CENTRE, SCHEMA, START, Fleet

if TYPE_CHECKING:
    from tidewheel.table import Table

_BATCH_ROWS = 10_000
_QUERY_PAUSE = 0.01  # seconds between two queries: a dashboard's worth, not a load test
_BOXES = (0.01, 0.03, 0.1)  # degrees from side to side: a crossing, a quarter, a district
_WINDOWS = (30, 300, None)  # seconds of the stream's time up to now; None is all of it


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for on the command line."""

    seconds: float = 20.0
    rows_per_second: int = 200_000
    keep: Path | None = None
    seed: int = 1


@dataclass(slots=True)
class Progress:
    """What has happened so far. Each field has one writing thread; the screen reads them at any time."""

    inserted: int = 0
    insert_seconds: float = 0.0
    stream_now: int = START
    queries: list[float] = field(default_factory=list)  # milliseconds each, answers read in full
    rows_read: int = 0
    error: BaseException | None = None

    def latency(self, last: int | None = None) -> tuple[float, float]:
        """The median and the 99th percentile in milliseconds, of the last queries or of all."""
        taken = self.queries[-last:] if last else list(self.queries)
        if not taken:
            return 0.0, 0.0
        p50, p99 = np.percentile(taken, (50, 99))
        return float(p50), float(p99)


def run(request: Request, console: Console | None = None) -> int:
    """Run the demo to its end, to Ctrl-C, or to the first error; return the exit code."""
    console = console or Console(highlight=False)
    with ExitStack() as stack:
        root = request.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidewheel-demo-")))
        warehouse = stack.enter_context(tw.open(str(root)))
        if "taxi" in warehouse.tables():
            raise ExistsError(f"{root} has a table 'taxi' already, perhaps of an earlier demo; give --keep another folder or delete it")
        taxi = warehouse.create_table("taxi", SCHEMA, time="ts", key=tw.zorder("lon", "lat", bounds=BEIJING))
        console.print(
            f"A fleet of 10,000 simulated taxis reports {request.rows_per_second:,} positions a second for {request.seconds:g} s, "
            "while a second thread asks who was where and when. Ctrl-C ends it early.",
            soft_wrap=not console.is_terminal,
        )
        progress = Progress()
        _work(request, taxi, progress, console)
        if progress.error is not None:
            raise progress.error
        whole = _summarise(request, taxi, progress, console)
    return 0 if whole else 1


def _work(request: Request, taxi: Table, progress: Progress, console: Console) -> None:
    """Insert and query until the time is over, something fails or Ctrl-C is pressed; both threads have then ended."""
    stop = threading.Event()

    def guarded(job: Callable[[Request, Table, Progress, threading.Event], None]) -> None:
        try:
            job(request, taxi, progress, stop)
        except BaseException as error:  # raised again by the main thread
            progress.error = progress.error or error
        finally:
            stop.set()

    threads = [threading.Thread(target=guarded, args=(job,), name=f"demo-{job.__name__.strip('_')}") for job in (_insert, _query)]
    for thread in threads:
        thread.start()
    try:
        _show(request, taxi, progress, stop, console)
    except KeyboardInterrupt:
        console.print("Stopped early.")
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _insert(request: Request, taxi: Table, progress: Progress, stop: threading.Event) -> None:
    """Insert at the asked-for rate. A rate the machine cannot reach is not made up for: it inserts as fast as it can."""
    fleet = Fleet(request.seed)
    rows = max(1, min(_BATCH_ROWS, request.rows_per_second // 20))
    started = time.perf_counter()
    while not stop.is_set() and progress.insert_seconds < request.seconds:
        ahead = progress.inserted / request.rows_per_second - (time.perf_counter() - started)
        if ahead > 0:
            stop.wait(min(ahead, 0.1))
        else:
            batch = fleet.batch(rows)
            progress.inserted += taxi.insert(batch).rows
            progress.stream_now = fleet.now
        progress.insert_seconds = time.perf_counter() - started


def _query(request: Request, taxi: Table, progress: Progress, stop: threading.Event) -> None:
    """Ask for random boxes and recent times, and read every answer in full."""
    rng = np.random.default_rng(request.seed + 1)
    while not stop.wait(_QUERY_PAUSE):
        half = _BOXES[int(rng.integers(len(_BOXES)))] / 2
        lon, lat = rng.normal(CENTRE, (0.12, 0.10))
        window = _WINDOWS[int(rng.integers(len(_WINDOWS)))]
        now = progress.stream_now
        since = None if window is None else now - window * 1_000_000
        asked = time.perf_counter()
        answer = taxi.query(box=(lon - half, lat - half, lon + half, lat + half), time=(since, now)).to_arrow()
        progress.queries.append((time.perf_counter() - asked) * 1e3)
        progress.rows_read += answer.num_rows


def _show(request: Request, taxi: Table, progress: Progress, stop: threading.Event, console: Console) -> None:
    """Draw the state until the work stops: in place on a terminal, as plain lines elsewhere."""
    if not console.is_terminal:
        while not stop.wait(2.0):
            console.print("  ".join(f"{name} {value}" for name, value in _facts(request, taxi, progress)), soft_wrap=True)
        return
    with Live(_grid(request, taxi, progress), console=console, refresh_per_second=8) as live:
        while not stop.wait(0.25):
            live.update(_grid(request, taxi, progress))
        live.update(_grid(request, taxi, progress))


def _facts(request: Request, taxi: Table, progress: Progress) -> list[tuple[str, str]]:
    state = taxi.state()
    p50, p99 = progress.latency(last=500)
    rate = progress.inserted / progress.insert_seconds if progress.insert_seconds else 0.0
    facts = [
        ("seconds", f"{min(progress.insert_seconds, request.seconds):.0f} of {request.seconds:g}"),
        ("rows/s", f"{rate:,.0f}"),
        ("fresh rows", f"{state.fresh_rows:,}"),
        ("historical rows", f"{state.historical_rows:,}"),
        ("chunks", f"{state.chunks:,}"),
        ("queries", f"{len(progress.queries):,}"),
        ("p50 ms", f"{p50:.1f}"),
        ("p99 ms", f"{p99:.1f}"),
        ("trees MB", f"{state.memory_bytes / 1e6:,.0f}"),
    ]
    private = _private_bytes()
    if private is not None:
        facts.append(("process MB", f"{private / 1e6:,.0f}"))
    return facts


def _grid(request: Request, taxi: Table, progress: Progress) -> Grid:
    grid = Grid(show_header=False, box=None, padding=(0, 2))
    grid.add_column(style="cyan")
    grid.add_column(justify="right")
    for name, value in _facts(request, taxi, progress):
        grid.add_row(name, value)
    return grid


def _private_bytes() -> int | None:
    """Memory of this process alone, without mapped chunks; None where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), None)


def _summarise(request: Request, taxi: Table, progress: Progress, console: Console) -> bool:
    """Say in sentences what was seen; False if a row that was inserted cannot be seen."""
    before = taxi.state()
    visible = len(taxi.query(columns=["taxi"]))
    taxi.flush()
    after = taxi.state()
    minutes = (progress.stream_now - START) / 60e6
    p50, p99 = progress.latency()
    whole = visible == progress.inserted

    say = [
        f"{progress.inserted:,} rows were inserted in {progress.insert_seconds:.1f} s, "
        f"{progress.inserted / max(progress.insert_seconds, 1e-9):,.0f} a second: {minutes:.1f} minutes of the fleet's own time, "
        "some reports minutes late.",
        f"A query over the whole table counted {visible:,} rows: "
        + ("every inserted row was visible, " if whole else f"NOT the {progress.inserted:,} that were inserted, ")
        + f"{before.fresh_rows:,} still in memory and {before.historical_rows:,} in chunks.",
    ]
    if progress.queries:
        say.append(
            f"Meanwhile {len(progress.queries):,} queries (a box × a time range) were answered with {progress.rows_read:,} rows: "
            f"half of them within {p50:.1f} ms, 99 of 100 within {p99:.1f} ms."
        )
    if after.historical_rows:
        say.append(
            f"After a last flush the table is {after.chunks:,} {'chunk' if after.chunks == 1 else 'chunks'} on disk, "
            f"{after.disk_bytes / 1e6:,.1f} MB, {after.disk_bytes / after.historical_rows:.1f} bytes a row."
        )
    console.print()
    for sentence in say:
        console.print(f"• {sentence}", markup=False, soft_wrap=not console.is_terminal)
    console.print("\nTry next:")
    for line in _next_steps(request):
        console.print(f"  {line}", markup=False, soft_wrap=True)
    return whole


def _next_steps(request: Request) -> list[str]:
    root = str(request.keep) if request.keep else "demo-data"
    tidewheel, python = _programs()
    if request.keep:
        first = f"{tidewheel} demo --keep {root}-fast --rows-per-second 2000000 --seconds 10   # how fast is this machine?"
    else:
        first = f"{tidewheel} demo --keep {root}   # the same again, and the warehouse stays"
    opened = f"import tidewheel as tw; taxi = tw.open('{root}').table('taxi')"
    box = "box=(116.35, 39.85, 116.45, 39.95)"
    return [
        first,
        f'{python} -c "{opened}; print(taxi)"',
        f"{python} -c \"{opened}; print(taxi.query({box}, where='speed > 60'))\"",
    ]


def _programs() -> tuple[str, str]:
    """How to call the command and its Python from here: by name if the PATH leads to them, else by path (`make demo` activates nothing)."""
    folder = os.path.dirname(sys.executable)
    if os.path.dirname(shutil.which("python") or "") == folder:
        return "tidewheel", "python"
    near = os.path.relpath(folder)
    shown = folder if near.startswith("..") else near
    return os.path.join(shown, "tidewheel"), os.path.join(shown, "python")
