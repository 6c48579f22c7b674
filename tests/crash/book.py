"""The book: what was done to a table, what of it was acknowledged, and whether what is found later can be true."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("stream", pa.int64()), ("number", pa.int64())])
SECOND = 1_000_000
ROWS = 6

Row = tuple[int, int, int, int]
"""(k, ts, stream, number): no two rows of a book are the same."""


def batch(stream: int, number: int, at: int = 0) -> list[Row]:
    """A batch of a stream: keys all over, times of its own. Later numbers are 600 s apart, streams 60 s; `at` moves it."""
    start = (number * 600 + stream * 60 + at) * SECOND
    return [((stream * 71 + number * 13 + r * 167) % 1000, start + r * SECOND, stream, number) for r in range(ROWS)]


def arrow(rows: list[Row]) -> pa.Table:
    columns = [[row[c] for row in rows] for c in range(4)]
    return pa.table([pa.array(c, pa.int64()).cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def rows_of(table: pa.Table) -> list[Row]:
    columns = [table.column(f.name).cast(pa.int64()).to_pylist() for f in SCHEMA]
    return list(zip(*columns, strict=True))


@dataclass(slots=True, eq=False)
class Entry:
    """One call that changes a table."""

    rows: list[Row]
    interval: tuple[int, int] | None = None
    """The times whose rows it replaces; None for an insert."""
    package: str | None = None
    batch: tuple[int, ...] = ()
    """(stream, number)"""
    bad: int = 0
    """Rows that came with it and were rejected."""
    rejects: int | None = None
    """How many of those tries were found the last time somebody looked."""
    calls: int = 0
    """How often it was tried."""
    acked: bool = False
    flushed: bool = False
    """A flush that began after its acknowledgement has returned, or it needs none."""
    refused: bool = False
    """The last try raised, in a process that lived on, and changed nothing that could be seen."""

    def __post_init__(self) -> None:
        self.batch = self.rows[0][2:] if self.rows else ()

    def names(self) -> str:
        what = "replace" if self.interval else f"package {self.package}" if self.package else "insert"
        state = "flushed" if self.flushed else "acked" if self.acked else "refused" if self.refused else "not acked"
        return f"{what} {self.batch} ({state})"


@dataclass(slots=True)
class Made:
    """A backup: what was done before it."""

    entries: list[Entry]
    acked: bool = False


@dataclass
class Book:
    entries: list[Entry] = field(default_factory=list)
    backups: list[Made] = field(default_factory=list)
    gone: list[Entry] = field(default_factory=list)
    """What was found missing, rightly: it must not come back."""
    created: bool = False
    """The table was acknowledged."""

    def begin(self, entry: Entry) -> Entry:
        self.entries.append(entry)
        return entry

    def begin_backup(self) -> Made:
        self.backups.append(Made(list(self.entries)))
        return self.backups[-1]

    def open_entries(self) -> list[Entry]:
        return [e for e in self.entries if e.acked and not e.flushed]

    def must(self, promise: str) -> list[Entry]:
        """What has to be there: all that was `acked`, all that was `flushed`, or nothing in particular."""
        return [e for e in self.entries if e.flushed and promise == "flushed" or e.acked and promise == "acked"]

    def keep(self, there: set[Entry], found: list[Row]) -> None:
        """What is there is there to stay; what is not must not come back."""
        self.gone += [e for e in self.entries if e not in there]
        self.entries = [e for e in self.entries if e in there]
        for entry in self.entries:
            entry.acked = True
            entry.rows = sorted(set(entry.rows) & set(found))

    # ---- checking -----------------------------------------------------------------------------------------

    def check(self, found: list[Row], promise: str) -> set[Entry]:
        """Compare what a table holds with what it may hold; returns the entries that are there.

        A batch that need not be there is there wholly or not at all. But where only a flush is a promise, trees are flushed one by
        one, and a batch that lies in several of them may be there in part, unless it is a package.
        """
        twice = [row for row, n in Counter(found).items() if n > 1]
        assert not twice, f"rows that are there twice: {twice}"
        known = {row for e in self.entries for row in e.rows}
        assert not set(found) - known, f"rows that nobody inserted: {sorted(set(found) - known)}"
        sure = self.must(promise)
        doubtful = [e for e in self.entries if e.interval and e not in sure and not e.refused]
        problems = []
        for done in itertools.product((True, False), repeat=len(doubtful)):
            replaced = {e for e in sure if e.interval} | {e for e, yes in zip(doubtful, done, strict=True) if yes}
            there, problem = self._fits(set(found), replaced, sure, parts=promise != "acked")
            if not problem:
                return there
            problems.append(problem)
        raise AssertionError(problems[0])

    def check_backup(self, found: list[Row]) -> None:
        """These rows are those of the last backup that was acknowledged, or of one that was begun after it."""
        last = max((n for n, made in enumerate(self.backups) if made.acked), default=0)
        problems = []
        for made in self.backups[last:]:
            try:
                Book(made.entries).check(found, "acked")
                return
            except AssertionError as e:
                problems.append(str(e))
        raise AssertionError(f"the backup holds what no backup should: {problems}")

    def _fits(self, found: set[Row], replaced: set[Entry], sure: list[Entry], parts: bool) -> tuple[set[Entry], str]:
        """Whether this can be what is left if just these replacements were made."""
        there = set()
        for n, entry in enumerate(self.entries):
            hiding = [e.interval for e in self.entries[n + 1 :] if e in replaced and e.interval]
            whole = {row for row in entry.rows if not any(lo <= row[1] <= hi for lo, hi in hiding)}
            have = found & set(entry.rows)
            needed = entry in sure or entry in replaced
            if have == whole and not (entry.refused and have):
                there.add(entry)
            elif parts and not (needed or entry.refused or entry.package or entry.interval) and have < whole:
                there |= {entry} if have else set()
            elif needed or have:
                return there, f"{entry.names()}: {len(have)} of {len(whole)} rows are there"
        return there, ""

    def check_rejects(self, found: Iterable[dict[str, Any]], promise: str) -> None:
        """Rejects are kept before the rows they came with: they may be there without them, and once for each try."""
        rejected = Counter(tuple(json.loads(row["row"])[c] for c in ("stream", "number")) for row in found)
        sure = self.must(promise)
        for entry in [*self.entries, *self.gone]:
            n = rejected.pop(entry.batch, 0)
            least = entry.bad if entry in sure else 0
            assert least <= n <= entry.bad * entry.calls, f"{entry.names()}: {n} of {entry.bad} rejects are there"
            assert entry.rejects in (None, n), f"{entry.names()}: {n} rejects are there now, {entry.rejects} were"
            entry.rejects = n
        assert not rejected, f"rejects that nobody inserted: {rejected}"
