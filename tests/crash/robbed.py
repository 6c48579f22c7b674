"""One of many processes that use a warehouse which is taken away under its owners: as owner, and attached.

    python -m tests.crash.robbed ROOT NUMBER JOURNAL STOP SEED TIMEOUT

It inserts packages of one row or some, each call with a timeout, and writes into its journal what was acknowledged, when, and how long
calls took that were made while it was attached:

    ack NUMBER WHEN       package NUMBER was acknowledged; WHEN is the clock that all processes share, taken when it came
    slow SECONDS WHAT     a call took longer than its timeout and a second
    calls ATTACHED LATE   at the end: calls that were made while attached, and how many of them ended by their timeout
    opened WHEN HOW       it owns the warehouse now, or is attached
    met WHEN ERROR        an error that it met, with its message, and with what it came from

An owner that is fenced closes the warehouse and opens it again, as its error says. Packages whose fate is unknown are inserted again.
"""

from __future__ import annotations

import random
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import tidewheel as tw
from tests.crash.crowd import SCHEMA, package
from tidewheel.cluster import current_engine
from tidewheel.errors import CorruptionError, FencedError, FormatError, LimitError, NotFoundError, QueryError
from tidewheel.testing.probe import last_engine_of

LATE = 1.0


class Robbed:
    def __init__(self, root: Path, who: int, journal: Path, stop: Path, seed: int, timeout: float) -> None:
        self.root, self.who, self.stop, self.timeout = root, who, stop, timeout
        self.rng = random.Random(seed)
        self.out = journal.open("a", buffering=1)
        self.number = 0
        self.attached = self.late = 0
        self.wh: tw.Warehouse | None = None

    def open(self) -> tw.Table | None:
        """None where nothing can be opened now: the folder is gone, or an owner hangs."""
        try:
            if self.wh is None:
                self.wh = tw.open(self.root)
                self.out.write(f"opened {time.monotonic()} {'owns' if last_engine_of(self.wh).owns else 'attached'}\n")
            return self.wh.table("t")  # never made here: another warehouse may be in the place of ours
        except (tw.TidewheelError, OSError) as e:
            self.trouble(e)
            return None

    def trouble(self, error: Exception) -> None:
        """Go on where that makes sense; else end, loudly."""
        self.met(error)
        # CorruptionError: a chunk is not there, because its folder is not
        if isinstance(error, (FencedError, NotFoundError, FormatError, QueryError, CorruptionError)):
            wh, self.wh = self.wh, None
            if wh is not None:
                try:
                    wh.close()
                except tw.TidewheelError as e:
                    self.met(e, "closing: ")
        elif not isinstance(error, LimitError) and not getattr(error, "retryable", True):
            raise error

    def met(self, error: BaseException, doing: str = "") -> None:
        said, cause = f"{type(error).__name__}: {error}", error.__cause__
        said += f" <- {type(cause).__name__}: {cause}" if cause is not None else ""
        self.out.write(f"met {time.monotonic()} {doing}{' '.join(said.split())}\n")

    def run(self) -> None:
        table: tw.Table | None = None
        while not self.stop.exists():
            if self.wh is None or table is None:
                table = self.open()
                if table is None:
                    time.sleep(0.02)
                    continue
            try:
                self.step(table)
            except tw.TidewheelError as e:
                self.trouble(e)
                table = table if self.wh is not None else None
        self.out.write(f"calls {self.attached} {self.late}\n")
        if self.wh is not None:
            with suppress(tw.TidewheelError):
                self.wh.close()

    def step(self, table: tw.Table) -> None:
        assert self.wh is not None
        attached = not last_engine_of(self.wh).owns
        self.attached += attached
        what = self.rng.random()
        began = time.monotonic()
        try:
            if what < 0.7:
                table.insert(package(self.who, self.number), package=f"{self.who}/{self.number}", timeout=self.timeout)
                self.out.write(f"ack {self.number} {time.monotonic()}\n")
                self.number += 1
            elif what < 0.9:
                table.query(key=self.who, timeout=self.timeout).to_arrow()
            else:
                self.wh.sql(f"SELECT sum(i) FROM t WHERE who = {self.who} AND i % 2 = 0", timeout=self.timeout).to_arrow()
        except LimitError:
            self.late += attached
            raise
        finally:
            took = time.monotonic() - began
            if attached and took > self.timeout + LATE:
                self.out.write(f"slow {took:.2f} {what:.2f}\n")
            if what < 0.7:
                time.sleep(0.002)


if __name__ == "__main__":
    root, who, journal, stop, seed, timeout = sys.argv[1:]
    with tw.open(Path(journal).parent / f"warm-{who}") as warm:  # what is loaded on first use is not the time of a call
        warm.create_table("t", SCHEMA, time="ts", key="who").insert(package(0, 0))
        warm.sql("SELECT sum(i) FROM t WHERE who = 1 AND i % 2 = 0").to_arrow()
        warm.table("t").flush()
    current_engine._take = partial(current_engine._take, anew=True)  # never make a new one: the folder may come back
    Robbed(Path(root), int(who), Path(journal), Path(stop), int(seed), float(timeout)).run()
