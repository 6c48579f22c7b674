"""Check and backup as operations on a warehouse that is in use: values that any engine carries (`engine/protocol.py`).

They are imported by every attached process; the work itself is loaded where it is done.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewheel.engine.protocol import WarehouseOperation
from tidewheel.errors import InputError
from tidewheel.model.dataclass import dataclass
from tidewheel.model.report import BackupReport, CheckReport, Progress

if TYPE_CHECKING:
    from tidewheel.engine.local_engine import LocalEngine


@dataclass(frozen=True, slots=True)
class CheckWarehouse(WarehouseOperation[CheckReport]):
    """Read everything and compare it; with `repair`, files that no table knows are moved into quarantine."""

    repair: Any

    def on(self, engine: LocalEngine, progress: Progress | None) -> CheckReport:
        from tidewheel.maintenance.check import check

        return check(engine, self.repair, progress)


@dataclass(frozen=True, slots=True)
class BackupWarehouse(WarehouseOperation[BackupReport]):
    """Make or renew the backup in a folder, which is an absolute path: the owner may have another working directory."""

    folder: str
    verify: Any

    def on(self, engine: LocalEngine, progress: Progress | None) -> BackupReport:
        from tidewheel.maintenance.backup import backup

        return backup(engine, Path(self.folder), self.verify, progress)


def backup_in(folder: str | os.PathLike[str], verify: str) -> BackupWarehouse:
    """The backup in a folder that a user named."""
    try:
        return BackupWarehouse(str(Path(folder).expanduser().resolve()), verify)
    except (TypeError, ValueError, RuntimeError, OSError) as e:
        raise InputError(f"{folder!r} cannot be the folder of a backup: {e}") from None
