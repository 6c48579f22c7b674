"""`tidewheel torture`: the live view of the torturer's work, and the proof at its end.

The main thread only draws and waits; another one starts and kills the ingest. Ctrl-C ends the kills: what is there is still
verified, and the proof printed. A second Ctrl-C ends it at once.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

from tidewheel.errors import ExistsError
from tidewheel.model.figures import counted
from tidewheel.programs.torture.drive import Progress, Torturer, TortureRequest
from tidewheel.terminal import Board, facts_grid, facts_line, point, say

_WORDS = {
    "holes": "holes",
    "duplicates": "duplicates",
    "partial": "batches in part",
    "altered": "altered rows",
    "unexpected": "rows that came back",
    "packages": "packages wrong",
    "rejects": "rejects wrong",
    "wrong": "wrong answers",
}


def run(request: TortureRequest, console: Console | None = None) -> int:
    """Torture an ingest until the time is over, the kills are done, Ctrl-C, or the first thing wrong; return the exit code."""
    console = console or Console(highlight=False)
    folder = request.keep or Path(tempfile.mkdtemp(prefix="tidewheel-torture-"))
    if folder.exists() and any(folder.iterdir()):
        raise ExistsError(f"{folder} is not empty; give --keep a new folder")
    say(
        console,
        f"{request.streams} streams insert linked rows with durability {request.durability!r}, readers check their answers, and the "
        "process is killed with SIGKILL at random moments. After every restart everything is verified. "
        f"Seed {request.seed}. Ctrl-C ends it early.",
    )
    progress = Progress()
    try:
        _work(request, folder, progress, console)
        _summarise(request, folder, progress, console)
    finally:
        if request.keep is None and progress.whole:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if progress.whole and progress.proofs else 1


def _work(request: TortureRequest, folder: Path, progress: Progress, console: Console) -> None:
    """Draw until the torturer is done. It is done soon after Ctrl-C; the ingest has ended in any case."""
    stop, done = threading.Event(), threading.Event()
    failure: list[BaseException] = []

    def torture() -> None:
        try:
            Torturer(request, folder, progress, stop).run()
        except BaseException as error:  # raised again by the main thread
            failure.append(error)
        finally:
            done.set()

    # a daemon: a second Ctrl-C does not wait for it, and the ingest ends with this process
    threading.Thread(target=torture, name="torturer", daemon=True).start()
    try:
        _show(request, progress, done, console)
    except KeyboardInterrupt:
        stop.set()
        console.print("Stopped early. What is there is verified for the last time.")
        done.wait()
    if failure:
        raise failure[0]


def _show(request: TortureRequest, progress: Progress, done: threading.Event, console: Console) -> None:
    """Draw the state until the work is done."""

    def line() -> str:
        wrong = facts_line((name, f"{count:,}") for name, count in _findings(progress) if count) or "nothing wrong"
        return f"{facts_line(_facts(request, progress))}  {wrong}"

    with Board(console) as board:
        while True:
            over = done.wait(0.125)
            board.show(lambda: _grid(request, progress), line)
            if over:
                return


def _facts(request: TortureRequest, progress: Progress) -> list[tuple[str, str]]:
    counts = progress.counts()
    median, slowest = progress.recovery_times()
    facts = [
        ("seconds", f"{min(progress.seconds, request.seconds):.0f} of {request.seconds:g}"),
        ("now", progress.doing),
        ("kills", f"{progress.kills:,}"),
        ("while opening", f"{progress.kills_in_recovery:,}"),
        ("batches acknowledged", f"{counts['batches']:,}"),
        ("rows acknowledged", f"{counts['rows']:,}"),
        ("proofs", f"{progress.proofs:,}"),
        ("answers checked", f"{progress.answers:,}"),
        ("recovery ms, median", f"{median * 1e3:,.0f}"),
        ("recovery ms, slowest", f"{slowest * 1e3:,.0f}"),
    ]
    return facts


def _findings(progress: Progress) -> list[tuple[str, int]]:
    return [(_WORDS[name], count) for name, count in progress.proof.counts().items()]


def _grid(request: TortureRequest, progress: Progress) -> Grid:
    grid = facts_grid(_facts(request, progress))
    for name, count in _findings(progress):
        grid.add_row(name, f"{count:,}", style="bold red" if count else "green")
    return grid


def _summarise(request: TortureRequest, folder: Path, progress: Progress, console: Console) -> None:
    """Say in sentences what was done, and then what was found, with nothing left out."""
    counts = progress.counts()
    median, slowest = progress.recovery_times()
    sentences = [
        f"{counted(progress.kills, 'kill')} in {progress.seconds:.0f} s, {progress.kills_in_recovery:,} of them while the warehouse was "
        f"being opened; {counted(progress.proofs, 'time')} all rows were compared with what was acknowledged, {progress.rows_read:,} rows.",
        f"{counted(counts['rows'], 'row')} acknowledged in {counts['batches']:,} batches; {counts['packages']:,} of them were packages, "
        f"{counts['replaces']:,} replaced an interval, and {counted(counts['rejects'], 'bad row')} had to be among the rejects.",
        f"{counted(counts['settled'], 'batch', 'batches')} under way when a kill came: {counts['settled loaded']:,} there afterwards as a "
        f"whole, {counts['settled'] - counts['settled loaded']:,} not at all.",
        f"{counted(progress.answers, 'answer')} checked while rows came in.",
    ]
    if progress.recoveries:
        sentences.append(f"Opening after a kill took {median * 1e3:,.0f} ms in the median and {slowest * 1e3:,.0f} ms at most.")
    console.print()
    for sentence in sentences:
        point(console, sentence)
    console.print()
    verdict = ", ".join(f"{count:,} {name}" for name, count in _findings(progress))
    say(console, verdict + ".", "bold green" if progress.whole else "bold red")
    for note in (*progress.proof.notes, *progress.errors):
        console.print(f"  {note}", markup=False, soft_wrap=True)
    if not progress.whole:
        console.print(
            f"Something is wrong. The warehouse and its journal are in {folder}.\n"
            "The same seed makes the same rows and kills, as far as timing allows:",
            markup=False,
            soft_wrap=True,
        )
        console.print(f"  {again(request)}", markup=False, soft_wrap=True)
    elif request.keep:
        console.print(f"The last warehouse and its journal are in {folder}.", markup=False, soft_wrap=True)


def again(request: TortureRequest) -> str:
    """The command line of a request."""
    kills = [] if request.kills == sys.maxsize else [f"--kills {request.kills}"]
    words = ["tidewheel torture", f"--seconds {request.seconds:g}", *kills, f"--seed {request.seed}", f"--durability {request.durability}"]
    return " ".join([*words, f"--streams {request.streams}", f"--servers {request.servers}"])
