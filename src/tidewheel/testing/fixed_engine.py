"""A warehouse over an engine that the test made itself: with a disk that fails, or one that nobody else can reach."""

from __future__ import annotations

from tidewheel.cluster.current_engine import CurrentEngine
from tidewheel.cluster.owner import OwnedEngine
from tidewheel.engine.local_engine import LocalEngine
from tidewheel.warehouse import Warehouse


class FixedEngine(CurrentEngine):
    """Has one engine for good."""

    def __init__(self, engine: OwnedEngine) -> None:
        self.root = engine.root
        self._fixed = engine

    def engine(self) -> OwnedEngine:
        return self._fixed

    def leave(self) -> None:
        self._fixed.close()


def held(engine: LocalEngine) -> Warehouse:
    """The engine as users hold it."""
    assert isinstance(engine, OwnedEngine)
    return Warehouse(FixedEngine(engine))
