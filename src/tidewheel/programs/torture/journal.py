"""The journal: what the ingest says of itself while it works, for those that come after it was killed.

It is a file of its own, outside the warehouse. Each event is one line, written by one call on a descriptor that appends:
what was written before a kill is there after it, and only the last line may be torn. A batch is journaled before it is
inserted and again after `insert` returned, so that after a kill at most one batch of each stream is in doubt.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tidewheel.programs.torture.workload import BatchOutline


@dataclass(frozen=True, slots=True)
class Proof:
    """Findings of a full verification: all zero if nothing is wrong."""

    holes: int = 0
    """Rows that were acknowledged and are not there, or that another row points at and are not there."""
    duplicates: int = 0
    """Rows that are there more often than they should."""
    partial: int = 0
    """Batches of which only a part is there."""
    altered: int = 0
    """Rows that do not have the checksum of their values."""
    unexpected: int = 0
    """Rows that should not be there: replaced, never begun, or gone for good before."""
    packages: int = 0
    """Packages that were loaded again, or refused though they were not loaded."""
    rejects: int = 0
    """Rejects that are not there, or more often than they were tried."""
    wrong: int = 0
    """Other answers that are not what they must be."""
    notes: tuple[str, ...] = ()
    """The first findings, in words."""

    @property
    def whole(self) -> bool:
        return not any(self.counts().values())

    def counts(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "notes"}

    def __add__(self, other: Proof) -> Proof:
        theirs = other.counts()
        return Proof(**{name: count + theirs[name] for name, count in self.counts().items()}, notes=(*self.notes, *other.notes))


# ---- events ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opening:
    """The ingest is about to open the warehouse: recovery begins."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The warehouse is open."""

    seconds: float
    recovery: str = ""
    """The warehouse's own words about its recovery."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Everything was looked at."""

    proof: Proof
    rows: int
    """Rows that were there."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The streams insert from now on."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The batch is about to be inserted; it was never journaled before, or it is a package that is tried again."""

    batch: BatchOutline


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """`insert` or `replace` returned: the batch must survive."""

    stream: int
    order: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A batch in doubt was found to be loaded, or not. That must hold for ever."""

    stream: int
    order: int
    loaded: bool


@dataclass(frozen=True, slots=True)
class Compared:
    """More answers were compared with what they must be."""

    answers: int


@dataclass(frozen=True, slots=True)
class Contradicted:
    """An answer or an acknowledgement was not what it must be."""

    proof: Proof


@dataclass(frozen=True, slots=True)
class Failed:
    """The ingest gave up by itself, with this error."""

    error: str


Event = Opening | Recovered | Verified | Ready | Begun | Acknowledged | Settled | Compared | Contradicted | Failed
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Opening, Recovered, Verified, Ready, Begun, Acknowledged, Settled, Compared, Contradicted, Failed)
}


def _line(event: Event) -> bytes:
    return json.dumps([type(event).__name__, asdict(event)], separators=(",", ":")).encode() + b"\n"


def _event(line: bytes) -> Event | None:
    """The event of a line; None for a line that a kill tore."""
    try:
        kind, values = json.loads(line)
        if "batch" in values:
            values["batch"] = BatchOutline(**values["batch"])
        if "proof" in values:
            values["proof"] = Proof(**values["proof"] | {"notes": tuple(values["proof"]["notes"])})
        return _KINDS[kind](**values)  # type: ignore[no-any-return]
    except (ValueError, KeyError, TypeError):
        return None


class Journal:
    """The file's writing end. Any thread may write; a line is one call, so lines never mix."""

    def __init__(self, path: Path) -> None:
        torn = path.exists() and not path.read_bytes().endswith(b"\n")
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if torn:
            os.write(self._fd, b"\n")

    def write(self, event: Event) -> None:
        os.write(self._fd, _line(event))

    def close(self) -> None:
        os.close(self._fd)


class Follower:
    """The file's reading end: every event once, while the file grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0

    def events(self) -> Iterator[Event]:
        """The events written since the last call; a line without its end waits for the next."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._at)
                new = file.read()
        except FileNotFoundError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            if line and (event := _event(line)) is not None:
                yield event
