"""A running stream on the screen: in place on a terminal, as plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tidewheel.model.figures import counted, duration
from tidewheel.terminal import LINE_EVERY, Board, facts_grid, facts_line

if TYPE_CHECKING:
    from tidewheel.spark.ingestion import Stream
    from tidewheel.spark.sources.stream_watch import Seen, StreamWatch


class View:
    """All output of `tidewheel ingest`."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._board: Board | None = None
        self._watch: StreamWatch | None = None
        self._told = (0, 0)
        """Rows and rejected records, of the last line."""
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
        """Announce the stream: the table that was made for it, source and target."""
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
    def live(self, watch: StreamWatch) -> Iterator[None]:
        self._watch = watch
        with Board(self._console, LINE_EVERY, leaves=True) as self._board:
            self.show()
            yield

    def show(self) -> None:
        """Draw the state, or print a line now and then if something happened."""
        watch, board = self._watch, self._board
        assert watch is not None and board is not None
        board.show(lambda: facts_grid(facts(watch.look())), lambda: self._line(watch.look()))

    def _line(self, seen: Seen) -> str:
        before, self._told = self._told, (seen.rows, seen.rejected)
        return facts_line(facts(seen)) if self._told != before else ""

    def summary(self, stream: Stream, seen: Seen, stopped: bool) -> None:
        said = f"{'Stopped' if stopped else 'Done'}: {counted(seen.rows, 'row')} in {counted(seen.batches, 'batch', 'batches')}"
        if seen.rejected:
            said += f", {counted(seen.rejected, 'record')} rejected"
        self.say(f"{said}.")
        if seen.rejected:
            self.say(f"Why: tw.open({stream.place.root!r}).table({stream.place.table!r}).rejects()")
        if stopped:
            self.say("The same command goes on from here.")


def facts(seen: Seen) -> list[tuple[str, str]]:
    """The state of a stream as names and figures."""
    found = [("rows/s", f"{seen.rows_per_second:,.0f}"), ("rows", f"{seen.rows:,}"), ("rejected", f"{seen.rejected:,}")]
    if seen.behind is not None:
        found.append(("behind", f"{seen.behind:,}"))
    if seen.newest is not None and seen.oldest is not None:
        found.append(("visible after", f"{duration(seen.newest)} .. {duration(seen.oldest)}"))
    found += [("batches", f"{seen.batches:,}"), ("last batch", duration(seen.batch_seconds))]
    return found
