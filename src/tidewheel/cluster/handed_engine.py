"""The engine of a table or a warehouse that was handed to this process by another one, or by itself: a path, until it is first used.

Not when it is unpickled: what is wrong then (no such folder any more, a forked process that cannot attach) is to be said by a call that
somebody made, and many programs that hand things over die of an error before it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from tidewheel.cluster.current_engine import CurrentEngine, engine_in_use, open_engine
from tidewheel.engine.protocol import Engine
from tidewheel.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class HandedTable:
    """Stands for a table until it is first used."""

    name: str


class HandedEngine(CurrentEngine):
    """Every method may be called from any thread.

    Of a warehouse, it is a user like any other, who leaves. Of a table it is none if this process has the warehouse open, and whoever
    closes that closes it for the table, too; else it opens the warehouse, which stays open until the process ends.
    """

    def __init__(self, root: Path, *, leaves: bool) -> None:
        self.root = root
        self._leaves = leaves
        self._there: CurrentEngine | None = None
        self._opening = threading.Lock()

    def engine(self) -> Engine:
        return self._opened().engine()

    @property
    def fenced(self) -> bool:
        return self._opened().fenced

    def leave(self) -> None:
        with self._opening:
            there, self._there = self._there, None
        if there is not None and self._leaves:
            there.leave()

    def _opened(self) -> CurrentEngine:
        with self._opening:
            if self._there is None:
                self._there = (None if self._leaves else engine_in_use(self.root)) or self._open()
            return self._there

    def _open(self) -> CurrentEngine:
        try:
            return open_engine(self.root, None, create=False)
        except NotFoundError:
            raise NotFoundError(f"there is no warehouse in {self.root}: it was deleted, or is on another machine") from None
