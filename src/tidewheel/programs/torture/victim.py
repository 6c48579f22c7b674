"""The ingest: the process that is killed. It opens the warehouse, verifies what it finds, and inserts until it is no more.

Run as `python -m tidewheel.programs.torture.victim`. Its standard input is a pipe that its parent holds: its orders come as
the first line, in JSON, and when the pipe closes, however the parent ended, it ends too. It reports in the journal only.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import tidewheel as tw
import tidewheel.read.kernels
import tidewheel.warehouse
import tidewheel.write.kernels  # now, so that opening takes only as long as recovery does
from tidewheel.programs.torture.journal import (
    Acknowledged,
    Begun,
    Compared,
    Contradicted,
    Failed,
    Follower,
    Journal,
    Opening,
    Proof,
    Ready,
    Recovered,
    Verified,
)  # fmt: skip
from tidewheel.programs.torture.ledger import Ledger, State
from tidewheel.programs.torture.proof import FoundRows, found, settle, verify
from tidewheel.programs.torture.readers import Questioner
from tidewheel.programs.torture.workload import LATE_AFTER, SCHEMA, BatchOutline, next_batch, rows_of, slot

if TYPE_CHECKING:
    from tidewheel.table import Table
    from tidewheel.warehouse import Warehouse

TABLE = "torture"
_READERS = 2
_PAUSE = 0.02  # seconds between two questions of a reader
_TELL = 10  # answers that a reader reports at once


@dataclass(frozen=True, slots=True)
class VictimOrders:
    """The orders of one ingest."""

    folder: str
    """Where its warehouse and its journal are."""
    seed: int = 1
    durability: str = "process"
    streams: int = 3
    servers: int = 1
    chunk_bytes: int = 256 * 1024
    rest: float = 0.002
    """Mean seconds between two batches of a stream: the more rows, the longer it takes to verify them."""
    last: bool = False
    """Verify, close, open and verify again; insert nothing."""

    @property
    def warehouse(self) -> Path:
        return Path(self.folder) / "warehouse"

    @property
    def journal(self) -> Path:
        return Path(self.folder) / "journal"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def settings(self) -> tw.Settings:
        """Small chunks, so that trees are sealed and flushed and the log is trimmed all the time."""
        return tw.Settings(
            durability=self.durability, indexing_servers=self.servers, chunk_bytes=self.chunk_bytes, flush_after=1.0,
            late_after=LATE_AFTER, leaf_rows=64,
        )  # fmt: skip


class Ingest:
    """One life of the ingest, from opening to the kill."""

    def __init__(self, orders: VictimOrders) -> None:
        self._orders = orders
        self._ledger = Ledger(Follower(orders.journal).events())
        self._journal = Journal(orders.journal)
        self._failed = threading.Event()

    def run(self) -> None:
        """Verify, then insert until a thread fails. The kill comes from outside."""
        warehouse, table = self._open()
        self._verify(table)
        if self._orders.last:
            self._check(warehouse)
            warehouse.close()
            warehouse, table = self._open()
            self._verify(table)
            self._check(warehouse)
            warehouse.close()
            return
        self._journal.write(Ready())
        for stream in range(self._orders.streams):
            self._start(self._insert, table, stream)
        for number in range(_READERS):
            self._start(self._read, table, number)
        self._failed.wait()
        os._exit(1)  # without closing: what is wrong stays as it was found

    def _open(self) -> tuple[Warehouse, Table]:
        self._journal.write(Opening())
        began = time.perf_counter()
        warehouse = tw.open(self._orders.warehouse, settings=self._orders.settings())
        table = warehouse.create_table(TABLE, SCHEMA, time="time", key="key", if_exists="open")
        self._journal.write(Recovered(time.perf_counter() - began, str(warehouse.recovery)))
        return warehouse, table

    def _start(self, work: Callable[[Table, int], None], table: Table, number: int) -> None:
        def guarded() -> None:
            try:
                work(table, number)
            except BaseException:
                self._journal.write(Failed(traceback.format_exc(limit=-8)))
                self._failed.set()

        threading.Thread(target=guarded, name=f"{work.__name__}-{number}", daemon=True).start()

    # ---- verifying --------------------------------------------------------------------------------------

    def _verify(self, table: Table) -> None:
        """Compare everything with the ledger, settle what is in doubt, try packages again, and ask a few questions."""
        there = everything(table)
        proof = verify(self._ledger, there)
        if (said := table.rows) != len(there.ids):
            proof += Proof(wrong=1, notes=(f"the table says that it has {said} rows, and a query returned {len(there.ids)}",))
        if proof.whole:
            for settled in settle(self._ledger, there):
                self._journal.write(settled)
                self._ledger.apply(settled)
            proof += self._try_packages(table)
            reader = Questioner(table, self._ledger, self._orders.seed, len(there.ids))
            notes = [note for _ in range(_TELL) if (note := reader.ask())]
            proof += Proof(wrong=len(notes), notes=tuple(notes))
            self._journal.write(Compared(_TELL))
        self._journal.write(Verified(proof, len(there.ids)))
        if not proof.whole:
            os._exit(1)

    def _try_packages(self, table: Table) -> Proof:
        """Insert some loaded packages again, the newest of each stream among them: each must be known as a duplicate."""
        loaded = [entry.batch for entry in self._ledger.entries() if entry.batch.package and entry.state is State.LOADED]
        newest = {batch.stream: batch for batch in loaded}
        rng = np.random.default_rng([self._orders.seed, len(loaded), 4])
        others = (loaded[int(i)] for i in rng.integers(len(loaded), size=5)) if loaded else ()
        notes = []
        for batch in (*newest.values(), *others):
            if not table.insert(rows_of(self._orders.seed, batch), package=batch.name, on_bad="reject").duplicate:
                notes.append(f"package {batch.name} was loaded before the kill, and again after it")
        return Proof(packages=len(notes), notes=tuple(notes))

    def _check(self, warehouse: Warehouse) -> None:
        """The warehouse's own check must agree that all is well."""
        if not (report := warehouse.check()).ok:
            self._complain(Proof(wrong=len(report.problems), notes=(str(report),)))

    # ---- the streams and the readers --------------------------------------------------------------------

    def _insert(self, table: Table, stream: int) -> None:
        """Insert one batch after the other. A package that a kill lost is tried again first: it must not be called a duplicate."""
        seed = self._orders.seed
        entries = self._ledger.streams.setdefault(stream, [])
        if entries and entries[-1].state is State.LOST and entries[-1].batch.package:
            self._deliver(table, entries[-1].batch)
        while not self._failed.is_set():
            order = len(entries)
            batch = next_batch(seed, stream, order, self._ledger.next_number(stream), self._ledger.linkable.get(stream, []))
            self._deliver(table, batch)
            rng = np.random.default_rng([seed, stream, order, 5])
            if rng.random() < 0.01:
                table.flush()
            if rng.random() < 0.9:  # some come one right after the other
                time.sleep(float(rng.exponential(self._orders.rest)))

    def _deliver(self, table: Table, batch: BatchOutline) -> None:
        """Journal, insert, journal again; then check what the acknowledgement says."""
        rows = rows_of(self._orders.seed, batch)
        on_bad = "reject" if batch.bad else "error"
        self._note(Begun(batch))
        if batch.replaces:
            ack = table.replace(rows, time=slot(batch.stream))
        else:
            ack = table.insert(rows, package=batch.name if batch.package else None, on_bad=on_bad)
        self._note(Acknowledged(batch.stream, batch.order))
        if ack.duplicate:
            self._complain(Proof(packages=1, notes=(f"package {batch.name} was called a duplicate, and was not there",)))
        elif (ack.rows, ack.rejected) != (batch.rows, batch.bad):
            self._complain(Proof(wrong=1, notes=(f"batch {batch.name} has {batch.rows} rows and {batch.bad} bad ones, not {ack}",)))
        if batch.package and batch.order % 2 and not table.insert(rows, package=batch.name, on_bad=on_bad).duplicate:
            self._complain(Proof(packages=1, notes=(f"package {batch.name} was loaded twice in a row",)))

    def _read(self, table: Table, number: int) -> None:
        reader = Questioner(table, self._ledger, self._orders.seed, number)
        while not self._failed.is_set():
            for _ in range(_TELL):
                time.sleep(_PAUSE)
                if note := reader.ask():
                    self._complain(Proof(wrong=1, notes=(note,)))
            self._journal.write(Compared(_TELL))

    def _note(self, event: Begun | Acknowledged) -> None:
        self._journal.write(event)
        self._ledger.apply(event)

    def _complain(self, proof: Proof) -> None:
        self._journal.write(Contradicted(proof))
        self._failed.set()


def everything(table: Table) -> FoundRows:
    """All rows and all rejects of a table."""
    return found(table.query(), table.rejects().to_arrow().column("row").to_pylist())


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def main() -> None:
    line = sys.stdin.buffer.readline()
    if not line:
        return  # it was not needed
    orders = VictimOrders(**json.loads(line))
    threading.Thread(target=_end_with_parent, name="lifeline", daemon=True).start()
    try:
        Ingest(orders).run()
    except BaseException:
        Journal(orders.journal).write(Failed(traceback.format_exc(limit=-8)))
        os._exit(1)


if __name__ == "__main__":
    main()
