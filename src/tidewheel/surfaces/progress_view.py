"""A running stream on the screen: in place on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid

if TYPE_CHECKING:
    from tidewheel.spark.ingestion import Stream
    from tidewheel.spark.sources.stream_watch import Seen, Watch

LINE_EVERY = 5.0
"""Seconds between two plain lines."""


class View:
    """Everything `tidewheel ingest` says."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._live: Live | None = None
        self._watch: Watch | None = None
        self._said: tuple[float, tuple[int, int]] = (0.0, (0, 0))
        self._told_to_wait = False

    @property
    def pause(self) -> float:
        return 0.25 if self._console.is_terminal else 0.5

    def working(self, what: str) -> Any:
        """A context while something takes its time."""
        return self._console.status(f"{what} …") if self._console.is_terminal else nullcontext()

    def waiting(self, source: str) -> None:
        if not self._told_to_wait:
            self.say(f"There is no table yet; waiting for the first records of {source} to make it from. Ctrl-C ends it.")
            self._told_to_wait = True

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def about(self, stream: Stream) -> None:
        """What is going to happen."""
        if stream.created is not None:
            spec = stream.spec
            self.say(
                f"Created table {spec.name!r} (time {spec.time.column}, key {', '.join(spec.key.columns)}, partitions of {spec.partition}):"
            )
            for field in spec.schema:
                self.say(f"  {field.name:<24} {field.type}")
            for note in stream.created.notes:
                self.say(f"  {note}")
        self.say(f"Streaming {stream.source.address} into {stream.place.table!r}. Ctrl-C ends it; the same command goes on where it was.")

    @contextmanager
    def live(self, watch: Watch) -> Iterator[None]:
        self._watch = watch
        if not self._console.is_terminal:
            self._said = (time.monotonic(), (0, 0))
            yield
            return
        with Live(self._grid(watch.look()), console=self._console, refresh_per_second=8, transient=True) as self._live:
            yield
        self._live = None

    def show(self) -> None:
        """Draw the state, or print a line now and then if something happened."""
        assert self._watch is not None
        if self._live is not None:
            self._live.update(self._grid(self._watch.look()))
            return
        if time.monotonic() - self._said[0] < LINE_EVERY:
            return
        seen = self._watch.look()
        if (seen.rows, seen.rejected) != self._said[1]:
            self.say("  ".join(f"{name} {value}" for name, value in facts(seen)))
        self._said = (time.monotonic(), (seen.rows, seen.rejected))

    def summary(self, stream: Stream, seen: Seen, stopped: bool) -> None:
        rows = f"{seen.rows:,} row{'' if seen.rows == 1 else 's'}"
        said = f"{'Stopped' if stopped else 'Done'}: {rows} in {seen.batches:,} batch{'' if seen.batches == 1 else 'es'}"
        if seen.rejected:
            said += f", {seen.rejected:,} record{'' if seen.rejected == 1 else 's'} rejected"
        self.say(f"{said}.")
        if seen.rejected:
            self.say(f"Why: tw.open({stream.place.root!r}).table({stream.place.table!r}).rejects()")
        if stopped:
            self.say("The same command goes on from here.")

    def _grid(self, seen: Seen) -> Grid:
        grid = Grid(show_header=False, box=None, padding=(0, 2))
        grid.add_column(style="cyan")
        grid.add_column(justify="right")
        for name, value in facts(seen):
            grid.add_row(name, value)
        return grid


def facts(seen: Seen) -> list[tuple[str, str]]:
    """What there is to say of a stream, in words and numbers."""
    found = [("rows/s", f"{seen.rows_per_second:,.0f}"), ("rows", f"{seen.rows:,}"), ("rejected", f"{seen.rejected:,}")]
    if seen.behind is not None:
        found.append(("behind", f"{seen.behind:,}"))
    if seen.newest is not None and seen.oldest is not None:
        found.append(("visible after", f"{_seconds(seen.newest)} .. {_seconds(seen.oldest)}"))
    found += [("batches", f"{seen.batches:,}"), ("last batch", _seconds(seen.batch_seconds))]
    return found


def _seconds(seconds: float) -> str:
    if seconds < 0:
        return "0 ms"  # clocks differ
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
