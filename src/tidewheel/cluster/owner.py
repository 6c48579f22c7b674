"""The owner of a warehouse: the local engine, what keeps it whole, and a door for the processes that attach to it."""

from __future__ import annotations

from pathlib import Path

from tidewheel.catalog.light import open_light
from tidewheel.cluster.listener import Listener
from tidewheel.engine.local_engine import LocalEngine, OpenCatalog
from tidewheel.env.disk import Disk
from tidewheel.model.report import Progress
from tidewheel.settings import Settings


class OwnedEngine(LocalEngine):
    """Holds `engine.protocol.Engine`. Listens from the moment it is made until it is closed."""

    lost = False
    owns = True
    listener: Listener | None = None

    def __init__(
        self,
        root: Path,
        settings: Settings,
        disk: Disk | None = None,
        open_catalog: OpenCatalog = open_light,
        listen: bool = True,
        anew: bool = False,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(root, settings, disk, open_catalog, anew, progress)
        place = Path(self.files.path(""))
        self.listener = Listener(self, root, self.epoch, busy=self._is_awaited, place=place) if listen else None
        if self.listener is not None:
            self.listener.start()

    def _is_awaited(self) -> bool:
        """Whether somebody has begun something here that takes several calls, and will be back."""
        return any(t.streams.awaited or len(t.pins) or t.loads.under_way for t in list(self._tables.values()))

    def _watched(self) -> None:
        if self.listener is not None:
            self.listener.mend()

    def _stop_owning(self) -> None:
        super()._stop_owning()
        if self.listener is not None:
            self.listener.close()

    def forsake(self) -> None:
        self._closed = True

    def close(self) -> None:
        """Let nobody in any more, then flush and let go of the warehouse."""
        try:
            if self.listener is not None:
                self.listener.close()
        finally:
            super().close()
