"""The proof: what must be in the table, from the ledger, against what is. Pure: the same ledger and rows, the same proof."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidewheel.programs.torture.journal import Proof, Settled
from tidewheel.programs.torture.ledger import Ledger, LedgerEntry, State
from tidewheel.programs.torture.workload import Array, sound

SHOWN = 20  # findings that are put in words
_NUMBERS = 40  # bits of a row's id that are its number; the others are its stream


@dataclass(frozen=True, slots=True)
class FoundRows:
    """All rows of a table, as far as the proof needs them, and its rejects."""

    ids: Array
    """Stream and number of each row, as one int64, in the order of the other arrays."""
    previous: Array
    """The id of the row it points at; -1 if it points at none."""
    sound: Array
    """Whether its checksum is right."""
    rejects: Counter[int]
    """Occurrences of each bad row among the rejects, by id."""


def row_id(stream: int, number: int) -> int:
    return stream << _NUMBERS | number


def found(rows: Iterable[pa.RecordBatch], rejects: Iterable[str]) -> FoundRows:
    """The contents of a table: its batches with all columns, and its rejects' rows as JSON text."""
    ids, previous, good = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, bool)]
    for batch in rows:
        streams = batch.column("stream").to_numpy().astype(np.int64) << _NUMBERS
        back = batch.column("previous").to_numpy()
        ids.append(streams | batch.column("number").to_numpy())
        previous.append(np.where(back < 0, -1, streams | back))
        good.append(sound(batch))
    bad = Counter(row_id(row["stream"], row["number"]) for row in map(json.loads, rejects))
    return FoundRows(np.concatenate(ids), np.concatenate(previous), np.concatenate(good), bad)


def settle(ledger: Ledger, there: FoundRows) -> list[Settled]:
    """The fate of the batches in doubt. Only a batch that is there as a whole is loaded."""
    doubts = ledger.doubts()
    present = _present(doubts, np.unique(there.ids)).tolist()
    return [Settled(e.batch.stream, e.batch.order, here == e.batch.rows) for e, here in zip(doubts, present, strict=True)]


def verify(ledger: Ledger, there: FoundRows) -> Proof:
    """Everything that is wrong with a table of which this is known."""
    entries = list(ledger.entries())
    ids, times = np.unique(there.ids, return_counts=True)
    present = _present(entries, ids)
    findings = _Findings()
    _check_batches(entries, present.tolist(), ledger, findings)
    if (many := int((times - 1).sum())) > 0:
        findings.add("duplicates", many, f"{many} rows more than once, first {_shown(ids[times > 1][0])}")
    if bad := int((~there.sound).sum()):
        findings.add("altered", bad, f"{bad} rows do not have the checksum of their values, first {_shown(there.ids[~there.sound][0])}")
    if (strange := len(ids) - int(present.sum())) > 0:
        findings.add("unexpected", strange, f"{strange} rows belong to no batch that was begun")
    _check_links(there, ids, findings)
    _check_rejects(entries, present.tolist(), there.rejects, findings)
    return findings.proof()


class _Findings:
    """Counts of what is wrong, and the first of it in words."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._notes: list[str] = []

    def add(self, kind: str, count: int, note: str) -> None:
        self.counts[kind] += count
        if len(self._notes) < SHOWN:
            self._notes.append(note)

    def proof(self) -> Proof:
        return Proof(**self.counts, notes=tuple(self._notes))


def _present(entries: list[LedgerEntry], ids: Array) -> Array:
    """The number of different rows of each batch that are there."""
    first = np.array([row_id(e.batch.stream, e.batch.first) for e in entries], np.int64)
    rows = np.array([e.batch.rows for e in entries], np.int64)
    return np.searchsorted(ids, first + rows) - np.searchsorted(ids, first)


def _check_batches(entries: list[LedgerEntry], present: list[int], ledger: Ledger, findings: _Findings) -> None:
    """Acknowledged batches are there, batches in doubt as a whole or not at all, and no others."""
    replaced: set[str] = set()
    for entry, here in zip(entries, present, strict=True):
        batch = entry.batch
        if entry.state is State.DOUBT and batch.replaces and here == batch.rows:
            replaced |= {f"{batch.stream}/{order}" for order in ledger.slots.get(batch.stream, [()])[-1]}
    for entry, here in zip(entries, present, strict=True):
        batch, state = entry.batch, entry.state
        name = f"batch {batch.name} (rows {batch.first} to {batch.first + batch.rows - 1})"
        if batch.name in replaced:
            state = State.REPLACED
        if 0 < here < batch.rows:
            findings.add("partial", 1, f"{name}: only {here} of {batch.rows} rows are there")
        if state is State.LOADED and here < batch.rows:
            why = "it was acknowledged" if entry.acknowledged else "it was there after an earlier kill"
            findings.add("holes", batch.rows - here, f"{name}: {batch.rows - here} rows are not there, and {why}")
        if state in (State.REPLACED, State.LOST) and here:
            why = "it was replaced" if state is State.REPLACED else "it was not after an earlier kill"
            findings.add("unexpected", here, f"{name}: {here} rows are there, and {why}")


def _check_links(there: FoundRows, ids: Array, findings: _Findings) -> None:
    """Every row that another points at is there. This needs no ledger: the rows themselves tell."""
    targets = np.unique(there.previous[there.previous >= 0])
    holes = targets[~np.isin(targets, ids, assume_unique=True)]
    if len(holes):
        counted = findings.counts["holes"]  # what the ledger misses too is not counted twice
        findings.add(
            "holes", max(0, len(holes) - counted), f"{len(holes)} rows that others point at are not there, first {_shown(holes[0])}"
        )


def _check_rejects(entries: list[LedgerEntry], present: list[int], rejects: Counter[int], findings: _Findings) -> None:
    """The bad rows of a loaded batch are among the rejects, each as often; a package that was tried again may have them again."""
    known = 0
    for entry, here in zip(entries, present, strict=True):
        batch = entry.batch
        if not batch.bad:
            continue
        first = row_id(batch.stream, batch.first + batch.rows)
        times = [rejects[first + i] for i in range(batch.bad)]
        known += sum(times)
        least = 1 if entry.state is State.LOADED or here == batch.rows else 0
        lacking = sum(n < least for n in times)
        if lacking:
            findings.add("rejects", lacking, f"batch {batch.name}: {lacking} of {batch.bad} rejects are not there")
        elif max(times) > entry.attempts or min(times) < max(times):
            findings.add("rejects", batch.bad, f"batch {batch.name}, tried {entry.attempts}×: its rejects are there {times} times")
    if (strange := rejects.total() - known) > 0:
        findings.add("rejects", strange, f"{strange} rejects belong to no batch that was begun")


def _shown(row: int) -> str:
    return f"row {int(row) & (1 << _NUMBERS) - 1} of stream {int(row) >> _NUMBERS}"
