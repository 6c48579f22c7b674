"""Readers: threads that ask while the streams insert, and know what each answer may be.

The rows of a batch follow from its numbers, so a reader can ask for any key interval × time interval and say which rows
of the batch must come back: all that fit if the batch was acknowledged before the question, else all or none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidewheel.programs.torture.ledger import Ledger, LedgerEntry, State, after
from tidewheel.programs.torture.workload import Array, good_rows, slot, sound

if TYPE_CHECKING:
    from tidewheel.table import Table


class Questioner:
    """One thread's questions. `ask` returns what is wrong with the answer, or nothing."""

    def __init__(self, table: Table, ledger: Ledger, seed: int, number: int) -> None:
        self._table = table
        self._ledger = ledger
        self._seed = seed
        self._rng = np.random.default_rng([seed, number, 3])
        questions = self._some_keys, self._some_keys, self._slowly, self._count, self._slot
        self._questions: tuple[Callable[[LedgerEntry], str], ...] = questions

    def ask(self) -> str:
        """Ask about a batch at random, more often about a new one, in a way chosen at random."""
        streams = [entries for entries in list(self._ledger.streams.values()) if entries]
        if not streams:
            return ""
        entries = streams[int(self._rng.integers(len(streams)))]
        back = int(self._rng.integers(len(entries) if self._rng.random() < 0.3 else min(8, len(entries))))
        entry = entries[-1 - back]
        question = self._slot if entry.batch.slot else self._questions[int(self._rng.integers(len(self._questions)))]
        return question(entry)

    def _some_keys(self, entry: LedgerEntry) -> str:
        """Rows of the batch in a key interval that begins and ends at keys it has."""
        before, batch = entry.state, entry.batch
        rows = good_rows(self._seed, batch)
        keys, numbers = rows.column("key").to_numpy(), rows.column("number").to_numpy()
        low, high = np.sort(keys[self._rng.integers(len(keys), size=2)]).tolist()
        answer = self._table.query(key=(low, high), time=(batch.time, batch.last)).to_arrow()
        return self._compare(entry, before, answer, numbers[(keys >= low) & (keys <= high)])

    def _slowly(self, entry: LedgerEntry) -> str:
        """All its rows, read batch by batch: what the result pins is sealed, flushed and committed meanwhile."""
        before, batch = entry.state, entry.batch
        result = self._table.query(time=(batch.time, batch.last))
        answer = pa.Table.from_batches(result, result.schema)
        return self._compare(entry, before, answer, np.arange(batch.first, batch.first + batch.rows))

    def _count(self, entry: LedgerEntry) -> str:
        """The number of rows, counted by the engine."""
        before, batch = entry.state, entry.batch
        where = f"stream = {batch.stream} and number between {batch.first} and {batch.first + batch.rows - 1}"
        answer = self._table.query(time=(batch.time, batch.last), where=where, aggregate={"n": "count(*)"}).to_arrow()
        return self._judge(entry, before, answer.column("n")[0].as_py(), batch.rows)

    def _slot(self, entry: LedgerEntry) -> str:
        """Everything in the stream's private interval: one of the contents it had since the question was asked."""
        stream = entry.batch.stream
        since = len(self._ledger.slots.get(stream, [()])) - 1
        answer = self._table.query(time=slot(stream)).to_arrow()
        numbers = np.sort(answer.column("number").to_numpy())
        # first what is in doubt, then the contents: a batch that is acknowledged in between is then in both, not in neither
        entries = self._ledger.streams[stream]
        last = entries[-1]
        doubt = last.batch if last.state is State.DOUBT and last.batch.slot else None
        contents = self._ledger.slots.get(stream, [()])[since:]
        if doubt is not None:
            contents.append(after(contents[-1], doubt))
        for content in contents:
            batches = [entries[order].batch for order in content]
            if np.array_equal(numbers, np.concatenate([np.empty(0, np.int64), *(np.arange(b.first, b.first + b.rows) for b in batches)])):
                return ""
        return f"stream {stream} has {len(numbers)} rows in its private interval: none of its contents since then, {contents}"

    def _compare(self, entry: LedgerEntry, before: State, answer: pa.Table, numbers: Array) -> str:
        """Compare the batch's rows in an answer with the numbers they must have."""
        batch = entry.batch
        if not all(sound(part).all() for part in answer.to_batches()):
            return f"an answer about batch {batch.name} has altered rows"
        mine = answer.column("number").to_numpy()[answer.column("stream").to_numpy() == batch.stream]
        mine = np.sort(mine[(mine >= batch.first) & (mine < batch.first + batch.rows)])
        if len(mine) == len(numbers) and not np.array_equal(mine, np.sort(numbers)):
            return f"an answer about batch {batch.name} has other rows of it than were asked for"
        return self._judge(entry, before, len(mine), len(numbers))

    def _judge(self, entry: LedgerEntry, before: State, rows: int, all_rows: int) -> str:
        """All rows or none; all if it was loaded before the question, none if it was lost (but a package is tried again)."""
        all_fit = before is not State.LOST or entry.batch.package
        none_fits = before is not State.LOADED
        if rows == all_rows and all_fit or rows == 0 and none_fits:
            return ""
        return f"an answer about batch {entry.batch.name}, {before.name} when it was asked, has {rows} of {all_rows} rows"
