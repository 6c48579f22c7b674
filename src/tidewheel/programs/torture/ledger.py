"""The ledger: what is known of every batch, as it follows from the journal. It says what must be in the table, and what may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from tidewheel.programs.torture.journal import Acknowledged, Begun, Event, Settled
from tidewheel.programs.torture.workload import BatchOutline


class State(Enum):
    DOUBT = "it was begun; it is there as a whole or not at all"
    LOADED = "it was acknowledged, or found to be there after a kill"
    LOST = "it was found not to be there after a kill, before it was acknowledged"
    REPLACED = "another batch took its place"


@dataclass(slots=True)
class LedgerEntry:
    batch: BatchOutline
    state: State = State.DOUBT
    attempts: int = 1
    acknowledged: bool = False


class Ledger:
    """The known state of every batch. One thread changes a stream's entries; others may look at any time.

    `slots` holds, for each stream, the contents its private interval has had, oldest first: the orders of the batches in it.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.streams: dict[int, list[LedgerEntry]] = {}
        self.slots: dict[int, list[tuple[int, ...]]] = {}
        self.linkable: dict[int, list[BatchOutline]] = {}
        """Batches whose rows may be pointed at: they are there, and stay."""
        self.batches = 0
        """Batches that were acknowledged."""
        self.rows = 0
        """Their rows."""
        self.kinds: Counter[str] = Counter()
        """Numbers of packages, of batches with bad rows and of replacing ones; and the fate of the batches that were in doubt."""
        for event in events:
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Take note of an event; those that are not about batches change nothing."""
        match event:
            case Begun(batch):
                entries = self.streams.setdefault(batch.stream, [])
                if batch.order < len(entries):
                    entry = entries[batch.order]
                    entry.state, entry.attempts = State.DOUBT, entry.attempts + 1
                else:
                    entries.append(LedgerEntry(batch))
            case Acknowledged(stream, order):
                entry = self.streams[stream][order]
                entry.acknowledged = True
                self._loaded(entry)
                self._count(entry.batch)
            case Settled(stream, order, loaded):
                entry = self.streams[stream][order]
                self.kinds["settled"] += 1
                self.kinds["settled loaded"] += loaded
                if loaded:
                    self._loaded(entry)
                else:
                    entry.state = State.LOST
            case _:
                pass

    def entries(self) -> Iterator[LedgerEntry]:
        for entries in list(self.streams.values()):
            yield from entries[: len(entries)]

    def doubts(self) -> list[LedgerEntry]:
        return [entries[-1] for entries in self.streams.values() if entries and entries[-1].state is State.DOUBT]

    def next_number(self, stream: int) -> int:
        """The first row number that the stream never used."""
        entries = self.streams.get(stream)
        return entries[-1].batch.first + entries[-1].batch.rows + entries[-1].batch.bad if entries else 0

    def _count(self, batch: BatchOutline) -> None:
        self.batches += 1
        self.rows += batch.rows
        self.kinds["packages"] += batch.package
        self.kinds["rejects"] += batch.bad
        self.kinds["replaces"] += batch.replaces

    def _loaded(self, entry: LedgerEntry) -> None:
        batch, stream = entry.batch, entry.batch.stream
        if not batch.slot:
            self.linkable.setdefault(stream, []).append(batch)
        else:
            contents = self.slots.setdefault(stream, [()])
            if batch.replaces:
                for order in contents[-1]:
                    self.streams[stream][order].state = State.REPLACED
            contents.append(after(contents[-1], batch))
        entry.state = State.LOADED


def after(content: tuple[int, ...], batch: BatchOutline) -> tuple[int, ...]:
    """The contents of a private interval once this batch is there."""
    return (batch.order,) if batch.replaces else (*content, batch.order)
