"""A process on a disk that fails where it is told to, and what it did: its life, its death, and what is found after."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import tidewheel as tw
from tests.crash import derived
from tests.crash.book import SCHEMA, Book, Entry, Row, arrow, batch, rows_of
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.engine.local_engine import LocalEngine
from tidewheel.env.faults import Crashed, FaultPlan, FaultyDisk
from tidewheel.model.query import Query
from tidewheel.testing.abandon import abandon, stacks
from tidewheel.testing.faulty_catalog import FaultyCatalog
from tidewheel.testing.fixed_engine import held
from tidewheel.testing.probe import Probe

T = TypeVar("T")
HANGS = 10.0
"""Seconds without an end after which a case counts as hung."""


class World:
    """One process after the other on one folder. A cycle is a function of a world; it runs in a thread that may be left for dead."""

    def __init__(self, root: Path, settings: tw.Settings) -> None:
        self.settings = settings
        self.book = Book()
        self.backups = root.parent / "backup"
        self.disk = FaultyDisk(root)
        self.closed = False
        """The last process closed the warehouse."""
        self._engine: LocalEngine | None = None
        self._wh: tw.Warehouse | None = None
        self._problem: BaseException | None = None
        self._held: tuple[tw.Result, list[Row]] | None = None

    # ---- one process --------------------------------------------------------------------------------------

    def live(self, cycle: Callable[[World], None], plan: FaultPlan | None = None) -> FaultyDisk:
        """Let a process run through a cycle until it is done or dies. Returns its disk."""
        disk = self.disk = self.disk.next_process(plan)
        self.closed = False
        self._engine = self._wh = self._problem = self._held = None
        thread = threading.Thread(target=self._run, args=(cycle,), name="process", daemon=True)
        thread.start()
        over = disk.crashed.wait(HANGS)
        where = "" if over else stacks(threading.enumerate())
        disk.kill()
        if self._engine is None:  # a thread of it may have died before the one that makes it was done
            thread.join(HANGS)
        if self._engine is not None and not self.closed:
            abandon(self._engine, [thread])
        thread.join(HANGS)
        disk.let_go()
        if self._problem is not None:
            raise self._problem
        assert over and not thread.is_alive(), f"hangs:\n{where}"
        return disk

    def _run(self, cycle: Callable[[World], None]) -> None:
        try:
            cycle(self)
        except (tw.TidewheelError, Crashed) as e:
            if not self.disk.crashed.is_set():
                self._problem = e
        except BaseException as e:
            self._problem = e
        finally:
            self.disk.kill()

    def _do(self, call: Callable[[], T]) -> T:
        """What a dead process is told, nobody hears."""
        result = call()
        if self.disk.crashed.is_set():
            raise Crashed
        return result

    def _insist(self, call: Callable[[], T]) -> T:
        """Do it until it works: one failure is planned, those that follow from it may be few."""
        for _ in range(100):
            try:
                return self._do(call)
            except tw.StorageError as e:
                problem = e
                if self.disk.crashed.is_set():
                    raise
                time.sleep(0.005)
        raise AssertionError("it never works again") from problem

    # ---- what a process does ------------------------------------------------------------------------------

    def open(self) -> None:
        def open_() -> LocalEngine:
            return OwnedEngine(self.disk.root, self.settings, self.disk, lambda path: FaultyCatalog(path, self.disk), listen=False)

        for _ in range(3):
            try:
                self._engine = open_()
                break
            except tw.StorageError:
                if not self.disk.met:
                    raise
        assert self._engine is not None
        self._wh = held(self._engine)
        self._settle()

    @property
    def warehouse(self) -> tw.Warehouse:
        assert self._wh is not None
        return self._wh

    @property
    def table(self) -> tw.Table:
        return self.warehouse.table("t")

    def create(self) -> None:
        self._insist(lambda: self.warehouse.create_table("t", SCHEMA, time="ts", key="k", if_exists="open"))
        self.book.created = True

    def insert(self, rows: list[Row], package: str | None = None, bad: int = 0) -> None:
        """Insert; if that fails, look whether the rows are there, and try again if not, as the message says."""
        entry = self.book.begin(Entry(rows, package=package, bad=bad))
        data = arrow(rows).to_pylist() if bad else arrow(rows)
        data = [*data, *({**data[0], "k": None} for _ in range(bad))] if bad else data
        for _ in range(3):
            entry.calls, entry.refused = entry.calls + 1, False
            try:
                self._do(lambda: self.table.insert(data, package=package, on_bad="reject" if bad else "error"))
                entry.acked, entry.refused = True, False
                entry.flushed = package is not None and not rows
                return
            except tw.StorageError:
                self._do(lambda: None)
                seen = set(rows_of(self.table.query().to_arrow())) & set(rows)
                assert seen in (set(), set(rows)), f"{entry.names()}: {len(seen)} of {len(rows)} rows can be seen"
                entry.refused = not seen
                if seen and package is None:
                    return
        raise AssertionError(f"{entry.names()} never works again")

    def replace(self, rows: list[Row], first: int, last: int) -> None:
        entry = self.book.begin(Entry(rows, interval=(first, last)))
        for _ in range(3):
            entry.calls, entry.refused = entry.calls + 1, False
            try:
                self._do(lambda: self.table.replace(arrow(rows), time=entry.interval))
                entry.acked, entry.flushed, entry.refused = True, True, False
                return self._settle()
            except tw.StorageError:
                self._do(lambda: None)
                entry.refused = True
        raise AssertionError(f"{entry.names()} never works again")

    def derive(self) -> None:
        self._insist(lambda: derived.derive(self.warehouse))

    def refresh(self) -> None:
        """Bring the derived table up to date; the first step of that is a flush."""
        entries = self.book.open_entries()
        self._insist(lambda: derived.refresh_all(self.warehouse))
        for entry in entries:
            entry.flushed = True
        derived.check_all(self.warehouse)
        self._settle()

    def flush(self) -> None:
        entries = self.book.open_entries()
        self._insist(self.table.flush)
        for entry in entries:
            entry.flushed = True
        self._settle()

    def backup(self) -> None:
        made = self.book.begin_backup()
        self._insist(lambda: self.warehouse.backup(self.backups))
        made.acked = True
        for entry in made.entries:
            entry.flushed = entry.flushed or entry.acked
        self._settle()

    def _settle(self) -> None:
        """Wait until what is sealed is committed and the log trimmed: then every run has the same operations."""
        assert self._engine is not None
        while any(table.publisher.jobs for table in self._engine._tables.values()):
            self._do(lambda: time.sleep(0.0005))
        with self._engine.commits._committing:
            pass

    def look(self) -> None:
        """What is acknowledged can be seen at once."""
        self.book.check(rows_of(self.table.query().to_arrow()), "acked")

    def hold(self) -> None:
        """Begin to read what is there now; `read_held` goes on, whatever happened between."""
        self._held = self.table.query(), sorted(rows_of(self.table.query().to_arrow()))

    def read_held(self) -> None:
        assert self._held is not None
        (result, want), self._held = self._held, None
        assert sorted(rows_of(result.to_arrow())) == want, "what is read has changed"

    def look_back(self) -> None:
        """At the earliest generation that can still be read, no row is seen that was gone by then; before it, the table says so."""
        engine = Probe(self.table)
        horizon = engine.version.horizon
        then, now = (set(rows_of(engine.query(Query(upto=upto)).to_arrow())) for upto in (horizon, None))
        assert then <= {row for entry in self.book.entries for row in entry.rows}
        assert all(
            row in now for row in then if not any(e.interval and e.interval[0] <= row[1] <= e.interval[1] for e in self.book.entries)
        )
        if horizon:
            try:
                engine.query(Query(upto=horizon - 1))
            except tw.QueryError as e:
                assert f"is {horizon}" in str(e)
            else:
                raise AssertionError("a generation before the horizon can be read")

    def close(self) -> None:
        entries = self.book.open_entries()
        try:
            self._do(self.warehouse.close)
        except tw.TidewheelError:
            if self.disk.crashed.is_set() or not self.disk.met:
                raise
            return  # it is let go of all the same, but what is in memory only is gone
        self.closed = True
        for entry in entries:
            entry.flushed = True

    # ---- what is found after ------------------------------------------------------------------------------

    def verify(self, promise: str, again: bool = True) -> None:
        """Open what a dead process left. What was promised is there, nothing else, nothing twice; and it works as before. `again`: so
        does the next process."""
        self._restore()
        self.live(lambda world: world._find(promise))
        if again:
            self.live(World._find_again)

    def _find(self, promise: str) -> None:
        self.open()
        assert not self.book.created or "t" in self.warehouse.tables(), "the table is gone"
        self.create()
        if derived.NAME in self.warehouse.tables():
            derived.check(self.warehouse)
            derived.refresh_all(self.warehouse)
            derived.check_all(self.warehouse)
        found = rows_of(self.table.query().to_arrow())
        there = self.book.check(found, promise)
        self.book.check_rejects(self.table.rejects().to_arrow().to_pylist(), promise)
        for entry in [e for e in self.book.entries if e.package]:
            ack = self.table.insert(arrow(entry.rows), package=entry.package)
            known = entry in there if entry.rows else entry in self.book.must(promise)
            assert ack.duplicate == known or not entry.rows and not known, f"{entry.names()}: loaded again is {not ack.duplicate}"
            entry.acked = True
            there.add(entry)
            found += entry.rows
        self.book.keep(there, found)
        self.insert(batch(7, len(self.book.entries)))
        self.look()
        self.flush()
        self.close()

    def _find_again(self) -> None:
        self.open()
        self.look()
        self.book.check_rejects(self.table.rejects().to_arrow().to_pylist(), "acked")
        self.look_back()
        report = self.warehouse.check()
        assert not report.problems, report
        self.close()

    def _restore(self) -> None:
        """The last backup that was acknowledged can be restored, or a later one that was complete all the same."""
        if not self.book.backups:
            return
        acked = any(made.acked for made in self.book.backups)
        restored = self.disk.root.parent / "restored"
        try:
            tw.restore(self.backups, restored)
        except tw.TidewheelError:
            assert not acked, "the backup is lost"
            return
        with tw.open(restored) as wh:
            found = rows_of(wh.table("t").query().to_arrow())
        self.book.check_backup(found)

    def search(self) -> None:
        """Open what a lying disk left: an error is an answer, wrong rows are none."""
        try:
            self.live(lambda world: world._find("nothing"))
        except tw.TidewheelError:
            return
