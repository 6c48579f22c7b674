"""Chunks that are written and not yet part of their table: on their way from the threads that write to the one that commits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from tidewheel.env.interrupts import Outcome
from tidewheel.env.store import Store
from tidewheel.model.derived import Label, RefreshRecord
from tidewheel.model.records import ChunkRecord, Delivery, MaskRecord
from tidewheel.write.publish import FlushJob, Publisher, Reservation

ROOM_BYTES = 4 << 20
"""Bytes of chunks that may be written and not committed. Two may, however large: while one is synced the next is written."""


class Refresh(NamedTuple):
    """A refresh of a derived table, on its way to the catalog."""

    record: RefreshRecord
    labels: tuple[Label, ...]
    """Of the partitions whose rows are others than before: chunks that a refresh writes have others beside them, too."""
    done: Callable[[RefreshRecord], None]
    """Called between the catalog's commit and the swap."""


@dataclass(slots=True)
class Pending:
    """Chunks that are written under their temporary names, and what is to be committed with them."""

    publisher: Publisher
    records: list[ChunkRecord]
    job: FlushJob | None = None
    masks: tuple[MaskRecord, ...] = ()
    deliveries: list[Delivery] = field(default_factory=list)
    refresh: Refresh | None = None
    """Of a derived table."""
    leaving: frozenset[str] = frozenset()
    """Ids of chunks all of whose rows that are seen are in the records, too."""
    done: Outcome | None = None
    """Somebody waits for it; a flush is tried again instead."""
    reserved: Reservation | None = None
    tidy: bool = False
    """Nothing was written: only what nothing needs is to go."""
    failure: Exception | None = None
    """Why it is not part of its table; files that it still names are to be removed: none, once they may be committed."""
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(record.bytes for record in self.records)


class Room:
    """Bytes that are written and not taken by the commit thread: whoever writes waits for room before it hands over more."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs = self._bytes = 0

    def take(self, size: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._jobs < 2 or self._bytes + size <= ROOM_BYTES)
            self._jobs += 1
            self._bytes += size

    def give(self, size: int) -> None:
        with self._changed:
            self._jobs -= 1
            self._bytes -= size
            self._changed.notify_all()


def remove(files: Store, records: Sequence[ChunkRecord]) -> None:
    """Remove files that were not committed. Where that fails too, the next open of the warehouse sweeps them."""
    with suppress(Exception):
        for record in records:
            files.remove(record.file)


@contextmanager
def failing(group: Sequence[Pending]) -> Iterator[None]:
    """Errors in here are the failure of these, and of nobody else."""
    try:
        yield
    except Exception as e:  # whatever it is: rows stay where they are, whoever waits is told, a flush is tried again
        for one in group:
            one.failure = e
